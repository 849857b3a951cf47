//! A client's HTTP/3 connection (RFC 9114): each stream is an exchange on the usual path.
//!
//! The endpoint of its listener receives and sends for it; here is what becomes of its requests, and when it ends.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use config::written_duration;
use http3::{Broken, Cause, Code, Flood, FloodLimits, Key, Limits, Refused};
use telemetry::{Entry, More, message};
use transport::buffer::TINY;
use transport::deadline::{Deadline, Ticks};
use transport::endpoint::Endpoint;
use transport::h3_connection::{End, H3Connection, LONG_HEADS_MAX, STREAMS_MAX};
use transport::h3_stream::Stream;

use crate::connection::client::Count;
use crate::connection::http2;
use crate::context::client::Client;
use crate::context::client_tls::ClientTls;
use crate::context::failure::Failure;
use crate::context::listening::Listening;
use crate::context::original_connection::OriginalConnection;
use crate::context::worker::{State, Worker};
use crate::shaping::ConnectionTotals;

/// Requests that are held at once: those that have ended may still wait for acknowledgments.
const HELD_MAX: usize = 2 * STREAMS_MAX as usize;
/// Unread bytes of the body of a request, beside what QUIC holds.
const BODY_MAX: usize = 64 * 1024;
/// Unread bytes of the bodies of all requests of a connection.
const BODIES_MAX: usize = 64 * 1024;
/// The dynamic table of QPACK (RFC 9204 §3.2): that of HPACK by default.
const TABLE_BYTES: usize = 4096;
/// Requests that may wait for insertions into it.
const BLOCKED_MAX: usize = 16;
/// How long a client has to acknowledge what it was sent last.
const LINGER: Ticks = Ticks(20);
/// How long a GET without the end of its stream is held back: that may come in another datagram.
const END: Ticks = Ticks(1);
/// How often a client with requests under way is asked whether it is there.
const PING: Ticks = Ticks(100);

/// What a client's connection may cost.
pub(crate) fn limits(worker: &Worker, is_trusted: bool) -> Limits {
    let snapshot = worker.snapshot();
    let of_http2 = snapshot.plan.config.limits.http2;
    let factor = if is_trusted { of_http2.trusted_factor } else { 1 };
    let shared = of_http2.of(is_trusted);
    Limits {
        streams: HELD_MAX,
        head_bytes: snapshot.head_limits.bytes,
        short_head_bytes: TINY,
        long_heads_bytes: LONG_HEADS_MAX,
        body_bytes: BODY_MAX,
        bodies_bytes: BODIES_MAX,
        table_bytes: TABLE_BYTES,
        blocked_streams: BLOCKED_MAX,
        floods: FloodLimits {
            resets: shared.resets,
            errors: shared.errors,
            priorities: shared.priorities,
            empty_frames: shared.empty_frames,
            insertions: FloodLimits::DEFAULT.insertions.saturating_mul(factor),
            overhead: FloodLimits::DEFAULT.overhead.saturating_mul(factor),
        },
    }
}

/// Serves an HTTP/3 connection until it has ended: the body of its task. `port` is that of its listener.
pub(crate) async fn serve(worker: Rc<Worker>, listening: Rc<Listening>, connection: H3Connection, port: u16) {
    let _count = Count::new(&worker);
    let mut driver = Driver {
        worker: &worker,
        deadline: worker.deadlines.deadline(),
        was_busy: Cell::new(false),
        lateness: worker.deadlines.deadline(),
        connection,
        listening,
        tls: None,
        totals: ConnectionTotals::default(),
        destination: None,
        opened: Vec::new(),
        served: 0,
        phase: Phase::Handshake,
    };
    driver.deadline.set(worker.snapshot().ticks.client_header);
    let ended = loop {
        let end = poll_fn(|context| driver.poll(context, port)).await;
        for key in std::mem::take(&mut driver.opened) {
            driver.open(key);
        }
        if let Some(end) = end {
            break end;
        }
    };
    driver.end(&ended).await;
}

/// Where a connection is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Handshake,
    Open,
    /// The client was told that the end is near.
    Closing,
    /// It was told which request is the last.
    Last,
}

/// Whoever serves a client's connection.
struct Driver<'a> {
    worker: &'a Rc<Worker>,
    connection: H3Connection,
    listening: Rc<Listening>,
    tls: Option<Rc<ClientTls>>,
    totals: ConnectionTotals,
    /// Where the client has connected to.
    destination: Option<Rc<OriginalConnection>>,
    deadline: Deadline,
    /// Whether requests were under way when the deadline was set: nobody tells when the last one has ended.
    was_busy: Cell<bool>,
    /// Of heads that have begun and not come as a whole.
    lateness: Deadline,
    /// Requests that have come.
    opened: Vec<Key>,
    /// Requests so far.
    served: u64,
    phase: Phase,
}

