//! Notes on an exchange for the access log, the counters and the metrics. The clock is read at most once for each
//! event, and not at all if no output needs it.

/// The detail of a failure, for the log.
pub(crate) mod explain;
/// Traces: which are recorded, and their spans.
pub mod tracing;

/// Requests for captures.
mod captured;
/// The condition of the log.
mod logged;
/// The spans of a finished request.
mod spans;
/// Fields and values of a request, for the log.
mod logged_fields;
/// Requests that another upstream was asked for.
mod fell_back;

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use balance::ServerEvent;
use http1::{Glimpse, HttpVersion, Name};
use route::ActiveEdits;
use telemetry::{B3Form, CounterPlaces, Exemplar, LogEntry, More, Needs, SeriesIndex, WHOLE, WorkerLog};

use crate::context::client::framed_version;
use crate::context::client_tls::ClientTls;
use crate::context::exchange_slot::{CurrentRequest, SlotMemory};
use crate::context::plan::RoutePolicies;
use crate::context::routed::{Cached, ExchangeContext, RoutedRequest};
use crate::context::seen::{self, RequestFields};
use crate::context::under_way::{RequestStart, SlotNote};
use crate::failure::Failure;
use crate::record::logged_fields::{LoggedFields, LoggedValues};
use crate::record::tracing::EndedAttempt;
use crate::shared::waits::ExchangeWaits;
use fell_back::FellBack;
pub(crate) use spans::AUTH_SPAN;

/// How many failed attempts of a request are logged, from the first.
// Kept in the record itself, so that noting a retry allocates nothing.
const RETRIES_NOTED: usize = 4;

/// An injected fault, as logged.
struct InjectedFault {
    rule: Box<str>,
    seed: u64,
    number: u64,
}

impl InjectedFault {
    fn told(&self) -> telemetry::Injected<'_> {
        telemetry::Injected { rule: &self.rule, seed: self.seed, number: self.number }
    }
}

pub(crate) struct ExchangeRecord<'a> {
    ctx: &'a ExchangeContext<'a>,
    /// `None` if no client waits for the request.
    waits: Option<&'a ExchangeWaits>,
    began: Option<Instant>,
    attempt_began: Option<Instant>,
    connected: Option<Instant>,
    first_byte: Option<Instant>,
    upstream_ended: Option<Instant>,
    /// Bit set of the moments whose time is not known yet, because the step in which they happened still runs: bits of
    /// `Moment`.
    open: u8,
    /// When the head of the response was about to be sent; only set if the log needs it.
    head_left: Option<Instant>,
    /// The head of the response; only set if the log needs it.
    head: Vec<u8>,
    needs: Needs,
    /// Whether the head of the response is kept, or its time: for the log, or for a condition of it.
    keeps_head: bool,
    /// Whether the request is captured, if it has a captured route.
    is_captured: bool,
    /// Whether spans may be wanted.
    is_traced: bool,
    /// Whether the times of attempts are needed.
    is_attempt_timed: bool,
    /// Whether the last attempt used a connection that had carried an exchange before.
    is_reused: bool,
    /// The cache's handling of the request.
    pub(crate) cached: Cached,
    pub(crate) route: Option<usize>,
    /// The client that a trusted proxy names.
    pub(crate) named: Option<IpAddr>,
    /// Index of the authenticated user.
    pub(crate) user: Option<usize>,
    pub(crate) upstream: Option<usize>,
    /// Indices of upstream and server.
    pub(crate) server: Option<(usize, usize)>,
    /// The status sent to the client; 0 before its head.
    pub(crate) status: u16,
    pub(crate) body_bytes_sent: u64,
    /// Bytes of the response head, and of a body sent together with it.
    pub(crate) head_bytes_sent: u64,
    /// Bytes of request heads sent to servers, with the first piece of the body.
    pub(crate) upstream_bytes_sent: u64,
    /// Body bytes in the first piece of the request's body.
    pub(crate) first_piece_bytes: u64,
    /// Whether the head of a server's response was read.
    pub(crate) is_answered: bool,
    /// Whether another task counts the received bytes of the response.
    is_received_apart: bool,
    /// Whether a client waits for the request.
    is_heard: bool,
    /// The note for operators who watch live requests.
    note: Option<Rc<SlotNote>>,
    pub(crate) retries: u8,
    /// Set if another upstream was asked after an error.
    pub(crate) fell_back: Option<Box<FellBack>>,
    /// Attempts that were followed by another one: index of the server, and its failure.
    retried: [(u16, Failure); RETRIES_NOTED],
    /// `retried` with times, for the spans of a trace. Has no limit but that of attempts.
    ended_attempts: Vec<EndedAttempt>,
    /// When an authentication server was asked, when that ended, and the failure if it gave no decision.
    asked: Option<(Instant, Instant, Option<Failure>)>,
    /// The name of a subrequest's span, if it has a separate one.
    pub(crate) purpose: Option<&'static str>,
    pub(crate) detours: Detours,
    injected: Option<InjectedFault>,
    pub(crate) failure: Option<Failure>,
    /// Details of the failure, for the log.
    pub(crate) detail: Option<Box<str>>,
}

