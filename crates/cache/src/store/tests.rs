//! Keys, openings and the program's allocator, shared by the tests of the store.

use crate::key::CacheKey;
use crate::store::object::Opening;
use crate::stored::{Stored, Traits};
use crate::vary::{VariantKey, Vary};

/// Lookups, request collapsing and purges.
mod behaviour;
/// Responses to separate requests.
mod apart;
/// Many variants of one resource.
mod varied;
/// Obsolete responses.
mod withdrawn;
/// Changes of the memory limit.
mod resized;
/// Readers of a body while it arrives.
mod readers;
/// The memory that the store takes.
mod resident;
/// Hit rates compared with other policies.
mod policies;

/// Keys with random bits, like hashes.
pub(crate) fn key(number: u64) -> CacheKey {
    let mixed = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    CacheKey::from_u128(mixed ^ (mixed >> 61))
}

fn stored() -> Stored {
    Stored {
        status: 200,
        traits: Traits::default(),
        stale_while_revalidate_seconds: 0,
        stale_if_error_seconds: 0,
        etag: http1::ByteSpan::default(),
        last_modified: http1::ByteSpan::default(),
        last_modified_unix_seconds: 0,
        date_unix_seconds: 0,
        received_ms: 0,
        made_ms: 0,
        fresh_until_ms: 60_000,
        part: None,
    }
}

const NO_VARIANT: VariantKey = VariantKey::from_u128(0);

pub(crate) fn opening(text: &str) -> Opening {
    Opening {
        stored: stored(),
        vary: Vary::default(),
        variant: NO_VARIANT,
        key_text: text.as_bytes().into(),
        head: b"HTTP/1.1 200 OK\r\n\r\n"[..].into(),
        hidden: Box::new([]),
        labels: Box::new([]),
        body_bytes: None,
        forms: None,
    }
}

pub(crate) fn no_variant(_: &Vary) -> VariantKey {
    NO_VARIANT
}
