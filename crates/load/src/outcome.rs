//! Result of a run: the schema of `vanward load --json`.
//!
//! The schema is versioned and only grows: fields keep their names and units, and readers ignore unknown fields. Every
//! number is finite; without measurements, counts and values are 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::{Arrival, Breakdown, ConnectTargets, Responses, ThinkTime, Tls};
use crate::seconds::MeasuredSecond;
use crate::stream::StreamFigures;
use crate::timeline::TimelineSlot;
use crate::watch::Missed;

/// Changes when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

/// Result of a run, within the measured window (without the warm-up).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// [`SCHEMA`] at the time of writing.
    pub schema: u32,
    pub version: String,
    /// Start of the measured window, in milliseconds since 1970.
    pub started_unix_ms: u64,
    pub settings: RunSettings,
    /// Duration of the measured window. With a rate, the run waits up to a second for requests that are active or
    /// overdue at the end of the schedule. The window then ends with the last response.
    pub measured_seconds: f64,
    /// Whether the run was stopped early.
    pub interrupted: bool,
    /// The reason why the run ended before its number of requests, if the server was gone: no responses, only failures.
    pub server_gone: Option<String>,
    /// Complete responses with status 2xx or 3xx that are like the first ones, or meet their request's checks.
    pub requests: u64,
    /// `requests` divided by `measured_seconds`.
    pub requests_per_second: f64,
    /// Bytes received, including heads and HTTP/2 frames; with TLS, the content of its records.
    pub bytes_received: u64,
    /// Bytes of response bodies, without chunk framing.
    pub body_bytes: u64,
    pub bytes_sent: u64,
    /// Complete responses by status.
    pub statuses: BTreeMap<u16, u64>,
    pub errors: Errors,
    /// Errors of class `check`, by the kind of check. A response that misses several counts once, in this order.
    #[serde(default)]
    pub checks_missed: ChecksMissed,
    /// Text of the first failure of each class.
    pub error_examples: BTreeMap<ErrorClass, String>,
    /// Requests active at the end of the run. Their ages are censored times of `latency` and `service`.
    pub unfinished: u64,
    /// Age of the oldest unfinished request: a hanging request is older than the slowest response.
    #[serde(default)]
    pub oldest_unfinished_us: u64,
    /// Connections opened in the window.
    pub connections_opened: u64,
    /// HTTP/2: streams that the server refused unprocessed, and that were sent again later. They are not errors.
    #[serde(default)]
    pub streams_refused: u64,
    /// Redirects that were followed. A request with redirects counts once: last response, sum of the times.
    #[serde(default)]
    pub redirects: u64,
    /// Latency, the main figure. With a rate it counts from the time when the request was due, otherwise from sending,
    /// to the end of the response. If the request has to connect first, it counts from the connect.
    pub latency: Distribution,
    /// Service time: from sending to the end of the response. Without a rate, equal to `latency`.
    pub service: Distribution,
    /// Time from sending to the first byte of the response.
    pub first_byte: Distribution,
    /// Time of the TCP connect, without the TLS handshake.
    pub connect: Distribution,
    /// TLS handshakes of the window, for `https` URLs.
    pub tls: Option<TlsMade>,
    /// Figures by part of the run: by status, URL or name on request, and by stage.
    #[serde(default)]
    pub breakdowns: Vec<BrokenDown>,
    /// Figures of streams, if the run has streams in place of requests. `requests` then counts messages received, or
    /// gRPC calls with one response that ended with OK, and `latency` is the delay of messages.
    pub stream: Option<Box<StreamFigures>>,
    /// Figures of each second; the caller fills them in.
    #[serde(default)]
    pub seconds: Vec<MeasuredSecond>,
    /// Figures of the slots that [`crate::LoadPlan::slot`] requests, by when requests were due.
    #[serde(skip)]
    pub slots: Vec<TimelineSlot>,
    /// Adherence to the schedule, for runs with a rate.
    pub schedule: Option<ScheduleKept>,
    pub cpu: Cpu,
    /// CPU time and memory of the server in the window, if its process was named.
    pub server: Option<ServerUsage>,
    /// Reasons why the run is invalid; empty for a valid run.
    pub problems: Vec<RunProblem>,
    /// Expectations with their results; the caller fills them in.
    #[serde(default)]
    pub expectations: Vec<RunExpectation>,
}

