//! Requests of the proxy, a route, an upstream or a server in the admin API: totals, and rates of the last minute.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Requests of the whole proxy, a route, an upstream or a server. For upstreams and servers, each attempt counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrafficStatus {
    /// Requests that ended since the start.
    pub requests: u64,
    /// These requests by class of status (`2xx`), or `none` without a response. Classes without requests are left out.
    pub classes: BTreeMap<String, u64>,
    /// Rates and durations of the last minute.
    pub last_minute: RatesStatus,
}

/// Rates and durations of the last minute, or of the time since the start if that is shorter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RatesStatus {
    /// The time that the rates cover; they are sampled every five seconds.
    pub seconds: f64,
    /// Requests that ended, per second.
    pub requests_per_second: f64,
    /// Requests answered with 4xx, per second.
    pub client_errors_per_second: f64,
    /// Requests answered with 5xx or not at all, per second.
    pub server_errors_per_second: f64,
    /// The median duration; `None` without requests. Durations are estimated from a histogram. For a server, they end
    /// with the first byte of its response.
    pub p50_ms: Option<f64>,
    /// The 90th percentile of the durations.
    pub p90_ms: Option<f64>,
    /// The 99th percentile of the durations.
    pub p99_ms: Option<f64>,
}

/// Bytes to and from clients, and failures, of the last minute.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LastMinuteStatus {
    /// Bytes of requests per second.
    pub received_bytes_per_second: f64,
    /// Bytes of responses per second.
    pub sent_bytes_per_second: f64,
    /// Client connections accepted per second.
    pub connections_per_second: f64,
    /// Failures by cause word as in the log. Causes that did not occur are left out.
    pub failures: BTreeMap<String, u64>,
}
