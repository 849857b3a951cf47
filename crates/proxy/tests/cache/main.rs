//! The cache in the way of requests, between clients of both versions and a server that the test plays.
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
/// A proxy as a file configures it, and clients of either version.
#[path = "../policies/scene.rs"]
#[allow(dead_code, reason = "shared with other conversations")]
mod scene;
/// What is answered from the store, and what is not.
mod answered;
/// Conditions of clients and of the store.
mod validated;
/// Parts.
mod ranges;
/// Parts that are stored themselves.
mod parts;
/// What is no longer fresh.
mod stale;
/// What is judged response by response.
mod judged;
/// What requests are asked for all.
mod kept;
/// What goes past it.
mod passed;
/// What is counted.
mod counted;
/// Many who want the same.
mod shared;
/// What a reload leaves.
mod resized;
/// What is purged.
mod purged;
/// What routes have to themselves.
mod routed;
/// What is kept on a disk.
mod disk;
/// What is told of a URL.
mod explained;
