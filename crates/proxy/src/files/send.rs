//! Sends files: from the page cache to the socket (sendfile), or through a buffer.
//!
//! A response is planned like any other; one with filters or a rate is sent through a sink. If a file was truncated
//! meanwhile, the connection is closed: missing bytes are never replaced.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::cache::{CacheRequestFields, write_content_length, write_unsatisfied_range};
use ::files::{MayBlock, OpenError};
use http1::{BodyFraming, Method};

use super::wanted::{FileExtent, WantedFile, wanted, write_head};
use super::{AtOnce, FileSource, coded};
use crate::answer;
use crate::body::segments::Segment;
use crate::body::transform::Choice;
use crate::context::client::AfterExchange;
use crate::context::exchange_slot::CurrentResponse;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::forward::respond;
use crate::open_files::representation::{Representation, ServedFile};
use crate::outgoing::faults;
use crate::outgoing::response_plan::ResponsePlan;
use crate::outgoing::send::Delivery;
use crate::outgoing::sink::BodySink;
use crate::shaping::{Direction, Pace};
use transport::buffer::{BULK, Buffer, TINY};
use transport::cold::poll_once;
use transport::tcp::{Follows, Tcp};

/// Bytes of a file that are sent between checks that the next ones are in memory.
const WINDOW_BYTES: u64 = 1 << 20;

/// A response with a complete file, of which part may have been sent.
pub(crate) struct FileRest {
    file: Rc<ServedFile>,
    plan: ResponsePlan,
    /// Counts head and body.
    sent_bytes: u64,
}

/// Sends a complete file as far as that is possible without a wait.
pub(super) fn at_once(exchange: &mut Exchange<'_, '_>, file: Rc<ServedFile>) -> AtOnce {
    let Exchange { ctx, routed, .. } = *exchange;
    let request = &exchange.memory.request;
    let (head, bytes) = (&request.head, request.head_bytes());
    let asked = CacheRequestFields::new(head, bytes);
    // Nearly all requests for files are plain. Only those are tried here, without a future.
    if asked.is_conditional()
        || asked.has_range()
        || Pace::new(Direction::Down, &ctx.worker.shaper).is_limited()
    {
        return AtOnce::Unanswered;
    }
    let representation = file.choose(head, bytes);
    let length = representation.bytes();
    let plan = ResponsePlan::new(ctx, routed, 200, BodyFraming::Length(length), true);
    if !plan.filters.is_empty() {
        return AtOnce::Unanswered;
    }
    write_head(exchange, representation, &FileExtent::Whole, length, &plan, b"");
    let out = &exchange.memory.response.out;
    exchange.state.answers(200);
    exchange.state.record.head_leaves(out);
    plan.check_end(ctx, routed, out);
    let (mut sent_bytes, end) = (0, body_end(routed, representation));
    let is_here = representation.content().is_some() || end == 0;
    let outcome = loop {
        if sent_bytes == out.len() as u64 + end {
            break Ok(plan.next());
        }
        let head_left = &out[out.len().min(sent_bytes as usize)..];
        let at = sent_bytes.saturating_sub(out.len() as u64);
        let sent = if is_here {
            poll_once(|context| poll_content(ctx, context, head_left, representation, at..end, plan.at_end()))
        } else {
            // Sending bytes that are not in memory would block the worker on the disk.
            let tcp = ctx.client.socket.spliceable().filter(|_| representation.is_warm());
            tcp.and_then(|tcp| {
                poll_once(|context| poll_file(tcp, context, head_left, representation, at..end))
            })
        };
        match sent {
            None => return AtOnce::Rest(FileRest { file, plan, sent_bytes }),
            // The file has become shorter than its head says. Only a closed connection can tell the client.
            Some(Ok(0)) => break Err(Failure::FileTruncated),
            Some(Ok(count)) => sent_bytes += count as u64,
            Some(Err(_)) => break Err(Failure::ClientGone),
        }
    };
    exchange.state.body_bytes_sent = sent_bytes.saturating_sub(out.len() as u64);
    AtOnce::Done(Ok(outcome.unwrap_or_else(|failure| respond::cut(exchange, failure))))
}

/// Returns the offset at which the body ends: 0 for HEAD.
fn body_end(routed: &RoutedRequest, representation: &Representation) -> u64 {
    if routed.method == Method::Head { 0 } else { representation.bytes() }
}

/// Sends as much of a head and of a body in this process's memory as the client takes.
fn poll_content(
    ctx: &ExchangeContext<'_>,
    context: &mut Context<'_>,
    head: &[u8],
    representation: &Representation,
    range: Range<u64>,
    follows: Follows,
) -> Poll<io::Result<usize>> {
    // Neither is longer than a buffer.
    let content = representation.content().unwrap_or_default();
    let body = content.get(range.start as usize..range.end as usize).unwrap_or_default();
    ctx.client.socket.poll_write_both(context, head, body, follows)
}

