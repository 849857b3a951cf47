//! Waits for the status of a gRPC call, which comes behind the response's body: so that the call can be repeated, the head
//! and the body are held meanwhile.
//!
//! Nothing tells a call with one response from a stream of them. So what is held is short, and for a moment: a stream loses
//! no more than that, once. Servers send the whole response to a unary call at once.

use std::pin::pin;

use grpc::{Status, Unary};
use http1::Framing;

use crate::body::incoming_body::IncomingBody;
use crate::context::exchange::ExchangeContext;
use crate::context::exchange_slot::{Request, Response};
use crate::context::failure::Failure;
use crate::context::seen;
use crate::forward::{MOMENT, grpc as answers, unless_gone};
use crate::upstream::ServerConnection;
use transport::deadline::Elapsed;

/// The longest message that is held, with its prefix.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// The field with the status, in the head (Trailers-Only) or in the trailers.
const STATUS: &[u8] = b"grpc-status";

/// The status of the call that this is the response to; `None` if it is no call, or one that goes on.
pub(super) async fn status(
    ctx: &ExchangeContext<'_>,
    connection: &ServerConnection,
    response: &mut Response,
) -> Result<Option<Status>, Failure> {
    let bytes = response.buffer.filled();
    if response.head.start.status != 200 || !answers::is_call(&response.head, bytes) {
        return Ok(None);
    }
    if let Some(status) = seen::line(&response.head, bytes, STATUS) {
        return Ok(Some(Status::of_field(status)));
    }
    // A client that still sends is answered as it goes.
    if connection.framing != Framing::Chunked || !connection.upload.is_done() {
        return Ok(None);
    }
    Held { ctx, connection, body: IncomingBody::new(Framing::Chunked), unary: Unary::new(MESSAGE_BYTES_MAX) }
        .status(response)
        .await
}

/// What a status of gRPC, if there is one, says about a server, as a status of HTTP.
pub(super) fn as_http(call: Option<Status>, status: u16) -> u16 {
    if call == Some(Status::UNAVAILABLE) { 503 } else { status }
}

/// Keeps what passes of a call's body, so that it can be sent again: over HTTP/2 no body comes with its head.
#[cold]
pub(super) fn keep(request: &mut Request) {
    if answers::is_call(&request.head, request.head_bytes()) {
        request.tee.get_or_insert_default().keep(MESSAGE_BYTES_MAX);
    }
}

/// Sets the request's body back for another attempt, where more than its first piece is gone. Returns how far it is taken.
#[cold]
pub(super) fn repeat(request: &mut Request, first_piece_taken: (u64, bool)) -> (u64, bool) {
    let Request { body, buffer, first_piece, .. } = request;
    if body.taken() != first_piece_taken {
        body.repeat(buffer, first_piece);
    }
    body.taken()
}

/// A response that is held.
struct Held<'a> {
    ctx: &'a ExchangeContext<'a>,
    connection: &'a ServerConnection,
    body: IncomingBody,
    unary: Unary,
}

impl Held<'_> {
    async fn status(mut self, response: &mut Response) -> Result<Option<Status>, Failure> {
        let Self { ctx, connection, .. } = self;
        let deadline = &ctx.client.deadline;
        let buffer = &mut response.buffer;
        let mut looked_at = response.head.len;
        // One moment for all of it, in however many pieces it comes.
        deadline.set(MOMENT);
        loop {
            let mut piece = buffer.filled()[looked_at..].to_vec();
            looked_at += piece.len();
            // What is wrong with its chunks is told when it is passed on.
            let Ok(taken) = self.body.take(&mut piece) else { return Ok(None) };
            if !self.unary.take(&piece[..taken.data]) {
                return Ok(None);
            }
            if self.body.is_over() {
                return Ok(Some(status_of(self.body.trailers(|_| true))));
            }
            if buffer.spare().is_empty() {
                buffer.compact();
            }
            if buffer.spare().is_empty() {
                ctx.worker.buffers.grow(buffer);
            }
            let heard = {
                let read = pin!(connection.socket.read(buffer.spare()));
                deadline.guard(unless_gone(ctx.client, read)).await
            };
            match heard {
                Ok(Ok(Ok(count))) if count > 0 => buffer.advance(count),
                Ok(Ok(_)) => return Err(Failure::UpstreamTruncated),
                Ok(Err(_)) => return Err(Failure::ClientGone),
                Err(Elapsed) => return Ok(None),
            }
        }
    }
}

/// What the trailers say. A call without a status has failed for a reason that nobody knows.
fn status_of(trailers: &[u8]) -> Status {
    let mut lines = trailers.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
        name.eq_ignore_ascii_case(STATUS).then(|| value[1..].trim_ascii())
    });
    value.map_or(Status::UNKNOWN, Status::of_field)
}
