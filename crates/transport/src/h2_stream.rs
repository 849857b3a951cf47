//! An HTTP/2 stream that reads and writes like an HTTP/1.1 connection: a head as text, then the body.
//!
//! Flow control gives end-to-end backpressure: the window opens as the path consumes bytes, and writes are never queued
//! beyond the peer's window.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};

use http2::{H2StreamGone, Key, Reason, WireScheme, WriteError};

use crate::h2_connection::{H2Connection, H2Violation};
use crate::tcp::{Follows, Pipe};

/// An HTTP/2 stream, as one side of an exchange.
pub struct H2Stream {
    connection: H2Connection,
    key: Key,
    /// The scheme of requests, if the peer is a server.
    scheme: WireScheme,
    /// Whether the stream has data to send and no room.
    is_stalled: Cell<bool>,
}

impl Drop for H2Stream {
    fn drop(&mut self) {
        // The count must not include streams that are gone.
        self.stall(false);
        self.connection.release(self.key);
    }
}

impl H2Stream {
    /// Uses a stream that a client has opened, or that was opened for a request to a server.
    pub fn new(connection: H2Connection, key: Key, scheme: WireScheme) -> Self {
        connection.hold(key);
        Self { connection, key, scheme, is_stalled: Cell::default() }
    }

    /// Length of the text that can be read: first the head, then any later text.
    pub fn text_len(&self) -> usize {
        self.connection.text_len(self.key)
    }

    /// The peer's protocol error on the stream or its connection.
    pub fn wrong(&self) -> Option<H2Violation> {
        self.connection.wrong(self.key)
    }

    pub fn reset_reason(&self) -> Option<Reason> {
        self.connection.reset_reason(self.key)
    }

    /// Body bytes that left on the stream or are about to.
    pub fn body_sent(&self) -> u64 {
        self.connection.body_sent(self.key)
    }

    /// Whether the peer has begun a DATA frame, and not sent all of it.
    pub fn owes(&self) -> bool {
        self.connection.owes(self.key)
    }

    /// Ready when the stream has something to read, or its end.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.poll_readable(context, self.key).map(Ok)
    }

    /// 0 is the end.
    pub fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.connection.poll_read(context, self.key, buffer).map_err(broken)
    }

    /// Body bytes that [`poll_lend`](Self::poll_lend) can lend now.
    pub fn lendable(&self) -> usize {
        self.connection.lendable(self.key)
    }

    /// Ready when `wanted` bytes of a body (at most half a window) can be lent, or when no more will come.
    pub fn poll_lendable(&self, context: &mut Context<'_>, wanted: usize) -> Poll<()> {
        self.connection.poll_lendable(context, self.key, wanted)
    }

    /// Lends at most `limit` bytes of a received body to `write`, which returns how many it took.
    pub fn poll_lend(
        &self,
        limit: usize,
        write: impl FnOnce(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.connection.poll_lend(self.key, limit, write)
    }

    /// Writes the start of `bytes`: first a whole head, then the body.
    pub fn poll_write(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        if self.connection.wants_head(self.key) {
            let written = self.connection.write_head(self.key, bytes, follows.is_end(), self.scheme);
            return Poll::Ready(written.map_err(|error| match error {
                WriteError::Untold => ErrorKind::InvalidData.into(),
                WriteError::Gone(gone) => broken(gone),
            }));
        }
        // An empty write must not wait for room.
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let room = ready!(self.poll_room(context))?;
        Poll::Ready(Ok(self.connection.write(self.key, bytes, room, follows.is_end())))
    }

    /// Whether the kernel can move bodies from a pipe to the connection (splice).
    pub fn takes_pipes(&self) -> bool {
        self.connection.takes_pipes()
    }

    /// The most bytes to put into a pipe for this stream at once.
    pub fn pipe_room(&self) -> usize {
        self.connection.pipe_room(self.key)
    }

    /// Moves at least one byte out of a pipe that holds `len` bytes.
    pub fn poll_splice_from(
        &self,
        context: &mut Context<'_>,
        pipe: &Pipe,
        len: usize,
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        let moved = self.connection.poll_splice(context, self.key, pipe, len, follows.is_end());
        // Other streams buffer less while this one cannot send.
        self.stall(moved.is_pending());
        moved
    }

    /// Ready when a write would succeed. Until then, nothing should be read for this stream.
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.connection.wants_head(self.key) {
            return Poll::Ready(());
        }
        // The following write returns the error.
        self.poll_room(context).map(|_| ())
    }

    fn poll_room(&self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let room = self.connection.poll_room(context, self.key).map_err(broken);
        self.stall(room.is_pending());
        room
    }

    fn stall(&self, is_stalled: bool) {
        if self.is_stalled.replace(is_stalled) != is_stalled {
            self.connection.stall(is_stalled);
        }
    }

    /// Whether any stream of the connection has data to send and no room. All its streams should then buffer little.
    pub fn is_crowded(&self) -> bool {
        self.connection.has_stalled()
    }

    /// The most bytes that one write accepts now.
    pub fn room(&self) -> usize {
        if self.connection.wants_head(self.key) {
            // A head is not subject to flow control (RFC 9113 §6.9).
            usize::MAX
        } else {
            self.connection.room(self.key).unwrap_or(0)
        }
    }

    /// Ends the outgoing message, if it has not ended yet. `trailers` are HTTP/1.1 field lines.
    pub fn end(&self, trailers: &[u8]) -> io::Result<()> {
        self.connection.end(self.key, trailers).map_err(broken)
    }

    /// Resets the stream (RST_STREAM), so that the peer sees an incomplete message.
    pub fn reset(&self) {
        self.connection.reset(self.key, Reason::INTERNAL_ERROR);
    }

    /// Whether the connection has ended, or accepts no further streams.
    pub fn has_connection_ended(&self) -> bool {
        self.connection.is_ending()
    }

    /// Opens and accepts no further streams on the connection, which ends with its last stream.
    pub fn retire(&self) {
        self.connection.leave();
    }

    /// Ready once the stream is reset or its connection has ended.
    pub fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()> {
        self.connection.poll_gone(context, self.key)
    }
}

/// A request that the peer did not process may be sent elsewhere (RFC 9113 §8.7). Every other error cuts a message off.
fn broken(gone: H2StreamGone) -> io::Error {
    io::Error::from(match gone {
        H2StreamGone::Untouched => ErrorKind::ConnectionRefused,
        H2StreamGone::Broken => ErrorKind::ConnectionReset,
    })
}
