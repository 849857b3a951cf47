//! The last minute as samples of the totals, for rates and quantiles, and the last hour as points of all requests
//! together.
//!
//! Pure: the caller decides when to take samples. A sample has a few hundred bytes for each route and server.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::counters::Snapshot;
use crate::directory::{ServerName, Totals};
use crate::histogram::{BOUNDS, BUCKETS, Histogram};
use crate::hour::{HOUR_POINTS, SamplePoint};
use crate::series::Classes;

/// The time between two samples.
pub const SAMPLE_PERIOD: Duration = Duration::from_secs(5);
/// The time over which rates are computed.
const WINDOW: Duration = Duration::from_secs(60);

/// Requests of a route or server, by status class and by duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestClasses {
    /// In the order of `Classes::NAMES`.
    pub classes: [u64; 6],
    /// By bucket.
    durations: [u64; BUCKETS],
}

impl RequestClasses {
    #[must_use]
    pub fn new(classes: &Classes, durations: &Histogram) -> Self {
        Self { classes: classes.values(), durations: durations.buckets() }
    }

    /// The number of requests, with and without a response.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Requests that were answered with 4xx.
    #[must_use]
    pub fn client_errors(&self) -> u64 {
        self.classes[4]
    }

    /// Requests that were answered with 5xx or not at all.
    #[must_use]
    pub fn server_errors(&self) -> u64 {
        self.classes[0] + self.classes[5]
    }

    /// Adds the requests of another route or server.
    pub fn add(&mut self, other: &Self) {
        let own = self.classes.iter_mut().chain(&mut self.durations);
        for (own, other) in own.zip(other.classes.iter().chain(&other.durations)) {
            *own += other;
        }
    }

    /// The requests since an earlier sample. A name that was removed in between starts at zero again.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Self {
            classes: std::array::from_fn(|at| less(self.classes[at], before.classes[at])),
            durations: std::array::from_fn(|at| less(self.durations[at], before.durations[at])),
        }
    }

    /// An estimate of the duration that a share of the requests (0 to 1) did not exceed; `None` without requests.
    /// Assumes that durations are spread evenly within a bucket. Beyond the last bound, returns that bound.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.durations.iter().sum();
        let rank = share * total as f64;
        let mut below = 0;
        for (bucket, count) in self.durations.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            let bound = |at: usize| BOUNDS[at.min(BOUNDS.len() - 1)].0 as f64;
            if (below + count) as f64 >= rank {
                let (low, high) = (bucket.checked_sub(1).map_or(0.0, bound), bound(bucket));
                let part = ((rank - below as f64) / count as f64).max(0.0);
                return Some(Duration::from_nanos((low + (high - low) * part) as u64));
            }
            below += count;
        }
        None
    }
}

/// The totals at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistorySample {
    /// The sums of the workers' counters.
    pub counters: Snapshot,
    pub routes: HashMap<Arc<str>, RequestClasses>,
    /// Attempts by server. Their duration is the time to the first byte of the response.
    pub servers: HashMap<ServerName, RequestClasses>,
}

impl HistorySample {
    #[must_use]
    pub fn new(counters: Snapshot, totals: &Totals) -> Self {
        let routes = totals.routes.iter();
        let servers = totals.servers.iter();
        Self {
            counters,
            routes: routes
                .map(|(name, cell)| (Arc::clone(name), RequestClasses::new(&cell.requests, &cell.duration)))
                .collect(),
            servers: servers
                .map(|(name, cell)| (name.clone(), RequestClasses::new(&cell.requests, &cell.first_byte)))
                .collect(),
        }
    }

    /// The requests of all routes, and those without a route, since an earlier sample. Computed for each route, because
    /// a removed route would make the sum smaller than before.
    #[must_use]
    pub fn came_since(&self, before: &Self) -> RequestClasses {
        let mut came = RequestClasses::default();
        for (name, requests) in &self.routes {
            came.add(&requests.since(before.routes.get(name).unwrap_or(&RequestClasses::default())));
        }
        came
    }
}

/// The samples of the last minute, and the points of the last hour.
#[derive(Debug, Default)]
pub struct History {
    /// Each with its time since the start, in order.
    samples: VecDeque<(Duration, HistorySample)>,
    hour: VecDeque<SamplePoint>,
}