impl Driver<'_> {
    /// Ready when there are requests, or the connection has ended.
    fn poll(&mut self, context: &mut Context<'_>, port: u16) -> Poll<Option<End>> {
        let news = self.connection.poll_news(context, &mut self.opened);
        self.tell_refused();
        if let Poll::Ready(Some(end)) = news {
            return Poll::Ready(Some(end));
        }
        if self.phase == Phase::Handshake && self.connection.engine().is_some() {
            self.handshake_done(port);
        }
        self.check_heads(context);
        if !self.opened.is_empty() {
            if self.phase == Phase::Open {
                self.rest();
            }
            return Poll::Ready(None);
        }
        let is_kept = self.worker.keeps(&self.listening) && self.is_wanted() && !self.connection.is_left();
        if self.phase == Phase::Open && !is_kept {
            self.close();
        }
        self.poll_deadline(context)
    }

    /// Whether the listener has HTTP/3 still.
    fn is_wanted(&self) -> bool {
        self.worker.snapshot().listener(&self.listening).http3
    }

    /// Does what is due; ready when the connection is to end.
    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<Option<End>> {
        loop {
            let is_idle = self.connection.engine().is_none_or(|engine| engine.held() == 0);
            // What the client sent before it knew of the end is still served: it may not try that again by itself.
            if self.phase == Phase::Last && is_idle {
                return Poll::Ready(Some(End::Closed));
            }
            if self.deadline.poll(context).is_pending() {
                return Poll::Pending;
            }
            match self.phase {
                Phase::Handshake => {
                    let limit = self.worker.snapshot().plan.config.timeouts.client_header;
                    let why =
                        format!("it did not end within timeouts.client_header, {}", written_duration(limit));
                    return Poll::Ready(Some(End::Handshake(why)));
                }
                Phase::Open if is_idle && !self.was_busy.get() => self.close(),
                // It has been idle for a part of that time: now it has all of its own.
                Phase::Open if is_idle => self.rest(),
                Phase::Open => {
                    self.connection.ping();
                    self.rest();
                }
                Phase::Closing => self.conclude(),
                Phase::Last if self.worker.state.get() == State::Closing && is_idle => {
                    return Poll::Ready(Some(End::Closed));
                }
                Phase::Last => {
                    self.connection.ping();
                    self.deadline.set_idle(PING);
                }
            }
        }
    }

    /// Waits for requests, or for the end of those that are under way.
    fn rest(&self) {
        let is_idle =
            self.opened.is_empty() && self.connection.engine().is_none_or(|engine| engine.held() == 0);
        let keep_alive = self.worker.snapshot().ticks.keep_alive;
        self.was_busy.set(!is_idle);
        self.deadline.set_idle(if is_idle { keep_alive } else { keep_alive.min(PING) });
    }

    #[cold]
    fn handshake_done(&mut self, port: u16) {
        self.phase = Phase::Open;
        self.rest();
        let counters = &self.worker.counters;
        counters.http3_connections.increment();
        let local =
            self.connection.local_address().map_or(Ipv4Addr::UNSPECIFIED.into(), |ip| ip.to_canonical());
        self.destination = Some(OriginalConnection::at(SocketAddr::new(local, port)));
        let Some(agreed) = self.connection.agreed() else { return };
        if agreed.is_resumed { &counters.handshakes_resumed } else { &counters.handshakes }.increment();
        let snapshot = self.worker.snapshot();
        if let Some(tls) = &snapshot.listener(&self.listening).tls {
            self.tls = Some(Rc::new(ClientTls::new(agreed, tls.asked_for(None).clone())));
        }
    }

    /// A request has come: an exchange slot serves it, as it does those of HTTP/2.
    fn open(&mut self, key: Key) {
        let remote = self.connection.remote_address();
        let address = remote.ip().to_canonical();
        let snapshot = self.worker.snapshot();
        let client = Client {
            socket: Endpoint::Http3(Box::new(Stream::new(self.connection.clone(), key))),
            address,
            port: remote.port(),
            original_connection: self.destination.clone(),
            pinned: Cell::new(None),
            is_trusted: snapshot.plan.trusts(address),
            trusted_by: snapshot.plan.trust,
            listening: Rc::clone(&self.listening),
            tls: self.tls.clone(),
            peer: None,
            deadline: self.worker.deadlines.deadline(),
            totals: self.totals.shared(),
            served: 0,
        };
        tokio::task::spawn_local(http2::exchange(Rc::clone(self.worker), Box::new(client)));
        self.served += 1;
        let limit = snapshot.plan.config.limits.requests_per_connection;
        if limit.is_some_and(|limit| self.served >= limit) {
            self.close();
        }
    }

    /// RFC 9114 §5.2: what is under way is finished.
    fn close(&mut self) {
        if self.phase != Phase::Open {
            return;
        }
        self.phase = Phase::Closing;
        if let Some(mut engine) = self.connection.engine() {
            engine.close();
        }
        self.connection.stir();
        // Requests that were on their way by then have come.
        let Ticks(round_trip) = self.connection.round_trip();
        self.deadline.set_idle(Ticks(2 * round_trip));
    }

    /// Tells the client which request is the last. Otherwise it could go on asking for ever.
    fn conclude(&mut self) {
        self.phase = Phase::Last;
        if let Some(mut engine) = self.connection.engine() {
            engine.tell_last();
        }
        self.connection.stir();
        self.deadline.set_idle(PING);
    }

    /// Resets requests whose head took longer than a head may, and passes on those whose end may come at any time.
    fn check_heads(&mut self, context: &mut Context<'_>) {
        let limit = self.worker.snapshot().ticks.client_header;
        let now = self.worker.deadlines.now();
        loop {
            let awaited =
                self.connection.engine().map(|mut engine| (engine.head_since(), engine.end_awaited_since()));
            let (head, end) = awaited.unwrap_or_default();
            let is_late = |since: Option<u32>, limit: Ticks| since.filter(|since| now > since + limit.0);
            if let Some(since) = is_late(head, limit) {
                if let Some(mut engine) = self.connection.engine() {
                    engine.heads_are_late(since);
                }
                self.connection.stir();
                self.tell_refused();
                continue;
            }
            if let Some(since) = is_late(end, END) {
                self.connection.ends_are_late(since);
                continue;
            }
            let due = [head.map(|since| since + limit.0), end.map(|since| since + END.0)];
            let Some(due) = due.into_iter().flatten().min() else { return };
            self.lateness.set(Ticks(due.saturating_sub(now)));
            if self.lateness.poll(context).is_pending() {
                return;
            }
        }
    }

    /// Ends the connection, and says why.
    async fn end(&mut self, ended: &End) {
        match ended {
            End::Handshake(why) => {
                tell_handshake(self.worker, self.address(), why);
                self.connection.finish(Code::NO_ERROR, "");
            }
            End::Violated(why) => {
                self.worker.counters.failure(Failure::Http3Malformed as usize);
                self.log(Failure::Http3Malformed, why, self.entry());
                self.connection.finish(Code::GENERAL_PROTOCOL_ERROR, why);
            }
            End::Broken(broken) => {
                self.tell_broken(*broken);
                self.connection.finish(broken.code, broken.why());
            }
            End::Scattered => {
                let failure = Failure::Http3FragmentFlood;
                let why = "too many pieces with gaps between them";
                self.worker.counters.failure(failure as usize);
                let detail = format!("ended with {} for {why}", Code::EXCESSIVE_LOAD);
                message::warn(&format!(
                    "{} was disconnected: {}: {detail}",
                    self.address(),
                    failure.facts().word
                ));
                self.log(failure, &detail, self.entry());
                self.connection.finish(Code::EXCESSIVE_LOAD, why);
            }
            End::Closed | End::Unreachable => {
                self.deadline.set(LINGER);
                let acknowledged = poll_fn(|context| self.poll_acknowledged(context));
                let _ = self.deadline.guard(acknowledged).await;
                self.connection.finish(Code::NO_ERROR, "");
            }
        }
    }

    /// Ready when the client has all that it was sent, or is gone.
    fn poll_acknowledged(&self, context: &mut Context<'_>) -> Poll<()> {
        // What comes meanwhile is too late.
        let news = self.connection.poll_news(context, &mut Vec::new());
        let is_over = self.connection.is_over() || matches!(news, Poll::Ready(Some(_)));
        if is_over || self.connection.is_acknowledged() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Counts and logs requests that were refused before anybody saw them.
    fn tell_refused(&self) {
        for refused in &self.connection.take_refused() {
            let Refused { status, code, is_too_large, wrong, glimpse: [method, target, host] } = refused;
            let failure = match (*status, *code) {
                (0, Code::REQUEST_REJECTED) => Failure::Http3Excess,
                (0, Code::REQUEST_CANCELLED) => Failure::ClientHeaderTimeout,
                (0, _) => Failure::Http3Malformed,
                _ if *is_too_large => Failure::HeadTooLarge,
                _ => Failure::BadRequest,
            };
            self.worker.counters.failure(failure as usize);
            if *status > 0 {
                self.worker.counters.response(*status);
            }
            let detail = if *status > 0 { wrong.clone() } else { format!("reset with {code}: {wrong}") };
            self.log(failure, &detail, Entry { method, target, host, status: *status, ..self.entry() });
        }
    }

    /// Counts and logs why the connection ends, which is no request's doing.
    #[cold]
    fn tell_broken(&self, broken: Broken) {
        let failure = failure_of(broken);
        self.worker.counters.failure(failure as usize);
        let what = self.connection.engine().and_then(|engine| engine.offence().map(str::to_owned));
        let what = what.as_deref().unwrap_or("what was received");
        let detail = match broken.cause {
            Cause::Flood(flood) => {
                let limits = limits(self.worker, self.is_trusted());
                let bound = bound_of(flood, limits.floods);
                format!("ended with {} for {what}: more than {bound}", broken.code)
            }
            Cause::Malformed(_) => format!("ended with {} for {what}", broken.code),
        };
        if matches!(broken.cause, Cause::Flood(_)) {
            let word = failure.facts().word;
            message::warn(&format!("{} was disconnected: {word}: {detail}", self.address()));
        }
        self.log(failure, &detail, self.entry());
    }

    fn address(&self) -> IpAddr {
        self.connection.remote_address().ip().to_canonical()
    }

    fn is_trusted(&self) -> bool {
        self.worker.snapshot().plan.trusts(self.address())
    }

    /// What the log tells of the client.
    fn entry(&self) -> Entry<'static> {
        Entry::new(self.address())
    }

    /// Logs what happened to a connection, or to a request on it.
    fn log(&self, failure: Failure, detail: &str, entry: Entry<'_>) {
        let tls = self.tls.as_deref().map(ClientTls::entry).unwrap_or_default();
        log(self.worker, failure, detail, Entry { more: &More { tls, ..More::NONE }, ..entry });
    }
}

