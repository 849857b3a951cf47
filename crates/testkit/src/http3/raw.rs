//! HTTP/3 client for tests that decide for each datagram whether it is sent, and when.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, HashedConnectionIdGenerator, StreamId, TransportConfig,
};

use rustls::ClientConfig as ClientConfigOfTls;

use super::frame::{headers, request};
use super::trusting;
use crate::wait::PATIENCE;

/// A control stream with the settings of a client that allows no dynamic table.
const CONTROL: &[u8] = &[0x00, 0x04, 0x00];

pub struct RawClient {
    pub socket: UdpSocket,
    pub quic: Connection,
    /// Whether received datagrams are discarded.
    pub is_deaf: bool,
    /// Only every n-th datagram is sent.
    pub sends_each: usize,
    /// Datagrams made so far, whether sent or not.
    pub made: usize,
    /// Longer datagrams are lost on their way to the client.
    pub path_limit: usize,
    /// Length of the longest received datagram.
    pub longest: usize,
    /// Reason why the connection has ended.
    pub lost: Option<ConnectionError>,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    address: SocketAddr,
}

fn socket(address: SocketAddr) -> UdpSocket {
    let own = if address.is_ipv6() { "[::1]:0" } else { "127.0.0.1:0" };
    let socket = UdpSocket::bind(own).expect("a port is free");
    socket.connect(address).expect("it is reachable");
    socket.set_nonblocking(true).expect("it is a socket");
    socket
}

impl RawClient {
    /// Makes a client that has sent nothing yet.
    pub fn new(address: SocketAddr, transport: TransportConfig) -> Self {
        Self::from_address(address, trusting(&[b"h3"]), transport)
    }

    /// Makes such a client with other TLS settings.
    pub fn from_address(address: SocketAddr, tls: ClientConfigOfTls, transport: TransportConfig) -> Self {
        Self::begin(address, tls, transport, None)
    }

    /// Connects a client that retires its connection IDs after a lifetime. A retransmitted frame may break a rule (RFC
    /// 9000 §19.15: `Retire Prior To` is too large), and end the connection.
    pub fn retiring(address: SocketAddr, transport: TransportConfig, lifetime: Duration) -> Self {
        let mut client = Self::begin(address, trusting(&[b"h3"]), transport, Some(lifetime));
        client.begins();
        client
    }

    fn begin(
        address: SocketAddr,
        tls: ClientConfigOfTls,
        transport: TransportConfig,
        lifetime: Option<Duration>,
    ) -> Self {
        let crypto = QuicClientConfig::try_from(tls).expect("it has TLS 1.3");
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        let mut of_endpoint = EndpointConfig::default();
        of_endpoint.cid_generator(move || {
            let mut ids = HashedConnectionIdGenerator::new();
            if let Some(lifetime) = lifetime {
                ids.set_lifetime(lifetime);
            }
            Box::new(ids)
        });
        let mut endpoint = Endpoint::new(Arc::new(of_endpoint), None, false, None);
        let (handle, quic) = endpoint.connect(Instant::now(), config, address, "test").expect("it can begin");
        let socket = socket(address);
        Self {
            socket,
            quic,
            is_deaf: false,
            sends_each: 1,
            made: 0,
            path_limit: usize::MAX,
            longest: 0,
            lost: None,
            endpoint,
            handle,
            address,
        }
    }

    /// Connects a client, and sends its settings.
    pub fn connect(address: SocketAddr, transport: TransportConfig) -> Self {
        let mut client = Self::new(address, transport);
        client.begins();
        client
    }

    /// Completes the handshake, and sends the settings.
    pub fn begins(&mut self) {
        self.shakes_hands();
        let control = self.quic.streams().open(Dir::Uni).expect("it may");
        self.write(control, CONTROL);
        self.turn();
    }

    pub fn shakes_hands(&mut self) {
        self.until("no handshake", |client| !client.quic.is_handshaking());
        assert!(!self.quic.is_closed(), "the handshake fails");
    }

