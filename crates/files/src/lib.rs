//! Files for HTTP: which file a path names, how it is opened beneath a root, and what its response says of it.
//!
//! Knows no connection and no request: the proxy looks up fields, caches open files, and sends them.

#![forbid(unsafe_code)]

/// Finds the file path in the path of a request.
mod path;
/// Opens files beneath a root, and nowhere else.
mod root;
/// Finds the file for a path: the file itself, the index of a directory, the fallback.
mod find;
/// Media types by file name.
mod media_type;
/// The precompressed siblings of a file.
mod siblings;
/// Validators of files: ETag and Last-Modified.
mod validators;
/// Lists a directory as HTML.
mod listing;

pub use find::{Found, FoundFile, Places, Sibling, find};
pub use listing::{ENTRIES_MAX, Entry, entries, page};
pub use media_type::media_type;
pub use path::{Form, PathError, file_path, local_redirect};
pub use root::{CONTENT_BYTES_MAX, OpenError, OpenFile, Opened, Root, State, Waits};
pub use validators::{last_modified, push_etag};
