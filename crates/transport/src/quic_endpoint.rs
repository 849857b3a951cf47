//! A QUIC endpoint: the UDP socket of one worker and listener with all its connections, or the socket of one connection
//! to a server. One task drives it. The cost of a datagram, timer or write does not depend on the number of
//! connections.
//!
//! A `Host` decides whether a connection is accepted. The QUIC implementation handles packets.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use quinn_proto::{
    ClientConfig, ConnectError, ConnectionHandle, DatagramEvent, EcnCodepoint, EndpointConfig, ServerConfig,
    Transmit,
};

use crate::alarm::{Alarm, Alarms};
use crate::deadline::Deadlines;
use crate::h3_connection::{Core, H3Connection};
use crate::quic_accept::Backlog;
use crate::quic_beginnings::Beginnings;
use crate::quic_desk::{Accepting, Desk};
use crate::quic_ids::{Destination, IdOwner, Ids};
use crate::quic_path::{DatagramStep, Path, Weather};
use crate::quic_places::Crowd;
use crate::quic_socket::{DatagramBatch, QuicSocket};

/// Rounds of receiving and sending before other tasks have their turn.
const ROUNDS_PER_TURN: usize = 4;
/// Connections that are driven before the endpoint receives again, because the kernel drops datagrams that do not fit
/// its buffer.
const DRIVES_PER_ROUND: usize = 64;
/// System calls with which a connection sends before others have their turn.
// A download must not make the acknowledgments of others late.
const SENDS_PER_TURN: usize = 2;
/// Bytes per system call. To the kernel, its datagrams are one IP packet, whose length has 16 bits. The pacer decides
/// how many leave at once.
const SEND_MAX: usize = 65_000;

/// Decides about new connections, and passes on datagrams for other endpoints.
pub trait Host: Weather {
    /// Decides about a new connection. `others` are the handshakes that wait or are in progress.
    fn admit(&self, arrival: &IncomingConnection, others: Crowd) -> Admission;
    /// Decides how to start a handshake.
    fn greet(&self, arrival: &IncomingConnection) -> Greeting;
    /// Reports a handshake that failed at the client's first datagram.
    fn failed(&self, arrival: &IncomingConnection, why: &str);
    /// Takes a new connection. Its owner polls it until it ends.
    fn begin(&self, connection: H3Connection);
    /// Takes a datagram for another endpoint. Gives it back if there is no such endpoint.
    fn pass_on(&self, owner: IdOwner, datagram: Datagram) -> Option<Datagram>;
    /// Whether new clients may be known to another process.
    fn asks(&self) -> bool;
    /// Takes a datagram of a new client, for a process that may know it. Gives it back if there is none.
    fn ask(&self, datagram: Datagram) -> Option<Datagram>;
    /// Takes the first datagram of a connection that a closing endpoint does not accept. Returns false if no other
    /// endpoint accepts it.
    fn decline(&self, datagram: Datagram) -> bool;
}

pub struct IncomingConnection {
    pub remote: SocketAddr,
    /// The address that the datagram was sent to.
    pub local: Option<IpAddr>,
    /// Whether the client has proved that it receives datagrams at this address.
    pub is_validated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The handshake waits behind earlier ones.
    Wait,
    /// The client has to prove first that it receives datagrams at its address (RFC 9000 §8.1.2).
    Retry,
    /// Answers with a refusal.
    Refuse,
    /// Answers nothing.
    Drop,
}

pub enum Greeting {
    /// Starts the handshake with these settings.
    Begin(Arc<ServerConfig>, Box<http3::H3Limits>),
    /// Lets the handshake fail with these settings, on purpose: the host gets no report.
    Fail(Arc<ServerConfig>, Box<http3::H3Limits>),
    /// Answers with a refusal.
    Refuse,
    /// Answers nothing.
    Ignore,
}

/// A datagram with its addresses and ECN mark.
pub struct Datagram {
    pub bytes: Vec<u8>,
    pub remote: SocketAddr,
    /// The address that it was sent to.
    pub local: Option<IpAddr>,
    pub ecn: Option<EcnCodepoint>,
}

impl Datagram {
    pub(crate) fn again(&self) -> Self {
        Self { bytes: self.bytes.clone(), ..*self }
    }
}

#[derive(Clone)]
pub struct QuicEndpoint(pub(crate) Rc<QuicShared>);

/// State that endpoints of a worker share, because only one of them is driven at a time.
#[derive(Clone, Default)]
pub(crate) struct EndpointScratch {
    batch: Rc<RefCell<DatagramBatch>>,
    scratch: Rc<RefCell<Vec<u8>>>,
}

