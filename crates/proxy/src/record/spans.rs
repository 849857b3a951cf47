//! The spans of a finished request: its own, one for each attempt with a server, and one for each question
//! (authentication, cache) that it waited for.

use std::time::{Duration, Instant, SystemTime};

use config::{Server, ServerHost};
use http1::{Name, host_without_port};
use telemetry::{Attributes, SpanKind, Trace};

use super::ExchangeRecord;
use crate::context::client_tls::ClientTls;
use crate::context::exchange_slot::{CurrentRequest, SlotMemory};
use crate::context::seen;
use crate::failure::Failure;
use crate::record::tracing::{Builder, Interval, method};
use crate::shared::tracing::{TracedEnd, Tracing};

/// Numbers of spans that are not attempts, above those of attempts.
pub(crate) const AUTH_SPAN: u8 = 0xf0;
const CACHE_SPAN: u8 = 0xf1;

impl ExchangeRecord<'_> {
    /// Whether the trace may be recorded. `lasted` says whether the request may have taken longer than a duration.
    #[inline]
    pub(super) fn may_be_recorded(&self, memory: &SlotMemory, lasted: impl Fn(Duration) -> bool) -> bool {
        let (Some(tracing), Some(trace)) = (&self.ctx.snapshot.plan.tracing, &memory.request.texts.trace)
        else {
            return false;
        };
        let has_failed = self.own_failure().is_some() || self.status >= 500;
        trace.is_sampled || has_failed || tracing.settings.slow.is_some_and(lasted)
    }

    /// Returns the failure of the request. A declined request from another instance has not failed, because that
    /// instance asks the upstream itself.
    fn own_failure(&self) -> Option<Failure> {
        let is_declined =
            self.ctx.client.peer.is_some() && self.status == Failure::Misdirected.facts().status;
        self.failure.filter(|_| !is_declined)
    }

    /// Passes the spans to the exporter, if the trace is recorded.
    #[cold]
    pub(super) fn trace_ended(&mut self, memory: &SlotMemory, began: Instant, duration: Duration) {
        let ctx = self.ctx;
        let (Some(tracing), Some(trace)) = (&ctx.snapshot.plan.tracing, &memory.request.texts.trace) else {
            return;
        };
        let ended = TracedEnd { status: self.status, failure: self.own_failure(), duration };
        // A subrequest's error is not the client's.
        let is_recorded = if self.is_heard { tracing.is_recorded(trace, &ended) } else { trace.is_sampled };
        self.settle_by(began + duration);
        if is_recorded && self.record_spans(tracing, trace, memory, began, duration) && self.is_heard {
            self.note_exemplar(trace.trace_id, began + duration, duration);
        }
    }

    /// Passes the spans to the exporter. Returns whether there was room for them.
    #[cold]
    #[inline(never)]
    fn record_spans(
        &self,
        tracing: &Tracing,
        trace: &Trace,
        memory: &SlotMemory,
        began: Instant,
        duration: Duration,
    ) -> bool {
        let now = began + duration;
        let clock = SpanClock { wall: self.ctx.worker.wall_clock_at(now), now };
        let mut builder = Builder::new(trace);
        self.add_request(&mut builder, &memory.request, clock.interval(began, now));
        self.add_cache(&mut builder, trace, &clock, began);
        if let Some((began, ended, failure)) = self.asked {
            let span_id = trace.attempt_id(AUTH_SPAN);
            builder.part(
                SpanKind::Client,
                "authentication",
                span_id,
                clock.interval(began, ended),
                failure,
                |_| {},
            );
        }
        self.add_attempts(&mut builder, trace, &clock, memory);
        let is_sent = tracing.hand_over(builder.finish());
        if !is_sent {
            self.ctx.worker.counters.spans_dropped.increment();
        }
        is_sent
    }

    /// Adds the span of the request itself.
    fn add_request(&self, builder: &mut Builder<'_>, request: &CurrentRequest, interval: Interval) {
        let route = self.route.map(|route| self.ctx.snapshot.plan.routes[route].label.as_str());
        if !self.is_heard {
            let name = &[self.purpose.unwrap_or("subrequest")];
            return builder.request(SpanKind::Internal, name, interval, self.failure, |told| {
                if let Some(route) = route {
                    told.word("http.route", route);
                }
            });
        }
        let known = known_method(request);
        let name = &[known, route.unwrap_or_default()];
        let name = if route.is_some() && request.head.len > 0 { &name[..] } else { &name[..1] };
        let failure = self.own_failure();
        builder.request(SpanKind::Server, name, interval, failure, |told| {
            if let Some(route) = route {
                told.word("http.route", route);
            }
            if self.status > 0 {
                told.number("http.response.status_code", self.status.into());
            }
            told.displayed("client.address", &self.named.unwrap_or(self.ctx.client.address));
            told.number("http.response.body.size", self.body_bytes_sent.cast_signed());
            if let Some(failure) = failure {
                told.word("error.type", failure.facts().word);
            }
            if let Some(detail) = &self.detail {
                told.text("vanward.detail", detail.as_bytes());
            }
            if request.head.len > 0 {
                self.tell_request(request, known, told);
            }
        });
    }

    /// Adds attributes from the head of a request.
    fn tell_request(&self, request: &CurrentRequest, known: &str, told: &mut Attributes<'_>) {
        let (head, bytes) = (&request.head, request.head_bytes());
        told.word("http.request.method", known);
        if known == "_OTHER" {
            told.text("http.request.method_original", head.start.method_span.for_bytes(bytes));
        }
        // The query may contain secrets.
        let target = head.start.target.for_bytes(bytes);
        let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
        told.text("url.path", path);
        told.word("url.scheme", seen::scheme(self.ctx, head, bytes));
        told.word("network.protocol.version", head.start.version.number());
        if let Some(host) = head.value(bytes, Name::Host) {
            told.text("server.address", host_without_port(host));
        }
        if let Some(agent) = head.value(bytes, Name::UserAgent) {
            told.text("user_agent.original", agent);
        }
        if let Some(tls) = self.ctx.client.tls.as_deref().map(ClientTls::entry) {
            // OpenTelemetry's attribute has the version without the name of the protocol.
            told.word("tls.protocol.version", tls.version.trim_start_matches("TLSv"));
        }
    }

    /// Adds the span until the cache had an answer, or asked a server.
    fn add_cache(&self, builder: &mut Builder<'_>, trace: &Trace, clock: &SpanClock, began: Instant) {
        let is_cached = self.route.is_some_and(|route| self.ctx.snapshot.plan.routes[route].is_cached);
        // A request that failed before any server was asked has no such span.
        if !is_cached || !self.is_heard || (self.failure.is_some() && self.server.is_none()) {
            return;
        }
        // The cache's part ends where the first server is asked.
        let first_attempt = self.ended_attempts.first().map(|attempt| attempt.began).or(self.attempt_began);
        let outcome = if first_attempt.is_some() { "miss" } else { "hit" };
        let interval = clock.interval(began, first_attempt.unwrap_or(clock.now));
        let span_id = trace.attempt_id(CACHE_SPAN);
        builder.part(SpanKind::Internal, "cache", span_id, interval, None, |told| {
            told.word("vanward.cache", outcome);
        });
    }

    fn add_attempts(&self, builder: &mut Builder<'_>, trace: &Trace, clock: &SpanClock, memory: &SlotMemory) {
        let last = self.server.or(self.ended_attempts.last().map(|last| (last.upstream, last.server)));
        let Some((last_upstream, server)) = last else { return };
        let known = known_method(&memory.request);
        let tell_server = |told: &mut Attributes<'_>, upstream: usize, index: usize, number: u8| {
            let upstream = &self.ctx.snapshot.plan.upstreams[upstream];
            told.word("http.request.method", known);
            told.word("vanward.upstream", &upstream.config.name);
            if let Some(server) = upstream.servers.get(index) {
                self::tell_server(told, &server.asked);
            }
            if number > 0 {
                told.number("http.request.resend_count", number.into());
            }
        };
        for (number, attempt) in (0..).zip(&self.ended_attempts) {
            let interval = clock.interval(attempt.began, attempt.ended);
            let span_id = trace.attempt_id(number);
            builder.part(SpanKind::Client, known, span_id, interval, Some(attempt.failure), |told| {
                tell_server(told, attempt.upstream, attempt.server, number);
                told.word("error.type", attempt.failure.facts().word);
            });
        }
        let Some(began) = self.attempt_began else { return };
        // Once the server has answered, a failure belongs to the request, not to the attempt.
        let failure = self.failure.filter(|_| !self.is_answered);
        let interval = clock.interval(began, self.upstream_ended.unwrap_or(clock.now));
        let span_id = trace.attempt_id(trace.attempts);
        builder.part(SpanKind::Client, known, span_id, interval, failure, |told| {
            tell_server(told, last_upstream, server, trace.attempts);
            if self.is_answered {
                told.number("http.response.status_code", memory.response.head.start.status.into());
            }
            if let Some(first_byte) = self.first_byte {
                told.number("vanward.first_byte_us", microseconds(first_byte.duration_since(began)));
            }
            if let Some(connected) = self.connected {
                told.number("vanward.connect_us", microseconds(connected.duration_since(began)));
            }
            if let Some(failure) = failure {
                told.word("error.type", failure.facts().word);
            }
        });
    }
}

/// Returns the name of a request's method; `HTTP` if no head could be read.
fn known_method(request: &CurrentRequest) -> &'static str {
    if request.head.len == 0 {
        return "HTTP";
    }
    method(request.head.start.method_span.for_bytes(request.head_bytes()))
}

/// Adds the address of a server: name and port, or the path of its socket.
fn tell_server(told: &mut Attributes<'_>, server: &Server) {
    match &server.host {
        ServerHost::Address(address) => told.displayed("server.address", address),
        ServerHost::Name(name) | ServerHost::Service(name) => told.displayed("server.address", name),
        ServerHost::Catalog(service) => told.displayed("server.address", &service.name),
        ServerHost::Unix(path) => return told.displayed("server.address", &path.display()),
    }
    told.number("server.port", server.port.into());
}

fn microseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A moment on both clocks, from which the times of spans are computed.
struct SpanClock {
    now: Instant,
    wall: SystemTime,
}

impl SpanClock {
    fn interval(&self, began: Instant, ended: Instant) -> Interval {
        Interval { began: self.time_of(began), ended: self.time_of(ended) }
    }

    fn time_of(&self, instant: Instant) -> SystemTime {
        self.wall - self.now.saturating_duration_since(instant)
    }
}
