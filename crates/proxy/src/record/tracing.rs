//! Traces in a worker: which are recorded, and how their spans are written.
//!
//! The encoding of contexts is in `telemetry::trace`. The control thread sends spans to the collector.

use std::time::{Instant, SystemTime};

use http1::Name;
use telemetry::{Attributes, B3Form, Caller, EndedSpan, SpanKind, Spans, Trace};

use crate::context::exchange_slot::CurrentRequest;
use crate::context::routed::ExchangeContext;
use crate::failure::Failure;
use crate::shared::tracing::{Tracing, follows};

/// Assigns a request to a trace, by its fields. Returns whether its spans may be wanted.
#[inline(never)]
pub(crate) fn begin(ctx: &ExchangeContext<'_>, tracing: &Tracing, request: &mut CurrentRequest) -> bool {
    let (caller, ids) = (caller(request, tracing.b3()), &ctx.worker.ids);
    let trace_id = match &caller {
        Some(caller) => caller.trace_id,
        None => u128::from(ids.next()) << 64 | u128::from(ids.next()),
    };
    // Another instance's decision is followed always, so that a trace is recorded by both or by neither.
    let is_followed = ctx.client.peer.is_some() || follows(tracing.settings.follow, ctx.client.is_trusted);
    let is_sampled = tracing.is_sampled(caller.as_ref(), is_followed, trace_id);
    request.texts.trace = Some(Trace::new(caller, trace_id, ids.next(), is_sampled));
    is_sampled || tracing.looks_at_ends()
}

/// Returns the trace context of a request.
pub(crate) fn caller(request: &CurrentRequest, b3: B3Form) -> Option<Caller> {
    // Most requests have none, which this check finds without parsing a field.
    let has = |name| request.head.field(name).is_some();
    if !has(Name::Traceparent) && (b3 == B3Form::Off || !has(Name::B3)) {
        return None;
    }
    read_caller(request, b3)
}

#[inline(never)]
fn read_caller(request: &CurrentRequest, b3: B3Form) -> Option<Caller> {
    let bytes = request.head_bytes();
    let fields = request.head.fields.iter();
    Caller::read(fields.map(|field| (field.name.for_bytes(bytes), field.value.for_bytes(bytes))), b3)
}

/// The time of a span.
pub(crate) struct Interval {
    pub(crate) began: SystemTime,
    pub(crate) ended: SystemTime,
}

/// An attempt that was followed by another one.
pub(crate) struct EndedAttempt {
    pub(crate) upstream: usize,
    pub(crate) server: usize,
    pub(crate) failure: Failure,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

struct SpanPlace {
    span_id: u64,
    parent_id: u64,
    has_remote_parent: bool,
}

pub(crate) struct Builder<'a> {
    trace: &'a Trace,
    spans: Spans,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(trace: &'a Trace) -> Self {
        Self { trace, spans: Spans::of_request() }
    }

    pub(crate) fn request(
        &mut self,
        kind: SpanKind,
        name: &[&str],
        interval: Interval,
        failure: Option<Failure>,
        tell: impl FnOnce(&mut Attributes<'_>),
    ) {
        let Trace { span_id, parent_id, has_remote_parent, .. } = *self.trace;
        self.add(SpanPlace { span_id, parent_id, has_remote_parent }, kind, name, interval, failure, tell);
    }

    /// Adds the span of a part of the request.
    pub(crate) fn part(
        &mut self,
        kind: SpanKind,
        name: &str,
        span_id: u64,
        interval: Interval,
        failure: Option<Failure>,
        tell: impl FnOnce(&mut Attributes<'_>),
    ) {
        let place = SpanPlace { span_id, parent_id: self.trace.span_id, has_remote_parent: false };
        self.add(place, kind, &[name], interval, failure, tell);
    }

    fn add(
        &mut self,
        SpanPlace { span_id, parent_id, has_remote_parent }: SpanPlace,
        kind: SpanKind,
        name: &[&str],
        Interval { began, ended }: Interval,
        failure: Option<Failure>,
        tell: impl FnOnce(&mut Attributes<'_>),
    ) {
        let Trace { trace_id, is_sampled, .. } = *self.trace;
        let failure = failure.map(|failure| failure.facts().word);
        let span = EndedSpan {
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

/// Returns the method's name, or `_OTHER` if OpenTelemetry does not know it.
pub(crate) fn method(name: &[u8]) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.into_iter().find(|known| known.as_bytes() == name).unwrap_or("_OTHER")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_nobody_knows_have_one_name() {
        assert_eq!((method(b"GET"), method(b"get"), method(b"BREW")), ("GET", "_OTHER", "_OTHER"));
    }
}
