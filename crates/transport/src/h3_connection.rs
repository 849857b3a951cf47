//! An HTTP/3 connection, shared by its streams, the task that serves it, and the endpoint that drives it.
//!
//! Streams read and write without system calls. The endpoint receives and sends for all connections. Memory for a
//! stream is limited: QUIC's windows keep unread bodies with the client.

use std::cell::{Cell, RefCell, RefMut};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use http3::{
    H3Broken, H3Code, H3Event, H3Limits, H3Refused, H3Role, H3StreamGone, Key, Now, WireScheme, WriteError,
};
use quinn_proto::{ConnectionHandle, Dir, ReadError, StreamEvent, StreamId};
use tls::{Agreed, HandshakeFault};

use crate::h2_connection::H2Violation;
use crate::h3_budget::{self, Budget, OWN_STREAMS};
use crate::h3_client::H3Reach;
use crate::h3_lost;
use crate::h3_sending::{SendingStreams, stream, varint};
use crate::quic_desk::Desk;
use crate::quic_places::HandshakePlace;
use crate::waits::StreamWaits;

/// Requests that a client may have open at once (RFC 9114 §6.1 recommends at least 100).
pub const STREAMS_MAX: u32 = 100;
/// Open requests that a client is allowed until it has half of them open. A page's first burst of requests should need
/// no further round trip. QUIC allocates a slot (0.4 kB) for each allowed stream, also for unidirectional ones, in
/// tables that double at about 50.
pub const STREAMS_FIRST: u32 = 36;
/// Bytes that a client may initially send on all streams together before the path has read any.
pub const CLIENT_WINDOW: u32 = h3_budget::WINDOW_FIRST;
/// Memory of the heads of all requests of a client, beyond the buffers that each request has.
pub const LONG_HEADS_MAX: usize = 128 * 1024;
/// Reason that is sent to a peer whose pieces cannot be held.
pub const TOO_SCATTERED: &str = "too many pieces with gaps between them";
/// Pieces of a stream that are read before others have their turn.
const READS_MAX: usize = 64;

/// An HTTP/3 connection, shared by its streams, the task that serves it, and the endpoint that drives it.
#[derive(Clone)]
pub struct H3Connection(Rc<H3Shared>);

struct H3Shared {
    desk: Rc<Desk>,
    /// Index in the endpoint's connections.
    at: usize,
    core: RefCell<Core>,
    waits: StreamWaits,
    /// The task that serves the connection.
    task: RefCell<Option<Waker>>,
    /// Whether the endpoint's queue already contains the connection.
    is_enqueued: Cell<bool>,
    /// Whether nothing more is received or sent.
    is_over: Cell<bool>,
    /// Whether no further streams are accepted.
    is_left: Cell<bool>,
}

/// A few bytes more, and the allocator takes 2 KiB more for each connection.
const _: () = assert!(size_of::<H3Shared>() + 2 * size_of::<usize>() <= 8192);

/// The state of the connection, in QUIC and in HTTP.
pub(crate) struct Core {
    pub(crate) quic: quinn_proto::Connection,
    /// The time of its next run in the endpoint's timers.
    pub(crate) filed: Option<Instant>,
    pub(crate) is_drained: bool,
    /// Present until the end of the handshake.
    limits: Option<Box<H3Limits>>,
    /// Present from the end of the handshake on.
    pub(crate) http: Option<http3::H3StateMachine>,
    pub(crate) is_handshaking: bool,
    /// Present if the peer is a server.
    pub(crate) reach: Option<Box<H3Reach>>,
    /// The place of a client's handshake, until the handshake is over.
    place: Option<Box<HandshakePlace>>,
    opened: Vec<Key>,
    /// Streams that have room again, with their urgency.
    writable: Vec<(u8, Key)>,
    end: Option<H3ConnectionEnd>,
    budget: Budget,
    /// Our control stream, from the end of the handshake on.
    control: Option<StreamId>,
    /// Whether requests wait in QUIC because they do not fit the budget.
    is_short: bool,
    /// Whether the client is allowed [`STREAMS_MAX`] requests.
    has_many: bool,
}

