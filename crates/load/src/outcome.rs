//! What a run measured: the schema of `vanward load --json`.
//!
//! The schema is versioned and only grows: fields keep their names and units, readers ignore those they don't
//! know. Every number is finite; where nothing was measured, counts and values are 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::{Arrival, Tls};

/// The version of this schema. It changes when a field changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// All that a run measured, within the measured window (the warm-up is not in it).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// `SCHEMA` when this was written.
    pub schema: u32,
    /// Version of the generator.
    pub version: String,
    /// When the measured window began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// What was asked.
    pub settings: Settings,
    /// From the start of the measured window to its end. With a rate the requests that are under way or overdue
    /// when the schedule ends are waited for, for less than a second, and then this lasts until the last one.
    pub measured_seconds: f64,
    /// Whether the run was stopped before its end.
    pub interrupted: bool,
    /// Why the run ended before its number of requests, where the server was gone: nothing was answered any more, and
    /// everything failed.
    #[serde(default)]
    pub server_gone: Option<String>,
    /// Whole responses with a status of 2xx or 3xx. Only these are in the distributions.
    pub requests: u64,
    /// `requests` by `measured_seconds`.
    pub requests_per_second: f64,
    /// Bytes received, heads and HTTP/2 frames included; of TLS what was in its records.
    pub bytes_received: u64,
    /// Bytes of response bodies, without chunk framing.
    pub body_bytes: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Whole responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// What failed, by class.
    pub errors: Errors,
    /// The first failure of each class, in words.
    pub error_examples: BTreeMap<ErrorClass, String>,
    /// Requests under way when the run ended. They are in no other figure.
    pub unfinished: u64,
    /// How long the oldest of these had been under way: what hangs is longer than the slowest response.
    #[serde(default)]
    pub oldest_unfinished_us: u64,
    /// Connections opened in the window.
    pub connections_opened: u64,
    /// HTTP/2: streams that the server refused without a look at them, and that were sent again when another was over. They
    /// are no errors.
    #[serde(default)]
    pub streams_refused: u64,
    /// The headline. With a rate from when the request was due, otherwise from when it was sent, to the end of
    /// the response. A request that has to connect first counts from its connect.
    pub latency: Distribution,
    /// From sent to done, whatever the arrival. The same as `latency` without a rate.
    pub service: Distribution,
    /// From sent to the first byte of the response.
    pub first_byte: Distribution,
    /// From connect to connected; a TLS handshake is not in it.
    pub connect: Distribution,
    /// With `https` URLs: the TLS handshakes of the window.
    #[serde(default)]
    pub tls: Option<TlsMade>,
    /// With a rate: how the schedule was kept.
    pub schedule: Option<ScheduleKept>,
    /// What the generator itself used.
    pub cpu: Cpu,
    /// Why the run must not be believed; empty when it may be.
    pub problems: Vec<Problem>,
}

impl Outcome {
    /// Whether the figures may be believed.
    pub fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }
}

/// What was asked, as it was understood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The first URL.
    pub url: String,
    /// How many URLs there were.
    pub urls: usize,
    /// The seed they were shuffled with.
    pub shuffle_seed: Option<u64>,
    /// The request method.
    pub method: String,
    /// Header fields given.
    pub headers: Vec<String>,
    /// Size of the request body.
    pub request_body_bytes: usize,
    /// Whether connections were kept open between requests.
    pub keepalive: bool,
    /// How HTTPS was spoken.
    #[serde(default)]
    pub tls: Tls,
    /// Whether HTTP/2 was spoken.
    #[serde(default)]
    pub http2: bool,
    /// Requests under way at once on each connection.
    #[serde(default = "one")]
    pub streams: usize,
    /// Connections over all threads.
    pub connections: usize,
    /// OS threads.
    pub threads: usize,
    /// When requests were sent.
    pub arrival: Arrival,
    /// The duration asked for.
    pub duration_seconds: Option<f64>,
    /// The number of requests asked for.
    pub requests: Option<u64>,
    /// Load before the measured window.
    pub warm_up_seconds: f64,
    /// When a request is given up.
    pub timeout_seconds: f64,
}

/// What earlier versions could do.
fn one() -> usize {
    1
}

/// The TLS handshakes of a run, within the measured window. Connections that are kept make theirs before it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TlsMade {
    /// Handshakes with certificates and signatures.
    pub full: u64,
    /// Those that resumed the session of an earlier connection.
    pub resumed: u64,
    /// Both, by `measured_seconds`.
    pub handshakes_per_second: f64,
    /// From connected to the end of the handshake.
    pub handshake: Distribution,
    /// What was agreed on, before the window too: `TLSv1.3 TLS_AES_128_GCM_SHA256`, for each that there was.
    pub agreed: Vec<String>,
}

