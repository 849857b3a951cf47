//! Frames (RFC 9114 §7): their headers, kinds, and where each may stand.

use std::fmt;

use crate::varint;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: u64,
    pub(crate) len: u64,
}

/// The most bytes of a frame header.
pub(crate) const HEAD_MAX: usize = 16;

pub(crate) const DATA: u64 = 0x0;
pub(crate) const HEADERS: u64 = 0x1;
pub(crate) const CANCEL_PUSH: u64 = 0x3;
pub(crate) const SETTINGS: u64 = 0x4;
pub(crate) const PUSH_PROMISE: u64 = 0x5;
pub(crate) const GOAWAY: u64 = 0x7;
pub(crate) const MAX_PUSH_ID: u64 = 0xd;
/// RFC 9218 §7.2.
pub(crate) const PRIORITY_UPDATE: u64 = 0xf0700;
pub(crate) const PRIORITY_UPDATE_OF_PUSH: u64 = 0xf0701;

/// Kinds of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2).
pub(crate) const CONTROL_STREAM: u64 = 0x0;
pub(crate) const PUSH_STREAM: u64 = 0x1;
pub(crate) const ENCODER_STREAM: u64 = 0x2;
pub(crate) const DECODER_STREAM: u64 = 0x3;

impl Head {
    /// Parses the frame header at the start of `bytes`, and says how many bytes it takes; `None` if it is incomplete.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let (kind, kind_len) = varint::read(bytes)?;
        let (len, len_len) = varint::read(&bytes[kind_len..])?;
        Some((Self { kind, len }, kind_len + len_len))
    }

    /// Whether the kind is one of HTTP/2 that HTTP/3 does not have (RFC 9114 §7.2.8).
    pub(crate) fn is_of_http2(self) -> bool {
        matches!(self.kind, 0x2 | 0x6 | 0x8 | 0x9)
    }

    /// Whether the kind belongs on a control stream, and nowhere else (RFC 9114 §7, RFC 9218 §7.2).
    pub(crate) fn is_of_control(self) -> bool {
        matches!(
            self.kind,
            CANCEL_PUSH | SETTINGS | GOAWAY | MAX_PUSH_ID | PRIORITY_UPDATE | PRIORITY_UPDATE_OF_PUSH
        )
    }

    /// Whether the kind belongs on the stream of a request or a push, and nowhere else (RFC 9114 §7).
    pub(crate) fn is_of_message(self) -> bool {
        matches!(self.kind, DATA | HEADERS | PUSH_PROMISE)
    }
}

/// Appends the header of a frame.
pub(crate) fn push_head(out: &mut Vec<u8>, kind: u64, len: usize) {
    varint::push(out, kind);
    varint::push(out, len as u64);
}

/// Appends a frame that carries one integer.
pub(crate) fn push_number(out: &mut Vec<u8>, kind: u64, number: u64) {
    let mut payload = Vec::with_capacity(8);
    varint::push(&mut payload, number);
    push_head(out, kind, payload.len());
    out.extend_from_slice(&payload);
}

impl fmt::Display for Head {
    /// Describes the frame in words, without its payload, which may hold secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, len } = self;
        let name = match *kind {
            DATA => "DATA",
            HEADERS => "HEADERS",
            CANCEL_PUSH => "CANCEL_PUSH",
            SETTINGS => "SETTINGS",
            PUSH_PROMISE => "PUSH_PROMISE",
            GOAWAY => "GOAWAY",
            MAX_PUSH_ID => "MAX_PUSH_ID",
            PRIORITY_UPDATE | PRIORITY_UPDATE_OF_PUSH => "PRIORITY_UPDATE",
            _ => return write!(formatter, "a frame of {len} bytes of the kind 0x{kind:x}"),
        };
        write!(formatter, "{name} of {len} bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_are_written() {
        for (kind, len) in [(DATA, 0), (HEADERS, 63), (DATA, 64), (PRIORITY_UPDATE, 1 << 20)] {
            let mut bytes = Vec::new();
            push_head(&mut bytes, kind, len);
            let head = Head { kind, len: len as u64 };
            assert_eq!(Head::parse(&bytes), Some((head, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(Head::parse(&bytes[..cut]), None);
            }
        }
        let longest = [[0xff; 8], [0xff; 8]].concat();
        assert_eq!(Head::parse(&longest).map(|(_, len)| len), Some(HEAD_MAX));
    }

    #[test]
    fn a_number_is_a_frame() {
        let mut bytes = Vec::new();
        push_number(&mut bytes, GOAWAY, 0x41);
        assert_eq!(bytes, [0x7, 2, 0x40, 0x41]);
    }
}
