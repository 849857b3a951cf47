//! Sends a request to another instance: an attempt as with a server, but only one, and with a shorter time-out.

use super::{Attempt, Reply, answered};
use crate::context::routed::{Purpose, RoutedRequest};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::forward::retry::AttemptProgress;
use crate::forward::upload;
use transport::deadline::Ticks;

/// Asks the instance that owns a key, once. It may be silent for `patience`. After its 102 it has as long as the
/// upstream.
pub(crate) async fn to_peer(
    exchange: &mut Exchange<'_, '_>,
    routed: &RoutedRequest,
    server: usize,
    patience: Ticks,
) -> Result<Reply, Failure> {
    let ctx = exchange.ctx;
    let upstream = &ctx.snapshot.upstreams[routed.upstream.get()];
    let Some(picked) = upstream.begin(server, false, ctx.worker.coarse_time()) else {
        return Err(Failure::UpstreamFull);
    };
    upload::begin(ctx, routed, &mut exchange.memory.request, false);
    exchange.state.record.upstream = Some(routed.upstream.get());
    exchange.state.record.attempt_began(routed.upstream.get(), server, picked.since);
    let began = ctx.worker.deadlines.now();
    let attempt = Attempt {
        ctx,
        routed,
        upstream,
        index: server,
        may_reuse: true,
        reads_calls: false,
        patience,
        began,
    };
    let mut progress = AttemptProgress::default();
    match attempt.run(exchange.memory, exchange.state, &mut progress).await {
        Ok(mut reply) => {
            let (latency, now) = answered(ctx.worker, &picked, &reply.upload, progress);
            // The status is about the upstream, and does not count as a failure of the instance.
            exchange.state.record.server_changed(upstream.answered(&picked, 200, latency, now));
            exchange.state.record.is_answered = true;
            reply.under_way = Some(picked.into_under_way());
            Ok(reply)
        }
        Err(failure) => {
            // Not retried: the upstream is asked instead.
            attempt.failed(&picked, failure, progress, exchange.memory, exchange.state);
            Err(failure)
        }
    }
}

/// Waits for a connection; to another instance, at most `patience`.
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
