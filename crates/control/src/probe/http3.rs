//! HTTP/3 connections for health checks: a new one for each check, with a socket of its own.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use http3::{FloodLimits, Limits};
use transport::alarm::Alarms;
use transport::deadline::Deadlines;
use transport::endpoint::Endpoint;
use transport::h3_connection::{End, H3Connection};
use transport::h3_stream::Stream;
use transport::quic_client::{Calm, QuicClients};

use crate::probe::connect::{addresses, reason};
use crate::probe::http::{BODY_MAX, HEAD_MAX};
use crate::probe::server::{Shared, Subject};

const LIMITS: Limits = Limits {
    streams: 1,
    head_bytes: HEAD_MAX,
    short_head_bytes: HEAD_MAX,
    long_heads_bytes: HEAD_MAX,
    body_bytes: BODY_MAX,
    bodies_bytes: BODY_MAX,
    // What a dynamic table saves, one response cannot.
    table_bytes: 0,
    blocked_streams: 0,
    floods: FloodLimits::DEFAULT,
};

/// The connection of a check, which ends with it.
struct Connected(H3Connection);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.conclude(&End::Closed);
    }
}

/// The stream of a check, and its connection.
pub(super) struct Open {
    stream: Endpoint,
    _connected: Connected,
}

impl Open {
    /// The stream for the request, which is written and read as the text of HTTP/1.1.
    pub(super) fn stream(&self) -> &Endpoint {
        &self.stream
    }
}

/// Prepares for connections of QUIC: a timer, and a task that looks at it.
///
/// # Errors
/// If there is no file descriptor left.
pub(super) fn clients(epoch: std::time::Instant) -> io::Result<QuicClients> {
    let alarms = Alarms::new(epoch)?;
    tokio::task::spawn_local(Rc::clone(&alarms).run());
    Ok(QuicClients::new(&alarms, &Deadlines::new()))
}

/// Connects to the server, does the handshake, and hears its settings.
pub(super) async fn open(subject: &Subject, shared: &Shared) -> Result<Open, String> {
    let mut failure = reason(&io::ErrorKind::AddrNotAvailable.into());
    for address in addresses(subject) {
        match connect(subject, shared, address).await {
            Ok(connected) => {
                let key = connected.0.open().ok_or("it permits no request")?;
                let stream = Endpoint::Http3(Box::new(Stream::new(connected.0.clone(), key)));
                return Ok(Open { stream, _connected: connected });
            }
            Err(why) => failure = why,
        }
    }
    Err(failure)
}

async fn connect(subject: &Subject, shared: &Shared, address: SocketAddr) -> Result<Connected, String> {
    let (tls, place) = subject.tls.as_ref().ok_or("it has no TLS")?;
    let (name, crypto) = tls.name(*place).zip(tls.quic()).ok_or("it has no TLS")?;
    let clients = shared.quic().map_err(|error| reason(&error))?;
    let connection =
        clients.connect(crypto, (address, &name.to_str()), LIMITS, Calm).map_err(|error| reason(&error))?;
    let connected = Connected(connection);
    match poll_fn(|context| connected.0.poll_until(context, H3Connection::has_begun)).await {
        Ok(()) => Ok(connected),
        Err(end) => {
            connected.0.conclude(&end);
            Err(end.wrong().unwrap_or_else(|| reason(&io::ErrorKind::ConnectionRefused.into())))
        }
    }
}
