//! Sends a response from the store: complete, in parts, or as 304 (Not Modified).

use std::any::Any;
use std::io::IoSlice;
use std::sync::Arc;

use ::cache::{
    Boundary, CacheRequestFields, CacheStatus, Handling, Object, PreconditionResult, Selection, Stored,
    StoredPart, judge_conditions, range_applies, select, write_content_length, write_unsatisfied_range,
};
use http1::{BodyFraming, Method};
use pages::Region;

use super::coded::{self, Picked};
use super::counters;
use super::head::{self, SentPart, StoredHead};
use crate::answer;
use crate::body::segments::{Segment, parts};
use crate::context::client::AfterExchange;
use crate::context::exchange_slot::CurrentRequest;
use crate::context::later::{self, KnownResponse};
use crate::context::routed::RoutedRequest;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::forward::respond;
use crate::outgoing::faults;
use crate::outgoing::response_plan::ResponsePlan;
use crate::outgoing::send::Delivery;
use crate::outgoing::sink::BodySink;
use crate::shaping::{Direction, Pace};
use transport::cold::cold;
use transport::tcp::{Follows, Tcp};

/// Up to this length, a body is copied behind its head.
const ONE_PIECE_BYTES_MAX: u64 = 2048;

/// Maximum number of buffers per call: the head, and half a megabyte of blocks.
// Measured for 166 kB: 56 us of CPU a request in one call, 67 in three.
const PIECES_MAX: usize = 9;

/// The cache's handling of a request, as reported in Cache-Status.
#[derive(Clone, Copy)]
pub(super) struct CacheReport {
    pub(super) handling: Handling,
    pub(super) now_ms: u64,
    pub(super) shows_key: bool,
    /// Whether the request has neither preconditions nor ranges.
    pub(super) is_plain: bool,
}

/// Sends a stored response, in the coding that the client prefers. Called for every hit.
pub(super) async fn stored(
    exchange: &mut Exchange<'_, '_>,
    object: &Arc<Object>,
    report: CacheReport,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let plan = &ctx.snapshot.plan;
    let known = || KnownResponse {
        status: object.stored().status,
        head: object.head(),
        size: Some(object.body_bytes()),
        server: "",
    };
    let compression = later::compression(ctx, routed, &exchange.memory.request, known);
    let (Some(compression), Some(cache)) = (compression, &plan.cache) else {
        return whole(exchange, object, report).await;
    };
    match coded::pick(cache, compression, exchange.memory, object) {
        Picked::AsStored => whole(exchange, object, report).await,
        Picked::Made(form) => whole(exchange, &form, report).await,
        Picked::Wanted(wanted) => cold(|| coded::make(exchange, object, &wanted, report)).await,
    }
}

/// Sends a stored response without coding it.
pub(super) async fn whole(
    exchange: &mut Exchange<'_, '_>,
    object: &Object,
    report: CacheReport,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    // Plain hits stay small: ranges, conditions and faults live in a boxed future.
    if !report.is_plain || exchange.state.has_fault() {
        return cold(|| selected(exchange, object, report)).await;
    }
    let length = object.body_bytes();
    let plan = ResponsePlan::new(ctx, routed, object.stored().status, BodyFraming::Length(length), true);
    begin(exchange, object, &report, &SentPart::Whole, length, &plan)?;
    let out = &mut exchange.memory.response.out;
    exchange.state.record.head_leaves(out);
    plan.check_end(ctx, routed, out);
    let (next, follows) = (plan.next(), plan.at_end());
    let delivery = Delivery::from_ctx(ctx, routed);
    if routed.method == Method::Head || length == 0 {
        delivery.send(out, follows).await?;
        return Ok(next);
    }
    exchange.state.body_bytes_sent = length;
    let pace = Pace::new(Direction::Down, &ctx.worker.shaper);
    // A short body leaves as one buffer with its head. Under a rate its bytes are counted, on the path below.
    if length <= ONE_PIECE_BYTES_MAX && !pace.is_limited() {
        out.extend_from_slice(object.body_at(0));
        let sent = delivery.send(out, follows).await;
        // How much of the one buffer has left is unknown, so none of the body is counted.
        return sent.map(|()| next).inspect_err(|_| exchange.state.body_bytes_sent = 0);
    }
    let mut sent_bytes = 0;
    match send_whole(&delivery, routed, &pace, out, object, follows, &mut sent_bytes).await {
        Ok(()) => Ok(next),
        Err(failure) => {
            exchange.state.body_bytes_sent = sent_bytes.saturating_sub(exchange.state.record.head_bytes_sent);
            Ok(respond::cut(exchange, failure))
        }
    }
}

