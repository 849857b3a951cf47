//! How long each wait may take, how large or many each thing may be, what is shed, and what is logged.

use std::path::PathBuf;
use std::time::Duration;

use balance::ShedSettings;
use http2::FloodLimits;

/// How long each wait may take. All are kept to within a tenth of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request (or from accept) to the end of its head; then 408.
    pub client_header: Duration,
    /// Without a byte of request body from the client; then 408.
    pub client_body: Duration,
    /// Without a byte of the response taken by the client; then the connection is dropped.
    pub client_write: Duration,
    /// Idle between two requests; then closed.
    pub keep_alive: Duration,
    /// To establish a connection to a server; then 504 (after the other addresses of its name).
    pub upstream_connect: Duration,
    /// From the end of the request to the head of the response; then 504.
    pub upstream_first_byte: Duration,
    /// Without a byte of response body; then the response is cut.
    pub upstream_body: Duration,
    /// Without a byte in either direction of an upgraded connection; then closed.
    pub tunnel_idle: Duration,
    /// What a drain waits for at most.
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            client_header: Duration::from_secs(10),
            client_body: Duration::from_secs(30),
            client_write: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            upstream_connect: Duration::from_secs(5),
            upstream_first_byte: Duration::from_secs(60),
            upstream_body: Duration::from_secs(60),
            tunnel_idle: Duration::from_secs(3600),
            drain: Duration::from_secs(30),
        }
    }
}

/// How large or many each thing may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A message head, start line included; more is 431 (from a server 502).
    pub header_bytes: usize,
    /// Header fields of a message; more is 431 (from a server 502).
    pub header_count: usize,
    /// The request target; more is 414.
    pub target_bytes: usize,
    /// A request body; more is 413. `None` is no limit.
    pub body_bytes: Option<u64>,
    /// Client connections in all, over every worker; more are answered 503 and closed.
    pub connections: usize,
    /// Requests served on one client connection before it is closed. `None` is no limit.
    pub requests_per_connection: Option<u64>,
    /// A client that sends a body or takes a response more slowly than this, in bytes/s over `rate_window`, is
    /// dropped. 0 is no minimum.
    pub minimum_rate_bytes_per_second: u64,
    /// The span over which the minimum rate is judged.
    pub rate_window: Duration,
    /// What a connection of HTTP/2 may send of what costs it nothing.
    pub http2: Http2Limits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 64 * 1024,
            header_count: 256,
            target_bytes: 16 * 1024,
            body_bytes: None,
            connections: 100_000,
            requests_per_connection: None,
            minimum_rate_bytes_per_second: 64,
            rate_window: Duration::from_secs(20),
            http2: Http2Limits::default(),
        }
    }
}

/// What a connection of HTTP/2 may send of what costs it nothing; beyond that it is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2Limits {
    /// Within a second.
    pub floods: FloodLimits,
    /// How many times as much those of `Settings::trusted_proxies` may send.
    pub trusted_factor: u32,
}

impl Http2Limits {
    /// What a client may send.
    pub fn of(&self, is_trusted: bool) -> FloodLimits {
        self.floods.times(if is_trusted { self.trusted_factor } else { 1 })
    }
}

impl Default for Http2Limits {
    fn default() -> Self {
        Self { floods: FloodLimits::default(), trusted_factor: 100 }
    }
}

/// What is refused with 503 and Retry-After before everything gets slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shedding {
    /// How many requests may be under way with an upstream, found by each worker from how late answers come; `None` is no
    /// such limit.
    pub concurrency: Option<ShedSettings>,
    /// How much memory the process may use.
    pub memory: MemoryBound,
}

impl Default for Shedding {
    fn default() -> Self {
        Self { concurrency: Some(ShedSettings::default()), memory: MemoryBound::Auto }
    }
}

/// How much memory the process may use before new requests are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryBound {
    /// Three quarters of what the process may use: the least of its control groups' limits and the machine's memory.
    #[default]
    Auto,
    /// So much.
    Bytes(u64),
    /// No bound.
    Off,
}

/// What is written of messages to the operator, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Messages {
    /// A line each.
    pub format: MessageFormat,
    /// The least serious.
    pub level: MessageLevel,
}

/// The form of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessageFormat {
    /// The time, the level in brackets, the text.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

impl MessageFormat {
    /// All of them, by name.
    pub const NAMED: [(&'static str, Self); 2] = [("text", Self::Text), ("json", Self::Json)];
}

/// How serious a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessageLevel {
    /// Something is not done that should be.
    Error,
    /// Something is not as it should be, and goes on.
    Warn,
    /// Something has changed.
    #[default]
    Info,
}

impl MessageLevel {
    /// All of them, by name.
    pub const NAMED: [(&'static str, Self); 3] =
        [("error", Self::Error), ("warn", Self::Warn), ("info", Self::Info)];
}

/// Where requests are logged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// Standard output or a file.
    pub target: LogTarget,
    /// One line a request.
    pub format: LogFormat,
    /// What of query strings is in it.
    pub query: LogQuery,
}

impl AccessLog {
    /// A log with all that is known in it.
    pub fn new(target: LogTarget, format: LogFormat) -> Self {
        Self { target, format, query: LogQuery::Full }
    }
}

/// Where log lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Appended to this file.
    File(PathBuf),
}

/// What of query strings is logged, in targets and in Referer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LogQuery {
    /// All.
    #[default]
    Full,
    /// The names of parameters.
    Masked,
    /// Nothing.
    Omitted,
    /// All but the values of these parameters.
    Without(Vec<String>),
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// The Combined Log Format of Apache httpd.
    #[default]
    Combined,
    /// One JSON object a line, with timings and the cause of a failure.
    Json,
}
