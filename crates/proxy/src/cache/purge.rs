//! Purges: by operators through the admin API, and by clients of permitted networks with the method PURGE.
//!
//! A purge is a rule that applies to all look-ups from the moment it is made; the memory is freed later.

use std::sync::Arc;
use std::time::Duration;

use ::cache::{Address, Force, Named, Ordered, Rule, RulesFull, Space, Store, tags};
use http1::{Method, RequestHead};
use tokio::sync::oneshot;

use super::{Cache, explain, others, successor};
use crate::context::client::Next;
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::Request;
use crate::context::failure::Failure;
use crate::context::plan::Plan;
use crate::forward::answer;
use api::cache::{PurgeMatch, Purged};
use transport::cold::cold;

/// How long what was purged may take memory that nobody needs yet.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

impl Cache {
    /// Purges the named responses in all spaces, for all workers. The matches are counted by [`Purging::count`].
    ///
    /// # Errors
    /// If the maximum number of purge rules is reached; some of the purges may be done then.
    pub fn purge(&self, spaces: &[Space], named: &[Named], force: Force) -> Result<Purging, RulesFull> {
        let now_ms = explain::unix_ms();
        let disk_records = self.second_tier.counters().map_or(0, |counters| counters.records);
        let purge =
            |each: &Named| Ok((each.clone(), each.purge(&self.store, self.secret, spaces, force, now_ms)?));
        let ordered = named.iter().map(purge).collect::<Result<_, RulesFull>>()?;
        if let Some(hot) = self.hot.get() {
            // Its owner may not have done so yet. What it has sent tells no tags.
            for key in hot.hold_off(now_ms / 1000) {
                self.store.purge_key(key, Force::Hard);
            }
        }
        Ok(Purging { store: Arc::clone(&self.store), ordered, disk_records })
    }

    /// Passes a purge on to the next process, if there is one. The receiver tells when that has done it.
    pub fn hand_on(&self, named: Vec<Named>, force: Force) -> Option<oneshot::Receiver<()>> {
        self.successor.tell(named, force)
    }
}

/// Purges that are in force, but whose matches are not counted yet.
pub struct Purging {
    store: Arc<Store>,
    ordered: Vec<(Named, Ordered)>,
    /// Responses that the disk had before.
    disk_records: u64,
}

impl Purging {
    /// Whether all that is stored has to be looked at to say what they met.
    fn has_rules(&self) -> bool {
        self.ordered.iter().any(|(_, ordered)| !ordered.rules.is_empty())
    }

    /// Counts the matches: usable responses in memory; on the disk, only purges of a URL or of everything are counted.
    /// Other matches on the disk are not known before they are read.
    pub fn count(self) -> Purged {
        let rules: Vec<Rule> = self.ordered.iter().flat_map(|(_, ordered)| ordered.rules.clone()).collect();
        let met = self.store.count(&rules);
        let mut by_rule = met.by_rule.into_iter();
        let mut purged = Purged { named: self.ordered.len(), responses: met.responses, ..Purged::default() };
        for (named, Ordered { responses, rules }) in self.ordered {
            purged.responses += responses;
            let mut count = responses + by_rule.by_ref().take(rules.len()).sum::<usize>();
            if named == Named::All {
                let on_disk = usize::try_from(self.disk_records).unwrap_or(usize::MAX);
                (count, purged.responses) = (count.max(on_disk), purged.responses.max(on_disk));
            } else if !rules.is_empty() {
                purged.is_more_on_disk |= self.disk_records > 0;
            }
            purged.met.push(PurgeMatch { what: named.to_string(), responses: count });
        }
        purged
    }
}

/// Whether a request asks for a purge, and is not for a server.
#[inline]
pub(crate) fn is_purge(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &Request) -> bool {
    routed.method == Method::Other && is_understood(ctx, request)
}

#[cold]
fn is_understood(ctx: &ExchangeContext<'_>, request: &Request) -> bool {
    let cache = ctx.snapshot.plan.config.cache.as_ref();
    cache.is_some_and(|cache| !cache.purge_from.is_empty())
        && request.head.start.method_span.of(request.head_bytes()) == b"PURGE"
}

/// Handles a PURGE request: purges the tags in its fields, or else its URL.
pub(crate) async fn purge(exchange: &mut Exchange<'_, '_>) -> Result<Next, Failure> {
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
    let elsewhere = cache.publish(&named, force);
    if let Some(known) = cache.hand_on(named, force) {
        cold(|| successor::known(ctx, known)).await;
    }
    if let Some(elsewhere) = elsewhere {
        purged.elsewhere = Some(cold(|| others::known(ctx, elsewhere)).await);
    }
    let body = serde_json::to_string(&purged).unwrap_or_default() + "\n";
    let out = &mut exchange.memory.response.out;
    answer::begin(out, 200);
    answer::push_content(out, 200, "application/json", body.as_bytes());
    answer::own(exchange, (200, body.as_bytes())).await
}

/// On a thread of its own: it looks at all that is stored, and this one serves others.
async fn counted_elsewhere(purging: Purging) -> Purged {
    let (tell, report) = oneshot::channel();
    let named = purging.ordered.len();
    let count = move || drop(tell.send(purging.count()));
    let is_counting = std::thread::Builder::new().name("purge".to_owned()).spawn(count).is_ok();
    let counted = if is_counting { report.await.ok() } else { None };
    // Where no thread is to be had, what was purged is so all the same.
    counted.unwrap_or_else(|| Purged { named, ..Purged::default() })
}

/// What a request names; `None` where that is a pattern that is too long.
fn named(routed: &RoutedRequest, head: &RequestHead, bytes: &[u8]) -> Option<(Vec<Named>, Force)> {
    let is_soft = |field: &http1::Field| {
        field.name.of(bytes).eq_ignore_ascii_case(b"fastly-soft-purge") && field.value.of(bytes) == b"1"
    };
    let force = if head.fields.iter().any(is_soft) { Force::Soft } else { Force::Hard };
    let mut named: Vec<Named> = tags(head, bytes).map(|tag| Named::Tag(tag.into())).collect();
    if named.is_empty() {
        let target = &routed.target;
        // Who purges mostly comes another way than clients do: by which scheme says nothing.
        let address = Address::of(None, target.authority.of(bytes), target.path_and_query.of(bytes));
        named.push(Named::located(address)?);
    }
    Some((named, force))
}

/// Frees the memory of purged responses, until the proxy ends.
///
/// `plan` returns the plan in force, or `None` once the proxy has ended.
pub async fn sweep(plan: impl Fn() -> Option<Arc<Plan>>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(plan) = plan() else { return };
        let Some(Cache { store, second_tier, .. }) = plan.cache.clone() else { continue };
        drop(plan);
        if let Some(tier) = second_tier.tier() {
            tier.tell_failure();
        }
        if store.is_sweep_due() {
            // It looks at all that is stored.
            let _ = tokio::task::spawn_blocking(move || store.sweep()).await;
        }
    }
}
