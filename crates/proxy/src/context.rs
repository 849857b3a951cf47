//! The data that travels with a request: the plan, the exchange's memory, failures, the record for the log.
//!
//! Steps read and fill what is here. No step is here.

/// What the cache changes in a request to a server.
pub(crate) mod asking;
/// A client's connection, as data.
pub(crate) mod client;
/// What a client's TLS says about the client.
pub(crate) mod client_tls;
/// What surrounds a request, and what is decided about it.
pub(crate) mod exchange;
/// What the steps of an exchange decide by.
pub(crate) mod exchange_state;
/// The memory of a running exchange, kept for the next one.
pub(crate) mod exchange_slot;
/// The detail of a refused message, for the log.
pub(crate) mod explain;
/// What can go wrong, with its status and its text.
pub mod failure;
/// How many failed handshakes a worker reports.
pub(crate) mod handshake_notices;
/// What the PROXY protocol says of a connection.
pub(crate) mod original_connection;
/// A listener, for as long as the process listens on it.
pub mod listening;
/// State that a process goes on with after a reload or an upgrade.
pub mod handover_state;
/// The slowest that a client may be.
pub(crate) mod minimum_rate;
/// The configuration, compiled for the request path.
pub mod plan;
/// Whether memory is short.
pub mod pressure;
/// The record of a request, for the log.
pub(crate) mod record;
/// What routes see of a request.
pub(crate) mod seen;
/// The plan as one worker uses it.
pub(crate) mod snapshot;
/// What one core owns.
pub mod worker;
