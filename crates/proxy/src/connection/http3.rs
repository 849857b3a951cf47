//! A client's HTTP/3 connection (RFC 9114): each stream is an exchange on the usual path.
//!
//! The listener's endpoint receives and sends for it. This module starts its requests and decides when it ends.

use std::cell::{Cell, OnceCell};
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use config::written_duration;
use http3::{Flood, FloodLimits, H3Broken, H3Code, H3ErrorCause, H3Limits, H3Refused, Key};
use telemetry::{LogEntry, More, message};
use tls::HandshakeFault;
use transport::buffer::TINY;
use transport::deadline::{Deadline, Ticks};
use transport::endpoint::MessageEndpoint;
use transport::h3_connection::{H3Connection, H3ConnectionEnd, LONG_HEADS_MAX, STREAMS_MAX, TOO_SCATTERED};
use transport::h3_stream::H3Stream;

use crate::connection::client::Count;
use crate::connection::{http2, refused_handshake};
use crate::context::client::FrontConnection;
use crate::context::client_tls::ClientTls;
use crate::context::original_connection::OriginalConnection;
use crate::context::worker::{Worker, WorkerPhase};
use crate::failure::Failure;
use crate::listening::Listening;
use crate::shaping::ConnectionTotals;
use crate::shared::concurrency::Counted;

/// Requests that are held at once, including those that wait for acknowledgments.
const HELD_MAX: usize = 2 * STREAMS_MAX as usize;
/// Unread bytes of one request body, beside what QUIC holds. Less than `BODIES_MAX`, so that a request whose server
/// reads nothing does not block the others.
const BODY_MAX: usize = 48 * 1024;
/// Unread bytes of all request bodies of a connection.
const BODIES_MAX: usize = 64 * 1024;
/// Capacity of the QPACK dynamic table (RFC 9204 §3.2), equal to HPACK's default.
const TABLE_BYTES: usize = 4096;
/// Streams that may wait for insertions into the dynamic table.
const BLOCKED_MAX: usize = 16;
/// Time for the client to acknowledge the last data.
const LINGER: Ticks = Ticks(20);
/// Time that a GET without the end of its stream is held back, because the end may come in the next datagram.
const END: Ticks = Ticks(1);
/// Interval of pings to a client with requests under way.
const PING: Ticks = Ticks(100);

