//! Settings of time-outs, limits, shedding, messages and the access log.

use std::path::PathBuf;
use std::time::Duration;

use balance::ShedSettings;
use http2::FloodLimits;
use logline::{Format, Masks};
use shape::Share;

/// Time-outs. All are kept to within a tenth of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request (or from accept) to the end of its head; then 408.
    pub client_header: Duration,
    /// Without a byte of request body from the client; then 408.
    pub client_body: Duration,
    /// Without a byte of the response taken by the client; then the connection is dropped.
    pub client_write: Duration,
    /// Idle between two requests; then the connection is closed.
    pub keep_alive: Duration,
    /// To establish a connection to a server; then 504 (after the other addresses of its name).
    pub upstream_connect: Duration,
    /// From the end of the request to the head of the response; then 504.
    pub upstream_first_byte: Duration,
    /// Without a byte of response body; then the response is cut off.
    pub upstream_body: Duration,
    /// Without a byte of the request body taken by the server; then 504. `None` means `upstream_body`.
    pub upstream_send: Option<Duration>,
    /// Without a byte in either direction of an upgraded connection; then it is closed.
    pub tunnel_idle: Duration,
    /// The longest time that a drain waits for requests to finish.
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
            upstream_send: None,
            tunnel_idle: Duration::from_secs(3600),
            drain: Duration::from_secs(30),
        }
    }
}

/// Limits on sizes and counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The bytes of a message head, start line included. Above: 431 (from a server 502).
    pub header_bytes: usize,
    /// The header fields of a message. Above: 431 (from a server 502).
    pub header_count: usize,
    /// The bytes of the request target. Above: 414.
    pub target_bytes: usize,
    /// The bytes of a request body. Above: 413. `None` means no limit.
    pub body_bytes: Option<u64>,
    /// Client connections over all workers. Above: 503, and the connection is closed.
    pub connections: usize,
    /// Requests per client connection before it is closed. `None` means no limit.
    pub requests_per_connection: Option<u64>,
    /// The minimum rate of a client that sends a body or takes a response, over `rate_window`; slower ones are dropped.
    /// 0 means no minimum.
    pub minimum_rate_bytes_per_second: u64,
    /// The time over which the minimum rate is measured.
    pub rate_window: Duration,
    /// Limits on HTTP/2 frames that cost their sender next to nothing.
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

/// Limits on HTTP/2 frames that cost their sender next to nothing. Above, the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2Limits {
    /// The limits per second.
    pub floods: FloodLimits,
    /// The factor by which clients in `Settings::trusted_proxies` may exceed the limits.
    pub trusted_factor: u32,
}

impl Http2Limits {
    /// The limits for a client.
    pub fn of(&self, is_trusted: bool) -> FloodLimits {
        self.floods.times(if is_trusted { self.trusted_factor } else { 1 })
    }
}

impl Default for Http2Limits {
    fn default() -> Self {
        Self { floods: FloodLimits::default(), trusted_factor: 100 }
    }
}

/// Load shedding: requests are rejected early with 503 and Retry-After, so that not all get slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shedding {
    /// The adaptive concurrency limit of each worker per upstream, based on latencies; `None` turns it off.
    pub concurrency: Option<ShedSettings>,
    /// The memory limit from which new requests are rejected.
    pub memory: MemoryBound,
}

impl Default for Shedding {
    fn default() -> Self {
        Self { concurrency: Some(ShedSettings::default()), memory: MemoryBound::Auto }
    }
}

/// The memory of the process from which new requests are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryBound {
    /// Three quarters of the available memory: the lowest limit of its control groups, or the machine's memory.
    #[default]
    Auto,
    /// A number of bytes.
    Bytes(u64),
    /// No limit.
    Off,
}

/// Format and level of the messages to the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Messages {
    /// The format; one line per message.
    pub format: MessageFormat,
    /// The lowest level that is written.
    pub level: MessageLevel,
}

/// The format of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessageFormat {
    /// Text: time, level in brackets, message.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

impl MessageFormat {
    /// All formats, by name.
    pub const NAMED: [(&'static str, Self); 2] = [("text", Self::Text), ("json", Self::Json)];
}

/// The level of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessageLevel {
    /// Something that should happen does not.
    Error,
    /// Something is wrong, but the proxy continues.
    Warn,
    /// Something has changed.
    #[default]
    Info,
}

impl MessageLevel {
    /// All levels, by name.
    pub const NAMED: [(&'static str, Self); 3] =
        [("error", Self::Error), ("warn", Self::Warn), ("info", Self::Info)];
}

/// The access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// The destination: standard output or a file.
    pub target: LogTarget,
    /// The format; one line per request.
    pub format: Format,
    /// What is hidden in lines.
    pub masks: Masks,
    /// What syslog messages say, if the target is a receiver of such.
    pub syslog: SyslogOptions,
    /// When the file is followed by a new one, if the target is a file.
    pub rotation: Option<LogRotation>,
}

impl AccessLog {
    /// An access log with full query strings and addresses.
    pub fn new(target: LogTarget, format: Format) -> Self {
        Self { target, format, masks: Masks::default(), syslog: SyslogOptions::default(), rotation: None }
    }
}

/// Which requests of a route are in the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteLog {
    /// All of them.
    All,
    /// None, also of those that fail.
    Off,
    /// This share, and all those that fail or are answered with 5xx.
    Share(Share),
}

/// The destination of the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file, to which lines are appended.
    File(PathBuf),
    /// The journal of systemd.
    Journal,
    /// A syslog receiver.
    Syslog(SyslogReceiver),
}

/// A syslog receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyslogReceiver {
    /// A datagram socket of this machine.
    Unix(PathBuf),
    /// A receiver at a host, an address or a name, and a port.
    Host(SyslogTransport, String, u16),
}

/// How messages get to a syslog receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyslogTransport {
    /// RFC 5426.
    Udp,
    /// RFC 6587, with the length of each message in front.
    Tcp,
    /// RFC 5425.
    Tls,
}

impl SyslogTransport {
    /// All of them with their names and usual ports.
    pub const NAMED: [(&'static str, Self, u16); 3] =
        [("udp", Self::Udp, 514), ("tcp", Self::Tcp, 601), ("tls", Self::Tls, 6514)];
}

/// What syslog messages say of themselves, and how their receiver is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyslogOptions {
    /// The facility, 0 to 23.
    pub facility: u8,
    /// The severity, 0 to 7.
    pub severity: u8,
    /// APP-NAME: 1 to 48 printable ASCII characters.
    pub app_name: String,
    /// The CA that signs the receiver's certificate, in PEM; `None` means the system's roots.
    pub ca: Option<PathBuf>,
}

impl Default for SyslogOptions {
    fn default() -> Self {
        Self { facility: 16, severity: 6, app_name: "vanward".to_owned(), ca: None }
    }
}

/// When a file of the log is followed by a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRotation {
    /// Before it would have more bytes than this.
    pub bytes: Option<u64>,
    /// With the first line of each period, counted from 1970 in UTC.
    pub every: Option<Duration>,
    /// How many former files are kept.
    pub keep: u32,
}
