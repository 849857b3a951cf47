//! Socket and timer of an HTTP/3 connection, which connect the QUIC implementation to the network.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::BytesMut;
use lab_http3::{LabUdpSocket, ReceiveBatch};
use quinn_proto::{
    ClientConfig, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, RandomConnectionIdGenerator,
    Transmit, TransportConfig, VarInt,
};
use tokio::time::Sleep;

use super::connection::H3LoadConnection;
use super::session::{H3LoadClient, HandshakeOutcome};
use crate::check::Cut;
use crate::directions::DialAddress;
use crate::failure::LoadFailure;
use crate::give_up::GiveUp;
use crate::tls::Sessions;
use crate::worker::LoadWorker;

/// Flow-control window of each response: allows 160 MB/s at a round-trip time of 50 ms.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// Flow-control window of a connection, for all its responses together.
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// Unidirectional streams of a server: three, and a few of unknown types.
const SERVER_STREAMS: u32 = 16;

/// State that the connections of a thread share.
#[derive(Default)]
pub(crate) struct Quic {
    batch: ReceiveBatch,
    out: Vec<u8>,
}

impl std::fmt::Debug for Quic {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Quic")
    }
}

pub(crate) struct QuicWire {
    socket: LabUdpSocket,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    remote: SocketAddr,
    timer: Pin<Box<Sleep>>,
    armed: Option<Instant>,
    /// Datagrams that the kernel had no room for.
    unsent: Option<(Transmit, Vec<u8>)>,
}

/// Opens a connection to the next address in turn that answers, and records the time of its handshake.
pub(crate) async fn open(
    worker: &LoadWorker,
    sessions: &Sessions,
    server: usize,
    give_up: &mut GiveUp,
) -> Result<(H3LoadConnection, QuicWire), LoadFailure> {
    let began = Instant::now();
    give_up.start(began);
    let after = give_up.after();
    let opened = give_up.bound(try_addresses(worker, sessions, server)).await;
    let (connection, wire) = opened.ok_or(LoadFailure::ConnectTimeout { after })??;
    let told = told(&connection);
    if !told.as_ref().is_some_and(|told| told.has_http3) {
        return Err(LoadFailure::NoHttp3);
    }
    if let Some(agreed) = told.and_then(|told| told.agreed) {
        let time = worker.is_measured(began).then(|| began.elapsed());
        worker.record.borrow_mut().handshake(agreed, time);
    }
    Ok((connection, wire))
}

async fn try_addresses(
    worker: &LoadWorker,
    sessions: &Sessions,
    server: usize,
) -> Result<(H3LoadConnection, QuicWire), LoadFailure> {
    let addresses = &worker.shared.targets.servers.get(server).addresses;
    let mut result = Err(LoadFailure::Cut(Cut::Nothing));
    for tried in addresses.turn(Instant::now()) {
        // `Plan::check` has refused other addresses.
        let DialAddress::Ip(address) = *tried.address() else { continue };
        let attempt = tried.attempt();
        match shake_hands(worker, sessions, server, address).await {
            Ok(opened) => {
                attempt.succeed();
                return Ok(opened);
            }
            Err(failure) => result = Err(failure),
        }
    }
    result
}

