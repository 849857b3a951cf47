//! The precompressed siblings of a file.

use coding::Coding;

/// Codings of siblings, the usually shorter first.
pub(crate) const SIBLINGS: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

/// Returns the suffix of a sibling's file name; empty if the coding has no siblings.
pub(crate) fn extension(coding: Coding) -> &'static str {
    match coding {
        Coding::Brotli => ".br",
        Coding::Zstd => ".zst",
        Coding::Gzip => ".gz",
        Coding::DictionaryBrotli | Coding::DictionaryZstd => "",
    }
}