impl History {
    /// Adds a sample, and drops those that no window needs any more. If the window reaches back before the first
    /// sample, the counts before it are zero.
    pub fn put(&mut self, now: Duration, sample: HistorySample) {
        while self.samples.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= WINDOW) {
            self.samples.pop_front();
        }
        if self.samples.is_empty() && now < WINDOW {
            self.samples.push_back((Duration::ZERO, HistorySample::default()));
        }
        if let Some((at, before)) = self.samples.back() {
            if self.hour.len() == HOUR_POINTS {
                self.hour.pop_front();
            }
            self.hour.push_back(SamplePoint::new(now, now.saturating_sub(*at), &sample, before));
        }
        self.samples.push_back((now, sample));
    }

    /// Drops all samples: nothing reads them any more.
    pub fn clear(&mut self) {
        self.samples.clear();
        self.hour.clear();
    }

    /// The points of the last hour, in order.
    pub fn hour(&self) -> impl ExactSizeIterator<Item = &SamplePoint> {
        self.hour.iter()
    }

    /// The sample that is a minute old, or the oldest, and its age.
    #[must_use]
    pub fn minute_ago(&self, now: Duration) -> Option<(Duration, &HistorySample)> {
        let is_old = |(at, _): &&(Duration, HistorySample)| now.saturating_sub(*at) >= WINDOW;
        let sample = self.samples.iter().rev().find(is_old).or_else(|| self.samples.front());
        sample.map(|(at, sample)| (now.saturating_sub(*at), sample))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(milliseconds: &[u64]) -> RequestClasses {
        let (classes, durations) = (Classes::default(), Histogram::default());
        for milliseconds in milliseconds {
            classes.count(200);
            durations.observe(Duration::from_millis(*milliseconds));
        }
        RequestClasses::new(&classes, &durations)
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        assert_eq!(RequestClasses::default().quantile(0.5), None);
        let spread = requests(&[1, 2, 2, 2, 2, 2, 2, 2, 2, 500]);
        for (share, low, high) in [(0.0, 0, 1), (0.5, 1, 2), (0.9, 1, 2), (0.99, 200, 500), (1.0, 500, 500)] {
            let quantile = spread.quantile(share).expect("there are requests");
            assert!(
                (Duration::from_millis(low)..=Duration::from_millis(high)).contains(&quantile),
                "{share}: {quantile:?}"
            );
        }
        // The last bucket has no upper bound.
        assert_eq!(requests(&[90_000]).quantile(0.5), Some(Duration::from_secs(50)));
    }

    #[test]
    fn classes_are_distinguished_and_earlier_counts_subtracted() {
        let (classes, durations) = (Classes::default(), Histogram::default());
        for status in [0, 200, 200, 404, 503] {
            classes.count(status);
        }
        let now = RequestClasses::new(&classes, &durations);
        assert_eq!((now.count(), now.client_errors(), now.server_errors()), (5, 1, 2));
        classes.count(404);
        let later = RequestClasses::new(&classes, &durations);
        let came = later.since(&now);
        assert_eq!((came.count(), came.client_errors(), came.server_errors()), (1, 1, 0));
        // The name was removed in between, and counts from zero.
        assert_eq!(requests(&[1]).since(&requests(&[1, 1, 1])).count(), 1);
        let mut sum = requests(&[1, 2]);
        sum.add(&requests(&[3]));
        assert_eq!(sum, requests(&[1, 2, 3]));
    }

    #[test]
    fn the_window_is_at_most_a_minute() {
        let seconds = Duration::from_secs;
        let mut history = History::default();
        assert!(history.minute_ago(seconds(3)).is_none());
        for at in (0..200).step_by(5) {
            let counters = Snapshot { requests: at, ..Snapshot::default() };
            history.put(seconds(at), HistorySample { counters, ..HistorySample::default() });
            let (age, sample) = history.minute_ago(seconds(at + 4)).expect("there is one");
            let expected = (at + 4).saturating_sub(60) / 5 * 5;
            assert_eq!((age, sample.counters.requests), (seconds(at + 4 - expected), expected));
        }
        assert!(history.samples.len() <= 14, "{}", history.samples.len());
        assert_eq!(history.hour().len(), 40);
        history.clear();
        assert_eq!(history.hour().len(), 0);
        assert!(history.minute_ago(seconds(300)).is_none());
    }
}