/// Counts and tells of a handshake that has failed, in the log or, without one, among the messages.
#[cold]
pub(crate) fn tell_handshake(worker: &Worker, address: IpAddr, why: &str) {
    let failure = Failure::ClientHandshake;
    worker.counters.handshake_failures.increment();
    worker.counters.failure(failure as usize);
    let Some(more) = worker.handshake_notices.next(worker.deadlines.second()) else { return };
    let mut detail = why.to_owned();
    if more > 0 {
        detail += &format!("; {more} more handshakes failed before and are not told of");
    }
    if !log(worker, failure, &detail, Entry::new(address)) {
        let word = failure.facts().word;
        message::warn(&format!("{address}: {word}: QUIC handshake failed: {detail}"));
    }
}

/// Returns whether there is a log.
fn log(worker: &Worker, failure: Failure, detail: &str, entry: Entry<'_>) -> bool {
    let mut log = worker.log.borrow_mut();
    let Some(log) = log.as_mut() else { return false };
    let entry = Entry {
        version: Some(telemetry::Version(3, 0)),
        cause: Some(failure.facts().word),
        detail: Some(detail),
        ..entry
    };
    log.record(&entry, worker.wall_clock_at(Instant::now()));
    true
}

/// What a client is disconnected for.
fn failure_of(broken: Broken) -> Failure {
    match broken.cause {
        Cause::Malformed(_) if broken.code == Code::EXCESSIVE_LOAD => Failure::Http3Excess,
        Cause::Malformed(_) => Failure::Http3Malformed,
        Cause::Flood(Flood::Resets) => Failure::Http3ResetFlood,
        Cause::Flood(Flood::Errors) => Failure::Http3Excess,
        Cause::Flood(Flood::Priorities) => Failure::Http3PriorityFlood,
        Cause::Flood(Flood::EmptyFrames) => Failure::Http3EmptyFrameFlood,
        Cause::Flood(Flood::Insertions) => Failure::Http3InsertionFlood,
        Cause::Flood(Flood::Overhead) => Failure::Http3OverheadFlood,
    }
}

/// The bound that a flood has met: an option and its value, or a limit that no option changes.
fn bound_of(flood: Flood, floods: FloodLimits) -> String {
    let limit = floods.of(flood);
    let option = match flood {
        Flood::Resets => "resets_per_second",
        Flood::Errors => "errors_per_second",
        Flood::Priorities => "priorities_per_second",
        Flood::EmptyFrames => "empty_frames_per_second",
        Flood::Insertions => return format!("{limit} insertions into the dynamic table per second"),
        Flood::Overhead => return format!("{limit} frames and streams without meaning per second"),
    };
    format!("limits.http2.{option}, {limit}")
}
