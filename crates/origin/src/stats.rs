//! Counters of connections and requests, for tests. Each worker has one `Counters`; reading them adds these up.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::worker::FAST_PAGES;

/// Maximum number of paths that one worker counts separately: at most 4 MiB.
const PATHS_MAX: usize = 4096;
/// Maximum length of a path that is counted separately.
const PATH_BYTES_MAX: usize = 1024;

/// Counts since the start or the last reset. Requests for `/stats` are not counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stats {
    pub connections: u64,
    /// Connections open now. A reset does not change it.
    pub connections_open: u64,
    /// Connections closed at once because a worker was at its limit.
    pub connections_refused: u64,
    /// Requests with a well-formed head.
    pub requests: u64,
    /// Requests rejected as malformed or too large.
    pub requests_refused: u64,
    /// Bytes of request bodies, without framing.
    pub body_bytes: u64,
    pub paths: BTreeMap<String, u64>,
    /// Requests for paths longer than 1 KiB, or beyond the limit of separately counted paths.
    pub paths_other: u64,
}

/// Counters of one worker. Any thread may read and reset them.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    connections: AtomicU64,
    connections_closed: AtomicU64,
    connections_refused: AtomicU64,
    requests: AtomicU64,
    requests_refused: AtomicU64,
    body_bytes: AtomicU64,
    fast_pages: [AtomicU64; FAST_PAGES.len()],
    paths: Mutex<HashMap<String, u64>>,
    paths_other: AtomicU64,
    /// Connections opened before the last reset: needed to compute the open ones.
    connections_before: AtomicU64,
}

impl Counters {
    pub(crate) fn opened(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.connections_closed.fetch_add(1, Relaxed);
    }

    pub(crate) fn turned_away(&self) {
        self.connections_refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn fast_page(&self, index: usize) {
        self.fast_pages[index].fetch_add(1, Relaxed);
    }

    pub(crate) fn request(&self, path: &str) {
        self.requests.fetch_add(1, Relaxed);
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = paths.get_mut(path) {
            *count += 1;
        } else if paths.len() < PATHS_MAX && path.len() <= PATH_BYTES_MAX {
            paths.insert(path.to_owned(), 1);
        } else {
            self.paths_other.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn refused(&self) {
        self.requests_refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn body(&self, bytes: usize) {
        self.body_bytes.fetch_add(bytes as u64, Relaxed);
    }
}

pub(crate) fn sum(workers: &[Counters]) -> Stats {
    let mut stats = Stats::default();
    for counters in workers {
        let connections = counters.connections.load(Relaxed);
        let opened = connections + counters.connections_before.load(Relaxed);
        stats.connections += connections;
        stats.connections_open += opened.saturating_sub(counters.connections_closed.load(Relaxed));
        stats.connections_refused += counters.connections_refused.load(Relaxed);
        stats.requests += counters.requests.load(Relaxed);
        stats.requests_refused += counters.requests_refused.load(Relaxed);
        stats.body_bytes += counters.body_bytes.load(Relaxed);
        stats.paths_other += counters.paths_other.load(Relaxed);
        for ((path, _), count) in FAST_PAGES.iter().zip(&counters.fast_pages) {
            let count = count.load(Relaxed);
            stats.requests += count;
            if count > 0 {
                *stats.paths.entry((*path).to_owned()).or_default() += count;
            }
        }
        for (path, count) in counters.paths.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            *stats.paths.entry(path.clone()).or_default() += count;
        }
    }
    stats
}

pub(crate) fn reset(workers: &[Counters]) {
    for counters in workers {
        let opened = counters.connections.swap(0, Relaxed);
        counters.connections_before.fetch_add(opened, Relaxed);
        let plain = [
            &counters.connections_refused,
            &counters.requests,
            &counters.requests_refused,
            &counters.body_bytes,
            &counters.paths_other,
        ];
        plain.into_iter().chain(&counters.fast_pages).for_each(|count| count.store(0, Relaxed));
        counters.paths.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_over_workers_and_start_again() {
        let workers = [Counters::default(), Counters::default()];
        for counters in &workers {
            counters.opened();
            counters.opened();
            counters.closed();
            counters.fast_page(0);
            counters.request("/a");
            counters.request(FAST_PAGES[0].0);
            counters.body(5);
            counters.refused();
        }
        let paths = BTreeMap::from([("/a".to_owned(), 2), (FAST_PAGES[0].0.to_owned(), 4)]);
        let expected = Stats {
            connections: 4,
            connections_open: 2,
            requests: 6,
            requests_refused: 2,
            body_bytes: 10,
            paths,
            ..Stats::default()
        };
        assert_eq!(sum(&workers), expected);
        reset(&workers);
        assert_eq!(sum(&workers), Stats { connections_open: 2, ..Stats::default() });
    }

    #[test]
    fn paths_have_a_limit() {
        let workers = [Counters::default()];
        (0..PATHS_MAX + 10).for_each(|index| workers[0].request(&format!("/{index}")));
        let stats = sum(&workers);
        assert_eq!((stats.paths.len(), stats.paths_other), (PATHS_MAX, 10));
        let workers = [Counters::default()];
        let longest = "/".repeat(PATH_BYTES_MAX);
        workers[0].request(&longest);
        workers[0].request(&format!("{longest}/"));
        let stats = sum(&workers);
        assert_eq!((stats.paths.get(&longest), stats.paths.len(), stats.paths_other), (Some(&1), 1, 1));
    }
}
