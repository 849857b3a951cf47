//! HTTP/2 over TCP or HTTP/3 over UDP, behind one interface. An enum, which costs HTTP/2 only a branch.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use crate::failure::LoadFailure;
use crate::http2::{H2Code, H2LoadRequest, H2StreamFailure, ReceivedResponse};
use crate::transport::{Transport, TransportFault};
use crate::worker::LoadWorker;
use crate::{http2, http3};

pub(super) enum Carrier {
    Http2(Box<http2::H2LoadConnection>),
    Http3(Box<http3::H3LoadConnection>),
}

pub(super) enum CarrierWire {
    Tcp {
        transport: Transport,
        /// Bytes of the output that were sent.
        sent_bytes: usize,
        /// Bytes sent since the last call.
        news_bytes: u64,
    },
    Udp(Box<http3::QuicWire>),
}

macro_rules! either {
    ($carrier:expr, $connection:ident => $call:expr) => {
        match $carrier {
            Carrier::Http2($connection) => $call,
            Carrier::Http3($connection) => $call,
        }
    };
}

impl Carrier {
    /// Maximum number of concurrent streams; 0 while it is unknown.
    pub(super) fn most(&self) -> usize {
        either!(self, connection => connection.most())
    }

    /// Whether the server accepts no further requests.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        either!(self, connection => connection.is_over())
    }

    #[inline]
    pub(super) fn ask(&mut self, place: usize, asked: H2LoadRequest<'_>) {
        either!(self, connection => connection.ask(place, asked));
    }

    #[inline]
    pub(super) fn ended(&mut self) -> &mut Vec<usize> {
        either!(self, connection => &mut connection.ended)
    }

    #[inline]
    pub(super) fn take(&mut self, place: usize) -> Option<Result<ReceivedResponse, H2StreamFailure>> {
        either!(self, connection => connection.take(place))
    }

    #[inline]
    pub(super) fn take_success(&mut self, place: usize) -> Option<ReceivedResponse> {
        either!(self, connection => connection.take_success(place))
    }

    pub(super) fn cancel(&mut self, place: usize) {
        either!(self, connection => connection.cancel(place));
    }

    pub(super) fn lose(&mut self) {
        either!(self, connection => connection.lose());
    }

    /// Tells the server that the connection ends.
    pub(super) fn go_away(&mut self) {
        match self {
            Self::Http2(connection) => connection.go_away(H2Code::NO_ERROR),
            Self::Http3(connection) => connection.go_away(lab_http3::LabH3Code::NO_ERROR, "", Instant::now()),
        }
    }

    /// The failure of a response that breaks the protocol.
    pub(super) fn broken(&self, what: &'static str) -> LoadFailure {
        match self {
            Self::Http2(_) => LoadFailure::Http2(what),
            Self::Http3(_) => LoadFailure::Http3(what),
        }
    }
}

impl CarrierWire {
    pub(super) fn poll_send(
        &mut self,
        connection: &mut Carrier,
        worker: &LoadWorker,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), TransportFault>> {
        match (self, connection) {
            (Self::Tcp { transport, sent_bytes, news_bytes }, Carrier::Http2(connection)) => loop {
                while *sent_bytes < connection.out.len() {
                    let written = ready!(transport.poll_write(context, &connection.out[*sent_bytes..]))?;
                    if written == 0 {
                        return Poll::Ready(Err(TransportFault::Io(io::ErrorKind::WriteZero.into())));
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

    /// Bytes sent since the last call.
    pub(super) fn take_sent(&mut self, connection: &mut Carrier) -> u64 {
        match (self, connection) {
            (Self::Tcp { news_bytes, .. }, _) => std::mem::take(news_bytes),
            (Self::Udp(_), Carrier::Http3(connection)) => std::mem::take(&mut connection.sent_bytes),
            (Self::Udp(_), Carrier::Http2(_)) => 0,
        }
    }

    pub(super) fn drop_unsent(&mut self, connection: &mut Carrier) {
        if let (Self::Tcp { sent_bytes, .. }, Carrier::Http2(connection)) = (self, connection) {
            connection.out.clear();
            *sent_bytes = 0;
        }
    }
}
