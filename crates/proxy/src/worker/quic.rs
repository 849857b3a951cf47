//! QUIC endpoints of a worker, one for each listener with HTTP/3: which connections they accept, and whose datagrams are.
//!
//! The kernel spreads datagrams over the workers' sockets by addresses. A client that has another address than before
//! reaches another worker, which passes its datagrams on.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::UdpSocket;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{EndpointConfig, ServerConfig, TransportConfig, VarInt};
use telemetry::message;
use tls::{QuicKeys, ServerSide};
use transport::h3_connection::H3Connection;
use transport::quic_endpoint::{Admission, Arrival, Datagram, Host, QuicEndpoint};
use transport::quic_ids::{Ids, Owner};
use transport::quic_socket::QuicSocket;

use crate::connection::http3;
use crate::context::listening::Listening;
use crate::context::quic_hosts::{QuicHost, QuicHosts};
use crate::context::worker::{Message, Worker};

/// The version of QUIC that is spoken (RFC 9000).
const VERSION: u32 = 1;
/// Streams that a client may open beside its requests: control, encoder and decoder stream, and some that mean nothing.
const UNIDIRECTIONAL_MAX: u32 = 8;
/// What a client may send on a stream before the path has taken any of it.
const STREAM_WINDOW: u32 = 256 * 1024;
/// What it may send on all streams together.
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// The longest handshake message that is held in parts.
const HANDSHAKE_MAX: usize = 16 * 1024;
/// Handshakes under way on an endpoint from which on clients have to show that they receive what is sent to them.
const UNVALIDATED_MAX: usize = 64;
/// Handshakes under way on an endpoint from which on further ones get no answer.
const HANDSHAKES_MAX: usize = 4096;
/// The shortest silence for which a connection is given up. A client that waits for a response is asked whether it is there.
const SILENCE_MIN: Duration = Duration::from_secs(30);

/// Accepts connections of QUIC at a socket, for as long as the listener wants them.
pub(crate) fn begin(worker: &Rc<Worker>, listening: &Rc<Listening>, socket: UdpSocket) {
    if worker.quic_hosts.reopen(listening, &socket) {
        return;
    }
    let failed = |why: &str| message::error(&format!("cannot accept HTTP/3: {why}"));
    let socket = match QuicSocket::new(socket) {
        Ok(socket) => socket,
        Err(error) => return failed(&error.to_string()),
    };
    let snapshot = worker.snapshot();
    let keys = QuicKeys::new(&snapshot.plan.quic_secret);
    let hosts = &worker.quic_hosts;
    let number = hosts.next.replace(hosts.next.get().wrapping_add(1));
    // A configuration has at most 1024 workers.
    let ids = Ids::new(keys.connection_ids, Owner { worker: worker.index as u16, endpoint: number });
    let mut config = EndpointConfig::new(Arc::clone(&keys.resets));
    config.supported_versions(vec![VERSION]).cid_generator(move || Box::new(ids));
    let Some(crypto) = snapshot.listener(listening).tls.as_ref().and_then(|tls| tls.quic(None)) else {
        return failed("its listener has no TLS 1.3");
    };
    let server = Arc::new(ServerConfig::new(crypto, Arc::clone(&keys.tokens)));
    let endpoint = QuicEndpoint::new(socket, ids, (config, server), (&worker.alarms, &worker.deadlines));
    let host = Rc::new(QuicHost {
        number,
        endpoint,
        worker: Rc::clone(worker),
        listening: RefCell::new(Rc::clone(listening)),
        keys,
        transport: RefCell::default(),
    });
    hosts.hosts.borrow_mut().push(Rc::clone(&host));
    tokio::task::spawn_local(async move {
        poll_fn(|context| host.endpoint.poll_drive(context, &*host)).await;
        let hosts = &host.worker.quic_hosts;
        hosts.hosts.borrow_mut().retain(|other| !Rc::ptr_eq(other, &host));
    });
}

impl QuicHosts {
    /// Has an endpoint that is about to end at the socket's address go on for a listener, so that the address has one socket of this
    /// worker; whether there is one.
    fn reopen(&self, listening: &Rc<Listening>, socket: &UdpSocket) -> bool {
        let address = socket.local_addr().ok();
        let hosts = self.hosts.borrow();
        let Some(host) = hosts.iter().find(|host| host.endpoint.local_address() == address) else {
            return false;
        };
        host.listening.replace(Rc::clone(listening));
        host.endpoint.reopen();
        true
    }

