//! Background revalidation: after a stale response was served, a fetch without a client refreshes it (RFC 5861 §3).

use std::rc::Rc;
use std::sync::Arc;

use ::cache::{Joined, Lead, Object};

use super::{Ask, fetch};
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::Request;
use crate::context::worker::Worker;
use crate::forward::subrequest::Subrequest;

/// As many at once for each worker; what is beyond stays stale until the next request for it.
const FETCHES_MAX: u64 = 256;

/// Revalidates a stored response in the background, unless that is under way already.
pub(super) fn revalidate(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &Request,
    ask: &Ask<'_>,
    object: &Arc<Object>,
) {
    let worker = ctx.worker;
    if worker.counters.cache_fetches_active.value() >= FETCHES_MAX {
        return;
    }
    let Joined::Lead(lead) = ask.join(request, Some(object)) else { return };
    let counted = Counted::new(worker);
    let mut subrequest = Subrequest::copy_of(ctx, routed, request);
    subrequest.is_for("revalidation");
    tokio::task::spawn_local(run(subrequest, lead, Arc::clone(object), counted));
}

/// Fetches. Whether it came to anything is counted on its way; the next stale answer begins another one.
async fn run(subrequest: Subrequest, lead: Lead, object: Arc<Object>, counted: Counted) {
    let fetch = async |exchange: &mut Exchange<'_, '_>| {
        let Exchange { ctx, routed, .. } = *exchange;
        let Some(ask) = Ask::of(ctx, routed, &exchange.memory.request) else { return };
        // What another instance owns is not revalidated here.
        drop(fetch::fetch(exchange, &ask, lead, (Some(&object), None)).await);
    };
    subrequest.run(fetch).await;
    drop(counted);
}

/// A fetch, counted for as long as it lives.
struct Counted(Rc<Worker>);

impl Counted {
    fn new(worker: &Rc<Worker>) -> Self {
        worker.counters.cache_fetches.increment();
        worker.counters.cache_fetches_active.increment();
        Self(Rc::clone(worker))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.counters.cache_fetches_active.decrement();
    }
}
