//! Connection of a sender: TCP, with or without TLS. An enum, so that plain HTTP pays nothing for TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::secure::Secure;

#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<Secure>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveResult {
    /// Bytes were received and passed on.
    Content,
    /// The server sends no more.
    End,
    /// TLS: the connection ended without close_notify.
    Torn,
}

/// Error that ends a connection.
#[derive(Debug)]
pub(crate) enum TransportFault {
    Io(io::Error),
    Tls(rustls::Error),
}

impl From<TransportFault> for io::Error {
    fn from(fault: TransportFault) -> Self {
        match fault {
            TransportFault::Io(error) => error,
            TransportFault::Tls(error) => Self::new(io::ErrorKind::InvalidData, error),
        }
    }
}

impl Transport {
    /// Receives into the buffer, and passes the bytes to `take`, in one or several pieces.
    #[inline]
    pub(crate) fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8]),
    ) -> Poll<Result<ReceiveResult, TransportFault>> {
        match self {
            Self::Plain(stream) => {
                let mut space = ReadBuf::new(buffer);
                ready!(Pin::new(stream).poll_read(context, &mut space)).map_err(TransportFault::Io)?;
                let bytes = space.filled();
                if bytes.is_empty() {
                    return Poll::Ready(Ok(ReceiveResult::End));
                }
                take(bytes);
                Poll::Ready(Ok(ReceiveResult::Content))
            }
            Self::Tls(secure) => secure.poll_receive(context, buffer, take),
        }
    }

    /// Writes some bytes, and returns how many.
    #[inline]
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, TransportFault>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes).map_err(TransportFault::Io),
            Self::Tls(secure) => secure.poll_write(context, bytes),
        }
    }

    /// Ready when the written bytes are sent.
    #[inline]
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), TransportFault>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(secure) => secure.poll_flush(context),
        }
    }

    /// Whether the server has sent close_notify (TLS). With plain TCP, only a receive shows the end of its data.
    pub(crate) fn is_ended(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(secure) => secure.is_ended(),
        }
    }
}
