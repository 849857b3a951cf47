//! The data that travels with a request: the plan, the exchange's memory, failures, the record for the log.
//!
//! Steps of the exchange read and fill it. It has no steps itself.

/// Edits that the cache makes to a request for a server.
pub(crate) mod asking;
/// A client's connection, as data.
pub(crate) mod client;
/// Coders of bodies, and those that a worker keeps.
pub(crate) mod coders;
/// A client's TLS session and certificate.
pub(crate) mod client_tls;
/// The context of a request, and the decisions about it.
pub(crate) mod exchange;
/// The state by which the steps of an exchange decide.
pub(crate) mod exchange_state;
/// The memory of a running exchange, kept for the next one.
pub(crate) mod exchange_slot;
/// The detail of a refused message, for the log.
pub(crate) mod explain;
/// Table of failures: status, log word, text for the client.
pub mod failure;
/// How many failed handshakes a worker reports.
pub(crate) mod handshake_notices;
/// What all kept bodies of the process take, and each one's share of that.
pub(crate) mod kept_bytes;
/// The original connection that a PROXY header describes.
pub(crate) mod original_connection;
/// A listener, for as long as the process listens on it.
pub mod listening;
/// State that a reload or an upgrade carries over.
pub mod handover_state;
/// The minimum rate at which a client must send and receive.
pub(crate) mod minimum_rate;
/// The access log as a worker has it.
pub(crate) mod logging;
/// The configuration, compiled for the request path.
pub mod plan;
/// Whether memory is short.
pub mod pressure;
/// What Proxy-Status says of a response.
pub(crate) mod proxy_status;
/// The record of a request, for the log.
pub(crate) mod record;
/// A call of gRPC-Web that goes on as gRPC.
pub(crate) mod web_call;
/// Requests under way, and clients with the most requests, for who watches.
pub mod under_way;
/// Traces: which are recorded, and their spans.
pub mod tracing;
/// IDs of requests.
pub(crate) mod request_id;
/// QUIC endpoints of a worker.
pub(crate) mod quic_hosts;
/// The processes of an upgrade that share QUIC sockets.
pub mod quic_processes;
/// A clock that is cheap and behind.
pub(crate) mod coarse_clock;
/// For how long a request waits for its client or for servers.
pub(crate) mod waits;
/// A request as routes see it.
pub(crate) mod seen;
/// The plan as one worker uses it.
pub(crate) mod snapshot;
/// What an authentication has found out about a client.
pub(crate) mod vouched;
/// The state that one worker owns.
pub mod worker;
