//! Implements HTTP/3's [`Transport`](http3::Transport) with QUIC streams.

use http3::H3Code;
use quinn_proto::{StreamId, VarInt};

use crate::h3_budget::Budget;

/// The sending side of a QUIC connection's streams.
pub(crate) struct SendingStreams<'a>(pub(crate) &'a mut quinn_proto::Connection, pub(crate) &'a mut Budget);

pub(crate) fn stream(id: u64) -> StreamId {
    // QUIC assigned the ID, so it is in range.
    VarInt::from_u64(id).unwrap_or(VarInt::MAX).into()
}

pub(crate) fn varint(code: H3Code) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or(VarInt::MAX)
}

impl http3::Transport for SendingStreams<'_> {
    fn write(&mut self, id: u64, bytes: &[u8]) -> usize {
        match self.0.send_stream(stream(id)).write(bytes) {
            Ok(count) => {
                self.1.wrote();
                count
            }
            // A separate event reports the stop.
            Err(quinn_proto::WriteError::Blocked | quinn_proto::WriteError::Stopped(_)) => 0,
            // The stream is gone: the bytes are dropped.
            Err(quinn_proto::WriteError::ClosedStream) => bytes.len(),
        }
    }

    fn finish(&mut self, id: u64) {
        let _ = self.0.send_stream(stream(id)).finish();
    }

    fn reset(&mut self, id: u64, code: H3Code) {
        let _ = self.0.send_stream(stream(id)).reset(varint(code));
    }

    fn stop(&mut self, id: u64, code: H3Code) {
        let _ = self.0.recv_stream(stream(id)).stop(varint(code));
    }
}
