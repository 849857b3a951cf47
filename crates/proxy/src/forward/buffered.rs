//! Request buffering: reads a request's whole body before a server is chosen, so that a slow client does not occupy
//! one.
//!
//! `body/replay` sends the kept body, and can send it again: a buffered request is retried like one without a body.

use std::rc::Rc;

use config::RequestBuffering;
use http1::{BodyFraming, HttpVersion, Name};
use telemetry::message;

use crate::body::ends::{Ends, PumpSide};
use crate::body::kept::{BodyKeeper, Unkept};
use crate::body::pump::Stop;
use crate::body::replay::Replay;
use crate::body::upload::Until;
use crate::context::exchange_slot::CurrentRequest;
use crate::context::routed::{ExchangeContext, Purpose, RoutedRequest};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::forward::{script, upload};
use crate::outgoing::send::Delivery;
use crate::shaping::{Direction, Pace};
use crate::shared::kept_bytes::KeptByteCounter;
use crate::shared::minimum_rate::RateProgress;
use transport::endpoint::MessageEndpoint;
use transport::tcp::Follows;

/// Returns the buffering settings that apply to a request; `None` if its body is not buffered.
#[inline]
pub(super) fn wanted<'a>(ctx: &ExchangeContext<'a>, routed: &RoutedRequest) -> Option<&'a RequestBuffering> {
    // A mirror's copy has no client to wait for, and the bytes of an upgrade are no body.
    if routed.framing == BodyFraming::None || routed.purpose != Purpose::Client || routed.wants_upgrade {
        return None;
    }
    let own = routed.policies(ctx).and_then(|policies| policies.settings.request_buffering.as_ref());
    own.or_else(|| unannounced(ctx, routed))
}

/// RFC 3875 §4.1.2: an application behind FastCGI is first given the length of the body, so that one of unknown length
/// has to be received before.
fn unannounced<'a>(ctx: &ExchangeContext<'a>, routed: &RoutedRequest) -> Option<&'a RequestBuffering> {
    static DEFAULT: RequestBuffering = RequestBuffering::DEFAULT;
    (!matches!(routed.framing, BodyFraming::Length(_)) && script::is_wanted(ctx, routed)).then_some(&DEFAULT)
}

/// Reads the body of a request, within the limits of its client. Called before a server is chosen.
pub(super) async fn receive(
    exchange: &mut Exchange<'_, '_>,
    buffering: &RequestBuffering,
) -> Result<(), Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let bounds = &ctx.snapshot.plan.config.request_buffers;
    let request = &mut exchange.memory.request;
    let own_max = buffering.bytes_max(routed.client_limits(ctx).body_bytes, bounds);
    // A known length is refused before a byte is read, and before 100 (Continue) asks for it.
    if let BodyFraming::Length(length) = routed.framing
        && length > own_max
    {
        return Err(Failure::RequestBufferExceeded);
    }
    if is_awaiting_go_ahead(routed, request) {
        // RFC 9110 §10.1.1: the request is forwarded without Expect.
        Delivery::from_ctx(ctx, routed).send(b"HTTP/1.1 100 Continue\r\n\r\n", Follows::Nothing).await?;
    }
    begin(ctx, routed, request);
    let mut keeper = BodyKeeper::new(
        Rc::clone(ctx.worker) as Rc<dyn KeptByteCounter>,
        &ctx.snapshot.plan.kept_bytes,
        bounds,
        buffering.memory_bytes,
    );
    let keeps = !buffering.discards;
    let outcome = keep(ctx, routed, request, (&mut keeper, keeps), own_max).await;
    let kept = match outcome {
        Ok(()) => keeper.end(if keeps { request.body.trailers() } else { &[] }).await,
        Err(BufferFailure::Unkept(unkept)) => Err(unkept),
        Err(BufferFailure::Failed(failure)) => return Err(failure),
    };
    let kept = kept.map_err(|unkept| {
        let (failure, why) = why(ctx, &unkept);
        exchange.memory.response.wrong = Some(why);
        failure
    })?;
    let request = &mut exchange.memory.request;
    ctx.worker.counters.requests_buffered.increment();
    if kept.is_in_file() {
        ctx.worker.counters.requests_buffered_on_disk.increment();
    }
    let kept = Rc::new(kept);
    // The mirror gets the kept body, not another copy of it.
    if let Some(tee) = request.tee.take() {
        tee.share(&kept);
    }
    request.replay = Some(Box::new(Replay::new(kept)));
    Ok(())
}

