//! A client's HTTP/2 connection (RFC 9113): each stream is an exchange on the usual path.
//!
//! Limits keep the cost of one connection low.

use std::cell::{Cell, OnceCell};
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use http2::{
    BLOCK_FRAMES_MAX, Flood, FloodLimits, H2Broken, H2ErrorCause, H2Limits, H2Refused, H2Role, Key,
    PAYLOAD_MAX, Reason, STREAM_WINDOW, WireScheme,
};
use telemetry::message;
use telemetry::{LogEntry, More};

use crate::context::client::{FrontConnection, Introduction};
use crate::context::client_tls::ClientTls;
use crate::context::exchange_slot::SlotKind;
use crate::context::original_connection::OriginalConnection;
use crate::context::worker::Worker;
use crate::failure::Failure;
use crate::listening::Listening;
use transport::buffer::TINY;
use transport::deadline::{Deadline, Ticks};
use transport::endpoint::MessageEndpoint;
use transport::h2_connection::{H2Connection, H2ConnectionEnd};
use transport::h2_stream::H2Stream;

/// Streams that a client may have open at once. RFC 9113 §6.5.2 recommends at least 100.
const STREAMS_MAX: u32 = 100;
/// Initial window of a connection: bytes that a client may send on all streams together before the path reads any.
const CONNECTION_WINDOW: u32 = 4 * STREAM_WINDOW;
/// Bytes that the heads of all streams may take beyond the buffers that each stream has anyway.
// A share of the 1 MiB that one hostile connection may cost. A test measures the whole.
const LONG_HEADS_MAX: usize = 192 * 1024;

/// Time for the client to close after GOAWAY, so that it can read the last frames before a reset.
const LINGER: Ticks = Ticks(20);

/// Serves an HTTP/2 connection until it has ended: called by the connection's task after the preface or ALPN. `early`
/// is the data already read.
pub(crate) async fn serve(worker: Rc<Worker>, client: FrontConnection, early: Vec<u8>) {
    // Streams cannot ask the socket for its address, so it is noted here.
    let original_connection =
        client.original_connection.clone().or_else(|| Some(OriginalConnection::by(&client.socket)));
    let FrontConnection {
        socket,
        address,
        port,
        is_trusted,
        trusted_by,
        listening,
        tls,
        deadline,
        totals,
        ..
    } = client;
    // A stream never carries another connection, so a slot that serves one never finds HTTP/2 in it.
    let MessageEndpoint::Connection(connection) = socket else { return };
    let is_for_peers = worker.snapshot().listener(&listening).is_for_peers;
    let limits = limits(&worker, is_trusted || is_for_peers);
    let frames = Rc::clone(&worker.frames);
    let h2_connection =
        H2Connection::new(frames, Rc::clone(&worker.deadlines), connection, H2Role::Server, limits);
    let mut driver = H2Driver {
        worker: &worker,
        h2_connection,
        listening: Rc::clone(&listening),
        address,
        tls: tls.clone(),
        floods: limits.floods,
        deadline,
        late: None,
        opened: Vec::new(),
        served: 0,
        has_begun: false,
        was_busy: false,
        is_closing: false,
    };
    let mut ended = driver.begin(early);
    while ended.is_none() {
        let end = poll_fn(|context| driver.poll(context)).await;
        for key in std::mem::take(&mut driver.opened) {
            driver.count();
            let stream = H2Stream::new(driver.h2_connection.clone(), key, WireScheme::Http);
            let client = FrontConnection {
                socket: MessageEndpoint::Stream(Box::new(stream)),
                address,
                port,
                original_connection: original_connection.clone(),
                local: OnceCell::new(),
                pinned: Cell::new(None),
                is_trusted,
                trusted_by,
                listening: Rc::clone(&listening),
                tls: tls.clone(),
                peer: is_for_peers.then_some(Introduction::Awaited),
                deadline: worker.deadlines.deadline(),
                is_tunnel: Cell::new(false),
                is_overdue: Cell::new(false),
                totals: totals.shared(),
                served: 0,
            };
            tokio::task::spawn_local(serve_stream(Rc::clone(&worker), Box::new(client)));
        }
        ended = end;
    }
    finish(driver, ended).await;
}