async fn shake_hands(
    worker: &LoadWorker,
    sessions: &Sessions,
    server: usize,
    remote: SocketAddr,
) -> Result<(H3LoadConnection, QuicWire), LoadFailure> {
    let failed = |source| LoadFailure::Connect { address: DialAddress::Ip(remote), source };
    let (mut connection, mut wire) = begin(worker, sessions, server, remote).map_err(failed)?;
    if worker.is_measured(Instant::now()) {
        worker.record.borrow_mut().connections_opened += 1;
    }
    let done = poll_fn(|context| {
        let mut quic = worker.quic.borrow_mut();
        loop {
            wire.poll_send(&mut connection, &mut quic, context);
            if connection.has_begun() {
                return Poll::Ready(Ok(()));
            }
            // On this machine, a missing listener is reported at once; elsewhere when the first packet is repeated.
            if let Some(error) = wire.socket.take_error() {
                return Poll::Ready(Err(Some(error)));
            }
            match wire.poll_receive(&mut connection, &mut quic, context) {
                Poll::Ready(Ok(true)) => {}
                // Sends the error to the server.
                Poll::Ready(Ok(false)) => {
                    wire.poll_send(&mut connection, &mut quic, context);
                    return Poll::Ready(Err(None));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Some(error))),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    match done.await {
        Ok(()) => Ok((connection, wire)),
        Err(Some(source)) => Err(failed(source)),
        Err(None) => match told(&connection).and_then(|told| told.error) {
            Some(error) => Err(LoadFailure::Tls { error }),
            None if connection.refuses_http3() => Err(LoadFailure::NoHttp3),
            None => Err(LoadFailure::QuicHandshake(
                connection.lost.as_ref().map_or_else(String::new, ToString::to_string),
            )),
        },
    }
}

fn told(connection: &H3LoadConnection) -> Option<HandshakeOutcome> {
    connection.quic.crypto_session().handshake_data()?.downcast().ok().map(|told| *told)
}

fn begin(
    worker: &LoadWorker,
    sessions: &Sessions,
    server: usize,
    remote: SocketAddr,
) -> io::Result<(H3LoadConnection, QuicWire)> {
    let local = match remote {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(local)?;
    // A connected socket gets an error from the kernel if no process listens there.
    socket.connect(remote)?;
    socket.set_nonblocking(true)?;
    let socket = LabUdpSocket::new(socket)?;
    let tls = worker.tls(sessions, server).and_then(|(config, name)| H3LoadClient::new(config, name));
    // Other schemes were refused before.
    let tls = tls.ok_or_else(|| io::Error::other("HTTP/3 is for https"))?;
    let mut config = EndpointConfig::default();
    // As in browsers: the socket identifies the connection, so the IDs can be empty, and datagrams shorter.
    config.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(0)));
    let mut endpoint = Endpoint::new(Arc::new(config), None, !socket.may_fragment(), None);
    let mut client = ClientConfig::new(Arc::new(tls));
    client.transport_config(transport());
    // The TLS session has the name.
    let connected = endpoint.connect(Instant::now(), client, remote, "");
    let (handle, quic) = connected.map_err(io::Error::other)?;
    let connection = H3LoadConnection::new(quic, worker.shared.plan.streams);
    let timer = Box::pin(tokio::time::sleep(std::time::Duration::ZERO));
    Ok((connection, QuicWire { socket, endpoint, handle, remote, timer, armed: None, unsent: None }))
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(STREAM_WINDOW_BYTES.into())
        .receive_window(CONNECTION_WINDOW_BYTES.into())
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(SERVER_STREAMS.into())
        // The server decides how long the connection may be idle, as with other protocols.
        .max_idle_timeout(None)
        .datagram_receive_buffer_size(None);
    Arc::new(transport)
}

impl QuicWire {
    /// Receives once, or handles due timers. Returns false if the connection is at its end.
    pub(crate) fn poll_receive(
        &mut self,
        connection: &mut H3LoadConnection,
        quic: &mut Quic,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        if self.socket.poll_receive(context, &mut quic.batch)?.is_ready() {
            let now = Instant::now();
            for received in quic.batch.received() {
                let mut bytes = BytesMut::from(received.bytes);
                while !bytes.is_empty() {
                    let datagram = bytes.split_to(received.stride.min(bytes.len()));
                    quic.out.clear();
                    let event = self.endpoint.handle(
                        now,
                        // A connected socket receives only from this address.
                        self.remote,
                        None,
                        received.ecn,
                        datagram,
                        &mut quic.out,
                    );
                    match event {
                        Some(DatagramEvent::ConnectionEvent(_, event)) => connection.quic.handle_event(event),
                        Some(DatagramEvent::Response(transmit)) => {
                            self.socket.send(&transmit, &quic.out);
                        }
                        Some(DatagramEvent::NewConnection(_)) | None => {}
                    }
                }
            }
            return Poll::Ready(Ok(self.proceed(connection, now)));
        }
        if self.armed.is_some() && self.timer.as_mut().poll(context).is_ready() {
            self.armed = None;
            let now = Instant::now();
            if connection.quic.poll_timeout().is_some_and(|due| due <= now) {
                connection.quic.handle_timeout(now);
            }
            return Poll::Ready(Ok(self.proceed(connection, now)));
        }
        Poll::Pending
    }

    fn proceed(&mut self, connection: &mut H3LoadConnection, now: Instant) -> bool {
        while let Some(event) = connection.quic.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                connection.quic.handle_event(event);
            }
        }
        connection.proceed(now)
    }

    /// Sends all due datagrams, and arms the timer.
    pub(crate) fn poll_send(
        &mut self,
        connection: &mut H3LoadConnection,
        quic: &mut Quic,
        context: &mut Context<'_>,
    ) {
        let now = Instant::now();
        loop {
            if let Some((transmit, bytes)) = &self.unsent {
                if !self.socket.send(transmit, bytes) {
                    if self.socket.poll_sendable(context).is_pending() {
                        break;
                    }
                    continue;
                }
                self.unsent = None;
            }
            quic.out.clear();
            let segments = self.socket.segments_max();
            let Some(transmit) = connection.quic.poll_transmit(now, segments, &mut quic.out) else { break };
            if !self.socket.send(&transmit, &quic.out) {
                self.unsent = Some((transmit, std::mem::take(&mut quic.out)));
            }
        }
        self.arm(connection, context);
    }

    /// Arms the timer. A timer that fires too early costs a wake-up, which is cheaper than moving it with each packet.
    fn arm(&mut self, connection: &mut H3LoadConnection, context: &mut Context<'_>) {
        let Some(due) = connection.quic.poll_timeout() else { return };
        if self.armed.is_some_and(|armed| armed <= due) {
            return;
        }
        self.armed = Some(due);
        self.timer.as_mut().reset(due.into());
        if self.timer.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
    }
}
