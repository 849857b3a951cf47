//! What a message comes from and goes to: a TCP connection, plain or with TLS, or a stream of HTTP/2.
//!
//! All methods take `&self`: both directions may be under way in one task.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use crate::h2_connection::Wrong;
use crate::h2_stream::Stream;
use crate::latency_emulation::Late;
use crate::tcp::{Follows, Pipe, Tcp};
use crate::tls::Secure;

/// One side of an exchange.
pub enum Socket {
    /// In a box, as all are: what is handed from step to step is a few words.
    Plain(Box<Tcp>),
    /// TLS on TCP.
    Secure(Box<Secure>),
    /// Reads and writes like a connection that carries this one exchange.
    Stream(Box<Stream>),
    /// One of the first two, whose bytes come late.
    Late(Box<Late>),
    /// Says nothing and hears nothing: who is at this end of a request that no client has sent.
    Nobody,
}

impl Socket {
    /// Ready when there is something to read, or the end; a fresh connection is worth a look.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(tcp) => tcp.poll_readable(context),
            Self::Secure(secure) => secure.poll_readable(context),
            Self::Stream(stream) => stream.poll_readable(context),
            Self::Late(late) => late.poll_readable(context),
            Self::Nobody => Poll::Pending,
        }
    }

    /// The length of the head that waits to be read, where it is known.
    pub fn head_len(&self) -> Option<usize> {
        match self {
            Self::Plain(_) | Self::Secure(_) | Self::Late(_) | Self::Nobody => None,
            Self::Stream(stream) => Some(stream.text_len()),
        }
    }

    /// Ready when there is something to read, or the end.
    pub async fn readable(&self) -> io::Result<usize> {
        poll_fn(|context| self.poll_readable(context)).await.map(|()| 0)
    }

    /// Reads into `buffer`, which is not empty; 0 is the end.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(context, buffer)).await
    }

    /// Reads into `buffer`, which is not empty; 0 is the end.
    pub fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => tcp.poll_read(context, buffer),
            Self::Secure(secure) => secure.poll_read(context, buffer),
            Self::Stream(stream) => stream.poll_read(context, buffer),
            Self::Late(late) => late.poll_read(context, buffer),
            Self::Nobody => Poll::Ready(Ok(0)),
        }
    }

    /// Writes the start of `bytes`, at least one. What is not yet written is to be given again.
    pub async fn write(&self, bytes: &[u8], follows: Follows) -> io::Result<usize> {
        poll_fn(|context| self.poll_write(context, bytes, follows)).await
    }

    /// Writes the start of `bytes`, at least one. What is not yet written is to be given again.
    pub fn poll_write(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => tcp.poll_send(context, bytes, follows),
            Self::Secure(secure) => secure.poll_write(context, bytes, follows),
            Self::Stream(stream) => stream.poll_write(context, bytes, follows),
            Self::Late(late) => late.poll_write(context, bytes),
            Self::Nobody => Poll::Ready(Ok(bytes.len())),
        }
    }

    /// Writes the start of `head` with `body` behind it, at least one byte, at once where that can be. What is not yet
    /// written is to be given again; of a stream the head is the whole head of a message, or empty.
    pub fn poll_write_both(
        &self,
        context: &mut Context<'_>,
        head: &[u8],
        body: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) if body.is_empty() => tcp.poll_send(context, head, follows),
            Self::Plain(tcp) => tcp.poll_send_both(context, head, body, follows),
            Self::Secure(secure) => secure.poll_write_both(context, head, body, follows),
            Self::Stream(stream) if head.is_empty() => stream.poll_write(context, body, follows),
            Self::Stream(stream) if body.is_empty() => stream.poll_write(context, head, follows),
            Self::Stream(stream) => stream.poll_write(context, head, Follows::More),
            Self::Late(late) => late.poll_write(context, if head.is_empty() { body } else { head }),
            Self::Nobody => Poll::Ready(Ok(head.len() + body.len())),
        }
    }

    /// Ready when it is worth reading what is to be written here; a connection's buffers say so by themselves.
    pub async fn writable(&self) -> io::Result<usize> {
        poll_fn(|context| self.poll_writable(context)).await;
        Ok(0)
    }

    /// Ready when it is worth reading what is to be written here.
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Plain(_) | Self::Secure(_) | Self::Late(_) | Self::Nobody => Poll::Ready(()),
            Self::Stream(stream) => stream.poll_writable(context),
        }
    }

    /// Whether little should be held of what is written here.
    pub fn is_crowded(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Secure(_) | Self::Late(_) | Self::Nobody => false,
            Self::Stream(stream) => stream.is_crowded(),
        }
    }

    /// How much is taken at once of what is written here.
    pub fn room(&self) -> usize {
        match self {
            Self::Plain(_) | Self::Secure(_) | Self::Late(_) | Self::Nobody => usize::MAX,
            Self::Stream(stream) => stream.room(),
        }
    }

    /// Whether the peer has begun a frame of a body and owes the rest of it, where bodies are in frames.
    pub fn owes(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Secure(_) | Self::Late(_) | Self::Nobody => false,
            Self::Stream(stream) => stream.owes(),
        }
    }

    /// Whether the end of a message and its trailers are told apart from its bytes, with `end`.
    pub fn frames_itself(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// Ends a message that has not ended with its last bytes, with trailers as lines.
    pub fn end(&self, trailers: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(_) | Self::Secure(_) | Self::Late(_) | Self::Nobody => Ok(()),
            Self::Stream(stream) => stream.end(trailers),
        }
    }

    /// Ready once the peer has given up what it asked for, where that is told.
    pub fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Plain(_) | Self::Secure(_) | Self::Late(_) | Self::Nobody => Poll::Pending,
            Self::Stream(stream) => stream.poll_gone(context),
        }
    }

    /// Whether the kernel can move bytes here by itself, out of a pipe.
    pub fn takes_pipes(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Secure(_) | Self::Late(_) | Self::Nobody => false,
            Self::Stream(stream) => stream.takes_pipes(),
        }
    }

    /// How much may be put into a pipe for this at once.
    pub fn pipe_room(&self) -> usize {
        match self {
            Self::Plain(_) | Self::Secure(_) | Self::Late(_) | Self::Nobody => Pipe::CAPACITY,
            Self::Stream(stream) => stream.pipe_room(),
        }
    }

    /// Moves bytes out of a pipe that holds so many; at least one.
    pub fn poll_splice_from(
        &self,
        context: &mut Context<'_>,
        pipe: &Pipe,
        len: usize,
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => tcp.poll_splice_from(context, pipe, len, follows),
            Self::Secure(_) | Self::Late(_) | Self::Nobody => {
                Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
            }
            Self::Stream(stream) => stream.poll_splice_from(context, pipe, len, follows),
        }
    }

    /// The connection whose bytes are those of the message, so that the kernel can move them by itself.
    pub fn spliceable(&self) -> Option<&Tcp> {
        match self {
            Self::Plain(tcp) => Some(tcp),
            Self::Secure(_) | Self::Stream(_) | Self::Late(_) | Self::Nobody => None,
        }
    }

    /// The address of ours that a connection came to, if it has one.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Plain(tcp) => tcp.local_address(),
            Self::Secure(secure) => secure.local_address(),
            Self::Late(late) => late.socket().local_address(),
            Self::Stream(_) | Self::Nobody => None,
        }
    }

    /// Whether its bytes may be made late: they are those of a connection, and are not yet.
    pub fn may_be_late(&self) -> bool {
        matches!(self, Self::Plain(_) | Self::Secure(_))
    }

    /// What the peer did wrong on a stream that was reset for it, in words.
    pub fn wrong(&self) -> Option<Wrong> {
        match self {
            Self::Stream(stream) => stream.wrong(),
            Self::Plain(_) | Self::Secure(_) | Self::Late(_) | Self::Nobody => None,
        }
    }

    /// Bytes of a body that left on a stream, where they are counted.
    pub fn body_sent(&self) -> Option<u64> {
        match self {
            Self::Stream(stream) => Some(stream.body_sent()),
            Self::Plain(_) | Self::Secure(_) | Self::Late(_) | Self::Nobody => None,
        }
    }

    /// Sends what is left of a handshake, on a connection that has yet to be used; says whether it can be.
    pub fn end_handshake(&self) -> bool {
        match self {
            Self::Secure(secure) => secure.end_handshake(),
            Self::Late(late) => late.socket().end_handshake(),
            Self::Plain(_) | Self::Stream(_) | Self::Nobody => true,
        }
    }

    /// Whether something has begun to arrive that cannot be read yet.
    pub fn holds_part(&self) -> bool {
        match self {
            Self::Secure(secure) => secure.holds_part(),
            Self::Plain(_) | Self::Stream(_) | Self::Late(_) | Self::Nobody => false,
        }
    }

    /// Whether the connection should carry no further exchange: it can send only so much.
    pub fn is_worn(&self) -> bool {
        match self {
            Self::Secure(secure) => secure.is_worn(),
            Self::Late(late) => late.socket().is_worn(),
            Self::Plain(_) | Self::Stream(_) | Self::Nobody => false,
        }
    }

    /// Whether nothing has arrived on an idle connection, as far as the runtime knows: no byte, no end, no error.
    pub fn is_quiet(&self) -> bool {
        match self {
            Self::Plain(tcp) => tcp.is_quiet(),
            Self::Secure(secure) => secure.is_quiet(),
            Self::Late(late) => late.is_quiet(),
            Self::Stream(_) | Self::Nobody => false,
        }
    }

    /// The same as far as the kernel knows: at the cost of a call.
    pub fn is_quiet_still(&self) -> bool {
        match self {
            Self::Plain(tcp) => tcp.is_quiet_still(),
            Self::Secure(secure) => secure.is_quiet_still(),
            Self::Late(late) => late.is_quiet_still(),
            Self::Stream(_) | Self::Nobody => false,
        }
    }

    /// Whether something has arrived that was not read: a close would be a reset, behind which what was sent is lost. At
    /// the cost of a call.
    pub fn has_unread(&self) -> bool {
        match self {
            Self::Plain(tcp) => tcp.has_unread(),
            Self::Secure(secure) => secure.has_unread(),
            Self::Late(late) => late.has_unread(),
            // A stream's end is not that of its connection.
            Self::Stream(_) | Self::Nobody => false,
        }
    }

    /// Sends the end of the stream; the other direction stays open.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.shutdown_write(),
            Self::Secure(secure) => secure.shutdown_write(),
            Self::Stream(stream) => stream.end(b""),
            Self::Late(late) => {
                late.shutdown_write();
                Ok(())
            }
            Self::Nobody => Ok(()),
        }
    }

    /// Has the connection take no further streams, where that is told.
    pub fn retire(&self) {
        match self {
            Self::Plain(_) | Self::Secure(_) | Self::Late(_) | Self::Nobody => {}
            Self::Stream(stream) => stream.retire(),
        }
    }

    /// Closes so that the peer sees a reset, not an end: the message is not whole.
    pub fn reset_on_drop(&self) {
        match self {
            Self::Plain(tcp) => tcp.reset_on_drop(),
            Self::Secure(secure) => secure.reset_on_drop(),
            Self::Stream(stream) => stream.reset(),
            Self::Late(late) => late.reset_on_drop(),
            Self::Nobody => {}
        }
    }
}
