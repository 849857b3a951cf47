//! QUIC endpoints of a worker, one for each listener with HTTP/3. They decide which connections to accept, and route
//! datagrams.
//!
//! The kernel spreads datagrams over the workers' sockets by addresses. After a client changes its address, its
//! datagrams reach another worker, which passes them on.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::{IpAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{EndpointConfig, ServerConfig, TransportConfig, VarInt};
use shape::DatagramEffect;
use telemetry::message;
use tls::{HandshakeFault, QuicKeys, ServerSide};
use transport::h3_connection::{CLIENT_WINDOW, H3Connection, STREAMS_FIRST};
use transport::quic_endpoint::{Admission, Datagram, Greeting, Host, IncomingConnection, QuicEndpoint};
use transport::quic_ids::{IdOwner, Ids};
use transport::quic_path::{DatagramWay, Passage, Weather};
use transport::quic_places::Crowd;
use transport::quic_socket::QuicSocket;

use crate::connection::refused_handshake::ConnectionLimit;
use crate::connection::{http3, refused_handshake};
use crate::context::quic_hosts::{QuicHost, QuicHosts};
use crate::context::worker::Worker;
use crate::faults::quic::QuicStart;
use crate::listening::Listening;
use crate::worker::broken_connections;

/// The QUIC version (RFC 9000).
const VERSION: u32 = 1;
/// Unidirectional streams that a client may open: control, QPACK encoder and decoder, and some of unknown type.
const UNIDIRECTIONAL_MAX: u32 = 8;
/// Bytes that a client may send on a stream before the path has read any. They are a quarter less than the widest
/// window of a connection: otherwise an upload whose server reads nothing would block the other requests. QUIC
/// announces a window again when an eighth is used, so half of that quarter may be unannounced.
const STREAM_WINDOW: u32 = 192 * 1024;
/// The longest handshake message that is assembled from parts.
const HANDSHAKE_MAX: usize = 16 * 1024;
/// From this number of handshakes under way on an endpoint, clients must prove their address (Retry).
const UNVALIDATED_MAX: usize = 64;
/// From this number of handshakes under way on an endpoint, further ones get no answer.
const HANDSHAKES_MAX: usize = 4096;
/// From this number of handshakes under way on an endpoint, each client network may have only `OF_NETWORK_MAX`. So a
/// client that begins thousands and finishes none leaves room for others.
const CROWDED: usize = HANDSHAKES_MAX / 2;
// Measured beside 4,536 unfinished handshakes of one address: other clients are answered within 1 ms.
const OF_NETWORK_MAX: usize = 64;
/// Bytes that are held from a client whose handshake waits for its turn, beyond its first datagram. A ClientHello with
/// a post-quantum key takes two datagrams.
const WAITING_BYTES_MAX: u64 = 8 * 1024;
/// Bytes that are held from all such clients together.
const WAITING_BYTES_MAX_IN_ALL: u64 = 4 << 20;
/// The minimum idle time-out of a connection. A client that waits for a response is pinged within it.
const SILENCE_MIN: Duration = Duration::from_secs(30);

/// Accepts QUIC connections at a socket while the listener wants them. Called for each socket at a start or change of
/// the plan. `place` is the socket's index in the previous process, if it comes from there.
pub(crate) fn begin(worker: &Rc<Worker>, listening: &Rc<Listening>, socket: UdpSocket, place: Option<usize>) {
    let failed = |why: &str| message::error(&format!("cannot accept HTTP/3: {why}"));
    let socket = match QuicSocket::new(socket) {
        Ok(socket) => socket,
        Err(error) => return failed(&error.to_string()),
    };
    let snapshot = worker.snapshot();
    let keys = QuicKeys::new(&snapshot.plan.quic.secret);
    let hosts = &worker.quic_hosts;
    hosts.generation.set(snapshot.plan.quic.generation);
    // The number is one byte of each connection ID, so it wraps.
    let number = hosts.next.replace(hosts.next.get().wrapping_add(1));
    // A configuration has at most 1024 workers.
    let (generation, index) = (hosts.generation.get(), worker.index as u16);
    let ids = Ids::new(keys.connection_ids, IdOwner { generation, worker: index, endpoint: number });
    let mut config = EndpointConfig::new(Arc::clone(&keys.resets));
    config.supported_versions(vec![VERSION]).cid_generator(move || Box::new(ids));
    let Some(crypto) = snapshot.listener(listening).tls.as_ref().and_then(|tls| tls.quic(None)) else {
        return failed("its listener has no TLS 1.3");
    };
    let mut server = ServerConfig::new(crypto, Arc::clone(&keys.tokens));
    server.incoming_buffer_size(WAITING_BYTES_MAX).incoming_buffer_size_total(WAITING_BYTES_MAX_IN_ALL);
    let ids = (ids, Arc::clone(&hosts.beginnings));
    let endpoint =
        QuicEndpoint::new(socket, ids, (config, Arc::new(server)), (&worker.alarms, &worker.deadlines));
    let host = Rc::new(QuicHost {
        number,
        endpoint,
        worker: Rc::clone(worker),
        listening: Rc::clone(listening),
        keys,
        // The previous process may have had another number of workers.
        before: hosts
            .processes
            .last()
            .map(|process| place.unwrap_or(worker.index) % process.workers().max(1)),
        transport: RefCell::default(),
        counted: Cell::default(),
    });
    hosts.hosts.borrow_mut().push(Rc::clone(&host));
    host.tell_before();
    tokio::task::spawn_local(async move {
        poll_fn(|context| host.endpoint.poll_drive(context, &*host)).await;
        let hosts = &host.worker.quic_hosts;
        hosts.hosts.borrow_mut().retain(|other| !Rc::ptr_eq(other, &host));
    });
}

