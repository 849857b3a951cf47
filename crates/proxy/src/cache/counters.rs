//! Counters of the cache for each route, and its status.

use std::collections::BTreeMap;

use ::cache::{Forward, HitRates, REFUSALS, Refusal, StoreTally};
use disk::{DiskStanding, DiskTally};
use telemetry::{CacheCell, CacheState, DiskState};

use super::Cache;
use crate::context::exchange::{Cached, ExchangeContext, RoutedRequest};
use api::status::{CacheStatus, DiskStatus, HitRatesStatus, RouteCacheStatus};

/// The cache counters of a request's route, if they are kept.
#[inline]
pub(super) fn cell<'a>(ctx: &ExchangeContext<'a>, routed: &RoutedRequest) -> Option<&'a CacheCell> {
    let places = ctx.snapshot.plan.places.as_deref()?;
    Some(ctx.worker.series.route(places.route(Some(routed.route))).cache.cell())
}

/// Counts a hit.
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
pub(super) fn refused(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, refusal: Refusal) {
    if let Some(cell) = cell(ctx, routed) {
        cell.refusals.count(refusal as usize);
    }
}

/// The words for the reasons in `CacheCell::misses`, by index.
pub fn miss_words() -> [&'static str; Forward::ALL.len()] {
    Forward::ALL.map(Forward::word)
}

/// The words for the reasons in `CacheCell::refusals`, by index.
pub fn refusal_words() -> Vec<&'static str> {
    REFUSALS.iter().map(|row| row.word).collect()
}

/// The status of a route's cache.
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

fn disk_told(counters: DiskTally) -> DiskStatus {
    let DiskTally { state, records, bytes, size_bytes, written, read, dropped, damaged, foreign } = counters;
    DiskStatus {
        is_on: state == DiskStanding::On,
        state: state.to_string(),
        size_bytes,
        bytes,
        records,
        written,
        read,
        dropped,
        damaged,
        foreign_files: foreign,
    }
}

impl Cache {
    /// The state of the cache for metrics.
    pub fn state<'e>(&self, misses: &'e [&'e str], refusals: &'e [&'e str]) -> CacheState<'e> {
        let StoreTally { keys, bytes, filling_bytes, evicted, displaced, purges, .. } = self.store.tally();
        CacheState {
            misses,
            refusals,
            memory_bytes: self.store.memory_bytes(),
            stored_bytes: bytes,
            filling_bytes,
            keys,
            evictions: evicted,
            variant_evictions: displaced,
            purges,
            disk: self.second_tier.counters().map(|counters| DiskState {
                is_on: counters.state == DiskStanding::On,
                size_bytes: counters.size_bytes,
                bytes: counters.bytes,
                records: counters.records,
                written: counters.written,
                read: counters.read,
                dropped: counters.dropped,
                damaged: counters.damaged,
            }),
        }
    }

    /// The state of the cache for the admin API's status.
    pub fn report(&self) -> CacheStatus {
        let StoreTally { keys, bytes, filling_bytes, stored, evicted, evicted_bytes, purges, .. } =
            self.store.tally();
        let report =
            |HitRates { half, same, double, quadruple }| HitRatesStatus { half, same, double, quadruple };
        CacheStatus {
            memory_bytes: self.store.memory_bytes(),
            stored_bytes: bytes,
            filling_bytes,
            keys,
            stored,
            evicted,
            evicted_bytes,
            purges,
            disk: self.second_tier.counters().map(disk_told),
            hit_rates: self.store.hit_rates().map(report),
        }
    }
}
