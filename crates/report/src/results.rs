//! What a lab run measured, as `results.json` holds it. Every quantity names its unit.
//!
//! Nothing here is derived: medians, ratios and verdicts are computed anew from it (see `summary`), so an old file
//! can be judged by newer rules.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::judge::Trait;
use crate::latency::Latency;

/// The version of this form. A reader refuses a newer one.
pub const SCHEMA: u32 = 4;

/// A whole run of the lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`] when it was written.
    pub schema: u32,
    /// What was compared, as a heading.
    pub title: String,
    /// Program and version that measured.
    pub measured_by: String,
    /// The command that repeats the run.
    pub command: String,
    /// When it began, in seconds since 1970.
    pub started_unix_seconds: u64,
    /// From the first process to the last.
    pub took_seconds: f64,
    /// Where the proxies ran.
    pub machine: Machine,
    /// All machines that took part; empty if that was the only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Place>,
    /// Under which conditions.
    pub conditions: Conditions,
    /// What was compared, in the order of the tables.
    pub proxies: Vec<Proxy>,
    /// What stood behind the proxies.
    pub origins: Vec<Process>,
    /// What each was asked to do, in the order of the tables.
    pub cases: Vec<Case>,
    /// Every measurement, in the order in which they were made.
    pub runs: Vec<Run>,
    /// What a reader has to know, in whole sentences.
    pub notes: Vec<String>,
    /// The plan's text, where the run was made from one.
    #[serde(default)]
    pub plan: Option<File>,
    /// Proxies that the plan names and that are not installed here.
    #[serde(default)]
    pub absent: Vec<Absent>,
    /// Cases that a proxy was left out of, since it cannot do what they ask.
    #[serde(default)]
    pub lacking: Vec<Lacking>,
    /// What others published of the same experiment.
    #[serde(default)]
    pub published: Vec<Published>,
    /// What the plan expects, and whether it came true.
    #[serde(default)]
    pub expectations: Vec<Expectation>,
    /// Why measurements are missing that the plan has; `None` if none are.
    #[serde(default)]
    pub incomplete: Option<String>,
}

/// A proxy that is not installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Its name.
    pub proxy: String,
    /// How to get it.
    pub remedy: String,
}

/// A case that a proxy cannot do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacking {
    /// The proxy's name.
    pub proxy: String,
    /// The case's name.
    pub case: String,
    /// What is asked of it there that it has not.
    pub reason: String,
}

/// One figure that others published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// What was measured: the name of a proxy, where that is one of the lab's.
    pub system: String,
    /// Its case there; [`Case::published`] names the same.
    pub case: String,
    /// `requests_per_second`, `latency_mean`, …
    pub metric: String,
    /// The figure.
    pub value: f64,
    /// `1/s`, `ms`, …
    pub unit: String,
}

/// What a plan expects of a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// As it is written: `p99 < 50ms`.
    pub text: String,
    /// Of which proxy.
    pub proxy: String,
    /// In which case.
    pub case: String,
    /// What was measured, with its unit; `None` where nothing was.
    pub measured: Option<String>,
    /// Whether it came true. What was not measured did not.
    pub is_met: bool,
}

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// As the kernel names it.
    pub processor: String,
    /// `x86_64`, `aarch64`, …
    pub architecture: String,
    /// Cores that the lab may use.
    pub cores: usize,
    /// Installed memory.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// The frequency governor, where the kernel tells.
    pub governor: Option<String>,
    /// Settings of the kernel that matter to a proxy, by name.
    pub settings: BTreeMap<String, String>,
}

/// A machine that took part in a run on several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// As ssh was told; `here` is the machine that the lab was started on.
    pub name: String,
    /// Where the others reached it.
    pub address: String,
    /// What ran there, on which of its cores: nothing of what has none.
    pub cores: Cores,
    /// What it is.
    pub machine: Machine,
    /// How exactly its clock was known: measurements began together to within this.
    pub clock_uncertainty_us: u64,
}

/// What held for every measurement of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Load averages over 1, 5 and 15 minutes before the run.
    pub load_before: [f64; 3],
    /// How many times every proxy did every case.
    pub rounds: usize,
    /// What one measurement lasted, but for cases that say it themselves.
    pub measured_seconds: f64,
    /// Load given before each measurement and not counted.
    pub warm_up_seconds: f64,
    /// What the order was shuffled with.
    pub seed: u64,
    /// Which cores each part had.
    pub cores: Cores,
    /// What was alike for all proxies, a phrase each.
    pub alike: Vec<String>,
    /// What was otherwise than the plan says, as the command line wanted it, a phrase each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
}

