//! Error codes of connections and streams (RFC 9114 §8.1, RFC 9204 §6).

use std::fmt;

/// An error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u64);

impl Code {
    /// No error.
    pub const NO_ERROR: Self = Self(0x100);
    /// The peer broke the protocol, in a way that no other code names.
    pub const GENERAL_PROTOCOL_ERROR: Self = Self(0x101);
    /// An internal error; the peer is not at fault.
    pub const INTERNAL_ERROR: Self = Self(0x102);
    /// The peer created a stream that it must not.
    pub const STREAM_CREATION_ERROR: Self = Self(0x103);
    /// A stream that the connection needs was closed.
    pub const CLOSED_CRITICAL_STREAM: Self = Self(0x104);
    /// A frame came where it must not.
    pub const FRAME_UNEXPECTED: Self = Self(0x105);
    /// A frame has another layout or size.
    pub const FRAME_ERROR: Self = Self(0x106);
    /// The peer causes excessive load.
    pub const EXCESSIVE_LOAD: Self = Self(0x107);
    /// A stream or push ID is used incorrectly.
    pub const ID_ERROR: Self = Self(0x108);
    /// A SETTINGS frame is invalid.
    pub const SETTINGS_ERROR: Self = Self(0x109);
    /// The control stream does not begin with SETTINGS.
    pub const MISSING_SETTINGS: Self = Self(0x10a);
    /// The request was not processed, and may be sent again.
    pub const REQUEST_REJECTED: Self = Self(0x10b);
    /// The request or its response is no longer wanted.
    pub const REQUEST_CANCELLED: Self = Self(0x10c);
    /// The client's stream ended without a whole request.
    pub const REQUEST_INCOMPLETE: Self = Self(0x10d);
    /// The message is malformed.
    pub const MESSAGE_ERROR: Self = Self(0x10e);
    /// A field section cannot be decoded.
    pub const QPACK_DECOMPRESSION_FAILED: Self = Self(0x200);
    /// An instruction of the encoder stream is invalid.
    pub const QPACK_ENCODER_STREAM_ERROR: Self = Self(0x201);
    /// An instruction of the decoder stream is invalid.
    pub const QPACK_DECODER_STREAM_ERROR: Self = Self(0x202);
}

impl fmt::Display for Code {
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
            (Code::NO_ERROR, "H3_NO_ERROR"),
            (Code::MESSAGE_ERROR, "H3_MESSAGE_ERROR"),
            (Code(0x110), "H3_VERSION_FALLBACK"),
            (Code::QPACK_DECODER_STREAM_ERROR, "QPACK_DECODER_STREAM_ERROR"),
            (Code(0x111), "error 0x111"),
            (Code(0), "error 0x0"),
        ] {
            assert_eq!(code.to_string(), name);
        }
    }
}
