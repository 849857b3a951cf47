//! Content codings (RFC 9110 §8.4.1): gzip, Brotli and Zstandard, the last two also with a dictionary (RFC 9842).
//!
//! Chooses a coding for a response, and encodes and decodes bodies in pieces. No sockets, no clock, no threads.

#![forbid(unsafe_code)]

/// Accept-Encoding.
mod accepted;
/// Compressible media types.
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
pub use decode::{BodyDecoder, DecodeStep};
pub use dictionary::{DICTIONARY_BYTES_MAX, Digest, available_dictionary, is_dictionary, match_of, matches};
pub use encode::{BodyEncoder, Flush, Levels};
pub use head::{BodyChange, BodyHead, VARY, VARY_BY_DICTIONARY, is_of_bytes};
pub use media::{MediaRange, MediaRangeError, is_among};

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

    /// Finds a coding by its name, in any case. RFC 9110 §8.4.1.3: `x-gzip` is gzip.
    pub fn named(name: &[u8]) -> Option<Self> {
        let is = |coding: &Self| name.eq_ignore_ascii_case(coding.name().as_bytes());
        let all = [Self::Gzip, Self::Brotli, Self::Zstd, Self::DictionaryBrotli, Self::DictionaryZstd];
        all.into_iter().find(is).or_else(|| name.eq_ignore_ascii_case(b"x-gzip").then_some(Self::Gzip))
    }

    /// Returns the variant with a dictionary; `None` for gzip.
    pub const fn with_dictionary(self) -> Option<Self> {
        match self {
            Self::Brotli => Some(Self::DictionaryBrotli),
            Self::Zstd => Some(Self::DictionaryZstd),
            Self::Gzip | Self::DictionaryBrotli | Self::DictionaryZstd => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodingError {
    pub coding: Coding,
    /// The library's words.
    pub reason: &'static str,
}

impl std::fmt::Display for CodingError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.coding.name(), self.reason)
    }
}

impl std::error::Error for CodingError {}