/// Which cores each part had to itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cores {
    /// The proxy's.
    pub proxy: Vec<usize>,
    /// The origins'.
    pub origins: Vec<usize>,
    /// The load generator's.
    pub load: Vec<usize>,
}

/// One of those compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenProxy")]
pub struct Proxy {
    /// Short and unique in the run.
    pub name: String,
    /// What it is in the comparison.
    pub role: Role,
    /// As the program says it; empty for `direct`.
    pub version: String,
    /// How it was started, once for all cases that gave it the same to do.
    pub started: Vec<Started>,
}

/// How a proxy was started for some of the cases.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Started {
    /// What it was given to do, a phrase each.
    pub given: Vec<String>,
    /// The names of the cases; empty in files that do not say.
    pub cases: Vec<String>,
    /// Command and files of the first time: later ones differ in ports and folders only.
    pub process: Process,
    /// What has to be alike for figures to be compared, as far as it is known.
    pub setup: BTreeMap<Trait, String>,
}

/// A proxy as this and earlier schemas have it.
#[derive(Deserialize)]
struct WrittenProxy {
    name: String,
    role: Role,
    version: String,
    #[serde(default)]
    started: Vec<Started>,
    #[serde(default)]
    process: Process,
    #[serde(default)]
    https_process: Option<Process>,
}

impl From<WrittenProxy> for Proxy {
    fn from(written: WrittenProxy) -> Self {
        let WrittenProxy { name, role, version, mut started, process, https_process } = written;
        let plain = Some(process).filter(|process| *process != Process::default());
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

/// What one of those compared is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// No proxy: the client talks to the origin.
    Direct,
    /// The one that the others are compared with.
    Subject,
    /// Another proxy.
    Peer,
}

/// How a process was started.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Process {
    /// The command line; empty where there is no process.
    pub command: String,
    /// The files that it read.
    pub files: Vec<File>,
}

/// A configuration file, in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// What is asked of every proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Short and unique in the run: `tiny-closed`.
    pub name: String,
    /// What the client speaks; `http` in files that do not say.
    #[serde(default)]
    pub scheme: Scheme,
    /// Its version of HTTP; HTTP/1.1 in files that do not say.
    #[serde(default)]
    pub version: Version,
    /// The payload's name.
    pub payload: String,
    /// Bytes of each response's body.
    pub payload_bytes: u64,
    /// Client connections.
    pub connections: usize,
    /// When requests are sent.
    pub arrivals: Arrivals,
    /// Worker threads or processes of each proxy.
    #[serde(default = "one")]
    pub workers: usize,
    /// Requests of one measurement, where their number ends it and not time.
    #[serde(default)]
    pub requests: Option<u64>,
    /// What a measurement lasted there, or a step of a search, where that is not [`Conditions::measured_seconds`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_seconds: Option<f64>,
    /// What the origins speak; plain HTTP/1.1 in files that do not say.
    #[serde(default, skip_serializing_if = "is_default")]
    pub upstream: Upstream,
    /// The layer at which proxies pass on; 7 in files that do not say.
    #[serde(default, skip_serializing_if = "is_default")]
    pub layer: Layer,
    /// What else is asked of every proxy, a phrase each: `cache of 256 MB`.
    #[serde(default)]
    pub features: Vec<String>,
    /// The case of [`Published`] figures to set beside it.
    #[serde(default)]
    pub published: Option<String>,
    /// What sends the requests.
    #[serde(default = "own_generator")]
    pub generator: String,
}

/// What earlier files had.
fn one() -> usize {
    1
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The generator that is ours.
pub const OWN_GENERATOR: &str = "vanward";

fn own_generator() -> String {
    OWN_GENERATOR.to_owned()
}

/// What the client speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// In the clear.
    #[default]
    Http,
    /// Over TLS: `direct` takes no part.
    Https,
}

/// The client's version of HTTP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Version {
    /// HTTP/1.1.
    #[default]
    #[serde(rename = "1.1")]
    Http1,
    /// HTTP/2: by ALPN over TLS, by prior knowledge in the clear.
    #[serde(rename = "2")]
    Http2,
}

