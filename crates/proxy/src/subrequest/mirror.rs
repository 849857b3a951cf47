//! Mirrors requests to another upstream. Each copy runs in a separate task: no client waits for it, and its outcome
//! changes no response.
//!
//! A body is copied in transit, and the copy is sent once it is complete.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http1::BodyFraming;
use telemetry::{MirrorCell, Skip};
use tokio::sync::oneshot::Receiver;

use crate::body::tee::{Copied, Tee};
use crate::context::exchange_slot::CurrentRequest;
use crate::context::later;
use crate::context::plan::{Mirror, MirrorPlace};
use crate::context::routed::{ExchangeContext, Purpose, RoutedRequest};
use crate::context::snapshot::Snapshot;
use crate::context::worker::Worker;
use crate::exchange::Exchange;
use crate::forward;
use crate::shared::vouched::Vouched;
use crate::subrequest::{self, Subrequest};

/// Copies an admitted request, if its turn comes. Called for each request of a route with a mirror.
#[cold]
#[inline(never)]
pub(crate) fn mirror(
    ctx: &ExchangeContext<'_>,
    mirror: &Arc<Mirror>,
    routed: &RoutedRequest,
    request: &mut CurrentRequest,
) {
    let is_for = later::holds(ctx, routed, request, mirror.when.as_deref());
    if !is_for || !mirror.is_next() {
        return;
    }
    match begin(ctx, mirror, routed, request) {
        Ok(copy) => drop(tokio::task::spawn_local(copy.run())),
        Err(skip) => skipped(ctx.worker, ctx.snapshot, routed.route, skip),
    }
}

fn skipped(worker: &Worker, snapshot: &Snapshot, route: usize, skip: Skip) {
    if let Some(cell) = cell(worker, snapshot, route) {
        cell.skipped.count(skip);
    }
}

/// Returns the counters of a route's mirror, if metrics are wanted.
fn cell<'a>(worker: &'a Worker, snapshot: &Snapshot, route: usize) -> Option<&'a MirrorCell> {
    let places = snapshot.plan.places.as_deref()?;
    Some(worker.series.route(places.route(Some(route))).mirror.cell())
}

/// A copy of a request, before it is sent.
struct Copy {
    worker: Rc<Worker>,
    snapshot: Rc<Snapshot>,
    route: usize,
    subrequest: Subrequest,
    /// The body, while it is still being copied.
    body: Option<Receiver<Copied>>,
    _place: MirrorPlace,
}

/// Prepares the copy of a request that is to be mirrored; its body is copied as it is forwarded.
fn begin(
    ctx: &ExchangeContext<'_>,
    mirror: &Arc<Mirror>,
    routed: &RoutedRequest,
    request: &mut CurrentRequest,
) -> Result<Copy, Skip> {
    // A tunnel needs both ends.
    if routed.wants_upgrade {
        return Err(Skip::Upgrade);
    }
    if matches!(routed.framing, BodyFraming::Length(length) if length > mirror.body_bytes_max) {
        return Err(Skip::BodyTooLarge);
    }
    // Copies are the first to be left out when memory is short.
    let place = mirror.place().filter(|_| !ctx.worker.is_short_of_memory()).ok_or(Skip::TooMany)?;
    let body = (routed.framing != BodyFraming::None).then(|| {
        // The configuration limits this to the range of `usize`.
        let (tee, body) = Tee::new(mirror.body_bytes_max as usize, routed.framing == BodyFraming::Chunked);
        request.tee = Some(tee);
        body
    });
    let mut subrequest = Subrequest::copy_of(ctx, routed, request);
    subrequest.retarget(mirror.upstream, Purpose::Mirror);
    subrequest.is_for("mirror");
    if !mirror.mark.is_empty() {
        subrequest.vouch(&Vouched { request_lines: mirror.mark.clone(), ..Vouched::default() });
    }
    let (worker, snapshot) = (Rc::clone(ctx.worker), Rc::clone(ctx.snapshot));
    Ok(Copy { worker, snapshot, route: routed.route, subrequest, body, _place: place })
}

impl Copy {
    /// Sends the copy, once its body is complete.
    async fn run(self) {
        let Self { worker, snapshot, route, mut subrequest, body, _place } = self;
        if let Some(body) = body {
            match body.await {
                Ok(Copied::Whole(body)) => subrequest.set_body(body),
                Ok(Copied::TooLarge) => return skipped(&worker, &snapshot, route, Skip::BodyTooLarge),
                // The client has left, or its request was refused.
                Err(_) => return skipped(&worker, &snapshot, route, Skip::Incomplete),
            }
        }
        let cell = cell(&worker, &snapshot, route);
        subrequest.run(async |exchange| ask(exchange, cell).await).await;
    }
}

/// Sends the copy to a server, and discards the response.
async fn ask(exchange: &mut Exchange<'_, '_>, cell: Option<&MirrorCell>) {
    let began = cell.map(|_| Instant::now());
    let outcome = match forward::forward(exchange).await {
        Ok(reply) => {
            if let (Some(began), Some(cell)) = (began, cell) {
                cell.first_byte.observe(began.elapsed());
            }
            let status = exchange.memory.response.head.start.status;
            subrequest::receive(exchange, reply, None).await.map(|()| status)
        }
        Err(failure) => Err(failure),
    };
    let Some(cell) = cell else { return };
    match outcome {
        Ok(status) => cell.responses.count(status),
        Err(failure) => {
            cell.responses.count(0);
            cell.failures.count(failure as usize);
        }
    }
}
