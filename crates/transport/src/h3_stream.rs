//! An HTTP/3 stream that reads and writes like an HTTP/1.1 connection: a head as text, then the body.
//!
//! Flow control gives end-to-end backpressure: windows open as the path consumes bytes, and a write takes no more than
//! QUIC has room for.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll};

use http3::{Code, Gone, Key, WriteError};

use crate::h2_connection::Wrong;
use crate::h3_connection::H3Connection;
use crate::tcp::Follows;

/// An HTTP/3 stream, as one side of an exchange.
pub struct Stream {
    connection: H3Connection,
    key: Key,
    /// What the path was lent for what comes on it.
    lent: Cell<usize>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.take_back(self.lent.get());
        self.connection.release(self.key);
    }
}

impl Stream {
    /// A stream that a client has opened, or that was opened for a request to a server.
    pub fn new(connection: H3Connection, key: Key) -> Self {
        connection.hold(key);
        Self { connection, key, lent: Cell::new(0) }
    }

    /// The length of the text that can be read: at first, the length of the head.
    pub fn text_len(&self) -> usize {
        self.connection.text_len(self.key)
    }

    /// The peer's protocol error on the stream or its connection.
    pub fn wrong(&self) -> Option<Wrong> {
        self.connection.wrong(self.key)
    }

    /// Whether the client has sent a part of a DATA frame, and not yet the rest.
    pub fn owes(&self) -> bool {
        self.connection.owes(self.key)
    }

    /// The number of body bytes that left on the stream or are about to.
    pub fn body_sent(&self) -> u64 {
        self.connection.body_sent(self.key)
    }

    /// Ready when the stream has something to read, or its end.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.poll_readable(context, self.key).map(Ok)
    }

    /// Reads into `buffer`; 0 is the end.
    pub fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.connection.poll_read(context, self.key, buffer).map_err(broken)
    }

    /// Writes the start of `bytes`: first a whole head, then the body.
    pub fn poll_write(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        if self.connection.wants_head(self.key) {
            let written = self.connection.write_head(self.key, bytes, follows.is_end());
            return Poll::Ready(written.map_err(|error| match error {
                WriteError::Untold | WriteError::TooLarge => ErrorKind::InvalidData.into(),
                WriteError::Gone(gone) => broken(gone),
            }));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.connection.poll_write(context, self.key, bytes, follows.is_end()).map_err(broken)
    }

    /// Ready when a write would succeed. Until then, nothing should be read for this stream.
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.connection.wants_head(self.key) {
            return Poll::Ready(());
        }
        self.connection.poll_writable(context, self.key)
    }

    /// Whether any stream of the connection has data to send and no room: then all its streams should buffer little.
    pub fn is_crowded(&self) -> bool {
        self.connection.is_crowded()
    }

    /// The largest number of bytes worth having before a write.
    pub fn room(&self) -> usize {
        if self.connection.wants_head(self.key) { usize::MAX } else { self.connection.share() }
    }

    /// The largest buffer worth having for what comes, beyond a small one: a connection has many streams.
    pub fn lend(&self) -> usize {
        self.lent.set(self.connection.lend(self.lent.get()));
        self.lent.get()
    }

    /// Ends the outgoing message, if it has not ended yet. `trailers` are HTTP/1.1 field lines.
    pub fn end(&self, trailers: &[u8]) -> io::Result<()> {
        self.connection.end_stream(self.key, trailers).map_err(broken)
    }

    /// Resets the stream, so that the peer sees that the message is incomplete.
    pub fn reset(&self) {
        // RFC 9114 §4.1.1: a client cancels what it needs no more.
        let is_ours = self.connection.is_to_server();
        self.connection.reset(self.key, if is_ours { Code::REQUEST_CANCELLED } else { Code::INTERNAL_ERROR });
    }

    /// Whether the connection has ended, or takes no further streams.
    pub fn has_connection_ended(&self) -> bool {
        self.connection.is_ending()
    }

    /// Accepts no further streams on the connection, which ends with its last stream.
    pub fn retire(&self) {
        self.connection.leave();
    }

    /// Ready once the stream is reset or its connection has ended.
    pub fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()> {
        self.connection.poll_gone(context, self.key)
    }
}

/// What the peer did not take up may be sent elsewhere (RFC 9114 §4.1.1); everything else broke a message.
fn broken(gone: Gone) -> io::Error {
    io::Error::from(match gone {
        Gone::Untouched => ErrorKind::ConnectionRefused,
        Gone::Broken => ErrorKind::ConnectionReset,
    })
}