/// Creates the waits of a request. They are recorded if log or metrics report how long the proxy held a request; if
/// only its spans need times, its steps are recorded.
pub(crate) fn waits(ctx: &ExchangeContext<'_>, is_traced: bool) -> ExchangeWaits {
    let needs = ctx.worker.log.needs();
    let is_measured = ctx.snapshot.plan.config.is_measured();
    if is_measured || needs.has(Needs::HELD) {
        ExchangeWaits::noted()
    } else if is_traced && !needs.has(Needs::UPSTREAM_TIMES) {
        ExchangeWaits::of_steps()
    } else {
        ExchangeWaits::unnoted()
    }
}

/// An event of an attempt whose time may only be noted later.
#[derive(Clone, Copy)]
enum Moment {
    Began = 1,
    Connected = 2,
    FirstByte = 4,
    Ended = 8,
}

impl<'a> ExchangeRecord<'a> {
    pub(crate) fn new(ctx: &'a ExchangeContext<'a>, waits: &'a ExchangeWaits, is_traced: bool) -> Self {
        // In this order, so that no reader sees a request that neither is active nor has ended.
        ctx.worker.counters.requests_active.increment();
        ctx.worker.counters.requests.increment();
        let mut record = Self::detached(ctx, is_traced);
        record.is_heard = true;
        record.is_captured = ctx.worker.captures.are_on();
        record.keeps_head |= record.is_captured;
        record.waits = Some(waits);
        record
    }

    /// Creates the notes of a subrequest: no request is counted or logged.
    pub(crate) fn detached(ctx: &'a ExchangeContext<'a>, is_traced: bool) -> Self {
        let worker = ctx.worker;
        let needs = worker.log.needs();
        let are_attempts_told = ctx.snapshot.plan.config.is_measured() || is_traced;
        let is_timed = are_attempts_told || needs.has(Needs::ENTRY);
        Self {
            ctx,
            waits: None,
            began: is_timed.then(Instant::now),
            attempt_began: None,
            connected: None,
            first_byte: None,
            upstream_ended: None,
            open: 0,
            head_left: None,
            head: Vec::new(),
            needs,
            keeps_head: needs.has_any(Needs::FIRST_BYTE.and(Needs::RESPONSE_HEAD)),
            is_captured: false,
            is_traced,
            is_attempt_timed: are_attempts_told || needs.has(Needs::UPSTREAM_TIMES),
            is_reused: false,
            cached: Cached::Unasked,
            route: None,
            named: None,
            user: None,
            upstream: None,
            server: None,
            status: 0,
            body_bytes_sent: 0,
            head_bytes_sent: 0,
            upstream_bytes_sent: 0,
            first_piece_bytes: 0,
            is_answered: false,
            is_received_apart: false,
            is_heard: false,
            note: None,
            retries: 0,
            fell_back: None,
            retried: [(0, Failure::BadRequest); RETRIES_NOTED],
            ended_attempts: Vec::new(),
            asked: None,
            purpose: None,
            detours: Detours::default(),
            injected: None,
            failure: None,
            detail: None,
        }
    }

    /// Notes an admitted request for operators who watch, and counts it for its client.
    #[inline(never)]
    pub(crate) fn noted(
        &mut self,
        note: Option<&Rc<SlotNote>>,
        routed: &RoutedRequest,
        request: &CurrentRequest,
    ) {
        let (Some(note), Some(began)) = (note, self.began) else { return };
        let (bytes, head) = (request.head_bytes(), &request.head.start);
        self.ctx.worker.watched.count(routed.client);
        note.begin(&RequestStart {
            snapshot: self.ctx.snapshot,
            began,
            client: routed.client,
            route: routed.route,
            method: head.method_span.for_bytes(bytes),
            target: head.target.for_bytes(bytes),
        });
        self.note = Some(Rc::clone(note));
    }

