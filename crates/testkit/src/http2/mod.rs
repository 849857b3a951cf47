//! One end of an HTTP/2 connection, which writes and reads frames by hand.

/// Frames (RFC 9113 §4, §6) and field blocks (RFC 7541).
pub mod frame;
/// One end of a connection.
mod end;

pub use end::{End, Ended, PREFACE};
