//! Files for HTTP: finds the file for a path, opens it beneath a root, and computes the fields of its response.
//!
//! Knows no connections and no requests: the proxy parses fields, caches open files, and sends them.

#![forbid(unsafe_code)]

/// Decodes the path of a request.
mod path;
/// Opens files beneath a root, and nowhere else.
mod root;
/// Finds the file, the index of a directory, or the fallback.
mod find;
/// Media types by file name.
mod media_type;
/// Precompressed siblings of a file.
mod siblings;
/// Validators of files: ETag and Last-Modified.
mod validators;
/// Lists a directory as HTML.
mod listing;

pub use find::{FileRoots, FoundFile, PathMatch, Sibling, find};
pub use listing::{ENTRIES_MAX, ListingEntry, entries, page};
pub use media_type::media_type;
pub use path::{PathError, PathForm, file_path, local_redirect};
pub use root::{CONTENT_BYTES_MAX, FileState, MayBlock, OpenError, OpenFile, OpenedPath, Root};
pub use validators::{last_modified, push_etag};
