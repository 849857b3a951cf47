//! Verifies JSON Web Tokens (RFC 7519) for a proxy: keys, strict parsing, signatures, claims, and a cache of verified
//! tokens.
//!
//! The crate `jsonwebtoken` verifies signatures. All else is stricter here: `crit`, duplicate members, and the time,
//! which is a parameter. The proxy finds tokens in requests, and fetches keys.

#![forbid(unsafe_code)]

/// Signature algorithms.
mod algorithm;
/// JSON with unique names.
mod json;
/// DER of public keys.
mod der;
/// Keys from PEM files, JWKS documents and secrets.
mod keys;
/// The compact form of a signed token.
mod token;
/// Checks of claims.
mod claims;
/// Claims that are remembered with a token.
mod kept;
/// A cache of verified tokens.
mod verified;
/// Reasons for refusing a token.
mod refusal;

pub use algorithm::Algorithm;
pub use claims::{Audience, Claims, RequiredClaims, TokenIdentity};
pub use kept::KeptClaims;
pub use keys::{KeyFault, KeySet};
pub use refusal::Refusal;
pub use token::ParsedToken;
pub use verified::{TokenDigest, VerifiedTokens};
