//! QUIC connections to servers, each with a UDP socket of its own.
//!
//! The kernel then gives each connection what is from its server and nothing else, puts datagrams of one server together (GRO), tells
//! at once if nobody listens there, and one server's datagrams take no room from another's. Our connection IDs can be empty. A
//! machine that changes its address makes a new connection, as with TCP.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::crypto::ClientConfig as ClientCrypto;
use quinn_proto::{
    ClientConfig, EndpointConfig, RandomConnectionIdGenerator, ServerConfig, TransportConfig, VarInt,
};

use crate::alarm::Alarms;
use crate::deadline::Deadlines;
use crate::h3_connection::H3Connection;
use crate::quic_endpoint::{Admission, Arrival, Common, Datagram, Host, QuicEndpoint};
use crate::quic_ids::Owner;
use crate::quic_path::{Passage, Way, Weather};
use crate::quic_places::Crowd;
use crate::quic_socket::QuicSocket;

/// What a server may send on a stream before the path has taken any of it.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Requests that a connection carries at once. The windows of their streams add up to that of the connection, so that one which
/// is not read keeps no other waiting.
pub const STREAMS_MAX: u32 = 64;
/// What a server may send on all streams together.
const CONNECTION_WINDOW: u32 = STREAMS_MAX * STREAM_WINDOW;
/// Streams that a server may open: control, encoder and decoder stream, and some that mean nothing.
const UNIDIRECTIONAL_MAX: u32 = 8;
/// The longest handshake message that is held in parts.
const HANDSHAKE_MAX: usize = 64 * 1024;
/// How long nothing may come of a server.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How often a server that says nothing is asked whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// After how many ticks without a word of a server requests go over a new connection: it did not answer to that.
pub const SILENCE_TICKS: u32 = 120;

/// What the connections to servers of a worker share.
pub struct QuicClients {
    common: Common,
    endpoint: Arc<EndpointConfig>,
    transport: Arc<TransportConfig>,
    alarms: Rc<Alarms>,
    deadlines: Rc<Deadlines>,
}

impl QuicClients {
    /// Buffers are allocated with the first connection.
    pub fn new(alarms: &Rc<Alarms>, deadlines: &Rc<Deadlines>) -> Self {
        let mut endpoint = EndpointConfig::default();
        // RFC 9000 §5.1: at a port of its own a connection needs no ID.
        endpoint.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(0)));
        Self {
            common: Common::default(),
            endpoint: Arc::new(endpoint),
            transport: Arc::new(transport()),
            alarms: Rc::clone(alarms),
            deadlines: Rc::clone(deadlines),
        }
    }

    /// Begins a connection to a server that has to prove this name. A task drives it until it ends; its owner polls
    /// [`H3Connection::poll_news`] and finishes it.
    ///
    /// # Errors
    /// If there is no way to the server, or no file descriptor left.
    pub fn connect<W: Weather + 'static>(
        &self,
        crypto: Arc<dyn ClientCrypto>,
        (peer, name): (SocketAddr, &str),
        limits: http3::Limits,
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

/// Looks a few times during a handshake whether the kernel has told that nobody listens. The runtime wakes nobody for that alone, and
/// QUIC sends its first datagram again after a second, too late for who could ask another server.
async fn look(endpoint: QuicEndpoint, connection: H3Connection, alarms: Rc<Alarms>) {
    for pause_ms in [1, 5, 25, 125] {
        alarms.sleep(Duration::from_millis(pause_ms)).await;
        if connection.is_secure() || connection.is_over() {
            return;
        }
        endpoint.look_for_refusal();
    }
}

/// What a server may send, and how long it may be silent.
fn transport() -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        // RFC 9114 §6.1: servers open none.
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(UNIDIRECTIONAL_MAX))
        .max_idle_timeout(SILENCE_MAX.try_into().ok())
        .keep_alive_interval(Some(KEEP_ALIVE))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .crypto_buffer_size(HANDSHAKE_MAX)
        .datagram_receive_buffer_size(None);
    config
}

/// A path on which nothing happens to datagrams.
pub struct Calm;

impl Weather for Calm {
    fn is_bad(&self) -> bool {
        false
    }

    fn passage(&self, _: IpAddr, _: usize, _: Way) -> Passage {
        Passage::default()
    }
}

/// The host of an endpoint that accepts no connection.
struct Alone<W>(W);

impl<W: Weather> Weather for Alone<W> {
    fn is_bad(&self) -> bool {
        self.0.is_bad()
    }

    fn passage(&self, peer: IpAddr, bytes: usize, way: Way) -> Passage {
        self.0.passage(peer, bytes, way)
    }
}

impl<W: Weather> Host for Alone<W> {
    fn admit(&self, _: &Arrival, _: Crowd) -> Admission {
        Admission::Drop
    }

    fn settings(&self, _: &Arrival) -> Option<(Arc<ServerConfig>, Box<http3::Limits>)> {
        None
    }

    fn failed(&self, _: &Arrival, _: &str) {}

    fn begin(&self, _: H3Connection) {}

    fn pass_on(&self, _: Owner, datagram: Datagram) -> Option<Datagram> {
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
