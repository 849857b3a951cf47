//! The tables `[limits]` and `[shed]`: limits, flood protection and load shedding.

use std::time::Duration;

use ::http2::FloodLimits;
use balance::ShedSettings;

use crate::document::reader::Reader;
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, Unless, quoted};
use crate::option::range::{Count, Unit, Wait};
use crate::option::section::{section, switched};
use crate::option::table::{Table, Written, key};

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
    pub fn for_is_trusted(&self, is_trusted: bool) -> FloodLimits {
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
    Bytes(u64),
    Off,
}

pub(crate) static LIMITS: Table<Limits> = Table {
    options: &[
        key!(
            "header_bytes",
            Count { range: 1024..=1 << 20, unit: Unit::Bytes },
            Limits.header_bytes,
            "Header section of a message, including the start line; above it 431, for a response 502.",
        ),
        key!(
            "header_count",
            Count { range: 1..=10_000, unit: Unit::Things },
            Limits.header_count,
            "Number of header fields in a message; above it 431, for a response 502.",
        ),
        key!(
            "target_bytes",
            Count { range: 64..=1 << 20, unit: Unit::Bytes },
            Limits.target_bytes,
            "Request target; above it 414.",
        ),
        key!(
            "body_bytes",
            Unless { word: "none", kind: Count { range: 0..=u64::MAX, unit: Unit::Bytes } },
            Limits.body_bytes,
            "Request body; above it 413. `\"none\"`: no limit.",
        ),
        key!(
            "connections",
            Count { range: 1..=10_000_000, unit: Unit::Things },
            Limits.connections,
            "Client connections in total; further ones get 503 and are closed.",
        ),
        key!(
            "requests_per_connection",
            Unless { word: "none", kind: Count { range: 1..=u64::MAX, unit: Unit::Things } },
            Limits.requests_per_connection,
            "Requests on a client connection before it is closed. `\"none\"`: no limit.",
        ),
        key!(
            "minimum_rate",
            Count { range: 0..=1_000_000_000, unit: Unit::BytesPerSecond },
            Limits.minimum_rate_bytes_per_second,
            "Minimum rate, averaged over `rate_window`, at which a client must send a request body or \
             accept a response; slower clients are disconnected. An upload counts only while \
             announced bytes are missing (of the body, a chunk or a frame). Time spent waiting \
             for the server does not count, nor does an upload while the response is sent. 0: \
             no minimum.",
        ),
        key!(
            "rate_window",
            Wait { range: Duration::from_secs(1)..=Duration::from_secs(3600) },
            Limits.rate_window,
            "Averaging period of `minimum_rate`.",
        ),
        section!(
            "http2",
            HTTP2_LIMITS,
            Limits.http2,
            "Flood protection: how many cheap frames an HTTP/2 connection may send per second. A \
                  connection that exceeds a limit is closed with all its streams, and the \
                  log says why. For connections to servers, only settings, pings, \
                  priorities and empty frames count."
        ),
    ],
};

pub(crate) static SHED: Table<Shedding> = Table {
    options: &[
        key!(
            "memory",
            MemoryKind,
            Shedding.memory,
            "Memory limit of the process; above it new requests are rejected. `\"auto\"`: three quarters \
             of what the control groups or the machine allow.",
        ),
        switched!(
            "concurrency",
            CONCURRENCY,
            Shedding.concurrency,
            "Adaptive limit on concurrent requests per upstream, in each worker. There is no limit \
                  while responses are fast. Once they are slow, the limit is as many as \
                  keep the servers busy without a queue."
        ),
    ],
};