/// Whether the client waits for 100 (Continue) before it sends its body (RFC 9110 §10.1.1).
pub(super) fn is_awaiting_go_ahead(routed: &RoutedRequest, request: &CurrentRequest) -> bool {
    let expects = || request.head.value(request.head_bytes(), Name::Expect);
    routed.version != HttpVersion::Http10
        && request.buffer.len() == request.head.len
        && expects().is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
}

/// Begins a body that is only kept, not forwarded yet.
fn begin(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &mut CurrentRequest) {
    upload::begin(ctx, routed, request, false);
    request.keep_head();
}

/// The reason why a body was not received completely.
enum BufferFailure {
    Failed(Failure),
    Unkept(Unkept),
}

/// Receives a body, and keeps it in memory or in a file if it is not discarded.
async fn keep(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &mut CurrentRequest,
    (keeper, keeps): (&mut BodyKeeper, bool),
    bytes_max: u64,
) -> Result<(), BufferFailure> {
    let ExchangeContext { worker, client, .. } = *ctx;
    let pace = Pace::new(Direction::Up, &worker.shaper);
    let limit = routed.ticks(ctx).client_body;
    let ends = Ends {
        buffers: &worker.buffers,
        pipes: &worker.pipes,
        deadlines: &worker.deadlines,
        minimum_rate: routed.client_limits(ctx).minimum_rate,
        source: &client.socket,
        sink: &MessageEndpoint::Detached,
        deadline: &client.deadline,
        source_limit: limit,
        sink_limit: limit,
        paced: Some(PumpSide::Source),
        closes_sink: false,
        pace: &pace,
        place: routed.place(ctx),
        activity: None,
        arrivals: None,
        is_tunnel: false,
    };
    let failed = |stop: Stop| upload::outcome(Err(stop), Until::Head).err();
    let mut progress = RateProgress::default();
    let CurrentRequest { body, buffer, .. } = request;
    while !body.is_done() {
        if let Err(stop) = body.receive(&ends, buffer, &mut progress).await {
            return Err(BufferFailure::Failed(failed(stop).unwrap_or(Failure::ClientGone)));
        }
        // Checked while the body arrives: in chunks it announces no length.
        if body.moved > bytes_max {
            return Err(BufferFailure::Failed(Failure::RequestBufferExceeded));
        }
        let mut left = body.unsent();
        if keeps {
            keeper.take(&buffer.filled()[..left]).await.map_err(BufferFailure::Unkept)?;
        }
        // The bytes are kept already. The rate only delays the next read.
        while left > 0 {
            let count = ends.allowance(left).await;
            pace.sent(count);
            left -= count;
        }
        body.sent(buffer, body.unsent());
    }
    Ok(())
}

/// Returns the failure for the client, and the text for log and operator, for a body that could not be kept.
#[cold]
fn why(ctx: &ExchangeContext<'_>, unkept: &Unkept) -> (Failure, String) {
    let bounds = &ctx.snapshot.plan.config.request_buffers;
    match unkept {
        Unkept::Full => {
            let why =
                format!("buffered bodies use all of request_buffering.disk, {} bytes", bounds.disk_bytes);
            message::warn(&format!("a request body is not buffered: {why}"));
            (Failure::RequestBuffersFull, why)
        }
        Unkept::Failed(error) => {
            let why = format!("{}: {error}", bounds.path.display());
            message::error(&format!("a request body cannot be buffered: {why}"));
            (Failure::RequestBufferFailed, why)
        }
    }
}