/// What the origins speak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Upstream {
    /// HTTP/1.1 in the clear.
    #[default]
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/2 in the clear, by prior knowledge.
    H2,
}

impl Upstream {
    /// As plans write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::H2 => "h2",
        }
    }
}

/// The layer at which proxies pass on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Layer {
    /// Requests and responses.
    #[default]
    Seven,
    /// Bytes of connections, whatever they say.
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

/// When requests are sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Arrivals {
    /// As soon as the connection's last response is complete.
    Closed,
    /// On a schedule of their own, whatever the proxy does.
    Constant {
        /// Requests that fall due each second.
        rate_per_second: f64,
    },
    /// At rising and falling rates, for the highest that meets a bound.
    Searched {
        /// `p99 < 10ms`
        bound: String,
    },
}

/// One measurement: a proxy, a case, a round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The proxy's name.
    pub proxy: String,
    /// The case's name.
    pub case: String,
    /// From 1.
    pub round: usize,
    /// When it began, after the start of the whole run.
    pub began_seconds: f64,
    /// The generator's command line.
    pub command: String,
    /// A step of a search; `None` where no rate is searched for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// What came of it.
    pub outcome: Outcome,
}

/// A step of a search for the highest rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Requests offered each second.
    pub rate_per_second: f64,
    /// Whether they were all sent and answered within the bound.
    pub is_met: bool,
}

/// What came of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Outcome {
    /// It counts.
    Measured(Measured),
    /// It ran, but its figures mean something else than they say; kept, not counted.
    Invalid {
        /// Why.
        reason: String,
        /// What was measured all the same.
        measured: Measured,
        /// Whether it was the generator that could not do its part: that says nothing about the proxy.
        #[serde(default)]
        is_generators: bool,
    },
    /// There are no figures.
    Failed {
        /// Why.
        reason: String,
    },
}

/// The figures of one measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// From the first request to the last response.
    pub seconds: f64,
    /// Responses that were whole and right.
    pub requests: u64,
    /// Bytes received in them.
    pub received_bytes: u64,
    /// Requests that failed, by cause; none is counted in `requests`.
    pub errors: BTreeMap<String, u64>,
    /// From when a request was due (or, in a closed loop, sent) to its last byte.
    pub latency: Latency,
    /// How late the generator itself was at its 99th percentile; only where requests have a schedule.
    pub lateness_p99_us: Option<u64>,
    /// What the proxy's processes used meanwhile; `None` where there is no proxy.
    pub usage: Option<Usage>,
    /// From sent to the first byte; empty where the generator does not tell.
    #[serde(default)]
    pub first_byte: Latency,
    /// From connect to connected; empty likewise.
    #[serde(default)]
    pub connect: Latency,
    /// CPU time of the generator's load threads.
    #[serde(default)]
    pub load_cpu_seconds: Option<f64>,
    /// How many threads it had for the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_threads: Option<usize>,
    /// CPU time of the origins.
    #[serde(default)]
    pub origins_cpu_seconds: Option<f64>,
    /// Connections that the origins were made while the load ran, those for the load itself where there is no proxy; `None`
    /// in files that do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_connections: Option<u64>,
    /// CPU time of everything on the machine, the lab's processes included.
    #[serde(default)]
    pub machine_cpu_seconds: Option<f64>,
    /// What the proxy used over time.
    #[serde(default)]
    pub samples: Vec<Sample>,
    /// What the generator used, and the origins.
    #[serde(default)]
    pub load: Option<Watched>,
    /// What the origins used.
    #[serde(default)]
    pub origins: Option<Watched>,
    /// What the kernel's TCP counted meanwhile, of everybody on the machine.
    #[serde(default)]
    pub network: Option<Network>,
}

/// What another part of the lab used during a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// Over the whole of it.
    pub usage: Usage,
    /// Over time.
    pub samples: Vec<Sample>,
}

/// What the kernel's TCP counted during a measurement, for all processes together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Segments sent, without those sent again.
    pub sent_segments: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Connections that ended in a reset.
    pub reset_connections: u64,
    /// Connections that found the queue of a listener full.
    pub listen_drops: u64,
    /// Bytes received on all interfaces, the loopback's included.
    pub received_bytes: u64,
}