impl RunOutcome {
    pub fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Expectation of a run, with its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunExpectation {
    /// Text of the expectation: `p99 < 50ms`.
    pub text: String,
    /// Measured value with its unit; `None` if nothing was measured.
    pub measured: Option<String>,
    /// Whether the expectation was met. Without a measured value, it was not.
    pub is_met: bool,
}

/// Settings of a run, with defaults filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    pub url: String,
    pub urls: usize,
    pub shuffle_seed: Option<u64>,
    pub method: String,
    /// Given header fields, without the values of secret ones.
    pub headers: Vec<String>,
    /// Name of the given user, without the password.
    pub user: Option<String>,
    #[serde(default)]
    pub cookies: bool,
    /// Maximum number of redirects to follow; `None` follows none.
    pub redirects_max: Option<u32>,
    #[serde(default)]
    pub responses: Responses,
    #[serde(default)]
    pub directions: ConnectTargets,
    pub request_body_bytes: usize,
    /// Whether connections were kept open between requests.
    pub keepalive: bool,
    #[serde(default)]
    pub tls: Tls,
    #[serde(default)]
    pub http2: bool,
    #[serde(default)]
    pub http3: bool,
    /// Concurrent requests on each connection.
    #[serde(default = "one")]
    pub streams: usize,
    pub connections: usize,
    pub threads: usize,
    pub arrival: Arrival,
    /// Pause of each connection between requests.
    pub think_time: Option<ThinkTime>,
    pub duration_seconds: Option<f64>,
    pub requests: Option<u64>,
    /// Duration of the load before the measured window.
    pub warm_up_seconds: f64,
    pub timeout_seconds: f64,
}

fn one() -> usize {
    1
}

/// TLS handshakes of a run, within the measured window. Connections that are kept have theirs before it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TlsMade {
    /// Full handshakes, with certificates and signatures.
    pub full: u64,
    /// Handshakes that resumed an earlier session.
    pub resumed: u64,
    /// All handshakes divided by `measured_seconds`.
    pub handshakes_per_second: f64,
    /// Time of a handshake, after the TCP connect.
    pub handshake: Distribution,
    /// Agreed versions and cipher suites, also before the window: `TLSv1.3 TLS_AES_128_GCM_SHA256`.
    pub agreed: Vec<String>,
}

/// Figures of a run by one of its parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrokenDown {
    pub by: Breakdown,
    /// The rows that have a request.
    pub rows: Vec<BrokenDownRow>,
}

/// Figures of one part. A failed connect before a request was chosen is in no part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrokenDownRow {
    /// The part: `4xx`, a URL, a name, `2: 10s at 500/s`.
    pub name: String,
    /// Complete responses with status 2xx or 3xx.
    pub requests: u64,
    /// Failed requests, by any class of failure.
    pub failed: u64,
    /// `requests` per second of the run, or of the stage.
    pub requests_per_second: f64,
    /// Latency of `requests`, and the ages of unanswered ones; by status, of all complete responses.
    pub latency: Distribution,
}

/// Failed requests by class. None is counted as a success.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// Connections that could not be opened.
    pub connect: u64,
    /// Connections that ended or failed before the response was whole.
    pub read: u64,
    /// Requests that could not be sent.
    pub write: u64,
    /// Responses that were incomplete at the timeout. Their ages are censored times of `latency` and `service`.
    pub timeout: u64,
    /// Complete responses with a status other than 2xx and 3xx.
    pub status: u64,
    /// Responses that violate HTTP/1.1, HTTP/2 or HTTP/3.
    pub malformed: u64,
    /// Failed TLS handshakes, and invalid TLS records.
    #[serde(default)]
    pub tls: u64,
    /// HTTP/2 and HTTP/3: requests that the server reset, or rejected with GOAWAY.
    #[serde(default)]
    pub reset: u64,
    /// Redirects that were not followed: too many, or to a host that no URL of the run names.
    #[serde(default)]
    pub redirect: u64,
    /// Complete responses that miss a check of their request, or are unlike the first ones.
    #[serde(default)]
    pub check: u64,
}

/// Responses that miss a check of their request, or are unlike the first ones, by the kind of check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChecksMissed {
    pub status: u64,
    pub header: u64,
    pub size: u64,
    pub contains: u64,
    pub digest: u64,
}

