//! Cache counters and status of each route.

use std::collections::BTreeMap;

use ::cache::{Forward, NotStored, REFUSALS};
use telemetry::CacheCell;

use crate::context::routed::{Cached, ExchangeContext, RoutedRequest};
use api::status::RouteCacheStatus;

/// Returns the cache counters of a request's route, if metrics are wanted.
#[inline]
pub(super) fn cell<'a>(ctx: &ExchangeContext<'a>, routed: &RoutedRequest) -> Option<&'a CacheCell> {
    let places = ctx.snapshot.plan.places.as_deref()?;
    Some(ctx.worker.series.route(places.route(Some(routed.route))).cache.cell())
}

#[inline]
pub(super) fn hit(ctx: &ExchangeContext<'_>, routed: &RoutedRequest) {
    routed.cached.set(Cached::Hit);
    ctx.worker.counters.cache_hits.increment();
    if let Some(cell) = cell(ctx, routed) {
        cell.hits.increment();
    }
}

/// Counts a stale response that was served.
pub(super) fn stale(ctx: &ExchangeContext<'_>, routed: &RoutedRequest) {
    routed.cached.set(Cached::Stale);
    ctx.worker.counters.cache_stale.increment();
    if let Some(cell) = cell(ctx, routed) {
        cell.stale.increment();
    }
}

/// Counts a miss: the request goes to a server.
pub(super) fn miss(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, forward: Forward) {
    routed.cached.set(Cached::Forwarded(forward));
    ctx.worker.counters.cache_misses.increment();
    if let Some(cell) = cell(ctx, routed) {
        cell.misses.count(forward as usize);
    }
}

/// Counts a request that waits for another one's response.
pub(super) fn wait(ctx: &ExchangeContext<'_>, routed: &RoutedRequest) {
    ctx.worker.counters.cache_waits.increment();
    if let Some(cell) = cell(ctx, routed) {
        cell.waits.increment();
    }
}

/// Counts a response that is not stored, by its reason.
pub(super) fn refused(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, refusal: NotStored) {
    if let Some(cell) = cell(ctx, routed) {
        cell.refusals.count(refusal as usize);
    }
}

/// Returns the words for the reasons in `CacheCell::misses`, by index.
pub fn miss_words() -> [&'static str; Forward::ALL.len()] {
    Forward::ALL.map(Forward::word)
}

/// Returns the words for the reasons in `CacheCell::refusals`, by index.
pub fn refusal_words() -> Vec<&'static str> {
    REFUSALS.iter().map(|row| row.word).collect()
}

pub fn of_route(cell: &CacheCell) -> RouteCacheStatus {
    let named = |words: &[&str], counts: [u64; telemetry::CAUSES_MAX]| -> BTreeMap<String, u64> {
        let counts = words.iter().zip(counts).filter(|(_, count)| *count > 0);
        counts.map(|(word, count)| ((*word).to_owned(), count)).collect()
    };
    RouteCacheStatus {
        hits: cell.hits.value(),
        stale: cell.stale.value(),
        waits: cell.waits.value(),
        misses: named(&miss_words(), cell.misses.values()),
        stored: cell.stored.value(),
        not_stored: named(&refusal_words(), cell.refusals.values()),
        sent_bytes: cell.sent_bytes.value(),
    }
}
