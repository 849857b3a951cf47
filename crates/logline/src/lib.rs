//! Lines of the access log: the facts about a request, the fields that a format wants, and how they are written and
//! escaped.
//!
//! Pure: a request and a time in, one line out. `telemetry` sends lines to their targets.

/// The access log's view of one finished request.
mod entry;
/// Log fields by name.
mod field;
/// Parses formats: presets, lists of fields, and templates.
mod format;
/// Hides query strings, or their values.
mod query;
/// Parts of lines that are hidden.
mod masks;
/// Buffered lines.
mod batch;
/// The time of a line, rendered once a second.
mod timestamp;
/// Hexadecimal digits of identifiers.
pub mod hexadecimal;
/// Escapes untrusted bytes.
pub mod escape;
/// Writes lines in the formats with fixed fields.
mod line;
/// Writes fields of formats with chosen fields.
mod out;
/// Fast path for JSON lines of short and plain values.
mod quick;

pub use batch::LineBatch;
pub use entry::{Headers, Injected, LogEntry, LoggedTls, LoggedVersion, More, Retried, WHOLE};
pub use field::{FieldFault, Needs, field_names};
pub use format::{FIELDS_MAX, FormatError, FormatFault, LineFormat};
pub use line::LineWriter;
pub use masks::{Addresses, HIDDEN_HEADERS, Masks};
pub use query::LoggedQuery;
pub use timestamp::Timestamp;
