//! The last hour: a point for every five seconds, each with the rates of the whole proxy and its percentiles.
//!
//! Pure. An hour takes 720 points of 64 bytes, 46 kB, for any traffic.

use std::time::Duration;

use crate::counters::Snapshot;
use crate::history::{HistorySample, SAMPLE_PERIOD};

pub const HOUR_POINTS: usize = 3600 / SAMPLE_PERIOD.as_secs() as usize;

/// Rates between two samples. Single precision exceeds that of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SamplePoint {
    /// The end of the interval, in milliseconds since the start of the process.
    pub at_ms: u64,
    /// Requests that ended, per second.
    pub requests_per_second: f32,
    /// Requests answered with 4xx, per second.
    pub client_errors_per_second: f32,
    /// Requests answered with 5xx or not at all, per second.
    pub server_errors_per_second: f32,
    /// The median duration in milliseconds; NaN without requests, like the next two.
    pub p50_ms: f32,
    pub p90_ms: f32,
    pub p99_ms: f32,
    /// Bytes of requests per second.
    pub received_bytes_per_second: f32,
    /// Bytes of responses per second.
    pub sent_bytes_per_second: f32,
    /// Client connections accepted, per second.
    pub connections_per_second: f32,
    /// Client connections open at the end.
    pub connections: u32,
    /// Requests in progress at the end.
    pub requests: u32,
    pub retries_per_second: f32,
    pub faults_per_second: f32,
}

impl SamplePoint {
    /// The point between the previous sample and this one, `time` later.
    pub(crate) fn new(now: Duration, time: Duration, sample: &HistorySample, before: &HistorySample) -> Self {
        let seconds = time.as_secs_f64().max(f64::MIN_POSITIVE);
        let per_second = |count: u64| (count as f64 / seconds) as f32;
        let of = |value: fn(&Snapshot) -> u64| {
            per_second(value(&sample.counters).saturating_sub(value(&before.counters)))
        };
        let came = sample.came_since(before);
        let quantile =
            |share: f64| came.quantile(share).map_or(f32::NAN, |time| (time.as_secs_f64() * 1e3) as f32);
        let count = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Self {
            at_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            requests_per_second: per_second(came.count()),
            client_errors_per_second: per_second(came.client_errors()),
            server_errors_per_second: per_second(came.server_errors()),
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
            received_bytes_per_second: of(|counters| counters.client_bytes_received),
            sent_bytes_per_second: of(|counters| counters.client_bytes_sent),
            connections_per_second: of(|counters| counters.connections_accepted),
            connections: count(sample.counters.connections_active),
            requests: count(sample.counters.requests_active),
            retries_per_second: of(|counters| counters.upstream_retries),
            faults_per_second: of(|counters| counters.faults_injected),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{History, RequestClasses};

    #[test]
    fn a_point_has_the_changes_since_the_previous_one_and_an_hour_is_kept() {
        assert_eq!(size_of::<SamplePoint>(), 64);
        let mut history = History::default();
        let sample = |at: u64| {
            let mut requests = RequestClasses::default();
            requests.classes = [at, 0, at * 2, 0, at, 0];
            let counters = Snapshot { client_bytes_sent: at * 100, ..Snapshot::default() };
            HistorySample { counters, routes: [("/".into(), requests)].into(), ..HistorySample::default() }
        };
        let seconds = Duration::from_secs;
        for at in (0..4000).step_by(5) {
            history.put(seconds(at), sample(at));
        }
        let points: Vec<SamplePoint> = history.hour().copied().collect();
        assert_eq!(points.len(), 720);
        assert_eq!((points[0].at_ms, points[719].at_ms), (400_000, 3_995_000));
        for point in points {
            assert_eq!(point.requests_per_second, 4.0);
            assert_eq!((point.client_errors_per_second, point.server_errors_per_second), (1.0, 1.0));
            assert_eq!(point.sent_bytes_per_second, 100.0);
            assert!(point.p50_ms.is_nan());
        }
    }
}
