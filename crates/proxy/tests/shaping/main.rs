//! A network that is slower than the one there is. What is asserted of time is that nothing comes early; that nothing comes
//! late depends on the machine.

/// The proxy between a server and clients.
mod scene;
/// The admin API, asked over its socket.
#[path = "../conversations/admin.rs"]
mod admin;
/// Frames, written and read by hand.
#[path = "../http2/frame.rs"]
#[allow(dead_code, reason = "shared with other conversations")]
mod frame;
/// One end of a connection of HTTP/2.
#[path = "../http2/end.rs"]
#[allow(dead_code, reason = "shared with other conversations")]
mod end;
/// One end of a connection of HTTP/1.
#[path = "../conversations/peer.rs"]
#[allow(dead_code, reason = "shared with other conversations")]
mod peer;
/// How bytes are shown and compared.
#[path = "../conversations/text.rs"]
#[allow(dead_code, reason = "shared with other conversations")]
mod text;
/// Certificates.
#[path = "../tls/made.rs"]
#[allow(dead_code, reason = "shared with other conversations")]
mod made;
/// TLS around such connections.
#[path = "../conversations/veiled.rs"]
mod veiled;
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
