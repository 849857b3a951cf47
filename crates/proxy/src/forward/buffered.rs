//! Request buffering: reads a request's whole body before a server is chosen, so that a slow client holds none.
//!
//! What is kept is sent by `body/replay`, and may be sent again: a buffered request is retried like one without a body.

use std::rc::Rc;

use config::RequestBuffering;
use http1::{Framing, Name, Version};
use telemetry::message;

use crate::body::ends::{Ends, Side};
use crate::body::kept::{Keeper, Unkept};
use crate::body::pump::Stop;
use crate::body::replay::Replay;
use crate::body::send::Delivery;
use crate::body::upload::{self, Until};
use crate::context::exchange::{Exchange, ExchangeContext, Purpose, RoutedRequest};
use crate::context::exchange_slot::Request;
use crate::context::failure::Failure;
use crate::context::minimum_rate::Progress;
use crate::shaping::{Direction, Pace};
use transport::endpoint::Endpoint;
use transport::tcp::Follows;

/// How the body of a request is buffered, if it is.
#[inline]
pub(super) fn wanted<'a>(ctx: &ExchangeContext<'a>, routed: &RoutedRequest) -> Option<&'a RequestBuffering> {
    if routed.framing == Framing::None || routed.purpose != Purpose::Client || routed.wants_upgrade {
        return None;
    }
    routed.policies(ctx)?.settings.request_buffering.as_ref()
}

/// Reads the body of a request, within the limits on its client.
pub(super) async fn receive(
    exchange: &mut Exchange<'_, '_>,
    buffering: &RequestBuffering,
) -> Result<(), Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let bounds = &ctx.snapshot.plan.config.request_buffers;
    let request = &mut exchange.memory.request;
    let own_max = buffering.bytes_max(routed.client_limits(ctx).body_bytes, bounds);
    if let Framing::Length(length) = routed.framing
        && length > own_max
    {
        return Err(Failure::RequestBufferExceeded);
    }
    if is_awaiting_go_ahead(routed, request) {
        // RFC 9110 §10.1.1: the server gets the request without the expectation.
        Delivery::of(ctx, routed).send(b"HTTP/1.1 100 Continue\r\n\r\n", Follows::Nothing).await?;
    }
    begin(ctx, routed, request);
    let mut keeper = Keeper::new(ctx.worker, &ctx.snapshot.plan.kept_bytes, bounds, buffering.memory_bytes);
    let outcome = keep(ctx, routed, request, (&mut keeper, own_max)).await;
    let kept = match outcome {
        Ok(()) => keeper.end(request.body.trailers()).await,
        Err(Ended::Unkept(unkept)) => Err(unkept),
        Err(Ended::Failed(failure)) => return Err(failure),
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
    if let Some(tee) = request.tee.take() {
        tee.share(&kept);
    }
    request.replay = Some(Box::new(Replay::new(kept)));
    Ok(())
}

/// Whether a client waits to be told that it may send its body (RFC 9110 §10.1.1).
fn is_awaiting_go_ahead(routed: &RoutedRequest, request: &Request) -> bool {
    let expects = || request.head.value(request.head_bytes(), Name::Expect);
    routed.version != Version::Http10
        && request.buffer.len() == request.head.len
        && expects().is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
}

/// Begins a body that nobody else is sent meanwhile.
fn begin(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &mut Request) {
    upload::begin(ctx, routed, request, false);
    request.keep_head();
}

/// Why a body was not received as a whole.
enum Ended {
    Failed(Failure),
    Unkept(Unkept),
}

/// Receives a body and keeps it.
async fn keep(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &mut Request,
    (keeper, bytes_max): (&mut Keeper, u64),
) -> Result<(), Ended> {
    let ExchangeContext { worker, client, .. } = *ctx;
    let pace = Pace::new(Direction::Up, worker);
    let limit = routed.ticks(ctx).client_body;
    let ends = Ends {
        worker,
        minimum_rate: routed.client_limits(ctx).minimum_rate,
        source: &client.socket,
        sink: &Endpoint::Detached,
        deadline: &client.deadline,
        source_limit: limit,
        sink_limit: limit,
        paced: Some(Side::Source),
        closes_sink: false,
        pace: &pace,
        place: routed.place(ctx),
        activity: None,
        arrivals: None,
        is_tunnel: false,
    };
    let failed = |stop: Stop| upload::outcome(Err(stop), Until::Head).err();
    let mut progress = Progress::default();
    let Request { body, buffer, .. } = request;
    while !body.is_done() {
        if let Err(stop) = body.receive(&ends, buffer, &mut progress).await {
            return Err(Ended::Failed(failed(stop).unwrap_or(Failure::ClientGone)));
        }
        if body.moved > bytes_max {
            return Err(Ended::Failed(Failure::RequestBufferExceeded));
        }
        let mut left = body.unsent();
        keeper.take(&buffer.filled()[..left]).await.map_err(Ended::Unkept)?;
        while left > 0 {
            let count = ends.allowance(left).await;
            pace.sent(count);
            left -= count;
        }
        body.sent(buffer, body.unsent());
    }
    Ok(())
}

/// What the client, the log and the operator are told of a body that is not kept.
#[cold]
fn why(ctx: &ExchangeContext<'_>, unkept: &Unkept) -> (Failure, String) {
    let bounds = &ctx.snapshot.plan.config.request_buffers;
    match unkept {
        Unkept::Full => {
            let why = format!("all buffered bodies take request_buffering.disk, {} bytes", bounds.disk_bytes);
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
