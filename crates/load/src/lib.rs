//! The load generator: arrival schedule, send, check, record.
//!
//! It talks to any server of HTTP/1.1 or HTTP/2, plain or over TLS, and shares no code with the proxy it measures: the
//! reader of its responses is its own. What single requests did is in the `Outcome`; only a run that cannot start is an `Error`.

/// What a run is asked to do.
mod plan;
/// Where requests go, and their bytes.
mod target;
/// Seeded randomness.
mod random;
/// When requests fall due, and who sends them. Pure.
mod schedule;
/// The threads of a run, its start and its end.
mod run;
/// What one load thread owns.
mod worker;
/// Turns for the connections, as they are free or as requests fall due.
mod arrivals;
/// Opens connections: TCP, and the TLS handshake on it.
mod connect;
/// What requests travel over: TCP, or TLS on it.
mod transport;
/// TLS settings to a configuration.
mod tls;
/// A TLS connection's records.
mod secure;
/// One connection of HTTP/1.1: send, receive, record.
mod send;
/// Many requests at once on connections of HTTP/2.
mod multiplex;
/// How many at once the server takes.
mod slots;
/// Whether the server is gone. Pure.
mod vigil;
/// Why a request failed, and the pause after that.
mod failure;
/// The time-out of a connection.
mod give_up;
/// Reads and checks responses. Pure.
mod check;
/// The framing of chunked bodies. Pure.
mod chunked;
/// What a thread counts.
mod record;
/// From records to the outcome, and whether it is valid.
mod summary;
/// What a run measured.
mod outcome;
/// The outcome for people, and the HdrHistogram percentile format.
mod text;
/// Why a run could not be started.
mod error;

pub use error::Error;
pub use outcome::{
    Cpu, Distribution, ErrorClass, Errors, MissedBy, Outcome, Problem, SCHEMA, ScheduleKept, Settings,
    TlsMade,
};
pub use plan::{Arrival, CONNECTIONS_MAX, Plan, STREAMS_MAX, THREADS_MAX, Tls, TlsVersion, URLS_MAX};
pub use run::{Control, Progress, Running, run, start};
pub use text::{percentiles, report};