#[derive(Debug, Clone)]
pub enum H3ConnectionEnd {
    /// The peer has closed the connection, or cannot be reached any more.
    Closed,
    /// The peer has closed the connection with this error code.
    Told(H3Code),
    /// The server was never reached.
    Unreachable,
    /// The part of the handshake that failed, and a description.
    Handshake(HandshakeFault, String),
    /// The peer has violated QUIC. Contains a description.
    Violated(String),
    /// The peer violated HTTP/3 or a limit. CONNECTION_CLOSE reports it.
    Broken(H3Broken),
    /// The peer has sent too many pieces with gaps between them.
    Scattered,
}

impl Core {
    pub(crate) fn end(&self) -> Option<&H3ConnectionEnd> {
        self.end.as_ref()
    }

    fn handshake_ended(&mut self) {
        self.is_handshaking = false;
        self.place = None;
    }
}

/// Methods for the endpoint.
impl H3Connection {
    /// A connection from a client.
    pub(crate) fn of_client(
        desk: Rc<Desk>,
        handle: ConnectionHandle,
        place: Box<HandshakePlace>,
        (quic, limits): (quinn_proto::Connection, Box<H3Limits>),
    ) -> Self {
        Self::new(desk, (handle, Some(place)), quic, limits, (Budget::of_client(), None))
    }

    /// A connection to a server. `window` bytes may arrive before the path has read any.
    pub(crate) fn to_server(
        desk: Rc<Desk>,
        handle: ConnectionHandle,
        quic: quinn_proto::Connection,
        limits: Box<H3Limits>,
        window: u32,
    ) -> Self {
        let reach = Box::new(H3Reach::new(desk.deadlines.now()));
        Self::new(desk, (handle, None), quic, limits, (Budget::of_server(window), Some(reach)))
    }

    fn new(
        desk: Rc<Desk>,
        (handle, place): (ConnectionHandle, Option<Box<HandshakePlace>>),
        quic: quinn_proto::Connection,
        limits: Box<H3Limits>,
        (budget, reach): (Budget, Option<Box<H3Reach>>),
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
        Self(Rc::new(H3Shared {
            desk,
            at: handle.0,
            core: RefCell::new(core),
            waits: StreamWaits::default(),
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

    /// Queues the connection, from within the endpoint's task.
    pub(crate) fn stir_within(&self) {
        if !self.0.is_enqueued.replace(true) {
            self.0.desk.enqueue(self.0.at);
        }
    }

    pub(crate) fn now(&self) -> Now {
        let deadlines = &self.0.desk.deadlines;
        Now { tick: deadlines.now(), second: deadlines.second() }
    }

    /// Handles QUIC's events, wakes the waiting tasks, and gives QUIC the bytes to send.
    pub(crate) fn settle(&self, core: &mut Core) {
        while let Some(event) = core.quic.poll() {
            if let Err(broken) = self.happened(core, event) {
                self.end(core, H3ConnectionEnd::Broken(broken));
            }
        }
        // RFC 9218 §10: the stream that is woken first writes first.
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
            self.end(core, H3ConnectionEnd::Broken(broken));
        }
    }

    /// Updates the budget, and limits heads to its rest.
    fn note(&self, core: &mut Core) {
        let Core { http: Some(http), budget, reach, .. } = core else { return };
        budget.note(http.held(), http.holds(), self.0.waits.bytes_behind());
        if reach.is_none() {
            http.limit_long_heads(budget.heads(), LONG_HEADS_MAX);
        }
    }

    /// Sets QUIC's windows by the budget.
    fn keep_to_budget(&self, core: &mut Core) {
        self.note(core);
        let Core { quic, budget, control: Some(control), .. } = core else { return };
        if let Some(window) = budget.wider((quic, *control)) {
            quic.set_receive_window(window.into());
        }
        // Set after each drive, because the congestion window has changed with the last acknowledgments.
        quic.set_send_window(budget.under_way(quic.congestion_state().window()));
    }

    /// Allows a client that has many requests open the maximum.
    fn permit_requests(&self, core: &mut Core) {
        let Core { quic, http: Some(http), reach: None, has_many, .. } = core else { return };
        if !*has_many && http.held() > STREAMS_FIRST as usize / 2 {
            *has_many = true;
            quic.set_max_concurrent_streams(Dir::Bi, STREAMS_MAX.into());
        }
    }

    /// Handles a datagram of the peer.
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
                self.end(&mut core, H3ConnectionEnd::Scattered);
            }
        }
        drop(core);
        self.stir_within();
    }

