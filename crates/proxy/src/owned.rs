//! A worker's clock, log, and view of memory and other processes.

/// A cheap clock that may be slightly late.
pub(crate) mod coarse_clock;
/// A worker's access log.
pub(crate) mod logging;
/// Limits reports of failed handshakes.
pub(crate) mod handshake_notices;
/// Whether memory is short.
pub mod pressure;
/// The processes of an upgrade that share QUIC sockets.
pub mod quic_processes;
/// Memory for the records of FastCGI requests.
pub(crate) mod record_scratch;