    /// Closes the endpoints whose listeners want no more connections: they end with their last one.
    pub(crate) fn settle(&self) {
        for host in self.hosts.borrow().iter().filter(|host| !host.is_wanted()) {
            host.endpoint.close();
        }
    }

    /// Ends all connections, because the worker does.
    pub(crate) fn end(&self) {
        self.hosts.borrow().iter().for_each(|host| host.endpoint.end());
    }

    /// Takes a datagram that another endpoint has received.
    pub(crate) fn take(&self, number: u8, datagram: Datagram) {
        let host = self.hosts.borrow().iter().find(|host| host.number == number).cloned();
        if let Some(host) = host {
            host.endpoint.take(datagram, &*host);
        }
    }

    fn has(&self, number: u8) -> bool {
        self.hosts.borrow().iter().any(|host| host.number == number)
    }
}

impl QuicHost {
    fn is_wanted(&self) -> bool {
        let (worker, listening) = (&self.worker, self.listening());
        worker.keeps(&listening) && worker.snapshot().listener(&listening).http3
    }

    fn listening(&self) -> Rc<Listening> {
        Rc::clone(&self.listening.borrow())
    }

    /// The settings for a connection that begins now.
    fn config(&self, tls: &ServerSide, arrival: &Arrival) -> Option<Arc<ServerConfig>> {
        let crypto = tls.quic(arrival.local.map(|local| local.to_canonical()))?;
        let silence = self.worker.snapshot().plan.config.timeouts.keep_alive.max(SILENCE_MIN) * 2;
        let mut held = self.transport.borrow_mut();
        let transport = match &*held {
            Some((of, transport)) if *of == silence => Arc::clone(transport),
            _ => Arc::clone(&held.insert((silence, Arc::new(transport(silence)))).1),
        };
        let mut config = ServerConfig::new(crypto, Arc::clone(&self.keys.tokens));
        config.transport_config(transport);
        Some(Arc::new(config))
    }
}

/// What a client may send, and how long it may be silent.
fn transport(silence: Duration) -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(http3::STREAMS_MAX))
        .max_concurrent_uni_streams(VarInt::from_u32(UNIDIRECTIONAL_MAX))
        .max_idle_timeout(silence.try_into().ok())
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .crypto_buffer_size(HANDSHAKE_MAX)
        .datagram_receive_buffer_size(None);
    config
}

impl Host for QuicHost {
    fn admit(&self, arrival: &Arrival, pending: usize) -> Admission {
        let worker = &self.worker;
        worker.wake();
        let snapshot = worker.snapshot();
        if pending >= UNVALIDATED_MAX && !arrival.is_validated {
            // RFC 9000 §8.1.2: whoever has made up its address gets no further.
            worker.counters.quic_retries.increment();
            return Admission::Retry;
        }
        if pending >= HANDSHAKES_MAX {
            return Admission::Drop;
        }
        if worker.connections_in_all() >= snapshot.plan.config.limits.connections {
            worker.counters.connections_refused.increment();
            return Admission::Refuse;
        }
        let listening = self.listening();
        let tls = snapshot.listener(&listening).tls.as_ref();
        match tls.and_then(|tls| self.config(tls, arrival)) {
            Some(config) => {
                let is_trusted = snapshot.plan.trusts(arrival.remote.ip().to_canonical());
                Admission::Accept(config, Box::new(http3::limits(worker, is_trusted)))
            }
            None => Admission::Refuse,
        }
    }

    fn failed(&self, arrival: &Arrival, why: &str) {
        http3::tell_handshake(&self.worker, arrival.remote.ip().to_canonical(), why);
    }

    fn begin(&self, connection: H3Connection) {
        let worker = &self.worker;
        worker.counters.connections_accepted.increment();
        worker.connection_begins();
        let port = self.endpoint.local_address().map_or(0, |address| address.port());
        let serve = http3::serve(Rc::clone(worker), self.listening(), connection, port);
        tokio::task::spawn_local(serve);
    }

    fn pass_on(&self, Owner { worker: index, endpoint }: Owner, datagram: Datagram) -> Option<Datagram> {
        let worker = &self.worker;
        let index = usize::from(index);
        if index == worker.index && !worker.quic_hosts.has(endpoint) {
            return Some(datagram);
        }
        let Some(other) = worker.others.get(index) else { return Some(datagram) };
        worker.counters.quic_passed_on.increment();
        // Also within the worker: the endpoint is another task's. One that is overrun loses datagrams, as networks do.
        if worker.pressure.begin_stray()
            && other.send(Message::Datagram(endpoint, Box::new(datagram))).is_err()
        {
            worker.pressure.end_stray();
        }
        None
    }
}
