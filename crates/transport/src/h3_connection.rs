//! An HTTP/3 connection, shared by its streams, the task that serves it, and the endpoint that drives it.
//!
//! Streams read and write without system calls; the endpoint receives and sends for all connections. What the transport
//! holds for a stream is bounded: bodies that nobody reads stay with the client, by QUIC's windows.

use std::cell::{Cell, RefCell, RefMut};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use http3::{Broken, Code, Event, Gone, Key, Limits, Now, Refused, Role, Scheme, WriteError};
use quinn_proto::{ConnectionError, ConnectionHandle, Dir, ReadError, StreamEvent, StreamId};
use tls::Agreed;

use crate::h2_connection::Wrong;
use crate::h3_budget::{self, Budget, OWN_STREAMS};
use crate::h3_client::{self, Reach};
use crate::h3_sending::{Streams, stream, varint};
use crate::quic_desk::Desk;
use crate::quic_places::Place;
use crate::waits::Waits;

/// Requests that a client may have open at once (RFC 9114 §6.1 recommends no fewer).
pub const STREAMS_MAX: u32 = 100;
/// Those that it may have open until half of them are: what a page asks for at once should need no further round trip. QUIC has a
/// place for each that may come, also of one direction, in tables that double at about 50; and what a request needed there stays in
/// its place: 0.4 kB.
pub const STREAMS_FIRST: u32 = 36;
/// What a client may send on all streams together before the path has taken any of it, at first.
pub const CLIENT_WINDOW: u32 = h3_budget::WINDOW_FIRST;
/// What the heads of all requests of a client that are under way take at most, beyond the buffers that each has anyway.
pub const LONG_HEADS_MAX: usize = 128 * 1024;
/// What is read of a stream before others have their turn.
const READS_MAX: usize = 64;

/// An HTTP/3 connection, shared by its streams, the task that serves it, and the endpoint that drives it.
#[derive(Clone)]
pub struct H3Connection(Rc<Shared>);

struct Shared {
    desk: Rc<Desk>,
    /// Its place in the endpoint.
    at: usize,
    core: RefCell<Core>,
    /// Who waits for each stream.
    waits: Waits,
    /// The task that serves the connection.
    task: RefCell<Option<Waker>>,
    /// Whether the endpoint is to drive it.
    is_enqueued: Cell<bool>,
    /// Whether nothing more is received or sent.
    is_over: Cell<bool>,
    /// Whether no further streams are wanted of it.
    is_left: Cell<bool>,
}

/// A few bytes more, and the allocator takes 2 KiB more for each connection.
const _: () = assert!(size_of::<Shared>() + 2 * size_of::<usize>() <= 8192);

/// The state of the connection, in QUIC and in HTTP.
pub(crate) struct Core {
    pub(crate) quic: quinn_proto::Connection,
    /// When it is to be driven, as the endpoint has noted.
    pub(crate) filed: Option<Instant>,
    pub(crate) is_drained: bool,
    /// Up to the end of the handshake.
    limits: Option<Box<Limits>>,
    /// From the end of the handshake on.
    pub(crate) http: Option<http3::Connection>,
    pub(crate) is_handshaking: bool,
    /// Whether the peer can be reached, if it is a server.
    pub(crate) reach: Option<Box<Reach>>,
    /// The place of a client's handshake, until the handshake is over.
    place: Option<Box<Place>>,
    opened: Vec<Key>,
    /// Streams that there is room for again, with their urgency.
    writable: Vec<(u8, Key)>,
    end: Option<End>,
    budget: Budget,
    /// Our control stream, from the end of the handshake on.
    control: Option<StreamId>,
    /// Whether requests have come that there was no room for.
    is_short: bool,
    /// Whether a client may have all requests open.
    has_many: bool,
}

/// How a connection ended.
#[derive(Debug, Clone)]
pub enum End {
    /// The peer has closed it, or is out of reach.
    Closed,
    /// The server was never reached.
    Unreachable,
    /// The handshake has failed, in words.
    Handshake(String),
    /// The peer has violated QUIC, in words.
    Violated(String),
    /// The peer violated HTTP/3 or a limit, and is to be told so.
    Broken(Broken),
    /// The peer has sent so many pieces with gaps between them that they cannot be held.
    Scattered,
}