/// Sends as much of a head, or of the file's bytes behind it, as the client takes, by sendfile. Returns 0 if the file
/// has no bytes there.
fn poll_file(
    tcp: &Tcp,
    context: &mut Context<'_>,
    head: &[u8],
    representation: &Representation,
    range: Range<u64>,
) -> Poll<io::Result<usize>> {
    if !head.is_empty() {
        // `More` keeps the head in the kernel until the file's first bytes fill its segment.
        return tcp.poll_send(context, head, Follows::More);
    }
    let count = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    tcp.poll_send_file(context, &*representation.file, range.start, count)
}

/// Sends the rest of a complete file.
pub(super) async fn rest(exchange: &mut Exchange<'_, '_>, rest: FileRest) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let FileRest { file, plan, sent_bytes } = rest;
    let request = &exchange.memory.request;
    let representation = file.choose(&request.head, request.head_bytes());
    let range = 0..body_end(routed, representation);
    let mut sender =
        FileSender { ctx, delivery: Delivery::from_ctx(ctx, routed), representation, sent_bytes };
    let CurrentResponse { out, buffer, .. } = &mut exchange.memory.response;
    let outcome = sender.segment(out, buffer, range, plan.at_end()).await;
    exchange.state.body_bytes_sent = sender.sent_bytes.saturating_sub(out.len() as u64);
    end(exchange, outcome.map(|()| plan.next()))
}

/// Sends what a request wants of a file: all, ranges, or only a head.
pub(super) async fn file(
    exchange: &mut Exchange<'_, '_>,
    file: Rc<ServedFile>,
    source: FileSource<'_>,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let request = &mut exchange.memory.request;
    // RFC 9110 §9.3.1: a GET may have a body, which must be taken before the next request.
    let has_whole_request = source.has_whole_request.unwrap_or_else(|| {
        routed.framing == BodyFraming::None || answer::has_taken_body(ctx, request, Ok(routed.framing))
    });
    let lines = source.lines;
    let representation = file.choose(&request.head, request.head_bytes());
    let WantedFile::Extent(extent) = wanted(request, representation)? else {
        return unsatisfied(exchange, representation.bytes()).await;
    };
    let compression = coded::compression(ctx, routed, request, representation);
    let choice = compression.map_or(Choice::Unchanged { adds_vary: false }, |compression| {
        coded::choose(&compression.settings, request, representation)
    });
    if let (Some(compression), Choice::Code(_), FileExtent::Whole) = (compression, choice, &extent) {
        let source = FileSource { has_whole_request: Some(has_whole_request), ..source };
        return coded::send(exchange, &file, choice, &compression.settings, source).await;
    }
    let mut segments = extent.segments(representation);
    let length = segments.iter().map(Segment::len).sum();
    let status = extent.status();
    let framing =
        if extent == FileExtent::NotModified { BodyFraming::None } else { BodyFraming::Length(length) };
    let mut plan = ResponsePlan::new(ctx, routed, status, framing, has_whole_request);
    if exchange.state.has_fault() {
        faults::add_to_routed(ctx, routed, &mut plan, status, false, exchange.state);
    }
    write_head(exchange, representation, &extent, length, &plan, lines);
    match (choice, &extent) {
        (Choice::Unchanged { adds_vary: false }, _) => {}
        // RFC 9110 §15.4.5: a 304 has the fields of the 200, with its weak tag.
        (Choice::Code(_), FileExtent::NotModified) => coded::weaken(&mut exchange.memory.response.out),
        _ => coded::add_line(&mut exchange.memory.response.out, coding::VARY),
    }
    exchange.state.answers(status);
    // One empty segment, so that the head is sent.
    if routed.method == Method::Head || length == 0 {
        segments = vec![Segment::default()];
    }
    // The rest of the request's body is still to come, so the connection lingers.
    let next = if has_whole_request { plan.next() } else { AfterExchange::Linger };
    let outcome = if plan.filters.is_empty()
        && exchange.state.rate_bytes_per_second.is_none()
        && Pace::new(Direction::Down, &ctx.worker.shaper).is_free(&ctx.worker.shaper)
    {
        unfiltered(exchange, representation, &segments, &plan).await
    } else {
        filtered(exchange, representation, &segments, plan).await
    };
    end(exchange, outcome.map(|()| next))
}

