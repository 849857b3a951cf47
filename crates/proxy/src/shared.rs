//! State that outlives a plan and is shared by all workers, and small types of plans and stages. Does not know requests
//! or workers.

/// Bandwidth limits, and their totals.
pub(crate) mod limits;
/// Limits on clients and servers: sizes, minimum rate, time-outs.
pub(crate) mod client_limits;
/// The minimum rate of clients.
pub(crate) mod minimum_rate;
/// Limits on requests and connections under way.
pub(crate) mod concurrency;
/// Limits concurrent verifications of passwords.
pub(crate) mod verifier;
/// Limits the memory and disk space of kept bodies.
pub(crate) mod kept_bytes;
/// Captures of running traffic.
pub mod captures;
/// Maps with operators' changes.
pub mod live_maps;
/// Sampling of traces, and the channel of spans to the collector.
pub mod tracing;
/// The files of a route.
pub(crate) mod route_files;
/// Findings of authentication about a client.
pub(crate) mod vouched;
/// The fields of a head, for look-ups by name.
pub(crate) mod request_fields;
/// State that a reload or an upgrade carries over.
pub mod handover_state;
/// Measures how long the proxy holds a request.
pub(crate) mod waits;
/// Unpredictable random bytes.
pub(crate) mod secret;