/// Sends a head and the complete body. A rate limit that is set meanwhile applies to the rest.
async fn send_whole(
    delivery: &Delivery<'_>,
    routed: &RoutedRequest,
    pace: &Pace,
    head: &[u8],
    object: &Object,
    follows: Follows,
    sent_bytes: &mut u64,
) -> Result<(), Failure> {
    let ctx = delivery.ctx;
    let whole_bytes = head.len() as u64 + object.body_bytes();
    while *sent_bytes < whole_bytes {
        let of_head = (head.len() as u64).min(*sent_bytes);
        let (head, at) = (&head[of_head as usize..], *sent_bytes - of_head);
        // Asked for each call: a rate may be set while the body leaves.
        let tcp = ctx.client.socket.spliceable().filter(|_| pace.is_free(&ctx.worker.shaper));
        *sent_bytes += match (tcp, region(object)) {
            // From a file in memory the kernel sends without a copy (sendfile). Measured: worthwhile from 32 KiB
            // on.
            (Some(tcp), Some(region)) => send_region(delivery, tcp, head, region, at).await?,
            (Some(tcp), None) => send_gathered(delivery, tcp, head, object, at, follows).await?,
            (None, _) => {
                let piece = object.body_at(at);
                let end = at + piece.len() as u64;
                let follows = if end == object.body_bytes() { follows } else { Follows::More };
                delivery.send_paced(routed, pace, head, piece, follows).await?;
                (head.len() + piece.len()) as u64
            }
        };
    }
    Ok(())
}

/// Returns the body as a region that the kernel can send directly, if it is stored in one.
fn region(object: &Object) -> Option<&Region> {
    let shelved: &dyn Any = object.on_shelf()?;
    shelved.downcast_ref()
}

/// Sends as much of a head and the body behind it as the client takes. Returns the number of bytes.
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

/// Sends a head and several pieces in one call, as far as the client takes them. Returns the number of bytes. For 166
/// kB, three calls cost the kernel an eighth more than one.
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

/// Sends a stored response to a request with ranges, preconditions or a fault.
async fn selected(
    exchange: &mut Exchange<'_, '_>,
    object: &Object,
    report: CacheReport,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let part = object.stored().part;
    let whole_bytes = part.and_then(|part| part.whole_bytes).unwrap_or_else(|| object.body_bytes());
    let wanted = match part.filter(|part| part.whole_bytes.is_none()) {
        Some(part) => of_part(&exchange.memory.request, &part),
        None => wanted(&exchange.memory.request, object.stored(), object.head(), Some(whole_bytes)),
    };
    let WantedPart::Extent(extent) = wanted else {
        return unsatisfied(exchange, whole_bytes, report).await;
    };
    let segments = segments(&extent, object, whole_bytes);
    let length = segments.iter().map(Segment::len).sum();
    let status = extent.status(object.stored());
    let source =
        if extent == SentPart::NotModified { BodyFraming::None } else { BodyFraming::Length(length) };
    let mut plan = ResponsePlan::new(ctx, routed, status, source, true);
    if exchange.state.has_fault() {
        // Trailers are not stored.
        faults::add_to_routed(ctx, routed, &mut plan, status, false, exchange.state);
    }
    begin(exchange, object, &report, &extent, length, &plan)?;
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
                return Ok(respond::cut(exchange, failure));
            }
            out.clear();
        }
    }
    Ok(next)
}

