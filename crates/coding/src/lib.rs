//! Content codings (RFC 9110 §8.4.1): gzip, Brotli and Zstandard, and the last two with a dictionary (RFC 9842).
//!
//! Chooses a coding for a response, and codes and decodes bodies piece by piece. No sockets, no clock, no threads.

#![forbid(unsafe_code)]

/// Accept-Encoding: the codings that a client accepts.
mod accepted;
/// Media types that are worth coding.
mod media;
/// Codes bodies.
mod encode;
/// Decodes bodies.
mod decode;
/// Dictionaries and their fields.
mod dictionary;
/// The head of a coded response.
mod head;

pub use accepted::Accepted;
pub use decode::{Decoded, Decoder};
pub use dictionary::{DICTIONARY_BYTES_MAX, Digest, available_dictionary, is_dictionary, match_of, matches};
pub use encode::{Encoder, Flush, Levels};
pub use head::{Change, Content, VARY, VARY_BY_DICTIONARY, is_of_bytes};
pub use media::{MediaRange, MediaRangeError, is_among};

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Coding {
    /// gzip (RFC 1952).
    Gzip,
    /// Brotli (RFC 7932).
    Brotli,
    /// Zstandard (RFC 8878), with a window of at most 8 MB (RFC 9659).
    Zstd,
    /// Brotli with a dictionary (RFC 9842 §4).
    DictionaryBrotli,
    /// Zstandard with a dictionary (RFC 9842 §5).
    DictionaryZstd,
}

impl Coding {
    /// The codings without a dictionary.
    pub const PLAIN: [Self; 3] = [Self::Gzip, Self::Brotli, Self::Zstd];

    /// The name in Accept-Encoding and Content-Encoding.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::DictionaryBrotli => "dcb",
            Self::DictionaryZstd => "dcz",
        }
    }

    /// The coding with this name, in any case. RFC 9110 §8.4.1.3: `x-gzip` is gzip.
    pub fn named(name: &[u8]) -> Option<Self> {
        let is = |coding: &Self| name.eq_ignore_ascii_case(coding.name().as_bytes());
        let all = [Self::Gzip, Self::Brotli, Self::Zstd, Self::DictionaryBrotli, Self::DictionaryZstd];
        all.into_iter().find(is).or_else(|| name.eq_ignore_ascii_case(b"x-gzip").then_some(Self::Gzip))
    }

    /// The same coding with a dictionary, if there is one.
    pub const fn with_dictionary(self) -> Option<Self> {
        match self {
            Self::Brotli => Some(Self::DictionaryBrotli),
            Self::Zstd => Some(Self::DictionaryZstd),
            Self::Gzip | Self::DictionaryBrotli | Self::DictionaryZstd => None,
        }
    }
}

/// A body that cannot be coded or decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodingError {
    /// The coding.
    pub coding: Coding,
    /// What the coder says.
    pub reason: &'static str,
}

impl std::fmt::Display for CodingError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.coding.name(), self.reason)
    }
}

impl std::error::Error for CodingError {}
