//! Error codes of connections and streams (RFC 9114 §8.1, RFC 9204 §6).

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct H3Code(pub u64);

impl H3Code {
    pub const NO_ERROR: Self = Self(0x100);
    /// A violation of the protocol that has no more specific code.
    pub const GENERAL_PROTOCOL_ERROR: Self = Self(0x101);
    pub const INTERNAL_ERROR: Self = Self(0x102);
    pub const STREAM_CREATION_ERROR: Self = Self(0x103);
    pub const CLOSED_CRITICAL_STREAM: Self = Self(0x104);
    pub const FRAME_UNEXPECTED: Self = Self(0x105);
    pub const FRAME_ERROR: Self = Self(0x106);
    pub const EXCESSIVE_LOAD: Self = Self(0x107);
    pub const ID_ERROR: Self = Self(0x108);
    pub const SETTINGS_ERROR: Self = Self(0x109);
    pub const MISSING_SETTINGS: Self = Self(0x10a);
    /// The request was not processed, and may be sent again.
    pub const REQUEST_REJECTED: Self = Self(0x10b);
    pub const REQUEST_CANCELLED: Self = Self(0x10c);
    pub const REQUEST_INCOMPLETE: Self = Self(0x10d);
    pub const MESSAGE_ERROR: Self = Self(0x10e);
    pub const QPACK_DECOMPRESSION_FAILED: Self = Self(0x200);
    pub const QPACK_ENCODER_STREAM_ERROR: Self = Self(0x201);
    pub const QPACK_DECODER_STREAM_ERROR: Self = Self(0x202);
}

impl fmt::Display for H3Code {
    /// Writes the name of the error code, as in the registry.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HTTP: [&str; 17] = [
            "H3_NO_ERROR",
            "H3_GENERAL_PROTOCOL_ERROR",
            "H3_INTERNAL_ERROR",
            "H3_STREAM_CREATION_ERROR",
            "H3_CLOSED_CRITICAL_STREAM",
            "H3_FRAME_UNEXPECTED",
            "H3_FRAME_ERROR",
            "H3_EXCESSIVE_LOAD",
            "H3_ID_ERROR",
            "H3_SETTINGS_ERROR",
            "H3_MISSING_SETTINGS",
            "H3_REQUEST_REJECTED",
            "H3_REQUEST_CANCELLED",
            "H3_REQUEST_INCOMPLETE",
            "H3_MESSAGE_ERROR",
            "H3_CONNECT_ERROR",
            "H3_VERSION_FALLBACK",
        ];
        const QPACK: [&str; 3] =
            ["QPACK_DECOMPRESSION_FAILED", "QPACK_ENCODER_STREAM_ERROR", "QPACK_DECODER_STREAM_ERROR"];
        let name = match self.0 {
            0x100..0x200 => HTTP.get(self.0 as usize - 0x100),
            0x200..0x300 => QPACK.get(self.0 as usize - 0x200),
            _ => None,
        };
        match name {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "error 0x{:x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_names() {
        for (code, name) in [
            (H3Code::NO_ERROR, "H3_NO_ERROR"),
            (H3Code::MESSAGE_ERROR, "H3_MESSAGE_ERROR"),
            (H3Code(0x110), "H3_VERSION_FALLBACK"),
            (H3Code::QPACK_DECODER_STREAM_ERROR, "QPACK_DECODER_STREAM_ERROR"),
            (H3Code(0x111), "error 0x111"),
            (H3Code(0), "error 0x0"),
        ] {
            assert_eq!(code.to_string(), name);
        }
    }
}
