//! Types and values of expressions.

use std::fmt;
use std::io::Write as _;
use std::net::IpAddr;

use crate::calendar::TimeText;
use crate::duration::DurationText;

/// Types that the checker knows. Absence is no type: see [`ValueKind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// True or false.
    Boolean,
    /// An integer with 64 bits and a sign.
    Integer,
    /// A text: any bytes, usually UTF-8.
    Text,
    /// A duration in nanoseconds.
    Duration,
    /// A point in time, in nanoseconds since 1970 (UTC).
    Time,
    /// An IP address.
    Address,
}

impl fmt::Display for ValueType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Boolean => "true or false",
            Self::Integer => "an integer",
            Self::Text => "a text",
            Self::Duration => "a duration",
            Self::Time => "a time",
            Self::Address => "an address",
        })
    }
}

/// A type, and whether the value may be absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueKind {
    /// The type of the value, where it is present.
    pub of: ValueType,
    /// Whether the value may be absent, such as a header field.
    pub is_optional: bool,
}

impl ValueKind {
    pub(crate) fn always(of: ValueType) -> Self {
        Self { of, is_optional: false }
    }

    pub(crate) fn optional(of: ValueType) -> Self {
        Self { of, is_optional: true }
    }
}

/// A value. Texts are borrowed: from the message, from the expression, or from the [`EvaluationScratch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// True or false.
    Boolean(bool),
    Integer(i64),
    /// Any bytes, usually UTF-8.
    Text(&'a [u8]),
    /// A duration in nanoseconds.
    Duration(i64),
    /// Nanoseconds since 1970 (UTC).
    Time(i64),
    /// An IP address.
    Address(IpAddr),
}

impl Value<'_> {
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::Boolean(_) => ValueType::Boolean,
            Self::Integer(_) => ValueType::Integer,
            Self::Text(_) => ValueType::Text,
            Self::Duration(_) => ValueType::Duration,
            Self::Time(_) => ValueType::Time,
            Self::Address(_) => ValueType::Address,
        }
    }

    /// Calls `then` with the value as plain text: `true`, `-7`, `1h30m`, `2026-12-01T00:00:00Z`, `192.0.2.1`. A text is
    /// itself. Allocates nothing.
    pub fn with_plain<R>(&self, then: impl FnOnce(&[u8]) -> R) -> R {
        if let Self::Text(text) = self {
            return then(text);
        }
        let mut bytes = [0; PLAIN_BYTES_MAX];
        let mut rest = bytes.as_mut_slice();
        // Cannot fail: no such value is longer than the buffer.
        let _ = match self {
            Self::Text(_) => Ok(()),
            Self::Boolean(value) => write!(rest, "{value}"),
            Self::Integer(value) => write!(rest, "{value}"),
            Self::Duration(nanoseconds) => write!(rest, "{}", DurationText(*nanoseconds)),
            Self::Time(nanoseconds) => write!(rest, "{}", TimeText(*nanoseconds)),
            // A client of IPv4 has the same address on a listener for both families.
            Self::Address(address) => write!(rest, "{}", address.to_canonical()),
        };
        let left = rest.len();
        then(&bytes[..PLAIN_BYTES_MAX - left])
    }
}

/// Room for every value that is no text.
const PLAIN_BYTES_MAX: usize = 64;

/// Writes the value as an expression writes it.
impl fmt::Display for Value<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => write!(formatter, "{value}"),
            Self::Integer(value) => write!(formatter, "{value}"),
            Self::Text(text) => write!(formatter, "\"{}\"", text.escape_ascii()),
            Self::Duration(nanoseconds) => {
                write!(formatter, "duration(\"{}\")", DurationText(*nanoseconds))
            }
            Self::Time(nanoseconds) => {
                write!(formatter, "timestamp(\"{}\")", TimeText(*nanoseconds))
            }
            Self::Address(address) => write!(formatter, "{address}"),
        }
    }
}

/// The buffer for texts that an expression builds: joined, in lower case, or decoded.
///
/// The caller owns it and reuses it, so that an evaluation allocates only while the buffer grows. Its size has a bound
/// per expression: [`Expression::scratch_bytes`](crate::Expression::scratch_bytes).
#[derive(Debug, Default)]
pub struct EvaluationScratch {
    pub(crate) bytes: Vec<u8>,
}

impl EvaluationScratch {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes that the last evaluation left in the buffer.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the last evaluation left nothing in the buffer.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}