    /// Receives and sends until `holds` returns true.
    pub fn until(&mut self, otherwise: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            assert!(began.elapsed() < PATIENCE, "{otherwise}; the connection has ended with {:?}", self.lost);
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Receives all waiting datagrams, and sends all due ones.
    pub fn turn(&mut self) {
        let mut buffer = [0; 65_536];
        while let Ok(count) = self.socket.recv(&mut buffer) {
            if !self.is_deaf && count <= self.path_limit {
                self.longest = self.longest.max(count);
                self.hears(&buffer[..count]);
            }
        }
        if !self.is_deaf && self.quic.poll_timeout().is_some_and(|due| due <= Instant::now()) {
            self.quic.handle_timeout(Instant::now());
        }
        while let Some(datagram) = self.next_datagram() {
            self.made += 1;
            if self.made.is_multiple_of(self.sends_each) {
                self.sends(&datagram);
            }
        }
    }

    pub fn hears(&mut self, datagram: &[u8]) {
        let (now, mut answer) = (Instant::now(), Vec::new());
        let event = self.endpoint.handle(now, self.address, None, None, datagram.into(), &mut answer);
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.quic.handle_event(event);
        }
    }

    pub fn next_datagram(&mut self) -> Option<Vec<u8>> {
        while let Some(event) = self.quic.poll_endpoint_events() {
            if let Some(news) = self.endpoint.handle_event(self.handle, event) {
                self.quic.handle_event(news);
            }
        }
        while let Some(event) = self.quic.poll() {
            if let Event::ConnectionLost { reason } = event {
                self.lost = Some(reason);
            }
        }
        let mut bytes = Vec::new();
        let transmit = self.quic.poll_transmit(Instant::now(), 1, &mut bytes)?;
        bytes.truncate(transmit.size);
        Some(bytes)
    }

    /// Sends a datagram; it is lost if the kernel has no room for it.
    pub fn sends(&self, datagram: &[u8]) {
        let _ = self.socket.send(datagram);
    }

    /// Continues at another port (connection migration).
    pub fn moves(&mut self) {
        self.socket = socket(self.address);
        self.quic.local_address_changed();
    }

    /// Writes as much as the stream has room for.
    pub fn write(&mut self, stream: StreamId, bytes: &[u8]) -> usize {
        self.quic.send_stream(stream).write(bytes).unwrap_or_default()
    }

    /// Reads all received bytes of a stream. Returns their number, and whether the stream has ended.
    pub fn reads(&mut self, stream: StreamId) -> (usize, bool) {
        let mut source = self.quic.recv_stream(stream);
        let Ok(mut chunks) = source.read(true) else { return (0, true) };
        let mut count = 0;
        let is_over = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => count += chunk.bytes.len(),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let _ = chunks.finalize();
        (count, is_over)
    }

    pub fn open(&mut self) -> StreamId {
        self.may_open().expect("it may")
    }

    /// Opens a request stream as soon as the server permits one; `None` if it is too late, or the connection ends.
    pub fn may_open(&mut self) -> Option<StreamId> {
        let began = Instant::now();
        loop {
            let stream = self.quic.streams().open(Dir::Bi);
            if stream.is_some() || self.is_deaf || self.quic.is_closed() {
                return stream;
            }
            assert!(began.elapsed() < PATIENCE, "no stream is permitted");
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends a request, and ends it with its head if `ends`.
    pub fn asks(&mut self, method: &str, path: &str, fields: &str, ends: bool) -> StreamId {
        let stream = self.open();
        self.asks_on(stream, method, path, fields, ends);
        stream
    }

    /// Sends a request on an open stream.
    pub fn asks_on(&mut self, stream: StreamId, method: &str, path: &str, fields: &str, ends: bool) {
        self.write(stream, &headers(&request(method, path, fields)));
        if ends {
            let _ = self.quic.send_stream(stream).finish();
        }
        self.turn();
    }
}
