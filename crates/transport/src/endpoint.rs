//! The client's or the server's side of an exchange: a connection, a stream of HTTP/2 or HTTP/3, an application behind
//! FastCGI, or no peer.
//!
//! All methods take `&self`, because one task may use both directions at the same time.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use crate::connection::Connection;
use crate::fastcgi_connection::FastcgiConnection;
use crate::h2_connection::H2Violation;
use crate::h2_stream::H2Stream;
use crate::h3_stream;
use crate::tcp::{Follows, Pipe, Tcp};

/// A side of an exchange: reads one message and writes the other.
pub enum MessageEndpoint {
    /// A connection that carries one exchange at a time.
    Connection(Connection),
    /// An HTTP/2 stream. Reads and writes like a connection that carries one exchange.
    Stream(Box<H2Stream>),
    /// An HTTP/3 stream. Reads and writes like an HTTP/2 stream.
    Http3(Box<h3_stream::H3Stream>),
    /// A connection to a FastCGI application. Reads and writes like a connection, but for the records of a head.
    Fastcgi(Box<FastcgiConnection>),
    /// No peer: reads the end of the stream, and discards writes. Used as the client of the proxy's own requests, and
    /// as a placeholder while a connection is moved.
    Detached,
}

impl<T: Into<Connection>> From<T> for MessageEndpoint {
    fn from(connection: T) -> Self {
        Self::Connection(connection.into())
    }
}

impl From<FastcgiConnection> for MessageEndpoint {
    fn from(application: FastcgiConnection) -> Self {
        Self::Fastcgi(Box::new(application))
    }
}

impl MessageEndpoint {
    /// Replaces the connection by the result of `step`. A stream stays unchanged.
    pub fn map_connection(&mut self, step: impl FnOnce(Connection) -> Connection) {
        *self = match std::mem::replace(self, Self::Detached) {
            Self::Connection(connection) => Self::Connection(step(connection)),
            Self::Fastcgi(fastcgi) => Self::Fastcgi(Box::new(fastcgi.map_connection(step))),
            other => other,
        };
    }

