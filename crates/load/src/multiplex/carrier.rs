//! HTTP/2 over TCP or HTTP/3 over UDP, as the senders of a connection use either. An enum: HTTP/2 pays a branch.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use crate::failure::Failure;
use crate::http2::{Asked, Code, Ended, Received};
use crate::transport::{Fault, Transport};
use crate::worker::Worker;
use crate::{http2, http3};

/// State of a connection.
pub(super) enum Carrier {
    Http2(Box<http2::Connection>),
    Http3(Box<http3::Connection>),
}

/// Socket of a connection.
pub(super) enum Wire {
    Tcp {
        transport: Transport,
        /// How much of what there is to send was sent.
        sent_bytes: usize,
        /// How much was sent since this was last looked at.
        news_bytes: u64,
    },
    Udp(Box<http3::Wire>),
}

/// Calls the same method of either.
macro_rules! either {
    ($carrier:expr, $connection:ident => $call:expr) => {
        match $carrier {
            Carrier::Http2($connection) => $call,
            Carrier::Http3($connection) => $call,
        }
    };
}

impl Carrier {
    /// Number of concurrent streams that the server takes; 0 while that is not known.
    pub(super) fn most(&self) -> usize {
        either!(self, connection => connection.most())
    }

    /// Whether it takes no more requests.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        either!(self, connection => connection.is_over())
    }

    /// Sends the request of a place.
    #[inline]
    pub(super) fn ask(&mut self, place: usize, asked: Asked<'_>) {
        either!(self, connection => connection.ask(place, asked));
    }

    /// Places whose streams have ended since they were last looked at.
    #[inline]
    pub(super) fn ended(&mut self) -> &mut Vec<usize> {
        either!(self, connection => &mut connection.ended)
    }

    /// What has become of the stream of a place, once it has ended.
    #[inline]
    pub(super) fn take(&mut self, place: usize) -> Option<Result<Received, Ended>> {
        either!(self, connection => connection.take(place))
    }

    /// The response of a place, if its stream has ended with one.
    #[inline]
    pub(super) fn take_success(&mut self, place: usize) -> Option<Received> {
        either!(self, connection => connection.take_success(place))
    }

    /// Gives up the stream of a place.
    pub(super) fn cancel(&mut self, place: usize) {
        either!(self, connection => connection.cancel(place));
    }

    /// Ends all streams: the connection is gone.
    pub(super) fn lose(&mut self) {
        either!(self, connection => connection.lose());
    }

    /// Says that the connection ends.
    pub(super) fn go_away(&mut self) {
        match self {
            Self::Http2(connection) => connection.go_away(Code::NO_ERROR),
            Self::Http3(connection) => connection.go_away(h3::Code::NO_ERROR, "", Instant::now()),
        }
    }

    /// The failure of a response that breaks the protocol.
    pub(super) fn broken(&self, what: &'static str) -> Failure {
        match self {
            Self::Http2(_) => Failure::Http2(what),
            Self::Http3(_) => Failure::Http3(what),
        }
    }
}

impl Wire {
    /// Sends what there is to send.
    pub(super) fn poll_send(
        &mut self,
        connection: &mut Carrier,
        worker: &Worker,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        match (self, connection) {
            (Self::Tcp { transport, sent_bytes, news_bytes }, Carrier::Http2(connection)) => loop {
                while *sent_bytes < connection.out.len() {
                    let written = ready!(transport.poll_write(context, &connection.out[*sent_bytes..]))?;
                    if written == 0 {
                        return Poll::Ready(Err(Fault::Io(io::ErrorKind::WriteZero.into())));
                    }
                    *sent_bytes += written;
                    *news_bytes += written as u64;
                }
                connection.out.clear();
                *sent_bytes = 0;
                connection.upload();
                if connection.out.is_empty() {
                    return transport.poll_flush(context);
                }
            },
            (Self::Udp(udp), Carrier::Http3(connection)) => {
                udp.poll_send(connection, &mut worker.quic.borrow_mut(), context);
                Poll::Ready(Ok(()))
            }
            _ => unreachable!("a connection and its socket are of one protocol"),
        }
    }

    /// How much was sent since the last call.
    pub(super) fn take_sent(&mut self, connection: &mut Carrier) -> u64 {
        match (self, connection) {
            (Self::Tcp { news_bytes, .. }, _) => std::mem::take(news_bytes),
            (Self::Udp(_), Carrier::Http3(connection)) => std::mem::take(&mut connection.sent_bytes),
            (Self::Udp(_), Carrier::Http2(_)) => 0,
        }
    }

    /// Drops what could not be sent.
    pub(super) fn drop_unsent(&mut self, connection: &mut Carrier) {
        if let (Self::Tcp { sent_bytes, .. }, Carrier::Http2(connection)) = (self, connection) {
            connection.out.clear();
            *sent_bytes = 0;
        }
    }
}
