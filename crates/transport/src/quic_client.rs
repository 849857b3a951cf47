//! QUIC connections to servers, each with its own UDP socket.
//!
//! The kernel then delivers only the server's datagrams to each connection, combines them (GRO), and reports a closed
//! port at once. Servers do not compete for a socket's buffer, and our connection IDs can be empty. When the machine's
//! address changes, a new connection is made, as with TCP.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::crypto::ClientConfig as ClientCrypto;
use quinn_proto::{ClientConfig, EndpointConfig, RandomConnectionIdGenerator, TransportConfig, VarInt};

use crate::alarm::Alarms;
use crate::deadline::Deadlines;
use crate::h3_connection::H3Connection;
use crate::quic_endpoint::{
    Admission, Datagram, EndpointScratch, Greeting, Host, IncomingConnection, QuicEndpoint,
};
use crate::quic_ids::IdOwner;
use crate::quic_path::{DatagramWay, Passage, Weather};
use crate::quic_places::Crowd;
use crate::quic_socket::QuicSocket;

/// Bytes that a server may send on a stream before the path has read any.
// 12 MB/s for each response at a round trip of 20 ms.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Requests that a connection carries at once. Their stream windows add up to the connection window, so that an unread
/// stream does not block the others.
pub const STREAMS_MAX: u32 = 64;
/// Bytes that a server may send on all streams together.
const CONNECTION_WINDOW: u32 = STREAMS_MAX * STREAM_WINDOW;
/// Streams that a server may open: control, encoder and decoder stream, and some unknown ones.
const UNIDIRECTIONAL_MAX: u32 = 8;
/// Longest handshake message that is held in parts, in bytes.
const HANDSHAKE_MAX: usize = 64 * 1024;
/// Idle time-out: how long a server may send nothing.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Interval of pings to a silent server.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Ticks of silence after which requests use a new connection: the server has not answered the last ping.
// A ping every 10 s, and 2 s for its answer.
pub const SILENCE_TICKS: u32 = 120;

/// State that all connections to servers of a worker share.
pub struct QuicClients {
    common: EndpointScratch,
    endpoint: Arc<EndpointConfig>,
    transport: Arc<TransportConfig>,
    alarms: Rc<Alarms>,
    deadlines: Rc<Deadlines>,
}

impl QuicClients {
    /// Allocates no buffers before the first connection.
    pub fn new(alarms: &Rc<Alarms>, deadlines: &Rc<Deadlines>) -> Self {
        let mut endpoint = EndpointConfig::default();
        // RFC 9000 §5.1: a connection with its own port needs no ID.
        endpoint.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(0)));
        Self {
            common: EndpointScratch::default(),
            endpoint: Arc::new(endpoint),
            transport: Arc::new(transport()),
            alarms: Rc::clone(alarms),
            deadlines: Rc::clone(deadlines),
        }
    }

    /// Starts a connection to a server whose certificate must match this name. A task drives it until it ends. Its
    /// owner polls [`H3Connection::poll_news`] and finishes it.
    ///
    /// # Errors
    /// No route to the server, or no file descriptor left.
    pub fn connect<W: Weather + 'static>(
        &self,
        crypto: Arc<dyn ClientCrypto>,
        (peer, name): (SocketAddr, &str),
        limits: http3::H3Limits,
        weather: W,
    ) -> io::Result<H3Connection> {
        let socket = QuicSocket::to(peer)?;
        let mut config = ClientConfig::new(crypto);
        config.transport_config(Arc::clone(&self.transport));
        let endpoint =
            QuicEndpoint::to(socket, &self.endpoint, &self.common, (&self.alarms, &self.deadlines));
        let connection = endpoint
            .connect(config, (peer, name), limits, CONNECTION_WINDOW)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
        tokio::task::spawn_local(look(endpoint.clone(), connection.clone(), Rc::clone(&self.alarms)));
        let alone = Alone(weather);
        tokio::task::spawn_local(async move {
            poll_fn(|context| endpoint.poll_drive(context, &alone)).await;
        });
        Ok(connection)
    }
}

/// Checks a few times during a handshake for ICMP errors, because they alone wake no task. QUIC would send its first
/// datagram again only after a second, too late to try another server.
async fn look(endpoint: QuicEndpoint, connection: H3Connection, alarms: Rc<Alarms>) {
    for pause_ms in [1, 5, 25, 125] {
        alarms.sleep(Duration::from_millis(pause_ms)).await;
        if connection.is_secure() || connection.is_over() {
            return;
        }
        endpoint.look_for_refusal();
    }
}

/// Limits on the server, and time-outs.
fn transport() -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        // RFC 9114 §6.1: servers open no bidirectional streams.
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(UNIDIRECTIONAL_MAX))
        .max_idle_timeout(SILENCE_MAX.try_into().ok())
        .keep_alive_interval(Some(KEEP_ALIVE))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .crypto_buffer_size(HANDSHAKE_MAX)
        // HTTP datagrams (RFC 9297) are not supported.
        .datagram_receive_buffer_size(None);
    config
}

/// A network path that changes nothing.
pub struct Calm;

impl Weather for Calm {
    fn is_bad(&self) -> bool {
        false
    }

    fn passage(&self, _: IpAddr, _: usize, _: DatagramWay) -> Passage {
        Passage::default()
    }
}

/// The host of an endpoint that accepts no connection.
struct Alone<W>(W);

impl<W: Weather> Weather for Alone<W> {
    fn is_bad(&self) -> bool {
        self.0.is_bad()
    }

    fn passage(&self, peer: IpAddr, bytes: usize, way: DatagramWay) -> Passage {
        self.0.passage(peer, bytes, way)
    }
}

impl<W: Weather> Host for Alone<W> {
    fn admit(&self, _: &IncomingConnection, _: Crowd) -> Admission {
        Admission::Drop
    }

    fn greet(&self, _: &IncomingConnection) -> Greeting {
        Greeting::Refuse
    }

    fn failed(&self, _: &IncomingConnection, _: &str) {}

    fn begin(&self, _: H3Connection) {}

    fn pass_on(&self, _: IdOwner, datagram: Datagram) -> Option<Datagram> {
        Some(datagram)
    }

    fn asks(&self) -> bool {
        false
    }

    fn ask(&self, datagram: Datagram) -> Option<Datagram> {
        Some(datagram)
    }

    fn decline(&self, _: Datagram) -> bool {
        true
    }
}