    /// Whether the log, the metrics or the status need times.
    pub(crate) fn is_timed(&self) -> bool {
        self.began.is_some()
    }

    /// Returns the time now, if the times of attempts are needed. If only spans need them, the time of `moment` is
    /// noted when the present step ends.
    fn clock(&mut self, moment: Moment) -> Option<Instant> {
        if !self.is_attempt_timed {
            return None;
        }
        let Some(waits) = self.waits.filter(|waits| waits.counts_steps()) else {
            return Some(Instant::now());
        };
        // A step takes microseconds, so the time of its beginning is close enough.
        if waits.is_first_step() {
            return self.began;
        }
        self.settle(waits.take_ended());
        self.open |= moment as u8;
        waits.ask();
        None
    }

    /// Sets the time of the open moments to `at`, the end of their step, if known.
    #[inline]
    fn settle(&mut self, at: Option<Instant>) {
        if self.open != 0 && at.is_some() {
            for (moment, time) in [
                (Moment::Began, &mut self.attempt_began),
                (Moment::Connected, &mut self.connected),
                (Moment::FirstByte, &mut self.first_byte),
                (Moment::Ended, &mut self.upstream_ended),
            ] {
                if self.open & moment as u8 != 0 {
                    *time = at;
                }
            }
            self.open = 0;
        }
    }

    /// Sets the time of the open moments, where the present step ends `now`.
    fn settle_by(&mut self, now: Instant) {
        self.settle(self.waits.and_then(ExchangeWaits::take_ended));
        self.settle(Some(now));
    }

    /// Notes that a server was chosen (at `now`, if known), and a connection to it is about to be made.
    pub(crate) fn attempt_began(&mut self, upstream: usize, server: usize, now: Option<Instant>) {
        self.server = Some((upstream, server));
        self.connected = None;
        // Until `connected` reports a new connection.
        self.is_reused = true;
        self.first_byte = None;
        self.open = 0;
        self.attempt_began = if self.is_attempt_timed {
            if let Some(note) = &self.note {
                note.asks(upstream, server);
            }
            now.or_else(|| self.clock(Moment::Began))
        } else {
            None
        };
    }

    /// Notes that connecting has ended, or that a pooled connection is used.
    pub(crate) fn connected(&mut self, is_success: bool, is_reused: bool) {
        self.is_reused = is_reused;
        if is_reused {
            return;
        }
        self.connected = self.clock(Moment::Connected);
        if let (true, Some((upstream, _)), Some(places)) = (is_success, self.server, self.places())
            && let Some(duration) = self.since_attempt(self.connected)
        {
            self.ctx.worker.series.upstream(places.upstream(upstream)).connect.observe(duration);
        }
    }

    /// Notes that the server has begun to respond. Returns the time, if it is needed.
    pub(crate) fn first_byte(&mut self) -> Option<Instant> {
        // The time at which the exchange was resumed is close enough to that of the first byte.
        let resumed = self
            .waits
            .and_then(ExchangeWaits::resumed)
            .filter(|&resumed| self.attempt_began <= Some(resumed));
        self.first_byte =
            if self.is_attempt_timed { resumed.or_else(|| self.clock(Moment::FirstByte)) } else { None };
        if let (Some(_), Some(note)) = (self.first_byte, &self.note) {
            note.is_answered();
        }
        self.first_byte
    }

    /// Notes that the attempt failed, whether or not it is retried.
    pub(crate) fn attempt_failed(&self, failure: Failure) {
        if let (Some((upstream, server)), Some(places)) = (self.server, self.places()) {
            let series = &self.ctx.worker.series;
            series.server(places.server(upstream, server)).requests.count(0);
            series.upstream(places.upstream(upstream)).failures.count(failure as usize);
        }
    }

    /// Counts how the end of the attempt changed the server's state.
    pub(crate) fn server_changed(&self, event: Option<ServerEvent>) {
        if let (Some(event), Some((upstream, server)), Some(places)) = (event, self.server, self.places()) {
            let cell = self.ctx.worker.series.server(places.server(upstream, server));
            match event {
                ServerEvent::CircuitOpened(_) => cell.circuit_openings.increment(),
                // The control thread counts these: see `probe::Watch`.
                ServerEvent::Ejected(_) | ServerEvent::Recalled | ServerEvent::CircuitClosed => {}
            }
        }
    }

