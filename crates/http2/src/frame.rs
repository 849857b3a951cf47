//! Frames (RFC 9113 §4.1, §6): reads frame headers, and writes frames other than DATA.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct H2FrameHead {
    pub(crate) len: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

/// The length of a frame header (RFC 9113 §4.1).
pub(crate) const HEAD_LEN: usize = 9;
/// Longest payload: the default of RFC 9113 §6.5.2, which this crate never raises.
pub const PAYLOAD_MAX: usize = 16_384;
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const WITH_PRIORITY: u8 = 0x20;

impl H2FrameHead {
    /// `None` if the header is incomplete.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, r, s, t, u] = bytes.first_chunk()?;
        Some(Self {
            len: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            // RFC 9113 §4.1: the first bit is reserved and ignored.
            stream: u32::from_be_bytes([r, s, t, u]) & STREAM_MAX,
        })
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn bytes(&self) -> [u8; HEAD_LEN] {
        let [_, a, b, c] = (self.len as u32).to_be_bytes();
        let [r, s, t, u] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, r, s, t, u]
    }
}

/// The largest stream number, and the largest window.
pub(crate) const STREAM_MAX: u32 = (1 << 31) - 1;
pub(crate) const WINDOW_MAX: i64 = STREAM_MAX as i64;

pub(crate) fn push(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&H2FrameHead { len: payload.len(), kind, flags, stream }.bytes());
    out.extend_from_slice(payload);
}

/// Reads the 32-bit number at the start of a payload. The caller has checked the length.
pub(crate) fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |&bytes| u32::from_be_bytes(bytes))
}

/// An error code (RFC 9113 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason(pub u32);

impl Reason {
    pub const NO_ERROR: Self = Self(0);
    pub const PROTOCOL_ERROR: Self = Self(1);
    pub const INTERNAL_ERROR: Self = Self(2);
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    pub const STREAM_CLOSED: Self = Self(5);
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// The request was not processed, and may be sent again (RFC 9113 §8.7).
    pub const REFUSED_STREAM: Self = Self(7);
    pub const CANCEL: Self = Self(8);
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// The peer sends too many useless frames.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
}

impl fmt::Display for Reason {
    /// Writes the name in RFC 9113 §7.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        match NAMES.get(self.0 as usize) {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "error 0x{:x}", self.0),
        }
    }
}

impl fmt::Display for H2FrameHead {
    /// Describes the frame in words, without its payload, which may contain secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KINDS: [&str; 10] = [
            "DATA",
            "HEADERS",
            "PRIORITY",
            "RST_STREAM",
            "SETTINGS",
            "PUSH_PROMISE",
            "PING",
            "GOAWAY",
            "WINDOW_UPDATE",
            "CONTINUATION",
        ];
        let Self { len, kind, flags, stream } = self;
        // RFC 9113 §5.5: unknown kinds are allowed, so their frames may end up in a message, too.
        let name = KINDS.get(usize::from(*kind)).copied().unwrap_or("a frame of another kind");
        write!(formatter, "{name} of {len} bytes on stream {stream} with flags 0x{flags:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_are_written() {
        let head = H2FrameHead { len: 0x01_02_03, kind: 4, flags: 5, stream: 0x06_07_08_09 };
        assert_eq!(head.bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(H2FrameHead::parse(&head.bytes()), Some(head));
        assert_eq!(H2FrameHead::parse(&head.bytes()[..8]), None);
        let reserved = [0, 0, 0, 0, 0, 0x80, 0, 0, 1];
        assert_eq!(H2FrameHead::parse(&reserved).map(|head| head.stream), Some(1));
    }
}
