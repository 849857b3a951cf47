//! Vary (RFC 9111 §4.1): the request fields that select a variant.
//!
//! The values are kept as one hash of 128 bits with the key's secret, so that variants take little memory and are
//! compared quickly.

use std::hash::Hasher;

use http1::{RequestHead, ResponseHead};
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::encoding::Codings;
use crate::fields::{members, value, values};
use crate::key::KeySecret;
use crate::policy::Policy;
use crate::refusal::Refusal;

/// The names of the fields in Vary: lower case, sorted, unique, separated by commas. Empty if the response does not
/// vary.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vary {
    names: Box<[u8]>,
}

/// The values of a request's fields that `Vary` names, as a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VariantKey(u128);

impl VariantKey {
    /// The variant key as a number.
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// A variant key from a number that `as_u128` returned.
    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }
}

/// The longest list of names. Longer ones are not stored.
const NAMES_BYTES_MAX: usize = 1024;

impl Vary {
    /// Parses Vary of a response.
    ///
    /// # Errors
    /// Vary is `*`, which matches no other request (RFC 9111 §4.1), or exceeds the limit.
    pub fn of(head: &ResponseHead, bytes: &[u8], policy: &Policy) -> Result<Self, Refusal> {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let mut len = 0;
        for name in values(head, bytes, b"vary").flat_map(members) {
            if policy.ignore.vary && !name.eq_ignore_ascii_case(b"accept-encoding") {
                // One variant for all of them; but who cannot decode a response has nothing of it.
                continue;
            }
            if policy.ignore.origin && name.eq_ignore_ascii_case(b"origin") {
                continue;
            }
            if name == b"*" {
                return Err(Refusal::VaryStar);
            }
            len += name.len() + 1;
            if len > NAMES_BYTES_MAX {
                return Err(Refusal::VaryTooLong);
            }
            names.push(name.to_ascii_lowercase().into());
        }
        names.sort_unstable();
        names.dedup();
        Ok(Self { names: names.join(b",".as_slice()).into() })
    }

    /// Checks a response whose Vary the route ignores: it must not depend on a cookie or an Authorization that the
    /// request had and the server saw.
    ///
    /// # Errors
    /// The response is meant for its own request.
    pub fn check_ignored(
        request: (&RequestHead, &[u8]),
        passes: impl Fn(&[u8]) -> bool,
        (head, bytes): (&ResponseHead, &[u8]),
        policy: &Policy,
    ) -> Result<(), Refusal> {
        if !policy.ignore.vary {
            return Ok(());
        }
        let is_personal = |name: &[u8]| {
            [&b"cookie"[..], b"authorization"].into_iter().any(|personal| {
                name.eq_ignore_ascii_case(personal)
                    && passes(personal)
                    && value(request.0, request.1, personal).is_some()
            })
        };
        let is_for_one = values(head, bytes, b"vary").flat_map(members).any(is_personal);
        if is_for_one { Err(Refusal::VaryPersonal) } else { Ok(()) }
    }

    /// A `Vary` from text that `as_bytes` returned.
    pub fn from_bytes(names: &[u8]) -> Self {
        Self { names: names.into() }
    }

    /// The names as text, for storing or display.
    pub fn as_bytes(&self) -> &[u8] {
        &self.names
    }

    /// Whether the response does not vary.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Checks that a response suits all requests of its variant, as far as content codings go. `codings` are those that
    /// the request offered to the server.
    ///
    /// # Errors
    /// Another request with an equal normalised Accept-Encoding may not accept the response (RFC 9111 §4.1).
    pub fn check_coding(
        &self,
        codings: Codings,
        head: &ResponseHead,
        bytes: &[u8],
        policy: &Policy,
    ) -> Result<(), Refusal> {
        let is_told = !policy.normalises_accept_encoding
            || !self.names().any(|name| name == b"accept-encoding")
            || codings.hold(head, bytes);
        if is_told { Ok(()) } else { Err(Refusal::Coding) }
    }

    /// The names, one by one.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        members(&self.names)
    }

    /// The variant key of a request. Requests with equal keys select one variant (RFC 9111 §4.1). Fields that do not
    /// `pass` never reach a server, and count as absent.
    pub fn variant(
        &self,
        secret: KeySecret,
        policy: &Policy,
        head: &RequestHead,
        bytes: &[u8],
        passes: impl Fn(&[u8]) -> bool,
    ) -> VariantKey {
        let (first, second) = secret.halves();
        let mut hash = SipHasher13::new_with_keys(first, second);
        for name in self.names() {
            hash.write(name);
            if passes(name) {
                write_values(&mut hash, name, policy, head, bytes);
            } else {
                hash.write(b"\n");
            }
        }
        VariantKey(hash.finish128().as_u128())
    }
}

/// RFC 9111 §4.1: white space around members and how lines are cut do not count. No value holds a line's end, so what is
/// written for two different lists differs; a field that is missing differs from one that is empty.
fn write_values(hash: &mut SipHasher13, name: &[u8], policy: &Policy, head: &RequestHead, bytes: &[u8]) {
    if name == b"accept-encoding" && policy.normalises_accept_encoding {
        hash.write(b"\n\n");
        return hash.write_u8(Codings::of(head, bytes).as_u8());
    }
    // RFC 9110 §12.5.4, RFC 4647 §2: tags of languages are the same in either case.
    let is_lowered = name == b"accept-language";
    let mut is_present = false;
    for member in values(head, bytes, name).flat_map(|value| value.split(|&byte| byte == b',')) {
        hash.write(if is_present { b"," } else { b"\n=" });
        if is_lowered {
            member.trim_ascii().iter().for_each(|byte| hash.write_u8(byte.to_ascii_lowercase()));
        } else {
            hash.write(member.trim_ascii());
        }
        is_present = true;
    }
    hash.write(b"\n");
}