pub(crate) static CONCURRENCY: Table<ShedSettings> = Table {
    options: &[
        key!(
            "latency_floor",
            Wait { range: Duration::from_millis(1)..=Duration::from_secs(3600) },
            ShedSettings.latency_floor,
            "Responses within this time are never slow.",
        ),
        key!(
            "tolerance",
            Count { range: 101..=10_000, unit: Unit::Percent },
            ShedSettings.tolerance_percent,
            "Responses within this percentage of the usual latency are not slow either.",
        ),
        key!(
            "min",
            Count { range: 1..=1_000_000, unit: Unit::Things },
            ShedSettings.min,
            "The limit never falls below this.",
        ),
        key!(
            "crowd",
            Count { range: 0..=1_000_000, unit: Unit::Things },
            ShedSettings.crowd,
            "Up to this number of waiting clients, reject requests only while more arrive than finish and \
             latency exceeds `crowd_latency`.",
        ),
        key!(
            "crowd_latency",
            Wait { range: Duration::from_millis(1)..=Duration::from_secs(3600) },
            ShedSettings.crowd_latency,
            "Latency that `crowd` accepts.",
        ),
        key!(
            "window",
            Wait { range: Duration::from_millis(10)..=Duration::from_secs(60) },
            ShedSettings.window,
            "Minimum time between two adjustments of the limit.",
        ),
        key!(
            "samples_min",
            Count { range: 1..=balance::SAMPLES_MAX as u64, unit: Unit::Things },
            ShedSettings.samples_min,
            "Minimum number of responses between two adjustments of the limit.",
        ),
    ],
};

/// `"auto"`, `"off"` or a size.
pub(crate) struct MemoryKind;

pub(crate) const MEMORY: Count = Count { range: 16 << 20..=u64::MAX, unit: Unit::Bytes };

impl Described for MemoryKind {
    fn form(&self) -> Form {
        let either = |size: String| format!("\"auto\", \"off\" or {size}");
        Form::brief(either(MEMORY.expected()), either(MEMORY.form().in_brief()))
    }
}

impl Kind<MemoryBound> for MemoryKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<MemoryBound> {
        match written.value.get_ref().as_str() {
            Some("auto") => Some(MemoryBound::Auto),
            Some("off") => Some(MemoryBound::Off),
            _ => MEMORY.read(written, reader).map(MemoryBound::Bytes),
        }
    }

    fn print(&self, bound: &MemoryBound) -> Option<String> {
        match bound {
            MemoryBound::Auto => Some(quoted("auto")),
            MemoryBound::Off => Some(quoted("off")),
            MemoryBound::Bytes(bytes) => MEMORY.print(bytes),
        }
    }
}

pub(crate) const PER_SECOND: Count = Count { range: 10..=1_000_000, unit: Unit::Things };

pub(crate) static HTTP2_LIMITS: Table<Http2Limits> = Table {
    options: &[
        key!(
            "resets_per_second",
            PER_SECOND,
            Http2Limits.floods.resets,
            "Requests that the client cancels before their response begins (rapid reset, CVE-2023-44487).",
        ),
        key!("settings_per_second", PER_SECOND, Http2Limits.floods.settings, "SETTINGS frames.",),
        key!(
            "pings_per_second",
            PER_SECOND,
            Http2Limits.floods.pings,
            "PING frames, in addition to one per DATA frame sent or received.",
        ),
        key!("priorities_per_second", PER_SECOND, Http2Limits.floods.priorities, "PRIORITY frames.",),
        key!(
            "empty_frames_per_second",
            PER_SECOND,
            Http2Limits.floods.empty_frames,
            "Empty DATA and CONTINUATION frames that end nothing.",
        ),
        key!(
            "errors_per_second",
            PER_SECOND,
            Http2Limits.floods.errors,
            "Streams reset because of the client's errors (CVE-2025-8671).",
        ),
        key!(
            "overhead_per_second",
            PER_SECOND,
            Http2Limits.floods.overhead,
            "Everything else that carries no data: WINDOW_UPDATE, unknown frame types, unrequested \
             acknowledgements, DATA that is mostly padding or for closed streams, requests \
             above the maximum of concurrent streams, and DATA under 256 bytes that the \
             client's small windows force us to send. Each request allows 4 of these, each \
             DATA frame sent 2 plus one per 512 bytes, each DATA frame received 1; only the \
             excess counts.",
        ),
        key!(
            "trusted_factor",
            Count { range: 1..=10_000, unit: Unit::Things },
            Http2Limits.trusted_factor,
            "Multiplies these limits for proxies of `trusted_proxies`, whose connections carry requests of \
             many clients.",
        ),
    ],
};