/// Ends a connection: says why if it is broken, else waits for the rest of what the client sends.
async fn finish(driver: H2Driver<'_>, ended: Option<H2ConnectionEnd>) {
    if let Some(H2ConnectionEnd::Broken(broken)) = ended {
        if let Some(failure) = failure_of(broken) {
            driver.tell_broken(broken, failure);
        }
        driver.h2_connection.finish(Some(broken.reason), broken.why());
    } else {
        driver.h2_connection.finish(None, "");
        driver.deadline.set(LINGER);
        let mut reads = 0;
        let rest = poll_fn(|context| driver.h2_connection.poll_rest(context, &mut reads));
        let _ = driver.deadline.guard(rest).await;
    }
    driver.h2_connection.reset_if_unsent();
}

/// Returns the limits of a client's connection.
fn limits(worker: &Worker, is_trusted: bool) -> H2Limits {
    let snapshot = worker.snapshot();
    H2Limits {
        streams: STREAMS_MAX,
        connection_window: CONNECTION_WINDOW,
        head_bytes: snapshot.head_limits.bytes,
        short_head_bytes: TINY,
        long_heads_bytes: LONG_HEADS_MAX,
        floods: snapshot.plan.config.limits.http2.for_is_trusted(is_trusted),
    }
}

/// Returns the failure that a broken connection is counted and logged as; `None` if it ended without an error.
fn failure_of(H2Broken { reason, cause }: H2Broken) -> Option<Failure> {
    Some(match cause {
        H2ErrorCause::Malformed(_) if reason == Reason::NO_ERROR => return None,
        H2ErrorCause::Malformed(_) => Failure::Http2Malformed,
        H2ErrorCause::Late => Failure::ClientHeaderTimeout,
        H2ErrorCause::Flood(Flood::Resets) => Failure::ResetFlood,
        H2ErrorCause::Flood(Flood::Settings) => Failure::SettingsFlood,
        H2ErrorCause::Flood(Flood::Pings) => Failure::PingFlood,
        H2ErrorCause::Flood(Flood::Priorities) => Failure::PriorityFlood,
        H2ErrorCause::Flood(Flood::EmptyFrames) => Failure::EmptyFrameFlood,
        H2ErrorCause::Flood(Flood::Overhead) => Failure::OverheadFlood,
        H2ErrorCause::Flood(Flood::Errors | Flood::HeaderBlock | Flood::ResetStreams) => Failure::Http2Excess,
    })
}

/// Describes the limit that a flood has exceeded: an option and its value, or a fixed limit.
fn bound_of(flood: Flood, floods: FloodLimits, header_bytes: usize) -> String {
    let option = match flood {
        Flood::Resets => "resets_per_second",
        Flood::Settings => "settings_per_second",
        Flood::Pings => "pings_per_second",
        Flood::Priorities => "priorities_per_second",
        Flood::EmptyFrames => "empty_frames_per_second",
        Flood::Errors => "errors_per_second",
        Flood::Overhead => "overhead_per_second",
        Flood::HeaderBlock => {
            let bytes = header_bytes + PAYLOAD_MAX;
            return format!(
                "{BLOCK_FRAMES_MAX} frames for a head, or limits.header_bytes and a frame, {bytes} bytes"
            );
        }
        Flood::ResetStreams => {
            return format!("{} streams that were reset and not yet released", 2 * STREAMS_MAX);
        }
    };
    let limit = floods.for_flood(flood).unwrap_or(u32::MAX);
    format!("limits.http2.{option}, {limit}")
}

/// Drives a client's connection: reads frames, starts streams, keeps deadlines.
struct H2Driver<'a> {
    worker: &'a Worker,
    h2_connection: H2Connection,
    listening: Rc<Listening>,
    address: IpAddr,
    tls: Option<Rc<ClientTls>>,
    floods: FloodLimits,
    deadline: Deadline,
    /// The tick at which an incomplete header block began, and its deadline.
    late: Option<(u32, Deadline)>,
    /// New requests since the last poll.
    opened: Vec<Key>,
    served: u64,
    has_begun: bool,
    /// Whether requests were under way at the last poll.
    was_busy: bool,
    is_closing: bool,
}