/// What the whole process tree of a part held and had used at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Since the measurement began.
    pub at_seconds: f64,
    /// CPU time used since the sample before, by the time between them: 1 is a whole core.
    pub busy_cores: f64,
    /// The part of it in the kernel.
    #[serde(default)]
    pub system_cores: f64,
    /// Memory, as in [`Usage`].
    pub memory_bytes: u64,
    /// Threads.
    pub threads: usize,
    /// Established TCP connections, of a proxy both from clients and to origins.
    pub connections: usize,
    /// Those in each other state of TCP: `TIME_WAIT`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub other_connections: BTreeMap<String, usize>,
    /// Context switches since the sample before.
    #[serde(default)]
    pub switches: u64,
    /// What its connections passed since the sample before; `None` where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
}

/// What TCP connections passed. One that closed takes along what it passed after the last sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent that have arrived.
    pub sent_bytes: u64,
    /// Segments sent again.
    pub segments_sent_again: u64,
}

impl std::ops::Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            received_bytes: self.received_bytes + other.received_bytes,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            segments_sent_again: self.segments_sent_again + other.segments_sent_again,
        }
    }
}

/// What the whole process tree of a part used during a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The span over which CPU time was read.
    pub seconds: f64,
    /// CPU time in user mode.
    pub user_seconds: f64,
    /// CPU time in the kernel.
    pub system_seconds: f64,
    /// Whether CPU time is what control groups were charged, all threads and children included; else that of the threads
    /// that were there at both ends.
    #[serde(default)]
    pub by_control_group: bool,
    /// The most memory seen: proportional set size, summed; the program's own file in full.
    pub memory_bytes: u64,
    /// Processes at the end.
    pub processes: usize,
    /// Threads at the end.
    pub threads: usize,
    /// Times that a thread waited for something.
    #[serde(default)]
    pub voluntary_switches: u64,
    /// Times that a thread had to make room for another.
    #[serde(default)]
    pub involuntary_switches: u64,
}

impl Proxy {
    /// How it was started for a case; `None` where nothing was, or the file does not say.
    pub fn started_for(&self, case: &str) -> Option<&Started> {
        self.started.iter().find(|started| started.cases.iter().any(|name| name == case))
    }
}

impl Case {
    /// Whether a proxy of that role takes part.
    pub fn includes(&self, role: Role) -> bool {
        (self.scheme == Scheme::Http && self.upstream != Upstream::Https) || role != Role::Direct
    }
}

impl Measured {
    /// Requests that failed, of every cause.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

impl Outcome {
    /// The figures, whether they count or not.
    pub fn figures(&self) -> Option<&Measured> {
        match self {
            Self::Measured(measured) | Self::Invalid { measured, .. } => Some(measured),
            Self::Failed { .. } => None,
        }
    }

    /// The figures, if they count.
    pub fn valid(&self) -> Option<&Measured> {
        match self {
            Self::Measured(measured) => Some(measured),
            Self::Invalid { .. } | Self::Failed { .. } => None,
        }
    }

    /// Whether it says something of the proxy: not where the generator could not do its part.
    pub fn tells_of_proxy(&self) -> bool {
        !matches!(self, Self::Invalid { is_generators: true, .. } | Self::Failed { .. })
    }

    /// Why the figures do not count.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Measured(_) => None,
            Self::Invalid { reason, .. } | Self::Failed { reason } => Some(reason),
        }
    }
}

/// Why a results file can't be read.
#[derive(Debug)]
pub enum ReadError {
    /// Not JSON, or not of this form.
    Malformed(serde_json::Error),
    /// Written by a later version.
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
    /// Cores of all machines together.
    pub fn cores(&self) -> usize {
        match self.machines.iter().map(|place| place.machine.cores).sum() {
            0 => self.machine.cores,
            all => all,
        }
    }

    /// Which cores the parts had, machine by machine: numbers of different machines say nothing to each other.
    pub fn cores_by_machine(&self) -> Vec<&Cores> {
        if self.machines.is_empty() {
            return vec![&self.conditions.cores];
        }
        self.machines.iter().map(|place| &place.cores).collect()
    }

    /// Reads what [`Results::to_json`] wrote, of this or an earlier schema.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        /// The one field that every version has.
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

    /// The text of `results.json`, on one line: the latency buckets would make thousands.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("results have string keys and finite numbers by their types")
    }
}
