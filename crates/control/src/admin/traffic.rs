//! Requests of the last minute and since the start, for the status: by route, server and in all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::traffic::{LastMinuteStatus, RatesStatus, TrafficStatus};
use telemetry::{Classes, Requests, Sample, ServerName, Snapshot};

use super::status::by_cause;

/// The totals now, those of a minute ago, and the time between them.
pub(crate) struct Traffic {
    pub(crate) now: Sample,
    pub(crate) before: Sample,
    pub(crate) time: Duration,
}

impl Traffic {
    /// The requests of all routes, and of those without a route.
    pub(super) fn whole(&self) -> TrafficStatus {
        let sum = |sample: &Sample| {
            let mut sum = Requests::default();
            sample.routes.values().for_each(|requests| sum.add(requests));
            sum
        };
        self.status(&sum(&self.now), &self.now.came_since(&self.before))
    }

    /// The requests of a route; zero if it is not counted.
    pub(super) fn route(&self, name: &str) -> TrafficStatus {
        let none = Requests::default();
        let of = |sample: &Sample| *sample.routes.get(name).unwrap_or(&none);
        let now = of(&self.now);
        self.status(&now, &now.since(&of(&self.before)))
    }

    /// The requests of each server of an upstream, by label, and their sum.
    pub(super) fn servers(&self, upstream: &str, labels: &[&str]) -> (Vec<TrafficStatus>, TrafficStatus) {
        let upstream: Arc<str> = upstream.into();
        let (mut sum, mut sum_came) = (Requests::default(), Requests::default());
        let server = |label: &&str| {
            let name: ServerName = (Arc::clone(&upstream), (*label).into());
            let of = |sample: &Sample| sample.servers.get(&name).copied().unwrap_or_default();
            let now = of(&self.now);
            let came = now.since(&of(&self.before));
            sum.add(&now);
            sum_came.add(&came);
            self.status(&now, &came)
        };
        let servers = labels.iter().map(server).collect();
        (servers, self.status(&sum, &sum_came))
    }

    /// Bytes, connections and failures of the last minute.
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

    /// Connections of clients that were refused in the last minute.
    pub(super) fn refused(&self) -> u64 {
        let [now, before] = [&self.now, &self.before].map(|sample| sample.counters.connections_refused);
        now.saturating_sub(before)
    }

    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn status(&self, now: &Requests, came: &Requests) -> TrafficStatus {
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
