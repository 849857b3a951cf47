//! Verifies tokens from issuers, and refuses those from attackers.

/// Keys and tokens of a test.
mod issuer;
/// Accepted tokens.
mod accepted;
/// Refused tokens: a table of attacks.
mod attacks;
