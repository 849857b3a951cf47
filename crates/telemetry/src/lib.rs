//! Telemetry of the proxy: an access log that never makes a request wait, messages, counters, and metrics as text.
//!
//! Not here: the definition of failures and their log words (the proxy decides), and any network (others serve the
//! text).

/// The access logs together.
mod logs;
/// An access log: hands lines from the workers to the writer thread.
mod log;
/// The thread that writes the access log.
mod writer;
/// Writes lines to files and streams, and rotates them.
mod file;
/// Sends lines to a syslog receiver.
mod syslog;
/// Sends lines to the journal of systemd.
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
/// The wire format of Protocol Buffers.
pub mod wire;
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
/// Metrics of sharing between instances.
mod shared;
/// Metrics of maps.
mod maps;
/// Metrics of sources: discovery of servers, shared configuration.
mod sources;
/// Metrics of the cache.
mod cached;
/// Metrics of the proxy's own requests.
mod beside;

pub use busiest::Busiest;
pub use cached::{CacheState, DiskState};
pub use certificates::CertificateSample;
pub use counters::{
    CAUSES_MAX, Causes, Counter, CounterReader, CounterRow, Counters, Fields, Gauge, MetricKind, Snapshot,
};
pub use directory::{CounterPlaces, Directory, NAMED_MAX, PlanNames, ServerName, Totals};
pub use exemplars::{Exemplar, Exemplars};
pub use exposition::{Exposition, ServerHealthSample, ServerState};
pub use file::Rotation;
pub use histogram::{BUCKETS, Histogram};
pub use history::{History, HistorySample, RequestClasses, SAMPLE_PERIOD};
pub use hour::{HOUR_POINTS, SamplePoint};
pub use log::LogDestination;
pub use logline::hexadecimal;
pub use logline::{
    Addresses, Headers, Injected, LineFormat, LineWriter as LogLines, LogEntry, LoggedQuery, LoggedTls,
    LoggedVersion, Masks, More, Needs, Retried, WHOLE,
};
pub use logs::{AccessLog, WorkerLog};
pub use maps::MapSample;
pub use process::ProcessState;
pub use series::{
    AuthCell, CacheCell, Classes, ListenerCell, MirrorCell, Rare, RouteCell, Series, SeriesIndex,
    SeriesReader, ServerCell, Skip, Skipped, StreamCell, StreamKind, UpstreamCell,
};
pub use shared::SharedSample;
pub use sources::{ConfigurationSample, SourceSample};
pub use span::{Attributes, EndedSpan, SpanKind, SpanSource, Spans, rejected_spans};
pub use syslog::{Receiver as SyslogReceiver, Syslog, SyslogTls, host_name};
pub use text::{Family, Label, MetricsText, Number, Syntax, Type};
pub use trace::{B3Form, B3Lines, Caller, PARENT_LINE, Trace};
