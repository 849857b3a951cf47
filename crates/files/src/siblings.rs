//! The precompressed siblings of a file.

use coding::Coding;

/// The codings of which files have siblings, the one that is usually shorter first.
pub(crate) const SIBLINGS: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

/// What the name of a sibling in a coding has behind that of the file; empty if no file has one.
pub(crate) fn extension(coding: Coding) -> &'static str {
    match coding {
        Coding::Brotli => ".br",
        Coding::Zstd => ".zst",
        Coding::Gzip => ".gz",
        Coding::DictionaryBrotli | Coding::DictionaryZstd => "",
    }
}
