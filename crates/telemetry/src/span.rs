//! Spans: the records of a trace, as the path of requests hands them over to whoever sends them.

use std::time::SystemTime;

/// What a span is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A request that was received.
    Server,
    /// A request that was sent: an attempt with a server.
    Client,
    /// A step within the proxy.
    Internal,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The trace; never 0.
    pub trace_id: u128,
    /// The span's own ID; never 0.
    pub span_id: u64,
    /// The span that it is a part of; 0 if there is none.
    pub parent_id: u64,
    /// Whether that span is another process's.
    pub has_remote_parent: bool,
    /// Whether the trace was chosen for recording before its end was known.
    pub is_sampled: bool,
    /// What it is about.
    pub kind: SpanKind,
    /// Its name.
    pub name: String,
    /// When it began.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// Its attributes, by the names of OpenTelemetry's semantic conventions where there are such.
    pub attributes: Vec<(&'static str, Value)>,
    /// The log word of its failure, if it failed.
    pub failure: Option<&'static str>,
}