/// The state of an endpoint. Connections refer only to its desk: the endpoint owns them, and its driver owns the
/// endpoint.
pub(crate) struct QuicShared {
    pub(crate) desk: Rc<Desk>,
    socket: QuicSocket,
    pub(crate) engine: RefCell<quinn_proto::Endpoint>,
    pub(crate) backlog: Backlog,
    /// All connections that are not drained. Each has a timer: QUIC's idle time-out, or that of its end.
    connections: RefCell<Vec<Option<H3Connection>>>,
    timers: RefCell<BTreeSet<(Instant, usize)>>,
    /// Datagrams that the kernel had no room for.
    unsent: RefCell<Option<(Transmit, Vec<u8>)>>,
    pub(crate) scratch: Rc<RefCell<Vec<u8>>>,
    batch: Rc<RefCell<DatagramBatch>>,
    held: Cell<usize>,
    path: Path,
    alarm: Alarm,
    alarms: Rc<Alarms>,
    /// When the alarm fires.
    armed: Cell<Option<Instant>>,
    is_closing: Cell<bool>,
}

impl QuicEndpoint {
    /// Creates an endpoint. Its owner has to poll [`poll_drive`](Self::poll_drive).
    pub fn new(
        socket: QuicSocket,
        (ids, beginnings): (Ids, Arc<Beginnings>),
        (config, server): (EndpointConfig, Arc<ServerConfig>),
        (alarms, deadlines): (&Rc<Alarms>, &Rc<Deadlines>),
    ) -> Self {
        let accepting = Some(Accepting { ids, beginnings });
        Self::from_socket(
            socket,
            accepting,
            (Arc::new(config), Some(server)),
            EndpointScratch::default(),
            (alarms, deadlines),
        )
    }

    /// Creates the endpoint of one connection to a server; both end together. Its owner has to poll
    /// [`poll_drive`](Self::poll_drive).
    pub(crate) fn to(
        socket: QuicSocket,
        config: &Arc<EndpointConfig>,
        common: &EndpointScratch,
        clocks: (&Rc<Alarms>, &Rc<Deadlines>),
    ) -> Self {
        // Closed from the start: it ends with its only connection.
        let endpoint = Self::from_socket(socket, None, (Arc::clone(config), None), common.clone(), clocks);
        endpoint.close();
        endpoint
    }

    fn from_socket(
        socket: QuicSocket,
        accepting: Option<Accepting>,
        (config, server): (Arc<EndpointConfig>, Option<Arc<ServerConfig>>),
        EndpointScratch { batch, scratch }: EndpointScratch,
        (alarms, deadlines): (&Rc<Alarms>, &Rc<Deadlines>),
    ) -> Self {
        // RFC 9000 §14: a probe of the size of the path must not arrive in fragments.
        let finds_size = !socket.may_fragment();
        let engine = quinn_proto::Endpoint::new(config, server, finds_size, None);
        // Connections refer to the desk, so no cycle keeps the socket open.
        Self(Rc::new_cyclic(|endpoint| QuicShared {
            desk: Rc::new(Desk::new(endpoint.clone(), accepting, deadlines)),
            socket,
            engine: RefCell::new(engine),
            backlog: Backlog::default(),
            connections: RefCell::default(),
            timers: RefCell::default(),
            unsent: RefCell::default(),
            scratch,
            batch,
            held: Cell::default(),
            path: Path::default(),
            alarm: alarms.alarm(),
            alarms: Rc::clone(alarms),
            armed: Cell::default(),
            is_closing: Cell::default(),
        }))
    }

    /// Starts the connection to a server.
    pub(crate) fn connect(
        &self,
        config: ClientConfig,
        (peer, name): (SocketAddr, &str),
        limits: http3::H3Limits,
        window: u32,
    ) -> Result<H3Connection, ConnectError> {
        let (handle, quic) = self.0.engine.borrow_mut().connect(Instant::now(), config, peer, name)?;
        let connection =
            H3Connection::to_server(Rc::clone(&self.0.desk), handle, quic, Box::new(limits), window);
        self.0.add(handle.0, connection.clone());
        Ok(connection)
    }

    /// Checks for ICMP errors.
    pub(crate) fn look_for_refusal(&self) {
        self.0.socket.look_for_refusal();
        self.0.desk.stir();
    }

    pub fn local_address(&self) -> Option<SocketAddr> {
        self.0.socket.local_address()
    }

