//! Connection errors: the error code, and the broken rule in the words of the log and the peer.

use crate::code::Code;
use crate::connection::{Broken, Cause};

pub(crate) const STREAM_CREATED: Broken =
    broken(Code::STREAM_CREATION_ERROR, "servers open no bidirectional streams (RFC 9114 §6.1)");
pub(crate) const SECOND_STREAM: Broken = broken(
    Code::STREAM_CREATION_ERROR,
    "there is one control stream, one encoder stream and one decoder stream (RFC 9114 §6.2.1, RFC 9204 §4.2)",
);
pub(crate) const CLIENT_PUSHED: Broken =
    broken(Code::STREAM_CREATION_ERROR, "only servers push (RFC 9114 §6.2.2)");
pub(crate) const CRITICAL_CLOSED: Broken = broken(
    Code::CLOSED_CRITICAL_STREAM,
    "control, encoder and decoder streams stay open (RFC 9114 §6.2.1, RFC 9204 §4.2)",
);
pub(crate) const NO_SETTINGS: Broken =
    broken(Code::MISSING_SETTINGS, "a control stream begins with SETTINGS (RFC 9114 §6.2.1)");
pub(crate) const SECOND_SETTINGS: Broken =
    broken(Code::FRAME_UNEXPECTED, "SETTINGS come once (RFC 9114 §7.2.4)");
pub(crate) const NOT_ON_CONTROL: Broken =
    broken(Code::FRAME_UNEXPECTED, "this kind of frame does not belong on a control stream (RFC 9114 §7)");
pub(crate) const NOT_ON_REQUEST: Broken =
    broken(Code::FRAME_UNEXPECTED, "this kind of frame belongs on a control stream (RFC 9114 §7)");
pub(crate) const NOT_FROM_THIS_SIDE: Broken =
    broken(Code::FRAME_UNEXPECTED, "the other side sends this kind of frame (RFC 9114 §7, RFC 9218 §7.2)");
pub(crate) const OF_HTTP2: Broken =
    broken(Code::FRAME_UNEXPECTED, "HTTP/3 has no such frame; HTTP/2 does (RFC 9114 §7.2.8)");
pub(crate) const NOT_IN_TURN: Broken = broken(
    Code::FRAME_UNEXPECTED,
    "a message is HEADERS, then DATA, then perhaps HEADERS for trailers (RFC 9114 §4.1)",
);
pub(crate) const NOT_IN_TUNNEL: Broken =
    broken(Code::FRAME_UNEXPECTED, "a stream that CONNECT has turned over carries DATA (RFC 9114 §4.4)");
pub(crate) const CUT_OFF: Broken =
    broken(Code::FRAME_ERROR, "the stream ended within a frame (RFC 9114 §7.1)");
pub(crate) const WRONG_SIZE: Broken =
    broken(Code::FRAME_ERROR, "the payload of a frame ends with its fields (RFC 9114 §7.1)");
pub(crate) const BAD_SETTING: Broken = broken(
    Code::SETTINGS_ERROR,
    "a setting comes once, is none of HTTP/2, and has one of its values (RFC 9114 §7.2.4)",
);
pub(crate) const PUSHED: Broken =
    broken(Code::ID_ERROR, "no push was allowed: there was no MAX_PUSH_ID (RFC 9114 §4.6)");
pub(crate) const UNKNOWN_PUSH: Broken =
    broken(Code::ID_ERROR, "there is no push with this ID (RFC 9114 §7.2.3, RFC 9218 §7.2)");
pub(crate) const PUSHES_REDUCED: Broken =
    broken(Code::ID_ERROR, "MAX_PUSH_ID is never reduced (RFC 9114 §7.2.7)");
pub(crate) const GOAWAY_RAISED: Broken =
    broken(Code::ID_ERROR, "the ID of a GOAWAY is never raised (RFC 9114 §5.2)");
pub(crate) const GOAWAY_OF_NO_REQUEST: Broken =
    broken(Code::ID_ERROR, "a server's GOAWAY names a request stream (RFC 9114 §7.2.6)");
pub(crate) const PRIORITY_OF_NO_REQUEST: Broken =
    broken(Code::ID_ERROR, "PRIORITY_UPDATE names a request stream (RFC 9218 §7.2)");
pub(crate) const CONTROL_TOO_LONG: Broken =
    broken(Code::EXCESSIVE_LOAD, "a frame on the control stream has at most 4096 bytes");
pub(crate) const UNREADABLE: Broken =
    broken(Code::QPACK_DECOMPRESSION_FAILED, "the field section cannot be decoded (RFC 9204 §2.2)");
pub(crate) const TOO_MANY_BLOCKED: Broken = broken(
    Code::QPACK_DECOMPRESSION_FAILED,
    "more streams are blocked than SETTINGS_QPACK_BLOCKED_STREAMS allows (RFC 9204 §2.1.2)",
);
pub(crate) const BAD_INSERT: Broken = broken(
    Code::QPACK_ENCODER_STREAM_ERROR,
    "an instruction is whole, refers to what is in a table, and fits (RFC 9204 §3.2, §4.3)",
);
pub(crate) const BAD_ACKNOWLEDGMENT: Broken =
    broken(Code::QPACK_DECODER_STREAM_ERROR, "only what was sent is acknowledged (RFC 9204 §4.4)");

const fn broken(code: Code, rule: &'static str) -> Broken {
    Broken { code, cause: Cause::Malformed(rule) }
}
