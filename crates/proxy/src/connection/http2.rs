//! A client's HTTP/2 connection (RFC 9113): each stream is an exchange on the usual path.
//!
//! Limits keep one connection from costing more than it is worth.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use http2::{
    BLOCK_FRAMES_MAX, Broken, Cause, Flood, FloodLimits, Key, Limits, PAYLOAD_MAX, Reason, Refused, Role,
    STREAM_WINDOW, Scheme,
};
use telemetry::message;
use telemetry::{Entry, More};

use crate::context::client::{Client, Introduction};
use crate::context::client_tls::ClientTls;
use crate::context::exchange_slot::Kind;
use crate::context::failure::Failure;
use crate::context::listening::Listening;
use crate::context::original_connection::OriginalConnection;
use crate::context::worker::Worker;
use transport::buffer::TINY;
use transport::deadline::{Deadline, Ticks};
use transport::endpoint::Endpoint;
use transport::h2_connection::{End, H2Connection};
use transport::h2_stream::Stream;

/// Streams that a client may have open at once (RFC 9113 §6.5.2 recommends no fewer).
const STREAMS_MAX: u32 = 100;
/// What a client may send at first before the path has taken any of it, on all streams of a connection together.
const CONNECTION_WINDOW: u32 = 4 * STREAM_WINDOW;
/// What the heads of all streams that are under way take beyond the buffers that each has anyway.
const LONG_HEADS_MAX: usize = 192 * 1024;

/// How long a client may take to close, so that it gets to see the last words before a reset.
const LINGER: Ticks = Ticks(20);

/// Serves an HTTP/2 connection until it has ended. `early` is what was already read of it.
pub(crate) async fn serve(worker: Rc<Worker>, client: Client, early: Vec<u8>) {
    // The connection's own address is out of its streams' reach.
    let original_connection =
        client.original_connection.clone().or_else(|| Some(OriginalConnection::by(&client.socket)));
    let Client { socket, address, port, is_trusted, trusted_by, listening, tls, deadline, totals, .. } =
        client;
    // A stream carries no connection: whoever reads a request from a stream never finds HTTP/2 in it.
    let Endpoint::Connection(connection) = socket else { return };
    let is_for_peers = worker.snapshot().listener(&listening).is_for_peers;
    let limits = limits(&worker, is_trusted || is_for_peers);
    let frames = Rc::clone(&worker.frames);
    let h2_connection =
        H2Connection::new(frames, Rc::clone(&worker.deadlines), connection, Role::Server, limits);
    let mut driver = Driver {
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
            let client = Client {
                socket: Endpoint::Stream(Box::new(Stream::new(
                    driver.h2_connection.clone(),
                    key,
                    Scheme::Http,
                ))),
                address,
                port,
                original_connection: original_connection.clone(),
                pinned: Cell::new(None),
                is_trusted,
                trusted_by,
                listening: Rc::clone(&listening),
                tls: tls.clone(),
                peer: is_for_peers.then_some(Introduction::Awaited),
                deadline: worker.deadlines.deadline(),
                totals: totals.shared(),
                served: 0,
            };
            tokio::task::spawn_local(exchange(Rc::clone(&worker), Box::new(client)));
        }
        ended = end;
    }
    if let Some(End::Broken(broken)) = ended {
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

/// What a client's connection may cost.
fn limits(worker: &Worker, is_trusted: bool) -> Limits {
    let snapshot = worker.snapshot();
    Limits {
        streams: STREAMS_MAX,
        connection_window: CONNECTION_WINDOW,
        head_bytes: snapshot.head_limits.bytes,
        short_head_bytes: TINY,
        long_heads_bytes: LONG_HEADS_MAX,
        floods: snapshot.plan.config.limits.http2.of(is_trusted),
    }
}

/// What a client is disconnected for.
fn failure_of(Broken { reason, cause }: Broken) -> Option<Failure> {
    Some(match cause {
        Cause::Malformed(_) if reason == Reason::NO_ERROR => return None,
        Cause::Malformed(_) => Failure::Http2Malformed,
        Cause::Late => Failure::ClientHeaderTimeout,
        Cause::Flood(Flood::Resets) => Failure::ResetFlood,
        Cause::Flood(Flood::Settings) => Failure::SettingsFlood,
        Cause::Flood(Flood::Pings) => Failure::PingFlood,
        Cause::Flood(Flood::Priorities) => Failure::PriorityFlood,
        Cause::Flood(Flood::EmptyFrames) => Failure::EmptyFrameFlood,
        Cause::Flood(Flood::Overhead) => Failure::OverheadFlood,
        Cause::Flood(Flood::Errors | Flood::HeaderBlock | Flood::ResetStreams) => Failure::Http2Excess,
    })
}

/// The bound that a flood has met: an option and its value, or a limit that no option changes.
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
            return format!("{} streams that were reset and not yet let go of", 2 * STREAMS_MAX);
        }
    };
    let limit = floods.of(flood).unwrap_or(u32::MAX);
    format!("limits.http2.{option}, {limit}")
}

