//! Requests of the last minute and since the start, for the status: by route, by server, and in total.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::traffic::{LastMinuteStatus, RatesStatus, TrafficStatus};
use telemetry::{Classes, HistorySample, RequestClasses, ServerName, Snapshot};

use super::status::by_cause;

/// The totals now and a minute ago, and the time between them.
pub(crate) struct TrafficTotals {
    pub(crate) now: HistorySample,
    pub(crate) before: HistorySample,
    pub(crate) time: Duration,
}

impl TrafficTotals {
    /// Requests of all routes and without a route.
    pub(super) fn whole(&self) -> TrafficStatus {
        let sum = |sample: &HistorySample| {
            let mut sum = RequestClasses::default();
            sample.routes.values().for_each(|requests| sum.add(requests));
            sum
        };
        self.status(&sum(&self.now), &self.now.came_since(&self.before))
    }

    /// Requests of a route; zero if it is not counted.
    pub(super) fn route(&self, name: &str) -> TrafficStatus {
        let none = RequestClasses::default();
        let of = |sample: &HistorySample| *sample.routes.get(name).unwrap_or(&none);
        let now = of(&self.now);
        self.status(&now, &now.since(&of(&self.before)))
    }

    /// Requests of each server in an upstream, by label, and their sum.
    pub(super) fn servers(&self, upstream: &str, labels: &[&str]) -> (Vec<TrafficStatus>, TrafficStatus) {
        let upstream: Arc<str> = upstream.into();
        let (mut sum, mut sum_came) = (RequestClasses::default(), RequestClasses::default());
        let server = |label: &&str| {
            let name: ServerName = (Arc::clone(&upstream), (*label).into());
            let of = |sample: &HistorySample| sample.servers.get(&name).copied().unwrap_or_default();
            let now = of(&self.now);
            let came = now.since(&of(&self.before));
            sum.add(&now);
            sum_came.add(&came);
            self.status(&now, &came)
        };
        let servers = labels.iter().map(server).collect();
        (servers, self.status(&sum, &sum_came))
    }

    pub(super) fn last_minute(&self) -> LastMinuteStatus {
        let (now, before) = (&self.now.counters, &self.before.counters);
        let rate = |value: fn(&Snapshot) -> u64| self.rate(value(now).saturating_sub(value(before)));
        let failures = std::array::from_fn(|at| now.failures[at].saturating_sub(before.failures[at]));
        LastMinuteStatus {
            received_bytes_per_second: rate(|counters| counters.client_bytes_received),
            sent_bytes_per_second: rate(|counters| counters.client_bytes_sent),
            connections_per_second: rate(|counters| counters.connections_accepted),
            failures: by_cause(failures),
        }
    }

    pub(super) fn refused(&self) -> u64 {
        let [now, before] = [&self.now, &self.before].map(|sample| sample.counters.connections_refused);
        now.saturating_sub(before)
    }

    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn status(&self, now: &RequestClasses, came: &RequestClasses) -> TrafficStatus {
        let quantile = |share: f64| came.quantile(share).map(|time| time.as_secs_f64() * 1e3);
        let classes: BTreeMap<String, u64> = Classes::NAMES
            .iter()
            .zip(now.classes)
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| ((*name).to_owned(), count))
            .collect();
        TrafficStatus {
            requests: now.count(),
            classes,
            last_minute: RatesStatus {
                seconds: self.time.as_secs_f64(),
                requests_per_second: self.rate(came.count()),
                client_errors_per_second: self.rate(came.client_errors()),
                server_errors_per_second: self.rate(came.server_errors()),
                p50_ms: quantile(0.5),
                p90_ms: quantile(0.9),
                p99_ms: quantile(0.99),
            },
        }
    }
}
