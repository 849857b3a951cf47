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
use crate::policy::CachePolicy;
use crate::refusal::NotStored;

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
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }
}

/// The longest list of names. Responses with longer ones are not stored.
const NAMES_BYTES_MAX: usize = 1024;

impl Vary {
    /// # Errors
    /// Vary is `*`, which matches no other request (RFC 9111 §4.1), or exceeds the limit.
    pub fn new(head: &ResponseHead, bytes: &[u8], policy: &CachePolicy) -> Result<Self, NotStored> {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let mut len = 0;
        for name in values(head, bytes, b"vary").flat_map(members) {
            if policy.ignore.vary && !name.eq_ignore_ascii_case(b"accept-encoding") {
                // Accept-Encoding still counts, because a client must be able to decode the response.
                continue;
            }
            if policy.ignore.origin && name.eq_ignore_ascii_case(b"origin") {
                continue;
            }
            if name == b"*" {
                return Err(NotStored::VaryStar);
            }
            len += name.len() + 1;
            if len > NAMES_BYTES_MAX {
                return Err(NotStored::VaryTooLong);
            }
            names.push(name.to_ascii_lowercase().into());
        }
        // Servers list the fields in any order, and repeat them: these are still one variant.
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
        policy: &CachePolicy,
    ) -> Result<(), NotStored> {
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
        if is_for_one { Err(NotStored::VaryPersonal) } else { Ok(()) }
    }

    /// Takes text that `as_bytes` returned.
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

    /// Checks that a response suits all requests of its variant, with respect to content codings. `codings` are those
    /// that the request offered to the server.
    ///
    /// # Errors
    /// Another request with an equal normalised Accept-Encoding may not accept the response (RFC 9111 §4.1).
    pub fn check_coding(
        &self,
        codings: Codings,
        head: &ResponseHead,
        bytes: &[u8],
        policy: &CachePolicy,
    ) -> Result<(), NotStored> {
        let is_told = !policy.normalises_accept_encoding
            || !self.names().any(|name| name == b"accept-encoding")
            || codings.hold(head, bytes);
        if is_told { Ok(()) } else { Err(NotStored::Coding) }
    }

    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        members(&self.names)
    }

    /// The variant key of a request. Requests with equal keys select one variant (RFC 9111 §4.1). Fields that do not
    /// `pass` never reach a server, and count as absent.
    pub fn variant(
        &self,
        secret: KeySecret,
        policy: &CachePolicy,
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
                // An absent field has a text that no value has, since no value contains a line end.
                hash.write(b"\n");
            }
        }
        VariantKey(hash.finish128().as_u128())
    }
}

/// RFC 9111 §4.1: ignores white space around members, and the split into lines. No value contains a line end, so
/// different lists are written differently; a missing field differs from an empty one.
fn write_values(hash: &mut SipHasher13, name: &[u8], policy: &CachePolicy, head: &RequestHead, bytes: &[u8]) {
    if name == b"accept-encoding" && policy.normalises_accept_encoding {
        hash.write(b"\n\n");
        // Browsers spell the field in many ways. The set of codings that matter has few values.
        return hash.write_u8(Codings::new(head, bytes).as_u8());
    }
    // RFC 9110 §12.5.4, RFC 4647 §2: the case of language tags is ignored.
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
