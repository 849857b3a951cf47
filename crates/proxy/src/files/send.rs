//! Sends files: from the page cache to the socket (sendfile), or through the path's buffer.
//!
//! A response is planned like every other, and one with filters or a rate leaves through a sink. A file that was made
//! shorter meanwhile ends its connection: what is missing is never made up.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::cache::{Asked, write_content_length, write_unsatisfied_range};
use ::files::{OpenError, Waits};
use http1::{Framing, Method};

use super::representation::{Representation, ServedFile};
use super::wanted::{Extent, Wanted, wanted, write_head};
use super::{AtOnce, coded};
use crate::body::response_plan::ResponsePlan;
use crate::body::segments::Segment;
use crate::body::send::Delivery;
use crate::body::sink::BodySink;
use crate::body::transform::Choice;
use crate::context::client::Next;
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::Response;
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::faults::messages;
use crate::forward::answer;
use crate::shaping::{Direction, Pace};
use transport::buffer::{BULK, Buffer, TINY};
use transport::cold::poll_once;
use transport::tcp::{Follows, Tcp};

/// So much is sent at a time of a body that may have to be read from a disk: before each, it is looked whether that is in
/// memory.
const WINDOW_BYTES: u64 = 1 << 20;

/// A response with a whole file, of which some may have left.
pub(crate) struct Rest {
    file: Rc<ServedFile>,
    plan: ResponsePlan,
    /// Of the head and the body.
    sent_bytes: u64,
}

/// Sends all of a file as far as that is possible without a wait.
pub(super) fn at_once(exchange: &mut Exchange<'_, '_>, file: Rc<ServedFile>) -> AtOnce {
    let Exchange { ctx, routed, .. } = *exchange;
    let request = &exchange.memory.request;
    let (head, bytes) = (&request.head, request.head_bytes());
    let asked = Asked::of(head, bytes);
    if asked.is_conditional() || asked.has_range() || Pace::new(Direction::Down, ctx.worker).is_limited() {
        return AtOnce::Unanswered;
    }
    let representation = file.choose(head, bytes);
    let length = representation.bytes();
    let plan = ResponsePlan::new(ctx, routed, 200, Framing::Length(length), true);
    if !plan.filters.is_empty() {
        return AtOnce::Unanswered;
    }
    write_head(ctx, routed, exchange.memory, (representation, &Extent::Whole, length), &plan);
    let out = &exchange.memory.response.out;
    exchange.state.answers(200);
    exchange.state.record.head_leaves(out);
    let (mut sent_bytes, end) = (0, body_end(routed, representation));
    let is_here = representation.content().is_some() || end == 0;
    let outcome = loop {
        if sent_bytes == out.len() as u64 + end {
            break Ok(plan.next());
        }
        let head_left = &out[out.len().min(sent_bytes as usize)..];
        let at = sent_bytes.saturating_sub(out.len() as u64);
        let sent = if is_here {
            poll_once(|context| {
                poll_content(ctx, context, head_left, (representation, at..end), plan.at_end())
            })
        } else {
            let tcp = ctx.client.socket.spliceable().filter(|_| representation.is_warm());
            tcp.and_then(|tcp| {
                poll_once(|context| poll_file(tcp, context, head_left, (representation, at..end)))
            })
        };
        match sent {
            None => return AtOnce::Rest(Rest { file, plan, sent_bytes }),
            Some(Ok(0)) => break Err(Failure::FileTruncated),
            Some(Ok(count)) => sent_bytes += count as u64,
            Some(Err(_)) => break Err(Failure::ClientGone),
        }
    };
    exchange.state.body_bytes_sent = sent_bytes.saturating_sub(out.len() as u64);
    AtOnce::Done(Ok(outcome.unwrap_or_else(|failure| cut(ctx, exchange.state, failure))))
}

/// Where the body of a response with all of a file ends.
fn body_end(routed: &RoutedRequest, representation: &Representation) -> u64 {
    if routed.method == Method::Head { 0 } else { representation.bytes() }
}

/// Sends what the client takes of a head and of a body behind it that is in the memory of this process, or is none.
fn poll_content(
    ctx: &ExchangeContext<'_>,
    context: &mut Context<'_>,
    head: &[u8],
    (representation, range): (&Representation, Range<u64>),
    follows: Follows,
) -> Poll<io::Result<usize>> {
    // Both are as long as a buffer at most.
    let content = representation.content().unwrap_or_default();
    let body = content.get(range.start as usize..range.end as usize).unwrap_or_default();
    ctx.client.socket.poll_write_both(context, head, body, follows)
}

