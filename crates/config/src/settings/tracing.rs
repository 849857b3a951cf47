//! Settings of traces and of request IDs.

use std::path::PathBuf;
use std::time::Duration;

use shape::Share;

use super::KeyUrl;

/// Traces of requests, sent to a collector by OTLP.
#[derive(Debug, Clone, PartialEq)]
pub struct Tracing {
    /// The collector, with the path for traces.
    pub collector: KeyUrl,
    /// The CAs that sign the collector's certificate; `None` means those of the system.
    pub ca: Option<PathBuf>,
    /// A file with the value of Authorization for the collector.
    pub authorization_file: Option<PathBuf>,
    /// The service that spans are of (`service.name`).
    pub service: String,
    /// The share of traces that begin here and are recorded.
    pub sample: Share,
    /// Whose decision about recording a trace holds here as well.
    pub follow: FollowCallers,
    /// Requests that take at least this long are always recorded.
    pub slow: Option<Duration>,
    /// Whether failed requests and responses of class 5xx are always recorded.
    pub errors: bool,
    /// How B3 fields are read and written.
    pub b3: B3,
}

/// Callers whose decision about recording a trace, or whose ID of a request, holds here as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FollowCallers {
    /// Trusted proxies.
    #[default]
    Trusted,
    /// All clients.
    All,
    /// None: all is decided here.
    Nobody,
}

/// Fields of B3, the trace context of Zipkin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum B3 {
    /// They are neither read nor changed.
    #[default]
    Off,
    /// They are read, and written as one field.
    Single,
    /// They are read, and written as several fields.
    Multi,
}

/// The IDs of requests, for `$request_id` and the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestIds {
    /// The field in which callers send the ID of a request.
    pub header: String,
    /// Whose ID is taken.
    pub follow: FollowCallers,
    /// The form of those that are made here.
    pub form: IdForm,
}

impl Default for RequestIds {
    fn default() -> Self {
        Self { header: "X-Request-Id".to_owned(), follow: FollowCallers::Trusted, form: IdForm::Hex }
    }
}

/// The form of a request ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdForm {
    /// 32 random hexadecimal digits.
    #[default]
    Hex,
    /// A random UUID (RFC 9562 §5.4).
    Uuid,
    /// A UUID that begins with the time (RFC 9562 §5.7).
    Uuid7,
    /// The ID of the request's trace.
    Trace,
}