impl H2Driver<'_> {
    /// Processes what was already read of the connection. Returns its end, if it has ended.
    fn begin(&mut self, early: Vec<u8>) -> Option<H2ConnectionEnd> {
        // Until the client's preface has come, the time-out for heads applies.
        self.deadline.set(self.worker.snapshot().ticks.client_header);
        if early.is_empty() {
            // ALPN chose HTTP/2, so our SETTINGS can leave with the end of the handshake.
            self.h2_connection.engine().begin();
        }
        self.h2_connection.take_in(&early, &mut self.opened).err()
    }

    /// Ready when there are new requests, or the connection has ended. Polled whenever the socket or a stream wakes the
    /// task.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<H2ConnectionEnd>> {
        let driven = self.h2_connection.poll_drive(context, u32::MAX, &mut self.opened);
        // Reported even if the connection ends now: these lines may explain the end.
        let refused = self.h2_connection.engine().take_refused();
        if !refused.is_empty() {
            self.tell_refused(&refused);
        }
        if let Poll::Ready(end) = driven {
            return Poll::Ready(Some(end));
        }
        if self.is_late(context) {
            return Poll::Ready(Some(H2ConnectionEnd::Broken(self.h2_connection.engine().head_is_late())));
        }
        if !self.has_begun && self.h2_connection.engine().has_begun() {
            self.has_begun = true;
            self.worker.counters.http2_connections.increment();
            self.rest();
        }
        // The last request has ended, and its stream has woken this task: idle time begins.
        let is_idle = self.h2_connection.engine().held() == 0;
        if std::mem::replace(&mut self.was_busy, !is_idle) && is_idle {
            self.rest();
        }
        if !self.opened.is_empty() {
            self.rest();
            return Poll::Ready(None);
        }
        if self.h2_connection.is_key_exhausted()
            || self.h2_connection.is_left()
            || !self.worker.keeps(&self.listening)
        {
            self.close();
        }
        loop {
            let is_idle = self.h2_connection.engine().held() == 0;
            // Requests that the client sent before it received GOAWAY are still served: it would not repeat them
            // automatically.
            if self.is_closing && is_idle && self.h2_connection.engine().has_told_last() {
                return Poll::Ready(Some(H2ConnectionEnd::Closed));
            }
            if self.deadline.poll(context).is_pending() {
                return Poll::Pending;
            }
            if !self.has_begun || (self.is_closing && is_idle) {
                return Poll::Ready(Some(H2ConnectionEnd::Closed));
            }
            if is_idle {
                self.close();
            } else {
                self.conclude();
                self.deadline.set_idle(self.worker.snapshot().ticks.keep_alive);
            }
        }
    }

    /// Starts the idle time-out. After GOAWAY it is not extended, so a client cannot prolong the connection with
    /// further requests.
    fn rest(&self) {
        if !self.is_closing {
            self.deadline.set_idle(self.worker.snapshot().ticks.keep_alive);
        }
    }

    /// Whether a header block takes longer than the time-out for heads.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let Some(since) = self.h2_connection.engine().head_since() else {
            self.late = None;
            return false;
        };
        // Armed once for each header block: further frames must not prolong it.
        if self.late.as_ref().is_none_or(|(armed, _)| *armed != since) {
            let deadline = self.worker.deadlines.deadline();
            let passed = self.worker.deadlines.now() - since;
            let limit = self.worker.snapshot().ticks.client_header;
            deadline.set(Ticks(limit.0.saturating_sub(passed)));
            self.late = Some((since, deadline));
        }
        self.late.as_ref().is_some_and(|(_, deadline)| deadline.poll(context).is_ready())
    }

    /// Counts and logs requests that were rejected before they reached the path.
    #[cold]
    fn tell_refused(&self, refused: &[H2Refused]) {
        for H2Refused { status, reason, is_too_large, wrong, glimpse: [method, target, host] } in refused {
            let failure = match (*status, *reason) {
                _ if *is_too_large => Failure::HeadTooLarge,
                (0, Reason::REFUSED_STREAM) => Failure::Http2Excess,
                (0, _) => Failure::Http2Malformed,
                _ => Failure::BadRequest,
            };
            self.worker.counters.failure(failure as usize);
            if *status > 0 {
                self.worker.counters.response(*status);
            }
            // Without a status the stream was reset, so the log has its code.
            let detail = if *status > 0 { wrong.clone() } else { format!("reset with {reason}: {wrong}") };
            self.log(failure, &detail, LogEntry { method, target, host, status: *status, ..self.entry() });
        }
    }

    /// Counts and logs why the connection ends, if no request caused it.
    #[cold]
    fn tell_broken(&self, broken: H2Broken, failure: Failure) {
        self.worker.counters.failure(failure as usize);
        let engine = self.h2_connection.engine();
        let what = engine.offence().unwrap_or("the received data");
        let detail = match broken.cause {
            H2ErrorCause::Late => {
                let limit = self.worker.snapshot().plan.config.timeouts.client_header;
                format!("only {what} arrived within timeouts.client_header, {limit:?}")
            }
            H2ErrorCause::Flood(flood) => {
                let bound = bound_of(flood, self.floods, self.worker.snapshot().head_limits.bytes);
                format!("ended with {} for {what}: more than {bound}", broken.reason)
            }
            H2ErrorCause::Malformed(_) => format!("ended with {} for {what}", broken.reason),
        };
        drop(engine);
        if matches!(broken.cause, H2ErrorCause::Flood(_)) {
            message::warn(&format!("{} was disconnected: {}: {detail}", self.address, failure.facts().word));
        }
        self.log(failure, &detail, self.entry());
    }

    /// Returns a log entry with the client's fields.
    fn entry(&self) -> LogEntry<'static> {
        LogEntry::new(self.address)
    }

    /// Logs an event of the connection, or of a request on it.
    fn log(&self, failure: Failure, detail: &str, entry: LogEntry<'_>) {
        if let Some(log) = self.worker.log.borrow_mut().as_mut() {
            let tls = self.tls.as_deref().map(ClientTls::entry).unwrap_or_default();
            let entry = LogEntry {
                version: Some(telemetry::LoggedVersion(2, 0)),
                cause: Some(failure.facts().word),
                detail: Some(detail),
                more: &More { tls, ..More::NONE },
                ..entry
            };
            log.record(&entry, self.worker.wall_clock_at(Instant::now()));
        }
    }

    /// Counts a request, which may be the last one allowed.
    fn count(&mut self) {
        self.served += 1;
        // The limit of the plan in force, which may be newer than the connection.
        let limit = self.worker.snapshot().plan.config.limits.requests_per_connection;
        if limit.is_some_and(|limit| self.served >= limit) {
            self.close();
        }
    }

    /// Begins a graceful shutdown with GOAWAY (RFC 9113 §6.8): requests under way are finished.
    fn close(&mut self) {
        if !self.is_closing {
            self.is_closing = true;
            self.deadline.set_idle(self.worker.snapshot().ticks.client_header);
            self.h2_connection.engine().close();
            // Wakes the connection's task, which sends the frame.
            self.h2_connection.stir();
        }
    }

    /// Sends the final GOAWAY, which names the last request. Called when a client has not reacted to the first one in
    /// time: otherwise it could send requests forever.
    fn conclude(&mut self) {
        if self.is_closing {
            self.h2_connection.engine().tell_last();
            self.h2_connection.stir();
        }
    }
}

/// The body of a stream's task: an exchange slot serves it like an HTTP/1 connection.
pub(crate) async fn serve_stream(worker: Rc<Worker>, client: Box<FrontConnection>) {
    let mut slot = worker.slots.take(&worker, SlotKind::Stream);
    slot.hand_over(client);
    drop(slot.served().await);
    worker.slots.give(slot);
}