    fn happened(&self, core: &mut Core, event: quinn_proto::Event) -> Result<(), H3Broken> {
        match event {
            quinn_proto::Event::Connected => self.begin(core),
            quinn_proto::Event::ConnectionLost { reason } => {
                let end = h3_lost::lost(core, reason);
                self.end(core, end);
            }
            quinn_proto::Event::Stream(event) if !self.0.is_over.get() => {
                self.stream_happened(core, event)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Called at the end of the handshake.
    fn begin(&self, core: &mut Core) {
        core.handshake_ended();
        let mut open = || core.quic.streams().open(Dir::Uni);
        match (open(), open(), open()) {
            (Some(control), Some(encoder), Some(decoder)) => {
                let own = [control, encoder, decoder].map(u64::from);
                core.control = Some(control);
                let role = if core.reach.is_some() { H3Role::Client } else { H3Role::Server };
                core.http = core.limits.take().map(|limits| http3::H3StateMachine::new(role, *limits, own));
            }
            // RFC 9114 §6.2.
            _ => {
                self.end(
                    core,
                    H3ConnectionEnd::Violated(
                        "it permits fewer than three unidirectional streams".to_owned(),
                    ),
                );
            }
        }
        self.wake_task();
    }

    pub(crate) fn end(&self, core: &mut Core, end: H3ConnectionEnd) {
        core.handshake_ended();
        if core.end.is_none() {
            core.end = Some(end);
        }
        self.0.is_over.set(true);
        // Every stream sees the end, whatever it waits for.
        self.0.waits.wake_all(|_| true);
        self.wake_task();
    }

    fn wake_task(&self) {
        if let Some(task) = &*self.0.task.borrow() {
            task.wake_by_ref();
        }
    }

    fn stream_happened(&self, core: &mut Core, event: StreamEvent) -> Result<(), H3Broken> {
        let now = self.now();
        let Some(http) = &mut core.http else { return Ok(()) };
        match event {
            StreamEvent::Opened { dir } => self.accept(core, dir)?,
            StreamEvent::Readable { id } => self.read(core, id)?,
            StreamEvent::Stopped { id, error_code } => {
                http.stop_received(id.into(), H3Code(error_code.into_inner()), now)?;
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

    /// Accepts the streams that the peer has opened. Requests that do not fit the budget wait in QUIC.
    fn accept(&self, core: &mut Core, dir: Dir) -> Result<(), H3Broken> {
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
            self.end(core, H3ConnectionEnd::Scattered);
        }
        if core.http.as_mut().is_some_and(|http| http.head_since().is_some()) {
            // The task limits the time for incomplete heads.
            self.wake_task();
        }
        Ok(())
    }

    /// Reads a stream, as far as HTTP accepts bytes.
    fn read(&self, core: &mut Core, id: StreamId) -> Result<(), H3Broken> {
        self.read_quietly(core, id)?;
        self.tell(core)
    }

    fn read_quietly(&self, core: &mut Core, id: StreamId) -> Result<(), H3Broken> {
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
                    // Asked at once: a request whose end comes with its head has no body.
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
                    return http.reset_received(id.into(), H3Code(code.into_inner()), now);
                }
                // QUIC reports the stream again when more arrives.
                Err(ReadError::Blocked) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Handles HTTP's events: wakes streams and the task.
    fn tell(&self, core: &mut Core) -> Result<(), H3Broken> {
        while let Some(event) = core.http.as_mut().and_then(http3::H3StateMachine::next_event) {
            let waits = &self.0.waits;
            match event {
                H3Event::Opened(key) => {
                    core.opened.push(key);
                    prioritize(core, key);
                    self.wake_task();
                }
                H3Event::Reset(key) if core.opened.contains(&key) => {
                    // The client reset it before the proxy handled it (CVE-2023-44487).
                    core.opened.retain(|&other| other != key);
                    core.http.iter_mut().for_each(|http| http.take_back(key));
                    self.wake_task();
                }
                H3Event::Readable(key) => waits.wake(key, |wait| wait.to_read),
                H3Event::Reset(key) => {
                    waits.wake(key, |wait| wait.to_read || wait.to_write || wait.for_reset);
                }
                H3Event::Wanted(id) => {
                    self.read_quietly(core, stream(id))?;
                }
                H3Event::Prioritized(key) => prioritize(core, key),
                H3Event::AwaitsEnd | H3Event::Begun | H3Event::GoingAway => self.wake_task(),
            }
        }
        if core.http.as_ref().is_some_and(http3::H3StateMachine::has_refused) {
            self.wake_task();
        }
        Ok(())
    }

    /// Gives QUIC everything that HTTP has to send.
    fn flush(&self, core: &mut Core) {
        if let Core { quic, http: Some(http), budget, .. } = core
            && http.has_unsent()
        {
            http.flush(&mut SendingStreams(quic, budget));
        }
    }
}

/// RFC 9218 §4.1: 0 is the most urgent. In QUIC's implementation, the largest number is.
fn prioritize(core: &mut Core, key: Key) {
    if let Core { quic, http: Some(http), .. } = core {
        let urgency = i32::from(http.priority(key).urgency);
        let _ = quic.send_stream(stream(http.id(key))).set_priority(-urgency);
    }
}

/// Methods for the task that serves the connection.
impl H3Connection {
    /// The protocol state; `None` before the end of the handshake. Call [`stir`](Self::stir) after changes.
    pub fn engine(&self) -> Option<RefMut<'_, http3::H3StateMachine>> {
        RefMut::filter_map(self.core(), |core| core.http.as_mut()).ok()
    }

    /// Ready when there are new requests, rejected ones to log, or an end. Adds the requests to `opened`.
    pub fn poll_news(
        &self,
        context: &mut Context<'_>,
        opened: &mut Vec<Key>,
    ) -> Poll<Option<H3ConnectionEnd>> {
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

    /// The result of the handshake, once it is done.
    pub fn agreed(&self) -> Option<Agreed> {
        let core = self.core();
        if core.is_handshaking {
            return None;
        }
        let told = core.quic.crypto_session().handshake_data()?;
        told.downcast::<Agreed>().ok().map(|agreed| *agreed)
    }

    /// The peer's current address: a client may move.
    pub fn remote_address(&self) -> SocketAddr {
        self.core().quic.remote_address()
    }

    pub fn local_address(&self) -> Option<IpAddr> {
        self.core().quic.local_ip()
    }

    /// Takes the requests that were rejected since the last call.
    pub fn take_refused(&self) -> Vec<H3Refused> {
        self.engine().map(|mut engine| engine.take_refused()).unwrap_or_default()
    }

    /// Passes on the requests of streams that began up to this tick and whose end has not arrived.
    pub fn ends_are_late(&self, since: u32) {
        self.with(|_, core| core.http.iter_mut().for_each(|http| http.ends_are_late(since)));
    }

    /// The round-trip time, rounded up.
    pub fn round_trip(&self) -> crate::deadline::Ticks {
        self.core().quic.rtt().into()
    }

    /// Asks the peer for an acknowledgment.
    pub fn ping(&self) {
        self.core().quic.ping();
        self.stir();
    }

    /// Whether the peer has acknowledged everything that was sent on streams.
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

    /// Lets the endpoint send the unsent bytes.
    pub fn stir(&self) {
        self.stir_within();
        self.0.desk.stir();
    }

    /// Ends the connection, and tells the peer the reason.
    pub fn finish(&self, code: H3Code, why: &str) {
        let mut core = self.core();
        core.quic.close(Instant::now(), varint(code), why.to_owned().into());
        self.end(&mut core, H3ConnectionEnd::Closed);
        let is_drained = core.is_drained;
        drop(core);
        // Without its endpoint, nothing can be sent.
        if let Some(endpoint) = self.0.desk.endpoint.upgrade().filter(|_| !is_drained) {
            // Sent at once, because the worker may be about to end.
            endpoint.drive(self, self.0.at, Instant::now());
            self.0.desk.stir();
        }
    }
}

/// Methods for streams.
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
            // The task may wait for the last stream to end.
            if http.held() == 0 {
                connection.wake_task();
            }
        });
    }

    /// Changes the state of HTTP, and handles the consequences.
    fn with<T>(&self, step: impl FnOnce(&Self, &mut Core) -> T) -> T {
        let mut core = self.core();
        let done = step(self, &mut core);
        if !self.is_over() {
            if let Err(broken) = self.tell(&mut core) {
                self.end(&mut core, H3ConnectionEnd::Broken(broken));
            }
            self.flush(&mut core);
            drop(core);
            self.stir();
        }
        done
    }

    /// Reads the protocol state, which exists as long as there are streams.
    pub(crate) fn look<T: Default>(&self, look: impl FnOnce(&http3::H3StateMachine) -> T) -> T {
        self.core().http.as_ref().map(look).unwrap_or_default()
    }

    /// Length of the stream's text that can be read.
    pub fn text_len(&self, key: Key) -> usize {
        self.look(|http| http.text_len(key))
    }

    /// The peer's protocol error on a stream, or on the whole connection.
    pub fn wrong(&self, key: Key) -> Option<H2Violation> {
        let of_stream = self.look(|http| {
            let text = http.wrong(key)?.to_owned();
            Some(H2Violation { is_of_stream: true, is_too_large: http.is_too_large(key), text })
        });
        let of_connection = || {
            let is_scattered = matches!(self.core().end(), Some(H3ConnectionEnd::Scattered));
            let offence = match is_scattered {
                true => TOO_SCATTERED.to_owned(),
                false => self.look(|http| http.offence().map(str::to_owned))?,
            };
            let text = format!("the connection ended for {offence}");
            Some(H2Violation { is_of_stream: false, is_too_large: false, text })
        };
        of_stream.or_else(of_connection)
    }

    /// Whether the peer has begun a DATA frame on the stream, and not sent all of it.
    pub fn owes(&self, key: Key) -> bool {
        self.look(|http| http.owes(key))
    }

    /// Body bytes of the stream that left or are about to.
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
        self.0.waits.for_key(key, context).to_read = true;
        Poll::Pending
    }

