//! Statuses of calls: `grpc-status` and `grpc-message` (PROTOCOL-HTTP2.md, "Responses").

use std::io::Write;

/// The names of the statuses, by their numbers.
const NAMES: [&str; 17] = [
    "ok",
    "cancelled",
    "unknown",
    "invalid-argument",
    "deadline-exceeded",
    "not-found",
    "already-exists",
    "permission-denied",
    "resource-exhausted",
    "failed-precondition",
    "aborted",
    "out-of-range",
    "unimplemented",
    "internal",
    "unavailable",
    "data-loss",
    "unauthenticated",
];

/// The status of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(u8);

impl Status {
    /// The call has succeeded.
    pub const OK: Self = Self(0);
    /// No other status fits.
    pub const UNKNOWN: Self = Self(2);
    /// The caller may not do that.
    pub const PERMISSION_DENIED: Self = Self(7);
    /// Somebody has used up what it may.
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    /// The server has no such method.
    pub const UNIMPLEMENTED: Self = Self(12);
    /// A side has broken the protocol.
    pub const INTERNAL: Self = Self(13);
    /// The server cannot be reached, or takes no calls now.
    pub const UNAVAILABLE: Self = Self(14);
    /// Nobody knows who the caller is.
    pub const UNAUTHENTICATED: Self = Self(16);

    /// Reads the value of `grpc-status`. What is no known status is [`UNKNOWN`](Self::UNKNOWN), as to every client.
    pub fn of_field(value: &[u8]) -> Self {
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        number.filter(|number| usize::from(*number) < NAMES.len()).map_or(Self::UNKNOWN, Self)
    }

    /// What a status of HTTP is to a client of gRPC (http-grpc-status-mapping.md).
    pub fn of_http(status: u16) -> Self {
        match status {
            400 => Self::INTERNAL,
            401 => Self::UNAUTHENTICATED,
            403 => Self::PERMISSION_DENIED,
            404 => Self::UNIMPLEMENTED,
            429 | 502..=504 => Self::UNAVAILABLE,
            _ => Self::UNKNOWN,
        }
    }

    /// The number.
    pub fn code(self) -> u8 {
        self.0
    }
}

/// A set of statuses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statuses(u32);

impl Statuses {
    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is among them.
    pub fn contains(self, status: Status) -> bool {
        self.0 >> status.0 & 1 == 1
    }

    /// Adds the status of a failed call with this name, such as `unavailable`; false if there is none.
    pub fn add(&mut self, name: &str) -> bool {
        let number = NAMES.iter().position(|known| *known == name).filter(|number| *number > 0);
        number.inspect(|number| self.0 |= 1 << number).is_some()
    }

    /// The names of those that are in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES
            .into_iter()
            .enumerate()
            .filter(move |(number, _)| self.0 >> number & 1 == 1)
            .map(|(_, name)| name)
    }
}

/// The names of all statuses of failed calls.
pub fn status_names() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().skip(1)
}

/// Appends a text as the value of `grpc-message`, which is percent-encoded.
pub fn push_message(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b' '..=b'$' | b'&'..=b'~' => out.push(byte),
            // Writing into a Vec does not fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_field_says_is_a_status_or_unknown() {
        for (value, code) in [
            ("0", 0),
            ("14", 14),
            ("16", 16),
            ("17", 2),
            ("014", 14),
            ("", 2),
            ("-1", 2),
            ("1 4", 2),
            ("999", 2),
        ] {
            assert_eq!(Status::of_field(value.as_bytes()).code(), code, "{value:?}");
        }
        assert_eq!(Status::of_field(b"\xff"), Status::UNKNOWN);
    }

    #[test]
    fn statuses_of_http_are_those_of_calls() {
        let rows = [(400, 13), (401, 16), (403, 7), (404, 12), (429, 14), (502, 14), (503, 14), (504, 14)];
        for (status, code) in rows.into_iter().chain([(308, 2), (408, 2), (413, 2), (500, 2), (501, 2)]) {
            assert_eq!(Status::of_http(status).code(), code, "{status}");
        }
    }

    #[test]
    fn sets_are_told_by_names() {
        let mut set = Statuses::default();
        assert!(set.is_empty());
        for (name, is_known) in [("unavailable", true), ("cancelled", true), ("ok", false), ("14", false)] {
            assert_eq!(set.add(name), is_known, "{name}");
        }
        assert!(set.contains(Status::UNAVAILABLE) && !set.contains(Status::OK) && !set.is_empty());
        assert_eq!(set.names().collect::<Vec<_>>(), ["cancelled", "unavailable"]);
        assert_eq!(status_names().count(), 16);
    }

    #[test]
    fn messages_are_percent_encoded() {
        let mut out = Vec::new();
        push_message(&mut out, "100% late\u{e9}\n~");
        assert_eq!(out, b"100%25 late%C3%A9%0A~");
    }
}