impl QuicHosts {
    /// Closes endpoints whose listeners want no more connections. Each ends with its last connection.
    pub(crate) fn settle(&self) {
        for host in self.hosts.borrow().iter().filter(|host| !host.is_wanted()) {
            host.endpoint.close();
        }
    }

    /// Ends all connections when the worker ends.
    pub(crate) fn end(&self) {
        // Endpoints hold a reference to the worker, which holds the channel to the next process: that process would
        // wait for answers forever.
        let hosts = self.hosts.take();
        self.next_process.take();
        hosts.iter().for_each(|host| host.endpoint.end());
    }

    pub(crate) fn take(&self, number: u8, datagram: Datagram) {
        let host = self.hosts.borrow().iter().find(|host| host.number == number).cloned();
        if let Some(host) = host {
            host.endpoint.take(datagram, &*host);
        }
    }

    pub(crate) fn has(&self, number: u8) -> bool {
        self.hosts.borrow().iter().any(|host| host.number == number)
    }
}

impl QuicHost {
    fn is_wanted(&self) -> bool {
        let (worker, listening) = (&self.worker, &self.listening);
        worker.keeps(listening) && worker.snapshot().listener(listening).http3
    }

    /// Returns the TLS and transport settings for a new connection. With `fails`, its handshake ends with an alert.
    fn config(
        &self,
        tls: &ServerSide,
        arrival: &IncomingConnection,
        fails: bool,
    ) -> Option<Arc<ServerConfig>> {
        let crypto = match fails {
            false => tls.quic(arrival.local.map(|local| local.to_canonical()))?,
            true => tls.failing_quic()?,
        };
        let silence = self.worker.snapshot().plan.config.timeouts.keep_alive.max(SILENCE_MIN) * 2;
        let mut held = self.transport.borrow_mut();
        // The settings rarely change, so connections share them.
        let transport = match &*held {
            Some((of, transport)) if *of == silence => Arc::clone(transport),
            _ => Arc::clone(&held.insert((silence, Arc::new(transport(silence)))).1),
        };
        let mut config = ServerConfig::new(crypto, Arc::clone(&self.keys.tokens));
        config.transport_config(transport);
        Some(Arc::new(config))
    }
}

/// Returns the transport settings: what a client may send, and its idle time-out.
fn transport(silence: Duration) -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_FIRST))
        .max_concurrent_uni_streams(VarInt::from_u32(UNIDIRECTIONAL_MAX))
        .max_idle_timeout(silence.try_into().ok())
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CLIENT_WINDOW))
        .crypto_buffer_size(HANDSHAKE_MAX)
        // Datagrams (RFC 9221) are not used.
        .datagram_receive_buffer_size(None);
    config
}

/// The maximum injected delay of a datagram.
const DELAY_MAX: Duration = Duration::from_secs(60);

impl Weather for QuicHost {
    fn is_bad(&self) -> bool {
        let worker = &self.worker;
        let snapshot = worker.snapshot();
        let listener = snapshot.listener(&self.listening);
        worker.faults.harms_datagrams()
            || listener.queues.iter().any(Option::is_some)
            || listener.link.as_ref().is_some_and(|link| link.is_felt())
    }

    fn passage(&self, client: IpAddr, bytes: usize, way: DatagramWay) -> Passage {
        let worker = &self.worker;
        let client = client.to_canonical();
        let snapshot = worker.snapshot();
        let listener = snapshot.listener(&self.listening);
        let mut passage = match &listener.link {
            Some(link) => link.passage(bytes, way == DatagramWay::Up { begins: true }),
            None => Passage::default(),
        };
        if let Some(queue) = &listener.queues[usize::from(way != DatagramWay::Down)] {
            match queue.take(bytes, worker.time_ns()) {
                Some(ns) => passage.delay += Duration::from_nanos(ns),
                None => passage.is_lost = true,
            }
        }
        let place = self.listening.place();
        let Some((drawn, effect)) =
            worker.faults.draw_datagram(place, client, way != DatagramWay::Down, worker.time_ns())
        else {
            return passage;
        };
        drawn.count();
        worker.counters.faults_injected.increment();
        match effect {
            DatagramEffect::Lose => passage.is_lost = true,
            DatagramEffect::Duplicate => passage.is_twice = true,
            DatagramEffect::Delay { by } => passage.alone = (passage.alone + by).min(DELAY_MAX),
        }
        passage
    }
}

