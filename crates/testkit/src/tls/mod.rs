//! Certificates, and TLS client or server played by a test.

/// A certificate authority, its certificates and their files.
mod authority;
/// Client or server with or without TLS.
mod end;
/// TLS around a TCP connection, in a separate thread.
pub mod tunnel;

pub use authority::{Issued, TestAuthority};
pub use end::{TlsEnd, TlsEnding};
