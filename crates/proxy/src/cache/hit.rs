//! Sends a response from the store: all of it, a part, or 304 (Not Modified).

use std::any::Any;
use std::io::IoSlice;
use std::sync::Arc;

use ::cache::{
    Asked, Boundary, CacheStatus, Handling, Object, Part, Selection, Stored, Verdict, judge_conditions,
    range_applies, select, write_content_length, write_unsatisfied_range,
};
use http1::{Framing, Method};
use pages::Region;

use super::coded::{self, Picked};
use super::counters;
use super::head::{self, Extent, StoredHead};
use crate::body::response_plan::ResponsePlan;
use crate::body::segments::{Segment, parts};
use crate::body::send::Delivery;
use crate::body::sink::BodySink;
use crate::context::client::Next;
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::Request;
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::faults::messages;
use crate::forward::answer;
use crate::shaping::{Direction, Pace};
use transport::cold::cold;
use transport::tcp::{Follows, Tcp};

/// A body up to this length is copied behind its head.
const ONE_PIECE_BYTES_MAX: u64 = 2048;

/// What leaves in one call at most: half a megabyte of blocks, and the head.
const PIECES_MAX: usize = 9;

/// How the cache handled a request, and what the client is told about that.
#[derive(Clone, Copy)]
pub(super) struct CacheReport {
    pub(super) handling: Handling,
    pub(super) now_ms: u64,
    /// Whether the client is to see the cache key.
    pub(super) shows_key: bool,
    /// Whether the request has neither preconditions nor ranges.
    pub(super) is_plain: bool,
}

/// Sends a stored response.
pub(super) async fn stored(
    exchange: &mut Exchange<'_, '_>,
    object: &Arc<Object>,
    report: CacheReport,
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let plan = &ctx.snapshot.plan;
    let (Some(compression), Some(cache)) = (routed.compression(ctx), &plan.cache) else {
        return whole(exchange, object, report).await;
    };
    match coded::pick(cache, compression, exchange.memory, object) {
        Picked::AsStored => whole(exchange, object, report).await,
        Picked::Made(form) => whole(exchange, &form, report).await,
        Picked::Wanted(wanted) => cold(|| coded::make(exchange, object, &wanted, report)).await,
    }
}

/// Sends a stored response in the form in which it is.
pub(super) async fn whole(
    exchange: &mut Exchange<'_, '_>,
    object: &Object,
    report: CacheReport,
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    if !report.is_plain || exchange.state.has_fault() {
        return cold(|| selected(exchange, object, report)).await;
    }
    let length = object.body_bytes();
    let plan = ResponsePlan::new(ctx, routed, object.stored().status, Framing::Length(length), true);
    begin(exchange, object, &report, (&Extent::Whole, length, &plan))?;
    let out = &mut exchange.memory.response.out;
    exchange.state.record.head_leaves(out);
    let (next, follows) = (plan.next(), plan.at_end());
    let delivery = Delivery::of(ctx, routed);
    if routed.method == Method::Head || length == 0 {
        delivery.send(out, follows).await?;
        return Ok(next);
    }
    exchange.state.body_bytes_sent = length;
    let pace = Pace::new(Direction::Down, ctx.worker);
    if length <= ONE_PIECE_BYTES_MAX && !pace.is_limited() {
        out.extend_from_slice(object.body_at(0));
        let sent = delivery.send(out, follows).await;
        return sent.map(|()| next).inspect_err(|_| exchange.state.body_bytes_sent = 0);
    }
    let mut sent_bytes = 0;
    match send_whole(&delivery, routed, &pace, out, object, (follows, &mut sent_bytes)).await {
        Ok(()) => Ok(next),
        Err(failure) => {
            exchange.state.body_bytes_sent = sent_bytes.saturating_sub(exchange.state.record.head_bytes_sent);
            Ok(cut(ctx, exchange.state, failure))
        }
    }
}

