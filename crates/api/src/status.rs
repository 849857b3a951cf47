//! Status of the proxy in the admin API, and orders about servers and faults.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::maintenance::MaintenanceStatus;
use crate::shaping::ShapingStatus;
use crate::traffic::{LastMinuteStatus, TrafficStatus};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Status"))]
pub struct StatusReport {
    pub version: String,
    pub process: u32,
    /// The time since the process started.
    pub uptime_seconds: u64,
    /// How many times a new configuration took effect.
    pub reloads: u64,
    pub workers: usize,
    pub connections: u64,
    /// The number of requests in progress.
    pub requests: u64,
    /// All requests that ended.
    #[serde(default)]
    pub traffic: TrafficStatus,
    /// Bytes, connections and failures of the last minute.
    #[serde(default)]
    pub last_minute: LastMinuteStatus,
    /// Problems that need attention, one sentence each. The states of servers are separate.
    #[serde(default)]
    pub problems: Vec<String>,
    pub listeners: Vec<ListenerStatus>,
    /// The routes, in the order of the file.
    pub routes: Vec<RouteStatus>,
    pub upstreams: Vec<UpstreamStatus>,
    /// `None` without a cache.
    pub cache: Option<CacheStatus>,
    /// The faults, in the order in which requests are matched against them.
    pub faults: Vec<FaultStatus>,
    /// The routes that are under maintenance, or that a command has taken out of it.
    #[serde(default)]
    pub maintenance: Vec<MaintenanceStatus>,
    /// The places with shaping, or with settings that an operator has changed.
    pub shaping: Vec<ShapingStatus>,
    /// Counters since the start, by name.
    pub counters: BTreeMap<String, u64>,
    /// Failures since the start, by cause word as in the log. Causes that never occurred are left out.
    pub failures: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ListenerStatus {
    pub name: String,
    /// The actual address; the kernel may have chosen the port.
    pub address: String,
    pub has_tls: bool,
    /// The address as a URL: `https://0.0.0.0:443`, `tcp://0.0.0.0:5432`, `unix:/run/web.sock`.
    #[serde(default)]
    pub url: String,
    /// The protocols of clients: `HTTP/1.1`, `HTTP/2`, `HTTP/3`, or `TCP` where bytes are passed on.
    #[serde(default)]
    pub protocols: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RouteStatus {
    /// The name of the route, as in the log.
    pub route: String,
    #[serde(default)]
    pub traffic: TrafficStatus,
    /// The cache counters of the route; `None` until its cache has done something.
    pub cache: Option<RouteCacheStatus>,
}

/// The cache counters of one route since the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RouteCacheStatus {
    /// Requests answered from the cache.
    pub hits: u64,
    /// Requests answered with a stale response.
    pub stale: u64,
    /// Requests that waited for the response to an identical request.
    pub waits: u64,
    /// Requests that went to a server, by the reason in `Cache-Status`.
    pub misses: BTreeMap<String, u64>,
    /// Responses that were stored, or confirmed a stored one.
    pub stored: u64,
    /// Responses that were not stored, by reason.
    pub not_stored: BTreeMap<String, u64>,
    /// Body bytes sent from the cache.
    pub sent_bytes: u64,
}

/// The cache store, which all routes share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CacheStatus {
    pub memory_bytes: u64,
    /// The memory that stored responses take.
    pub stored_bytes: u64,
    /// The memory for bodies that are still being received.
    pub filling_bytes: u64,
    /// The number of keys with a stored response.
    pub keys: u64,
    /// The number of responses stored since the start.
    pub stored: u64,
    /// The number of responses evicted since the start.
    pub evicted: u64,
    /// The memory of the responses evicted since the start.
    pub evicted_bytes: u64,
    /// Purges since the start. Each URL, tag, prefix or host counts as one, or as two if it covers both schemes.
    pub purges: u64,
    /// The disk store; `None` without a disk.
    pub disk: Option<DiskStatus>,
    /// Estimated hit rates for other memory sizes; `None` until there were enough requests.
    pub hit_rates: Option<HitRatesStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiskStatus {
    /// Whether the disk is read and written.
    pub is_on: bool,
    /// The state in words; after a failure, with the error.
    pub state: String,
    /// The size limit of the files.
    pub size_bytes: u64,
    /// The size of the files.
    pub bytes: u64,
    /// The number of stored responses.
    pub records: u64,
    /// Writes since the start: responses and purges.
    pub written: u64,
    /// Responses read since the start.
    pub read: u64,
    /// Reads and writes that were skipped because the disk could not keep up.
    pub dropped: u64,
    /// Records that were dropped because they were damaged.
    pub damaged: u64,
    /// Files in the folder that do not belong to the cache.
    pub foreign_files: u64,
}

/// Estimated hit rates by memory size, each from 0 to 1. A sample of the requests for storable responses is used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HitRatesStatus {
    /// The hit rate with half of the memory.
    pub half: f64,
    /// The hit rate with the current memory.
    pub same: f64,
    pub double: f64,
    /// The hit rate with four times the memory.
    pub quadruple: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FaultStatus {
    /// The name of the fault, as in the log.
    pub name: String,
    /// The kind of fault, in the syntax of the configuration file.
    pub inject: String,
    /// The probability, in the syntax of the configuration file.
    pub probability: String,
    /// Whether the fault's schedule has it active now.
    pub is_on: bool,
    /// When the fault expires, if it does.
    pub expires_in_seconds: Option<f64>,
    /// The number of requests that matched.
    pub matched: u64,
    /// The number of times that the fault was injected.
    pub injected: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FaultsAdded {
    pub faults: Vec<String>,
    /// Added faults that never happen, because an earlier fault always does.
    #[serde(default)]
    pub hidden: Vec<HiddenFault>,
    /// Added faults that affect only TCP connections, although one of their listeners has HTTP/3.
    #[serde(default)]
    pub tcp_alone: Vec<String>,
}

/// A fault that never happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HiddenFault {
    pub fault: String,
    /// The earlier fault, which happens to all requests or connections that match this one.
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FaultsRemoved {
    pub removed: usize,
    /// The number of shaping orders that were removed as well.
    #[serde(default)]
    pub shaping_cleared: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UpstreamStatus {
    pub name: String,
    /// The load balancing policy.
    pub balance: String,
    /// The number of sticky sessions; `None` without sessions, or if clients carry them in cookies.
    pub sessions: Option<usize>,
    /// The attempts with all its servers.
    #[serde(default)]
    pub traffic: TrafficStatus,
    /// Failed attempts since the start, by cause word as in the log. Causes that never occurred are left out.
    #[serde(default)]
    pub failures: BTreeMap<String, u64>,
    /// Retries since the start.
    #[serde(default)]
    pub retries: u64,
    /// The number of requests that wait for a server now.
    #[serde(default)]
    pub queued: u64,
    /// The current servers. A name with several addresses counts as several servers.
    pub servers: Vec<ServerStatus>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerStatus {
    /// The URL in the configuration file, with the port.
    pub url: String,
    /// The name of the server, as in the log.
    pub label: String,
    pub state: ServerState,
    /// Why the server gets no requests; `None` if it does.
    pub reason: Option<String>,
    /// The share of requests, relative to the other servers' weights.
    pub weight: u32,
    /// The priority; servers with a lower number are used first.
    pub priority: u16,
    /// The number of requests in progress.
    pub requests: u32,
    /// The attempts with the server.
    #[serde(default)]
    pub traffic: TrafficStatus,
    /// The response time, measured only if the policy or the ejection needs it.
    pub response_time_ms: Option<f64>,
    /// An operator's changes since the file was read: `drained`, `weight`, `added`.
    pub changes: Vec<String>,
    /// The last request that the server failed; `None` if it failed none. Its state does not matter.
    #[serde(default)]
    pub last_error: Option<ServerErrorStatus>,
}

/// A request that a server failed: no connection, no response, or no valid one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerErrorStatus {
    pub seconds_ago: f64,
    /// The cause word, as in the log.
    pub cause: String,
    /// The reason in words, as `connection refused`.
    pub reason: String,
    /// The number of requests that the server failed since the start.
    pub failures: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    Up,
    /// An operator has drained the server; requests in progress finish.
    Draining,
    /// The server was ejected because it responded worse than the others.
    Ejected,
    Down,
    /// The circuit breaker is open after too many failures; the server is tried again later.
    Open,
}

/// An order about a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ServerOrder {
    /// The server's URL, its host and port, or its name in the file.
    pub server: String,
    /// The upstream. Without it, every upstream that has the server.
    #[serde(default)]
    pub upstream: Option<String>,
    /// The new weight, from 1 to 1000.
    #[serde(default)]
    pub weight: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Changed {
    /// The changed servers, at least one.
    pub servers: Vec<ServerNamed>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerNamed {
    pub upstream: String,
    /// The server's URL, with the port.
    pub server: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReloadResult {
    /// Settings that are valid but probably unintended.
    pub warnings: Vec<ConfigMistake>,
    /// Changes that need more than a reload.
    pub remarks: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Refused"))]
pub struct RefusedOrder {
    /// The reason as a sentence.
    pub error: String,
    /// The mistakes in the configuration, if they are the reason.
    #[serde(default)]
    pub mistakes: Vec<ConfigMistake>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigMistake {
    /// The file, as it was named.
    pub file: String,
    /// Counts from 1.
    pub line: usize,
    /// Counts from 1.
    pub column: usize,
    pub message: String,
    /// The file, line, column and message in one line.
    pub text: String,
}

/// The state of an external source of servers, as the program that follows it reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SourceReport {
    /// The source, such as `docker`: lower-case letters, digits and hyphens.
    pub source: String,
    /// Why the source gives no usable answer, as a sentence; `null` if it does.
    pub failure: Option<String>,
}