impl Core {
    fn handshake_ended(&mut self) {
        self.is_handshaking = false;
        self.place = None;
    }
}

/// What the endpoint does.
impl H3Connection {
    /// A connection that a client has begun.
    pub(crate) fn of_client(
        desk: Rc<Desk>,
        handle: ConnectionHandle,
        place: Box<Place>,
        (quic, limits): (quinn_proto::Connection, Box<Limits>),
    ) -> Self {
        Self::new(desk, (handle, Some(place)), quic, limits, (Budget::of_client(), None))
    }

    /// A connection to a server, which may send so much before the path has taken any of it.
    pub(crate) fn to_server(
        desk: Rc<Desk>,
        handle: ConnectionHandle,
        quic: quinn_proto::Connection,
        limits: Box<Limits>,
        window: u32,
    ) -> Self {
        let reach = Box::new(Reach::new(desk.deadlines.now()));
        Self::new(desk, (handle, None), quic, limits, (Budget::of_server(window), Some(reach)))
    }

    fn new(
        desk: Rc<Desk>,
        (handle, place): (ConnectionHandle, Option<Box<Place>>),
        quic: quinn_proto::Connection,
        limits: Box<Limits>,
        (budget, reach): (Budget, Option<Box<Reach>>),
    ) -> Self {
        let core = Core {
            quic,
            filed: None,
            is_drained: false,
            limits: Some(limits),
            http: None,
            is_handshaking: true,
            reach,
            place,
            opened: Vec::new(),
            writable: Vec::new(),
            end: None,
            budget,
            control: None,
            is_short: false,
            has_many: false,
        };
        Self(Rc::new(Shared {
            desk,
            at: handle.0,
            core: RefCell::new(core),
            waits: Waits::default(),
            task: RefCell::default(),
            is_enqueued: Cell::default(),
            is_over: Cell::default(),
            is_left: Cell::default(),
        }))
    }