/// Sends a head and the whole body behind it. A limit that comes meanwhile holds for what is left.
async fn send_whole(
    delivery: &Delivery<'_>,
    routed: &RoutedRequest,
    pace: &Pace,
    head: &[u8],
    object: &Object,
    (follows, sent_bytes): (Follows, &mut u64),
) -> Result<(), Failure> {
    let ctx = delivery.ctx;
    let whole_bytes = head.len() as u64 + object.body_bytes();
    while *sent_bytes < whole_bytes {
        let of_head = (head.len() as u64).min(*sent_bytes);
        let (head, at) = (&head[of_head as usize..], *sent_bytes - of_head);
        let tcp = ctx.client.socket.spliceable().filter(|_| pace.is_free(ctx.worker));
        *sent_bytes += match (tcp, region(object)) {
            (Some(tcp), Some(region)) => send_region(delivery, tcp, head, region, at).await?,
            (Some(tcp), None) => send_gathered(delivery, tcp, head, object, at, follows).await?,
            (None, _) => {
                let piece = object.body_at(at);
                let end = at + piece.len() as u64;
                let follows = if end == object.body_bytes() { follows } else { Follows::More };
                delivery.send_paced(routed, pace, (head, piece), follows).await?;
                (head.len() + piece.len()) as u64
            }
        };
    }
    Ok(())
}

/// A body that the kernel can send from where it lies.
fn region(object: &Object) -> Option<&Region> {
    let shelved: &dyn Any = object.on_shelf()?;
    shelved.downcast_ref()
}

/// Sends what the client takes of a head and of the body that is behind it, and says how much that was.
async fn send_region(
    delivery: &Delivery<'_>,
    tcp: &Tcp,
    head: &[u8],
    region: &Region,
    at: u64,
) -> Result<u64, Failure> {
    let sent = delivery.write(|context| tcp.poll_send_region(context, head, region, at));
    sent.await.map(|count| count as u64)
}

/// Sends a head and what of several pieces behind it the client takes in one call, and says how much that was: of 166 kB in
/// three calls the kernel makes an eighth more work than in one.
async fn send_gathered(
    delivery: &Delivery<'_>,
    tcp: &Tcp,
    head: &[u8],
    object: &Object,
    mut at: u64,
    follows: Follows,
) -> Result<u64, Failure> {
    let mut pieces = [IoSlice::new(b""); PIECES_MAX];
    pieces[0] = IoSlice::new(head);
    for (piece, bytes) in pieces[1..].iter_mut().zip(object.body(at..u64::MAX)) {
        at += bytes.len() as u64;
        *piece = IoSlice::new(bytes);
    }
    let follows = if at == object.body_bytes() { follows } else { Follows::More };
    let sent = delivery.write(|context| tcp.poll_send_pieces(context, &pieces, follows));
    sent.await.map(|count| count as u64)
}

/// The same where the request wants something other than all of it, or a fault was drawn for it.
async fn selected(
    exchange: &mut Exchange<'_, '_>,
    object: &Object,
    report: CacheReport,
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let part = object.stored().part;
    let whole_bytes = part.and_then(|part| part.whole_bytes).unwrap_or_else(|| object.body_bytes());
    let wanted = match part.filter(|part| part.whole_bytes.is_none()) {
        Some(part) => of_part(&exchange.memory.request, &part),
        None => wanted(&exchange.memory.request, object.stored(), object.head(), Some(whole_bytes)),
    };
    let Wanted::Extent(extent) = wanted else {
        return unsatisfied(exchange, whole_bytes, report).await;
    };
    let segments = segments(&extent, object, whole_bytes);
    let length = segments.iter().map(Segment::len).sum();
    let status = extent.status(object.stored());
    let source = if extent == Extent::NotModified { Framing::None } else { Framing::Length(length) };
    let mut plan = ResponsePlan::new(ctx, routed, status, source, true);
    if exchange.state.has_fault() {
        // Trailers are not stored.
        messages::add_to_routed(ctx, routed, &mut plan, (status, false), exchange.state);
    }
    begin(exchange, object, &report, (&extent, length, &plan))?;
    let out = &mut exchange.memory.response.out;
    let sink = BodySink::paced(ctx, routed, plan, out, exchange.state);
    let (next, follows) = (sink.plan().next(), sink.plan().at_end());
    sink.begin(out).await?;
    if routed.method == Method::Head || length == 0 {
        sink.send(out, b"", follows).await?;
        return Ok(next);
    }
    let mut taken_bytes = 0;
    for segment in &segments {
        for bytes in bytes(segment, object) {
            let bytes = &bytes[..sink.takes(bytes.len())];
            taken_bytes += bytes.len() as u64;
            let follows = if taken_bytes == length { follows } else { Follows::More };
            let sent = sink.send(out, bytes, follows).await;
            exchange.state.body_bytes_sent = sink.sent_bytes();
            if let Err(failure) = sent {
                return Ok(cut(ctx, exchange.state, failure));
            }
            out.clear();
        }
    }
    Ok(next)
}