/// Returns the part of a response of unknown length that a request wants.
fn of_part(request: &CurrentRequest, part: &StoredPart) -> WantedPart {
    let range = part.select(&request.head, request.head_bytes());
    WantedPart::Extent(SentPart::Part(range.unwrap_or(part.start..part.end), None))
}

/// The part of a response that the client wants.
pub(super) enum WantedPart {
    Extent(SentPart),
    /// No satisfiable range (RFC 9110 §15.5.17).
    Nothing,
}

/// Determines which part of a response a request wants. `whole_bytes` is `None` while the complete length is unknown.
pub(super) fn wanted(
    request: &CurrentRequest,
    stored: &Stored,
    stored_head: &[u8],
    whole_bytes: Option<u64>,
) -> WantedPart {
    let (head, bytes) = (&request.head, request.head_bytes());
    let asked = CacheRequestFields::new(head, bytes);
    // RFC 9110 §13.2.2: preconditions come before ranges.
    if judge_conditions(&asked, head, bytes, stored, stored_head) == PreconditionResult::NotModified {
        return WantedPart::Extent(SentPart::NotModified);
    }
    // RFC 9110 §14.2: ranges only apply to a 200 response.
    let has_range =
        asked.has_range() && stored.status == 200 && range_applies(&asked, head, bytes, stored, stored_head);
    let Some(whole_bytes) = whole_bytes.filter(|_| has_range) else {
        return WantedPart::Extent(SentPart::Whole);
    };
    WantedPart::Extent(match select(head, bytes, whole_bytes) {
        Selection::Whole => SentPart::Whole,
        Selection::One(range) => SentPart::Part(range, Some(whole_bytes)),
        // Random, so that no content can contain the boundary on purpose.
        Selection::Several(ranges) => SentPart::Parts(ranges, Boundary::new(fastrand::u64(..))),
        Selection::Unsatisfiable => return WantedPart::Nothing,
    })
}

/// Returns the bytes of a segment.
fn bytes<'a>(segment: &'a Segment, object: &'a Object) -> impl Iterator<Item = &'a [u8]> {
    let text = Some(segment.text.as_slice()).filter(|text| !text.is_empty());
    // A part is stored from its offset in the complete response.
    let begin = object.stored().part.map_or(0, |part| part.start);
    let within = segment.range.start.saturating_sub(begin)..segment.range.end.saturating_sub(begin);
    text.into_iter().chain(object.body(within))
}

/// Returns the segments of an extent's body.
fn segments(extent: &SentPart, object: &Object, whole_bytes: u64) -> Vec<Segment> {
    match extent {
        SentPart::Whole => vec![Segment::from_range(0..whole_bytes)],
        SentPart::NotModified => Vec::new(),
        SentPart::Part(range, _) => vec![Segment::from_range(range.clone())],
        SentPart::Parts(ranges, boundary) => {
            parts(ranges, boundary, head::field(object.head(), b"content-type"), whole_bytes)
        }
    }
}

/// Writes the head; `length` is that of the body to be sent.
fn begin(
    exchange: &mut Exchange<'_, '_>,
    object: &Object,
    report: &CacheReport,
    extent: &SentPart,
    length: u64,
    plan: &ResponsePlan,
) -> Result<(), Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let stored = object.stored();
    let stored_head = StoredHead {
        stored,
        head: object.head(),
        hidden: object.hidden(),
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

/// Answers 416 (Range Not Satisfiable, RFC 9110 §15.5.17).
pub(super) async fn unsatisfied(
    exchange: &mut Exchange<'_, '_>,
    whole_bytes: u64,
    report: CacheReport,
) -> Result<AfterExchange, Failure> {
    let out = &mut exchange.memory.response.out;
    answer::begin(out, 416);
    write_unsatisfied_range(out, whole_bytes);
    write_content_length(out, 0);
    CacheStatus { handling: report.handling, ttl_seconds: None, key: None, detail: None }.write(out);
    answer::own(exchange, 416, b"").await
}
