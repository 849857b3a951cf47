//! Sends a server's response to its client in another content coding, as it arrives.
//!
//! Each piece of a stream is sent at once: the coder is flushed before each wait. For a body of known length, the coder
//! waits briefly for more input, because each flush makes the result longer.

use std::future::poll_fn;
use std::pin::pin;

use coding::{BodyHead, CodingError, Flush, is_of_bytes};
use grpc::CallStatus;
use http1::{BodyFraming, HeadLimits};

use crate::body::arrivals::StreamPieces;
use crate::body::coders::Transform;
use crate::body::incoming_body::IncomingBody;
use crate::body::transform::{Choice, changed_head, fields, values};
use crate::body::upload::Until;
use crate::context::client::AfterExchange;
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse};
use crate::context::plan::Compression;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::exchange::Exchange;
use crate::failure::{Failure, Party};
use crate::forward::respond;
use crate::forward::{Reply, RequestGivenUp, unless_gone};
use crate::outgoing::response_plan::changed_framing;
use crate::outgoing::sink::BodySink;
use crate::outgoing::streams;
use transport::cold::poll_once;
use transport::deadline::{Elapsed, Ticks};

/// Bytes of a coded body per write.
const PIECE_BYTES: usize = 16 << 10;
/// How long a body of known length waits for more before its coder is flushed.
const MOMENT: Ticks = Ticks(2);

/// Decides whether a server's response is coded or decoded. Adds Vary to an unchanged response that depends on
/// Accept-Encoding.
pub(crate) fn choose(
    routed: &RoutedRequest,
    compression: &Compression,
    request: &CurrentRequest,
    response: &mut CurrentResponse,
) -> Choice {
    let status = response.head.start.status;
    // The bytes behind a 101 belong to another protocol.
    if routed.wants_upgrade && status == 101 {
        return Choice::Unchanged { adds_vary: false };
    }
    let content = BodyHead::from_fields(fields(&response.head, response.buffer.filled()));
    compression.sent_tags.note(content.etag());
    let choice = Choice::new(&compression.settings, &request.head, request.head_bytes(), status, &content);
    if status == 304 && content.etag().is_some_and(|tag| has_weakened(request, tag)) {
        return Choice::Weaken;
    }
    if choice == (Choice::Unchanged { adds_vary: true }) {
        response.added.extend_from_slice(coding::VARY);
    }
    choice
}

/// Whether a 304 must have a weak tag: the client asks with the weak tag of a response that was coded here.
///
/// RFC 9111 §4.3.4: a cache between finds its stored response by the tag of the 304.
fn has_weakened(request: &CurrentRequest, tag: &[u8]) -> bool {
    let mut known = values(&request.head, request.head_bytes(), b"if-none-match");
    let weak = [b"W/", tag].concat();
    tag.starts_with(b"\"") && known.any(|value| value.windows(weak.len()).any(|known| known == weak))
}

/// Sends a response whose coding changes.
pub(crate) async fn respond(
    exchange: &mut Exchange<'_, '_>,
    reply: Reply,
    choice: Choice,
    Compression { settings: compress, .. }: &Compression,
) -> Result<AfterExchange, Failure> {
    let (response, method) = (&exchange.memory.response, exchange.routed.method);
    let size = if let BodyFraming::Length(length) = reply.framing { Some(length) } else { None };
    let is_stream = size.is_none() || is_unbuffered(response);
    let change = choice.change().ok_or(Failure::UpstreamFraming)?;
    let framing = changed_framing(reply.framing, response.head.start.status, method);
    let length = if let BodyFraming::Length(length) = framing { Some(length) } else { None };
    let bytes = response.buffer.filled();
    let text = changed_head(bytes, fields(&response.head, bytes), change, length);
    let transform = choice.transform(&exchange.ctx.worker.coders, compress, size);
    // In any other framing there is no body to transform.
    let transform = transform.filter(|_| framing == BodyFraming::Chunked);
    pass(exchange, reply, text, Changed { framing, transform, is_stream }).await
}

/// A body that is changed in transit.
pub(crate) struct Changed {
    /// The framing of the changed body for the client, as the head announces it.
    pub(crate) framing: BodyFraming,
    /// `None` if no body is sent.
    pub(crate) transform: Option<Transform>,
    /// Whether each piece is sent at once.
    pub(crate) is_stream: bool,
}

