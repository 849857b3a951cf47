//! Tokens as issuers make them, and as attackers do.

/// Keys and tokens of a test.
mod issuer;
/// What is accepted: algorithms, forms of keys, claims.
mod accepted;
/// What is refused: a table of attacks.
mod attacks;
