//! Ranges of bytes (RFC 9110 §14): which part of a stored representation is asked for, and which part is stored.

/// A part of a representation that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Its first byte.
    pub start: u64,
    /// One past its last byte.
    pub end: u64,
    /// How long the whole is, if that was said.
    pub whole_bytes: Option<u64>,
}
