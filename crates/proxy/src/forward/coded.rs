//! Sends a server's response to its client in another content coding, as it comes.
//!
//! A piece of a stream leaves as soon as nothing more of it is here: the coder is flushed before each wait. A body of
//! known length is no stream, and waits a moment for more, since each flush makes it longer.

use std::future::poll_fn;
use std::io::Write;
use std::pin::pin;

use coding::{Content, Flush, is_of_bytes};
use config::Compress;
use grpc::Status;
use http1::{Framing, HeadLimits};

use crate::body::arrivals::Arrivals;
use crate::body::incoming_body::IncomingBody;
use crate::body::sink::BodySink;
use crate::body::transform::{Choice, changed_head, fields, fields_of_text, values};
use crate::body::upload::Until;
use crate::context::client::Next;
use crate::context::coders::Transform;
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::{Request, Response};
use crate::context::failure::{Failure, Party};
use crate::context::plan::Compression;
use crate::forward::respond;
use crate::forward::{Gone, Reply, unless_gone};
use transport::cold::poll_once;
use transport::deadline::{Elapsed, Ticks};

/// So much of a coded body leaves in one write.
const PIECE_BYTES: usize = 16 << 10;
/// How long a body of known length waits for more before its coder is flushed.
const MOMENT: Ticks = Ticks(2);

/// Decides about a server's response. What stays as it is gets its line of Vary.
pub(crate) fn choose(
    routed: &RoutedRequest,
    compress: &Compress,
    request: &Request,
    response: &mut Response,
) -> Choice {
    let status = response.head.start.status;
    if routed.wants_upgrade && status == 101 {
        return Choice::Unchanged { adds_vary: false };
    }
    let content = Content::of(fields(&response.head, response.buffer.filled()));
    let choice = Choice::of(compress, request, status, &content);
    if status == 304 && has_weakened_tag(request, response) {
        return Choice::Weaken;
    }
    if choice == (Choice::Unchanged { adds_vary: true }) {
        response.added.extend_from_slice(coding::VARY);
    }
    choice
}

/// Whether the client has the response that is not modified in a coding that it got here: it asks by the weak tag.
///
/// RFC 9111 §4.3.4: a cache on the way finds what it has stored by the tag of the 304, so that has to be weak, too.
fn has_weakened_tag(request: &Request, response: &Response) -> bool {
    let mut known = values(&request.head, request.head_bytes(), b"if-none-match");
    let mut tags = fields(&response.head, response.buffer.filled())
        .filter(|(name, value)| name.eq_ignore_ascii_case(b"etag") && value.starts_with(b"\""));
    let Some((_, tag)) = tags.next() else { return false };
    let weak = [b"W/", tag].concat();
    known.any(|value| value.windows(weak.len()).any(|known| known == weak))
}

/// Sends a response whose body changes.
pub(crate) async fn respond(
    exchange: &mut Exchange<'_, '_>,
    reply: Reply,
    choice: Choice,
    compress: &Compress,
) -> Result<Next, Failure> {
    let response = &exchange.memory.response;
    let size = if let Framing::Length(length) = reply.framing { Some(length) } else { None };
    let is_stream = size.is_none() || is_unbuffered(response);
    let change = choice.change().ok_or(Failure::UpstreamFraming)?;
    let bytes = response.buffer.filled();
    let text = changed_head(bytes, fields(&response.head, bytes), change);
    let transform = choice.transform(&exchange.ctx.worker.coders, compress, size);
    pass(exchange, reply, text, (transform, is_stream)).await
}

/// Sends a response with another head, which has no end yet, and what a transform makes of its body; without one, the
/// response has no body. `is_stream` tells whether each piece leaves as it comes.
pub(crate) async fn pass(
    exchange: &mut Exchange<'_, '_>,
    mut reply: Reply,
    text: Vec<u8>,
    (transform, is_stream): (Option<Transform>, bool),
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let arrivals =
        Arrivals::of_response(ctx, &exchange.state.record, reply.framing, &exchange.memory.response);
    let transform = transform.filter(|_| reply.framing != Framing::None);
    let source = if transform.is_some() { Framing::Chunked } else { reply.framing };
    let status = exchange.memory.response.head.start.status;
    let plan = respond::plan(ctx, routed, status, &reply, source, exchange.state);
    exchange.state.record.received_apart(exchange.memory.response.head.len as u64);
    let mut early = change_head(ctx, &mut exchange.memory.response, text)?;
    let (request, response) = (&mut exchange.memory.request, &mut exchange.memory.response);
    respond::render(ctx, routed, request, response, (&reply, &plan, false));
    exchange.state.answers(status);
    let sink = BodySink::paced(ctx, routed, plan, &mut response.out, exchange.state);
    if let Err(failure) = sink.begin(&mut response.out).await {
        exchange.state.answers_nothing();
        return Err(failure);
    }
    response.buffer.clear();
    let Some(transform) = transform else {
        // RFC 9112 §9.3: what a server sends beyond its response belongs to no request.
        reply.persists &= early.is_empty();
        sink.send(&response.out, b"", sink.plan().at_end()).await?;
        exchange.state.record.upstream_ended();
        return Ok(respond::end(ctx, reply, response, sink.plan()));
    };
    let mut coded = CodedBody {
        ctx,
        routed,
        sink: &sink,
        arrivals,
        body: IncomingBody::new(reply.framing),
        transform,
        coded: Vec::new(),
        is_flushed: true,
        is_stream,
        has_excess: false,
    };
    let outcome = {
        let relay = pin!(coded.run(&reply, &mut early, response));
        reply.upload.beside(ctx, routed, &reply, request, Until::End, relay).await
    };
    exchange.state.record.upstream_ended();
    exchange.state.body_bytes_sent = sink.sent_bytes();
    if let Err(failure) = outcome {
        return failed(exchange, coded, reply.upload.has_left_client(), failure).await;
    }
    reply.persists &= !coded.has_excess;
    ctx.worker.coders.give(coded.transform);
    reply.expects_long = false;
    let response = &mut exchange.memory.response;
    Ok(respond::end(ctx, reply, response, sink.plan()))
}

