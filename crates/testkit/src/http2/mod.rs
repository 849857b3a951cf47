//! HTTP/2 client or server, played by a test, with frames written and read by hand.

/// Frames (RFC 9113 §4, §6) and field blocks (RFC 7541).
pub mod frame;
/// HTTP/2 client or server on one connection.
mod end;

pub use end::{H2End, H2Ended, PREFACE};
