//! Waits for the status of a gRPC call, which follows the response's body. Head and body are held until then, so that
//! the call can be retried.
//!
//! A call with one response cannot be distinguished from a stream. So only short bodies are held, and only for
//! `MOMENT`: a stream is delayed by no more, once. Servers send the whole response to a unary call at once.

use std::pin::pin;

use grpc::{CallStatus, Unary};
use http1::BodyFraming;

use crate::answer::grpc as answers;
use crate::body::incoming_body::IncomingBody;
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse};
use crate::context::routed::ExchangeContext;
use crate::context::seen;
use crate::failure::Failure;
use crate::forward::{MOMENT, unless_gone};
use crate::upstream::ServerConnection;
use transport::deadline::Elapsed;

/// The longest message that is held, including its prefix.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// The field with the status, in the head (Trailers-Only) or in the trailers.
const STATUS: &[u8] = b"grpc-status";

/// Returns the status of the call that was answered. `None` if the response is not gRPC, or the call goes on. Called
/// for responses of routes that retry by gRPC status.
pub(super) async fn status(
    ctx: &ExchangeContext<'_>,
    connection: &ServerConnection,
    response: &mut CurrentResponse,
) -> Result<Option<CallStatus>, Failure> {
    let bytes = response.buffer.filled();
    // Another HTTP status has a retry rule for itself.
    if response.head.start.status != 200 || !answers::is_call(&response.head, bytes) {
        return Ok(None);
    }
    // Trailers-Only: the head has the status, so nothing needs to be held.
    if let Some(status) = seen::line(&response.head, bytes, STATUS) {
        return Ok(Some(CallStatus::of_field(status)));
    }
    // A client that still sends may depend on responses meanwhile.
    if connection.framing != BodyFraming::Chunked || !connection.upload.is_done() {
        return Ok(None);
    }
    HeldResponse {
        ctx,
        connection,
        body: IncomingBody::new(BodyFraming::Chunked),
        unary: Unary::new(MESSAGE_BYTES_MAX),
    }
    .status(response)
    .await
}

/// Maps a gRPC status that blames the server to an HTTP status.
pub(super) fn as_http(call: Option<CallStatus>, status: u16) -> u16 {
    if call == Some(CallStatus::UNAVAILABLE) { 503 } else { status }
}

/// Keeps the beginning of a call's body, so that it can be sent again: over HTTP/2 the body does not arrive with its
/// head.
#[cold]
pub(super) fn keep(request: &mut CurrentRequest) {
    if answers::is_call(&request.head, request.head_bytes()) {
        request.tee.get_or_insert_default().keep(MESSAGE_BYTES_MAX);
    }
}

/// Resets the request's body for another attempt, if more than its first piece was sent. Returns its progress.
#[cold]
pub(super) fn repeat(request: &mut CurrentRequest, first_piece_taken: (u64, bool)) -> (u64, bool) {
    let CurrentRequest { body, buffer, first_piece, .. } = request;
    if body.taken() != first_piece_taken {
        body.repeat(buffer, first_piece);
    }
    body.taken()
}

/// A response that is held back.
struct HeldResponse<'a> {
    ctx: &'a ExchangeContext<'a>,
    connection: &'a ServerConnection,
    body: IncomingBody,
    unary: Unary,
}

impl HeldResponse<'_> {
    /// Reads the held body up to its trailers. Returns `None` if it is not a short response, or takes longer than
    /// `MOMENT`.
    async fn status(mut self, response: &mut CurrentResponse) -> Result<Option<CallStatus>, Failure> {
        let Self { ctx, connection, .. } = self;
        let deadline = &ctx.client.deadline;
        let buffer = &mut response.buffer;
        let mut looked_at = response.head.len;
        // The limit covers all pieces together.
        deadline.set(MOMENT);
        loop {
            let mut piece = buffer.filled()[looked_at..].to_vec();
            looked_at += piece.len();
            // Invalid chunks are reported when the body is passed on.
            let Ok(taken) = self.body.take(&mut piece) else { return Ok(None) };
            // Several messages, or a long one, are probably a stream, which must not wait.
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

/// Returns the status in the trailers; a call without one has failed for an unknown reason.
fn status_of(trailers: &[u8]) -> CallStatus {
    let mut lines = trailers.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
        name.eq_ignore_ascii_case(STATUS).then(|| value[1..].trim_ascii())
    });
    value.map_or(CallStatus::UNKNOWN, CallStatus::of_field)
}