/// Ends a response that has failed.
async fn failed(
    exchange: &mut Exchange<'_, '_>,
    mut coded: CodedBody<'_>,
    has_left_client: bool,
    failure: Failure,
) -> Result<Next, Failure> {
    let (ctx, sink) = (exchange.ctx, coded.sink);
    if !exchange.memory.response.out.is_empty() {
        // The head has not left: the client gets a clear status.
        exchange.state.answers_nothing();
        return Err(failure);
    }
    if !coded.can_tell(failure) {
        respond::break_off(ctx, sink.plan(), failure, (exchange.memory, exchange.state));
        return Ok(Next::Drop);
    }
    exchange.state.failed(ctx, failure);
    exchange.state.record.explain(exchange.memory, failure);
    let has_told = coded.tell(failure).await;
    exchange.state.body_bytes_sent = sink.sent_bytes();
    Ok(if has_told { respond::next(sink.plan(), has_left_client) } else { Next::Drop })
}

/// `X-Accel-Buffering: no`, with which servers ask nginx to pass each piece on as it comes.
fn is_unbuffered(response: &Response) -> bool {
    fields(&response.head, response.buffer.filled()).any(|(name, value)| {
        name.eq_ignore_ascii_case(b"x-accel-buffering") && value.eq_ignore_ascii_case(b"no")
    })
}

/// Puts another head in the place of the server's, in the buffer. Returns what had come of the body.
fn change_head(
    ctx: &ExchangeContext<'_>,
    response: &mut Response,
    mut text: Vec<u8>,
) -> Result<Vec<u8>, Failure> {
    let Response { head, buffer, .. } = response;
    let bytes = buffer.filled();
    text.extend_from_slice(b"\r\n");
    let early = bytes[head.len..].to_vec();
    buffer.clear();
    ctx.worker.buffers.fit(buffer, text.len());
    buffer.spare()[..text.len()].copy_from_slice(&text);
    buffer.advance(text.len());
    let version = head.start.version;
    head.clear();
    let limits = HeadLimits { bytes: text.len(), fields: usize::MAX, target: 0 };
    head.parse(buffer.filled(), &limits).map_err(|_| Failure::UpstreamMalformed)?;
    head.start.version = version;
    Ok(early)
}

/// Codes a whole body of the proxy's own, whose head is begun. Returns the coded body; `None` leaves it as it is.
#[cold]
pub(crate) fn own(
    ctx: &ExchangeContext<'_>,
    compression: &Compression,
    request: &Request,
    head: &mut Vec<u8>,
    (status, body): (u16, &[u8]),
) -> Option<Vec<u8>> {
    if body.is_empty() || request.head.len == 0 {
        return None;
    }
    let (compress, size) = (&compression.settings, body.len() as u64);
    let content = Content::of(fields_of_text(head)).with_length(Some(size));
    let choice = Choice::of(compress, request, status, &content);
    if choice == (Choice::Unchanged { adds_vary: true }) {
        head.extend_from_slice(coding::VARY);
    }
    let (change, mut transform) =
        (choice.change()?, choice.transform(&ctx.worker.coders, compress, Some(size))?);
    let mut coded = Vec::new();
    transform.push(body, Flush::End, &mut coded).ok()?;
    ctx.worker.coders.give(transform);
    let mut text = changed_head(head, fields_of_text(head), change);
    // Writing into a Vec does not fail.
    let _ = write!(text, "Content-Length: {}\r\n", coded.len());
    *head = text;
    Some(coded)
}

/// A body on its way from a server to a client, in another coding.
struct CodedBody<'a> {
    ctx: &'a ExchangeContext<'a>,
    routed: &'a RoutedRequest,
    sink: &'a BodySink<'a>,
    arrivals: Option<Arrivals<'a>>,
    body: IncomingBody,
    transform: Transform,
    /// What is coded, and not sent.
    coded: Vec<u8>,
    /// Whether the coder holds nothing back.
    is_flushed: bool,
    /// Whether each piece leaves as it comes.
    is_stream: bool,
    /// Whether more came with the head than the body.
    has_excess: bool,
}