/// What a request wants of a part of nobody knows how much.
fn of_part(request: &Request, part: &Part) -> Wanted {
    let range = part.select(&request.head, request.head_bytes());
    Wanted::Extent(Extent::Part(range.unwrap_or(part.start..part.end), None))
}

/// The part of a response that the client wants.
pub(super) enum Wanted {
    Extent(Extent),
    /// No satisfiable range (RFC 9110 §15.5.17).
    Nothing,
}

/// Determines the part of a response that a request wants. The complete length may not be known yet.
pub(super) fn wanted(
    request: &Request,
    stored: &Stored,
    stored_head: &[u8],
    whole_bytes: Option<u64>,
) -> Wanted {
    let (head, bytes) = (&request.head, request.head_bytes());
    let asked = Asked::of(head, bytes);
    if judge_conditions(&asked, head, bytes, stored, stored_head) == Verdict::NotModified {
        return Wanted::Extent(Extent::NotModified);
    }
    // RFC 9110 §14.2: a range is one of what would be sent with 200.
    let has_range =
        asked.has_range() && stored.status == 200 && range_applies(&asked, head, bytes, stored, stored_head);
    let Some(whole_bytes) = whole_bytes.filter(|_| has_range) else { return Wanted::Extent(Extent::Whole) };
    Wanted::Extent(match select(head, bytes, whole_bytes) {
        Selection::Whole => Extent::Whole,
        Selection::One(range) => Extent::Part(range, Some(whole_bytes)),
        Selection::Several(ranges) => Extent::Parts(ranges, Boundary::new(fastrand::u64(..))),
        Selection::Unsatisfiable => return Wanted::Nothing,
    })
}

/// The bytes of a segment.
fn bytes<'a>(segment: &'a Segment, object: &'a Object) -> impl Iterator<Item = &'a [u8]> {
    let text = Some(segment.text.as_slice()).filter(|text| !text.is_empty());
    // A part is stored from where it begins in the whole.
    let begin = object.stored().part.map_or(0, |part| part.start);
    let within = segment.range.start.saturating_sub(begin)..segment.range.end.saturating_sub(begin);
    text.into_iter().chain(object.body(within))
}

/// The body that goes with an extent.
fn segments(extent: &Extent, object: &Object, whole_bytes: u64) -> Vec<Segment> {
    match extent {
        Extent::Whole => vec![Segment::of(0..whole_bytes)],
        Extent::NotModified => Vec::new(),
        Extent::Part(range, _) => vec![Segment::of(range.clone())],
        Extent::Parts(ranges, boundary) => {
            parts(ranges, boundary, head::field(object.head(), b"content-type"), whole_bytes)
        }
    }
}

/// Writes the head of what has this length on its way.
fn begin(
    exchange: &mut Exchange<'_, '_>,
    object: &Object,
    report: &CacheReport,
    (extent, length, plan): (&Extent, u64, &ResponsePlan),
) -> Result<(), Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let stored = object.stored();
    let stored_head = StoredHead {
        stored,
        head: object.head(),
        extent,
        handling: report.handling,
        // RFC 9111 §5.1.
        age_seconds: Some(stored.age_seconds(report.now_ms)),
        ttl_seconds: stored.ttl_seconds(report.now_ms),
        key: report.shows_key.then(|| object.key_text()),
    };
    head::write(ctx, routed, exchange.memory, &stored_head, plan)?;
    if let Some(cell) = counters::cell(ctx, routed).filter(|_| routed.method != Method::Head) {
        cell.sent_bytes.add(length);
    }
    exchange.state.answers(extent.status(stored));
    Ok(())
}

/// RFC 9110 §15.5.17: answers 416 (Range Not Satisfiable).
pub(super) async fn unsatisfied(
    exchange: &mut Exchange<'_, '_>,
    whole_bytes: u64,
    report: CacheReport,
) -> Result<Next, Failure> {
    let out = &mut exchange.memory.response.out;
    answer::begin(out, 416);
    write_unsatisfied_range(out, whole_bytes);
    write_content_length(out, 0);
    CacheStatus { handling: report.handling, ttl_seconds: None, key: None, detail: None }.write(out);
    answer::own(exchange, (416, b"")).await
}

/// Ends a response whose head may have left: resets the connection, so that the body is seen to be incomplete.
pub(super) fn cut(ctx: &ExchangeContext<'_>, state: &mut ExchangeState<'_>, failure: Failure) -> Next {
    // What ends on purpose has said how.
    if failure != Failure::FaultInjected {
        ctx.client.socket.reset_on_drop();
    }
    state.failed(ctx, failure);
    Next::Drop
}