    pub(crate) fn core(&self) -> RefMut<'_, Core> {
        self.0.core.borrow_mut()
    }

    pub(crate) fn begin_drive(&self) {
        self.0.is_enqueued.set(false);
    }

    /// Has the endpoint drive the connection, from within the endpoint's task.
    pub(crate) fn stir_within(&self) {
        if !self.0.is_enqueued.replace(true) {
            self.0.desk.enqueue(self.0.at);
        }
    }

    pub(crate) fn now(&self) -> Now {
        let deadlines = &self.0.desk.deadlines;
        Now { tick: deadlines.now(), second: deadlines.second() }
    }

    /// Does what QUIC tells of, wakes who waits for it, and gives QUIC what there is to send.
    pub(crate) fn settle(&self, core: &mut Core) {
        while let Some(event) = core.quic.poll() {
            if let Err(broken) = self.happened(core, event) {
                self.end(core, End::Broken(broken));
            }
        }
        // RFC 9218 §10: whoever is woken first writes first.
        core.writable.sort_by_key(|(urgency, _)| *urgency);
        core.writable.drain(..).for_each(|(_, key)| self.0.waits.has_room(key));
        if !self.0.is_over.get() {
            self.flush(core);
        }
        self.permit_requests(core);
        self.keep_to_budget(core);
        if core.is_short
            && !self.0.is_over.get()
            && let Err(broken) = self.accept(core, Dir::Bi)
        {
            self.end(core, End::Broken(broken));
        }
    }

    /// Notes what the connection holds, and bounds heads by what is left.
    fn note(&self, core: &mut Core) {
        let Core { http: Some(http), budget, reach, .. } = core else { return };
        budget.note(http.held(), http.holds(), self.0.waits.bytes_behind());
        if reach.is_none() {
            http.limit_long_heads(budget.heads(), LONG_HEADS_MAX);
        }
    }

    /// Has the peer and writers know what they may have the connection hold.
    fn keep_to_budget(&self, core: &mut Core) {
        self.note(core);
        let Core { quic, budget, control: Some(control), .. } = core else { return };
        if let Some(window) = budget.wider((quic, *control)) {
            quic.set_receive_window(window.into());
        }
        quic.set_send_window(budget.under_way(quic.congestion_state().window()));
    }

    /// Permits a client that has many requests open as many as there may be.
    fn permit_requests(&self, core: &mut Core) {
        let Core { quic, http: Some(http), reach: None, has_many, .. } = core else { return };
        if !*has_many && http.held() > STREAMS_FIRST as usize / 2 {
            *has_many = true;
            quic.set_max_concurrent_streams(Dir::Bi, STREAMS_MAX.into());
        }
    }

    /// Takes what a datagram of the peer has told.
    pub(crate) fn received(&self, event: quinn_proto::ConnectionEvent) {
        let mut core = self.core();
        core.quic.handle_event(event);
        if let Some(reach) = &mut core.reach {
            reach.heard(self.now().tick);
        }
        let Core { quic, budget, .. } = &mut *core;
        if budget.received() {
            budget.look(quic);
            if budget.is_scattered() && !self.is_over() {
                self.end(&mut core, End::Scattered);
            }
        }
        drop(core);
        self.stir_within();
    }

    fn happened(&self, core: &mut Core, event: quinn_proto::Event) -> Result<(), Broken> {
        match event {
            quinn_proto::Event::Connected => self.begin(core),
            quinn_proto::Event::ConnectionLost { reason } => {
                let end = lost(core, reason);
                self.end(core, end);
            }
            quinn_proto::Event::Stream(event) if !self.0.is_over.get() => {
                self.stream_happened(core, event)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The handshake is done.
    fn begin(&self, core: &mut Core) {
        core.handshake_ended();
        let mut open = || core.quic.streams().open(Dir::Uni);
        match (open(), open(), open()) {
            (Some(control), Some(encoder), Some(decoder)) => {
                let own = [control, encoder, decoder].map(u64::from);
                core.control = Some(control);
                let role = if core.reach.is_some() { Role::Client } else { Role::Server };
                core.http = core.limits.take().map(|limits| http3::Connection::new(role, *limits, own));
            }
            // RFC 9114 §6.2.
            _ => {
                self.end(
                    core,
                    End::Violated("it permits fewer than three unidirectional streams".to_owned()),
                );
            }
        }
        self.wake_task();
    }

    pub(crate) fn end(&self, core: &mut Core, end: End) {
        core.handshake_ended();
        if core.end.is_none() {
            core.end = Some(end);
        }
        self.0.is_over.set(true);
        self.0.waits.wake_all(|_| true);
        self.wake_task();
    }

    fn wake_task(&self) {
        if let Some(task) = &*self.0.task.borrow() {
            task.wake_by_ref();
        }
    }

    fn stream_happened(&self, core: &mut Core, event: StreamEvent) -> Result<(), Broken> {
        let now = self.now();
        let Some(http) = &mut core.http else { return Ok(()) };
        match event {
            StreamEvent::Opened { dir } => self.accept(core, dir)?,
            StreamEvent::Readable { id } => self.read(core, id)?,
            StreamEvent::Stopped { id, error_code } => {
                http.stop_received(id.into(), Code(error_code.into_inner()), now)?;
                self.tell(core)?;
            }
            StreamEvent::Writable { id } => {
                if let Some(key) = http.key(id.into()) {
                    core.writable.push((http.priority(key).urgency, key));
                }
            }
            StreamEvent::Finished { .. } => self.wake_task(),
            StreamEvent::Available { dir } => {
                if let (Some(reach), Dir::Bi) = (&mut core.reach, dir) {
                    reach.has_room = true;
                    self.wake_task();
                }
            }
        }
        Ok(())
    }

    /// Takes the streams that the peer has opened. Requests that there is no room for wait in QUIC.
    fn accept(&self, core: &mut Core, dir: Dir) -> Result<(), Broken> {
        let now = self.now();
        while let Core { quic, http: Some(http), budget, control: Some(control), is_short, .. } = core {
            let is_request = dir == Dir::Bi;
            if is_request {
                *is_short = !budget.has_room_for_request((quic, *control));
                if *is_short {
                    break;
                }
            }
            let Some(id) = quic.streams().accept(dir) else { break };
            if is_request {
                budget.took_request();
            }
            http.accept(id.into(), now)?;
            self.read(core, id)?;
            self.note(core);
        }
        if core.budget.is_scattered() && !self.is_over() {
            self.end(core, End::Scattered);
        }
        if core.http.as_mut().is_some_and(|http| http.head_since().is_some()) {
            // It has its time.
            self.wake_task();
        }
        Ok(())
    }

    /// Reads a stream, as far as HTTP wants more of it.
    fn read(&self, core: &mut Core, id: StreamId) -> Result<(), Broken> {
        self.read_quietly(core, id)?;
        self.tell(core)
    }

    fn read_quietly(&self, core: &mut Core, id: StreamId) -> Result<(), Broken> {
        let now = self.now();
        let Core { quic, http: Some(http), budget, .. } = core else { return Ok(()) };
        for _ in 0..READS_MAX {
            let wanted = http.wanted(id.into());
            if wanted == 0 {
                return Ok(());
            }
            let mut source = quic.recv_stream(id);
            let Ok(mut chunks) = source.read(true) else { return Ok(()) };
            match chunks.next(wanted) {
                Ok(Some(chunk)) => {
                    budget.read(chunk.bytes.len());
                    let is_last = matches!(chunks.next(0), Ok(None));
                    let _ = chunks.finalize();
                    http.receive(id.into(), &chunk.bytes, is_last, now)?;
                    if is_last {
                        return Ok(());
                    }
                }
                Ok(None) => {
                    let _ = chunks.finalize();
                    return http.receive(id.into(), b"", true, now);
                }
                Err(ReadError::Reset(code)) => {
                    let _ = chunks.finalize();
                    return http.reset_received(id.into(), Code(code.into_inner()), now);
                }
                Err(ReadError::Blocked) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Tells streams and the task what has happened in HTTP.
    fn tell(&self, core: &mut Core) -> Result<(), Broken> {
        while let Some(event) = core.http.as_mut().and_then(http3::Connection::next_event) {
            let waits = &self.0.waits;
            match event {
                Event::Opened(key) => {
                    core.opened.push(key);
                    prioritize(core, key);
                    self.wake_task();
                }
                Event::Reset(key) if core.opened.contains(&key) => {
                    // It was taken back before anybody looked at it (CVE-2023-44487).
                    core.opened.retain(|&other| other != key);
                    core.http.iter_mut().for_each(|http| http.take_back(key));
                    self.wake_task();
                }
                Event::Readable(key) => waits.wake(key, |wait| wait.to_read),
                Event::Reset(key) => waits.wake(key, |wait| wait.to_read || wait.to_write || wait.for_reset),
                Event::Wanted(id) => {
                    self.read_quietly(core, stream(id))?;
                }
                Event::Prioritized(key) => prioritize(core, key),
                Event::AwaitsEnd | Event::Begun | Event::GoingAway => self.wake_task(),
            }
        }
        if core.http.as_ref().is_some_and(http3::Connection::has_refused) {
            self.wake_task();
        }
        Ok(())
    }

    /// Gives QUIC what HTTP has to send and to tell.
    fn flush(&self, core: &mut Core) {
        if let Core { quic, http: Some(http), budget, .. } = core
            && http.has_unsent()
        {
            http.flush(&mut Streams(quic, budget));
        }
    }
}

/// RFC 9218 §4.1: 0 is the most urgent, and to QUIC's implementation the largest number is.
fn prioritize(core: &mut Core, key: Key) {
    if let Core { quic, http: Some(http), .. } = core {
        let urgency = i32::from(http.priority(key).urgency);
        let _ = quic.send_stream(stream(http.id(key))).set_priority(-urgency);
    }
}

/// What the end of a connection means.
fn lost(core: &Core, reason: ConnectionError) -> End {
    if core.reach.is_some() {
        return h3_client::lost(core, reason);
    }
    match reason {
        ConnectionError::TransportError(error) if core.is_handshaking => End::Handshake(error.to_string()),
        ConnectionError::ConnectionClosed(close) if core.is_handshaking => {
            End::Handshake(format!("the client ended it: {close}"))
        }
        ConnectionError::TimedOut if core.is_handshaking => {
            End::Handshake("the client fell silent".to_owned())
        }
        ConnectionError::TransportError(error) => End::Violated(error.to_string()),
        _ => End::Closed,
    }
}

/// What the task does that serves the connection.
impl H3Connection {
    /// The protocol state; `None` before the end of the handshake. Call [`stir`](Self::stir) behind changes.
    pub fn engine(&self) -> Option<RefMut<'_, http3::Connection>> {
        RefMut::filter_map(self.core(), |core| core.http.as_mut()).ok()
    }

    /// Ready when there are new requests, rejected ones to log, or an end. `opened` gets the requests.
    pub fn poll_news(&self, context: &mut Context<'_>, opened: &mut Vec<Key>) -> Poll<Option<End>> {
        match &mut *self.0.task.borrow_mut() {
            Some(task) => task.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        let mut core = self.core();
        opened.append(&mut core.opened);
        match &core.end {
            Some(end) => Poll::Ready(Some(end.clone())),
            None if opened.is_empty() => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    /// What the handshake has agreed on, once it is done.
    pub fn agreed(&self) -> Option<Agreed> {
        let core = self.core();
        if core.is_handshaking {
            return None;
        }
        let told = core.quic.crypto_session().handshake_data()?;
        told.downcast::<Agreed>().ok().map(|agreed| *agreed)
    }

    /// Where the peer is now: a client may move.
    pub fn remote_address(&self) -> SocketAddr {
        self.core().quic.remote_address()
    }

    /// The address that the client has connected to.
    pub fn local_address(&self) -> Option<IpAddr> {
        self.core().quic.local_ip()
    }

    /// Takes the requests that were rejected since the last call.
    pub fn take_refused(&self) -> Vec<Refused> {
        self.engine().map(|mut engine| engine.take_refused()).unwrap_or_default()
    }

    /// Passes on the requests of streams that began up to this tick and whose end has not come.
    pub fn ends_are_late(&self, since: u32) {
        self.with(|_, core| core.http.iter_mut().for_each(|http| http.ends_are_late(since)));
    }

    /// The round-trip time, in ticks, rounded up.
    pub fn round_trip(&self) -> crate::deadline::Ticks {
        self.core().quic.rtt().into()
    }

    /// Has the peer show that it is there.
    pub fn ping(&self) {
        self.core().quic.ping();
        self.stir();
    }

    /// Whether the peer has acknowledged all that was sent on streams.
    pub fn is_acknowledged(&self) -> bool {
        self.core().quic.streams().send_streams() <= OWN_STREAMS
    }

    /// Whether nothing more is received or sent.
    pub fn is_over(&self) -> bool {
        self.0.is_over.get()
    }

    /// Accepts no further streams: the connection ends with its last stream.
    pub fn leave(&self) {
        self.0.is_left.set(true);
        self.wake_task();
    }

    /// Whether [`leave`](Self::leave) was called.
    pub fn is_left(&self) -> bool {
        self.0.is_left.get()
    }

    /// Has the endpoint send what there is to send.
    pub fn stir(&self) {
        self.stir_within();
        self.0.desk.stir();
    }

    /// Ends the connection, and tells the peer why.
    pub fn finish(&self, code: Code, why: &str) {
        let mut core = self.core();
        core.quic.close(Instant::now(), varint(code), why.to_owned().into());
        self.end(&mut core, End::Closed);
        let is_drained = core.is_drained;
        drop(core);
        // Without its endpoint nobody can be told.
        if let Some(endpoint) = self.0.desk.endpoint.upgrade().filter(|_| !is_drained) {
            // At once: the worker may be about to end.
            endpoint.drive(self, self.0.at, Instant::now());
            self.0.desk.stir();
        }
    }
}

/// What streams do.
impl H3Connection {
    /// Registers a stream that an exchange uses from now on.
    pub fn hold(&self, key: Key) {
        self.0.waits.hold(key);
    }

    /// Releases a stream whose exchange has ended.
    pub fn release(&self, key: Key) {
        self.0.waits.release(key);
        self.with(|connection, core| {
            let Some(http) = &mut core.http else { return };
            http.release(key);
            // The last one may be what the task waits for.
            if http.held() == 0 {
                connection.wake_task();
            }
        });
    }

    /// Does something with the streams of HTTP, and what follows from it.
    fn with<T>(&self, step: impl FnOnce(&Self, &mut Core) -> T) -> T {
        let mut core = self.core();
        let done = step(self, &mut core);
        if !self.is_over() {
            if let Err(broken) = self.tell(&mut core) {
                self.end(&mut core, End::Broken(broken));
            }
            self.flush(&mut core);
            drop(core);
            self.stir();
        }
        done
    }

    /// Looks at the protocol state, which is there while there are streams.
    pub(crate) fn look<T: Default>(&self, look: impl FnOnce(&http3::Connection) -> T) -> T {
        self.core().http.as_ref().map(look).unwrap_or_default()
    }

    /// The number of bytes of the stream's heads that can be read.
    pub fn text_len(&self, key: Key) -> usize {
        self.look(|http| http.text_len(key))
    }

    /// The peer's protocol error on a stream, or on the whole connection.
    pub fn wrong(&self, key: Key) -> Option<Wrong> {
        let of_stream = self.look(|http| {
            let text = http.wrong(key)?.to_owned();
            Some(Wrong { is_of_stream: true, is_too_large: http.is_too_large(key), text })
        });
        let of_connection = || {
            let offence = self.look(|http| http.offence().map(str::to_owned))?;
            let text = format!("the connection ended for {offence}");
            Some(Wrong { is_of_stream: false, is_too_large: false, text })
        };
        of_stream.or_else(of_connection)
    }

    /// Whether the peer has sent a part of a DATA frame, and not yet the rest.
    pub fn owes(&self, key: Key) -> bool {
        self.look(|http| http.owes(key))
    }

    /// The number of the stream's body bytes that left or are about to.
    pub fn body_sent(&self, key: Key) -> u64 {
        self.look(|http| http.body_sent(key))
    }

    /// Whether the next write on the stream must be the head of a message.
    pub fn wants_head(&self, key: Key) -> bool {
        self.look(|http| http.wants_head(key))
    }

    /// Ready when [`Self::poll_read`] has bytes for the stream, or its end.
    pub fn poll_readable(&self, context: &mut Context<'_>, key: Key) -> Poll<()> {
        if self.is_over() || self.look(|http| http.is_readable(key)) {
            return Poll::Ready(());
        }
        self.0.waits.of(key, context).to_read = true;
        Poll::Pending
    }

    /// Reads from a stream, as HTTP/1.1 text; 0 is the end.
    pub fn poll_read(
        &self,
        context: &mut Context<'_>,
        key: Key,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, Gone>> {
        let mut core = self.core();
        let Some(http) = &mut core.http else { return Poll::Ready(Err(Gone::Broken)) };
        match http.read(key, buffer)? {
            Some(count) => {
                drop(core);
                self.with(|_, _| ());
                Poll::Ready(Ok(count))
            }
            None if self.is_over() => Poll::Ready(Err(Gone::Broken)),
            None => {
                self.0.waits.of(key, context).to_read = true;
                Poll::Pending
            }
        }
    }

    /// Ready once the stream is reset or the connection has ended.
    pub fn poll_gone(&self, context: &mut Context<'_>, key: Key) -> Poll<()> {
        if self.is_over() || self.look(|http| http.is_broken(key)) {
            return Poll::Ready(());
        }
        self.0.waits.of(key, context).for_reset = true;
        Poll::Pending
    }

    /// Writes the head at the front of `text`, and as much of the body behind it as fits. Returns the number of bytes
    /// taken.
    pub fn write_head(&self, key: Key, text: &[u8], is_last: bool) -> Result<usize, WriteError> {
        if self.is_over() {
            return Err(WriteError::Gone(Gone::Broken));
        }
        let tick = self.now().tick;
        self.with(|_, core| {
            let Core { quic, http: Some(http), reach, budget, .. } = core else {
                return Err(WriteError::Gone(Gone::Broken));
            };
            let len = http.write_head(key, text, is_last, Scheme::Https)?;
            if let Some(reach) = reach {
                reach.asked(tick);
            }
            let rest = &text[len..];
            if rest.is_empty() || http.wants_head(key) {
                return Ok(len);
            }
            Ok(len + http.write(key, rest, is_last, &mut Streams(quic, budget)))
        })
    }

    /// Writes the start of `bytes`, at least one byte, as soon as QUIC has room.
    pub fn poll_write(
        &self,
        context: &mut Context<'_>,
        key: Key,
        bytes: &[u8],
        is_last: bool,
    ) -> Poll<Result<usize, Gone>> {
        if let Some(ready) = self.check_open(key) {
            return Poll::Ready(ready.map(|()| 0));
        }
        let count = self.with(|_, core| {
            let Core { quic, http: Some(http), budget, .. } = core else { return 0 };
            http.write(key, bytes, is_last, &mut Streams(quic, budget))
        });
        if count == bytes.len() {
            self.0.waits.caught_up(key);
        }
        if count > 0 {
            return Poll::Ready(Ok(count));
        }
        self.0.waits.wait_for_room(key, context, bytes.len());
        Poll::Pending
    }

    /// Ready when a write would succeed, or fail.
    pub fn poll_writable(&self, context: &mut Context<'_>, key: Key) -> Poll<()> {
        if self.check_open(key).is_some() || !self.0.waits.is_full(key) {
            return Poll::Ready(());
        }
        self.0.waits.wait_for_room(key, context, 0);
        Poll::Pending
    }

    /// An error, if nothing can be written.
    fn check_open(&self, key: Key) -> Option<Result<(), Gone>> {
        if self.is_over() {
            return Some(Err(Gone::Broken));
        }
        self.look(|http| http.check_open(key).err().map(Err))
    }

    /// Whether bytes of some stream wait for room.
    pub fn is_crowded(&self) -> bool {
        self.0.waits.some_are_behind()
    }

    /// What a stream may hold that QUIC may have no room for: while others wait for that its share of what all may.
    pub fn share(&self) -> usize {
        let core = self.core();
        if self.is_crowded() { core.budget.waiting() } else { core.budget.piece() }
    }

    /// Lends room for what comes on a stream that has so much, beyond what each has anyway; how much it has then.
    pub(crate) fn lend(&self, had: usize) -> usize {
        let Core { quic, budget, control: Some(control), .. } = &mut *self.core() else { return had };
        budget.lend(had, (quic, *control))
    }

    /// Takes back what was lent for a stream.
    pub(crate) fn take_back(&self, lent: usize) {
        self.core().budget.give_back(lent);
    }

    /// Ends the stream's outgoing message. `trailers` are HTTP/1.1 field lines, or empty.
    ///
    /// # Errors
    /// If the stream is gone.
    pub fn end_stream(&self, key: Key, trailers: &[u8]) -> Result<(), Gone> {
        if self.is_over() {
            return Err(Gone::Broken);
        }
        self.with(|_, core| core.http.as_mut().map_or(Err(Gone::Broken), |http| http.end(key, trailers)))
    }

    /// Resets the stream (RESET_STREAM, STOP_SENDING).
    pub fn reset(&self, key: Key, code: Code) {
        self.with(|_, core| core.http.iter_mut().for_each(|http| http.reset(key, code)));
    }
}
