//! Traces as a worker sees them: whether one is recorded, and what its spans say.
//!
//! Not here: the form of contexts (`telemetry::trace`), and the collector, which the control thread sends spans to.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use config::FollowCallers;
use http1::Name;
use telemetry::{Attributes, B3Form, Caller, Span, SpanKind, Spans, Trace};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::context::exchange::ExchangeContext;
use crate::context::exchange_slot::Request;
use crate::context::failure::Failure;

/// Requests whose spans wait for the control thread, over all workers; those beyond are dropped and counted.
const WAITING_MAX: usize = 4096;
/// The part of a trace ID that the sampling decision looks at, which is random in any case (W3C Trace Context level 2).
const RANDOM_BITS: u32 = 56;

/// The traces of a plan. Plans with the same settings share it.
pub struct Tracing {
    /// The settings.
    pub settings: config::Tracing,
    /// Trace IDs whose random part is below it are recorded.
    threshold: u64,
    ended: Sender<Spans>,
    waiting: Mutex<Option<Receiver<Spans>>>,
}

impl Tracing {
    pub(crate) fn new(settings: &config::Tracing) -> Self {
        let (ended, waiting) = channel(WAITING_MAX);
        let share = u128::from(settings.sample.millionths());
        // At most 2^56, since a share is at most a million millionths.
        let threshold = ((share << RANDOM_BITS) / 1_000_000) as u64;
        Self { settings: settings.clone(), threshold, ended, waiting: Mutex::new(Some(waiting)) }
    }

    /// The spans that requests hand over: for one sender, the first that asks. It ends with the last plan with these
    /// settings.
    pub fn take_spans(&self) -> Option<Receiver<Spans>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// How B3 fields are written.
    pub(crate) fn b3(&self) -> B3Form {
        match self.settings.b3 {
            config::B3::Off => B3Form::Off,
            config::B3::Single => B3Form::Single,
            config::B3::Multi => B3Form::Multi,
        }
    }

    fn is_sampled(&self, caller: Option<&Caller>, follows: bool, trace_id: u128) -> bool {
        let decided = caller.and_then(|caller| caller.is_sampled).filter(|_| follows);
        decided.unwrap_or((trace_id as u64 & ((1 << RANDOM_BITS) - 1)) < self.threshold)
    }

    /// Whether the end of a request may have its trace recorded, though it was not chosen at its beginning.
    pub(crate) fn looks_at_ends(&self) -> bool {
        self.settings.errors || self.settings.slow.is_some()
    }

    /// Whether the trace of a request that has ended is recorded.
    #[inline]
    pub(crate) fn is_recorded(&self, trace: &Trace, ended: &Ended) -> bool {
        let is_error = ended.failure.is_some() || ended.status >= 500;
        trace.is_sampled
            || (self.settings.errors && is_error)
            || self.settings.slow.is_some_and(|slow| ended.duration >= slow)
    }

    /// Hands spans over. Returns whether there was room.
    pub(crate) fn hand_over(&self, spans: Spans) -> bool {
        self.ended.try_send(spans).is_ok()
    }
}

/// Whether what a caller has decided holds here.
pub(crate) fn follows(whom: FollowCallers, is_trusted: bool) -> bool {
    match whom {
        FollowCallers::Trusted => is_trusted,
        FollowCallers::All => true,
        FollowCallers::Nobody => false,
    }
}

/// Finds the place of a request in its trace, from its fields. Returns whether its spans may be wanted.
#[inline(never)]
pub(crate) fn begin(ctx: &ExchangeContext<'_>, tracing: &Tracing, request: &mut Request) -> bool {
    let (caller, ids) = (caller(request, tracing.b3()), &ctx.worker.ids);
    let trace_id = match &caller {
        Some(caller) => caller.trace_id,
        None => u128::from(ids.next()) << 64 | u128::from(ids.next()),
    };
    // Another instance has decided as it is configured, whomever it asks for: a trace is recorded by both or by neither.
    let is_followed = ctx.client.peer.is_some() || follows(tracing.settings.follow, ctx.client.is_trusted);
    let is_sampled = tracing.is_sampled(caller.as_ref(), is_followed, trace_id);
    request.texts.trace = Some(Trace::new(caller, trace_id, ids.next(), is_sampled));
    is_sampled || tracing.looks_at_ends()
}

