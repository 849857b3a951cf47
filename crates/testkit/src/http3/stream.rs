//! Streams and waits of both ends of HTTP/3. Each wait is bounded by `PATIENCE`.

use std::future::Future;
use std::sync::Arc;

use quinn::{ConnectionError, RecvStream, SendStream, VarInt};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::frame::{self, DATA, HEADERS, head, headers, lines, request};
use crate::wait::PATIENCE;

/// A control stream with settings of an end that takes no dynamic table.
pub(super) const NO_SETTINGS: &[u8] = &[0x00, 0x04, 0x00];

/// A stream of a request, of either end.
pub struct Stream {
    runtime: Arc<Runtime>,
    /// What this end sends.
    pub send: SendStream,
    /// What it gets.
    pub receive: RecvStream,
    held: Vec<u8>,
}

/// What comes on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Got {
    /// Lines of `name: value`.
    Headers(String),
    /// A part of a body.
    Data(Vec<u8>),
    /// The stream has ended.
    End,
    /// The stream was reset with this code.
    Reset(u64),
    /// The connection has ended.
    Gone,
}

pub(super) fn wait<T>(runtime: &Runtime, what: &str, future: impl Future<Output = T>) -> T {
    runtime
        .block_on(async { timeout(PATIENCE, future).await })
        .unwrap_or_else(|_| panic!("{what} takes too long"))
}

/// A runtime with one thread.
pub(super) fn runtime() -> Arc<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    Arc::new(runtime.expect("a runtime"))
}

/// The code and the words with which the peer ends the connection.
pub(super) fn closed(runtime: &Runtime, quic: &quinn::Connection) -> (u64, String) {
    match wait(runtime, "the end", quic.closed()) {
        ConnectionError::ApplicationClosed(close) => {
            (close.error_code.into_inner(), String::from_utf8_lossy(&close.reason).into_owned())
        }
        other => panic!("it ended otherwise: {other}"),
    }
}

/// The frames that the peer sends on its control stream until there is one of this kind, whose payload it is.
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
            // Let go of, it would be stopped, and the connection needs it.
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

impl Stream {
    pub(super) fn of(runtime: &Arc<Runtime>, (send, receive): (SendStream, RecvStream)) -> Self {
        Self { runtime: Arc::clone(runtime), send, receive, held: Vec::new() }
    }

    /// Its ID.
    pub fn id(&self) -> u64 {
        self.send.id().into()
    }

    /// Sends a request that ends with its head, unless the stream has ended.
    pub fn asks(&mut self, method: &str, path: &str, fields: &str) {
        let head = headers(&request(method, path, fields));
        let _ = wait(&self.runtime, "a write", self.send.write_all(&head));
        let _ = self.send.finish();
    }

    /// Sends bytes as they are.
    pub fn sends(&mut self, bytes: &[u8]) {
        wait(&self.runtime, "a write", self.send.write_all(bytes)).expect("it takes it");
    }

    /// Sends bytes as they are; whether the peer takes them.
    pub fn can_send(&mut self, bytes: &[u8]) -> bool {
        wait(&self.runtime, "a write", self.send.write_all(bytes)).is_ok()
    }

    /// Sends a HEADERS frame.
    pub fn sends_head(&mut self, lines: &str) {
        self.sends(&headers(lines));
    }

    /// Sends a DATA frame.
    pub fn sends_data(&mut self, bytes: &[u8]) {
        self.sends(&[&head(DATA, bytes.len())[..], bytes].concat());
    }

    /// Ends what this end sends.
    pub fn ends(&mut self) {
        self.send.finish().expect("it was open");
    }

    /// The next frame, or the end.
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

    /// Resets what this end sends.
    pub fn resets(&mut self, code: u64) {
        self.send.reset(VarInt::from_u64(code).expect("is a code")).expect("it was open");
    }

    /// Tells the peer to send no more.
    pub fn stops(&mut self, code: u64) {
        self.receive.stop(VarInt::from_u64(code).expect("is a code")).expect("it was open");
    }

    /// The code with which the peer has told to send no more; `None` if it has taken all.
    pub fn stopped(&mut self) -> Option<u64> {
        let stopped = wait(&self.runtime, "the end of a stream", self.send.stopped());
        stopped.expect("the connection is there").map(VarInt::into_inner)
    }

    /// Takes bytes of whatever frames, at most so many; how many there were, 0 at the end.
    pub fn receives(&mut self, most: usize) -> usize {
        let chunk = wait(&self.runtime, "more", self.receive.read_chunk(most, true));
        chunk.expect("it goes on").map_or(0, |chunk| chunk.bytes.len())
    }

    /// The head of a response, or interim response.
    pub fn head(&mut self) -> String {
        match self.gets() {
            Got::Headers(lines) => lines,
            other => panic!("no head: {other:?}"),
        }
    }

    /// A message: its head, its body, and its trailers.
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
