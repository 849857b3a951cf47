//! Conversations: what a client sends, what a server receives and sends, and what comes back, byte for byte.
//!
//! A test is mostly a list of steps (`scene::Step`), executed in order by one thread. The order is never left to
//! chance, and no test depends on sleeping.

/// A proxy between a client and servers that follow a script.
mod scene;
/// Request bodies: their ends, and what follows.
mod requests;
/// Response bodies, in every framing and for every kind of client.
mod responses;
/// Interim responses, and 100-continue from end to end.
mod interim;
/// Forms of the target, Host, and routing.
mod targets;
/// Requests that are rejected before a server sees them.
mod refusals;
/// Responses that are rejected, and servers that break off.
mod faulty_servers;
/// Fields that end at this hop, and fields that it adds.
mod fields;
/// Upgraded connections.
mod tunnels;
/// Responses before the end of their request.
mod early;
/// Connections that end while their clients still send.
mod closing;
/// Closed connections with unread data.
mod leaving;
/// Connections to servers: reuse and retries.
mod pool;
/// Choice of servers, retries, and the queue.
mod fleet;
/// Time-outs.
mod timeouts;
/// Limits on sizes and numbers.
mod limits;
/// The end of a proxy.
mod drain;
/// Lines of the access log.
mod log;
/// The proxy's own responses: to requests with bodies, and to gRPC calls.
mod own;
/// The log of rejected messages.
mod detail;
/// Configuration changes.
mod reload;
