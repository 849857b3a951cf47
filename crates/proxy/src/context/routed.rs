//! The context of a request (worker, plan, client), and the decisions about it.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use ::cache::{CachePolicy, Forward};
use expression::ValueMemory;
use http1::{BodyFraming, ConnectionOptions, HttpVersion, Method, RequestHead, RequestTarget};

use crate::context::client::FrontConnection;
use crate::context::plan::{Compression, PlanListener, RoutePolicies};
use crate::context::snapshot::Snapshot;
use crate::context::worker::Worker;
use crate::shaping::{LimitedRequest, NamedPart};
use crate::shared::client_limits::{ClientLimits, TimeoutTicks};

/// The context of a request: its worker, the plan that it began under, its client.
#[derive(Clone, Copy)]
pub(crate) struct ExchangeContext<'a> {
    pub(crate) worker: &'a Rc<Worker>,
    pub(crate) snapshot: &'a Rc<Snapshot>,
    pub(crate) client: &'a FrontConnection,
    pub(crate) listener: &'a PlanListener,
    /// The values that the request has computed so far.
    pub(crate) values: &'a ValueMemory,
}

impl<'a> ExchangeContext<'a> {
    /// Creates the context of a new request, under the worker's current plan.
    pub(crate) fn new(
        worker: &'a Rc<Worker>,
        snapshot: &'a Rc<Snapshot>,
        client: &'a FrontConnection,
        values: &'a ValueMemory,
    ) -> Self {
        Self { worker, snapshot, client, listener: snapshot.listener(&client.listening), values }
    }
}

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client waits for it, or it refreshes a stored response.
    Client,
    /// A mirrored copy: no client waits for it, and it is not retried.
    Mirror,
    /// A question for an authentication server.
    Auth,
    /// Another instance has sent it, or is asked.
    Peer,
}

/// An admitted request, with the decisions about it.
#[derive(Clone)]
pub(crate) struct RoutedRequest {
    pub(crate) target: RequestTarget,
    pub(crate) framing: BodyFraming,
    pub(crate) connection: ConnectionOptions,
    /// Whether the client asks for a protocol switch (Upgrade).
    pub(crate) wants_upgrade: bool,
    pub(crate) version: HttpVersion,
    pub(crate) method: Method,
    /// The client's address, possibly as reported by trusted proxies.
    pub(crate) client: IpAddr,
    /// Index of the authenticated user.
    pub(crate) user: Option<usize>,
    pub(crate) route: usize,
    /// Changes when another upstream answers in place of an error (`on_status`).
    pub(crate) upstream: Cell<usize>,
    pub(crate) has_policies: bool,
    pub(crate) is_cached: bool,
    /// As logged.
    pub(crate) cached: Cell<Cached>,
    pub(crate) purpose: Purpose,
}

/// The cache's handling of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Cached {
    /// There is no cache, or it was not asked.
    #[default]
    Unasked,
    Hit,
    /// A stale stored response was sent.
    Stale,
    /// The request went to a server for this reason.
    Forwarded(Forward),
    /// The instance that owns the key has answered.
    Peer,
}

impl Cached {
    /// The word for the log; empty if the cache was not asked.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Unasked => "",
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Peer => "peer",
            Self::Forwarded(Forward::Stale) => "expired",
            Self::Forwarded(Forward::Bypass | Forward::Method | Forward::Request) => "bypass",
            Self::Forwarded(Forward::UriMiss | Forward::VaryMiss | Forward::Partial) => "miss",
        }
    }
}

impl RoutedRequest {
    /// Creates a request without decisions.
    pub(crate) fn new(ctx: &ExchangeContext<'_>, head: &RequestHead) -> Self {
        Self {
            target: RequestTarget::default(),
            framing: BodyFraming::None,
            connection: ConnectionOptions::default(),
            wants_upgrade: false,
            version: head.start.version,
            method: head.start.method,
            client: ctx.client.address,
            user: None,
            route: 0,
            upstream: Cell::new(0),
            has_policies: false,
            is_cached: false,
            cached: Cell::default(),
            purpose: Purpose::Client,
        }
    }

