//! The status of the proxy, and orders about servers and faults.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::shaping::ShapingStatus;

/// How the proxy stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Of the program.
    pub version: String,
    /// The number of the process.
    pub process: u32,
    /// Since it began.
    pub uptime_seconds: u64,
    /// How often another configuration came in force.
    pub reloads: u64,
    /// Threads that serve clients.
    pub workers: usize,
    /// Client connections open now.
    pub connections: u64,
    /// Requests being served now.
    pub requests: u64,
    /// Where clients connect.
    pub listeners: Vec<ListenerStatus>,
    /// Which requests go where, in the order of the file.
    pub routes: Vec<RouteStatus>,
    /// The servers, by upstream.
    pub upstreams: Vec<UpstreamStatus>,
    /// What is stored of responses; `None` without a cache.
    pub cache: Option<CacheStatus>,
    /// What goes wrong on purpose, in the order in which requests are asked about.
    pub faults: Vec<FaultStatus>,
    /// What is slower or later than it would be by itself, or was made as it is by an operator.
    pub shaping: Vec<ShapingStatus>,
    /// What was counted since the start, by name.
    pub counters: BTreeMap<String, u64>,
    /// What has failed since the start, by the word that the log has for it; what never did is left out.
    pub failures: BTreeMap<String, u64>,
}

/// An address that is listened on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// As in the file.
    pub name: String,
    /// As it is: the kernel may have chosen the port.
    pub address: String,
    /// Whether it speaks TLS.
    pub has_tls: bool,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteStatus {
    /// What the log calls it.
    pub route: String,
    /// What its cache did since the start; `None` while it has done nothing.
    pub cache: Option<RouteCacheStatus>,
}

/// What the cache of a route did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteCacheStatus {
    /// Requests that were answered with what was stored.
    pub hits: u64,
    /// Requests that were answered with what was stale.
    pub stale: u64,
    /// Requests that waited for the response to another one of the same.
    pub waits: u64,
    /// Requests that were for a server, by the reason that `Cache-Status` has for it.
    pub misses: BTreeMap<String, u64>,
    /// Responses that were stored, or found to be still good.
    pub stored: u64,
    /// Responses that were not stored, by reason.
    pub not_stored: BTreeMap<String, u64>,
    /// Of bodies that were answered from the store.
    pub sent_bytes: u64,
}

/// The store of all routes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// All memory that it may take.
    pub memory_bytes: u64,
    /// What objects take.
    pub stored_bytes: u64,
    /// What bodies take that are under way.
    pub filling_bytes: u64,
    /// Keys that something is stored under.
    pub keys: u64,
    /// Responses that were stored since the start.
    pub stored: u64,
    /// Those of them that had to make room.
    pub evicted: u64,
    /// What these took.
    pub evicted_bytes: u64,
    /// Purges since the start: each URL, tag, prefix or host counts for one, of both schemes for two.
    pub purges: u64,
    /// What lies behind the memory; `None` without a disk.
    pub disk: Option<DiskStatus>,
    /// How often it would hit with another size; `None` until enough was asked for.
    pub hit_rates: Option<HitRatesStatus>,
}

/// The disk behind the memory of a cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// Whether it is read and written.
    pub is_on: bool,
    /// The same in words, and if it failed, how.
    pub state: String,
    /// What its files may take.
    pub size_bytes: u64,
    /// What they take.
    pub bytes: u64,
    /// Responses that are there.
    pub records: u64,
    /// What was written since the start: responses, and what was purged.
    pub written: u64,
    /// Responses that were read.
    pub read: u64,
    /// What was not written or read since the disk could not keep up.
    pub dropped: u64,
    /// What was not as it had been written, and was dropped.
    pub damaged: u64,
    /// Files in its folder that are not its own.
    pub foreign_files: u64,
}

/// The share of hits among the requests for what can be stored, each from 0 to 1, estimated from a sample of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HitRatesStatus {
    /// With half of the memory.
    pub half: f64,
    /// With what there is.
    pub same: f64,
    /// With twice as much.
    pub double: f64,
    /// With four times as much.
    pub quadruple: f64,
}

/// Something that goes wrong on purpose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultStatus {
    /// What the log calls it.
    pub name: String,
    /// What goes wrong, as in a file.
    pub inject: String,
    /// How probable it is, as in a file.
    pub probability: String,
    /// Whether it may happen now, as its timeline has it.
    pub is_on: bool,
    /// After how long it ends for good, if it does.
    pub expires_in_seconds: Option<f64>,
    /// Requests that matched.
    pub matched: u64,
    /// Those that it happened to.
    pub injected: u64,
}

/// Faults that are injected from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultsAdded {
    /// Their names.
    pub faults: Vec<String>,
}

/// Faults that are not injected any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultsRemoved {
    /// How many.
    pub removed: usize,
    /// Changes of rates and delays that were taken back with them.
    #[serde(default)]
    pub shaping_cleared: usize,
}

/// An upstream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpstreamStatus {
    /// As in the file.
    pub name: String,
    /// How a server is picked.
    pub balance: String,
    /// Sessions that are kept on a server; `None` where none are, or their clients carry them.
    pub sessions: Option<usize>,
    /// Those that there are now: of a name with several addresses they are several.
    pub servers: Vec<ServerStatus>,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// As in the file, with the port.
    pub url: String,
    /// What the log calls it.
    pub label: String,
    /// Whether it is asked.
    pub state: ServerState,
    /// Why not, where it is not.
    pub reason: Option<String>,
    /// Its share of the requests, relative to the others.
    pub weight: u32,
    /// Lower ones are used first.
    pub priority: u16,
    /// Requests under way.
    pub requests: u32,
    /// How long it takes to answer, where the policy or the ejection wants to know.
    pub response_time_ms: Option<f64>,
    /// What an operator has changed since the file was read: `drained`, `weight`, `added`.
    pub changes: Vec<String>,
}

/// Whether a server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// It is.
    Up,
    /// An operator has taken it out; what it has under way ends.
    Draining,
    /// Its answers were worse than the others'.
    Ejected,
    /// Checks fail.
    Down,
    /// Too many requests have failed: it is tried again later.
    Open,
}

/// What is to be done with a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerOrder {
    /// Its URL, its host and port, or its name in the file.
    pub server: String,
    /// Of which upstream; without it, of each that has it.
    #[serde(default)]
    pub upstream: Option<String>,
    /// From 1 to 1000.
    #[serde(default)]
    pub weight: Option<u32>,
}

/// Servers that were changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// At least one.
    pub servers: Vec<ServerNamed>,
}

/// A server of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerNamed {
    /// As in the file.
    pub upstream: String,
    /// Its URL, with the port.
    pub server: String,
}

/// What came of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadResult {
    /// What works but is hardly meant.
    pub warnings: Vec<ConfigMistake>,
    /// What takes more than a reload.
    pub remarks: Vec<String>,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// In a sentence.
    pub error: String,
    /// What is wrong with the configuration, if that is why.
    #[serde(default)]
    pub mistakes: Vec<ConfigMistake>,
}

/// A mistake in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigMistake {
    /// As it was named.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// All of it in a line.
    pub text: String,
}