/// Sends what the client takes of a head, or of the bytes of a file that are behind it, from where the kernel has them; 0
/// if the file has none there.
fn poll_file(
    tcp: &Tcp,
    context: &mut Context<'_>,
    head: &[u8],
    (representation, range): (&Representation, Range<u64>),
) -> Poll<io::Result<usize>> {
    if !head.is_empty() {
        return tcp.poll_send(context, head, Follows::More);
    }
    let count = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    tcp.poll_send_file(context, &*representation.file, range.start, count)
}

/// Sends the rest of a whole file.
pub(super) async fn rest(exchange: &mut Exchange<'_, '_>, rest: Rest) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let Rest { file, plan, sent_bytes } = rest;
    let request = &exchange.memory.request;
    let representation = file.choose(&request.head, request.head_bytes());
    let range = 0..body_end(routed, representation);
    let mut sender = Sender { ctx, delivery: Delivery::of(ctx, routed), representation, sent_bytes };
    let Response { out, buffer, .. } = &mut exchange.memory.response;
    let outcome = sender.segment(out, buffer, range, plan.at_end()).await;
    exchange.state.body_bytes_sent = sender.sent_bytes.saturating_sub(out.len() as u64);
    end(ctx, buffer, exchange.state, outcome.map(|()| plan.next()))
}

/// Sends what a request wants of a file.
pub(super) async fn file(exchange: &mut Exchange<'_, '_>, file: Rc<ServedFile>) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let request = &mut exchange.memory.request;
    let has_whole_request =
        routed.framing == Framing::None || answer::has_taken_body(ctx, request, Ok(routed.framing));
    let representation = file.choose(&request.head, request.head_bytes());
    let Wanted::Extent(extent) = wanted(request, representation)? else {
        return unsatisfied(exchange, representation.bytes()).await;
    };
    let compression = ctx.snapshot.plan.routes[routed.route].compress.as_ref();
    let choice = compression
        .filter(|_| extent != Extent::NotModified)
        .map_or(Choice::Unchanged { adds_vary: false }, |compression| {
            coded::choose(&compression.settings, request, representation)
        });
    if let (Some(compression), Choice::Code(_), Extent::Whole) = (compression, choice, &extent) {
        let how = (choice, &*compression.settings);
        return coded::send(exchange, &file, how, has_whole_request).await;
    }
    let mut segments = extent.segments(representation);
    let length = segments.iter().map(Segment::len).sum();
    let status = extent.status();
    let source = if extent == Extent::NotModified { Framing::None } else { Framing::Length(length) };
    let mut plan = ResponsePlan::new(ctx, routed, status, source, has_whole_request);
    if exchange.state.has_fault() {
        messages::add_to_routed(ctx, routed, &mut plan, (status, false), exchange.state);
    }
    write_head(ctx, routed, exchange.memory, (representation, &extent, length), &plan);
    if choice != (Choice::Unchanged { adds_vary: false }) {
        coded::add_line(&mut exchange.memory.response.out, coding::VARY);
    }
    exchange.state.answers(status);
    if routed.method == Method::Head || length == 0 {
        segments = vec![Segment::default()];
    }
    let next = if has_whole_request { plan.next() } else { Next::Linger };
    let outcome = if plan.filters.is_empty() && Pace::new(Direction::Down, ctx.worker).is_free(ctx.worker) {
        unfiltered(exchange, representation, &segments, &plan).await
    } else {
        filtered(exchange, representation, &segments, plan).await
    };
    end(ctx, &mut exchange.memory.response.buffer, exchange.state, outcome.map(|()| next))
}

