//! HTTP Message Signatures (RFC 9421) in requests, as bots sign them (Web Bot Auth): fields, parameters, and the signed
//! text.
//!
//! The caller has the keys, and verifies the signature with the key that is named here.

#![forbid(unsafe_code)]

/// Structured fields (RFC 9651) for signatures.
mod structured;
/// The text that is signed.
mod base;
/// The signature of a bot.
mod bot;

pub use base::SignedMessage;
pub use bot::{BotSignature, SignatureFault, SignatureTimes, bot_signature};