/// Random numbers of a worker, for IDs: those of the thread would be looked up each time.
pub(crate) struct Ids(Cell<u64>);

impl Ids {
    pub(crate) fn new() -> Self {
        Self(Cell::new(fastrand::u64(..)))
    }

    #[inline]
    pub(crate) fn next(&self) -> u64 {
        let mut random = fastrand::Rng::with_seed(self.0.get());
        let next = random.u64(..);
        self.0.set(random.get_seed());
        next
    }
}

/// The context that a request came with.
pub(crate) fn caller(request: &Request, b3: B3Form) -> Option<Caller> {
    // Most requests have none: then no field is looked at.
    let has = |name| request.head.field(name).is_some();
    if !has(Name::Traceparent) && (b3 == B3Form::Off || !has(Name::B3)) {
        return None;
    }
    read_caller(request, b3)
}

#[inline(never)]
fn read_caller(request: &Request, b3: B3Form) -> Option<Caller> {
    let bytes = request.head_bytes();
    let fields = request.head.fields.iter();
    Caller::read(fields.map(|field| (field.name.of(bytes), field.value.of(bytes))), b3)
}

/// How a request ended, for the decision about its trace.
pub(crate) struct Ended {
    pub(crate) status: u16,
    pub(crate) failure: Option<Failure>,
    pub(crate) duration: Duration,
}

/// A span from one clock reading to another.
pub(crate) struct Interval {
    pub(crate) began: SystemTime,
    pub(crate) ended: SystemTime,
}

/// An attempt that was followed by another one.
pub(crate) struct EndedAttempt {
    pub(crate) server: usize,
    pub(crate) failure: Failure,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

/// Writes the spans of one request.
pub(crate) struct Builder<'a> {
    trace: &'a Trace,
    spans: Spans,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(trace: &'a Trace) -> Self {
        Self { trace, spans: Spans::of_request() }
    }

