//! HTTP/3 connections for health checks: each check opens a new one with a separate socket.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use http3::{FloodLimits, H3Limits};
use transport::alarm::Alarms;
use transport::deadline::Deadlines;
use transport::endpoint::MessageEndpoint;
use transport::h3_connection::{H3Connection, H3ConnectionEnd};
use transport::h3_stream::H3Stream;
use transport::quic_client::{Calm, QuicClients};

use crate::probe::connect::{addresses, reason};
use crate::probe::http::{BODY_MAX, HEAD_MAX};
use crate::probe::server::{ProbeShared, ProbedServer};

const LIMITS: H3Limits = H3Limits {
    streams: 1,
    head_bytes: HEAD_MAX,
    short_head_bytes: HEAD_MAX,
    long_heads_bytes: HEAD_MAX,
    body_bytes: BODY_MAX,
    bodies_bytes: BODY_MAX,
    // A dynamic table saves nothing in a single response.
    table_bytes: 0,
    blocked_streams: 0,
    floods: FloodLimits::DEFAULT,
};

/// The connection of a check. Dropping it closes the connection.
struct Connected(H3Connection);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.conclude(&H3ConnectionEnd::Closed);
    }
}

pub(super) struct OpenProbe {
    stream: MessageEndpoint,
    _connected: Connected,
}

impl OpenProbe {
    /// The stream of the request, which is written and read as HTTP/1.1 text.
    pub(super) fn stream(&self) -> &MessageEndpoint {
        &self.stream
    }
}

/// Prepares for QUIC connections: a timer, and a task for it. Fails if no file descriptor is left.
pub(super) fn clients(epoch: std::time::Instant) -> io::Result<QuicClients> {
    let alarms = Alarms::new(epoch)?;
    tokio::task::spawn_local(Rc::clone(&alarms).run());
    Ok(QuicClients::new(&alarms, &Deadlines::new()))
}

/// Connects to the server, does the handshake, and waits for its settings.
pub(super) async fn open(subject: &ProbedServer, shared: &ProbeShared) -> Result<OpenProbe, String> {
    let mut failure = reason(&io::ErrorKind::AddrNotAvailable.into());
    for address in addresses(subject) {
        match connect(subject, shared, address).await {
            Ok(connected) => {
                let key = connected.0.open().ok_or("it permits no request")?;
                let stream = MessageEndpoint::Http3(Box::new(H3Stream::new(connected.0.clone(), key)));
                return Ok(OpenProbe { stream, _connected: connected });
            }
            Err(why) => failure = why,
        }
    }
    Err(failure)
}

async fn connect(
    subject: &ProbedServer,
    shared: &ProbeShared,
    address: SocketAddr,
) -> Result<Connected, String> {
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