/// Decides whether a new client may begin a handshake. Called for its first datagram.
impl Host for QuicHost {
    fn admit(&self, arrival: &IncomingConnection, others: Crowd) -> Admission {
        let worker = &self.worker;
        worker.wake();
        let place = self.listening.place();
        if place.is_some_and(|place| worker.faults.refuses(place, worker.time_ns()).is_some()) {
            // RFC 9000 §20.1: CONNECTION_REFUSED. The TCP listener counts the outage where it refuses.
            return Admission::Refuse;
        }
        let admission = admission(arrival.is_validated, others);
        match admission {
            Admission::Retry => worker.counters.quic_retries.increment(),
            Admission::Drop => worker.counters.quic_unanswered.increment(),
            Admission::Wait | Admission::Refuse => {}
        }
        admission
    }

    fn greet(&self, arrival: &IncomingConnection) -> Greeting {
        let worker = &self.worker;
        let beginning = broken_connections::drawn_of_quic(worker, arrival.remote, &self.listening);
        match beginning {
            QuicStart::Served | QuicStart::Failed => {}
            QuicStart::Refused => return Greeting::Refuse,
            QuicStart::Ignored => return Greeting::Ignore,
        }
        let client = arrival.remote.ip().to_canonical();
        let snapshot = worker.snapshot();
        let (connections, limit) = (worker.connections_in_all(), snapshot.plan.config.limits.connections);
        worker.pressure.accept(connections, limit);
        if connections >= limit {
            worker.pressure.refuse(limit);
            refused_handshake::over_limit(worker, client, ConnectionLimit::InAll(limit), 0);
            return Greeting::Refuse;
        }
        let listener = snapshot.listener(&self.listening);
        let is_trusted = snapshot.plan.trusts(client);
        let fails = beginning == QuicStart::Failed;
        if !is_trusted && !fails {
            match listener.count_client(client) {
                // `begin` or `failed` follows at once.
                Ok(counted) => self.counted.set(counted),
                Err(limit) => {
                    refused_handshake::over_limit(worker, client, ConnectionLimit::OfClient(limit), 0);
                    return Greeting::Refuse;
                }
            }
        }
        let tls = listener.tls.as_ref();
        let Some(config) = tls.and_then(|tls| self.config(tls, arrival, fails)) else {
            return Greeting::Refuse;
        };
        let limits = Box::new(http3::limits(worker, is_trusted));
        if fails { Greeting::Fail(config, limits) } else { Greeting::Begin(config, limits) }
    }

    fn failed(&self, arrival: &IncomingConnection, why: &str) {
        self.counted.set(None);
        http3::tell_handshake(&self.worker, arrival.remote.ip().to_canonical(), HandshakeFault::Other, why);
    }

    fn begin(&self, connection: H3Connection) {
        let worker = &self.worker;
        worker.counters.connections_accepted.increment();
        worker.connection_begins();
        let port = self.endpoint.local_address().map_or(0, |address| address.port());
        let counted = self.counted.take();
        let serve = http3::serve(Rc::clone(worker), Rc::clone(&self.listening), connection, port, counted);
        tokio::task::spawn_local(serve);
    }

    fn pass_on(&self, owner: IdOwner, datagram: Datagram) -> Option<Datagram> {
        let hosts = &self.worker.quic_hosts;
        if owner.generation == hosts.generation.get() {
            hosts.pass_within(&self.worker, owner, datagram)
        } else {
            self.pass_between(owner, datagram)
        }
    }

    fn asks(&self) -> bool {
        self.asks_before()
    }

    fn ask(&self, datagram: Datagram) -> Option<Datagram> {
        self.ask_before(datagram)
    }

    fn decline(&self, datagram: Datagram) -> bool {
        self.hand_on(datagram)
    }
}

/// Decides about a client that begins beside `others`.
fn admission(is_validated: bool, others: Crowd) -> Admission {
    match others {
        // RFC 9000 §8.1.2: a client with a spoofed address gets no further.
        Crowd { all: UNVALIDATED_MAX.., .. } if !is_validated => Admission::Retry,
        Crowd { all: HANDSHAKES_MAX.., .. } => Admission::Drop,
        Crowd { all: CROWDED.., of_network: OF_NETWORK_MAX.. } => Admission::Drop,
        Crowd { .. } => Admission::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_leaves_room_for_the_handshakes_of_others() {
        use Admission::{Drop, Retry, Wait};
        for (all, of_network, unvalidated, validated) in [
            (0, 0, Wait, Wait),
            (63, 63, Wait, Wait),
            (64, 0, Retry, Wait),
            (2047, 2047, Retry, Wait),
            (2048, 2048, Retry, Drop),
            (2048, 64, Retry, Drop),
            (2048, 63, Retry, Wait),
            (4095, 0, Retry, Wait),
            (4096, 0, Retry, Drop),
        ] {
            let others = Crowd { all, of_network };
            assert_eq!(
                [admission(false, others), admission(true, others)],
                [unvalidated, validated],
                "{others:?}"
            );
        }
    }
}
