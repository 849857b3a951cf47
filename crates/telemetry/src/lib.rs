//! Telemetry of the proxy: an access log that never makes a request wait, messages, counters, and metrics as text.
//!
//! Not here: what counts as a failure and its log word (the proxy decides), and any network (others serve the text).

/// The access logs together.
mod logs;
/// One access log: hands lines from the workers to the writer thread.
mod log;
/// The thread that writes the access log.
mod writer;
/// Lines to files and streams, and rotation.
mod file;
/// Lines to a syslog receiver.
mod syslog;
/// Lines to the journal of systemd.
mod journal;
/// Messages to the operator, on standard error.
pub mod message;
/// Counters that one worker writes and any thread reads.
mod counters;

/// Exemplars of histograms.
mod exemplars;
/// Histograms of durations.
mod histogram;
/// The counters of each route, listener, upstream and server.
mod series;
/// Assigns names to places in the counters, over reloads.
mod directory;
/// Samples of the totals, for rates and quantiles of the last minute.
mod history;
/// The last hour in points of five seconds.
mod hour;
/// The clients with the most requests.
mod busiest;
/// Trace contexts of requests.
mod trace;
/// Spans of traces, as messages of OTLP.
mod span;
/// Facts about the process from the system.
mod process;
/// Writes metric families in protobuf.
mod protobuf;
/// Writes metric families and samples.
mod text;
/// All metrics as text for Prometheus.
mod exposition;
/// Metrics of certificates.
mod certificates;
/// Metrics of what instances share.
mod shared;
/// Metrics of the cache.
mod cached;
/// Metrics of requests that the proxy makes beside those of clients.
mod beside;

pub use busiest::Busiest;
pub use cached::{CacheState, DiskState};
pub use certificates::CertificateSample;
pub use counters::{CAUSES_MAX, Causes, Counter, Counters, Fields, Gauge, Kind, Reader, Row, Snapshot};
pub use directory::{Directory, NAMED_MAX, Names, Places, ServerName, Totals};
pub use exemplars::{Exemplar, Exemplars};
pub use exposition::{Exposition, ServerHealthSample, ServerState};
pub use file::Rotation;
pub use histogram::{BUCKETS, Histogram};
pub use history::{History, Requests, SAMPLE_PERIOD, Sample};
pub use hour::{HOUR_POINTS, Point};
pub use log::Target;
pub use logline::hexadecimal;
pub use logline::{
    Addresses, ClientTls, Entry, Format, Headers, Injected, Lines as LogLines, Masks, More, Needs, Query,
    Retried, Version, WHOLE,
};
pub use logs::{AccessLog, WorkerLog};
pub use process::Process;
pub use series::{
    AuthCell, CacheCell, Classes, ListenerCell, MirrorCell, Place, Rare, RouteCell, Series, SeriesReader,
    ServerCell, Skip, Skipped, StreamCell, StreamKind, UpstreamCell,
};
pub use shared::SharedSample;
pub use span::{Attributes, Span, SpanKind, SpanSource, Spans, rejected_spans};
pub use syslog::{Receiver as SyslogReceiver, Syslog, SyslogTls};
pub use text::{Family, Label, Number, Syntax, Text, Type};
pub use trace::{B3Form, B3Lines, Caller, PARENT_LINE, Trace};