impl CodedBody<'_> {
    async fn run(&mut self, reply: &Reply, early: &mut [u8], response: &mut Response) -> Result<(), Failure> {
        self.has_excess = self.take(early)? < early.len();
        let Response { buffer, out, .. } = response;
        while !self.body.is_over() {
            if self.coded.len() >= PIECE_BYTES {
                self.send(out).await?;
            }
            self.ctx.worker.buffers.ready(buffer);
            let room = self.ctx.client.socket.room().max(1).min(buffer.spare().len());
            let read = poll_once(|context| reply.socket.poll_read(context, &mut buffer.spare()[..room]));
            let count = match read {
                Some(read) => read.map_err(|_| Failure::UpstreamTruncated)?,
                None => {
                    self.wait(reply, out, buffer).await?;
                    continue;
                }
            };
            if count == 0 {
                if self.body.closed() {
                    break;
                }
                return Err(Failure::UpstreamTruncated);
            }
            buffer.advance(count);
            let consumed = self.take(buffer.filled_mut())?;
            buffer.consume(consumed);
        }
        self.finish(out).await
    }

    /// Codes what has come of the body. Returns how much of it is done with.
    fn take(&mut self, bytes: &mut [u8]) -> Result<usize, Failure> {
        let taken = self.body.take(bytes).map_err(|_| Failure::UpstreamFraming)?;
        if let Some(arrivals) = self.arrivals.as_ref().filter(|_| taken.consumed > 0) {
            arrivals.piece();
        }
        if taken.data > 0 {
            self.ctx.worker.counters.upstream_bytes_received.add(taken.data as u64);
            self.is_flushed = false;
            let pushed = self.transform.push(&bytes[..taken.data], Flush::Nothing, &mut self.coded);
            pushed.map_err(|_| Failure::UpstreamTruncated)?;
        }
        Ok(taken.consumed)
    }

    /// Waits for more of the body. What is here of it leaves before.
    async fn wait(
        &mut self,
        reply: &Reply,
        out: &mut Vec<u8>,
        buffer: &mut transport::buffer::Buffer,
    ) -> Result<(), Failure> {
        let ExchangeContext { worker, client, .. } = *self.ctx;
        let readable = || poll_fn(|context| reply.socket.poll_readable(context).map(drop));
        if !self.is_stream && !self.is_flushed {
            // The client has waited for the head so far.
            if client.deadline.within(MOMENT, readable()).await.is_ok() {
                return Ok(());
            }
        }
        if !self.is_flushed {
            self.is_flushed = true;
            let flushed = self.transform.push(b"", Flush::Piece, &mut self.coded);
            flushed.map_err(|_| Failure::UpstreamTruncated)?;
        }
        self.send(out).await?;
        worker.buffers.wait(buffer);
        let limit = self.routed.ticks(self.ctx).upstream_body;
        match client.deadline.within(limit, unless_gone(client, pin!(readable()))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Gone)) => Err(Failure::ClientGone),
            Err(Elapsed) => Err(Failure::UpstreamStalled),
        }
    }

    /// Sends the head, if it has not left, and what is coded.
    async fn send(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        if !out.is_empty() || !self.coded.is_empty() {
            self.sink.send_part(out, &self.coded, false).await?;
            self.coded.clear();
        }
        Ok(())
    }

    /// Whether the client can still be told that the response has failed: its last frame says so.
    fn can_tell(&self, failure: Failure) -> bool {
        let Transform::Web(body) = &self.transform else { return false };
        failure.facts().party == Party::Upstream && body.is_between_messages()
    }

    /// Tells the client that the response has failed. Returns whether that has left.
    async fn tell(&mut self, failure: Failure) -> bool {
        let Transform::Web(body) = &mut self.transform else { return false };
        let facts = failure.facts();
        body.fail(Status::of_http(facts.status), facts.text.trim_end(), &mut self.coded);
        self.sink.end(&mut Vec::new(), &self.coded, b"").await.is_ok()
    }

    async fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        let filters = &self.sink.plan().filters;
        if let Transform::Web(body) = &mut self.transform {
            body.end(self.body.trailers(|name| !filters.omits_trailer(name)), &mut self.coded);
            return self.sink.end(out, &self.coded, b"").await;
        }
        let ended = self.transform.push(b"", Flush::End, &mut self.coded);
        ended.map_err(|_| Failure::UpstreamTruncated)?;
        if !self.transform.is_whole() {
            return Err(Failure::UpstreamTruncated);
        }
        // A digest in the trailers is of the bytes before.
        let is_wanted = |name: &[u8]| !filters.omits_trailer(name) && !is_of_bytes(name);
        let trailers = self.body.trailers(is_wanted);
        self.sink.end(out, &self.coded, trailers).await
    }
}