    /// Ready when there is something to read, or the end. On a fresh connection it may be ready too early.
    #[inline(always)]
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Connection(connection) => connection.poll_readable(context),
            framed => framed.poll_readable_framed(context),
        }
    }

    // The steps of each exchange are inlined for connections, which pay one branch. All others share code out of line.
    #[inline(never)]
    fn poll_readable_framed(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Connection(connection) => connection.poll_readable(context),
            Self::Stream(stream) => stream.poll_readable(context),
            Self::Http3(stream) => stream.poll_readable(context),
            Self::Fastcgi(fastcgi) => fastcgi.poll_readable(context),
            Self::Detached => Poll::Pending,
        }
    }

    /// Length of the head that can be read, if known.
    #[inline]
    pub fn head_len(&self) -> Option<usize> {
        match self {
            Self::Connection(_) | Self::Fastcgi(_) | Self::Detached => None,
            Self::Stream(stream) => Some(stream.text_len()),
            Self::Http3(stream) => Some(stream.text_len()),
        }
    }

    /// Ready when there is something to read, or the end.
    pub async fn readable(&self) -> io::Result<usize> {
        poll_fn(|context| self.poll_readable(context)).await.map(|()| 0)
    }

    /// Reads into `buffer`, which must not be empty; 0 is the end.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(context, buffer)).await
    }

    /// Reads into `buffer`, which must not be empty; 0 is the end.
    #[inline(always)]
    pub fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Connection(connection) => connection.poll_read(context, buffer),
            framed => framed.poll_read_framed(context, buffer),
        }
    }

    #[inline(never)]
    fn poll_read_framed(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Connection(connection) => connection.poll_read(context, buffer),
            Self::Stream(stream) => stream.poll_read(context, buffer),
            Self::Http3(stream) => stream.poll_read(context, buffer),
            Self::Fastcgi(fastcgi) => fastcgi.poll_read(context, buffer),
            Self::Detached => Poll::Ready(Ok(0)),
        }
    }

    /// Writes the start of `bytes`, at least one byte. The caller must offer the rest again.
    pub async fn write(&self, bytes: &[u8], follows: Follows) -> io::Result<usize> {
        poll_fn(|context| self.poll_write(context, bytes, follows)).await
    }

    /// Writes the start of `bytes`, at least one byte. The caller must offer the rest again.
    #[inline(always)]
    pub fn poll_write(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Connection(connection) => connection.poll_write(context, bytes, follows),
            framed => framed.poll_write_framed(context, bytes, follows),
        }
    }

    #[inline(never)]
    fn poll_write_framed(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Connection(connection) => connection.poll_write(context, bytes, follows),
            Self::Stream(stream) => stream.poll_write(context, bytes, follows),
            Self::Http3(stream) => stream.poll_write(context, bytes, follows),
            Self::Fastcgi(fastcgi) => fastcgi.poll_write(context, bytes, follows),
            Self::Detached => Poll::Ready(Ok(bytes.len())),
        }
    }

    /// Writes the start of `head` with `body` behind it, at least one byte, in one system call if possible. The caller
    /// must offer the rest again. For a stream, `head` is the whole head of a message, or empty.
    #[inline(always)]
    pub fn poll_write_both(
        &self,
        context: &mut Context<'_>,
        head: &[u8],
        body: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Connection(connection) => connection.poll_write_both(context, head, body, follows),
            framed => framed.poll_write_both_framed(context, head, body, follows),
        }
    }

    #[inline(never)]
    fn poll_write_both_framed(
        &self,
        context: &mut Context<'_>,
        head: &[u8],
        body: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Connection(connection) => connection.poll_write_both(context, head, body, follows),
            Self::Stream(stream) if head.is_empty() => stream.poll_write(context, body, follows),
            Self::Stream(stream) if body.is_empty() => stream.poll_write(context, head, follows),
            // The head alone: frames of the body need the stream's turn and window.
            Self::Stream(stream) => stream.poll_write(context, head, Follows::More),
            Self::Http3(stream) if head.is_empty() => stream.poll_write(context, body, follows),
            Self::Http3(stream) if body.is_empty() => stream.poll_write(context, head, follows),
            // As for HTTP/2. QUIC gathers the head with the first bytes of the body.
            Self::Http3(stream) => stream.poll_write(context, head, Follows::More),
            Self::Fastcgi(fastcgi) if head.is_empty() => fastcgi.poll_write(context, body, follows),
            Self::Fastcgi(fastcgi) => fastcgi.poll_write(context, head, Follows::More),
            Self::Detached => Poll::Ready(Ok(head.len() + body.len())),
        }
    }

    /// Ready when a write would succeed, so that reading from the other side is useful. A connection is always ready,
    /// because its kernel buffer limits the writer.
    pub async fn writable(&self) -> io::Result<usize> {
        poll_fn(|context| self.poll_writable(context)).await;
        Ok(0)
    }

    /// Ready when a write would succeed, so that reading from the other side is useful.
    #[inline]
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Connection(_) | Self::Fastcgi(_) | Self::Detached => Poll::Ready(()),
            Self::Stream(stream) => stream.poll_writable(context),
            Self::Http3(stream) => stream.poll_writable(context),
        }
    }

    /// Whether writers should buffer little, because streams of the connection wait to send.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        match self {
            Self::Connection(_) | Self::Fastcgi(_) | Self::Detached => false,
            Self::Stream(stream) => stream.is_crowded(),
            Self::Http3(stream) => stream.is_crowded(),
        }
    }

    /// The most bytes that one write accepts now, as far as known.
    #[inline]
    pub fn room(&self) -> usize {
        match self {
            Self::Connection(_) | Self::Fastcgi(_) | Self::Detached => usize::MAX,
            Self::Stream(stream) => stream.room(),
            Self::Http3(stream) => stream.room(),
        }
    }

    /// The largest buffer that is useful for reading, beyond a small one.
    #[inline]
    pub fn lend(&self) -> usize {
        match self {
            // Only HTTP/3 counts the buffers of the path in the budget of a connection.
            Self::Connection(_) | Self::Detached | Self::Stream(_) | Self::Fastcgi(_) => usize::MAX,
            Self::Http3(stream) => stream.lend(),
        }
    }

    /// Whether the peer has begun a DATA frame, and not sent all of it. Only streams have frames.
    #[inline]
    pub fn owes(&self) -> bool {
        match self {
            Self::Connection(_) | Self::Fastcgi(_) | Self::Detached => false,
            Self::Stream(stream) => stream.owes(),
            Self::Http3(stream) => stream.owes(),
        }
    }

    /// Whether a stream's connection accepts no further streams. False for a connection, which carries one exchange at
    /// a time.
    pub fn has_connection_ended(&self) -> bool {
        match self {
            // A connection serves its exchanges one by one, so its end is that of the exchange.
            Self::Connection(_) | Self::Detached => true,
            Self::Stream(stream) => stream.has_connection_ended(),
            Self::Http3(stream) => stream.has_connection_ended(),
            // An application that refuses a request in due form keeps its connection.
            Self::Fastcgi(fastcgi) => !fastcgi.has_response_ended(),
        }
    }

    /// Whether [`end`](Self::end) sends the end of a message and its trailers, so that bodies need no framing in the
    /// text.
    #[inline]
    pub fn frames_itself(&self) -> bool {
        matches!(self, Self::Stream(_) | Self::Http3(_))
    }

    /// Ends a message, unless its last bytes did. `trailers` are HTTP/1.1 field lines.
    pub fn end(&self, trailers: &[u8]) -> io::Result<()> {
        match self {
            // A FastCGI body has ended with its last byte.
            Self::Connection(_) | Self::Fastcgi(_) | Self::Detached => Ok(()),
            Self::Stream(stream) => stream.end(trailers),
            Self::Http3(stream) => stream.end(trailers),
        }
    }

    /// Ready once the stream is reset or its connection has ended. Never ready for a connection.
    #[inline]
    pub fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Connection(_) | Self::Fastcgi(_) | Self::Detached => Poll::Pending,
            Self::Stream(stream) => stream.poll_gone(context),
            Self::Http3(stream) => stream.poll_gone(context),
        }
    }

    /// As [`poll_gone`](Self::poll_gone), but also ready once the peer of a connection has closed its side, unless
    /// unread bytes are before that.
    pub fn poll_closed(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Connection(connection) => connection.poll_peer_closed(context),
            Self::Fastcgi(_) | Self::Detached | Self::Stream(_) | Self::Http3(_) => self.poll_gone(context),
        }
    }

    /// Whether the peer has closed its side of a connection. Costs a system call. For streams use
    /// [`poll_gone`](Self::poll_gone).
    pub fn has_peer_closed(&self) -> bool {
        match self {
            Self::Connection(connection) => connection.has_peer_closed(),
            Self::Fastcgi(fastcgi) => fastcgi.connection().has_peer_closed(),
            Self::Stream(_) | Self::Http3(_) | Self::Detached => false,
        }
    }

    /// Whether the kernel can move bytes from a pipe to this side (splice).
    #[inline]
    pub fn takes_pipes(&self) -> bool {
        match self {
            Self::Connection(connection) => connection.as_tcp().is_some(),
            Self::Stream(stream) => stream.takes_pipes(),
            // QUIC encrypts in this process, and records are made in it, so the bytes have to pass through it.
            Self::Http3(_) | Self::Fastcgi(_) | Self::Detached => false,
        }
    }

    /// The most bytes to put into a pipe for this side at once.
    pub fn pipe_room(&self) -> usize {
        match self {
            Self::Connection(_) | Self::Http3(_) | Self::Fastcgi(_) | Self::Detached => Pipe::CAPACITY,
            Self::Stream(stream) => stream.pipe_room(),
        }
    }

    /// Moves at least one byte out of a pipe that holds `len` bytes.
    pub fn poll_splice_from(
        &self,
        context: &mut Context<'_>,
        pipe: &Pipe,
        len: usize,
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Connection(connection) => connection.poll_splice_from(context, pipe, len, follows),
            Self::Stream(stream) => stream.poll_splice_from(context, pipe, len, follows),
            Self::Http3(_) | Self::Fastcgi(_) | Self::Detached => {
                Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
            }
        }
    }

    /// The TCP connection, if it carries the message's bytes unchanged, so that the kernel can move them without a
    /// copy.
    #[inline]
    pub fn spliceable(&self) -> Option<&Tcp> {
        match self {
            Self::Connection(connection) => connection.as_tcp(),
            Self::Stream(_) | Self::Http3(_) | Self::Fastcgi(_) | Self::Detached => None,
        }
    }

    /// The local address of the peer's connection. A Unix socket has none.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Connection(connection) => connection.local_address(),
            Self::Stream(_) | Self::Http3(_) | Self::Fastcgi(_) | Self::Detached => None,
        }
    }

    /// The peer's error because of which the stream or its connection ended.
    pub fn wrong(&self) -> Option<H2Violation> {
        match self {
            Self::Stream(stream) => stream.wrong(),
            Self::Http3(stream) => stream.wrong(),
            Self::Fastcgi(fastcgi) => fastcgi.wrong(),
            Self::Connection(_) | Self::Detached => None,
        }
    }

    /// The error code with which the peer has reset the stream, or ended its connection, in words.
    pub fn reset_code(&self) -> Option<String> {
        match self {
            Self::Stream(stream) => stream.reset_reason().map(|reason| reason.to_string()),
            Self::Http3(stream) => stream.reset_code().map(|code| code.to_string()),
            Self::Connection(_) | Self::Fastcgi(_) | Self::Detached => None,
        }
    }

    /// Whether the last written head exceeds the peer's limit (HTTP/3). A smaller one can be written instead.
    pub fn is_head_refused(&self) -> bool {
        matches!(self, Self::Http3(stream) if stream.is_head_refused())
    }

    /// Body bytes that left on a stream. `None` for a connection, which does not count them.
    pub fn body_sent(&self) -> Option<u64> {
        match self {
            Self::Stream(stream) => Some(stream.body_sent()),
            Self::Http3(stream) => Some(stream.body_sent()),
            Self::Connection(_) | Self::Fastcgi(_) | Self::Detached => None,
        }
    }

    /// Sends the rest of a TLS handshake on a connection that has not been used yet. Returns whether the endpoint is
    /// usable.
    pub fn end_handshake(&self) -> bool {
        match self {
            Self::Connection(connection) => connection.end_handshake(),
            Self::Fastcgi(fastcgi) => fastcgi.connection().end_handshake(),
            Self::Stream(_) | Self::Http3(_) | Self::Detached => true,
        }
    }

    /// Whether only a part of a TLS record has arrived.
    pub fn holds_part(&self) -> bool {
        match self {
            Self::Connection(connection) => connection.holds_part(),
            Self::Fastcgi(fastcgi) => fastcgi.connection().holds_part(),
            Self::Stream(_) | Self::Http3(_) | Self::Detached => false,
        }
    }

    /// Whether the TLS keys have reached their encryption limit: the connection must carry no further exchange. False
    /// for a stream, whose connection checks it.
    #[inline]
    pub fn is_key_exhausted(&self) -> bool {
        match self {
            Self::Connection(connection) => connection.is_key_exhausted(),
            Self::Fastcgi(fastcgi) => fastcgi.connection().is_key_exhausted(),
            Self::Stream(_) | Self::Http3(_) | Self::Detached => false,
        }
    }

    /// Whether a connection can carry a further exchange after one that has ended: its TLS keys are not used up, and an
    /// application has ended its response.
    #[inline(always)]
    pub fn may_go_on(&self) -> bool {
        match self {
            Self::Connection(connection) => !connection.is_key_exhausted(),
            Self::Fastcgi(fastcgi) => fastcgi.has_ended_well(),
            Self::Stream(_) | Self::Http3(_) | Self::Detached => true,
        }
    }

    /// Whether nothing has arrived on an idle connection, as far as the runtime knows: no byte, no end, no error.
    #[inline(always)]
    pub fn is_quiet(&self) -> bool {
        match self {
            Self::Connection(connection) => connection.is_quiet(),
            framed => framed.is_quiet_framed(),
        }
    }

    #[inline(never)]
    fn is_quiet_framed(&self) -> bool {
        match self {
            Self::Connection(connection) => connection.is_quiet(),
            Self::Fastcgi(fastcgi) => fastcgi.connection().is_quiet(),
            Self::Stream(_) | Self::Http3(_) | Self::Detached => false,
        }
    }

    /// Whether nothing has arrived on an idle connection, as far as the kernel knows. Costs a system call.
    pub fn is_quiet_still(&self) -> bool {
        match self {
            Self::Connection(connection) => connection.is_quiet_still(),
            Self::Fastcgi(fastcgi) => fastcgi.connection().is_quiet_still(),
            Self::Stream(_) | Self::Http3(_) | Self::Detached => false,
        }
    }

    /// Whether unread bytes have arrived. A close then resets the connection, and the peer may lose the last sent
    /// bytes. Costs a system call.
    pub fn has_unread(&self) -> bool {
        match self {
            Self::Connection(connection) => connection.has_unread(),
            Self::Fastcgi(fastcgi) => fastcgi.connection().has_unread(),
            // The end of a stream does not close its connection.
            Self::Stream(_) | Self::Http3(_) | Self::Detached => false,
        }
    }

    /// Sends the end of the stream. The other direction stays open.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Connection(connection) => connection.shutdown_write(),
            Self::Fastcgi(fastcgi) => fastcgi.connection().shutdown_write(),
            Self::Stream(stream) => stream.end(b""),
            Self::Http3(stream) => stream.end(b""),
            Self::Detached => Ok(()),
        }
    }

    /// Tells a client of HTTP/2 or HTTP/3 to open no further streams on its connection (GOAWAY).
    pub fn retire(&self) {
        match self {
            Self::Connection(_) | Self::Fastcgi(_) | Self::Detached => {}
            Self::Stream(stream) => stream.retire(),
            Self::Http3(stream) => stream.retire(),
        }
    }

    /// Makes the close a reset, so that the peer does not take an incomplete message for a complete one.
    pub fn reset_on_drop(&self) {
        match self {
            Self::Connection(connection) => connection.reset_on_drop(),
            Self::Fastcgi(fastcgi) => fastcgi.connection().reset_on_drop(),
            Self::Stream(stream) => stream.reset(),
            Self::Http3(stream) => stream.reset(),
            Self::Detached => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_two_words() {
        // Every exchange moves two of them. The nested enum uses the same tag, at no cost.
        assert_eq!(size_of::<MessageEndpoint>(), 2 * size_of::<usize>());
        assert_eq!(size_of::<Connection>(), 2 * size_of::<usize>());
    }
}
