//! Connection errors: the error code, and the broken rule in the words of the log and the peer.

use crate::code::H3Code;
use crate::connection::{H3Broken, H3ErrorCause};

pub(crate) const STREAM_CREATED: H3Broken =
    broken(H3Code::STREAM_CREATION_ERROR, "servers open no bidirectional streams (RFC 9114 §6.1)");
pub(crate) const SECOND_STREAM: H3Broken = broken(
    H3Code::STREAM_CREATION_ERROR,
    "there is one control stream, one encoder stream and one decoder stream (RFC 9114 §6.2.1, RFC 9204 §4.2)",
);
pub(crate) const CLIENT_PUSHED: H3Broken =
    broken(H3Code::STREAM_CREATION_ERROR, "only servers push (RFC 9114 §6.2.2)");
pub(crate) const CRITICAL_CLOSED: H3Broken = broken(
    H3Code::CLOSED_CRITICAL_STREAM,
    "control, encoder and decoder streams stay open (RFC 9114 §6.2.1, RFC 9204 §4.2)",
);
pub(crate) const NO_SETTINGS: H3Broken =
    broken(H3Code::MISSING_SETTINGS, "a control stream begins with SETTINGS (RFC 9114 §6.2.1)");
pub(crate) const SECOND_SETTINGS: H3Broken =
    broken(H3Code::FRAME_UNEXPECTED, "SETTINGS come once (RFC 9114 §7.2.4)");
pub(crate) const NOT_ON_CONTROL: H3Broken =
    broken(H3Code::FRAME_UNEXPECTED, "this kind of frame does not belong on a control stream (RFC 9114 §7)");
pub(crate) const NOT_ON_REQUEST: H3Broken =
    broken(H3Code::FRAME_UNEXPECTED, "this kind of frame belongs on a control stream (RFC 9114 §7)");
pub(crate) const NOT_FROM_THIS_SIDE: H3Broken =
    broken(H3Code::FRAME_UNEXPECTED, "the other side sends this kind of frame (RFC 9114 §7, RFC 9218 §7.2)");
pub(crate) const OF_HTTP2: H3Broken =
    broken(H3Code::FRAME_UNEXPECTED, "HTTP/3 has no such frame; HTTP/2 does (RFC 9114 §7.2.8)");
pub(crate) const NOT_IN_TURN: H3Broken = broken(
    H3Code::FRAME_UNEXPECTED,
    "a message is HEADERS, then DATA, then perhaps HEADERS for trailers (RFC 9114 §4.1)",
);
pub(crate) const NOT_IN_TUNNEL: H3Broken = broken(
    H3Code::FRAME_UNEXPECTED,
    "a stream carries only DATA after CONNECT has succeeded (RFC 9114 §4.4)",
);
pub(crate) const CUT_OFF: H3Broken =
    broken(H3Code::FRAME_ERROR, "the stream ended within a frame (RFC 9114 §7.1)");
pub(crate) const WRONG_SIZE: H3Broken =
    broken(H3Code::FRAME_ERROR, "the payload of a frame ends with its fields (RFC 9114 §7.1)");
pub(crate) const BAD_SETTING: H3Broken = broken(
    H3Code::SETTINGS_ERROR,
    "a setting appears once, is not one of HTTP/2, and has an allowed value (RFC 9114 §7.2.4)",
);
pub(crate) const PUSHED: H3Broken =
    broken(H3Code::ID_ERROR, "no push was allowed: there was no MAX_PUSH_ID (RFC 9114 §4.6)");
pub(crate) const UNKNOWN_PUSH: H3Broken =
    broken(H3Code::ID_ERROR, "there is no push with this ID (RFC 9114 §7.2.3, RFC 9218 §7.2)");
pub(crate) const PUSHES_REDUCED: H3Broken =
    broken(H3Code::ID_ERROR, "MAX_PUSH_ID is never reduced (RFC 9114 §7.2.7)");
pub(crate) const GOAWAY_RAISED: H3Broken =
    broken(H3Code::ID_ERROR, "the ID of a GOAWAY is never raised (RFC 9114 §5.2)");
pub(crate) const GOAWAY_OF_NO_REQUEST: H3Broken =
    broken(H3Code::ID_ERROR, "a server's GOAWAY names a request stream (RFC 9114 §7.2.6)");
pub(crate) const PRIORITY_OF_NO_REQUEST: H3Broken =
    broken(H3Code::ID_ERROR, "PRIORITY_UPDATE names a request stream (RFC 9218 §7.2)");
pub(crate) const CONTROL_TOO_LONG: H3Broken =
    broken(H3Code::EXCESSIVE_LOAD, "a frame on the control stream has at most 4096 bytes");
pub(crate) const UNREADABLE: H3Broken =
    broken(H3Code::QPACK_DECOMPRESSION_FAILED, "the field section cannot be decoded (RFC 9204 §2.2)");
pub(crate) const TOO_MANY_BLOCKED: H3Broken = broken(
    H3Code::QPACK_DECOMPRESSION_FAILED,
    "more streams are blocked than SETTINGS_QPACK_BLOCKED_STREAMS allows (RFC 9204 §2.1.2)",
);
pub(crate) const BAD_INSERT: H3Broken = broken(
    H3Code::QPACK_ENCODER_STREAM_ERROR,
    "an instruction is complete, refers to an existing entry, and fits (RFC 9204 §3.2, §4.3)",
);
pub(crate) const BAD_ACKNOWLEDGMENT: H3Broken =
    broken(H3Code::QPACK_DECODER_STREAM_ERROR, "only what was sent is acknowledged (RFC 9204 §4.4)");

const fn broken(code: H3Code, rule: &'static str) -> H3Broken {
    H3Broken { code, cause: H3ErrorCause::Malformed(rule) }
}
