//! HTTP Message Signatures (RFC 9421) of requests, as bots sign them (Web Bot Auth): fields, parameters, and the text that
//! was signed.
//!
//! Cryptography and keys are elsewhere: this says what has to be verified, with which key, and whether it counts now.

#![forbid(unsafe_code)]

/// Structured fields (RFC 9651), as far as signatures use them.
mod structured;
/// The text that is signed.
mod base;
/// The signature of a bot.
mod bot;

pub use base::Message;
pub use bot::{BotSignature, Fault, Times, bot_signature};
