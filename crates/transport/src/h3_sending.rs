//! How HTTP/3 sends on the streams of QUIC.

use http3::Code;
use quinn_proto::{StreamId, VarInt};

use crate::h3_budget::Budget;

/// The streams of QUIC, as far as HTTP/3 sends on them.
pub(crate) struct Streams<'a>(pub(crate) &'a mut quinn_proto::Connection, pub(crate) &'a mut Budget);

pub(crate) fn stream(id: u64) -> StreamId {
    // It is one that QUIC has given us.
    VarInt::from_u64(id).unwrap_or(VarInt::MAX).into()
}

pub(crate) fn varint(code: Code) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or(VarInt::MAX)
}

impl http3::Transport for Streams<'_> {
    fn write(&mut self, id: u64, bytes: &[u8]) -> usize {
        match self.0.send_stream(stream(id)).write(bytes) {
            Ok(count) => {
                self.1.wrote();
                count
            }
            // The stop is told by an event of its own.
            Err(quinn_proto::WriteError::Blocked | quinn_proto::WriteError::Stopped(_)) => 0,
            // Nobody is there to get it.
            Err(quinn_proto::WriteError::ClosedStream) => bytes.len(),
        }
    }

    fn finish(&mut self, id: u64) {
        let _ = self.0.send_stream(stream(id)).finish();
    }

    fn reset(&mut self, id: u64, code: Code) {
        let _ = self.0.send_stream(stream(id)).reset(varint(code));
    }

    fn stop(&mut self, id: u64, code: Code) {
        let _ = self.0.recv_stream(stream(id)).stop(varint(code));
    }
}
