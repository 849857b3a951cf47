//! Invalidates stored responses after an unsafe request (RFC 9111 §4.4): here, in the next process, and in other
//! instances, each of which may have stored them.

use ::cache::{Force, PurgeTarget, Uri, UrlParts, also_invalid, invalidates, keys_of, purge_uri};
use tokio::sync::oneshot;

use super::{Cache, peers, told, uri};
use crate::context::exchange_slot::{CurrentRequest, SlotMemory};
use crate::context::plan::Plan;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::store::unix_ms;
use transport::cold::cold;
use transport::deadline::Ticks;

/// Maximum time that a client waits for other instances.
const PEERS_LIMIT: Ticks = Ticks(10);

/// Invalidations elsewhere that were not confirmed yet.
pub(crate) struct InvalidationWait {
    successor: Option<oneshot::Receiver<()>>,
    peers: Vec<oneshot::Receiver<()>>,
}

impl InvalidationWait {
    /// Waits until all have confirmed, for a limited time.
    pub(crate) async fn known(self, ctx: &ExchangeContext<'_>) {
        if let Some(known) = self.successor {
            cold(|| told::by_successor(ctx, known)).await;
        }
        let deadline = ctx.worker.deadlines.deadline();
        let all = async {
            for known in self.peers {
                // The channel is dropped when the instance has answered, or is lost.
                let _ = known.await;
            }
        };
        let _ = deadline.within(PEERS_LIMIT, all).await;
    }
}

/// Invalidates stored responses for the target, and for URIs of the same origin that the response names, on all routes.
/// Called after a successful unsafe request.
#[cold]
pub(crate) fn invalidate(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    memory: &SlotMemory,
) -> Option<InvalidationWait> {
    let SlotMemory { request, response, .. } = memory;
    let plan = &ctx.snapshot.plan;
    let cache = plan.cache.as_ref().filter(|_| !plan.spaces.is_empty())?;
    // RFC 9111 §4.4: a failed request has changed nothing.
    if !invalidates(routed.method, response.head.start.status) {
        return None;
    }
    let target = uri(ctx, routed, request);
    let mut paths = vec![routed.target.path_and_query.for_bytes(request.head_bytes()).to_vec()];
    paths.extend(also_invalid(&response.head, response.buffer.filled(), &target));
    let named = here(plan, cache, &target, &paths);
    cache.others.tell_invalid(&named);
    let successor = if named.is_empty() { None } else { cache.successor.tell(named, Force::Hard) };
    let peers = peers::invalidate(ctx, routed, request, &paths);
    (successor.is_some() || !peers.is_empty()).then_some(InvalidationWait { successor, peers })
}

/// Applies an invalidation from another instance. The receiver, if any, reports when the next process has done the
/// same.
pub(crate) fn obey(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
) -> Option<oneshot::Receiver<()>> {
    let plan = &ctx.snapshot.plan;
    let cache = plan.cache.as_ref()?;
    let path = routed.target.path_and_query.for_bytes(request.head_bytes()).to_vec();
    let named = here(plan, cache, &uri(ctx, routed, request), &[path]);
    if named.is_empty() { None } else { cache.successor.tell(named, Force::Hard) }
}

/// Invalidates stored responses here. Returns the names for the next process and other instances.
fn here(plan: &Plan, cache: &Cache, target: &Uri<'_>, paths: &[Vec<u8>]) -> Vec<PurgeTarget> {
    for path_and_query in paths {
        let there = Uri::new(target.is_https, target.authority, path_and_query);
        if let Some(hot) = cache.hot.get() {
            // The owner may still have it, so it is not kept here for a while.
            keys_of(&there, &plan.spaces).for_each(|key| hot.hold_off_key(key, unix_ms() / 1000));
        }
        purge_uri(&there, &cache.store, cache.secret, &plan.spaces);
    }
    let url = |path: &Vec<u8>| PurgeTarget::Url(UrlParts::new(Some(target.is_https), target.authority, path));
    // The names are only needed, and allocated, for another process or instance.
    let are_others = cache.successor.is_there() || cache.others.are_there();
    if are_others { paths.iter().map(url).collect() } else { Vec::new() }
}
