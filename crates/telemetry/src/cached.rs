//! Metrics of the cache for Prometheus: its work for each route, misses by reason, and its content.

use crate::counters::{CAUSES_MAX, Causes, Counter};
use crate::directory::Totals;
use crate::series::CacheCell;
use crate::text::{MetricsText, Type};

/// The state of the cache, and the words for its reasons.
pub struct CacheState<'e> {
    /// The words for the reasons of misses, by index.
    pub misses: &'e [&'e str],
    /// The words for the reasons why a response was not stored, by index.
    pub refusals: &'e [&'e str],
    pub memory_bytes: u64,
    pub stored_bytes: u64,
    /// The memory of bodies that are still arriving.
    pub filling_bytes: u64,
    /// Keys with at least one stored response.
    pub keys: u64,
    /// Objects evicted to make room.
    pub evictions: u64,
    /// Objects evicted in favour of other variants of the same resource.
    pub variant_evictions: u64,
    pub purges: u64,
    /// The state of the disk behind the memory cache, if there is one.
    pub disk: Option<DiskState>,
}

pub struct DiskState {
    /// Whether the store is read and written.
    pub is_on: bool,
    /// The size limit.
    pub size_bytes: u64,
    /// The size of the stored records.
    pub bytes: u64,
    /// Stored responses.
    pub records: u64,
    /// Records written.
    pub written: u64,
    /// Responses read.
    pub read: u64,
    /// Reads and writes dropped because the disk could not keep up.
    pub dropped: u64,
    /// Damaged records and segments.
    pub damaged: u64,
}

impl CacheState<'_> {
    pub(crate) fn write(&self, totals: &Totals, text: &mut MetricsText) {
        for (name, help, of) in COUNTERS {
            let mut family = text.family(name, Type::Counter, help);
            for (route, cell) in routes(totals) {
                family.sample(&[("route", route)], of(cell).value());
            }
        }
        let help = "Requests that the cache of a route could not answer, by reason.";
        self.reasons(text, ("vanward_cache_misses", help), totals, self.misses, |cell| &cell.misses);
        let help = "Responses that the cache of a route did not store, by reason.";
        self.reasons(text, ("vanward_cache_refusals", help), totals, self.refusals, |cell| &cell.refusals);
        let help = "Maximum memory of the cache.";
        text.family("vanward_cache_limit_bytes", Type::Gauge, help).sample(&[], self.memory_bytes);
        let help =
            "Memory that the cache uses, for stored responses and for responses that are being fetched.";
        let mut family = text.family("vanward_cache_bytes", Type::Gauge, help);
        for (state, bytes) in [("stored", self.stored_bytes), ("filling", self.filling_bytes)] {
            family.sample(&[("state", state)], bytes);
        }
        let help = "Keys with a stored response.";
        text.family("vanward_cache_keys", Type::Gauge, help).sample(&[], self.keys);
        let help = "Responses that were evicted for others.";
        text.family("vanward_cache_evictions", Type::Counter, help).sample(&[], self.evictions);
        let help = "Variants that were evicted for others of the same URL, which share half of a shard.";
        text.family("vanward_cache_variant_evictions", Type::Counter, help)
            .sample(&[], self.variant_evictions);
        let help = "Purges of the cache.";
        text.family("vanward_cache_purges", Type::Counter, help).sample(&[], self.purges);
        if let Some(disk) = &self.disk {
            disk.write(text);
        }
    }

    fn reasons(
        &self,
        text: &mut MetricsText,
        (name, help): (&str, &str),
        totals: &Totals,
        words: &[&str],
        of: fn(&CacheCell) -> &Causes,
    ) {
        debug_assert!(words.len() <= CAUSES_MAX);
        let mut family = text.family(name, Type::Counter, help);
        for (route, cell) in routes(totals) {
            let counts = words.iter().zip(of(cell).values());
            for (reason, count) in counts.filter(|(_, count)| *count > 0) {
                family.sample(&[("route", route), ("reason", reason)], count);
            }
        }
    }
}

impl DiskState {
    fn write(&self, text: &mut MetricsText) {
        let help = "Whether the disk of the cache is read and written.";
        text.family("vanward_cache_disk_on", Type::Gauge, help).sample(&[], u64::from(self.is_on));
        let help = "Maximum space of the cache on its disk.";
        text.family("vanward_cache_disk_limit_bytes", Type::Gauge, help).sample(&[], self.size_bytes);
        let help = "Space that responses use on the disk of the cache.";
        text.family("vanward_cache_disk_bytes", Type::Gauge, help).sample(&[], self.bytes);
        let help = "Responses on the disk of the cache.";
        text.family("vanward_cache_disk_responses", Type::Gauge, help).sample(&[], self.records);
        for (name, help, count) in [
            ("written", "Records that were written to the disk of the cache.", self.written),
            ("read", "Records that were read from the disk of the cache.", self.read),
            (
                "dropped",
                "Records that were dropped because the disk of the cache was too slow.",
                self.dropped,
            ),
            ("damaged", "Records on the disk of the cache that were damaged.", self.damaged),
        ] {
            let name = format!("vanward_cache_disk_records_{name}");
            text.family(&name, Type::Counter, help).sample(&[], count);
        }
    }
}

/// A family, its help text, and its counter.
type Row = (&'static str, &'static str, fn(&CacheCell) -> &Counter);

const COUNTERS: [Row; 5] = [
    ("vanward_cache_hits", "Requests answered with a stored response.", |cell| &cell.hits),
    ("vanward_cache_stale", "Requests answered with a stale response.", |cell| &cell.stale),
    ("vanward_cache_waits", "Requests that waited for the response to an identical request.", |cell| {
        &cell.waits
    }),
    ("vanward_cache_stored", "Responses that were stored or revalidated.", |cell| &cell.stored),
    ("vanward_cache_sent_bytes", "Bytes of bodies that were sent from the store.", |cell| &cell.sent_bytes),
];

fn routes(totals: &Totals) -> impl Iterator<Item = (&str, &CacheCell)> {
    totals.routes.iter().filter_map(|(route, cell)| Some((&**route, cell.cache.look()?)))
}