    /// Ends the endpoint with its last connection.
    pub fn close(&self) {
        self.0.is_closing.set(true);
        self.0.desk.stir();
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closing(&self) -> bool {
        self.0.is_closing.get()
    }

    /// Stops receiving, because another process does. Datagrams then arrive by [`take`](Self::take).
    ///
    /// # Errors
    /// No file descriptor is left. This process then continues to receive, too.
    pub fn leave_receiving(&self) -> std::io::Result<()> {
        self.0.socket.leave_receiving()?;
        // It may wait for room to send, which the runtime no longer reports.
        self.0.desk.stir();
        Ok(())
    }

    /// Another endpoint of this process where the datagram's handshake has begun.
    pub fn begun_elsewhere(&self, datagram: &[u8]) -> Option<IdOwner> {
        match self.destination(datagram) {
            Destination::Beginning(id) => self.0.desk.begun_elsewhere(&id),
            Destination::Here | Destination::Other(_) => None,
        }
    }

    /// The endpoint that a datagram belongs to.
    pub fn destination(&self, datagram: &[u8]) -> Destination {
        self.0.desk.destination(datagram)
    }

    /// Ends all connections at once, and tells their clients.
    pub fn end(&self) {
        self.close();
        self.forget_backlog();
        // Collected, because finishing a connection removes it from the list.
        let connections: Vec<_> = self.0.connections.borrow().iter().flatten().cloned().collect();
        connections.iter().for_each(|connection| connection.finish(http3::H3Code::NO_ERROR, ""));
    }

    /// Drives all connections: receives, sends, and handles timers. Ready when the endpoint is closed and its last
    /// connection has ended.
    pub fn poll_drive(&self, context: &mut Context<'_>, host: &impl Host) -> Poll<()> {
        let shared = &*self.0;
        shared.desk.attend(context);
        shared.path.look(host);
        let mut has_more = true;
        for _ in 0..ROUNDS_PER_TURN {
            // Receiving comes first: the kernel drops what its buffer cannot hold, and clients send it again only
            // after seconds.
            let received = self.receive(context, host);
            if shared.socket.take_refusal() {
                shared.connections.borrow().iter().flatten().for_each(H3Connection::refused);
            }
            let now = Instant::now();
            // Before connections are driven, so that they see all datagrams that are due.
            self.pass(now, host);
            shared.ring(now);
            let drove = shared.drive_all(context, now);
            self.pass(now, host);
            if shared.is_over() {
                return Poll::Ready(());
            }
            has_more = received || drove;
            if !has_more {
                break;
            }
        }
        let now = Instant::now();
        // A single handshake per turn, after everything else: its computation takes as long as some hundred
        // datagrams.
        let accepted = self.accept_next(now, host);
        shared.arm(context, now);
        // More handshakes may wait, but datagrams that have arrived meanwhile go first.
        if accepted {
            shared.desk.stir_after_others(context);
        } else if has_more {
            shared.desk.stir();
        }
        Poll::Pending
    }

    /// Takes a datagram that another endpoint has received.
    pub fn take(&self, datagram: Datagram, host: &impl Host) {
        self.handle(datagram.bytes[..].into(), &datagram, Instant::now(), host);
        self.0.desk.stir();
    }

    /// Receives once. Returns whether there was something.
    fn receive(&self, context: &mut Context<'_>, host: &impl Host) -> bool {
        let mut batch = self.0.batch.borrow_mut();
        // The runtime polls sockets only between tasks; with this much to do, it would notice new datagrams too late.
        let is_busy = !self.0.backlog.is_empty() || self.0.desk.stirred() > DRIVES_PER_ROUND;
        let received = is_busy && self.0.socket.receive_now(&mut batch);
        if !received && self.0.socket.poll_receive(context, &mut batch).is_pending() {
            return false;
        }
        let now = Instant::now();
        for received in batch.received() {
            let (remote, local, ecn) = (received.remote, received.local, received.ecn);
            // GRO: the kernel has put datagrams of one length together.
            for bytes in received.bytes.chunks(received.stride) {
                let from = Datagram { bytes: Vec::new(), remote, local, ecn };
                if self.0.path.is_on() {
                    let begins = matches!(self.0.desk.destination(bytes), Destination::Beginning(_));
                    let datagram = Datagram { bytes: bytes.to_vec(), ..from };
                    self.0.path.received(datagram, begins, host, now);
                    continue;
                }
                self.arrive(bytes, from, now, host);
            }
        }
        true
    }

    /// Handles datagrams that are due on an emulated path.
    fn pass(&self, now: Instant, host: &impl Host) {
        let path = &self.0.path;
        if path.is_empty() {
            return;
        }
        path.decide(host, now);
        while let Some(step) = path.next(now) {
            match step {
                DatagramStep::Receive(datagram) => {
                    let bytes = datagram.bytes.clone();
                    self.arrive(&bytes, Datagram { bytes: Vec::new(), ..datagram }, now, host);
                }
                // Datagrams that the kernel has no room for are lost.
                DatagramStep::Send(transmit, bytes) => _ = self.0.socket.send(&transmit, &bytes),
            }
        }
    }

    fn arrive(&self, bytes: &[u8], from: Datagram, now: Instant, host: &impl Host) {
        // Copied only for other endpoints.
        let whole = |from: Datagram| Datagram { bytes: bytes.to_vec(), ..from };
        let taken = match self.0.desk.destination(bytes) {
            Destination::Here => Some(from),
            // A handshake that has begun in this process continues, even if the previous process ends.
            Destination::Beginning(id) => match self.0.desk.begun(&id) {
                Some(owner) if self.0.desk.is_own(owner) => Some(from),
                Some(owner) => host.pass_on(owner, whole(from)),
                None if !host.asks() => {
                    self.0.desk.asked.forget();
                    Some(from)
                }
                None if self.0.desk.asked.may_ask(id, now) => host.ask(whole(from)),
                None => Some(from),
            },
            Destination::Other(owner) => host.pass_on(owner, whole(from)),
        };
        if let Some(from) = taken {
            self.handle(bytes.into(), &from, now, host);
        }
    }

    /// Gives a datagram to QUIC. `from` has its addresses.
    fn handle(&self, bytes: bytes::BytesMut, from: &Datagram, now: Instant, host: &impl Host) {
        let shared = &*self.0;
        // Another endpoint may accept a connection that a closing one does not.
        let copy = (shared.is_closing.get() && shared.desk.accepts()).then(|| bytes.clone());
        let mut out = shared.scratch.take();
        out.clear();
        let event =
            shared.engine.borrow_mut().handle(now, from.remote, from.local, from.ecn, bytes, &mut out);
        match event {
            Some(DatagramEvent::ConnectionEvent(ConnectionHandle(at), event)) => {
                // Cloned, since handling the datagram may change the list.
                let connection = shared.connections.borrow()[at].clone();
                if let Some(connection) = connection {
                    connection.received(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let copy = copy.map(|copy| Datagram { bytes: copy.to_vec(), ..*from });
                self.greet(incoming, copy, &mut out, host);
            }
            Some(DatagramEvent::Response(transmit)) => shared.send_aside(&transmit, &out),
            None => {}
        }
        shared.scratch.replace(out);
    }
}

impl QuicShared {
    pub(crate) fn add(&self, at: usize, connection: H3Connection) {
        let mut connections = self.connections.borrow_mut();
        if connections.len() <= at {
            connections.resize_with(at + 1, || None);
        }
        self.held.set(self.held.get() + 1);
        connection.stir_within();
        connections[at] = Some(connection);
    }

    /// Whether it is closed, and its last connection has ended.
    fn is_over(&self) -> bool {
        self.is_closing.get() && self.held.get() == 0 && self.backlog.is_empty() && self.path.due().is_none()
    }

    /// Queues connections whose timers are due.
    fn ring(&self, now: Instant) {
        let mut timers = self.timers.borrow_mut();
        while let Some(&(due, at)) = timers.first() {
            if due > now {
                return;
            }
            timers.pop_first();
            if let Some(Some(connection)) = self.connections.borrow().get(at) {
                connection.core().filed = None;
                connection.stir_within();
            }
        }
    }

    /// Drives each queued connection once, as long as the kernel has room. Returns whether there was one.
    fn drive_all(&self, context: &mut Context<'_>, now: Instant) -> bool {
        if !self.has_room(context) {
            return false;
        }
        // Counted before the loop: connections that are queued meanwhile belong to the next round.
        let count = self.desk.stirred().min(DRIVES_PER_ROUND);
        for _ in 0..count {
            let Some(at) = self.desk.next_stirred() else { break };
            let connection = self.connections.borrow().get(at).cloned().flatten();
            let Some(connection) = connection else { continue };
            // The kernel is full: the other connections would only find that again.
            if !self.drive(&connection, at, now) && !self.has_room(context) {
                break;
            }
        }
        count > 0
    }

    /// Whether the kernel has accepted the datagrams that it had no room for.
    fn has_room(&self, context: &mut Context<'_>) -> bool {
        let mut unsent = self.unsent.borrow_mut();
        while let Some((transmit, bytes)) = &*unsent {
            if self.socket.send(transmit, bytes) {
                *unsent = None;
            } else if self.socket.poll_sendable(context).is_pending() {
                return false;
            }
        }
        true
    }

    /// Drives a connection. Returns false if the kernel has no more room.
    pub(crate) fn drive(&self, connection: &H3Connection, at: usize, now: Instant) -> bool {
        connection.begin_drive();
        let mut core = connection.core();
        if core.quic.poll_timeout().is_some_and(|due| due <= now) {
            core.quic.handle_timeout(now);
        }
        let mut is_drained = false;
        loop {
            // Events go back and forth between connection and endpoint, until neither has news.
            connection.settle(&mut core);
            let mut has_news = false;
            while let Some(event) = core.quic.poll_endpoint_events() {
                is_drained |= event.is_drained();
                if let Some(news) = self.engine.borrow_mut().handle_event(ConnectionHandle(at), event) {
                    core.quic.handle_event(news);
                    has_news = true;
                }
            }
            if !has_news {
                break;
            }
        }
        let has_room = self.transmit(connection, &mut core, now);
        self.file(&mut core, at, is_drained);
        if is_drained {
            self.connections.borrow_mut()[at] = None;
            self.held.set(self.held.get() - 1);
            core.is_drained = true;
        }
        has_room
    }

    fn transmit(&self, connection: &H3Connection, core: &mut Core, now: Instant) -> bool {
        if self.unsent.borrow().is_some() {
            // Queued again, because its datagrams were not asked for yet.
            connection.stir_within();
            return false;
        }
        // More segments than fit into 64 KiB would make the kernel refuse all of them.
        let fitting = SEND_MAX / usize::from(core.quic.current_mtu()).max(1);
        let segments = self.socket.segments_max().min(fitting).max(1);
        let mut bytes = self.scratch.take();
        let mut has_room = true;
        for _ in 0..SENDS_PER_TURN {
            bytes.clear();
            let Some(transmit) = core.quic.poll_transmit(now, segments, &mut bytes) else {
                self.scratch.replace(bytes);
                return true;
            };
            if self.path.is_on() {
                self.path.send(&transmit, &bytes[..transmit.size]);
                // The driver decides about them.
                self.desk.stir();
            } else if !self.socket.send(&transmit, &bytes[..transmit.size]) {
                bytes.truncate(transmit.size);
                // Kept and not dropped: a loss would slow the sender down, although the path is free.
                self.unsent.replace(Some((transmit, std::mem::take(&mut bytes))));
                has_room = false;
                break;
            }
        }
        self.scratch.replace(bytes);
        // There may be more to send, after others.
        connection.stir_within();
        has_room
    }

    /// Sends a datagram that belongs to no connection. If the kernel has no room, it is lost, as it could be on the
    /// network.
    pub(crate) fn send_aside(&self, transmit: &Transmit, bytes: &[u8]) {
        if self.path.is_on() {
            self.path.send(transmit, &bytes[..transmit.size]);
            self.desk.stir();
        } else {
            self.socket.send(transmit, &bytes[..transmit.size]);
        }
    }

    /// Files the time at which a connection has to be driven next. A later time than the filed one changes nothing,
    /// because each packet postpones most timers.
    fn file(&self, core: &mut Core, at: usize, is_drained: bool) {
        let due = core.quic.poll_timeout().filter(|_| !is_drained);
        debug_assert!(is_drained || due.is_some(), "a connection without a timer stays for ever");
        let is_moved = is_drained || due.zip(core.filed).is_some_and(|(due, filed)| due < filed);
        if let Some(filed) = core.filed.take_if(|_| is_moved) {
            self.timers.borrow_mut().remove(&(filed, at));
        }
        if let (Some(due), None) = (due, core.filed) {
            self.timers.borrow_mut().insert((due, at));
            core.filed = Some(due);
        }
    }

    /// Arms the alarm for the first timer. If that timer is later postponed, the alarm stays: one wake-up costs less
    /// than moving it.
    fn arm(&self, context: &mut Context<'_>, now: Instant) {
        let first = self.timers.borrow().first().map(|&(due, _)| due);
        let Some(due) = first.into_iter().chain(self.path.due()).min() else { return };
        if self.armed.get().is_some_and(|armed| armed <= due && armed > now) {
            return;
        }
        self.armed.set(Some(due));
        let wait = due.saturating_duration_since(now).max(Duration::from_nanos(1));
        if self.alarm.poll(context, self.alarms.after(wait)).is_ready() {
            self.desk.stir();
        }
    }
}
