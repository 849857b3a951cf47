//! One request to another instance: an attempt as with a server, but without a second one, and with less patience.

use super::{Attempt, Reply, answered};
use crate::body::upload;
use crate::context::exchange::{Exchange, Purpose, RoutedRequest};
use crate::context::failure::Failure;
use crate::upstream::retry::Progress;
use transport::deadline::Ticks;

/// One attempt with another instance, for what it owns. It may be silent for so long; once it says that it asks the
/// upstream itself, it has as long as that.
pub(crate) async fn to_peer(
    exchange: &mut Exchange<'_, '_>,
    routed: &RoutedRequest,
    server: usize,
    patience: Ticks,
) -> Result<Reply, Failure> {
    let ctx = exchange.ctx;
    let upstream = &ctx.snapshot.upstreams[routed.upstream];
    let Some(picked) = upstream.begin(server, false, ctx.worker.coarse_time()) else {
        return Err(Failure::UpstreamFull);
    };
    upload::begin(ctx, routed, &mut exchange.memory.request, false);
    exchange.state.record.upstream = Some(routed.upstream);
    exchange.state.record.attempt_began(routed.upstream, server, picked.since);
    let attempt =
        Attempt { ctx, routed, upstream, index: server, may_reuse: true, reads_calls: false, patience };
    let mut progress = Progress::default();
    match attempt.exchange(exchange.memory, exchange.state, &mut progress).await {
        Ok(mut reply) => {
            let (latency, now) = answered(ctx.worker, &picked, &reply.upload, progress);
            // What it says of the upstream is no failure of its own.
            exchange.state.record.server_changed(upstream.answered(&picked, 200, latency, now));
            exchange.state.record.is_answered = true;
            reply.under_way = Some(picked.into_under_way());
            Ok(reply)
        }
        Err(failure) => {
            attempt.failed(&picked, failure, progress, (exchange.memory, exchange.state));
            Err(failure)
        }
    }
}

/// Waits for a connection; for one to another instance no longer than that may be silent.
pub(super) async fn in_time(
    attempt: &Attempt<'_>,
    connect: impl Future<Output = Result<Reply, Failure>>,
) -> Result<Reply, Failure> {
    if attempt.routed.purpose != Purpose::Peer {
        return connect.await;
    }
    let deadline = attempt.ctx.worker.deadlines.deadline();
    let connected = deadline.within(attempt.patience, connect).await;
    connected.unwrap_or(Err(Failure::UpstreamConnectTimeout))
}
