//! An HTTP/2 or HTTP/3 connection to a server that many requests share.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use config::Scheme;
use http2::{H2Limits, H2Role, Key, Reason, STREAM_WINDOW};

use crate::failure::Failure;
use crate::upstream::lender::Lender;
use crate::upstream::{Permit, UpstreamServer};
use transport::connection::Connection;
use transport::deadline::Deadline;
use transport::endpoint::MessageEndpoint;
use transport::h2_connection::{H2Connection, H2ConnectionEnd};
use transport::h2_stream;
use transport::h3_connection::H3Connection;
use transport::h3_stream;
use transport::quic_client::SILENCE_TICKS;

/// Initial window of an HTTP/2 connection: bytes that a server may send on all streams together before the path reads
/// any. The streams' windows add up to no more, so an unread stream does not block others.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Maximum number of streams of such a connection, even if the server permits more.
const STREAMS_MAX: u32 = CONNECTION_WINDOW / STREAM_WINDOW;

pub(crate) enum SharedConnection {
    Http2(H2Connection),
    Http3(H3Connection),
}

impl SharedConnection {
    /// Whether it offers no further stream, now or later.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Http2(connection) => connection.is_ending() || connection.is_key_exhausted(),
            // While the server is silent, new streams go to a new connection, which notices when the server is back.
            Self::Http3(connection) => connection.is_ending() || connection.is_in_doubt(SILENCE_TICKS),
        }
    }

    /// The number of streams that can be opened now. For HTTP/3, only whether one can.
    pub(crate) fn room(&self) -> usize {
        match self {
            Self::Http2(connection) => connection.engine().room_for_streams(),
            Self::Http3(connection) => usize::from(connection.has_room()),
        }
    }

    /// Opens a stream, if the server permits another one.
    pub(crate) fn open(&self, scheme: Scheme) -> Option<MessageEndpoint> {
        if self.is_over() {
            return None;
        }
        match self {
            Self::Http2(connection) => {
                if !connection.engine().takes_more() {
                    return None;
                }
                let key = connection.engine().open();
                let scheme = match scheme {
                    Scheme::Http | Scheme::Tcp | Scheme::Fcgi => http2::WireScheme::Http,
                    Scheme::Https => http2::WireScheme::Https,
                };
                let stream = h2_stream::H2Stream::new(connection.clone(), key, scheme);
                Some(MessageEndpoint::Stream(Box::new(stream)))
            }
            Self::Http3(connection) => {
                let key = connection.open()?;
                Some(MessageEndpoint::Http3(Box::new(h3_stream::H3Stream::new(connection.clone(), key))))
            }
        }
    }

    /// Opens no further streams: the connection ends with its last one.
    pub(crate) fn leave(&self) {
        match self {
            Self::Http2(connection) => connection.leave(),
            Self::Http3(connection) => connection.leave(),
        }
    }

    /// Ends the connection at once when the worker ends. The kernel closes TCP connections.
    pub(crate) fn end(&self) {
        if let Self::Http3(connection) = self {
            connection.finish(http3::H3Code::NO_ERROR, "");
        }
    }
}

/// Returns the limits of an HTTP/2 connection.
fn limits(worker: &impl Lender) -> H2Limits {
    let plan = worker.plan();
    H2Limits {
        streams: STREAMS_MAX,
        connection_window: CONNECTION_WINDOW,
        head_bytes: plan.config.limits.header_bytes,
        short_head_bytes: usize::MAX,
        long_heads_bytes: usize::MAX,
        floods: plan.config.limits.http2.floods,
    }
}

/// Begins HTTP/2 on a connection, and waits for the server's SETTINGS. They state how many streams it permits and
/// whether it supports upgraded ones, so no request is sent that another connection must serve.
pub(crate) async fn begin_http2(
    worker: &impl Lender,
    deadline: &Deadline,
    server: &UpstreamServer,
    connection: Connection,
    permit: Permit,
) -> Result<SharedConnection, Failure> {
    let limits = limits(worker);
    let h2_connection = H2Connection::new(
        Rc::clone(worker.frames()),
        Rc::clone(worker.deadlines()),
        connection,
        H2Role::Client,
        limits,
    );
    let handshake = poll_fn(|context| match drive(&h2_connection, context) {
        Poll::Ready(end) => Poll::Ready(Err(end)),
        Poll::Pending if h2_connection.engine().has_begun() => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    });
    server.is_troubled("it sent no HTTP/2 SETTINGS");
    match deadline.within(server.connect_limit(worker), handshake).await {
        Ok(Ok(())) => {}
        // RFC 9113 §3.4.
        Ok(Err(H2ConnectionEnd::Broken(broken))) => {
            let why = format!("its first bytes are not HTTP/2: {}", broken.why());
            return Err(server.refused(Failure::UpstreamProtocol, &why));
        }
        Ok(Err(H2ConnectionEnd::Closed)) => {
            let why = "it closed the connection before its HTTP/2 SETTINGS";
            return Err(server.refused(Failure::UpstreamProtocol, why));
        }
        Err(_) => return Err(Failure::UpstreamConnectTimeout),
    }
    let driven = h2_connection.clone();
    tokio::task::spawn_local(async move {
        let (reason, why) = match poll_fn(|context| drive(&driven, context)).await {
            H2ConnectionEnd::Broken(broken) => (broken.reason, broken.why()),
            H2ConnectionEnd::Closed => (Reason::NO_ERROR, ""),
        };
        driven.finish(Some(reason), why);
        // The permit counts the connection for as long as it lasts.
        drop(permit);
    });
    Ok(SharedConnection::Http2(h2_connection))
}

/// Drives a connection; ready when it has ended.
fn drive(h2_connection: &H2Connection, context: &mut Context<'_>) -> Poll<H2ConnectionEnd> {
    let streams = h2_connection.engine().held() as u32;
    // Servers do not open streams.
    let mut opened: Vec<Key> = Vec::new();
    let driven =
        h2_connection.poll_drive(context, CONNECTION_WINDOW / streams.clamp(1, STREAMS_MAX), &mut opened);
    // After GOAWAY, the connection ends with its last stream.
    let is_left = h2_connection.is_left() || (streams == 0 && h2_connection.engine().is_going_away());
    if driven.is_pending() && is_left && h2_connection.engine().held() == 0 {
        return Poll::Ready(H2ConnectionEnd::Closed);
    }
    driven
}
