//! What an unsafe request has made invalid (RFC 9111 §4.4): here, in the next process, and in other instances, each of
//! which may have stored it.

use ::cache::{Address, Force, Named, Uri, also_invalid, invalidates, keys_of, purge_uri};
use tokio::sync::oneshot;

use super::explain::unix_ms;
use super::{Cache, peers, successor, uri};
use crate::context::exchange::{ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::{Memory, Request};
use crate::context::plan::Plan;
use transport::cold::cold;
use transport::deadline::Ticks;

/// A client waits for no longer until other instances have done it.
const PEERS_LIMIT: Ticks = Ticks(10);

/// Who has been told, and has not yet answered.
pub(crate) struct Told {
    successor: Option<oneshot::Receiver<()>>,
    peers: Vec<oneshot::Receiver<()>>,
}

impl Told {
    /// Waits until all have done it, for a limited time.
    pub(crate) async fn known(self, ctx: &ExchangeContext<'_>) {
        if let Some(known) = self.successor {
            cold(|| successor::known(ctx, known)).await;
        }
        let deadline = ctx.worker.deadlines.deadline();
        let all = async {
            for known in self.peers {
                // It is dropped when it is answered, or lost.
                let _ = known.await;
            }
        };
        let _ = deadline.within(PEERS_LIMIT, all).await;
    }
}

/// Invalidates stored responses for the target, and for URIs of the same origin that the response names, on all routes.
#[cold]
pub(crate) fn invalidate(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, memory: &Memory) -> Option<Told> {
    let Memory { request, response, .. } = memory;
    let plan = &ctx.snapshot.plan;
    let cache = plan.cache.as_ref().filter(|_| !plan.spaces.is_empty())?;
    if !invalidates(routed.method, response.head.start.status) {
        return None;
    }
    let target = uri(ctx, routed, request);
    let mut paths = vec![routed.target.path_and_query.of(request.head_bytes()).to_vec()];
    paths.extend(also_invalid(&response.head, response.buffer.filled(), &target));
    let named = here(plan, cache, &target, &paths);
    cache.others.tell_invalid(&named);
    let successor = if named.is_empty() { None } else { cache.successor.tell(named, Force::Hard) };
    let peers = peers::invalidate(ctx, routed, request, &paths);
    (successor.is_some() || !peers.is_empty()).then_some(Told { successor, peers })
}

/// Does what another instance has found invalid. The receiver, if any, tells when the next process has done the same.
pub(crate) fn obey(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &Request,
) -> Option<oneshot::Receiver<()>> {
    let plan = &ctx.snapshot.plan;
    let cache = plan.cache.as_ref()?;
    let path = routed.target.path_and_query.of(request.head_bytes()).to_vec();
    let named = here(plan, cache, &uri(ctx, routed, request), &[path]);
    if named.is_empty() { None } else { cache.successor.tell(named, Force::Hard) }
}

/// Invalidates what is stored here. Returns what others are to be told, if there are any.
fn here(plan: &Plan, cache: &Cache, target: &Uri<'_>, paths: &[Vec<u8>]) -> Vec<Named> {
    for path_and_query in paths {
        let there = Uri::new(target.is_https, target.authority, path_and_query);
        if let Some(hot) = cache.hot.get() {
            // The owner may still have it.
            keys_of(&there, &plan.spaces).for_each(|key| hot.hold_off_key(key, unix_ms() / 1000));
        }
        purge_uri(&there, &cache.store, cache.secret, &plan.spaces);
    }
    let url = |path: &Vec<u8>| Named::Url(Address::of(Some(target.is_https), target.authority, path));
    let are_others = cache.successor.is_there() || cache.others.are_there();
    if are_others { paths.iter().map(url).collect() } else { Vec::new() }
}
