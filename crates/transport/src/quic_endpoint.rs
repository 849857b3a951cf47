//! A QUIC endpoint: the UDP socket of one worker and listener, and all connections that come to it; or that of one connection to
//! a server. One task drives it; what a datagram, a timer or a write costs does not depend on how many connections there are.
//!
//! Whether a connection is accepted is for a `Host` to decide. Packets are the business of the QUIC implementation.

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
use crate::quic_ids::{Destination, Ids, Owner};
use crate::quic_path::{Path, Step, Weather};
use crate::quic_places::Crowd;
use crate::quic_socket::{Batch, QuicSocket};

/// What is received and sent before other tasks have their turn.
const ROUNDS_PER_TURN: usize = 4;
/// Connections that are driven before the endpoint receives again: the kernel's buffer is bounded, and what does not fit is lost.
const DRIVES_PER_ROUND: usize = 64;
/// What a connection sends before others have their turn, in system calls.
const SENDS_PER_TURN: usize = 2;
/// The most bytes of a system call, whose datagrams are one to the kernel: an IP packet has a 16-bit length. How many of them
/// leave at once is for the pacer to decide.
const SEND_MAX: usize = 65_000;

/// Decides about connections that begin, and takes what is for others.
pub trait Host: Weather {
    /// What becomes of a connection that begins, beside the handshakes that wait or are under way.
    fn admit(&self, arrival: &Arrival, others: Crowd) -> Admission;
    /// The settings of a connection whose handshake begins now; `None` if the client is refused.
    fn settings(&self, arrival: &Arrival) -> Option<(Arc<ServerConfig>, Box<http3::Limits>)>;
    /// A handshake has failed with the first datagram of its client, for this reason.
    fn failed(&self, arrival: &Arrival, why: &str);
    /// A connection has begun. Its owner polls it until it ends.
    fn begin(&self, connection: H3Connection);
    /// Takes a datagram for another endpoint; gives it back if there is no such endpoint.
    fn pass_on(&self, owner: Owner, datagram: Datagram) -> Option<Datagram>;
    /// Whether clients that begin may be known to another process.
    fn asks(&self) -> bool;
    /// Takes a datagram of a client that begins, for a process that may know it; gives it back if there is none.
    fn ask(&self, datagram: Datagram) -> Option<Datagram>;
    /// Takes the first datagram of a connection that a closed endpoint does not begin; false if nobody else does, either.
    fn decline(&self, datagram: Datagram) -> bool;
}

/// A connection that begins.
pub struct Arrival {
    /// Where it comes from.
    pub remote: SocketAddr,
    /// The address that it was sent to.
    pub local: Option<IpAddr>,
    /// Whether the client has shown that it receives what is sent there.
    pub is_validated: bool,
}

/// What becomes of a connection that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Its handshake begins after those of the connections before it.
    Wait,
    /// The client has to show first that it receives what is sent to its address (RFC 9000 §8.1.2).
    Retry,
    /// The client is told that it is refused.
    Refuse,
    /// Nothing is answered.
    Drop,
}

/// A datagram with what the kernel tells of it.
pub struct Datagram {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Who has sent it.
    pub remote: SocketAddr,
    /// The address that it was sent to.
    pub local: Option<IpAddr>,
    /// Whether routers have marked it.
    pub ecn: Option<EcnCodepoint>,
}

impl Datagram {
    /// The same once more.
    pub(crate) fn again(&self) -> Self {
        Self { bytes: self.bytes.clone(), ..*self }
    }
}

/// A QUIC endpoint.
#[derive(Clone)]
pub struct QuicEndpoint(pub(crate) Rc<Shared>);

/// What endpoints may share, since only one of them is driven at a time.
#[derive(Clone, Default)]
pub(crate) struct Common {
    batch: Rc<RefCell<Batch>>,
    /// Scratch memory for datagrams.
    scratch: Rc<RefCell<Vec<u8>>>,
}

/// The insides of an endpoint. Connections know its desk alone: it owns them, and ends with whoever drives it.
pub(crate) struct Shared {
    pub(crate) desk: Rc<Desk>,
    socket: QuicSocket,
    pub(crate) engine: RefCell<quinn_proto::Endpoint>,
    /// Connections whose handshake waits for its turn.
    pub(crate) backlog: Backlog,
    /// All that are not drained. Each has a timer: QUIC's idle time-out, or that of its end.
    connections: RefCell<Vec<Option<H3Connection>>>,
    timers: RefCell<BTreeSet<(Instant, usize)>>,
    /// Datagrams that the kernel had no room for.
    unsent: RefCell<Option<(Transmit, Vec<u8>)>>,
    pub(crate) scratch: Rc<RefCell<Vec<u8>>>,
    batch: Rc<RefCell<Batch>>,
    held: Cell<usize>,
    path: Path,
    alarm: Alarm,
    alarms: Rc<Alarms>,
    /// When the alarm goes off.
    armed: Cell<Option<Instant>>,
    is_closing: Cell<bool>,
}

