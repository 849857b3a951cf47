//! The UDP socket of a worker, with all its connections. The QUIC implementation handles packets.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use lab_http3::{LabUdpSocket, ReceiveBatch};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Incoming, ServerConfig, Transmit,
    TransportConfig,
};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use tokio::time::Sleep;

use super::connection::OriginH3;
use crate::worker::OriginWorker;

const IDLE_MAX: Duration = Duration::from_secs(900);
/// Maximum number of concurrent requests on a connection.
const STREAMS_MAX: u32 = 256;
/// Unidirectional streams of a client: three, and a few of unknown types.
const CLIENT_STREAMS: u32 = 16;
/// Receive window of each request and of the connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// Maximum bytes of a connection's responses that wait for acknowledgment.
const SEND_WINDOW_BYTES: u64 = 4 << 20;
/// Maximum system calls for a connection before others have their turn.
const SENDS_PER_TURN: usize = 4;

/// QUIC settings for the TLS settings of an address.
pub(crate) fn config(tls: &rustls::ServerConfig) -> io::Result<Arc<ServerConfig>> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().and_then(rustls::Tls13CipherSuite::quic_suite);
    let suite = suite.ok_or_else(|| io::Error::other("the TLS library has no QUIC"))?;
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = QuicServerConfig::with_initial(Arc::new(tls), suite);
    let crypto = crypto.map_err(|_| invalid("HTTP/3 has only cipher suites of TLS 1.3: choose another"))?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    let idle = IDLE_MAX.try_into().map_err(io::Error::other)?;
    transport
        .max_concurrent_bidi_streams(STREAMS_MAX.into())
        .max_concurrent_uni_streams(CLIENT_STREAMS.into())
        .stream_receive_window(STREAM_WINDOW_BYTES.into())
        .receive_window(CONNECTION_WINDOW_BYTES.into())
        .send_window(SEND_WINDOW_BYTES)
        .max_idle_timeout(Some(idle))
        .datagram_receive_buffer_size(None);
    config.transport_config(Arc::new(transport));
    Ok(Arc::new(config))
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// Serves the connections of a socket, without end.
pub(crate) async fn serve(worker: Rc<OriginWorker>, socket: UdpSocket, config: Arc<ServerConfig>) {
    let Ok(local) = socket.local_addr() else { return };
    // The socket was bound, so an error here is the system's.
    let Ok(socket) = LabUdpSocket::new(socket) else { return };
    let finds_size = !socket.may_fragment();
    let engine = Endpoint::new(Arc::new(EndpointConfig::default()), Some(config), finds_size, None);
    let shared = Rc::new(EndpointShared {
        stirred: RefCell::default(),
        driver: RefCell::default(),
        is_awake: Cell::default(),
    });
    let mut driver = EndpointDriver {
        worker,
        local,
        socket,
        engine,
        shared,
        connections: Vec::new(),
        timers: BTreeSet::new(),
        timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
        armed: None,
        batch: ReceiveBatch::default(),
        out: Vec::new(),
        unsent: None,
    };
    poll_fn(|context| driver.poll(context)).await;
}

/// State that connections share with their endpoint.
pub(super) struct EndpointShared {
    /// Connections that have something to do.
    stirred: RefCell<VecDeque<usize>>,
    driver: RefCell<Option<Waker>>,
    is_awake: Cell<bool>,
}

impl EndpointShared {
    pub(super) fn stir(&self, at: usize) {
        self.stirred.borrow_mut().push_back(at);
        if !self.is_awake.replace(true)
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }
}

struct EndpointDriver {
    worker: Rc<OriginWorker>,
    local: std::net::SocketAddr,
    socket: LabUdpSocket,
    engine: Endpoint,
    shared: Rc<EndpointShared>,
    connections: Vec<Option<Rc<OriginH3>>>,
    timers: BTreeSet<(Instant, usize)>,
    timer: Pin<Box<Sleep>>,
    /// Due time of the timer.
    armed: Option<Instant>,
    batch: ReceiveBatch,
    out: Vec<u8>,
    /// Datagrams that the kernel had no room for.
    unsent: Option<(Transmit, Vec<u8>)>,
}

