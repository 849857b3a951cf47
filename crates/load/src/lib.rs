//! Load generator: arrival schedule, send, check, record.
//!
//! It works with any HTTP/1.1, HTTP/2 or HTTP/3 server, with or without TLS. It shares no code with the proxy. Failures
//! of requests are counted in the `Outcome`; an `Error` means that the run could not start.

/// Settings of a run.
mod plan;
/// Parses URLs, and references relative to them.
mod url;
/// Requests of a list, their weights and checks.
mod listed;
/// Text with values that differ each time. No I/O.
mod template;
/// Requests with templates.
mod fill;
/// Reads lists of requests.
pub mod requests;
/// Checks of responses. No I/O.
mod watch;
/// Common properties of the responses to a request. No I/O.
mod page;
/// Renders requests.
mod form;
/// Targets of connections: `--resolve`, `--connect-to`, `--unix-socket`.
mod directions;
/// The addresses of a server, which connections take in turn.
mod addresses;
/// Servers and requests of a run.
mod target;
/// Seeded randomness.
mod random;
/// Rates that change: due times of the requests of stages. No I/O.
mod stages;
/// Schedule of the requests, and which connection sends each. No I/O.
mod schedule;
/// Starts and ends the threads of a run.
mod run;
/// State of one load thread.
mod worker;
/// Turns for connections: when each may send.
mod arrivals;
/// Pauses of connections between requests.
mod think;
/// Opens connections: TCP and the TLS handshake.
mod connect;
/// Connection of a sender: TCP, with or without TLS.
mod transport;
/// TLS configuration of a run.
mod tls;
/// TLS connection: encrypts and decrypts records.
mod secure;
/// Cookies of a user. No clock.
mod cookies;
/// A request with its cookies and redirects.
mod visit;
/// Sender of an HTTP/1.1 connection.
mod send;
/// Senders of an HTTP/2 or HTTP/3 connection.
mod multiplex;
/// HTTP/2 connections of a client. No I/O.
mod http2;
/// HTTP/3 connections of a client.
mod http3;
/// Streams in place of requests: server-sent events, WebSockets, gRPC.
mod stream;
/// Limit of concurrent requests of an HTTP/2 connection.
mod slots;
/// CPU time and memory of the server, if it is a process of this machine.
mod usage;
/// Detects a server that is gone. No I/O.
mod vigil;
/// Failures of requests, and the pauses after them.
mod failure;
/// Timeouts.
mod give_up;
/// Reads and checks responses. No I/O.
mod check;
/// Framing of chunked bodies. No I/O.
mod chunked;
/// Measurements of one thread.
mod record;
/// Measurements by status class, URL, name or stage.
mod breakdown;
/// Figures of each second, during a run.
mod seconds;
/// Figures of short slots of time, by when requests were due.
mod timeline;
/// Histograms as text.
mod histogram_text;
/// Combines the records of threads into the outcome, and judges its validity.
mod summary;
/// Several generators as one.
mod together;
/// Result of a run, the schema of `--json`.
mod outcome;
/// Prints the outcome as text, and in the HdrHistogram percentile format.
mod text;
/// Errors of a run that cannot start.
mod error;

pub use error::Error;
pub use listed::{Check, LISTED_MAX, Listed, WEIGHT_MAX};
pub use outcome::{
    BrokenDown, BrokenDownRow, ChecksMissed, Cpu, Distribution, ErrorClass, Errors, MissedBy, RunExpectation,
    RunOutcome, RunProblem, RunSettings, SCHEMA, ScheduleKept, ServerUsage, TlsMade,
};
pub use page::digest;
pub use plan::{
    Arrival, Breakdown, CONNECTIONS_MAX, ConnectTargets, LoadPlan, RateStage, Responses, STREAMS_MAX,
    THREADS_MAX, ThinkTime, Tls, TlsVersion, URLS_MAX,
};
pub use run::{RunControl, RunProgress, RunningLoad, check, run, start};
pub use seconds::{MeasuredSecond, Seconds, SecondsOf, ToldSecond, seconds_together};
pub use stream::{
    Call, MESSAGE_BYTES_MAX, StampFields, StreamCounts, StreamFigures, StreamMessage, StreamsPlan, Workload,
};
pub use summary::Percentile;
pub use text::{explained, percentiles, report};
pub use timeline::TimelineSlot;