    #[inline]
    pub(crate) fn policies<'a>(&self, ctx: &ExchangeContext<'a>) -> Option<&'a RoutePolicies> {
        if self.has_policies { ctx.snapshot.plan.routes[self.route].policies.as_deref() } else { None }
    }

    /// Returns the policies for the response. `None` for another instance, which applies them itself.
    #[inline]
    pub(crate) fn response_policies<'a>(&self, ctx: &ExchangeContext<'a>) -> Option<&'a RoutePolicies> {
        self.policies(ctx).filter(|_| self.purpose != Purpose::Peer)
    }

    /// Returns how bodies are coded for the client. `None` for another instance.
    #[inline]
    pub(crate) fn compression<'a>(&self, ctx: &ExchangeContext<'a>) -> Option<&'a Compression> {
        let compression = ctx.snapshot.plan.routes[self.route].compress.as_ref();
        // The instance that asks codes the response for its client.
        compression.filter(|_| self.purpose != Purpose::Peer)
    }

    #[inline]
    pub(crate) fn is_cached(&self) -> bool {
        self.is_cached
    }

    /// Whether method and body permit an answer from the cache, and storing the response.
    #[inline]
    pub(crate) fn may_be_stored(&self) -> bool {
        // RFC 9110 §9.3.1: a GET with a body may mean something that the cache key does not contain.
        self.is_cached
            && matches!(self.method, Method::Get | Method::Head)
            && self.framing == BodyFraming::None
            && !self.wants_upgrade
    }

    /// Returns the cache options that remove fields from the response to the client; `None` if there are none.
    pub(crate) fn hiding<'a>(&self, ctx: &ExchangeContext<'a>) -> Option<&'a CachePolicy> {
        if !self.is_cached || self.purpose == Purpose::Peer {
            return None;
        }
        let policy = ctx.snapshot.plan.config.routes[self.route].cache.as_deref();
        policy.filter(|policy| policy.hides_any())
    }

    /// Returns client, route and upstream, which select the bandwidth limits.
    pub(crate) fn place<'a>(&self, ctx: &ExchangeContext<'a>) -> LimitedRequest<'a> {
        let ExchangeContext { worker, snapshot, client, .. } = *ctx;
        let route = &snapshot.plan.routes[self.route];
        // Files come from no upstream, so no upstream's limit applies.
        let upstream = snapshot.plan.upstreams.get(self.upstream.get());
        let upstream = upstream.map_or("", |upstream| upstream.config.name.as_str());
        LimitedRequest {
            shaper: &worker.shaper,
            holding: &worker.holding,
            listening: &client.listening,
            totals: &client.totals,
            address: self.client,
            is_for_client: self.purpose == Purpose::Client,
            route: Some(NamedPart { name: &route.label, index: self.route }),
            upstream: NamedPart { name: upstream, index: self.upstream.get() },
        }
    }

    /// Copies the request, to repeat it without a waiting client.
    pub(crate) fn detached(&self) -> Self {
        // HTTP/1.0 clients get no interim responses, and neither does a request without a client.
        Self { version: HttpVersion::Http10, ..self.clone() }
    }

    /// The time-outs for the request: the route's, or the global ones.
    #[inline]
    pub(crate) fn ticks<'a>(&self, ctx: &ExchangeContext<'a>) -> &'a TimeoutTicks {
        let own = self.policies(ctx).and_then(|policies| policies.ticks.as_deref());
        own.unwrap_or(&ctx.snapshot.ticks)
    }

    /// The limits on the client: the route's, or the global ones.
    #[inline]
    pub(crate) fn client_limits<'a>(&self, ctx: &ExchangeContext<'a>) -> &'a ClientLimits {
        let own = self.policies(ctx).and_then(|policies| policies.client_limits.as_deref());
        own.unwrap_or(&ctx.snapshot.client_limits)
    }
}