impl ChecksMissed {
    pub fn by_kind(self) -> [(&'static str, u64); 5] {
        let Self { status, header, size, contains, digest } = self;
        [("status", status), ("header", header), ("size", size), ("contains", contains), ("digest", digest)]
    }

    /// Kinds that were missed, with their counts: `status 3, contains 1`; empty if none was.
    pub fn text(self) -> String {
        let missed = self.by_kind().into_iter().filter(|(_, count)| *count > 0);
        missed.map(|(kind, count)| format!("{kind} {count}")).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn count(&mut self, missed: Missed) {
        let count = match missed {
            Missed::Status => &mut self.status,
            Missed::Field(_) | Missed::Kind => &mut self.header,
            Missed::Size => &mut self.size,
            Missed::Contains(_) => &mut self.contains,
            Missed::Digest => &mut self.digest,
        };
        *count += 1;
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.status += other.status;
        self.header += other.header;
        self.size += other.size;
        self.contains += other.contains;
        self.digest += other.digest;
    }
}

impl Errors {
    pub fn total(&self) -> u64 {
        let Self { connect, read, write, timeout, status, malformed, tls, reset, redirect, check } = *self;
        connect + read + write + timeout + status + malformed + tls + reset + redirect + check
    }

    pub(crate) fn count(&mut self, class: ErrorClass) {
        let count = match class {
            ErrorClass::Connect => &mut self.connect,
            ErrorClass::Read => &mut self.read,
            ErrorClass::Write => &mut self.write,
            ErrorClass::Timeout => &mut self.timeout,
            ErrorClass::Status => &mut self.status,
            ErrorClass::Tls => &mut self.tls,
            ErrorClass::Reset => &mut self.reset,
            ErrorClass::Redirect => &mut self.redirect,
            ErrorClass::Malformed => &mut self.malformed,
            ErrorClass::Check => &mut self.check,
        };
        *count += 1;
    }

    /// Adds the failures of another thread or run.
    pub fn add(&mut self, other: &Self) {
        self.connect += other.connect;
        self.read += other.read;
        self.write += other.write;
        self.timeout += other.timeout;
        self.status += other.status;
        self.malformed += other.malformed;
        self.tls += other.tls;
        self.reset += other.reset;
        self.redirect += other.redirect;
        self.check += other.check;
    }
}

/// The class of a failure, described in [`Errors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorClass {
    Connect,
    Read,
    Write,
    Timeout,
    Status,
    Malformed,
    Tls,
    Reset,
    Redirect,
    Check,
}

/// Distribution of times, in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Number of recorded times. If 0, all other values are 0.
    pub count: u64,
    /// Number of censored times: the ages of unanswered requests, whose times are at least so long.
    #[serde(default)]
    pub censored: u64,
    /// Names of the figures that fall among censored times, so they are lower limits: `p99_us`, `max_us`.
    #[serde(default)]
    pub at_least: Vec<String>,
    /// Histogram of the censored times, in the form of `histogram`.
    #[serde(default)]
    pub censored_histogram: String,
    /// Minimum, of answers if there are any.
    pub min_us: u64,
    pub mean_us: f64,
    pub stdev_us: f64,
    pub p50_us: u64,
    pub p75_us: u64,
    pub p90_us: u64,
    pub p95_us: u64,
    pub p99_us: u64,
    pub p99_9_us: u64,
    pub p99_99_us: u64,
    pub max_us: u64,
    /// Number of times above the histogram's maximum (an hour), recorded as that maximum.
    pub clamped: u64,
    /// Complete HdrHistogram (3 significant digits, microseconds): base64 of its V2 deflate form; empty if `count` is
    /// 0. `Distribution::histogram` decodes it, so that runs can be merged.
    pub histogram: String,
}

/// Adherence to the schedule in a run with a rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScheduleKept {
    /// Requests that fell due in the window.
    pub due: u64,
    /// Requests of `due` that were sent before the window ended.
    pub sent_in_window: u64,
    /// Requests of `due` that were never sent.
    pub unsent: u64,
    /// How late the last request was sent.
    pub slip_us: u64,
    /// Actual rate of sending, from the start of the window to the last request.
    pub sent_per_second: f64,
    /// Requests that were due before a connection was free.
    pub waited_for_connection: u64,
    /// Lateness of every sent request, from due to sent: the wait for a free connection, and the generator's own delay.
    pub lateness: Distribution,
    /// The generator's own delay: from when the request was due and a connection free, until it was sent.
    pub own_lateness: Distribution,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// User and system CPU time.
    pub total_seconds: f64,
    /// `total_seconds` per complete response.
    pub us_per_request: f64,
    /// `total_seconds` divided by window and threads: 1 means that every load thread was always busy.
    pub utilisation: f64,
    /// Time that load threads were ready to run and waited for a core; 0 if the kernel does not report it.
    #[serde(default)]
    pub waited_seconds: f64,
}

/// CPU time and memory of the server's process and its children in the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerUsage {
    /// User and system CPU time, to hundredths of a second.
    pub cpu_seconds: f64,
    /// `cpu_seconds` per complete response.
    pub cpu_us_per_request: f64,
    /// Resident memory at the end.
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum RunProblem {
    /// The generator sent late although a connection was free: it had too little CPU time.
    GeneratorLate {
        /// 99th percentile of the generator's own delay.
        own_lateness_p99_us: u64,
        /// The allowed delay.
        limit_us: u64,
    },
    /// Requests were unanswered at the end, although they were much older than the slowest answer.
    Hung {
        unfinished: u64,
        /// Age of the oldest, without the time that the generator waited for a core.
        oldest_us: u64,
        /// Time of the slowest answer.
        slowest_us: u64,
    },
    /// The schedule was not kept: the last request was too late, or requests were never sent.
    RateMissed {
        /// Requests that fell due.
        due: u64,
        /// Requests of `due` that were never sent.
        unsent: u64,
        /// How late the last request was sent.
        slip_us: u64,
        /// The allowed lateness: a hundredth of the window.
        limit_us: u64,
        /// Sent requests that had to wait for a free connection.
        waited_for_connection: u64,
        #[serde(default)]
        by: MissedBy,
    },
    /// A generator of several was lost, and its part of the load is missing.
    AgentLost {
        /// The command that started it.
        command: String,
        why: String,
    },
}

/// The reason why a rate was missed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissedBy {
    /// No connection was free: the server was too slow for the rate, or there were too few connections.
    #[default]
    Server,
    /// Connections failed, and were retried after a pause.
    Errors,
    /// The generator had too little CPU time.
    Generator,
}
