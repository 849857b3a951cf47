//! The spans of a request that has ended: its own, one for each attempt with a server, and one for each question that it
//! waited for.

use std::time::{Duration, Instant, SystemTime};

use config::{Server, ServerHost};
use http1::{Name, Version, host_without_port};
use telemetry::{SpanKind, Trace, Value};

use super::Record;
use crate::context::client_tls::ClientTls;
use crate::context::exchange_slot::{Memory, Request};
use crate::context::seen;
use crate::context::tracing::{Builder, Ended, Interval, Tracing, method, text};

/// Numbers of spans beside those of attempts, of which there are fewer.
pub(crate) const AUTH_SPAN: u8 = 0xf0;
const CACHE_SPAN: u8 = 0xf1;

/// An attribute.
type Attribute = (&'static str, Value);

impl Record<'_> {
    /// Hands the spans of the request over, if its trace is recorded.
    #[inline]
    pub(super) fn trace_ended(&self, memory: &Memory, began: Instant, duration: Duration) {
        let (Some(tracing), Some(trace)) = (&self.ctx.snapshot.plan.tracing, &memory.request.texts.trace)
        else {
            return;
        };
        let ended = Ended { status: self.status, failure: self.failure, duration };
        // A request of the proxy's own is no error of the client's.
        let is_recorded = if self.is_heard { tracing.is_recorded(trace, &ended) } else { trace.is_sampled };
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
        let (kind, name, attributes) = self.about(&memory.request);
        builder.request(kind, name, clock.interval(began, now), self.failure, attributes);
        self.add_cache(&mut builder, trace, &clock, began);
        if let Some((began, ended, failure)) = self.asked {
            let name = ("authentication", trace.attempt_id(AUTH_SPAN));
            builder.part(SpanKind::Client, name, clock.interval(began, ended), failure, Vec::new());
        }
        self.add_attempts(&mut builder, trace, &clock, memory);
        let is_sent = tracing.hand_over(builder.finish());
        if !is_sent {
            self.ctx.worker.counters.spans_dropped.increment();
        }
        is_sent
    }

    /// Kind, name and attributes of the request's own span.
    fn about(&self, request: &Request) -> (SpanKind, String, Vec<Attribute>) {
        let route = self.route.map(|route| self.ctx.snapshot.plan.routes[route].label.as_str());
        let mut attributes: Vec<Attribute> = Vec::with_capacity(16);
        if let Some(route) = route {
            attributes.push(("http.route", route.into()));
        }
        if !self.is_heard {
            return (SpanKind::Internal, self.purpose.unwrap_or("subrequest").to_owned(), attributes);
        }
        let (head, bytes) = (&request.head, request.head_bytes());
        if self.status > 0 {
            attributes.push(("http.response.status_code", Value::Number(self.status.into())));
        }
        attributes.push((
            "client.address",
            self.named.unwrap_or(self.ctx.client.address).to_string().as_str().into(),
        ));
        attributes.push(("http.response.body.size", Value::Number(self.body_bytes_sent as i64)));
        if let Some(failure) = self.failure {
            attributes.push(("error.type", failure.facts().word.into()));
        }
        if let Some(detail) = &self.detail {
            attributes.push(("vanward.detail", text(detail.as_bytes())));
        }
        if head.len == 0 {
            return (SpanKind::Server, "HTTP".to_owned(), attributes);
        }
        let known = method(head.start.method_span.of(bytes));
        attributes.push(("http.request.method", known.into()));
        if known == "_OTHER" {
            attributes.push(("http.request.method_original", text(head.start.method_span.of(bytes))));
        }
        // The query may hold secrets.
        let target = head.start.target.of(bytes);
        let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
        attributes.push(("url.path", text(path)));
        attributes.push(("url.scheme", seen::scheme(self.ctx, head, bytes).into()));
        let version = match head.start.version {
            Version::Http10 => "1.0",
            Version::Http11 => "1.1",
            Version::Http2 => "2",
            Version::Http3 => "3",
        };
        attributes.push(("network.protocol.version", version.into()));
        if let Some(host) = head.value(bytes, Name::Host) {
            attributes.push(("server.address", text(host_without_port(host))));
        }
        if let Some(agent) = head.value(bytes, Name::UserAgent) {
            attributes.push(("user_agent.original", text(agent)));
        }
        if let Some(tls) = self.ctx.client.tls.as_deref().map(ClientTls::entry) {
            attributes.push(("tls.protocol.version", tls.version.trim_start_matches("TLSv").into()));
        }
        let name = route.map_or_else(|| known.to_owned(), |route| format!("{known} {route}"));
        (SpanKind::Server, name, attributes)
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
        builder.part(SpanKind::Internal, name, interval, None, vec![("vanward.cache", outcome.into())]);
    }

    fn add_attempts(&self, builder: &mut Builder<'_>, trace: &Trace, clock: &Clock, memory: &Memory) {
        let Some((upstream, server)) = self.server else { return };
        let upstream = &self.ctx.snapshot.plan.upstreams[upstream];
        let request = &memory.request;
        let known = if request.head.len == 0 {
            "HTTP"
        } else {
            method(request.head.start.method_span.of(request.head_bytes()))
        };
        let about = |index: usize, number: u8| {
            let mut attributes: Vec<Attribute> = Vec::with_capacity(8);
            attributes.push(("http.request.method", known.into()));
            attributes.push(("vanward.upstream", upstream.config.name.as_str().into()));
            if let Some(server) = upstream.config.servers.get(index) {
                push_server(&mut attributes, server);
            }
            if number > 0 {
                attributes.push(("http.request.resend_count", Value::Number(number.into())));
            }
            attributes
        };
        for (number, attempt) in (0..).zip(&self.ended_attempts) {
            let mut attributes = about(attempt.server, number);
            attributes.push(("error.type", attempt.failure.facts().word.into()));
            let interval = clock.interval(attempt.began, attempt.ended);
            let name = (known, trace.attempt_id(number));
            builder.part(SpanKind::Client, name, interval, Some(attempt.failure), attributes);
        }
        let Some(began) = self.attempt_began else { return };
        let mut attributes = about(server, trace.attempts);
        if self.is_answered {
            let status = memory.response.head.start.status;
            attributes.push(("http.response.status_code", Value::Number(status.into())));
        }
        if let Some(first_byte) = self.first_byte {
            attributes.push(("vanward.first_byte_us", microseconds(first_byte.duration_since(began))));
        }
        if let Some(connected) = self.connected {
            attributes.push(("vanward.connect_us", microseconds(connected.duration_since(began))));
        }
        let failure = self.failure.filter(|_| !self.is_answered);
        if let Some(failure) = failure {
            attributes.push(("error.type", failure.facts().word.into()));
        }
        let interval = clock.interval(began, self.upstream_ended.unwrap_or(clock.now));
        builder.part(
            SpanKind::Client,
            (known, trace.attempt_id(trace.attempts)),
            interval,
            failure,
            attributes,
        );
    }
}

/// The address of a server: by its parts, or the path of its socket.
fn push_server(attributes: &mut Vec<Attribute>, server: &Server) {
    let (host, port) = match &server.host {
        ServerHost::Address(address) => (address.to_string(), true),
        ServerHost::Name(name) => (name.to_string(), true),
        ServerHost::Unix(path) => (path.display().to_string(), false),
    };
    attributes.push(("server.address", Value::Text(host)));
    if port {
        attributes.push(("server.port", Value::Number(server.port.into())));
    }
}

fn microseconds(duration: Duration) -> Value {
    Value::Number(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
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
