//! Lines of the access log: what is known of a request, which of it a format wants, and how it is written and escaped.
//!
//! Pure: a request and a time in, one line out. Where lines go is the business of `telemetry`.

/// The access log's view of one finished request.
mod entry;
/// What can be logged of a request, by name.
mod field;
/// Parses formats: presets, lists of fields, and templates.
mod format;
/// Hides query strings, or their values.
mod query;
/// What is hidden in lines.
mod masks;
/// Lines on their way to where they are written.
mod batch;
/// The time of a line, rendered once a second.
mod timestamp;
/// Hexadecimal digits of identifiers.
pub mod hexadecimal;
/// Escapes untrusted bytes.
pub mod escape;
/// Writes an entry as a line in the formats with fixed fields.
mod line;
/// Writes the fields of formats with chosen ones.
mod out;
/// Writes JSON lines of short and plain values faster.
mod quick;

pub use batch::Batch;
pub use entry::{ClientTls, Entry, Headers, Injected, More, Retried, Version, WHOLE};
pub use field::{FieldFault, Needs, field_names};
pub use format::{FIELDS_MAX, Format, FormatError, FormatFault};
pub use line::Lines;
pub use masks::{Addresses, HIDDEN_HEADERS, Masks};
pub use query::Query;
pub use timestamp::Timestamp;
