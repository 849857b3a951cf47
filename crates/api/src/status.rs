//! Status of the proxy in the admin API, and orders about servers and faults.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::maintenance::MaintenanceStatus;
use crate::shaping::ShapingStatus;
use crate::traffic::{LastMinuteStatus, TrafficStatus};

/// The status of the proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// The process ID.
    pub process: u32,
    /// The time since the process started.
    pub uptime_seconds: u64,
    /// How many times a new configuration took effect.
    pub reloads: u64,
    /// The number of worker threads.
    pub workers: usize,
    /// The number of open client connections.
    pub connections: u64,
    /// The number of requests in progress.
    pub requests: u64,
    /// All requests that ended.
    #[serde(default)]
    pub traffic: TrafficStatus,
    /// Bytes, connections and failures of the last minute.
    #[serde(default)]
    pub last_minute: LastMinuteStatus,
    /// What needs attention, beside the states of servers: one sentence each.
    #[serde(default)]
    pub problems: Vec<String>,
    /// The listeners.
    pub listeners: Vec<ListenerStatus>,
    /// The routes, in the order of the file.
    pub routes: Vec<RouteStatus>,
    /// The upstreams and their servers.
    pub upstreams: Vec<UpstreamStatus>,
    /// The cache; `None` if there is none.
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

/// A listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ListenerStatus {
    /// The name in the configuration file.
    pub name: String,
    /// The actual address; the kernel may have chosen the port.
    pub address: String,
    /// Whether the listener speaks TLS.
    pub has_tls: bool,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RouteStatus {
    /// The name of the route, as in the log.
    pub route: String,
    /// The requests of the route.
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
    /// The memory limit.
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

/// The disk store of the cache.
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
    /// The hit rate with twice the memory.
    pub double: f64,
    /// The hit rate with four times the memory.
    pub quadruple: f64,
}

/// An injected fault.
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

/// The result of adding faults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FaultsAdded {
    /// The names of the added faults.
    pub faults: Vec<String>,
    /// Those of them that do not happen, because an earlier fault always does.
    #[serde(default)]
    pub hidden: Vec<HiddenFault>,
}

/// A fault that does not happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HiddenFault {
    /// The name of the fault.
    pub fault: String,
    /// The name of the earlier fault, which happens to all requests or connections that match the other.
    pub by: String,
}

/// The result of removing faults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FaultsRemoved {
    /// The number of removed faults.
    pub removed: usize,
    /// The number of shaping orders that were removed as well.
    #[serde(default)]
    pub shaping_cleared: usize,
}

/// An upstream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UpstreamStatus {
    /// The name in the configuration file.
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

/// A server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerStatus {
    /// The URL in the configuration file, with the port.
    pub url: String,
    /// The name of the server, as in the log.
    pub label: String,
    /// Whether the server gets requests.
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
}

/// Whether a server gets requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// The server gets requests.
    Up,
    /// An operator has drained the server; requests in progress finish.
    Draining,
    /// The server was ejected because it responded worse than the others.
    Ejected,
    /// Health checks fail.
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

/// The servers that an order changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Changed {
    /// The changed servers, at least one.
    pub servers: Vec<ServerNamed>,
}

/// A server and its upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerNamed {
    /// The upstream's name in the configuration file.
    pub upstream: String,
    /// The server's URL, with the port.
    pub server: String,
}

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReloadResult {
    /// Settings that are valid but probably unintended.
    pub warnings: Vec<ConfigMistake>,
    /// Changes that need more than a reload.
    pub remarks: Vec<String>,
}

/// Why an order was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Refused {
    /// The reason as a sentence.
    pub error: String,
    /// The mistakes in the configuration, if they are the reason.
    #[serde(default)]
    pub mistakes: Vec<ConfigMistake>,
}

/// A mistake in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigMistake {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// The whole mistake, in one line.
    pub text: String,
}