    /// Notes a retry, after the attempt with this server failed.
    #[cold]
    pub(crate) fn retried(&mut self, server: usize, failure: Failure) {
        if let Some(noted) = self.retried.get_mut(usize::from(self.retries)) {
            *noted = (server as u16, failure);
        }
        if self.is_traced {
            let ended = Instant::now();
            self.settle_by(ended);
            if let Some(began) = self.attempt_began {
                let upstream = self.upstream.unwrap_or_default();
                self.ended_attempts.push(EndedAttempt { upstream, server, failure, began, ended });
            }
        }
        self.retries += 1;
        self.ctx.worker.counters.retry(failure as usize);
        if let (Some((upstream, _)), Some(places)) = (self.server, self.places()) {
            self.ctx.worker.series.upstream(places.upstream(upstream)).retries.count(failure as usize);
        }
    }

    /// Counts bytes of a response that another task received.
    pub(crate) fn received_apart(&mut self, bytes: u64) {
        self.ctx.worker.counters.upstream_bytes_received.add(bytes);
        self.is_received_apart = true;
    }

    /// Notes and counts an injected fault, if it is the exchange's first. Returns whether it is.
    pub(crate) fn injected(&mut self, fault: &telemetry::Injected<'_>) -> bool {
        let is_first = self.injected.is_none();
        if is_first {
            self.ctx.worker.counters.faults_injected.increment();
            self.injected =
                Some(InjectedFault { rule: fault.rule.into(), seed: fault.seed, number: fault.number });
        }
        is_first
    }

    /// Notes that the server's response has ended, in the same step as the request. A trace then needs no separate
    /// time.
    #[inline]
    pub(crate) fn upstream_ended_at_once(&mut self) {
        if self.needs.has(Needs::UPSTREAM_TIMES) {
            self.upstream_ended = self.clock(Moment::Ended);
        }
    }

    /// Notes that the server's response has ended.
    pub(crate) fn upstream_ended(&mut self) {
        // Only the log and traces show it.
        if self.needs.has(Needs::UPSTREAM_TIMES) || self.is_traced {
            self.upstream_ended = self.clock(Moment::Ended);
        }
    }

    /// Notes that this response head is about to be sent.
    #[inline]
    pub(crate) fn head_leaves(&mut self, head: &[u8]) {
        self.head_bytes_sent = head.len() as u64;
        if self.keeps_head {
            self.keep_head(head);
        }
    }

    /// Counts and logs the exchange. Called once, at the end of every exchange.
    pub(crate) fn finish(&mut self, memory: &SlotMemory) {
        let request = &memory.request;
        let counters = &self.ctx.worker.counters;
        if self.status == 101 && self.ctx.client.socket.frames_itself() {
            // RFC 8441 §5: a stream that switches protocols has status 200.
            self.status = 200;
        }
        if self.status > 0 {
            counters.response(self.status);
        }
        if let Some(failure) = self.failure {
            // Bytes that wait for a flow control window were not sent.
            if let Some(sent) = self.ctx.client.socket.body_sent() {
                self.body_bytes_sent = self.body_bytes_sent.min(sent);
            }
            counters.failure(failure as usize);
            self.keep_error(failure);
            if self.detours.shed.is_some() {
                counters.requests_shed.increment();
            }
        }
        counters.client_bytes_received.add(self.bytes_received(request));
        counters.client_bytes_sent.add(self.head_bytes_sent + self.body_bytes_sent);
        self.count_upstream(memory);
        if self.is_captured {
            self.give_to_captures(request);
        }
        let Some(began) = self.began else { return };
        // Without a log or metrics, the exact clock is read only for a trace that may be recorded.
        if self.is_traced && !self.is_told() {
            if self.may_be_recorded(memory, |slow| self.ctx.worker.coarse_clock.may_have_passed(slow, began))
            {
                self.trace_ended(memory, began, began.elapsed());
            }
            return;
        }
        let duration = began.elapsed();
        self.tell(memory, began, duration);
        if self.is_traced && self.may_be_recorded(memory, |slow| duration >= slow) {
            self.trace_ended(memory, began, duration);
        }
    }

    /// Whether an output other than traces needs the duration.
    fn is_told(&self) -> bool {
        self.places().is_some() || self.needs.has(Needs::ENTRY)
    }

