//! Streams and waits of both ends of HTTP/3. `PATIENCE` limits each wait.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quinn::{ConnectionError, RecvStream, SendStream, VarInt};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::frame::{self, DATA, HEADERS, head, headers, lines, request};
use crate::wait::PATIENCE;

/// A control stream with settings that allow no dynamic table.
pub(super) const NO_SETTINGS: &[u8] = &[0x00, 0x04, 0x00];

/// Size of a DATA frame of [`Stream::fills`].
const PIECE_BYTES: usize = 16 * 1024;
/// A peer that reads nothing for this long is taken to have stopped reading.
const NOTHING_TAKEN: Duration = Duration::from_millis(500);

pub struct H3TestStream {
    runtime: Arc<Runtime>,
    pub send: SendStream,
    pub receive: RecvStream,
    held: Vec<u8>,
}

/// The next event on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Got {
    /// Lines of `name: value`.
    Headers(String),
    Data(Vec<u8>),
    End,
    Reset(u64),
    Gone,
}

pub(super) fn wait<T>(runtime: &Runtime, what: &str, future: impl Future<Output = T>) -> T {
    runtime
        .block_on(async { timeout(PATIENCE, future).await })
        .unwrap_or_else(|_| panic!("{what} takes too long"))
}

pub(super) fn runtime() -> Arc<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    Arc::new(runtime.expect("a runtime"))
}

/// Waits for the peer to close the connection. Returns the code and the reason.
pub(super) fn closed(runtime: &Runtime, quic: &quinn::Connection) -> (u64, String) {
    match wait(runtime, "the end", quic.closed()) {
        ConnectionError::ApplicationClosed(close) => {
            (close.error_code.into_inner(), String::from_utf8_lossy(&close.reason).into_owned())
        }
        other => panic!("it ended otherwise: {other}"),
    }
}

/// Reads the peer's control stream up to a frame of this type. Returns its payload.
pub(super) fn hears(runtime: &Runtime, quic: &quinn::Connection, kind: u64) -> Vec<u8> {
    loop {
        let mut stream = wait(runtime, "a stream", quic.accept_uni()).expect("a stream");
        let mut held = Vec::new();
        let is_control = loop {
            let chunk = wait(runtime, "its kind", stream.read_chunk(64, true)).expect("is read");
            held.extend_from_slice(&chunk.expect("it stays open").bytes);
            if let Some(first) = held.first() {
                break *first == 0;
            }
        };
        if !is_control {
            // Dropping the stream would send STOP_SENDING, but the connection needs it.
            std::mem::forget(stream);
            continue;
        }
        held.remove(0);
        loop {
            while let Some((found, payload)) = frame::take(&mut held) {
                if found == kind {
                    std::mem::forget(stream);
                    return payload;
                }
            }
            let chunk = wait(runtime, "a frame", stream.read_chunk(1024, true)).expect("is read");
            held.extend_from_slice(&chunk.expect("it stays open").bytes);
        }
    }
}

impl H3TestStream {
    pub(super) fn new(runtime: &Arc<Runtime>, (send, receive): (SendStream, RecvStream)) -> Self {
        Self { runtime: Arc::clone(runtime), send, receive, held: Vec::new() }
    }

    pub fn id(&self) -> u64 {
        self.send.id().into()
    }

    /// Sends a request that ends with its head, unless the stream has ended.
    pub fn asks(&mut self, method: &str, path: &str, fields: &str) {
        let head = headers(&request(method, path, fields));
        let _ = wait(&self.runtime, "a write", self.send.write_all(&head));
        let _ = self.send.finish();
    }

    pub fn sends(&mut self, bytes: &[u8]) {
        wait(&self.runtime, "a write", self.send.write_all(bytes)).expect("it takes it");
    }

    /// Returns whether the peer accepts the bytes.
    pub fn can_send(&mut self, bytes: &[u8]) -> bool {
        wait(&self.runtime, "a write", self.send.write_all(bytes)).is_ok()
    }

    pub fn sends_head(&mut self, lines: &str) {
        self.sends(&headers(lines));
    }

    pub fn sends_data(&mut self, bytes: &[u8]) {
        self.sends(&[&head(DATA, bytes.len())[..], bytes].concat());
    }

    /// Sends DATA frames until the peer stops reading.
    pub fn fills(&mut self) {
        let piece = [&head(DATA, PIECE_BYTES)[..], &[b'x'; PIECE_BYTES]].concat();
        let mut at = 0;
        loop {
            let write = async { timeout(NOTHING_TAKEN, self.send.write(&piece[at..])).await };
            let Ok(sent) = self.runtime.block_on(write) else { return };
            at = (at + sent.expect("the stream is open")) % piece.len();
        }
    }

    pub fn ends(&mut self) {
        self.send.finish().expect("it was open");
    }

    /// Receives the next frame, or the end.
    pub fn gets(&mut self) -> Got {
        loop {
            if let Some((kind, payload)) = frame::take(&mut self.held) {
                match kind {
                    DATA => return Got::Data(payload),
                    HEADERS => return Got::Headers(lines(&payload)),
                    _ => continue,
                }
            }
            match wait(&self.runtime, "a frame", self.receive.read_chunk(usize::MAX, true)) {
                Ok(Some(chunk)) => self.held.extend_from_slice(&chunk.bytes),
                Ok(None) => {
                    assert!(self.held.is_empty(), "a frame is cut off: {:x?}", self.held);
                    return Got::End;
                }
                Err(quinn::ReadError::Reset(code)) => return Got::Reset(code.into_inner()),
                Err(_) => return Got::Gone,
            }
        }
    }

    pub fn resets(&mut self, code: u64) {
        self.send.reset(VarInt::from_u64(code).expect("is a code")).expect("it was open");
    }

    pub fn stops(&mut self, code: u64) {
        self.receive.stop(VarInt::from_u64(code).expect("is a code")).expect("it was open");
    }

    /// Waits for the peer's STOP_SENDING, and returns its code; `None` if the peer has received everything.
    pub fn stopped(&mut self) -> Option<u64> {
        let stopped = wait(&self.runtime, "the end of a stream", self.send.stopped());
        stopped.expect("the connection is there").map(VarInt::into_inner)
    }

    /// Receives up to `most` bytes, without parsing. Returns their number, 0 at the end.
    pub fn receives(&mut self, most: usize) -> usize {
        let chunk = wait(&self.runtime, "more", self.receive.read_chunk(most, true));
        chunk.expect("it goes on").map_or(0, |chunk| chunk.bytes.len())
    }

    /// Receives the head of a response or of an interim response.
    pub fn head(&mut self) -> String {
        match self.gets() {
            Got::Headers(lines) => lines,
            other => panic!("no head: {other:?}"),
        }
    }

    /// Receives a message: its head, its body, and its trailers.
    pub fn response(&mut self) -> (String, Vec<u8>, String) {
        let head = self.head();
        let (mut body, mut trailers) = (Vec::new(), String::new());
        loop {
            match self.gets() {
                Got::Data(bytes) => body.extend_from_slice(&bytes),
                Got::Headers(lines) => trailers = lines,
                Got::End => return (head, body, trailers),
                other => panic!("the message is cut off by {other:?}, behind {} bytes", body.len()),
            }
        }
    }
}
