//! Frames (RFC 9114 §7): their headers and kinds, and on which streams each is allowed.

use std::fmt;

use crate::varint;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct H3FrameHead {
    pub(crate) kind: u64,
    pub(crate) len: u64,
}

/// Longest frame header, in bytes.
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

impl H3FrameHead {
    /// Also returns the header's length. `None` if it is incomplete.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let (kind, kind_len) = varint::read(bytes)?;
        let (len, len_len) = varint::read(&bytes[kind_len..])?;
        Some((Self { kind, len }, kind_len + len_len))
    }

    /// Whether the kind is one of HTTP/2 that HTTP/3 does not have (RFC 9114 §7.2.8).
    pub(crate) fn is_of_http2(self) -> bool {
        matches!(self.kind, 0x2 | 0x6 | 0x8 | 0x9)
    }

    /// Whether the kind is allowed only on a control stream (RFC 9114 §7, RFC 9218 §7.2).
    pub(crate) fn is_of_control(self) -> bool {
        matches!(
            self.kind,
            CANCEL_PUSH | SETTINGS | GOAWAY | MAX_PUSH_ID | PRIORITY_UPDATE | PRIORITY_UPDATE_OF_PUSH
        )
    }

    /// Whether the kind is allowed only on the stream of a request or a push (RFC 9114 §7).
    pub(crate) fn is_of_message(self) -> bool {
        matches!(self.kind, DATA | HEADERS | PUSH_PROMISE)
    }
}

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

impl fmt::Display for H3FrameHead {
    /// Describes the frame in words, without its payload, which may contain secrets.
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
            _ => return write!(formatter, "a frame of {len} bytes of type 0x{kind:x}"),
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
            let head = H3FrameHead { kind, len: len as u64 };
            assert_eq!(H3FrameHead::parse(&bytes), Some((head, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(H3FrameHead::parse(&bytes[..cut]), None);
            }
        }
        let longest = [[0xff; 8], [0xff; 8]].concat();
        assert_eq!(H3FrameHead::parse(&longest).map(|(_, len)| len), Some(HEAD_MAX));
    }

    #[test]
    fn a_number_is_a_frame() {
        let mut bytes = Vec::new();
        push_number(&mut bytes, GOAWAY, 0x41);
        assert_eq!(bytes, [0x7, 2, 0x40, 0x41]);
    }
}