/// Sends a response without filters, as fast as the client reads.
async fn unfiltered(
    exchange: &mut Exchange<'_, '_>,
    representation: &Representation,
    segments: &[Segment],
    plan: &ResponsePlan,
) -> Result<(), Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let CurrentResponse { out, buffer, .. } = &mut exchange.memory.response;
    exchange.state.record.head_leaves(out);
    plan.check_end(ctx, routed, out);
    let mut head_bytes = out.len() as u64;
    let mut sender =
        FileSender { ctx, delivery: Delivery::from_ctx(ctx, routed), representation, sent_bytes: 0 };
    for (index, Segment { text, range }) in segments.iter().enumerate() {
        if ctx.client.socket.frames_itself() && index == 0 && !text.is_empty() {
            // Over HTTP/2 and HTTP/3, the head is sent separately.
            sender.segment(out, buffer, 0..0, Follows::More).await?;
            (head_bytes, sender.sent_bytes) = (0, 0);
            out.clear();
        }
        out.extend_from_slice(text);
        let follows = if index + 1 == segments.len() { plan.at_end() } else { Follows::More };
        let outcome = sender.segment(out, buffer, range.clone(), follows).await;
        exchange.state.body_bytes_sent += sender.sent_bytes.saturating_sub(head_bytes);
        (head_bytes, sender.sent_bytes) = (0, 0);
        outcome?;
        out.clear();
    }
    Ok(())
}

/// Sends a response through the filters of its plan, within its rate.
async fn filtered(
    exchange: &mut Exchange<'_, '_>,
    representation: &Representation,
    segments: &[Segment],
    plan: ResponsePlan,
) -> Result<(), Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let CurrentResponse { out, buffer, .. } = &mut exchange.memory.response;
    let sink = BodySink::paced(ctx, routed, plan, out, exchange.state);
    let at_end = sink.plan().at_end();
    sink.begin(out).await?;
    let length: u64 = segments.iter().map(Segment::len).sum();
    if length == 0 {
        return sink.send(out, b"", at_end).await;
    }
    let mut taken_bytes = 0;
    for Segment { text, range } in segments {
        let mut at = range.start;
        // The text first, if there is one; then the file, piece by piece.
        let mut piece = if text.is_empty() { None } else { Some(text.as_slice()) };
        while piece.is_some() || at < range.end {
            let bytes = match piece.take() {
                Some(text) => text,
                None => {
                    read_piece(ctx, representation, buffer, at..range.end).await?;
                    at += buffer.len() as u64;
                    buffer.filled()
                }
            };
            taken_bytes += bytes.len() as u64;
            let bytes = &bytes[..sink.takes(bytes.len())];
            let follows = if taken_bytes == length { at_end } else { Follows::More };
            let sent = sink.send(out, bytes, follows).await;
            exchange.state.body_bytes_sent = sink.sent_bytes();
            sent?;
            out.clear();
            buffer.clear();
        }
    }
    Ok(())
}

/// Ends a response, and returns its buffer.
fn end(
    exchange: &mut Exchange<'_, '_>,
    outcome: Result<AfterExchange, Failure>,
) -> Result<AfterExchange, Failure> {
    let buffer = &mut exchange.memory.response.buffer;
    buffer.clear();
    exchange.ctx.worker.buffers.wait(buffer);
    Ok(outcome.unwrap_or_else(|failure| respond::cut(exchange, failure)))
}

/// Sends a response within the client's limits.
struct FileSender<'a> {
    ctx: &'a ExchangeContext<'a>,
    delivery: Delivery<'a>,
    representation: &'a Representation,
    /// Counts the current head and range.
    sent_bytes: u64,
}