    /// Makes the recorded trace an exemplar of the durations of the request's route.
    fn note_exemplar(&self, trace_id: u128, ended: Instant, duration: Duration) {
        if let Some(places) = self.places() {
            let at = self.ctx.worker.wall_clock_at(ended);
            let route = self.ctx.worker.series.route(self.place(places));
            route.exemplars.cell().note(Exemplar { trace_id, value: duration, at });
        }
    }

    /// Ends the notes of a subrequest.
    pub(crate) fn finish_detached(&mut self, memory: &SlotMemory) {
        self.count_upstream(memory);
        if let (true, Some(began), Some(_)) = (self.is_traced, self.began, self.purpose) {
            self.trace_ended(memory, began, began.elapsed());
        }
    }

    /// Notes that an authentication server was asked, since `began`.
    pub(crate) fn asked(&mut self, began: Option<Instant>, failure: Option<Failure>) {
        if let (true, Some(began)) = (self.is_traced, began) {
            self.asked = Some((began, Instant::now(), failure));
        }
    }

    /// Counts bytes sent to servers and received from them.
    pub(crate) fn count_upstream(&self, memory: &SlotMemory) {
        let (SlotMemory { request, response, .. }, counters) = (memory, &self.ctx.worker.counters);
        if self.server.is_some() {
            let rest = match &request.replay {
                None => request.body.moved.saturating_sub(self.first_piece_bytes),
                Some(replay) => replay.sent_bytes(),
            };
            counters.upstream_bytes_sent.add(self.upstream_bytes_sent + rest);
        }
        if self.is_answered && !self.is_received_apart {
            counters.upstream_bytes_received.add(response.head.len as u64 + response.body.moved);
        }
    }

    /// Counts the request by route, listener, upstream and server, and logs it, as configured.
    #[inline(never)]
    fn tell(&self, memory: &SlotMemory, began: Instant, duration: Duration) {
        let worker = self.ctx.worker;
        if let Some(places) = self.places() {
            let route = worker.series.route(self.place(places));
            route.requests.count(self.status);
            route.duration.observe(duration);
            if let Some(held) = self.held(duration) {
                route.held.observe(held);
            }
            if let Some((upstream, server)) = self.server.filter(|_| self.is_answered) {
                let server = worker.series.server(places.server(upstream, server));
                let kept = self.fell_back.as_ref().and_then(|fell_back| fell_back.status);
                server.requests.count(kept.unwrap_or(memory.response.head.start.status));
                if let Some(duration) = self.since_attempt(self.first_byte) {
                    server.first_byte.observe(duration);
                }
            }
            if let (Some(duration), Some(upstream)) = (self.detours.queued, self.upstream) {
                worker.series.upstream(places.upstream(upstream)).queue.observe(duration);
            }
        }
        let routes = &self.ctx.snapshot.plan.routes;
        if !self.needs.has(Needs::ENTRY) {
            return;
        }
        let has_failed = self.failure.is_some() || self.status >= 500;
        let weight = match self.route {
            None => Some(WHOLE),
            Some(route) => {
                let is_excluded = |when: &Arc<expression::Expression>| !self.is_logged(&memory.request, when);
                if routes[route].log_when.as_ref().is_some_and(is_excluded) {
                    return;
                }
                routes[route].logged.weight(has_failed, || fastrand::u32(..))
            }
        };
        if let Some(weight) = weight
            && let Some(log) = worker.log.borrow_mut().as_mut()
        {
            self.log(log, &memory.request, began, duration, weight);
        }
    }

    /// Returns the route's place in the counters, and when the request began; `None` if requests are not counted by
    /// name.
    pub(crate) fn counted(&self) -> Option<(SeriesIndex, Instant)> {
        Some((self.place(self.places()?), self.began?))
    }

    /// Returns the place where the request counts: its route's, or that of requests from other instances.
    fn place(&self, places: &CounterPlaces) -> SeriesIndex {
        if self.ctx.client.peer.is_some() { SeriesIndex::PEERS } else { places.route(self.route) }
    }

    fn held(&self, duration: Duration) -> Option<Duration> {
        self.waits.and_then(|waits| waits.held(duration))
    }