/// Returns the limits of a client's connection.
pub(crate) fn limits(worker: &Worker, is_trusted: bool) -> H3Limits {
    let snapshot = worker.snapshot();
    let of_http2 = snapshot.plan.config.limits.http2;
    // A trusted proxy's connection carries the requests of many clients.
    let factor = if is_trusted { of_http2.trusted_factor } else { 1 };
    let shared = of_http2.for_is_trusted(is_trusted);
    H3Limits {
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

/// Serves an HTTP/3 connection until it has ended: the body of its task. `port` is the listener's; `_counted` counts the
/// connection for its client.
pub(crate) async fn serve(
    worker: Rc<Worker>,
    listening: Rc<Listening>,
    connection: H3Connection,
    port: u16,
    _counted: Option<Counted>,
) {
    let _count = Count::new(&worker);
    let mut driver = H3Driver {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Handshake,
    Open,
    /// The first GOAWAY was sent.
    Closing,
    /// The GOAWAY that names the last request was sent.
    Last,
}

struct H3Driver<'a> {
    worker: &'a Rc<Worker>,
    connection: H3Connection,
    listening: Rc<Listening>,
    tls: Option<Rc<ClientTls>>,
    totals: ConnectionTotals,
    /// The address that the client has connected to.
    destination: Option<Rc<OriginalConnection>>,
    deadline: Deadline,
    /// Whether requests were under way when the deadline was set: the engine does not report the end of the last one.
    was_busy: Cell<bool>,
    /// The time-out for incomplete heads.
    lateness: Deadline,
    /// New requests since the last poll.
    opened: Vec<Key>,
    served: u64,
    phase: Phase,
}

impl H3Driver<'_> {
    /// Ready when there are new requests, or the connection has ended.
    fn poll(&mut self, context: &mut Context<'_>, port: u16) -> Poll<Option<H3ConnectionEnd>> {
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

    /// Whether the listener still has HTTP/3.
    fn is_wanted(&self) -> bool {
        self.worker.snapshot().listener(&self.listening).http3
    }

    /// Handles the deadline. Ready when the connection is to end.
    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<Option<H3ConnectionEnd>> {
        loop {
            let is_idle = self.connection.engine().is_none_or(|engine| engine.held() == 0);
            // Requests that the client sent before it received GOAWAY are still served: it might not repeat them.
            if self.phase == Phase::Last && is_idle {
                return Poll::Ready(Some(H3ConnectionEnd::Closed));
            }
            if self.deadline.poll(context).is_pending() {
                return Poll::Pending;
            }
            match self.phase {
                Phase::Handshake => {
                    let limit = self.worker.snapshot().plan.config.timeouts.client_header;
                    let why =
                        format!("it did not end within timeouts.client_header, {}", written_duration(limit));
                    return Poll::Ready(Some(H3ConnectionEnd::Handshake(HandshakeFault::Other, why)));
                }
                Phase::Open if is_idle && !self.was_busy.get() => self.close(),
                // The connection was idle for part of that time only: a full idle time-out begins now.
                Phase::Open if is_idle => self.rest(),
                // A ping shows whether the client of the requests under way still answers.
                Phase::Open => {
                    self.connection.ping();
                    self.rest();
                }
                Phase::Closing => self.conclude(),
                Phase::Last if self.worker.state.get() == WorkerPhase::Closing && is_idle => {
                    return Poll::Ready(Some(H3ConnectionEnd::Closed));
                }
                Phase::Last => {
                    self.connection.ping();
                    self.deadline.set_idle(PING);
                }
            }
        }
    }

    /// Starts the idle time-out, or the next check of the requests under way.
    fn rest(&self) {
        let is_idle =
            self.opened.is_empty() && self.connection.engine().is_none_or(|engine| engine.held() == 0);
        let keep_alive = self.worker.snapshot().ticks.keep_alive;
        self.was_busy.set(!is_idle);
        self.deadline.set_idle(if is_idle { keep_alive } else { keep_alive.min(PING) });
    }

    /// Starts the idle time-out, counts the handshake, and notes its addresses and certificate. Called once, when it is
    /// complete.
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

    /// Starts a request: an exchange slot serves its stream, as in HTTP/2.
    fn open(&mut self, key: Key) {
        // Read for each request, because clients may move to another address (RFC 9000 §9). Trust follows the
        // address.
        let remote = self.connection.remote_address();
        let address = remote.ip().to_canonical();
        let snapshot = self.worker.snapshot();
        let client = FrontConnection {
            socket: MessageEndpoint::Http3(Box::new(H3Stream::new(self.connection.clone(), key))),
            address,
            port: remote.port(),
            original_connection: self.destination.clone(),
            local: OnceCell::new(),
            pinned: Cell::new(None),
            is_trusted: snapshot.plan.trusts(address),
            trusted_by: snapshot.plan.trust,
            listening: Rc::clone(&self.listening),
            tls: self.tls.clone(),
            peer: None,
            deadline: self.worker.deadlines.deadline(),
            is_tunnel: Cell::new(false),
            is_overdue: Cell::new(false),
            totals: self.totals.shared(),
            served: 0,
        };
        tokio::task::spawn_local(http2::serve_stream(Rc::clone(self.worker), Box::new(client)));
        self.served += 1;
        let limit = snapshot.plan.config.limits.requests_per_connection;
        if limit.is_some_and(|limit| self.served >= limit) {
            self.close();
        }
    }

    /// Begins a graceful shutdown (RFC 9114 §5.2): requests under way are finished.
    fn close(&mut self) {
        if self.phase != Phase::Open {
            return;
        }
        self.phase = Phase::Closing;
        if let Some(mut engine) = self.connection.engine() {
            engine.close();
        }
        self.connection.stir();
        // After two round trips, requests that were on their way have arrived.
        let Ticks(round_trip) = self.connection.round_trip();
        self.deadline.set_idle(Ticks(2 * round_trip));
    }

    /// Sends the GOAWAY that names the last request. Otherwise the client could send requests forever.
    fn conclude(&mut self) {
        self.phase = Phase::Last;
        if let Some(mut engine) = self.connection.engine() {
            engine.tell_last();
        }
        self.connection.stir();
        self.deadline.set_idle(PING);
    }

    /// Resets requests whose head took too long, and starts those that only lack the end of their stream.
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
            // One deadline serves both, set to the earlier time.
            let due = [head.map(|since| since + limit.0), end.map(|since| since + END.0)];
            let Some(due) = due.into_iter().flatten().min() else { return };
            self.lateness.set(Ticks(due.saturating_sub(now)));
            if self.lateness.poll(context).is_pending() {
                return;
            }
        }
    }

    /// Ends the connection, and logs the reason.
    async fn end(&mut self, ended: &H3ConnectionEnd) {
        match ended {
            H3ConnectionEnd::Handshake(fault, why) => {
                tell_handshake(self.worker, self.address(), *fault, why);
                self.connection.finish(H3Code::NO_ERROR, "");
            }
            H3ConnectionEnd::Violated(why) => {
                self.worker.counters.failure(Failure::Http3Malformed as usize);
                self.log(Failure::Http3Malformed, why, self.entry());
                self.connection.finish(H3Code::GENERAL_PROTOCOL_ERROR, why);
            }
            H3ConnectionEnd::Broken(broken) => {
                self.tell_broken(*broken);
                self.connection.finish(broken.code, broken.why());
            }
            H3ConnectionEnd::Scattered => {
                let failure = Failure::Http3FragmentFlood;
                self.worker.counters.failure(failure as usize);
                let detail = format!("ended with {} for {TOO_SCATTERED}", H3Code::EXCESSIVE_LOAD);
                message::warn(&format!(
                    "{} was disconnected: {}: {detail}",
                    self.address(),
                    failure.facts().word
                ));
                self.log(failure, &detail, self.entry());
                self.connection.finish(H3Code::EXCESSIVE_LOAD, TOO_SCATTERED);
            }
            // The last packets may be lost: they are sent again until the client has acknowledged them.
            H3ConnectionEnd::Closed | H3ConnectionEnd::Told(_) | H3ConnectionEnd::Unreachable => {
                self.deadline.set(LINGER);
                let acknowledged = poll_fn(|context| self.poll_acknowledged(context));
                let _ = self.deadline.guard(acknowledged).await;
                self.connection.finish(H3Code::NO_ERROR, "");
            }
        }
    }

    /// Ready when the client has acknowledged everything, or is gone.
    fn poll_acknowledged(&self, context: &mut Context<'_>) -> Poll<()> {
        // Requests that arrive now are too late.
        let news = self.connection.poll_news(context, &mut Vec::new());
        let is_over = self.connection.is_over() || matches!(news, Poll::Ready(Some(_)));
        if is_over || self.connection.is_acknowledged() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Counts and logs requests that were rejected before they reached the path.
    fn tell_refused(&self) {
        for refused in &self.connection.take_refused() {
            let H3Refused { status, code, is_too_large, wrong, glimpse: [method, target, host] } = refused;
            let failure = match (*status, *code) {
                _ if *is_too_large => Failure::HeadTooLarge,
                (0, H3Code::REQUEST_REJECTED) => Failure::Http3Excess,
                (0, H3Code::REQUEST_CANCELLED) => Failure::ClientHeaderTimeout,
                (0, _) => Failure::Http3Malformed,
                _ => Failure::BadRequest,
            };
            self.worker.counters.failure(failure as usize);
            if *status > 0 {
                self.worker.counters.response(*status);
            }
            let detail = if *status > 0 { wrong.clone() } else { format!("reset with {code}: {wrong}") };
            self.log(failure, &detail, LogEntry { method, target, host, status: *status, ..self.entry() });
        }
    }

    /// Counts and logs why the connection ends, if no request caused it.
    #[cold]
    fn tell_broken(&self, broken: H3Broken) {
        let failure = failure_of(broken);
        self.worker.counters.failure(failure as usize);
        let what = self.connection.engine().and_then(|engine| engine.offence().map(str::to_owned));
        let what = what.as_deref().unwrap_or("the received data");
        let detail = match broken.cause {
            H3ErrorCause::Flood(flood) => {
                let limits = limits(self.worker, self.is_trusted());
                let bound = bound_of(flood, limits.floods);
                format!("ended with {} for {what}: more than {bound}", broken.code)
            }
            H3ErrorCause::Malformed(_) => format!("ended with {} for {what}", broken.code),
        };
        if matches!(broken.cause, H3ErrorCause::Flood(_)) {
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

    /// Returns a log entry with the client's fields.
    fn entry(&self) -> LogEntry<'static> {
        LogEntry::new(self.address())
    }

    /// Logs an event of the connection, or of a request on it.
    fn log(&self, failure: Failure, detail: &str, entry: LogEntry<'_>) {
        let tls = self.tls.as_deref().map(ClientTls::entry).unwrap_or_default();
        log(self.worker, failure, detail, LogEntry { more: &More { tls, ..More::NONE }, ..entry });
    }
}

/// Counts a failed handshake, and reports it in the access log or, without one, on standard error.
#[cold]
pub(crate) fn tell_handshake(worker: &Worker, address: IpAddr, fault: HandshakeFault, why: &str) {
    let failure = Failure::of_client_handshake(fault);
    worker.counters.handshake_failures.increment();
    worker.counters.failure(failure as usize);
    // Any client can fail handshakes at will, so their lines are limited per second.
    let Some(more) = worker.handshake_notices.next(worker.deadlines.second()) else { return };
    let detail = refused_handshake::with_omitted(why.to_owned(), more);
    if !log(worker, failure, &detail, LogEntry::new(address)) {
        let word = failure.facts().word;
        message::warn(&format!("{address}: {word}: QUIC handshake failed: {detail}"));
    }
}

/// Writes an entry. Returns whether there is a log.
fn log(worker: &Worker, failure: Failure, detail: &str, entry: LogEntry<'_>) -> bool {
    let mut log = worker.log.borrow_mut();
    let Some(log) = log.as_mut() else { return false };
    let entry = LogEntry {
        version: Some(telemetry::LoggedVersion(3, 0)),
        cause: Some(failure.facts().word),
        detail: Some(detail),
        ..entry
    };
    log.record(&entry, worker.wall_clock_at(Instant::now()));
    true
}

/// Returns the failure that a broken connection is counted and logged as.
fn failure_of(broken: H3Broken) -> Failure {
    match broken.cause {
        H3ErrorCause::Malformed(_) if broken.code == H3Code::EXCESSIVE_LOAD => Failure::Http3Excess,
        H3ErrorCause::Malformed(_) => Failure::Http3Malformed,
        H3ErrorCause::Flood(Flood::Resets) => Failure::Http3ResetFlood,
        H3ErrorCause::Flood(Flood::Errors) => Failure::Http3Excess,
        H3ErrorCause::Flood(Flood::Priorities) => Failure::Http3PriorityFlood,
        H3ErrorCause::Flood(Flood::EmptyFrames) => Failure::Http3EmptyFrameFlood,
        H3ErrorCause::Flood(Flood::Insertions) => Failure::Http3InsertionFlood,
        H3ErrorCause::Flood(Flood::Overhead) => Failure::Http3OverheadFlood,
    }
}

/// Describes the limit that a flood has exceeded: an option and its value, or a fixed limit.
fn bound_of(flood: Flood, floods: FloodLimits) -> String {
    let limit = floods.for_flood(flood);
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
