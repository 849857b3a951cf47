//! Statuses of calls: `grpc-status` and `grpc-message` (PROTOCOL-HTTP2.md, "Responses").

use std::io::Write;

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallStatus(u8);

impl CallStatus {
    pub const OK: Self = Self(0);
    pub const UNKNOWN: Self = Self(2);
    pub const PERMISSION_DENIED: Self = Self(7);
    /// A quota or limit is used up.
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    pub const UNIMPLEMENTED: Self = Self(12);
    /// A peer broke the protocol.
    pub const INTERNAL: Self = Self(13);
    /// The server is unreachable, or accepts no calls now.
    pub const UNAVAILABLE: Self = Self(14);
    /// The caller's identity is unknown.
    pub const UNAUTHENTICATED: Self = Self(16);

    /// Parses a `grpc-status` value. Any but a known status is [`UNKNOWN`](Self::UNKNOWN), as in gRPC clients.
    pub fn of_field(value: &[u8]) -> Self {
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        number.filter(|number| usize::from(*number) < NAMES.len()).map_or(Self::UNKNOWN, Self)
    }

    /// Maps an HTTP status to the gRPC status that a client assumes (http-grpc-status-mapping.md).
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

    pub fn code(self) -> u8 {
        self.0
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statuses(u32);

impl Statuses {
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn contains(self, status: CallStatus) -> bool {
        self.0 >> status.0 & 1 == 1
    }

    /// Adds the status of a failed call by its name, such as `unavailable`; returns false if no status has this name.
    pub fn add(&mut self, name: &str) -> bool {
        let number = NAMES.iter().position(|known| *known == name).filter(|number| *number > 0);
        number.inspect(|number| self.0 |= 1 << number).is_some()
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES
            .into_iter()
            .enumerate()
            .filter(move |(number, _)| self.0 >> number & 1 == 1)
            .map(|(_, name)| name)
    }
}

/// Lists the names of all statuses except `ok`.
pub fn status_names() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().skip(1)
}

/// Appends a text as a `grpc-message` value, percent-encoded.
pub fn push_message(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b' '..=b'$' | b'&'..=b'~' => out.push(byte),
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
            assert_eq!(CallStatus::of_field(value.as_bytes()).code(), code, "{value:?}");
        }
        assert_eq!(CallStatus::of_field(b"\xff"), CallStatus::UNKNOWN);
    }

    #[test]
    fn statuses_of_http_are_those_of_calls() {
        let rows = [(400, 13), (401, 16), (403, 7), (404, 12), (429, 14), (502, 14), (503, 14), (504, 14)];
        for (status, code) in rows.into_iter().chain([(308, 2), (408, 2), (413, 2), (500, 2), (501, 2)]) {
            assert_eq!(CallStatus::of_http(status).code(), code, "{status}");
        }
    }

    #[test]
    fn sets_are_told_by_names() {
        let mut set = Statuses::default();
        assert!(set.is_empty());
        for (name, is_known) in [("unavailable", true), ("cancelled", true), ("ok", false), ("14", false)] {
            assert_eq!(set.add(name), is_known, "{name}");
        }
        assert!(set.contains(CallStatus::UNAVAILABLE) && !set.contains(CallStatus::OK) && !set.is_empty());
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