    fn places(&self) -> Option<&'a CounterPlaces> {
        self.ctx.snapshot.plan.places.as_deref()
    }

    fn since_attempt(&self, end: Option<Instant>) -> Option<Duration> {
        Some(end?.duration_since(self.attempt_began?))
    }

    /// Returns bytes of head and body, without chunk framing. For a request without a server, only the head counts; for
    /// a rejected head, the bytes read.
    fn bytes_received(&self, request: &CurrentRequest) -> u64 {
        if request.head.len == 0 {
            return request.buffer.len() as u64;
        }
        let body = if self.server.is_some() || request.replay.is_some() { request.body.moved } else { 0 };
        request.head.len as u64 + body
    }

    fn log(
        &self,
        log: &mut WorkerLog,
        request: &CurrentRequest,
        began: Instant,
        duration: Duration,
        weight: u32,
    ) {
        let plan = &self.ctx.snapshot.plan;
        let route = self.route.map(|route| &plan.routes[route]);
        let policies = route.and_then(|route| route.policies.as_deref());
        let upstream = self.server.map(|(upstream, _)| &plan.upstreams[upstream]);
        let server = |index: usize| Some(upstream?.servers.get(index)?.authority.as_str());
        let told;
        let retried = match self.retries {
            0 => &[][..],
            retries => {
                told = self.retries_told();
                &told[..usize::from(retries).min(RETRIES_NOTED)]
            }
        };
        let sent = LoggedFields {
            request: RequestFields::new(&request.head, request.head_bytes()),
            response: &self.head,
            values: LoggedValues { record: self, request },
        };
        let more;
        // Values that no output shows are not looked up.
        let more = if self.needs.has(Needs::MORE) {
            more = More {
                retried,
                fallback_from: self.fell_back.as_ref().map_or("", |first| &first.told),
                session_moved: self
                    .detours
                    .session_moved
                    .map(|(reason, from)| (reason, from.and_then(server))),
                headers: &sent,
                ..self.more(request, policies, began, duration)
            };
            &more
        } else {
            &More::NONE
        };
        let entry = LogEntry {
            status: self.status,
            body_bytes_sent: self.body_bytes_sent,
            bytes_sent: self.head_bytes_sent + self.body_bytes_sent,
            route: route.map(|route| route.label.as_str()),
            upstream: upstream.map(|upstream| upstream.config.name.as_str()),
            server: self.server.and_then(|(_, index)| server(index)),
            duration,
            retries: self.retries,
            cause: self.failure.map(|failure| failure.facts().word),
            detail: self.detail.as_deref(),
            cache: self.cached.word(),
            weight,
            more,
            ..self.of_request(request, policies)
        };
        log.record(&entry, self.ctx.worker.wall_clock_at(began + duration));
    }

    /// Returns the fields that few formats need, except those about several servers.
    #[inline(never)]
    fn more<'e>(
        &'e self,
        request: &'e CurrentRequest,
        policies: Option<&RoutePolicies>,
        began: Instant,
        duration: Duration,
    ) -> More<'e> {
        let (needs, client) = (self.needs, self.ctx.client);
        More {
            peer: self.named.map(|_| client.address),
            request_id: if needs.has(Needs::REQUEST_ID) { self.request_id(request, policies) } else { b"" },
            trace_id: self.trace_id(request),
            tls: match client.tls.as_deref() {
                Some(tls) if needs.has(Needs::TLS) => ClientTls::entry(tls),
                _ => telemetry::LoggedTls::default(),
            },
            upstream_connect: self.since_attempt(self.connected),
            upstream_first_byte: self.since_attempt(self.first_byte),
            upstream_total: self.since_attempt(self.upstream_ended),
            queued: self.detours.waited(),
            shed: self.detours.shed,
            fault: self.injected.as_ref().map(InjectedFault::told),
            held: self.held(duration),
            first_byte: self.head_left.map(|left| left.duration_since(began)),
            listener: if needs.has(Needs::LISTENER) { self.listener() } else { "" },
            worker: self.ctx.worker.index,
            // Streams of a connection have no order.
            connection_request: if client.socket.frames_itself() { 0 } else { client.served },
            is_upstream_reused: self.server.map(|_| self.is_reused),
            ..More::NONE
        }
    }

    /// Returns the request's trace ID; without tracing, the one in its `traceparent`.
    fn trace_id(&self, request: &CurrentRequest) -> Option<u128> {
        if !self.needs.has(Needs::TRACE_ID) {
            return None;
        }
        let own = request.texts.trace.map(|trace| trace.trace_id);
        own.or_else(|| tracing::caller(request, B3Form::Off).map(|caller| caller.trace_id))
    }

    /// Returns a log entry with the fields about the client and its request.
    #[inline]
    fn of_request<'e>(
        &'e self,
        request: &'e CurrentRequest,
        policies: Option<&'e RoutePolicies>,
    ) -> LogEntry<'e> {
        let (needs, client) = (self.needs, self.ctx.client);
        let (head, bytes) = (&request.head, request.head_bytes());
        let is_whole = head.len > 0;
        // For a rejected head, the fields that were read before.
        let value = |name| {
            if needs.has(Needs::NAMED_HEADERS) { head.value(bytes, name).unwrap_or(b"") } else { b"" }
        };
        let glimpse = if is_whole { Glimpse::default() } else { Glimpse::from_bytes(bytes) };
        let framed = framed_version(&client.socket);
        let version = if is_whole { Some(head.start.version) } else { framed.or(glimpse.version) };
        let is_connect = matches!(head.start.version, HttpVersion::Http2 | HttpVersion::Http3)
            && head.field(Name::Upgrade).is_some();
        let method = if is_whole { head.start.method_span.for_bytes(bytes) } else { glimpse.method };
        LogEntry {
            user: policies.map_or("", |policies| policies.user(self.user, request.texts.user())),
            scheme: if is_whole { seen::scheme(self.ctx, head, bytes) } else { "" },
            // RFC 8441 §5: an upgrade over HTTP/2 was a CONNECT.
            method: if is_connect { b"CONNECT" } else { method },
            target: if is_whole { head.start.target.for_bytes(bytes) } else { glimpse.target },
            version: version.map(|version| match version {
                HttpVersion::Http10 => telemetry::LoggedVersion(1, 0),
                HttpVersion::Http11 => telemetry::LoggedVersion(1, 1),
                HttpVersion::Http2 => telemetry::LoggedVersion(2, 0),
                HttpVersion::Http3 => telemetry::LoggedVersion(3, 0),
            }),
            bytes_received: self.bytes_received(request),
            referer: value(Name::Referer),
            user_agent: value(Name::UserAgent),
            host: value(Name::Host),
            ..LogEntry::new(self.named.unwrap_or(client.address))
        }
    }

    /// Name of the listener; empty if it is removed.
    fn listener(&self) -> &'a str {
        let listeners = &self.ctx.snapshot.plan.config.listeners;
        let place = self.ctx.client.listening.place();
        place.and_then(|place| listeners.get(place)).map_or("", |listener| listener.name.as_str())
    }

    /// Returns the ID by which servers know the request: the one made here, or the one that it arrived with.
    fn request_id<'r>(&self, request: &'r CurrentRequest, policies: Option<&RoutePolicies>) -> &'r [u8] {
        let name = self.ctx.snapshot.plan.config.request_ids.header.as_bytes();
        if !request.texts.id.is_empty() {
            return &request.texts.id;
        }
        let is_removed = policies
            .is_some_and(|policies| policies.settings.request_headers.remove(name, ActiveEdits::FIRST));
        if request.head.len == 0 || is_removed {
            return b"";
        }
        seen::line(&request.head, request.head_bytes(), name).unwrap_or_default()
    }
}

impl Drop for ExchangeRecord<'_> {
    fn drop(&mut self) {
        // In `drop`, because an exchange may also end with its connection.
        if self.is_heard {
            self.ctx.worker.counters.requests_active.decrement();
        }
        if let Some(note) = &self.note {
            note.end();
        }
        if self.head.capacity() > 0 {
            self.ctx.worker.log.give_head(std::mem::take(&mut self.head));
        }
    }
}

/// Why a request did not go to its first choice of server at once, for the log.
#[derive(Debug, Default)]
pub(crate) struct Detours {
    /// Time in the queues of limits on requests under way.
    pub(crate) held_back: Option<Duration>,
    /// Time in the wait queue for a server, over all attempts.
    pub(crate) queued: Option<Duration>,
    /// Why the session left its server, and that server's index, if it still exists.
    pub(crate) session_moved: Option<(&'static str, Option<usize>)>,
    /// The limit that caused the rejection of the request (shedding).
    pub(crate) shed: Option<&'static str>,
}

impl Detours {
    /// The time in all queues; `None` without a wait.
    fn waited(&self) -> Option<Duration> {
        self.held_back.into_iter().chain(self.queued).reduce(|one, other| one + other)
    }
}
