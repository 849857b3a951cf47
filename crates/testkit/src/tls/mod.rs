//! Certificates, and one end of a TLS connection.

/// A certificate authority, its certificates and their files.
mod authority;
/// One end of a connection, in the clear or with TLS.
mod end;
/// TLS around a TCP connection, on a thread of its own.
pub mod tunnel;

pub use authority::{Authority, Issued};
pub use end::{End, Ending};
