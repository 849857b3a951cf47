//! Purges: by operators through the admin API, and by clients of permitted networks with the method PURGE.
//!
//! A purge is a rule that applies to all look-ups from the moment it is made; the memory is freed later.

use std::sync::Arc;
use std::time::Duration;

use ::cache::{Force, PurgeTarget, RulesFull, UrlParts, tags};
use http1::{Method, RequestHead};
use tokio::sync::oneshot;

use super::told;
use crate::answer;
use crate::context::client::AfterExchange;
use crate::context::exchange_slot::CurrentRequest;
use crate::context::plan::Plan;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::store::{Cache, Purging};
use api::cache::Purged;
use transport::cold::cold;

/// Interval at which memory of purged responses is freed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Whether a request is a PURGE for the cache, rather than for a server.
#[inline]
pub(crate) fn is_purge(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &CurrentRequest) -> bool {
    // Only unknown methods are compared, so other requests pay one branch.
    routed.method == Method::Other && is_understood(ctx, request)
}

#[cold]
fn is_understood(ctx: &ExchangeContext<'_>, request: &CurrentRequest) -> bool {
    let cache = ctx.snapshot.plan.config.cache.as_ref();
    cache.is_some_and(|cache| !cache.purge_from.is_empty())
        && request.head.start.method_span.for_bytes(request.head_bytes()) == b"PURGE"
}

/// Handles a PURGE request: purges the tags in its fields, or else its URL. Called before policies and look-up.
pub(crate) async fn purge(exchange: &mut Exchange<'_, '_>) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let plan = &ctx.snapshot.plan;
    let Some((cache, settings)) = plan.cache.as_ref().zip(plan.config.cache.as_ref()) else {
        return Err(Failure::Forbidden);
    };
    if !settings.purge_from.iter().any(|network| network.contains(&routed.client)) {
        return Err(Failure::Forbidden);
    }
    let named = named(routed, &exchange.memory.request.head, exchange.memory.request.head_bytes());
    let (named, force) = named.ok_or(Failure::BadRequest)?;
    let purging = cache.purge(&plan.spaces, &named, force).map_err(|RulesFull| Failure::PurgesFull)?;
    let mut purged =
        if purging.has_rules() { cold(|| counted_elsewhere(purging)).await } else { purging.count() };
    // Published before the waits below, so that other instances purge meanwhile.
    let elsewhere = cache.publish(&named, force);
    if let Some(known) = cache.hand_on(named, force) {
        cold(|| told::by_successor(ctx, known)).await;
    }
    if let Some(elsewhere) = elsewhere {
        purged.elsewhere = Some(cold(|| told::by_others(ctx, elsewhere)).await);
    }
    let body = serde_json::to_string(&purged).unwrap_or_default() + "\n";
    let out = &mut exchange.memory.response.out;
    answer::begin(out, 200);
    answer::push_content(out, 200, "application/json", body.as_bytes());
    answer::own(exchange, 200, body.as_bytes()).await
}

/// Counts purged responses on another thread, because it visits all stored responses.
async fn counted_elsewhere(purging: Purging) -> Purged {
    let (tell, report) = oneshot::channel();
    let named = purging.ordered.len();
    let count = move || drop(tell.send(purging.count()));
    let is_counting = std::thread::Builder::new().name("purge".to_owned()).spawn(count).is_ok();
    let counted = if is_counting { report.await.ok() } else { None };
    // If no thread can be started, the purge holds nevertheless, uncounted.
    counted.unwrap_or_else(|| Purged { named, ..Purged::default() })
}

/// Returns the tags or URL that a request names; `None` if a pattern is too long.
fn named(routed: &RoutedRequest, head: &RequestHead, bytes: &[u8]) -> Option<(Vec<PurgeTarget>, Force)> {
    let is_soft = |field: &http1::FieldLine| {
        field.name.for_bytes(bytes).eq_ignore_ascii_case(b"fastly-soft-purge")
            && field.value.for_bytes(bytes) == b"1"
    };
    let force = if head.fields.iter().any(is_soft) { Force::Soft } else { Force::Hard };
    let mut named: Vec<PurgeTarget> = tags(head, bytes).map(|tag| PurgeTarget::Tag(tag.into())).collect();
    if named.is_empty() {
        let target = &routed.target;
        // Purge requests often use another scheme than clients do, so the scheme is ignored.
        let address =
            UrlParts::new(None, target.authority.for_bytes(bytes), target.path_and_query.for_bytes(bytes));
        named.push(PurgeTarget::located(address)?);
    }
    Some((named, force))
}

/// Frees the memory of purged responses. Runs until the proxy ends.
///
/// `plan` returns the plan in force, or `None` once the proxy has ended.
pub async fn sweep(plan: impl Fn() -> Option<Arc<Plan>>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(plan) = plan() else { return };
        let Some(Cache { store, second_tier, .. }) = plan.cache.clone() else { continue };
        // A sweep takes time, and must not keep an old plan alive.
        drop(plan);
        if let Some(tier) = second_tier.tier() {
            tier.tell_failure();
        }
        if store.is_sweep_due() {
            // On another thread, because it visits all stored responses.
            let _ = tokio::task::spawn_blocking(move || store.sweep()).await;
        }
    }
}