    /// Reads HTTP/1.1 text from a stream; 0 is the end.
    pub fn poll_read(
        &self,
        context: &mut Context<'_>,
        key: Key,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, H3StreamGone>> {
        let mut core = self.core();
        let Some(http) = &mut core.http else { return Poll::Ready(Err(H3StreamGone::Broken)) };
        match http.read(key, buffer)? {
            Some(count) => {
                drop(core);
                self.with(|_, _| ());
                Poll::Ready(Ok(count))
            }
            None if self.is_over() => Poll::Ready(Err(H3StreamGone::Broken)),
            None => {
                self.0.waits.for_key(key, context).to_read = true;
                Poll::Pending
            }
        }
    }

    /// Ready once the stream is reset or the connection has ended.
    pub fn poll_gone(&self, context: &mut Context<'_>, key: Key) -> Poll<()> {
        if self.is_over() || self.look(|http| http.is_broken(key)) {
            return Poll::Ready(());
        }
        self.0.waits.for_key(key, context).for_reset = true;
        Poll::Pending
    }

    /// Writes the head at the front of `text`, and as much of the body behind it as fits. Returns the number of bytes
    /// written.
    pub fn write_head(&self, key: Key, text: &[u8], is_last: bool) -> Result<usize, WriteError> {
        if self.is_over() {
            return Err(WriteError::Gone(H3StreamGone::Broken));
        }
        let tick = self.now().tick;
        self.with(|_, core| {
            let Core { quic, http: Some(http), reach, budget, .. } = core else {
                return Err(WriteError::Gone(H3StreamGone::Broken));
            };
            let len = http.write_head(key, text, is_last, WireScheme::Https)?;
            if let Some(reach) = reach {
                reach.asked(tick);
            }
            let rest = &text[len..];
            if rest.is_empty() || http.wants_head(key) {
                return Ok(len);
            }
            Ok(len + http.write(key, rest, is_last, &mut SendingStreams(quic, budget)))
        })
    }

    /// Writes the start of `bytes`, at least one byte, as soon as QUIC has room.
    pub fn poll_write(
        &self,
        context: &mut Context<'_>,
        key: Key,
        bytes: &[u8],
        is_last: bool,
    ) -> Poll<Result<usize, H3StreamGone>> {
        if let Some(ready) = self.check_open(key) {
            return Poll::Ready(ready.map(|()| 0));
        }
        let count = self.with(|_, core| {
            let Core { quic, http: Some(http), budget, .. } = core else { return 0 };
            http.write(key, bytes, is_last, &mut SendingStreams(quic, budget))
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

    /// Ready when a write would succeed or fail.
    pub fn poll_writable(&self, context: &mut Context<'_>, key: Key) -> Poll<()> {
        if self.check_open(key).is_some() || !self.0.waits.is_full(key) {
            return Poll::Ready(());
        }
        self.0.waits.wait_for_room(key, context, 0);
        Poll::Pending
    }

    /// The error or 0 to return if nothing can be written.
    fn check_open(&self, key: Key) -> Option<Result<(), H3StreamGone>> {
        if self.is_over() {
            return Some(Err(H3StreamGone::Broken));
        }
        self.look(|http| http.check_open(key).err().map(Err))
    }

    /// Whether bytes of some stream wait for room.
    pub fn is_crowded(&self) -> bool {
        self.0.waits.some_are_behind()
    }

    /// Bytes that a stream may buffer for sending. While streams wait for room, this is its share of the budget.
    pub fn share(&self) -> usize {
        let core = self.core();
        if self.is_crowded() { core.budget.waiting() } else { core.budget.piece() }
    }

    /// Reserves a buffer for a stream's received body, beyond the one that each stream has. `had` is its current size;
    /// returns the new one.
    pub(crate) fn lend(&self, had: usize) -> usize {
        let Core { quic, budget, control: Some(control), .. } = &mut *self.core() else { return had };
        budget.lend(had, (quic, *control))
    }

    /// Releases a buffer from [`lend`](Self::lend).
    pub(crate) fn take_back(&self, lent: usize) {
        self.core().budget.give_back(lent);
    }

    /// Ends the stream's outgoing message. `trailers` are HTTP/1.1 field lines, or empty.
    ///
    /// # Errors
    /// The stream has ended.
    pub fn end_stream(&self, key: Key, trailers: &[u8]) -> Result<(), H3StreamGone> {
        if self.is_over() {
            return Err(H3StreamGone::Broken);
        }
        self.with(|_, core| {
            core.http.as_mut().map_or(Err(H3StreamGone::Broken), |http| http.end(key, trailers))
        })
    }

    /// Resets the stream (RESET_STREAM, STOP_SENDING).
    pub fn reset(&self, key: Key, code: H3Code) {
        self.with(|_, core| core.http.iter_mut().for_each(|http| http.reset(key, code)));
    }
}
