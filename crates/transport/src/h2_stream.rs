//! A stream of HTTP/2 that reads and writes like a connection of HTTP/1.1: a head as text, then the body. So the path of
//! a request is the same for both versions.
//!
//! Its windows are end-to-end backpressure: what was received is given back as the path takes it, and nothing is queued
//! beyond what the peer has room for.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};

use http2::{Gone, Key, Reason, Scheme, WriteError};

use crate::h2_connection::{H2Connection, Wrong};
use crate::tcp::{Follows, Pipe};

/// A stream, as one side of an exchange.
pub struct Stream {
    connection: H2Connection,
    key: Key,
    /// What the peer is spoken to in, if it is a server.
    scheme: Scheme,
    /// Whether something waits to be sent.
    is_stalled: Cell<bool>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stall(false);
        self.connection.release(self.key);
    }
}

impl Stream {
    /// A stream that a client has opened, or one that is open for a request.
    pub fn new(connection: H2Connection, key: Key, scheme: Scheme) -> Self {
        connection.hold(key);
        Self { connection, key, scheme, is_stalled: Cell::default() }
    }

    /// The length of the text that waits to be read: at first, that of the head.
    pub fn text_len(&self) -> usize {
        self.connection.text_len(self.key)
    }

    /// What the peer did wrong on it, in words.
    pub fn wrong(&self) -> Option<Wrong> {
        self.connection.wrong(self.key)
    }

    /// Bytes of a body that left on it, or are about to.
    pub fn body_sent(&self) -> u64 {
        self.connection.body_sent(self.key)
    }

    /// Whether the peer has begun a frame of the body and owes the rest of it.
    pub fn owes(&self) -> bool {
        self.connection.owes(self.key)
    }

    /// Ready when there is something to read, or the end.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.poll_readable(context, self.key).map(Ok)
    }

    /// Reads into `buffer`; 0 is the end.
    pub fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.connection.poll_read(context, self.key, buffer).map_err(broken)
    }

    /// How much of a body has arrived and can be lent.
    pub fn lendable(&self) -> usize {
        self.connection.lendable(self.key)
    }

    /// Ready when so much of a body can be lent, or half a window of it, or nothing more comes.
    pub fn poll_lendable(&self, context: &mut Context<'_>, wanted: usize) -> Poll<()> {
        self.connection.poll_lendable(context, self.key, wanted)
    }

    /// Lends at most `limit` bytes of what has arrived of a body to `write`, which says how many of them it took.
    pub fn poll_lend(
        &self,
        limit: usize,
        write: impl FnOnce(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.connection.poll_lend(self.key, limit, write)
    }

    /// Writes the start of `bytes`: a whole head first, then what follows it.
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
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let room = ready!(self.poll_room(context))?;
        Poll::Ready(Ok(self.connection.write(self.key, bytes, room, follows.is_end())))
    }

    /// Whether the kernel can move bytes here by itself, out of a pipe.
    pub fn takes_pipes(&self) -> bool {
        self.connection.takes_pipes()
    }

    /// How much may be put into a pipe for this at once.
    pub fn pipe_room(&self) -> usize {
        self.connection.pipe_room(self.key)
    }

    /// Moves bytes out of a pipe that holds so many; at least one.
    pub fn poll_splice_from(
        &self,
        context: &mut Context<'_>,
        pipe: &Pipe,
        len: usize,
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        let moved = self.connection.poll_splice(context, self.key, pipe, len, follows.is_end());
        self.stall(moved.is_pending());
        moved
    }

    /// Ready when something can be written: until then nothing should be read for it.
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.connection.wants_head(self.key) {
            return Poll::Ready(());
        }
        // What went wrong is told by the write.
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

    /// Whether some stream of the connection, this or another, has something to send and cannot: then little should be
    /// held for any of them.
    pub fn is_crowded(&self) -> bool {
        self.connection.has_stalled()
    }

    /// How much is taken at once now.
    pub fn room(&self) -> usize {
        if self.connection.wants_head(self.key) {
            usize::MAX
        } else {
            self.connection.room(self.key).unwrap_or(0)
        }
    }

    /// Ends what is sent, with trailers as lines, if it has not ended yet.
    pub fn end(&self, trailers: &[u8]) -> io::Result<()> {
        self.connection.end(self.key, trailers).map_err(broken)
    }

    /// Tells the peer that the message is not whole.
    pub fn reset(&self) {
        self.connection.reset(self.key, Reason::INTERNAL_ERROR);
    }

    /// Whether its connection has ended, or takes no more streams.
    pub fn has_connection_ended(&self) -> bool {
        self.connection.is_ending()
    }

    /// Has the connection end with the streams that it has.
    pub fn retire(&self) {
        self.connection.leave();
    }

    /// Ready once the peer has given the stream up.
    pub fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()> {
        self.connection.poll_gone(context, self.key)
    }
}

/// What the peer did not take up may be sent elsewhere (RFC 9113 §8.7); everything else broke a message.
fn broken(gone: Gone) -> io::Error {
    io::Error::from(match gone {
        Gone::Untouched => ErrorKind::ConnectionRefused,
        Gone::Broken => ErrorKind::ConnectionReset,
    })
}
