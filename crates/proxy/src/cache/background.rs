//! Background revalidation: after a stale response was served, a fetch without a client refreshes it (RFC 5861 §3).

use std::rc::Rc;
use std::sync::Arc;

use ::cache::{Lead, Object};

use super::{CacheRequest, fetch};
use crate::context::exchange_slot::CurrentRequest;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::worker::Worker;
use crate::exchange::Exchange;
use crate::subrequest::Subrequest;

/// The limit of such fetches per worker. Beyond it, a response stays stale until the next request for it.
const FETCHES_MAX: u64 = 256;

/// Revalidates a stored response in the background, unless a fetch for it is under way. Called after a stale hit.
pub(super) fn revalidate(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    ask: &CacheRequest<'_>,
    object: &Arc<Object>,
) {
    let worker = ctx.worker;
    if worker.counters.cache_fetches_active.value() >= FETCHES_MAX {
        return;
    }
    let now_seconds = ask.now_ms / 1000;
    let lead = ask.cache.store.validate(object, |vary| ask.variant(vary, request), now_seconds);
    let Some(lead) = lead else { return };
    // The guard frees its place however the fetch ends.
    let counted = BackgroundFetch::new(worker);
    let mut subrequest = Subrequest::copy_of(ctx, routed, request);
    subrequest.is_for("revalidation");
    // A separate task: the client has its response, and may leave before the fetch ends.
    tokio::task::spawn_local(run(subrequest, lead, Arc::clone(object), counted));
}

/// Fetches the response. The fetch itself counts its outcome; the next stale hit starts another one.
async fn run(subrequest: Subrequest, lead: Lead, object: Arc<Object>, counted: BackgroundFetch) {
    let fetch = async |exchange: &mut Exchange<'_, '_>| {
        let Exchange { ctx, routed, .. } = *exchange;
        let Some(ask) = CacheRequest::new(ctx, routed, &exchange.memory.request) else { return };
        // Another instance's response is not revalidated here, so there is no owner to ask.
        drop(fetch::fetch(exchange, &ask, lead, Some(&object), None).await);
    };
    subrequest.run(fetch).await;
    drop(counted);
}

/// Counts a fetch until it is dropped.
struct BackgroundFetch(Rc<Worker>);

impl BackgroundFetch {
    fn new(worker: &Rc<Worker>) -> Self {
        worker.counters.cache_fetches.increment();
        worker.counters.cache_fetches_active.increment();
        Self(Rc::clone(worker))
    }
}

impl Drop for BackgroundFetch {
    fn drop(&mut self) {
        self.0.counters.cache_fetches_active.decrement();
    }
}
