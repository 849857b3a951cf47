//! TLS on both sides of the proxy: certificates, whom to believe, and what rustls is told of it.
//!
//! Nothing here has a thread, a timer or a socket: the caller moves the bytes, and ticks what is to be looked at again.

/// Records, sealed and opened between the caller's buffers.
mod record;
/// How a connection begins.
mod handshake;
/// A running connection.
mod session;
/// Towards clients: the listener's certificates as a configuration of rustls.
mod server;
/// Session tickets towards clients, and their keys.
mod tickets;
/// Which certificate a client gets.
mod store;
/// Which certificates have a name.
mod names;
/// Towards servers: whom to believe, and what to show.
mod client;
/// Who a client is, by its certificate.
mod peer;
/// A certificate and its key, from files or fresh.
mod pair;
/// What a certificate says of itself.
mod certificate;
/// What an OCSP response says of a certificate.
mod ocsp;
/// Files: read, and looked at again.
mod file;
/// What is wrong with a file.
mod problem;
/// What is wrong with a server.
mod reason;
/// The ciphers, groups and signatures in use.
mod provider;
/// Records that rustls could not open.
mod trial;

pub use client::ClientSide;
pub use handshake::{Advance, Agreed, Handshake, Role};
pub use peer::Peer;
pub use problem::{Fault, Problem};
pub use reason::reason;
pub use record::{Alert, OVERHEAD_MAX, PLAINTEXT_MAX, RECORD_MAX};
pub use server::{Reload, ServerSide};
pub use session::{Opened, Session};
pub use tickets::TicketKeys;
