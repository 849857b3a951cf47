//! Frames (RFC 9113 §4.1 and §6), and error codes (§7).

use std::fmt;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const ACK: u8 = 0x1;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

pub(super) const SETTINGS_HEADER_TABLE_SIZE: u16 = 1;
pub(super) const SETTINGS_ENABLE_PUSH: u16 = 2;
pub(super) const SETTINGS_MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const SETTINGS_MAX_HEADER_LIST_SIZE: u16 = 6;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(super) const HEAD_BYTES: usize = 9;
/// Maximum payload of a frame: the default of SETTINGS_MAX_FRAME_SIZE, in both directions.
pub(super) const PAYLOAD_BYTES: usize = 16 * 1024;
/// The largest window, and the largest stream identifier.
pub(super) const NUMBER_MAX: u32 = (1 << 31) - 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoadFrameHead {
    pub(super) bytes: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl LoadFrameHead {
    #[inline]
    pub(super) fn read(bytes: &[u8; HEAD_BYTES]) -> Self {
        let &[a, b, c, kind, flags, d, e, f, g] = bytes;
        Self {
            bytes: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            // RFC 9113 §4.1: the reserved bit is ignored.
            stream: u32::from_be_bytes([d, e, f, g]) & NUMBER_MAX,
        }
    }

    #[inline]
    pub(super) fn write(self) -> [u8; HEAD_BYTES] {
        let [_, a, b, c] = (self.bytes as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    #[inline]
    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

pub(super) fn push(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&LoadFrameHead { bytes: payload.len(), kind, flags, stream }.write());
    out.extend_from_slice(payload);
}

/// Error code of RST_STREAM and GOAWAY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct H2Code(pub(crate) u32);

impl H2Code {
    pub(crate) const NO_ERROR: Self = Self(0);
    pub(crate) const PROTOCOL_ERROR: Self = Self(1);
    pub(crate) const FLOW_CONTROL_ERROR: Self = Self(3);
    pub(crate) const FRAME_SIZE_ERROR: Self = Self(6);
    pub(crate) const REFUSED_STREAM: Self = Self(7);
    pub(crate) const CANCEL: Self = Self(8);
    pub(crate) const COMPRESSION_ERROR: Self = Self(9);
}

impl fmt::Display for H2Code {
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
            None => write!(formatter, "error code {:#x}", self.0),
        }
    }
}
