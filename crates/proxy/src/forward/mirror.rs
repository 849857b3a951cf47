//! Copies requests for another upstream. A copy is a task of its own: no client waits for it, and nothing that becomes of
//! it changes a response.
//!
//! A body is copied as it passes, and its copy is sent once it is whole.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http1::Framing;
use telemetry::{MirrorCell, Skip};
use tokio::sync::oneshot::Receiver;

use crate::body::tee::{Copied, Tee};
use crate::context::exchange::{Exchange, ExchangeContext, Purpose, RoutedRequest};
use crate::context::exchange_slot::Request;
use crate::context::plan::{Mirror, MirrorPlace};
use crate::context::snapshot::Snapshot;
use crate::context::vouched::Vouched;
use crate::context::worker::Worker;
use crate::forward;
use crate::forward::subrequest::{self, Subrequest};

/// Copies a request that is let in, if it is its turn.
#[cold]
#[inline(never)]
pub(crate) fn mirror(
    ctx: &ExchangeContext<'_>,
    mirror: &Arc<Mirror>,
    routed: &RoutedRequest,
    request: &mut Request,
) {
    if !mirror.is_next() {
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

/// The counters of a route's copies, if they are kept.
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
    /// The body, which is still on its way.
    body: Option<Receiver<Copied>>,
    _place: MirrorPlace,
}

fn begin(
    ctx: &ExchangeContext<'_>,
    mirror: &Arc<Mirror>,
    routed: &RoutedRequest,
    request: &mut Request,
) -> Result<Copy, Skip> {
    // A tunnel has two ends that talk.
    if routed.wants_upgrade {
        return Err(Skip::Upgrade);
    }
    if matches!(routed.framing, Framing::Length(length) if length > mirror.body_bytes_max) {
        return Err(Skip::BodyTooLarge);
    }
    let place = mirror.place().filter(|_| !ctx.worker.is_short_of_memory()).ok_or(Skip::TooMany)?;
    let body = (routed.framing != Framing::None).then(|| {
        // What a configuration allows fits.
        let (tee, body) = Tee::new(mirror.body_bytes_max as usize, routed.framing == Framing::Chunked);
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
    /// Sends the copy, once its body is whole.
    async fn run(self) {
        let Self { worker, snapshot, route, mut subrequest, body, _place } = self;
        if let Some(body) = body {
            match body.await {
                Ok(Copied::Whole(body)) => subrequest.set_body(body),
                Ok(Copied::TooLarge) => return skipped(&worker, &snapshot, route, Skip::BodyTooLarge),
                // The client has gone, or its request was refused.
                Err(_) => return skipped(&worker, &snapshot, route, Skip::Incomplete),
            }
        }
        let cell = cell(&worker, &snapshot, route);
        subrequest.run(async |exchange| ask(exchange, cell).await).await;
    }
}

/// Asks a server, and throws away what it says.
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
