//! A connection to a server that many requests share, of HTTP/2 or HTTP/3.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use config::Scheme;
use http2::{Key, Limits, Reason, Role, STREAM_WINDOW};

use crate::context::failure::Failure;
use crate::context::worker::Worker;
use crate::upstream::Permit;
use transport::connection::Connection;
use transport::deadline::{Deadline, Ticks};
use transport::endpoint::Endpoint;
use transport::h2_connection::{End, H2Connection};
use transport::h2_stream;
use transport::h3_connection::H3Connection;
use transport::h3_stream;
use transport::quic_client::SILENCE_TICKS;

/// What a server may send on all streams of a connection of HTTP/2 together before the path has taken any of it. The windows of
/// the streams add up to no more, so that one that is not taken keeps no other waiting.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Streams of such a connection, whatever the server allows.
const STREAMS_MAX: u32 = CONNECTION_WINDOW / STREAM_WINDOW;

/// A connection that many requests share.
pub(crate) enum Channel {
    Http2(H2Connection),
    Http3(H3Connection),
}

impl Channel {
    /// Whether no further stream can be had of it, now or later.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Http2(connection) => connection.is_ending() || connection.is_key_exhausted(),
            // A server that is back after a silence is found by the connection that is made meanwhile.
            Self::Http3(connection) => connection.is_ending() || connection.is_in_doubt(SILENCE_TICKS),
        }
    }

    /// How many streams can be opened now. Of HTTP/3 is known whether one can.
    pub(crate) fn room(&self) -> usize {
        match self {
            Self::Http2(connection) => connection.engine().room_for_streams(),
            Self::Http3(connection) => usize::from(connection.has_room()),
        }
    }

    /// Opens a stream, where the server allows one more.
    pub(crate) fn open(&self, scheme: Scheme) -> Option<Endpoint> {
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
                    Scheme::Http | Scheme::Tcp => http2::Scheme::Http,
                    Scheme::Https => http2::Scheme::Https,
                };
                let stream = h2_stream::Stream::new(connection.clone(), key, scheme);
                Some(Endpoint::Stream(Box::new(stream)))
            }
            Self::Http3(connection) => {
                let key = connection.open()?;
                Some(Endpoint::Http3(Box::new(h3_stream::Stream::new(connection.clone(), key))))
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

    /// Ends the connection at once, because the worker does. The kernel ends those of TCP.
    pub(crate) fn end(&self) {
        if let Self::Http3(connection) = self {
            connection.finish(http3::Code::NO_ERROR, "");
        }
    }
}

/// Begins HTTP/2 on a connection. It is there once the server has said how many streams it takes, and whether upgraded
/// ones are among them: until then nothing is asked of it that may have to be asked elsewhere.
pub(crate) async fn begin_http2(
    worker: &Worker,
    (deadline, limit): (&Deadline, Ticks),
    connection: Connection,
    permit: Permit,
) -> Result<Channel, Failure> {
    let limits = Limits {
        streams: STREAMS_MAX,
        connection_window: CONNECTION_WINDOW,
        head_bytes: worker.snapshot().head_limits.bytes,
        short_head_bytes: usize::MAX,
        long_heads_bytes: usize::MAX,
        floods: worker.snapshot().plan.config.limits.http2.floods,
    };
    let h2_connection = H2Connection::new(
        Rc::clone(&worker.frames),
        Rc::clone(&worker.deadlines),
        connection,
        Role::Client,
        limits,
    );
    let handshake = poll_fn(|context| match drive(&h2_connection, context) {
        Poll::Ready(_) => Poll::Ready(Err(Failure::UpstreamHandshake)),
        Poll::Pending if h2_connection.engine().has_begun() => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    });
    match deadline.within(limit, handshake).await {
        Ok(begun) => begun?,
        Err(_) => return Err(Failure::UpstreamConnectTimeout),
    }
    let driven = h2_connection.clone();
    tokio::task::spawn_local(async move {
        let (reason, why) = match poll_fn(|context| drive(&driven, context)).await {
            End::Broken(broken) => (broken.reason, broken.why()),
            End::Closed => (Reason::NO_ERROR, ""),
        };
        driven.finish(Some(reason), why);
        drop(permit);
    });
    Ok(Channel::Http2(h2_connection))
}

/// Does what there is to do on a connection; ready when it has ended.
fn drive(h2_connection: &H2Connection, context: &mut Context<'_>) -> Poll<End> {
    let streams = h2_connection.engine().held() as u32;
    // A server begins no streams.
    let mut opened: Vec<Key> = Vec::new();
    let driven =
        h2_connection.poll_drive(context, CONNECTION_WINDOW / streams.clamp(1, STREAMS_MAX), &mut opened);
    let is_left = h2_connection.is_left() || (streams == 0 && h2_connection.engine().is_going_away());
    if driven.is_pending() && is_left && h2_connection.engine().held() == 0 {
        return Poll::Ready(End::Closed);
    }
    driven
}