impl FileSender<'_> {
    /// Sends the rest of a head, and of a range of the file behind it.
    async fn segment(
        &mut self,
        head: &[u8],
        buffer: &mut Buffer,
        range: Range<u64>,
        follows: Follows,
    ) -> Result<(), Failure> {
        let (ctx, representation) = (self.ctx, self.representation);
        if representation.content().is_some() || range.is_empty() {
            while let Some((head_left, left)) = self.left(head, &range) {
                let poll = |context: &mut Context<'_>| {
                    poll_content(ctx, context, head_left, representation, left.clone(), follows)
                };
                self.send(poll).await?;
            }
            return Ok(());
        }
        match ctx.client.socket.spliceable() {
            Some(tcp) => self.file(tcp, head, &range).await,
            None => self.pieces(head, buffer, &range, follows).await,
        }
    }

    /// Returns the part that was not sent yet.
    fn left<'h>(&self, head: &'h [u8], range: &Range<u64>) -> Option<(&'h [u8], Range<u64>)> {
        let head_left = &head[head.len().min(self.sent_bytes as usize)..];
        let at = range.start + self.sent_bytes.saturating_sub(head.len() as u64);
        (!head_left.is_empty() || at < range.end).then_some((head_left, at..range.end))
    }

    /// Sends by sendfile.
    async fn file(&mut self, tcp: &Tcp, head: &[u8], range: &Range<u64>) -> Result<(), Failure> {
        let representation = self.representation;
        let mut loaded = range.start;
        while let Some((head_left, left)) = self.left(head, range) {
            // A warm file was seen in memory as a whole. Any other is checked window by window.
            if left.start >= loaded && !representation.is_warm() {
                let window = left.start..left.end.min((left.start / WINDOW_BYTES + 1) * WINDOW_BYTES);
                loaded = window.end;
                load(self.ctx, representation, window).await?;
            }
            let end = if representation.is_warm() { left.end } else { loaded };
            let left = left.start..end;
            self.send(|context| poll_file(tcp, context, head_left, representation, left.clone())).await?;
        }
        Ok(())
    }

    /// Sends through a buffer, for TLS records or frames.
    async fn pieces(
        &mut self,
        head: &[u8],
        buffer: &mut Buffer,
        range: &Range<u64>,
        follows: Follows,
    ) -> Result<(), Failure> {
        let (ctx, socket) = (self.ctx, &self.ctx.client.socket);
        if socket.frames_itself() && self.sent_bytes == 0 && !head.is_empty() {
            self.send(|context| socket.poll_write(context, head, Follows::More)).await?;
        }
        while let Some((_, left)) = self.left(head, range) {
            if socket.frames_itself() {
                // Reads nothing that the stream cannot send.
                let writable = |context: &mut Context<'_>| socket.poll_writable(context).map(|()| Ok(0));
                self.delivery.write(writable).await?;
            }
            let end = left.end;
            read_piece(ctx, self.representation, buffer, left).await?;
            while !buffer.is_empty() {
                let head_left = &head[head.len().min(self.sent_bytes as usize)..];
                let at = range.start + self.sent_bytes.saturating_sub(head.len() as u64);
                let follows = if at + buffer.len() as u64 == end { follows } else { Follows::More };
                let filled = buffer.filled();
                let write =
                    |context: &mut Context<'_>| socket.poll_write_both(context, head_left, filled, follows);
                let count = self.send(write).await?;
                buffer.consume(count.saturating_sub(head_left.len()));
            }
        }
        Ok(())
    }

    /// Writes once, waiting until the client can take bytes. Fails if the file has ended early.
    async fn send(
        &mut self,
        write: impl FnMut(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Result<usize, Failure> {
        match self.delivery.write(write).await? {
            0 => Err(Failure::FileTruncated),
            count => {
                self.sent_bytes += count as u64;
                Ok(count)
            }
        }
    }
}

/// Reads the next bytes of a range into an empty buffer, as many as the client's connection has room for.
pub(super) async fn read_piece(
    ctx: &ExchangeContext<'_>,
    representation: &Representation,
    buffer: &mut Buffer,
    range: Range<u64>,
) -> Result<(), Failure> {
    let room = ctx.client.socket.room().clamp(TINY, BULK);
    let wanted = (range.end - range.start).min(room as u64) as usize;
    ctx.worker.buffers.grow_to(buffer, wanted);
    let spare = buffer.spare();
    let wanted = wanted.min(spare.len());
    let piece = &mut spare[..wanted];
    // Tried without the disk first, for which a worker must never wait.
    let read = match representation.file.read_at(piece, range.start, MayBlock::Never) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            // A whole window is loaded, so that the next reads find their bytes in memory.
            let window = range.start..range.end.min(range.start + WINDOW_BYTES);
            load(ctx, representation, window).await?;
            representation.file.read_at(piece, range.start, MayBlock::Maybe)
        }
        read => read,
    };
    match read {
        Ok(0) => Err(Failure::FileTruncated),
        Ok(count) => {
            buffer.advance(count);
            Ok(())
        }
        Err(_) => Err(Failure::FileUnreadable),
    }
}

/// Loads a range into the page cache on another thread, so that sending it does not block the worker.
async fn load(
    ctx: &ExchangeContext<'_>,
    representation: &Representation,
    range: Range<u64>,
) -> Result<(), Failure> {
    if representation.file.is_in_memory(range.clone()) {
        return Ok(());
    }
    let file = Arc::clone(&representation.file);
    let step = move || file.load(range).map_err(OpenError::Failed);
    let loaded = ctx.worker.holding.during(ctx.worker.open_files.elsewhere(step));
    loaded.await.map_err(|_| Failure::FileUnreadable)
}

/// Answers 416 (Range Not Satisfiable, RFC 9110 §15.5.17).
async fn unsatisfied(exchange: &mut Exchange<'_, '_>, whole_bytes: u64) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let page = answer::page(ctx, routed.policies(ctx), 416);
    let out = &mut exchange.memory.response.out;
    answer::begin(out, 416);
    write_unsatisfied_range(out, whole_bytes);
    match page {
        Some(page) => answer::push_content(out, 416, &page.content_type, &page.body),
        None => write_content_length(out, 0),
    }
    answer::own(exchange, 416, page.map_or(&b""[..], |page| &page.body)).await
}
