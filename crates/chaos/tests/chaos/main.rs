//! The chaos proxy over real sockets: its API as clients use it, and its effect on connections.
//!
//! Delays are either longer than any test or zero. Tests check which bytes arrive, and their order.

/// A chaos proxy with a server, and its API.
mod scene;
/// The API.
mod api;
/// The configuration file.
mod file;
/// Connections without toxics.
mod relayed;
/// Each toxic.
mod toxics;