/// Sends a response with another head, which lacks its final empty line, and a transformed body.
pub(crate) async fn pass(
    exchange: &mut Exchange<'_, '_>,
    mut reply: Reply,
    text: Vec<u8>,
    Changed { framing, transform, is_stream }: Changed,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let arrivals =
        streams::of_response(ctx, &exchange.state.record, reply.framing, &exchange.memory.response);
    let status = exchange.memory.response.head.start.status;
    let plan = respond::plan(ctx, routed, status, &reply, framing, exchange.state);
    exchange.state.record.received_apart(exchange.memory.response.head.len as u64);
    let mut early = change_head(ctx, &mut exchange.memory.response, text)?;
    let (request, response) = (&mut exchange.memory.request, &mut exchange.memory.response);
    respond::render(ctx, routed, request, response, &reply, &plan, false);
    exchange.state.answers(status);
    let sink = BodySink::paced(ctx, routed, plan, &mut response.out, exchange.state);
    if let Err(failure) = sink.begin(&mut response.out).await {
        // Nothing has left yet, so the client can get an error response.
        exchange.state.answers_nothing();
        return Err(failure);
    }
    response.buffer.clear();
    let Some(transform) = transform else {
        // RFC 9112 §9.3: bytes after a response belong to no request, so the connection is not reused.
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
        wrong: None,
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
) -> Result<AfterExchange, Failure> {
    let (ctx, sink) = (exchange.ctx, coded.sink);
    exchange.memory.response.wrong = coded.wrong.take();
    if !sink.has_begun() {
        // The head was not sent: the client gets an error response.
        exchange.state.answers_nothing();
        return Err(failure);
    }
    if !coded.can_tell(failure) {
        respond::break_off(ctx, sink.plan(), failure, exchange.memory, exchange.state);
        return Ok(AfterExchange::Drop);
    }
    exchange.state.failed(ctx, failure);
    exchange.state.record.explain(exchange.memory, failure);
    let has_told = coded.tell(failure).await;
    exchange.state.body_bytes_sent = sink.sent_bytes();
    Ok(if has_told { respond::next(sink.plan(), has_left_client) } else { AfterExchange::Drop })
}

/// Whether the response has `X-Accel-Buffering: no`, with which servers make nginx pass each piece on at once.
fn is_unbuffered(response: &CurrentResponse) -> bool {
    fields(&response.head, response.buffer.filled()).any(|(name, value)| {
        name.eq_ignore_ascii_case(b"x-accel-buffering") && value.eq_ignore_ascii_case(b"no")
    })
}

/// Replaces the server's head in the buffer. Returns the part of the body that had arrived.
fn change_head(
    ctx: &ExchangeContext<'_>,
    response: &mut CurrentResponse,
    mut text: Vec<u8>,
) -> Result<Vec<u8>, Failure> {
    let CurrentResponse { head, buffer, .. } = response;
    let bytes = buffer.filled();
    text.extend_from_slice(b"\r\n");
    let early = bytes[head.len..].to_vec();
    buffer.clear();
    ctx.worker.buffers.fit(buffer, text.len());
    buffer.spare()[..text.len()].copy_from_slice(&text);
    buffer.advance(text.len());
    let version = head.start.version;
    head.clear();
    head.parse(buffer.filled(), &HeadLimits::of_own(&text)).map_err(|_| Failure::UpstreamMalformed)?;
    head.start.version = version;
    Ok(early)
}

/// A body in transit from a server to a client, in another coding.
struct CodedBody<'a> {
    ctx: &'a ExchangeContext<'a>,
    routed: &'a RoutedRequest,
    sink: &'a BodySink<'a>,
    arrivals: Option<StreamPieces<'a>>,
    body: IncomingBody,
    transform: Transform,
    /// Coded bytes that were not sent yet.
    coded: Vec<u8>,
    /// Whether the coder holds nothing back.
    is_flushed: bool,
    /// Whether each piece is sent at once.
    is_stream: bool,
    /// Whether bytes after the body arrived with the head.
    has_excess: bool,
    /// Why the body cannot be decoded.
    wrong: Option<String>,
}

