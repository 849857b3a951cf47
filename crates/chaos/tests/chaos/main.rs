//! The chaos proxy over real sockets: its API as clients speak it, and what it does to connections.
//!
//! Delays are so long that nothing would come, or none; what is tested is what comes and in which order.

/// A chaos proxy with a server, and its API.
mod scene;
/// What the API takes and tells.
mod api;
/// What it begins with.
mod file;
/// Connections without toxics.
mod relayed;
/// Each toxic.
mod toxics;