    /// Adds the span of the request itself.
    pub(crate) fn request(
        &mut self,
        kind: SpanKind,
        name: &[&str],
        interval: Interval,
        failure: Option<Failure>,
        tell: impl FnOnce(&mut Attributes<'_>),
    ) {
        let Trace { span_id, parent_id, has_remote_parent, .. } = *self.trace;
        self.add((span_id, parent_id, has_remote_parent), (kind, name), interval, failure, tell);
    }

    /// Adds a part of the request.
    pub(crate) fn part(
        &mut self,
        kind: SpanKind,
        (name, span_id): (&str, u64),
        interval: Interval,
        failure: Option<Failure>,
        tell: impl FnOnce(&mut Attributes<'_>),
    ) {
        self.add((span_id, self.trace.span_id, false), (kind, &[name]), interval, failure, tell);
    }

    fn add(
        &mut self,
        (span_id, parent_id, has_remote_parent): (u64, u64, bool),
        (kind, name): (SpanKind, &[&str]),
        Interval { began, ended }: Interval,
        failure: Option<Failure>,
        tell: impl FnOnce(&mut Attributes<'_>),
    ) {
        let Trace { trace_id, is_sampled, .. } = *self.trace;
        let failure = failure.map(|failure| failure.facts().word);
        let span = Span {
            trace_id,
            span_id,
            parent_id,
            has_remote_parent,
            is_sampled,
            kind,
            name,
            began,
            ended,
            failure,
        };
        self.spans.add(&span, tell);
    }

    pub(crate) fn finish(self) -> Spans {
        self.spans
    }
}

/// The name of a method, among the names that OpenTelemetry knows.
pub(crate) fn method(name: &[u8]) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.into_iter().find(|known| known.as_bytes() == name).unwrap_or("_OTHER")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracing(millionths: u32, follow: FollowCallers) -> Tracing {
        let mut settings = config::Tracing {
            collector: config::KeyUrl {
                server: "http://127.0.0.1:4318".parse().unwrap(),
                path: "/v1/traces".to_owned(),
            },
            ca: None,
            authorization_file: None,
            service: "vanward".to_owned(),
            sample: shape::Share::WHOLE,
            follow,
            slow: Some(Duration::from_secs(1)),
            errors: true,
            b3: config::B3::Off,
        };
        settings.sample = shape::Share::of_millionths(millionths).unwrap();
        Tracing::new(&settings)
    }

    fn caller(is_sampled: bool) -> Caller {
        let value = format!("00-{:032x}-{:016x}-0{}", 7, 9, u8::from(is_sampled));
        Caller::read([(&b"traceparent"[..], value.as_bytes())].into_iter(), B3Form::Off).unwrap()
    }

    #[test]
    fn the_trace_id_decides_by_the_share() {
        for (millionths, below, above) in [(0, None, Some(0)), (1_000_000, Some((1 << 56) - 1), None)] {
            let tracing = tracing(millionths, FollowCallers::Nobody);
            assert!(below.is_none_or(|id| tracing.is_sampled(None, false, id)), "{millionths}");
            assert!(above.is_none_or(|id| !tracing.is_sampled(None, false, id)), "{millionths}");
        }
        let half = tracing(500_000, FollowCallers::Nobody);
        assert!(half.is_sampled(None, false, (1 << 55) - 1) && !half.is_sampled(None, false, 1 << 55));
        // Bits that need not be random do not decide.
        assert!(half.is_sampled(None, false, (0xff << 56) | 1 | (1 << 100)));
    }

    #[test]
    fn a_caller_decides_where_it_is_followed() {
        for (follow, is_trusted, follows) in [
            (FollowCallers::Trusted, false, false),
            (FollowCallers::Trusted, true, true),
            (FollowCallers::All, false, true),
            (FollowCallers::Nobody, true, false),
        ] {
            for is_sampled in [false, true] {
                for (share, own) in [(0, false), (1_000_000, true)] {
                    let expected = if follows { is_sampled } else { own };
                    let is_followed = super::follows(follow, is_trusted);
                    let outcome =
                        tracing(share, follow).is_sampled(Some(&caller(is_sampled)), is_followed, 7);
                    assert_eq!(outcome, expected, "{follow:?} {is_trusted} {is_sampled} {share}");
                }
            }
        }
    }

    #[test]
    fn errors_and_slow_requests_are_recorded_though_they_were_not_chosen() {
        let tracing = tracing(0, FollowCallers::Nobody);
        let trace = |is_sampled| Trace::new(None, 1, 1, is_sampled);
        for (is_sampled, status, failure, milliseconds, expected) in [
            (false, 200, None, 999, false),
            (false, 200, None, 1000, true),
            (true, 200, None, 0, true),
            (false, 499, None, 0, false),
            (false, 500, None, 0, true),
            (false, 0, Some(Failure::ClientGone), 0, true),
        ] {
            let ended = Ended { status, failure, duration: Duration::from_millis(milliseconds) };
            assert_eq!(tracing.is_recorded(&trace(is_sampled), &ended), expected, "{status} {milliseconds}");
        }
    }

    #[test]
    fn spans_that_nobody_takes_do_not_pile_up() {
        let tracing = tracing(0, FollowCallers::Nobody);
        let handed = (0..WAITING_MAX + 10).filter(|_| tracing.hand_over(Spans::default())).count();
        assert_eq!(handed, WAITING_MAX);
        let _spans = tracing.take_spans().expect("the first that asks");
        assert!(tracing.take_spans().is_none() && !tracing.hand_over(Spans::default()));
    }

    #[test]
    fn methods_that_nobody_knows_have_one_name() {
        assert_eq!((method(b"GET"), method(b"get"), method(b"BREW")), ("GET", "_OTHER", "_OTHER"));
    }
}
