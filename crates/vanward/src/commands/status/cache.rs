//! Cache part of `vanward status`: how full the cache is, the effect of more memory, and the results for each route.

use std::collections::BTreeMap;
use std::fmt::Write;

use api::status::{CacheStatus, DiskStatus, HitRatesStatus, RouteCacheStatus, RouteStatus};

use super::super::table::{Align, table};
use super::super::units::count;

pub(super) fn told(page: &mut String, cache: &CacheStatus, routes: &[RouteStatus]) {
    // Writing to a String does not fail.
    let _ = writeln!(
        page,
        "\ncache: {} of {} in use, {}; {} stored, {} evicted, {}",
        size(cache.stored_bytes + cache.filling_bytes),
        size(cache.memory_bytes),
        count(cache.keys, "key"),
        cache.stored,
        cache.evicted,
        count(cache.purges, "purge"),
    );
    if let Some(disk) = &cache.disk {
        told_of_disk(page, disk);
    }
    if let Some(HitRatesStatus { half, same, double, quadruple }) = cache.hit_rates {
        let [half, same, double, quadruple] = [half, same, double, quadruple].map(|share| share * 100.0);
        let _ = writeln!(
            page,
            "  hits, estimated: {half:.1}% with half the memory, {same:.1}% with this, {double:.1}% with twice as much, \
             {quadruple:.1}% with four times"
        );
    }
    let rows = routes.iter().filter_map(|route| Some(row(&route.route, route.cache.as_ref()?)));
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let columns = [
            ("ROUTE", Align::Left),
            ("HITS", Align::Right),
            ("STALE", Align::Right),
            ("WAITED", Align::Right),
            ("MISSES", Align::Right),
            ("STORED", Align::Right),
            ("", Align::Left),
        ];
        *page += &table(columns, &rows);
    }
}

fn told_of_disk(page: &mut String, disk: &DiskStatus) {
    let _ = writeln!(
        page,
        "  disk: {}; {} of {} in use, {}; {} written, {} read, {} dropped, {} damaged",
        disk.state,
        size(disk.bytes),
        size(disk.size_bytes),
        count(disk.records, "response"),
        disk.written,
        disk.read,
        disk.dropped,
        disk.damaged,
    );
}

fn row(route: &str, cache: &RouteCacheStatus) -> [String; 7] {
    let misses: u64 = cache.misses.values().sum();
    let notes = [("misses", &cache.misses), ("not stored", &cache.not_stored)];
    let notes = notes.iter().filter(|(_, counts)| !counts.is_empty());
    let notes: Vec<String> = notes.map(|(what, counts)| note(what, counts)).collect();
    [
        route.to_owned(),
        cache.hits.to_string(),
        cache.stale.to_string(),
        cache.waits.to_string(),
        misses.to_string(),
        cache.stored.to_string(),
        notes.join("; "),
    ]
}

fn note(what: &str, counts: &BTreeMap<String, u64>) -> String {
    let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{word} {count}")).collect();
    format!("{what}: {}", counts.join(", "))
}

fn size(bytes: u64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    format!("{:.1} MiB", bytes as f64 / MIB)
}

#[cfg(test)]
mod tests {
    use api::traffic::TrafficStatus;

    use super::*;

    #[test]
    fn columns_are_aligned_and_reasons_are_named() {
        let counts = |pairs: &[(&str, u64)]| {
            pairs.iter().map(|(word, count)| ((*word).to_owned(), *count)).collect::<BTreeMap<_, _>>()
        };
        let traffic = TrafficStatus::default();
        let route =
            |name: &str, cache| RouteStatus { route: name.to_owned(), traffic: traffic.clone(), cache };
        let did = RouteCacheStatus {
            hits: 1200,
            stale: 3,
            waits: 40,
            misses: counts(&[("uri-miss", 7), ("stale", 2)]),
            stored: 8,
            not_stored: counts(&[("private", 1)]),
            sent_bytes: 10,
        };
        let cache = CacheStatus {
            memory_bytes: 64 << 20,
            stored_bytes: 3 << 20,
            filling_bytes: 1 << 19,
            keys: 6,
            stored: 8,
            evicted: 2,
            evicted_bytes: 100,
            purges: 5,
            disk: Some(DiskStatus {
                is_on: true,
                state: "on".to_owned(),
                size_bytes: 1 << 30,
                bytes: 5 << 20,
                records: 40,
                written: 44,
                read: 7,
                dropped: 1,
                damaged: 0,
                foreign_files: 0,
            }),
            hit_rates: Some(HitRatesStatus { half: 0.5, same: 0.625, double: 0.75, quadruple: 1.0 }),
        };
        let mut page = String::new();
        told(&mut page, &cache, &[route("static", Some(did)), route("api", None)]);
        let expected = "
cache: 3.5 MiB of 64.0 MiB in use, 6 keys; 8 stored, 2 evicted, 5 purges
  disk: on; 5.0 MiB of 1024.0 MiB in use, 40 responses; 44 written, 7 read, 1 dropped, 0 damaged
  hits, estimated: 50.0% with half the memory, 62.5% with this, 75.0% with twice as much, 100.0% with four times
  ROUTE   HITS  STALE  WAITED  MISSES  STORED
  static  1200      3      40       9       8  misses: stale 2, uri-miss 7; not stored: private 1
";
        assert_eq!(page, expected);
    }
}
