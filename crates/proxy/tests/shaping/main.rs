//! A network that is slower than the one there is. What is asserted of time is that nothing comes early; that nothing comes
//! late depends on the machine.

/// The proxy between a server and clients.
mod scene;
/// Limits on bandwidth.
mod rates;
/// What comes late.
mod delays;
/// Long links.
mod links;
/// The same over TLS and HTTP/2.
mod carried;
/// What is changed while bodies are under way.
mod changes;
/// The same by operators.
mod reshaped;