/// Failed requests by class; none is counted as a success.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// Connections that could not be opened.
    pub connect: u64,
    /// Connections that ended or failed before the response was whole.
    pub read: u64,
    /// Requests that could not be sent.
    pub write: u64,
    /// Responses that were not whole in time: they are in no distribution.
    pub timeout: u64,
    /// Whole responses with a status other than 2xx and 3xx.
    pub status: u64,
    /// Responses that break HTTP/1.1 or HTTP/2.
    pub malformed: u64,
    /// TLS handshakes that failed, and records that were not right.
    #[serde(default)]
    pub tls: u64,
    /// HTTP/2: requests that the server reset, or refused with GOAWAY.
    #[serde(default)]
    pub reset: u64,
}

impl Errors {
    /// All of them.
    pub fn total(&self) -> u64 {
        let Self { connect, read, write, timeout, status, malformed, tls, reset } = *self;
        connect + read + write + timeout + status + malformed + tls + reset
    }

    /// Adds those of another thread or run.
    pub fn add(&mut self, other: &Self) {
        self.connect += other.connect;
        self.read += other.read;
        self.write += other.write;
        self.timeout += other.timeout;
        self.status += other.status;
        self.malformed += other.malformed;
        self.tls += other.tls;
        self.reset += other.reset;
    }
}

/// The class of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorClass {
    /// The connection could not be opened.
    Connect,
    /// The connection ended or failed before the response was whole.
    Read,
    /// The request could not be sent.
    Write,
    /// The response was not whole in time.
    Timeout,
    /// The response is whole, its status is not 2xx or 3xx.
    Status,
    /// The response breaks HTTP/1.1 or HTTP/2.
    Malformed,
    /// The TLS handshake failed, or a record was not right.
    Tls,
    /// HTTP/2: the server reset the request, or refused it with GOAWAY.
    Reset,
}

/// How times are spread, in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// How many times were recorded; where 0, the rest is 0 too.
    pub count: u64,
    /// The least.
    pub min_us: u64,
    /// Their mean.
    pub mean_us: f64,
    /// Their standard deviation.
    pub stdev_us: f64,
    /// Half of them took at most this.
    pub p50_us: u64,
    /// 75 in 100.
    pub p75_us: u64,
    /// 90 in 100.
    pub p90_us: u64,
    /// 95 in 100.
    pub p95_us: u64,
    /// 99 in 100.
    pub p99_us: u64,
    /// 999 in 1,000.
    pub p99_9_us: u64,
    /// 9,999 in 10,000.
    pub p99_99_us: u64,
    /// The most.
    pub max_us: u64,
    /// Times above what the histogram holds (an hour), recorded as that.
    pub clamped: u64,
    /// The whole HdrHistogram (3 significant digits, microseconds): base64 of its V2 deflate form; empty where
    /// `count` is 0. `Distribution::histogram` decodes it, so that runs can be merged.
    pub histogram: String,
}

/// How the schedule of a run with a rate was kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScheduleKept {
    /// Requests that fell due in the window.
    pub due: u64,
    /// Of these, sent before the window ended.
    pub sent_in_window: u64,
    /// Of these, never sent.
    pub unsent: u64,
    /// How late the last request was sent.
    pub slip_us: u64,
    /// The rate at which they were sent, from the start of the window to the last one.
    pub sent_per_second: f64,
    /// Requests that were due before any connection was free.
    pub waited_for_connection: u64,
    /// From due to sent, of every request sent: waiting for a free connection, and the generator's own delay.
    pub lateness: Distribution,
    /// The generator's own delay: from when the request was due and a connection free, to sent.
    pub own_lateness: Distribution,
}

/// Processor time that the load threads used in the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// User and system time.
    pub total_seconds: f64,
    /// `total_seconds` for each whole response, in microseconds.
    pub us_per_request: f64,
    /// `total_seconds` by window and threads: 1 is every load thread busy all the time.
    pub utilisation: f64,
    /// Time that the load threads had something to do and no core to do it on; 0 where the kernel does not tell.
    #[serde(default)]
    pub waited_seconds: f64,
}

/// Why a run must not be believed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Problem {
    /// The generator sent late, although a connection was free: it was short of processor time.
    GeneratorLate {
        /// 99 in 100 requests were at most this late by the generator's own fault.
        own_lateness_p99_us: u64,
        /// What was allowed.
        limit_us: u64,
    },
    /// The schedule was not kept: the last request was sent too late, or some were never sent.
    RateMissed {
        /// Requests that fell due.
        due: u64,
        /// Of these, never sent.
        unsent: u64,
        /// How late the last request was sent.
        slip_us: u64,
        /// What was allowed: a hundredth of the window.
        limit_us: u64,
        /// Of those sent, how many had to wait for a free connection.
        waited_for_connection: u64,
        /// Whose fault it was.
        #[serde(default)]
        by: MissedBy,
    },
}

/// Why a rate was missed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissedBy {
    /// No connection was free: the server was too slow for the rate, or the connections too few.
    #[default]
    Server,
    /// Connections failed, and were tried again after a pause.
    Errors,
    /// The generator was short of processor time.
    Generator,
}
