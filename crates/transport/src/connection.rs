//! A byte stream between two processes: TCP or a Unix socket, with or without TLS, with or without emulated latency.
//!
//! All methods take `&self`, because one task may use both directions at the same time.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use crate::latency_emulation::DelayedConnection;
use crate::tcp::{Follows, Pipe, Tcp};
use crate::tls::TlsConnection;

/// A connection. Each variant is boxed, so that a move copies only two words.
pub enum Connection {
    /// TCP or a Unix socket, without TLS.
    Tcp(Box<Tcp>),
    Tls(Box<TlsConnection>),
    /// A TCP or TLS connection with emulated latency.
    Delayed(Box<DelayedConnection>),
}

impl From<Tcp> for Connection {
    fn from(tcp: Tcp) -> Self {
        Self::Tcp(Box::new(tcp))
    }
}

impl From<TlsConnection> for Connection {
    fn from(tls: TlsConnection) -> Self {
        Self::Tls(Box::new(tls))
    }
}

impl Connection {
    /// Ready when there is something to read, or the end. On a fresh connection it may be ready too early.
    #[inline]
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => tcp.poll_readable(context),
            Self::Tls(tls) => tls.poll_readable(context),
            Self::Delayed(delayed) => delayed.poll_readable(context),
        }
    }

    /// Reads into `buffer`, which must not be empty; 0 is the end.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(context, buffer)).await
    }

    /// Reads into `buffer`, which must not be empty; 0 is the end.
    #[inline]
    pub fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => tcp.poll_read(context, buffer),
            Self::Tls(tls) => tls.poll_read(context, buffer),
            Self::Delayed(delayed) => delayed.poll_read(context, buffer),
        }
    }

    /// Writes the start of `bytes`, at least one byte. The caller must offer the rest again.
    pub async fn write(&self, bytes: &[u8], follows: Follows) -> io::Result<usize> {
        poll_fn(|context| self.poll_write(context, bytes, follows)).await
    }

    /// Writes the start of `bytes`, at least one byte. The caller must offer the rest again.
    #[inline]
    pub fn poll_write(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => tcp.poll_send(context, bytes, follows),
            Self::Tls(tls) => tls.poll_write(context, bytes, follows),
            Self::Delayed(delayed) => delayed.poll_write(context, bytes),
        }
    }

    /// Writes the start of `head` with `body` behind it, at least one byte, in one system call if possible. The caller
    /// must offer the rest again.
    #[inline]
    pub fn poll_write_both(
        &self,
        context: &mut Context<'_>,
        head: &[u8],
        body: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) if body.is_empty() => tcp.poll_send(context, head, follows),
            Self::Tcp(tcp) => tcp.poll_send_both(context, head, body, follows),
            Self::Tls(tls) => tls.poll_write_both(context, head, body, follows),
            // A single piece per call: the caller offers the rest again.
            Self::Delayed(delayed) => delayed.poll_write(context, if head.is_empty() { body } else { head }),
        }
    }

    /// Moves at least one byte out of a pipe that holds `len` bytes. Only plain TCP supports it.
    pub fn poll_splice_from(
        &self,
        context: &mut Context<'_>,
        pipe: &Pipe,
        len: usize,
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => tcp.poll_splice_from(context, pipe, len, follows),
            // The kernel would send the bytes without encryption, or without the delay.
            Self::Tls(_) | Self::Delayed(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// The TCP connection, if it carries the bytes unchanged, so that the kernel can move them without a copy (splice,
    /// sendfile).
    #[inline]
    pub fn as_tcp(&self) -> Option<&Tcp> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Tls(_) | Self::Delayed(_) => None,
        }
    }

    /// The local address of the peer's connection. A Unix socket has none.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(tcp) => tcp.local_address(),
            Self::Tls(tls) => tls.local_address(),
            Self::Delayed(delayed) => delayed.connection().local_address(),
        }
    }

    /// Sends the rest of a TLS handshake on a connection that has not been used yet. Returns whether the connection is
    /// usable.
    pub fn end_handshake(&self) -> bool {
        match self {
            Self::Tcp(_) => true,
            Self::Tls(tls) => tls.end_handshake(),
            Self::Delayed(delayed) => delayed.connection().end_handshake(),
        }
    }

    /// Whether only a part of a TLS record has arrived.
    pub fn holds_part(&self) -> bool {
        match self {
            Self::Tls(tls) => tls.holds_part(),
            Self::Tcp(_) | Self::Delayed(_) => false,
        }
    }

    /// Whether the TLS keys have reached their encryption limit: the connection must carry no further exchange.
    #[inline]
    pub fn is_key_exhausted(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Tls(tls) => tls.is_key_exhausted(),
            Self::Delayed(delayed) => delayed.connection().is_key_exhausted(),
        }
    }

    /// Whether nothing has arrived on an idle connection, as far as the runtime knows: no byte, no end, no error.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_quiet(),
            Self::Tls(tls) => tls.is_quiet(),
            Self::Delayed(delayed) => delayed.is_quiet(),
        }
    }

    /// Whether the peer has closed its side, even if there are bytes to read first. Costs a system call. Always false
    /// with emulated latency, because the emulated peer's end has not arrived yet.
    pub fn has_peer_closed(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.has_peer_closed(),
            Self::Tls(tls) => tls.has_peer_closed(),
            Self::Delayed(_) => false,
        }
    }

    /// Ready once the peer has closed its side. Never wakes for an end behind unread bytes, or with emulated latency.
    pub fn poll_peer_closed(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Tcp(tcp) => tcp.poll_peer_closed(context),
            Self::Tls(tls) => tls.poll_peer_closed(context),
            Self::Delayed(_) => Poll::Pending,
        }
    }

    /// Whether nothing has arrived on an idle connection, as far as the kernel knows. Costs a system call.
    pub fn is_quiet_still(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_quiet_still(),
            Self::Tls(tls) => tls.is_quiet_still(),
            Self::Delayed(delayed) => delayed.is_quiet_still(),
        }
    }

    /// Whether unread bytes have arrived. A close then resets the connection, and the peer may lose the last sent
    /// bytes. Costs a system call.
    pub fn has_unread(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.has_unread(),
            Self::Tls(tls) => tls.has_unread(),
            Self::Delayed(delayed) => delayed.has_unread(),
        }
    }

    /// Sends the end of the stream. The other direction stays open.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.shutdown_write(),
            Self::Tls(tls) => tls.shutdown_write(),
            Self::Delayed(delayed) => {
                delayed.shutdown_write();
                Ok(())
            }
        }
    }

    /// Makes the close a reset, so that the peer does not take an incomplete message for a complete one.
    pub fn reset_on_drop(&self) {
        match self {
            Self::Tcp(tcp) => tcp.reset_on_drop(),
            Self::Tls(tls) => tls.reset_on_drop(),
            Self::Delayed(delayed) => delayed.reset_on_drop(),
        }
    }
}