impl QuicEndpoint {
    /// An endpoint at a socket. Its owner has to poll [`poll_drive`](Self::poll_drive).
    pub fn new(
        socket: QuicSocket,
        (ids, beginnings): (Ids, Arc<Beginnings>),
        (config, server): (EndpointConfig, Arc<ServerConfig>),
        (alarms, deadlines): (&Rc<Alarms>, &Rc<Deadlines>),
    ) -> Self {
        let accepting = Some(Accepting { ids, beginnings });
        Self::of(socket, accepting, (Arc::new(config), Some(server)), Common::default(), (alarms, deadlines))
    }

    /// The endpoint of a connection to a server, which it ends with. Its owner has to poll [`poll_drive`](Self::poll_drive).
    pub(crate) fn to(
        socket: QuicSocket,
        config: &Arc<EndpointConfig>,
        common: &Common,
        clocks: (&Rc<Alarms>, &Rc<Deadlines>),
    ) -> Self {
        let endpoint = Self::of(socket, None, (Arc::clone(config), None), common.clone(), clocks);
        endpoint.close();
        endpoint
    }

    fn of(
        socket: QuicSocket,
        accepting: Option<Accepting>,
        (config, server): (Arc<EndpointConfig>, Option<Arc<ServerConfig>>),
        Common { batch, scratch }: Common,
        (alarms, deadlines): (&Rc<Alarms>, &Rc<Deadlines>),
    ) -> Self {
        let finds_size = !socket.may_fragment();
        let engine = quinn_proto::Endpoint::new(config, server, finds_size, None);
        Self(Rc::new_cyclic(|endpoint| Shared {
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

    /// Begins the connection to a server.
    pub(crate) fn connect(
        &self,
        config: ClientConfig,
        (peer, name): (SocketAddr, &str),
        limits: http3::Limits,
        window: u32,
    ) -> Result<H3Connection, ConnectError> {
        let (handle, quic) = self.0.engine.borrow_mut().connect(Instant::now(), config, peer, name)?;
        let connection =
            H3Connection::to_server(Rc::clone(&self.0.desk), handle, quic, Box::new(limits), window);
        self.0.add(handle.0, connection.clone());
        Ok(connection)
    }

    /// Looks whether the kernel has told that nobody listens at the other end.
    pub(crate) fn look_for_refusal(&self) {
        self.0.socket.look_for_refusal();
        self.0.desk.stir();
    }

    /// The address of the socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.0.socket.local_address()
    }

    /// Ends the endpoint with its last connection.
    pub fn close(&self) {
        self.0.is_closing.set(true);
        self.0.desk.stir();
    }

    /// Whether it ends with its last connection.
    pub fn is_closing(&self) -> bool {
        self.0.is_closing.get()
    }

    /// Receives no more, since another process does. Datagrams come by [`take`](Self::take).
    ///
    /// # Errors
    /// If there is no file descriptor left. Then this process goes on receiving, too.
    pub fn leave_receiving(&self) -> std::io::Result<()> {
        self.0.socket.leave_receiving()?;
        // It may wait for room, of which nobody tells any more.
        self.0.desk.stir();
        Ok(())
    }

    /// The other endpoint of this process where the handshake of a datagram has begun.
    pub fn begun_elsewhere(&self, datagram: &[u8]) -> Option<Owner> {
        match self.destination(datagram) {
            Destination::Beginning(id) => self.0.desk.begun_elsewhere(&id),
            Destination::Here | Destination::Other(_) => None,
        }
    }

    /// Whom a datagram is for.
    pub fn destination(&self, datagram: &[u8]) -> Destination {
        self.0.desk.destination(datagram)
    }

    /// Ends all connections at once, and tells their clients.
    pub fn end(&self) {
        self.close();
        self.forget_backlog();
        let connections: Vec<_> = self.0.connections.borrow().iter().flatten().cloned().collect();
        connections.iter().for_each(|connection| connection.finish(http3::Code::NO_ERROR, ""));
    }

    /// Drives all connections: receives, sends, and keeps time. Ready when the endpoint is closed and its last connection has
    /// ended.
    pub fn poll_drive(&self, context: &mut Context<'_>, host: &impl Host) -> Poll<()> {
        let shared = &*self.0;
        shared.desk.attend(context);
        shared.path.look(host);
        let mut has_more = true;
        for _ in 0..ROUNDS_PER_TURN {
            let received = self.receive(context, host);
            if shared.socket.take_refusal() {
                shared.connections.borrow().iter().flatten().for_each(H3Connection::refused);
            }
            let now = Instant::now();
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
        let accepted = self.accept_next(now, host);
        shared.arm(context, now);
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

    /// Receives once; whether there was something.
    fn receive(&self, context: &mut Context<'_>, host: &impl Host) -> bool {
        let mut batch = self.0.batch.borrow_mut();
        // The runtime looks at sockets only between tasks: with that much to do it would notice new datagrams too late.
        let is_busy = !self.0.backlog.is_empty() || self.0.desk.stirred() > DRIVES_PER_ROUND;
        let received = is_busy && self.0.socket.receive_now(&mut batch);
        if !received && self.0.socket.poll_receive(context, &mut batch).is_pending() {
            return false;
        }
        let now = Instant::now();
        for received in batch.received() {
            let (remote, local, ecn) = (received.remote, received.local, received.ecn);
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

    /// Does what is due on an emulated path.
    fn pass(&self, now: Instant, host: &impl Host) {
        let path = &self.0.path;
        if path.is_empty() {
            return;
        }
        path.decide(host, now);
        while let Some(step) = path.next(now) {
            match step {
                Step::Receive(datagram) => {
                    let bytes = datagram.bytes.clone();
                    self.arrive(&bytes, Datagram { bytes: Vec::new(), ..datagram }, now, host);
                }
                // What the kernel has no room for is lost.
                Step::Send(transmit, bytes) => _ = self.0.socket.send(&transmit, &bytes),
            }
        }
    }

    /// A datagram has arrived.
    fn arrive(&self, bytes: &[u8], from: Datagram, now: Instant, host: &impl Host) {
        let whole = |from: Datagram| Datagram { bytes: bytes.to_vec(), ..from };
        let taken = match self.0.desk.destination(bytes) {
            Destination::Here => Some(from),
            // What has begun in this process goes on, whatever becomes of those before it.
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

    /// Handles a datagram, of which `from` says where it comes from.
    fn handle(&self, bytes: bytes::BytesMut, from: &Datagram, now: Instant, host: &impl Host) {
        let shared = &*self.0;
        // Others may begin what a closed endpoint does not.
        let copy = (shared.is_closing.get() && shared.desk.accepts()).then(|| bytes.clone());
        let mut out = shared.scratch.take();
        out.clear();
        let event =
            shared.engine.borrow_mut().handle(now, from.remote, from.local, from.ecn, bytes, &mut out);
        match event {
            Some(DatagramEvent::ConnectionEvent(ConnectionHandle(at), event)) => {
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

impl Shared {
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

    /// Has connections driven whose timers are due.
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

    /// Drives each connection that has something to do once, as long as the kernel has room; whether there was one.
    fn drive_all(&self, context: &mut Context<'_>, now: Instant) -> bool {
        if !self.has_room(context) {
            return false;
        }
        let count = self.desk.stirred().min(DRIVES_PER_ROUND);
        for _ in 0..count {
            let Some(at) = self.desk.next_stirred() else { break };
            let connection = self.connections.borrow().get(at).cloned().flatten();
            let Some(connection) = connection else { continue };
            if !self.drive(&connection, at, now) && !self.has_room(context) {
                break;
            }
        }
        count > 0
    }

    /// Whether the kernel has taken what it had no room for.
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

    /// Does what a connection has to do; false if the kernel has no more room.
    pub(crate) fn drive(&self, connection: &H3Connection, at: usize, now: Instant) -> bool {
        connection.begin_drive();
        let mut core = connection.core();
        if core.quic.poll_timeout().is_some_and(|due| due <= now) {
            core.quic.handle_timeout(now);
        }
        let mut is_drained = false;
        loop {
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
            connection.stir_within();
            return false;
        }
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
                // The driver decides about it.
                self.desk.stir();
            } else if !self.socket.send(&transmit, &bytes[..transmit.size]) {
                bytes.truncate(transmit.size);
                self.unsent.replace(Some((transmit, std::mem::take(&mut bytes))));
                has_room = false;
                break;
            }
        }
        self.scratch.replace(bytes);
        // There may be more, after others.
        connection.stir_within();
        has_room
    }

    /// Sends what is of no connection. Where the kernel has no room it is lost, as it could be on its way.
    pub(crate) fn send_aside(&self, transmit: &Transmit, bytes: &[u8]) {
        if self.path.is_on() {
            self.path.send(transmit, &bytes[..transmit.size]);
            self.desk.stir();
        } else {
            self.socket.send(transmit, &bytes[..transmit.size]);
        }
    }

    /// Notes when a connection has to be driven next. One that is to be driven later than it was stays where it is: most timers
    /// are put off by each packet.
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

    /// Arms the alarm for the first timer. One that goes off too early costs a wake-up, and is cheaper than to move it.
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
