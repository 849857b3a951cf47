//! Conditions of options that are evaluated after authentication, or with the response.
//!
//! `seen` has those of the request alone. Facts are gathered only for options that have a condition.

use expression::Expression;
use http1::BodyFraming;
use route::{LaterFacts, RequestSource, ResponseFacts};
use std::cell::Cell;

use crate::context::exchange_slot::{CurrentRequest, Texts};
use crate::context::plan::{Compression, RoutePolicies};
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen::SeenConditions;

/// A request with what is known of its exchange, to evaluate conditions.
pub(crate) struct ExchangeConditions<'a> {
    ctx: ExchangeContext<'a>,
    routed: &'a RoutedRequest,
    request: &'a CurrentRequest,
    later: LaterFacts<'a>,
}

/// A response, for conditions.
#[derive(Clone, Copy)]
pub(crate) struct KnownResponse<'a> {
    pub(crate) status: u16,
    /// The text of the head.
    pub(crate) head: &'a [u8],
    /// The length of the body; `None` means the one in the head.
    pub(crate) size: Option<u64>,
    /// The server of the response; empty if none was asked.
    pub(crate) server: &'a str,
}

impl<'a> ExchangeConditions<'a> {
    /// Takes a request whose client is authenticated, if its route requires that.
    pub(crate) fn new(
        ctx: &ExchangeContext<'a>,
        routed: &'a RoutedRequest,
        request: &'a CurrentRequest,
    ) -> Self {
        let later = of_client(routed.policies(ctx), routed.user, &request.texts);
        Self { ctx: *ctx, routed, request, later }
    }

    /// Adds the upstream of the request and its server; empty if no server is asked.
    pub(crate) fn forwarded(self, server: &'a str) -> Self {
        let upstream = self.ctx.snapshot.plan.upstreams.get(self.routed.upstream.get());
        let upstream = upstream.map_or("", |upstream| upstream.config.name.as_str());
        Self { later: LaterFacts { upstream, server, ..self.later }, ..self }
    }

    /// The facts that are known besides the request.
    pub(crate) fn later(&self) -> LaterFacts<'a> {
        self.later
    }

    /// Adds the response, whose head is known now, and its server.
    pub(crate) fn answered(self, response: KnownResponse<'a>) -> Self {
        let KnownResponse { status, head, size, server } = response;
        let time = self.request.texts.began.map(|began| began.elapsed());
        let response = Some(ResponseFacts { status, head, size, time });
        let cache_status = self.routed.cached.get().word();
        let known = self.forwarded(server);
        Self { later: LaterFacts { response, cache_status, ..known.later }, ..known }
    }

    pub(crate) fn hold(&self, condition: &Expression) -> bool {
        let Self { ctx, routed, request, later } = self;
        let condition = ctx.snapshot.conditions.own(condition);
        let bytes = request.head_bytes();
        let path = routed.target.path.for_bytes(bytes);
        let scratch = &mut ctx.worker.expression_scratch.borrow_mut();
        SeenConditions::new(ctx, routed, &request.head, bytes).hold_later(condition, path, later, scratch)
    }
}

/// Returns what authentication has found about the client of a request: its user, and the claims of its token. `user` is the
/// index of a listed one.
pub(crate) fn of_client<'a>(
    policies: Option<&'a RoutePolicies>,
    user: Option<usize>,
    texts: &'a Texts,
) -> LaterFacts<'a> {
    LaterFacts {
        user: policies.map_or("", |policies| policies.user(user, texts.user())),
        claims: texts.vouched.as_ref().map(|vouched| &vouched.claims),
        ..LaterFacts::default()
    }
}

/// Whether the condition of an option holds once the client is authenticated; true without one.
#[inline]
pub(crate) fn holds(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    condition: Option<&Expression>,
) -> bool {
    condition.is_none_or(|condition| ExchangeConditions::new(ctx, routed, request).hold(condition))
}

/// Returns how a response is coded for the client; `None` if the route codes none, or its condition does not hold.
#[inline]
pub(crate) fn compression<'c, 'r>(
    ctx: &ExchangeContext<'c>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    response: impl FnOnce() -> KnownResponse<'r>,
) -> Option<&'c Compression> {
    let compression = routed.compression(ctx)?;
    let is_coded = compression
        .settings
        .when
        .as_deref()
        .is_none_or(|when| ExchangeConditions::new(ctx, routed, request).answered(response()).hold(when));
    is_coded.then_some(compression)
}

/// Returns the lifetime that a rule of the route sets for a response that may be stored, in milliseconds.
pub(crate) fn ttl_ms<'a>(
    ctx: &ExchangeContext<'a>,
    routed: &'a RoutedRequest,
    request: &'a CurrentRequest,
    response: KnownResponse<'a>,
) -> Option<u64> {
    let rules = &ctx.snapshot.plan.config.routes[routed.route].cache_rules;
    if rules.is_empty() {
        return None;
    }
    let known = ExchangeConditions::new(ctx, routed, request).answered(response);
    rules.iter().find(|rule| known.hold(&rule.when)).map(|rule| rule.ttl_ms)
}

/// Returns a request with the decisions that conditions ask for, where the admitted one is gone.
#[cold]
pub(crate) fn routed_again(
    ctx: &ExchangeContext<'_>,
    request: &CurrentRequest,
    known: RoutedRequest,
) -> RoutedRequest {
    let framing = http1::request_framing(&request.head, request.head_bytes()).unwrap_or(BodyFraming::None);
    let route = &ctx.snapshot.plan.routes[known.route];
    let (has_policies, upstream) = (route.policies.is_some(), Cell::new(route.upstream));
    RoutedRequest { framing, has_policies, upstream, ..known }
}
