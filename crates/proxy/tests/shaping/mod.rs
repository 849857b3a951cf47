//! Traffic shaping. Tests assert that nothing arrives early; lateness depends on the machine.

/// The proxy between a server and clients.
mod scene;
/// Limits on bandwidth.
mod rates;
/// Delays of messages.
mod delays;
/// Links with latency.
mod links;
/// Links under TLS and HTTP/2.
mod carried;
/// Changes while bodies are under way.
mod changes;
/// Changes by operators.
mod reshaped;