impl EndpointDriver {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut *self.shared.driver.borrow_mut() {
            Some(driver) => driver.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        self.shared.is_awake.set(true);
        let received = self.receive(context);
        let now = Instant::now();
        self.ring(now);
        let drove = self.drive_all(context, now);
        self.shared.is_awake.set(false);
        self.arm(context);
        if received || drove {
            self.shared.is_awake.set(true);
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Receives once. Returns whether there were datagrams.
    fn receive(&mut self, context: &mut Context<'_>) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        let is_ready = self.socket.poll_receive(context, &mut batch).is_ready();
        if is_ready {
            let now = Instant::now();
            for received in batch.received() {
                let mut bytes = BytesMut::from(received.bytes);
                while !bytes.is_empty() {
                    let datagram = bytes.split_to(received.stride.min(bytes.len()));
                    self.out.clear();
                    let (remote, local, ecn) = (received.remote, received.local, received.ecn);
                    let event = self.engine.handle(now, remote, local, ecn, datagram, &mut self.out);
                    match event {
                        Some(DatagramEvent::ConnectionEvent(ConnectionHandle(at), event)) => {
                            if let Some(Some(connection)) = self.connections.get(at) {
                                connection.quic().handle_event(event);
                                connection.stir();
                            }
                        }
                        Some(DatagramEvent::NewConnection(incoming)) => self.greet(incoming, now),
                        Some(DatagramEvent::Response(transmit)) => {
                            self.socket.send(&transmit, &self.out);
                        }
                        None => {}
                    }
                }
            }
        }
        self.batch = batch;
        is_ready
    }

    fn greet(&mut self, incoming: Incoming, now: Instant) {
        self.out.clear();
        if !self.worker.admits() {
            let transmit = self.engine.refuse(incoming, &mut self.out);
            self.socket.send(&transmit, &self.out);
            return;
        }
        let remote = incoming.remote_address();
        match self.engine.accept(incoming, now, &mut self.out, None) {
            Ok((handle, quic)) => {
                let at = handle.0;
                if self.connections.len() <= at {
                    self.connections.resize_with(at + 1, || None);
                }
                let addresses = [remote, self.local];
                let connection =
                    OriginH3::new(Rc::clone(&self.worker), Rc::clone(&self.shared), at, quic, addresses);
                connection.stir();
                self.connections[at] = Some(connection);
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.socket.send(&transmit, &self.out);
                }
                self.worker.dismiss();
            }
        }
    }

    /// Marks connections whose timers are due.
    fn ring(&mut self, now: Instant) {
        while let Some(&(due, at)) = self.timers.first() {
            if due > now {
                return;
            }
            self.timers.pop_first();
            if let Some(Some(connection)) = self.connections.get(at) {
                connection.filed.set(None);
                connection.stir();
            }
        }
    }

    /// Drives each marked connection once, while the kernel has room. Returns whether there was one.
    fn drive_all(&mut self, context: &mut Context<'_>, now: Instant) -> bool {
        let count = self.shared.stirred.borrow().len();
        for _ in 0..count {
            if !self.has_room(context) {
                return false;
            }
            let Some(at) = self.shared.stirred.borrow_mut().pop_front() else { break };
            let connection = self.connections.get(at).cloned().flatten();
            if let Some(connection) = connection {
                self.drive(&connection, at, now);
            }
        }
        count > 0
    }

    /// Sends the datagrams that the kernel had no room for. Returns whether it accepted them all.
    fn has_room(&mut self, context: &mut Context<'_>) -> bool {
        while let Some((transmit, bytes)) = &self.unsent {
            if self.socket.send(transmit, bytes) {
                self.unsent = None;
            } else if self.socket.poll_sendable(context).is_pending() {
                return false;
            }
        }
        true
    }

    fn drive(&mut self, connection: &Rc<OriginH3>, at: usize, now: Instant) {
        connection.is_stirred.set(false);
        let mut is_drained = false;
        {
            let mut quic = connection.quic();
            if quic.poll_timeout().is_some_and(|due| due <= now) {
                quic.handle_timeout(now);
            }
            while let Some(event) = quic.poll_endpoint_events() {
                is_drained |= event.is_drained();
                if let Some(event) = self.engine.handle_event(ConnectionHandle(at), event) {
                    quic.handle_event(event);
                }
            }
        }
        connection.proceed(now);
        connection.end_if_left(now);
        self.transmit(connection, now);
        let due = connection.quic().poll_timeout().filter(|_| !is_drained);
        let filed = connection.filed.get();
        // A later due time is not filed again, because each packet postpones most timers.
        if let Some(filed) = filed
            && due.is_none_or(|due| due < filed)
        {
            self.timers.remove(&(filed, at));
            connection.filed.set(None);
        }
        if let (Some(due), None) = (due, connection.filed.get()) {
            self.timers.insert((due, at));
            connection.filed.set(Some(due));
        }
        if is_drained {
            connection.end();
            self.connections[at] = None;
            self.worker.dismiss();
        }
    }

    fn transmit(&mut self, connection: &OriginH3, now: Instant) {
        let segments = self.socket.segments_max();
        for _ in 0..SENDS_PER_TURN {
            self.out.clear();
            let transmit = connection.quic().poll_transmit(now, segments, &mut self.out);
            let Some(transmit) = transmit else { return };
            if !self.socket.send(&transmit, &self.out) {
                self.unsent = Some((transmit, std::mem::take(&mut self.out)));
                break;
            }
        }
        // More may be due, after the others' turn.
        connection.stir();
    }

    /// Arms the timer for the earliest due time. A timer that fires too early only costs a wake-up.
    fn arm(&mut self, context: &mut Context<'_>) {
        let Some(&(due, _)) = self.timers.first() else { return };
        if self.armed.is_none_or(|armed| due < armed) {
            self.armed = Some(due);
            self.timer.as_mut().reset(due.into());
        }
        if self.timer.as_mut().poll(context).is_ready() {
            self.armed = None;
            context.waker().wake_by_ref();
        }
    }
}
