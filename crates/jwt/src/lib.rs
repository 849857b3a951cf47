//! JSON Web Tokens (RFC 7519) as a proxy asks for them: keys, strict parsing, signatures, claims, verified tokens.
//!
//! Signatures are those of the crate `jsonwebtoken`; the rest is stricter than it (`crit`, repeated members, time as a
//! value). Where a token is in a request, and how keys are fetched, is decided elsewhere.

#![forbid(unsafe_code)]

/// Signature algorithms, by name.
mod algorithm;
/// JSON whose names are unique.
mod json;
/// DER: the two public keys that PEM files have.
mod der;
/// Keys: from PEM files, JWKS documents and secrets.
mod keys;
/// The compact form of a signed token.
mod token;
/// What a token has to say, and what is taken from it.
mod claims;
/// Verified tokens.
mod verified;
/// Why a token is refused.
mod refusal;

pub use algorithm::Algorithm;
pub use claims::{Audience, Claims, Identity, Rules};
pub use keys::{KeyFault, KeySet};
pub use refusal::Refusal;
pub use token::Token;
pub use verified::{TokenDigest, Verified};