/// Whoever drives a client's connection.
struct Driver<'a> {
    worker: &'a Worker,
    h2_connection: H2Connection,
    listening: Rc<Listening>,
    address: IpAddr,
    tls: Option<Rc<ClientTls>>,
    floods: FloodLimits,
    deadline: Deadline,
    /// Of a header block that has begun, at this tick, and not ended.
    late: Option<(u32, Deadline)>,
    /// Requests that have come.
    opened: Vec<Key>,
    /// Requests so far.
    served: u64,
    has_begun: bool,
    /// Whether requests were under way when the driver looked last.
    was_busy: bool,
    is_closing: bool,
}

impl Driver<'_> {
    /// Takes in what was read of the connection already; says how it ended, if it did.
    fn begin(&mut self, early: Vec<u8>) -> Option<End> {
        self.deadline.set(self.worker.snapshot().ticks.client_header);
        if early.is_empty() {
            // Agreed on in the handshake, whose end leaves with these settings.
            self.h2_connection.engine().begin();
        }
        self.h2_connection.take_in(&early, &mut self.opened).err()
    }

    /// Ready when there are requests, or the connection has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<End>> {
        let driven = self.h2_connection.poll_drive(context, u32::MAX, &mut self.opened);
        let refused = self.h2_connection.engine().take_refused();
        if !refused.is_empty() {
            self.tell_refused(&refused);
        }
        if let Poll::Ready(end) = driven {
            return Poll::Ready(Some(end));
        }
        if self.is_late(context) {
            return Poll::Ready(Some(End::Broken(self.h2_connection.engine().head_is_late())));
        }
        if !self.has_begun && self.h2_connection.engine().has_begun() {
            self.has_begun = true;
            self.worker.counters.http2_connections.increment();
            self.rest();
        }
        // The last of its requests has ended, whose stream has woken this task: idle time begins.
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
            // What the peer sent before it knew of the end is still served: it does not try that again by itself.
            if self.is_closing && is_idle && self.h2_connection.engine().has_told_last() {
                return Poll::Ready(Some(End::Closed));
            }
            if self.deadline.poll(context).is_pending() {
                return Poll::Pending;
            }
            if !self.has_begun || (self.is_closing && is_idle) {
                return Poll::Ready(Some(End::Closed));
            }
            if is_idle {
                self.close();
            } else {
                self.conclude();
                self.deadline.set_idle(self.worker.snapshot().ticks.keep_alive);
            }
        }
    }

    /// Waits for requests. One that was told of the end gets no more time to hear of it by asking for more.
    fn rest(&self) {
        if !self.is_closing {
            self.deadline.set_idle(self.worker.snapshot().ticks.keep_alive);
        }
    }

    /// Whether a header block took longer than a head may.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let Some(since) = self.h2_connection.engine().head_since() else {
            self.late = None;
            return false;
        };
        if self.late.as_ref().is_none_or(|(armed, _)| *armed != since) {
            let deadline = self.worker.deadlines.deadline();
            let passed = self.worker.deadlines.now() - since;
            let limit = self.worker.snapshot().ticks.client_header;
            deadline.set(Ticks(limit.0.saturating_sub(passed)));
            self.late = Some((since, deadline));
        }
        self.late.as_ref().is_some_and(|(_, deadline)| deadline.poll(context).is_ready())
    }

    /// Counts and logs requests that were refused before anybody saw them.
    #[cold]
    fn tell_refused(&self, refused: &[Refused]) {
        for Refused { status, reason, is_too_large, wrong, glimpse: [method, target, host] } in refused {
            let failure = match (*status, *reason) {
                (0, Reason::REFUSED_STREAM) => Failure::Http2Excess,
                (0, _) => Failure::Http2Malformed,
                _ if *is_too_large => Failure::HeadTooLarge,
                _ => Failure::BadRequest,
            };
            self.worker.counters.failure(failure as usize);
            if *status > 0 {
                self.worker.counters.response(*status);
            }
            let detail = if *status > 0 { wrong.clone() } else { format!("reset with {reason}: {wrong}") };
            self.log(failure, &detail, Entry { method, target, host, status: *status, ..self.entry() });
        }
    }

    /// Counts and logs why the connection ends, which is no request's doing.
    #[cold]
    fn tell_broken(&self, broken: Broken, failure: Failure) {
        self.worker.counters.failure(failure as usize);
        let engine = self.h2_connection.engine();
        let what = engine.offence().unwrap_or("what was received");
        let detail = match broken.cause {
            Cause::Late => {
                let limit = self.worker.snapshot().plan.config.timeouts.client_header;
                format!("{what} came within timeouts.client_header, {limit:?}")
            }
            Cause::Flood(flood) => {
                let bound = bound_of(flood, self.floods, self.worker.snapshot().head_limits.bytes);
                format!("ended with {} for {what}: more than {bound}", broken.reason)
            }
            Cause::Malformed(_) => format!("ended with {} for {what}", broken.reason),
        };
        drop(engine);
        if matches!(broken.cause, Cause::Flood(_)) {
            message::warn(&format!("{} was disconnected: {}: {detail}", self.address, failure.facts().word));
        }
        self.log(failure, &detail, self.entry());
    }

    /// What the log tells of the client.
    fn entry(&self) -> Entry<'static> {
        Entry::new(self.address)
    }

    /// Logs what happened to the connection, or to a request on it.
    fn log(&self, failure: Failure, detail: &str, entry: Entry<'_>) {
        if let Some(log) = self.worker.log.borrow_mut().as_mut() {
            let tls = self.tls.as_deref().map(ClientTls::entry).unwrap_or_default();
            let entry = Entry {
                version: Some(telemetry::Version(2, 0)),
                cause: Some(failure.facts().word),
                detail: Some(detail),
                more: &More { tls, ..More::NONE },
                ..entry
            };
            log.record(&entry, self.worker.wall_clock_at(Instant::now()));
        }
    }

    /// One more request is served, which may be the last.
    fn count(&mut self) {
        self.served += 1;
        let limit = self.worker.snapshot().plan.config.limits.requests_per_connection;
        if limit.is_some_and(|limit| self.served >= limit) {
            self.close();
        }
    }

    /// RFC 9113 §6.8: what is under way is finished.
    fn close(&mut self) {
        if !self.is_closing {
            self.is_closing = true;
            self.deadline.set_idle(self.worker.snapshot().ticks.client_header);
            self.h2_connection.engine().close();
            self.h2_connection.stir();
        }
    }

    /// A client that was told of the end and has not answered in time is told which request is the last. Otherwise it could go
    /// on asking for ever.
    fn conclude(&mut self) {
        if self.is_closing {
            self.h2_connection.engine().tell_last();
            self.h2_connection.stir();
        }
    }
}

/// One stream: an exchange slot serves it as it does a connection of HTTP/1.
pub(crate) async fn exchange(worker: Rc<Worker>, client: Box<Client>) {
    let mut slot = worker.slots.take(&worker, Kind::Stream);
    slot.hand_over(client);
    drop(slot.served().await);
    worker.slots.give(slot);
}
