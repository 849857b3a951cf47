//! The state of the store, for metrics and the admin API.

use ::cache::{HitRates, StoreTally};
use api::status::{CacheStatus, DiskStatus, HitRatesStatus};
use disk::{DiskStanding, DiskTally};
use telemetry::{CacheState, DiskState};

use super::Cache;

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