impl CodedBody<'_> {
    /// Reads, codes and sends the body up to its end. `early` holds the bytes that arrived with the head.
    async fn run(
        &mut self,
        reply: &Reply,
        early: &mut [u8],
        response: &mut CurrentResponse,
    ) -> Result<(), Failure> {
        self.has_excess = self.take(early)? < early.len();
        let CurrentResponse { buffer, out, .. } = response;
        while !self.body.is_over() {
            if self.coded.len() >= PIECE_BYTES {
                self.send(out).await?;
            }
            self.ctx.worker.buffers.ready(buffer);
            // Reads no more than the client's stream can take.
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

    /// Codes the next bytes of the body. Returns how many were consumed.
    fn take(&mut self, bytes: &mut [u8]) -> Result<usize, Failure> {
        let taken = self.body.take(bytes).map_err(|_| Failure::UpstreamFraming)?;
        if let Some(arrivals) = self.arrivals.as_ref().filter(|_| taken.consumed > 0) {
            arrivals.piece();
        }
        if taken.data > 0 {
            self.ctx.worker.counters.upstream_bytes_received.add(taken.data as u64);
            self.is_flushed = false;
            let pushed = self.transform.push(&bytes[..taken.data], Flush::Nothing, &mut self.coded);
            self.coded_by(pushed)?;
        }
        Ok(taken.consumed)
    }

    /// Notes why a complete body cannot be decoded.
    fn coded_by(&mut self, outcome: Result<(), CodingError>) -> Result<(), Failure> {
        outcome.map_err(|error| {
            self.wrong = Some(format!("the body is not valid {error}"));
            Failure::UpstreamUndecodable
        })
    }

    /// Waits for more of the body. Sends the available part before.
    async fn wait(
        &mut self,
        reply: &Reply,
        out: &mut Vec<u8>,
        buffer: &mut transport::buffer::Buffer,
    ) -> Result<(), Failure> {
        let ExchangeContext { worker, client, .. } = *self.ctx;
        let readable = || poll_fn(|context| reply.socket.poll_readable(context).map(drop));
        if !self.is_stream && !self.is_flushed {
            // The client still waits for the head, so a short wait is acceptable.
            if client.deadline.within(MOMENT, readable()).await.is_ok() {
                return Ok(());
            }
        }
        // Flushed once for each pause: another flush without input would only add bytes.
        if !self.is_flushed {
            self.is_flushed = true;
            let flushed = self.transform.push(b"", Flush::Piece, &mut self.coded);
            self.coded_by(flushed)?;
        }
        self.send(out).await?;
        worker.buffers.wait(buffer);
        let limit = self.routed.ticks(self.ctx).upstream_body;
        match client.deadline.within(limit, unless_gone(client, pin!(readable()))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(RequestGivenUp)) => Err(Failure::ClientGone),
            Err(Elapsed) => Err(Failure::UpstreamStalled),
        }
    }

    /// Sends the coded bytes, and the head before them if it was not sent.
    async fn send(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        if !out.is_empty() || !self.coded.is_empty() {
            self.sink.send_part(out, &self.coded, false).await?;
            self.coded.clear();
        }
        Ok(())
    }

    /// Whether the failure can still be reported to the client, in the last frame of gRPC-Web.
    fn can_tell(&self, failure: Failure) -> bool {
        let Transform::Web(body) = &self.transform else { return false };
        // Within a message, the frame would be taken for a part of it.
        failure.facts().party == Party::Upstream && body.is_between_messages()
    }

    /// Reports the failure to the client in a gRPC-Web frame. Returns whether that was sent.
    async fn tell(&mut self, failure: Failure) -> bool {
        let Transform::Web(body) = &mut self.transform else { return false };
        let facts = failure.facts();
        body.fail(CallStatus::of_http(facts.status), facts.text.trim_end(), &mut self.coded);
        self.sink.end(&mut Vec::new(), &self.coded, b"").await.is_ok()
    }

    /// Ends the coding, and sends the last bytes and the trailers.
    async fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        let filters = &self.sink.plan().filters;
        if let Transform::Web(body) = &mut self.transform {
            body.end(self.body.trailers(|name| !filters.omits_trailer(name)), &mut self.coded);
            return self.sink.end(out, &self.coded, b"").await;
        }
        let ended = self.transform.push(b"", Flush::End, &mut self.coded);
        self.coded_by(ended)?;
        if !self.transform.is_whole() {
            self.wrong = Some("the compressed body is incomplete".to_owned());
            return Err(Failure::UpstreamUndecodable);
        }
        // A digest in the trailers describes the bytes before coding.
        let is_wanted = |name: &[u8]| !filters.omits_trailer(name) && !is_of_bytes(name);
        let trailers = self.body.trailers(is_wanted);
        self.sink.end(out, &self.coded, trailers).await
    }
}
