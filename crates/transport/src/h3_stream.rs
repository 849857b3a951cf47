//! An HTTP/3 stream that reads and writes like an HTTP/1.1 connection: a head as text, then the body.
//!
//! Flow control gives end-to-end backpressure: windows open as the path consumes bytes, and a write accepts no more
//! than QUIC has room for.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll};

use http3::{H3Code, H3StreamGone, Key, WriteError};

use crate::h2_connection::H2Violation;
use crate::h3_connection::H3Connection;
use crate::tcp::Follows;

/// The kind of error for a head that exceeds the peer's limit.
pub const HEAD_REFUSED: ErrorKind = ErrorKind::FileTooLarge;

/// An HTTP/3 stream, as one side of an exchange.
pub struct H3Stream {
    connection: H3Connection,
    key: Key,
    /// Size of the buffer reserved for received bodies, in bytes.
    lent: Cell<usize>,
    /// Whether the last written head exceeded the peer's limit, so that nothing was sent.
    is_head_refused: Cell<bool>,
}

impl Drop for H3Stream {
    fn drop(&mut self) {
        self.connection.take_back(self.lent.get());
        self.connection.release(self.key);
    }
}

impl H3Stream {
    /// Uses a stream that a client has opened, or that was opened for a request to a server.
    pub fn new(connection: H3Connection, key: Key) -> Self {
        connection.hold(key);
        Self { connection, key, lent: Cell::new(0), is_head_refused: Cell::new(false) }
    }

    /// Length of the text that can be read: first the head, then any later text.
    pub fn text_len(&self) -> usize {
        self.connection.text_len(self.key)
    }

    /// The peer's protocol error on the stream or its connection.
    pub fn wrong(&self) -> Option<H2Violation> {
        self.connection.wrong(self.key)
    }

    /// The error code with which the peer has reset the stream, or ended its connection.
    pub fn reset_code(&self) -> Option<H3Code> {
        self.connection.look(|http| http.reset_code(self.key)).or_else(|| self.connection.told())
    }

    /// Whether the last written head exceeded the peer's limit. A smaller one can be written instead.
    pub fn is_head_refused(&self) -> bool {
        self.is_head_refused.get()
    }

    /// Whether the peer has begun a DATA frame, and not sent all of it.
    pub fn owes(&self) -> bool {
        self.connection.owes(self.key)
    }

    /// Body bytes that left on the stream or are about to.
    pub fn body_sent(&self) -> u64 {
        self.connection.body_sent(self.key)
    }

    /// Ready when the stream has something to read, or its end.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.poll_readable(context, self.key).map(Ok)
    }

    /// 0 is the end.
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
            self.is_head_refused.set(matches!(written, Err(WriteError::TooLarge { .. })));
            return Poll::Ready(written.map_err(unwritten));
        }
        // An empty write must not wait for room.
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

    /// Whether any stream of the connection has data to send and no room. All its streams should then buffer little.
    pub fn is_crowded(&self) -> bool {
        self.connection.is_crowded()
    }

    /// Bytes to collect before a write, at most.
    pub fn room(&self) -> usize {
        if self.connection.wants_head(self.key) { usize::MAX } else { self.connection.share() }
    }

    /// The largest buffer that is useful for reading, beyond a small one. Limited, because a connection has many
    /// streams.
    pub fn lend(&self) -> usize {
        self.lent.set(self.connection.lend(self.lent.get()));
        self.lent.get()
    }

    /// Ends the outgoing message, if it has not ended yet. `trailers` are HTTP/1.1 field lines.
    pub fn end(&self, trailers: &[u8]) -> io::Result<()> {
        self.connection.end_stream(self.key, trailers).map_err(broken)
    }

    /// Resets the stream, so that the peer sees an incomplete message.
    pub fn reset(&self) {
        if self.is_head_refused() {
            // Nothing of the message was sent, so another one can replace it. Without one, the drop resets the stream.
            return;
        }
        // RFC 9114 §4.1.1: a client cancels requests that it no longer needs.
        let is_ours = self.connection.is_to_server();
        self.connection
            .reset(self.key, if is_ours { H3Code::REQUEST_CANCELLED } else { H3Code::INTERNAL_ERROR });
    }

    /// Whether the connection has ended, or accepts no further streams.
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

#[cold]
fn unwritten(error: WriteError) -> io::Error {
    match error {
        WriteError::Untold => ErrorKind::InvalidData.into(),
        WriteError::TooLarge { size, limit } => io::Error::new(
            HEAD_REFUSED,
            format!(
                "the head of {size} bytes is larger than the peer's SETTINGS_MAX_FIELD_SECTION_SIZE, {limit} bytes"
            ),
        ),
        WriteError::Gone(gone) => broken(gone),
    }
}

/// A request that the peer did not process may be sent elsewhere (RFC 9114 §4.1.1). Every other error cuts a message
/// off.
fn broken(gone: H3StreamGone) -> io::Error {
    io::Error::from(match gone {
        H3StreamGone::Untouched => ErrorKind::ConnectionRefused,
        H3StreamGone::Broken => ErrorKind::ConnectionReset,
    })
}
