//! Current requests, and the last hour: for `vanward top` and the dashboard.

use serde::{Deserialize, Serialize};

/// Current requests. After a query the workers count requests by client for a minute.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveStatus {
    pub clients: ClientsStatus,
    /// The requests in progress that take longest, the longest first.
    pub requests: Vec<RequestUnderWay>,
    /// The last requests that a server or the proxy failed, the newest first.
    #[serde(default)]
    pub errors: Vec<RequestError>,
}

/// Failed requests with one route, server, status and cause, in succession on one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RequestError {
    /// When the last of them ended, in seconds since 1970.
    pub at_seconds: f64,
    /// The route, as in the log; `None` if there was none.
    pub route: Option<String>,
    pub upstream: Option<String>,
    /// The server of the last attempt, as in the log.
    pub server: Option<String>,
    /// The status of the response; 0 without one.
    pub status: u16,
    /// The cause word, as in the log.
    pub cause: String,
    /// Details of the first failure, as in the log.
    pub detail: Option<String>,
    /// The number of failed requests.
    pub count: u64,
}

/// The clients with the most requests in the last seconds, the most first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClientsStatus {
    /// The time that the counts cover, 20 seconds at most. Zero if there was no query before.
    pub seconds: f64,
    /// All requests that began in this time.
    pub requests: u64,
    /// Counts may be too low by this number of requests: only the busiest clients are counted exactly.
    pub error: u64,
    /// The clients, as access lists and limits see them.
    pub clients: Vec<ClientStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClientStatus {
    /// The address of the client; behind trusted proxies, the address that they name.
    pub address: String,
    pub requests: u64,
}

/// A request in progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RequestUnderWay {
    /// The time since it began.
    pub seconds: f64,
    pub client: String,
    /// The method and the path, without the query, cut after 128 bytes.
    pub line: String,
    /// The route, as in the log.
    pub route: String,
    /// The upstream, once a server was chosen.
    pub upstream: Option<String>,
    /// The chosen server, as in the log.
    pub server: Option<String>,
    /// The event that the request waits for.
    pub stage: RequestStage,
}

/// The event that a request in progress waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, schemars(rename = "Stage"))]
pub enum RequestStage {
    /// No server is chosen yet: the request is checked, queued, delayed, or answered without a server.
    Proxy,
    /// The server has not begun to respond.
    Server,
    /// The response is being sent to the client.
    Response,
}

/// The last hour, or the time since the start. Each list has a value for each point, in order of time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HourStatus {
    /// The end of each point, in seconds since 1970.
    pub at_seconds: Vec<f64>,
    /// Requests that ended, per second.
    pub requests_per_second: Vec<f32>,
    /// Requests answered with 4xx, per second.
    pub client_errors_per_second: Vec<f32>,
    /// Requests answered with 5xx or not at all, per second.
    pub server_errors_per_second: Vec<f32>,
    /// The median of the durations; `None` without requests.
    pub p50_ms: Vec<Option<f32>>,
    pub p90_ms: Vec<Option<f32>>,
    pub p99_ms: Vec<Option<f32>>,
    /// Bytes of requests per second.
    pub received_bytes_per_second: Vec<f32>,
    /// Bytes of responses per second.
    pub sent_bytes_per_second: Vec<f32>,
    /// Client connections accepted, per second.
    pub connections_per_second: Vec<f32>,
    /// Open client connections.
    pub connections: Vec<u32>,
    /// Requests in progress.
    pub requests: Vec<u32>,
    /// Attempts after the first, per second.
    pub retries_per_second: Vec<f32>,
    pub faults_per_second: Vec<f32>,
}
