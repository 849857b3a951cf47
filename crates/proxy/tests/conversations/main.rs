//! Conversations: what a client says, what a server sees and says, and what comes back, byte for byte.
//!
//! A test is mostly a list of steps (`scene::Step`), carried out one after the other by one thread: what happens
//! first is never left to chance, and nothing sleeps to be right.

/// A proxy between a client and servers that follow a script.
mod scene;
/// Bodies of requests: where they end, and what follows them.
mod requests;
/// Bodies of responses, in every framing and for every kind of client.
mod responses;
/// Interim responses, and 100-continue from end to end.
mod interim;
/// Forms of the target, Host, and where a request goes.
mod targets;
/// Requests that are refused before a server hears of them.
mod refusals;
/// Responses that are refused, and servers that break off.
mod faulty_servers;
/// Fields that end at this hop, and those that it adds.
mod fields;
/// Upgraded connections.
mod tunnels;
/// Responses that come before their request has ended.
mod early;
/// Connections that end while their clients still send.
mod closing;
/// What is left of connections that are closed.
mod leaving;
/// Connections to servers: reuse, retries, and which server is next.
mod pool;
/// Which server is asked, how often, and who waits for it.
mod fleet;
/// What takes too long.
mod timeouts;
/// What is too large or too many.
mod limits;
/// The end of a proxy.
mod drain;
/// Lines of the access log.
mod log;
/// Answers of the proxy's own: to requests with bodies, and to calls of gRPC.
mod own;
/// What the log tells of messages that are refused.
mod detail;
/// From one configuration to the next.
mod reload;
