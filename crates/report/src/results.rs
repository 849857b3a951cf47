//! Results of a lab run, as in `results.json`. Every quantity has its unit in its name.
//!
//! This file has only measured data. `summary` computes the rest, so newer rules can judge an old file.

/// Streams of cases, and their figures.
mod streams;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::judge::Trait;
use crate::latency::LatencyHistogram;
pub use streams::{StreamKind, StreamResults, StreamsMeasured};

/// Readers reject newer versions.
pub const SCHEMA: u32 = 4;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`] at the time of writing.
    pub schema: u32,
    pub title: String,
    /// Program and version of the lab.
    pub measured_by: String,
    /// The command that repeats the run.
    pub command: String,
    pub started_unix_seconds: u64,
    pub took_seconds: f64,
    pub machine: RunMachine,
    /// All machines of the run; empty if there was only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachinePlace>,
    pub conditions: Conditions,
    /// In the order of the tables.
    pub proxies: Vec<ComparedProxy>,
    pub origins: Vec<StartedProcess>,
    /// In the order of the tables.
    pub cases: Vec<Case>,
    /// All measurements, in the order in which they were made.
    pub runs: Vec<Run>,
    /// Notes for readers, in whole sentences.
    pub notes: Vec<String>,
    pub plan: Option<File>,
    /// Proxies of the plan that are not installed.
    #[serde(default)]
    pub absent: Vec<Absent>,
    /// Cases that a proxy does not support and was left out of.
    #[serde(default)]
    pub lacking: Vec<Lacking>,
    /// Published figures of the same experiment.
    #[serde(default)]
    pub published: Vec<Published>,
    #[serde(default)]
    pub expectations: Vec<Expectation>,
    /// Why measurements of the plan are missing; `None` if the run is complete.
    pub incomplete: Option<String>,
}

/// A proxy that is not installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    pub proxy: String,
    pub remedy: String,
}

/// A case that a proxy does not support.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacking {
    pub proxy: String,
    pub case: String,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Measured system; for a proxy of the lab, its name.
    pub system: String,
    pub case: String,
    /// `requests_per_second`, `latency_mean`, …
    pub metric: String,
    pub value: f64,
    /// `1/s`, `ms`, …
    pub unit: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// Text of the expectation: `p99 < 50ms`.
    pub text: String,
    pub proxy: String,
    pub case: String,
    /// Measured value with its unit; `None` if nothing was measured.
    pub measured: Option<String>,
    /// Whether the expectation was met. Without a measured value, it was not.
    pub is_met: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunMachine {
    /// Processor, as the kernel names it.
    pub processor: String,
    /// `x86_64`, `aarch64`, …
    pub architecture: String,
    /// Number of cores that the lab may use.
    pub cores: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    /// Frequency governor, if the kernel reports it.
    pub governor: Option<String>,
    /// Kernel settings that matter to a proxy, by name.
    pub settings: BTreeMap<String, String>,
}

/// A machine in a run on several machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachinePlace {
    /// Name given to ssh; `here` is the machine that the lab was started on.
    pub name: String,
    pub address: String,
    /// Cores of the parts that ran on the machine; a part without cores did not run on it.
    pub cores: Cores,
    pub machine: RunMachine,
    /// Maximum error of the clock: measurements began together within this time.
    pub clock_uncertainty_us: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Load averages over 1, 5 and 15 minutes before the run.
    pub load_before: [f64; 3],
    pub rounds: usize,
    /// Duration of one measurement, except for cases with their own duration.
    pub measured_seconds: f64,
    /// Duration of the uncounted load before each measurement.
    pub warm_up_seconds: f64,
    /// Seed of the random order.
    pub seed: u64,
    pub cores: Cores,
    /// Conditions that were the same for all proxies, a phrase each.
    pub alike: Vec<String>,
    /// Command-line changes to the plan, a phrase each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
}

/// CPU cores of each part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cores {
    pub proxy: Vec<usize>,
    pub origins: Vec<usize>,
    pub load: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenProxy")]
pub struct ComparedProxy {
    /// Unique in the run.
    pub name: String,
    pub role: ProxyRole,
    /// Version that the program reports; empty for `direct`.
    pub version: String,
    /// A start for each different configuration.
    pub started: Vec<Started>,
}

/// A start of a proxy, for some of the cases.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Started {
    /// Settings of the proxy, a phrase each.
    pub given: Vec<String>,
    /// Names of the cases; empty in older files.
    pub cases: Vec<String>,
    /// Command and files of the first start. Later starts differ only in ports and folders.
    pub process: StartedProcess,
    /// Settings that must be alike for figures to be compared, as far as they are known.
    pub setup: BTreeMap<Trait, String>,
}

/// A proxy in the form of this and earlier schemas.
#[derive(Deserialize)]
struct WrittenProxy {
    name: String,
    role: ProxyRole,
    version: String,
    #[serde(default)]
    started: Vec<Started>,
    #[serde(default)]
    process: StartedProcess,
    https_process: Option<StartedProcess>,
}

impl From<WrittenProxy> for ComparedProxy {
    fn from(written: WrittenProxy) -> Self {
        let WrittenProxy { name, role, version, mut started, process, https_process } = written;
        let plain = Some(process).filter(|process| *process != StartedProcess::default());
        let https = https_process.map(|process| (vec!["HTTPS".to_owned()], process));
        started.extend(
            plain
                .map(|process| (Vec::new(), process))
                .into_iter()
                .chain(https)
                .map(|(given, process)| Started { given, process, ..Started::default() }),
        );
        Self { name, role, version, started }
    }
}

/// Role of a proxy in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyRole {
    /// No proxy: the client connects to the origin.
    Direct,
    /// The proxy that the others are compared with.
    Subject,
    Peer,
}

/// Command and configuration of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StartedProcess {
    /// Command line; empty if there is no process.
    pub command: String,
    pub files: Vec<File>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    pub name: String,
    pub text: String,
}

/// End of the phrase in [`Case::features`] about a delay: `2s of delay for each request`.
pub const DELAYED: &str = " of delay for each request";
/// End of the phrase in [`Case::features`] about a rate: `5.00 kB/s in all`.
pub const LIMITED: &str = "/s in all";

/// A case: the task of every proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Unique in the run: `tiny-closed`.
    pub name: String,
    /// Scheme of the clients; `http` in older files.
    #[serde(default)]
    pub scheme: ClientScheme,
    /// HTTP version of the clients; HTTP/1.1 in older files.
    #[serde(default)]
    pub version: ClientVersion,
    pub payload: String,
    /// Bytes of each response's body.
    pub payload_bytes: u64,
    pub connections: usize,
    pub arrivals: Arrivals,
    /// Streams in place of requests: in all other figures, a request is then a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<StreamResults>,
    /// Worker threads or processes of each proxy.
    #[serde(default = "one")]
    pub workers: usize,
    /// Number of requests of one measurement, if this number ends it, not the time.
    pub requests: Option<u64>,
    /// Duration of a measurement, or of a step of a search, if it differs from [`Conditions::measured_seconds`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_seconds: Option<f64>,
    /// Protocol of the origins; HTTP/1.1 without TLS in older files.
    #[serde(default, skip_serializing_if = "is_default")]
    pub upstream: OriginProtocol,
    /// Layer at which the proxies forward; 7 in older files.
    #[serde(default, skip_serializing_if = "is_default")]
    pub layer: Layer,
    /// Features of every proxy beside forwarding, a phrase each: `cache of 256 MB`.
    #[serde(default)]
    pub features: Vec<String>,
    /// Case of the [`Published`] figures to compare with.
    pub published: Option<String>,
    #[serde(default = "own_generator")]
    pub generator: String,
}

fn one() -> usize {
    1
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub const OWN_GENERATOR: &str = "vanward";

fn own_generator() -> String {
    OWN_GENERATOR.to_owned()
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientScheme {
    #[default]
    Http,
    /// HTTPS. `direct` takes no part.
    Https,
}

/// HTTP version of the clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ClientVersion {
    #[default]
    #[serde(rename = "1.1")]
    Http1,
    /// With TLS by ALPN, without TLS by prior knowledge.
    #[serde(rename = "2")]
    Http2,
    #[serde(rename = "3")]
    Http3,
}

impl ClientVersion {
    pub fn number(self) -> &'static str {
        match self {
            Self::Http1 => "1.1",
            Self::Http2 => "2",
            Self::Http3 => "3",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OriginProtocol {
    #[default]
    Http,
    Https,
    /// HTTP/2 without TLS, by prior knowledge.
    H2,
}

impl OriginProtocol {
    /// Name in plans: `http`, `https` or `h2`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::H2 => "h2",
        }
    }
}

/// Layer at which proxies forward.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Layer {
    /// Layer 7: requests and responses.
    #[default]
    Seven,
    /// Layer 4: bytes of connections, of any protocol.
    Four,
}

impl TryFrom<u8> for Layer {
    type Error = &'static str;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        match number {
            4 => Ok(Self::Four),
            7 => Ok(Self::Seven),
            _ => Err("a layer is 4 (bytes of connections) or 7 (requests)"),
        }
    }
}

impl From<Layer> for u8 {
    fn from(layer: Layer) -> Self {
        match layer {
            Layer::Seven => 7,
            Layer::Four => 4,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Arrivals {
    /// Closed loop: a connection sends its next request when the last response is complete.
    Closed,
    /// Constant rate, independent of the proxy.
    Constant {
        /// In requests per second.
        rate_per_second: f64,
    },
    /// Search for the highest rate that meets a bound.
    Searched {
        /// The bound: `p99 < 10ms`.
        bound: String,
    },
}

/// A measurement of a proxy in a case and a round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub proxy: String,
    pub case: String,
    /// Counts from 1.
    pub round: usize,
    /// Start of the measurement, in seconds after the start of the run.
    pub began_seconds: f64,
    /// Command line of the generator.
    pub command: String,
    /// `None` without a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<SearchStep>,
    pub outcome: MeasurementOutcome,
}

/// Step of a search for the highest rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SearchStep {
    pub rate_per_second: f64,
    /// Whether all requests were sent, and answered within the bound.
    pub is_met: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum MeasurementOutcome {
    Measured(MeasuredFigures),
    /// An invalid measurement: its figures are kept but not counted.
    Invalid {
        reason: String,
        measured: MeasuredFigures,
        /// Whether the generator failed to send the load as planned, which says nothing about the proxy.
        #[serde(default)]
        is_generators: bool,
    },
    /// A failed measurement without figures.
    Failed {
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredFigures {
    /// Duration from the first request to the last response.
    pub seconds: f64,
    /// Complete and correct responses.
    pub requests: u64,
    pub received_bytes: u64,
    /// Failed requests by cause. None is counted in `requests`.
    pub errors: BTreeMap<String, u64>,
    /// Latency: from the time when a request was due (in a closed loop, sent) to its last byte.
    pub latency: LatencyHistogram,
    /// Lateness of the generator at the 99th percentile; only with a schedule.
    pub lateness_p99_us: Option<u64>,
    /// Usage of the proxy's processes; `None` without a proxy.
    pub usage: Option<Usage>,
    /// Time from sending to the first byte; empty if the generator does not report it.
    #[serde(default)]
    pub first_byte: LatencyHistogram,
    /// Time of the TCP connect; empty if the generator does not report it.
    #[serde(default)]
    pub connect: LatencyHistogram,
    /// CPU time of the generator's load threads.
    pub load_cpu_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_threads: Option<usize>,
    pub origins_cpu_seconds: Option<f64>,
    /// Connections that the origins accepted during the load; without a proxy, those of the load. `None` in old files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin_connections: Option<u64>,
    /// CPU time of all processes on the machine, including the lab's.
    pub machine_cpu_seconds: Option<f64>,
    /// Usage of the proxy over time.
    #[serde(default)]
    pub samples: Vec<UsageSample>,
    /// Usage of the load generator.
    pub load: Option<WatchedUsage>,
    pub origins: Option<WatchedUsage>,
    /// TCP counters of the kernel, for all processes on the machine.
    pub network: Option<Network>,
    /// Additional figures of streams; `None` for requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<StreamsMeasured>,
}

/// Usage of a part of the lab during a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchedUsage {
    pub usage: Usage,
    pub samples: Vec<UsageSample>,
}

/// TCP counters of the kernel during a measurement, for all processes together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Without retransmissions.
    pub sent_segments: u64,
    pub retransmitted_segments: u64,
    pub reset_connections: u64,
    /// Connections dropped because the queue of a listener was full.
    pub listen_drops: u64,
    /// Bytes received on all interfaces, including loopback.
    pub received_bytes: u64,
}

/// Usage of a part's process tree at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageSample {
    /// Time since the measurement began.
    pub at_seconds: f64,
    /// CPU time since the previous sample, divided by the time between them: 1 is one busy core.
    pub busy_cores: f64,
    /// Part of `busy_cores` in the kernel.
    #[serde(default)]
    pub system_cores: f64,
    /// As in [`Usage`].
    pub memory_bytes: u64,
    pub threads: usize,
    /// Established TCP connections; for a proxy, from clients and to origins.
    pub connections: usize,
    /// TCP connections in each other state, such as `TIME_WAIT`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub other_connections: BTreeMap<String, usize>,
    /// Context switches since the previous sample.
    #[serde(default)]
    pub switches: u64,
    /// Traffic of the part's connections since the previous sample; `None` if the kernel does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TcpTraffic>,
}

/// Traffic of TCP connections. Traffic of a closed connection after its last sample is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpTraffic {
    pub received_bytes: u64,
    /// Bytes sent and acknowledged.
    pub sent_bytes: u64,
    /// Segments retransmitted.
    pub segments_sent_again: u64,
}

impl std::ops::Add for TcpTraffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            received_bytes: self.received_bytes + other.received_bytes,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            segments_sent_again: self.segments_sent_again + other.segments_sent_again,
        }
    }
}

/// Usage of a part's process tree during a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Time span over which the CPU time was read.
    pub seconds: f64,
    /// CPU time in user mode.
    pub user_seconds: f64,
    /// CPU time in the kernel.
    pub system_seconds: f64,
    /// Whether control groups report the CPU time, including all threads and children. Otherwise it is the time of the
    /// threads that existed at both ends.
    #[serde(default)]
    pub by_control_group: bool,
    /// Maximum memory: proportional set size, summed; the program's own file counts in full.
    pub memory_bytes: u64,
    pub processes: usize,
    pub threads: usize,
    /// Voluntary context switches: a thread waited for something.
    #[serde(default)]
    pub voluntary_switches: u64,
    /// Involuntary context switches: a thread was preempted.
    #[serde(default)]
    pub involuntary_switches: u64,
}

impl ComparedProxy {
    /// The start of the proxy for a case; `None` if there was none, or in older files.
    pub fn started_for(&self, case: &str) -> Option<&Started> {
        self.started.iter().find(|started| started.cases.iter().any(|name| name == case))
    }
}

impl Case {
    /// Whether proxies with this role take part in the case.
    pub fn includes(&self, role: ProxyRole) -> bool {
        (self.scheme == ClientScheme::Http && self.upstream != OriginProtocol::Https)
            || role != ProxyRole::Direct
    }

    /// Whether the server decides when messages of streams are sent.
    pub fn is_paced_by_server(&self) -> bool {
        self.streams.as_ref().is_some_and(|streams| streams.kind.is_paced_by_server())
    }

    /// Whether the rate is the same for all proxies, regardless of their capacity.
    pub fn has_fixed_rate(&self) -> bool {
        self.is_paced_by_server() || matches!(self.arrivals, Arrivals::Constant { .. })
    }

    /// Whether clients send their next request as soon as the last one is answered.
    pub fn is_closed_loop(&self) -> bool {
        self.arrivals == Arrivals::Closed && !self.is_paced_by_server()
    }

    /// Whether every proxy delays requests or limits their rate, so that requests without a proxy do not compare.
    pub fn is_slowed(&self) -> bool {
        self.features.iter().any(|phrase| phrase.ends_with(DELAYED) || phrase.ends_with(LIMITED))
    }
}

impl MeasuredFigures {
    /// Number of failed requests, of all causes.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

impl MeasurementOutcome {
    /// The figures, valid or not; `None` for a failed measurement.
    pub fn figures(&self) -> Option<&MeasuredFigures> {
        match self {
            Self::Measured(measured) | Self::Invalid { measured, .. } => Some(measured),
            Self::Failed { .. } => None,
        }
    }

    /// The figures, if they are valid.
    pub fn valid(&self) -> Option<&MeasuredFigures> {
        match self {
            Self::Measured(measured) => Some(measured),
            Self::Invalid { .. } | Self::Failed { .. } => None,
        }
    }

    /// Whether the figures exist and say something about the proxy: the generator did not fail to send the load.
    pub fn tells_of_proxy(&self) -> bool {
        !matches!(self, Self::Invalid { is_generators: true, .. } | Self::Failed { .. })
    }

    /// Why the measurement is invalid or failed; `None` if it is valid.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Measured(_) => None,
            Self::Invalid { reason, .. } | Self::Failed { reason } => Some(reason),
        }
    }
}

#[derive(Debug)]
pub enum ReadError {
    /// The text is not JSON, or has another form.
    Malformed(serde_json::Error),
    /// The file has a newer schema version.
    Newer(u32),
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(cause) => write!(
                out,
                "not the results of a lab run ({cause}): give the results.json of one, or its folder"
            ),
            Self::Newer(schema) => write!(
                out,
                "the results have schema {schema} and this version reads up to {SCHEMA}: use a newer vanward"
            ),
        }
    }
}

impl std::error::Error for ReadError {}

impl Results {
    /// Number of cores of all machines together.
    pub fn cores(&self) -> usize {
        match self.machines.iter().map(|place| place.machine.cores).sum() {
            0 => self.machine.cores,
            all => all,
        }
    }

    /// CPU cores of the parts, for each machine: core numbers of different machines are unrelated.
    pub fn cores_by_machine(&self) -> Vec<&Cores> {
        if self.machines.is_empty() {
            return vec![&self.conditions.cores];
        }
        self.machines.iter().map(|place| &place.cores).collect()
    }

    /// Parses the output of [`Results::to_json`], of this or an earlier schema.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        /// The only field that every version has.
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let version: Version = serde_json::from_str(text).map_err(ReadError::Malformed)?;
        if version.schema > SCHEMA {
            return Err(ReadError::Newer(version.schema));
        }
        serde_json::from_str(text).map_err(ReadError::Malformed)
    }

    /// Text of `results.json`, on one line: indented latency buckets would take thousands of lines.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("results have string keys and finite numbers by their types")
    }
}
