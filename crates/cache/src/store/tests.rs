//! What the tests of the store share: keys, openings, and an allocator that is the program's.

use crate::key::Key;
use crate::store::object::Opening;
use crate::stored::{Stored, Traits};
use crate::vary::{VariantKey, Vary};

/// Look-ups, request collapsing and purges.
mod behaviour;
/// Responses to requests that went to a server alone.
mod apart;
/// Many variants of one resource.
mod varied;
/// Changes of the memory limit.
mod resized;
/// Readers of a body while it arrives.
mod readers;
/// The memory that the store takes.
mod resident;
/// Hit rates beside those of other policies.
mod policies;

/// Keys as a hash makes them.
pub(crate) fn key(number: u64) -> Key {
    let mixed = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Key::from_u128(mixed ^ (mixed >> 61))
}

fn stored() -> Stored {
    Stored {
        status: 200,
        traits: Traits::default(),
        stale_while_revalidate_seconds: 0,
        stale_if_error_seconds: 0,
        etag: http1::Span::default(),
        last_modified: http1::Span::default(),
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
        labels: Box::new([]),
        body_bytes: None,
        forms: None,
    }
}

pub(crate) fn no_variant(_: &Vary) -> VariantKey {
    NO_VARIANT
}
