//! Data that stages work with: the worker that runs them, the plan, the client, the request and its buffers.
//!
//! Contains no steps of an exchange.

/// A client's connection, as data.
pub(crate) mod client;
/// A client's TLS session and certificate.
pub(crate) mod client_tls;
/// The context of a request, and the decisions about it.
pub(crate) mod routed;
/// The memory of a running exchange, kept for the next one.
pub(crate) mod exchange_slot;
/// The original connection that a PROXY header describes.
pub(crate) mod original_connection;
/// Collects what the next process takes over.
mod handover;
/// The configuration, compiled for the request path.
pub mod plan;
/// Live requests, and the clients with the most requests.
pub mod under_way;
/// The last failed requests.
pub(crate) mod recent_errors;
/// A worker's QUIC endpoints.
pub(crate) mod quic_hosts;
/// A request as routes see it.
pub(crate) mod seen;
/// Conditions that are evaluated after authentication, or with the response.
pub(crate) mod later;
/// A worker's copies of conditions.
pub(crate) mod worker_conditions;
/// Values of a request, for templates and keys.
pub(crate) mod request_values;
/// A plan as one worker uses it.
pub(crate) mod snapshot;
/// The state of one worker.
pub mod worker;
