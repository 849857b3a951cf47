//! Checks that several fuzz targets share: a verdict depends on the bytes, not on how they were split.
//!
//! Splits are derived from the input, so that seeds are plain messages and a finding is reproducible.

/// Configurations of other proxies.
#[cfg(feature = "adapt")]
pub mod adapted;

use http1::{HeadError, HeadLimits, Parsed};

/// The proxy's limits, and limits so low that a small input reaches each.
pub const LIMITS: [HeadLimits; 2] = [
    HeadLimits { bytes: 64 * 1024, fields: 256, target: 16 * 1024 },
    HeadLimits { bytes: 96, fields: 3, target: 12 },
];

/// Returns up to four places to split this input at, in order, and its end.
pub fn cuts(input: &[u8]) -> impl Iterator<Item = usize> {
    // FNV-1a, because it is short.
    let mut hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut cuts = [0; 4].map(|_: usize| {
        hash = hash.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash as usize % (input.len() + 1)
    });
    cuts.sort_unstable();
    cuts.into_iter().chain([input.len()])
}

/// Parses a head piece by piece until there is a verdict.
pub fn in_pieces(
    input: &[u8],
    mut parse: impl FnMut(&[u8]) -> Result<Parsed, HeadError>,
) -> Result<Parsed, HeadError> {
    let mut outcomes = cuts(input).map(|cut| parse(&input[..cut]));
    outcomes.find(|outcome| *outcome != Ok(Parsed::Partial)).unwrap_or(Ok(Parsed::Partial))
}

/// Asserts that another parser reads the same fields.
pub fn assert_same_fields<Start>(
    head: &http1::MessageHead<Start>,
    bytes: &[u8],
    other: &[httparse::Header<'_>],
) {
    assert_eq!(head.fields.len(), other.len());
    for (field, other) in head.fields.iter().zip(other) {
        assert_eq!(field.name.for_bytes(bytes), other.name.as_bytes());
        assert_eq!(field.value.for_bytes(bytes), other.value);
        assert!(!other.value.iter().any(|byte| b"\r\n\0".contains(byte)), "no value ends a line");
    }
}
