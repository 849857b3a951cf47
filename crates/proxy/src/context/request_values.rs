//! Values of a request: named expressions, for templates, keys and the log.
//!
//! Each is computed at most once for a request, and kept in the exchange's [`ValueMemory`](expression::ValueMemory).

use std::net::IpAddr;

use expression::{Expression, ExpressionTrace};
use http1::{BodyFraming, RequestTarget};
use route::{LaterFacts, RequestConditions, RequestSource};

use crate::context::exchange_slot::CurrentRequest;
use crate::context::later;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen::SeenConditions;

/// Computes values of a request. Gathers facts only when a value is asked for.
pub(crate) struct RequestValues<'a> {
    ctx: &'a ExchangeContext<'a>,
    target: RequestTarget,
    framing: BodyFraming,
    client: IpAddr,
    request: &'a CurrentRequest,
    /// The facts that are known besides the request.
    pub(crate) later: LaterFacts<'a>,
}

impl<'a> RequestValues<'a> {
    pub(crate) fn new(
        ctx: &'a ExchangeContext<'a>,
        (target, framing): (RequestTarget, BodyFraming),
        client: IpAddr,
        request: &'a CurrentRequest,
    ) -> Self {
        Self { ctx, target, framing, client, request, later: LaterFacts::default() }
    }

    /// Takes a request whose client is authenticated, if its route requires that.
    pub(crate) fn from_routed(
        ctx: &'a ExchangeContext<'a>,
        routed: &RoutedRequest,
        request: &'a CurrentRequest,
    ) -> Self {
        let later = later::of_client(routed.policies(ctx), routed.user, &request.texts);
        Self::new(ctx, (routed.target, routed.framing), routed.client, request).with(later)
    }

    /// Replaces what is known besides the request.
    pub(crate) fn with(self, later: LaterFacts<'a>) -> Self {
        Self { later, ..self }
    }

    /// As `with`, if more is known now.
    pub(crate) fn with_known(self, later: Option<LaterFacts<'a>>) -> Self {
        match later {
            Some(later) => self.with(later),
            None => self,
        }
    }

    /// Whether a condition holds.
    pub(crate) fn holds(&self, condition: &Expression) -> bool {
        self.hold(condition, self.target.path.for_bytes(self.request.head_bytes()))
    }

    /// Passes the text of a value to `then`, unless it is absent.
    pub(crate) fn write(&self, value: &Expression, then: &mut dyn FnMut(&[u8])) {
        self.value(value, self.target.path.for_bytes(self.request.head_bytes()), then);
    }

    fn with_seen<R>(&self, then: impl FnOnce(&SeenConditions<'_>) -> R) -> R {
        let Self { ctx, target, framing, client, request, .. } = *self;
        let head = &request.head;
        let routed = &RoutedRequest { target, framing, client, ..RoutedRequest::new(ctx, head) };
        then(&SeenConditions::new(ctx, routed, head, request.head_bytes()))
    }
}

impl RequestConditions for RequestValues<'_> {
    fn hold(&self, condition: &Expression, path: &[u8]) -> bool {
        let scratch = &mut self.ctx.worker.expression_scratch.borrow_mut();
        self.with_seen(|seen| seen.hold_later(condition, path, &self.later, scratch))
    }

    fn explain(&self, condition: &Expression, path: &[u8]) -> ExpressionTrace {
        self.with_seen(|seen| seen.explain(condition, path))
    }

    fn value(&self, value: &Expression, path: &[u8], then: &mut dyn FnMut(&[u8])) {
        let scratch = &mut self.ctx.worker.expression_scratch.borrow_mut();
        self.with_seen(|seen| seen.value_later(value, path, &self.later, scratch, then));
    }
}

/// The fields of a request, and its values by name, for keys of sessions and hashes.
pub(crate) struct KeyFields<'a> {
    fields: &'a [http1::FieldLine],
    bytes: &'a [u8],
    /// The route, and the values of its request; `None` without a request.
    values: Option<(usize, RequestValues<'a>)>,
}

impl<'a> KeyFields<'a> {
    /// No fields: of a connection without requests.
    pub(crate) const NONE: KeyFields<'static> = KeyFields { fields: &[], bytes: b"", values: None };

    /// Fields of a message without values.
    pub(crate) fn from_fields(fields: &'a [http1::FieldLine], bytes: &'a [u8]) -> Self {
        Self { fields, bytes, values: None }
    }

    pub(crate) fn from_request(
        ctx: &'a ExchangeContext<'a>,
        routed: &RoutedRequest,
        request: &'a CurrentRequest,
    ) -> Self {
        Self::with_values(routed.route, RequestValues::from_routed(ctx, routed, request))
    }

    /// The fields of a request to a route, with these values.
    pub(crate) fn with_values(route: usize, values: RequestValues<'a>) -> Self {
        let request = values.request;
        Self { fields: &request.head.fields, bytes: request.head_bytes(), values: Some((route, values)) }
    }
}

impl balance::SessionFields for KeyFields<'_> {
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let is_it = move |field: &&http1::FieldLine| {
            field.name.for_bytes(self.bytes).eq_ignore_ascii_case(name.as_bytes())
        };
        self.fields.iter().filter(is_it).map(|field| field.value.for_bytes(self.bytes))
    }

    fn value(&self, name: &str, then: &mut dyn FnMut(&[u8])) {
        let Some((route, values)) = &self.values else { return };
        if let Some(value) = values.ctx.snapshot.plan.config.routes[*route].values.find(name) {
            values.write(value, then);
        }
    }
}

/// Returns the time of a request in nanoseconds since 1970: the same for all of its expressions.
pub(crate) fn time_ns(ctx: &ExchangeContext<'_>) -> i64 {
    ctx.values
        .time_ns(|| i64::try_from(ctx.worker.unix_ms()).map_or(i64::MAX, |ms| ms.saturating_mul(1_000_000)))
}
