//! Messages on their way out: the plan of a response, its filters, and the writing of heads and bodies.

/// Decides how a response is sent, before its first byte leaves.
pub(crate) mod response_plan;
/// Edits of heads, by a route's policies.
pub(crate) mod edits;
/// Edits of requests for the cache and for tokens.
pub(crate) mod asking;
/// The proxy's member of Proxy-Status.
pub(crate) mod proxy_status;
/// Delays messages.
pub(crate) mod delay;
/// Content coding of complete bodies.
pub(crate) mod coded;
/// Injects faults into HTTP messages.
pub(crate) mod faults;
/// Decides which responses are timed as streams.
pub(crate) mod streams;
/// Writes bodies that are in memory.
pub(crate) mod sink;
/// Writes to a client within its limits.
pub(crate) mod send;
