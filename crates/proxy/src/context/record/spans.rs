//! The spans of a request that has ended: its own, one for each attempt with a server, and one for each question that it
//! waited for.

use std::time::{Duration, Instant, SystemTime};

use config::{Server, ServerHost};
use http1::{Name, Version, host_without_port};
use telemetry::{Attributes, SpanKind, Trace};

use super::Record;
use crate::context::client_tls::ClientTls;
use crate::context::exchange_slot::{Memory, Request};
use crate::context::failure::Failure;
use crate::context::seen;
use crate::context::tracing::{Builder, Ended, Interval, Tracing, method};

/// Numbers of spans beside those of attempts, of which there are fewer.
pub(crate) const AUTH_SPAN: u8 = 0xf0;
const CACHE_SPAN: u8 = 0xf1;

impl Record<'_> {
    /// Whether the trace may be recorded. Whether the request may have taken that long `lasted` says.
    #[inline]
    pub(super) fn may_be_recorded(&self, memory: &Memory, lasted: impl Fn(Duration) -> bool) -> bool {
        let (Some(tracing), Some(trace)) = (&self.ctx.snapshot.plan.tracing, &memory.request.texts.trace)
        else {
            return false;
        };
        let has_failed = self.own_failure().is_some() || self.status >= 500;
        trace.is_sampled || has_failed || tracing.settings.slow.is_some_and(lasted)
    }

    /// Why the request has failed. One of another instance that is declined has not: that one goes on to the upstream itself.
    /// What has gone wrong here the attempts tell.
    fn own_failure(&self) -> Option<Failure> {
        let is_declined =
            self.ctx.client.peer.is_some() && self.status == Failure::Misdirected.facts().status;
        self.failure.filter(|_| !is_declined)
    }

    /// Hands the spans of the request over, if its trace is recorded.
    #[cold]
    pub(super) fn trace_ended(&mut self, memory: &Memory, began: Instant, duration: Duration) {
        let ctx = self.ctx;
        let (Some(tracing), Some(trace)) = (&ctx.snapshot.plan.tracing, &memory.request.texts.trace) else {
            return;
        };
        let ended = Ended { status: self.status, failure: self.own_failure(), duration };
        // A request of the proxy's own is no error of the client's.
        let is_recorded = if self.is_heard { tracing.is_recorded(trace, &ended) } else { trace.is_sampled };
        self.settle_by(began + duration);
        if is_recorded && self.record_spans((tracing, trace), memory, began, duration) && self.is_heard {
            self.note_exemplar(trace.trace_id, began + duration, duration);
        }
    }

    /// Hands the spans over. Returns whether there was room for them.
    #[cold]
    #[inline(never)]
    fn record_spans(
        &self,
        (tracing, trace): (&Tracing, &Trace),
        memory: &Memory,
        began: Instant,
        duration: Duration,
    ) -> bool {
        let now = began + duration;
        let clock = Clock { wall: self.ctx.worker.wall_clock_at(now), now };
        let mut builder = Builder::new(trace);
        self.add_request(&mut builder, &memory.request, clock.interval(began, now));
        self.add_cache(&mut builder, trace, &clock, began);
        if let Some((began, ended, failure)) = self.asked {
            let name = ("authentication", trace.attempt_id(AUTH_SPAN));
            builder.part(SpanKind::Client, name, clock.interval(began, ended), failure, |_| {});
        }
        self.add_attempts(&mut builder, trace, &clock, memory);
        let is_sent = tracing.hand_over(builder.finish());
        if !is_sent {
            self.ctx.worker.counters.spans_dropped.increment();
        }
        is_sent
    }

    /// The request's own span.
    fn add_request(&self, builder: &mut Builder<'_>, request: &Request, interval: Interval) {
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

    /// What the head of a request says.
    fn tell_request(&self, request: &Request, known: &str, told: &mut Attributes<'_>) {
        let (head, bytes) = (&request.head, request.head_bytes());
        told.word("http.request.method", known);
        if known == "_OTHER" {
            told.text("http.request.method_original", head.start.method_span.of(bytes));
        }
        // The query may hold secrets.
        let target = head.start.target.of(bytes);
        let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
        told.text("url.path", path);
        told.word("url.scheme", seen::scheme(self.ctx, head, bytes));
        let version = match head.start.version {
            Version::Http10 => "1.0",
            Version::Http11 => "1.1",
            Version::Http2 => "2",
            Version::Http3 => "3",
        };
        told.word("network.protocol.version", version);
        if let Some(host) = head.value(bytes, Name::Host) {
            told.text("server.address", host_without_port(host));
        }
        if let Some(agent) = head.value(bytes, Name::UserAgent) {
            told.text("user_agent.original", agent);
        }
        if let Some(tls) = self.ctx.client.tls.as_deref().map(ClientTls::entry) {
            told.word("tls.protocol.version", tls.version.trim_start_matches("TLSv"));
        }
    }

    /// The time until the cache had an answer, or asked a server.
    fn add_cache(&self, builder: &mut Builder<'_>, trace: &Trace, clock: &Clock, began: Instant) {
        let is_cached = self.route.is_some_and(|route| self.ctx.snapshot.plan.routes[route].is_cached);
        if !is_cached || !self.is_heard || (self.failure.is_some() && self.server.is_none()) {
            return;
        }
        let first_attempt = self.ended_attempts.first().map(|attempt| attempt.began).or(self.attempt_began);
        let outcome = if first_attempt.is_some() { "miss" } else { "hit" };
        let interval = clock.interval(began, first_attempt.unwrap_or(clock.now));
        let name = ("cache", trace.attempt_id(CACHE_SPAN));
        builder.part(SpanKind::Internal, name, interval, None, |told| told.word("vanward.cache", outcome));
    }

    fn add_attempts(&self, builder: &mut Builder<'_>, trace: &Trace, clock: &Clock, memory: &Memory) {
        let Some((upstream, server)) = self.server else { return };
        let upstream = &self.ctx.snapshot.plan.upstreams[upstream];
        let known = known_method(&memory.request);
        let tell_server = |told: &mut Attributes<'_>, index: usize, number: u8| {
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
            let name = (known, trace.attempt_id(number));
            builder.part(SpanKind::Client, name, interval, Some(attempt.failure), |told| {
                tell_server(told, attempt.server, number);
                told.word("error.type", attempt.failure.facts().word);
            });
        }
        let Some(began) = self.attempt_began else { return };
        let failure = self.failure.filter(|_| !self.is_answered);
        let interval = clock.interval(began, self.upstream_ended.unwrap_or(clock.now));
        let name = (known, trace.attempt_id(trace.attempts));
        builder.part(SpanKind::Client, name, interval, failure, |told| {
            tell_server(told, server, trace.attempts);
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

/// The name of a request's method; of one that could not be read that of the protocol.
fn known_method(request: &Request) -> &'static str {
    if request.head.len == 0 {
        return "HTTP";
    }
    method(request.head.start.method_span.of(request.head_bytes()))
}

/// The address of a server: by its parts, or the path of its socket.
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

/// One moment by both clocks: the times of spans follow from it.
struct Clock {
    now: Instant,
    wall: SystemTime,
}

impl Clock {
    fn interval(&self, began: Instant, ended: Instant) -> Interval {
        Interval { began: self.time_of(began), ended: self.time_of(ended) }
    }

    fn time_of(&self, instant: Instant) -> SystemTime {
        self.wall - self.now.saturating_duration_since(instant)
    }
}
