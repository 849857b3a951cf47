//! Connection errors: the error code, and the broken rule in the words of the log and the peer.

use crate::connection::{H2Broken, H2ErrorCause};
use crate::frame::Reason;

pub(crate) const NO_PREFACE: H2Broken =
    broken(Reason::PROTOCOL_ERROR, "a connection begins with the preface (RFC 9113 §3.4)");
pub(crate) const TOO_LONG: H2Broken =
    broken(Reason::FRAME_SIZE_ERROR, "a frame has at most 16384 bytes (RFC 9113 §4.2)");
pub(crate) const NOT_IN_TURN: H2Broken = broken(
    Reason::PROTOCOL_ERROR,
    "SETTINGS come first, and only CONTINUATION behind an unfinished header block (RFC 9113 §3.4, §6.10)",
);
pub(crate) const WRONG_STREAM: H2Broken =
    broken(Reason::PROTOCOL_ERROR, "this kind of frame does not belong on this stream (RFC 9113 §6)");
pub(crate) const WRONG_SIZE: H2Broken =
    broken(Reason::FRAME_SIZE_ERROR, "this kind of frame has another size (RFC 9113 §6)");
pub(crate) const PUSHED: H2Broken = broken(Reason::PROTOCOL_ERROR, "pushes are not enabled (RFC 9113 §8.4)");
pub(crate) const BAD_SETTING: H2Broken =
    broken(Reason::PROTOCOL_ERROR, "a setting has an allowed value (RFC 9113 §6.5.2)");
pub(crate) const NO_INCREMENT: H2Broken =
    broken(Reason::PROTOCOL_ERROR, "a window increment is not 0 (RFC 9113 §6.9)");
pub(crate) const WINDOW_OVERFLOW: H2Broken =
    broken(Reason::FLOW_CONTROL_ERROR, "a window is at most 2^31-1 (RFC 9113 §6.9.1)");
pub(crate) const WINDOW_EXCEEDED: H2Broken =
    broken(Reason::FLOW_CONTROL_ERROR, "it is more than the connection's window (RFC 9113 §6.9.1)");
pub(crate) const STREAM_IDLE: H2Broken =
    broken(Reason::PROTOCOL_ERROR, "this stream has not begun (RFC 9113 §5.1)");
pub(crate) const STREAM_OVER: H2Broken =
    broken(Reason::STREAM_CLOSED, "this stream is closed (RFC 9113 §5.1)");
pub(crate) const STREAM_NUMBER: H2Broken =
    broken(Reason::PROTOCOL_ERROR, "a client's streams have odd numbers (RFC 9113 §5.1.1)");
pub(crate) const UNASKED: H2Broken =
    broken(Reason::PROTOCOL_ERROR, "there is no request that this answers (RFC 9113 §5.1)");
pub(crate) const NO_HEAD: H2Broken =
    broken(Reason::PROTOCOL_ERROR, "HEADERS come before DATA (RFC 9113 §8.1)");
pub(crate) const NO_PAD_LENGTH: H2Broken =
    broken(Reason::FRAME_SIZE_ERROR, "a padded frame states the length of its padding (RFC 9113 §6.1)");
pub(crate) const PADDING_TOO_LONG: H2Broken =
    broken(Reason::PROTOCOL_ERROR, "padding fits into its frame (RFC 9113 §6.1)");
pub(crate) const UNREADABLE: H2Broken =
    broken(Reason::COMPRESSION_ERROR, "the header block cannot be decoded (RFC 9113 §4.3)");
pub(crate) const DEPENDS_ON_ITSELF: H2Broken =
    broken(Reason::PROTOCOL_ERROR, "no stream depends on itself (RFC 7540 §5.3.1)");

const fn broken(reason: Reason, rule: &'static str) -> H2Broken {
    H2Broken { reason, cause: H2ErrorCause::Malformed(rule) }
}
