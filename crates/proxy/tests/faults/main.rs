//! What goes wrong on purpose, as clients of both versions see it, and as operators change it.
//!
//! As in the other conversations one thread does one thing after the other, and nothing sleeps to be right.

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
/// The admin API, asked over its socket.
#[path = "../conversations/admin.rs"]
mod admin;
/// How bytes are shown and compared.
#[path = "../conversations/text.rs"]
#[allow(dead_code, reason = "shared with other conversations")]
mod text;
/// Certificates.
#[path = "../tls/made.rs"]
#[allow(dead_code, reason = "shared with other conversations")]
mod made;
/// TLS around connections.
#[path = "../conversations/veiled.rs"]
#[allow(dead_code, reason = "shared with other conversations")]
mod veiled;
/// A proxy as a file configures it, and clients of either version.
#[path = "../policies/scene.rs"]
#[allow(dead_code, reason = "shared with other conversations")]
mod scene;
/// Each kind of fault, on the wire.
mod injected;
/// With which requests, and when.
mod chosen;
/// Connections as a whole.
mod connections;
/// Each of them, whatever is carried.
mod table;
/// Those of requests, on every way that a response takes.
mod ways;
/// Listeners that take none.
mod refused;
/// Changed while the proxy runs.
mod changed;