/// Sends a response that nothing changes, as fast as the client takes it.
async fn unfiltered(
    exchange: &mut Exchange<'_, '_>,
    representation: &Representation,
    segments: &[Segment],
    plan: &ResponsePlan,
) -> Result<(), Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let Response { out, buffer, .. } = &mut exchange.memory.response;
    exchange.state.record.head_leaves(out);
    let mut head_bytes = out.len() as u64;
    let mut sender = Sender { ctx, delivery: Delivery::of(ctx, routed), representation, sent_bytes: 0 };
    for (index, Segment { text, range }) in segments.iter().enumerate() {
        if ctx.client.socket.frames_itself() && index == 0 && !text.is_empty() {
            // The head of a stream leaves by itself.
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

/// Sends a response through the filters of its plan, and no faster than it may.
async fn filtered(
    exchange: &mut Exchange<'_, '_>,
    representation: &Representation,
    segments: &[Segment],
    plan: ResponsePlan,
) -> Result<(), Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let Response { out, buffer, .. } = &mut exchange.memory.response;
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
        // The text first, if there is one; then the file, a piece at a time.
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

/// Ends a response, and gives its buffer back.
fn end(
    ctx: &ExchangeContext<'_>,
    buffer: &mut Buffer,
    state: &mut ExchangeState<'_>,
    outcome: Result<Next, Failure>,
) -> Result<Next, Failure> {
    buffer.clear();
    ctx.worker.buffers.wait(buffer);
    Ok(outcome.unwrap_or_else(|failure| cut(ctx, state, failure)))
}

/// Breaks off a response whose head may have left: its connection is reset, so that it is seen to be incomplete.
#[cold]
pub(super) fn cut(ctx: &ExchangeContext<'_>, state: &mut ExchangeState<'_>, failure: Failure) -> Next {
    // What ends on purpose has said how.
    if failure != Failure::FaultInjected {
        ctx.client.socket.reset_on_drop();
    }
    state.failed(ctx, failure);
    Next::Drop
}

/// The way of a response to a client that is waited for.
struct Sender<'a> {
    ctx: &'a ExchangeContext<'a>,
    delivery: Delivery<'a>,
    representation: &'a Representation,
    /// Of the present head and range.
    sent_bytes: u64,
}

impl Sender<'_> {
    /// Sends what is left of a head, and of a range of the file behind it.
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
                let body = (representation, left);
                self.send(|context| poll_content(ctx, context, head_left, body.clone(), follows)).await?;
            }
            return Ok(());
        }
        match ctx.client.socket.spliceable() {
            Some(tcp) => self.file(tcp, head, &range).await,
            None => self.pieces(head, buffer, &range, follows).await,
        }
    }

    /// What is left to send.
    fn left<'h>(&self, head: &'h [u8], range: &Range<u64>) -> Option<(&'h [u8], Range<u64>)> {
        let head_left = &head[head.len().min(self.sent_bytes as usize)..];
        let at = range.start + self.sent_bytes.saturating_sub(head.len() as u64);
        (!head_left.is_empty() || at < range.end).then_some((head_left, at..range.end))
    }

    /// From where the kernel has it.
    async fn file(&mut self, tcp: &Tcp, head: &[u8], range: &Range<u64>) -> Result<(), Failure> {
        let representation = self.representation;
        let mut loaded = range.start;
        while let Some((head_left, left)) = self.left(head, range) {
            if left.start >= loaded && !representation.is_warm() {
                let window = left.start..left.end.min((left.start / WINDOW_BYTES + 1) * WINDOW_BYTES);
                loaded = window.end;
                load(self.ctx, representation, window).await?;
            }
            let end = if representation.is_warm() { left.end } else { loaded };
            let body = (representation, left.start..end);
            self.send(|context| poll_file(tcp, context, head_left, body.clone())).await?;
        }
        Ok(())
    }

    /// Through a buffer, as records or frames go around its bytes.
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
                // Nothing is read for a stream that cannot send it.
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

    /// Sends some bytes, within the client's time-out and at its minimum rate.
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

/// Reads the next bytes of a range into an empty buffer, as many as the client's side has room for.
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
    let read = match representation.file.read_at(piece, range.start, Waits::Never) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            let window = range.start..range.end.min(range.start + WINDOW_BYTES);
            load(ctx, representation, window).await?;
            representation.file.read_at(piece, range.start, Waits::Maybe)
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

/// Has a range in memory, so that whoever sends it does not keep the worker waiting for a disk.
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

/// RFC 9110 §15.5.17: answers 416 (Range Not Satisfiable).
async fn unsatisfied(exchange: &mut Exchange<'_, '_>, whole_bytes: u64) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let page = answer::page(ctx, routed.policies(ctx), 416);
    let out = &mut exchange.memory.response.out;
    answer::begin(out, 416);
    write_unsatisfied_range(out, whole_bytes);
    match page {
        Some(page) => answer::push_content(out, 416, page.content_type, &page.body),
        None => write_content_length(out, 0),
    }
    answer::own(exchange, (416, page.map_or(&b""[..], |page| &page.body))).await
}
