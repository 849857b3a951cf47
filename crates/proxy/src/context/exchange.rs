//! The context of a request (worker, plan, client), and the decisions about it.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use ::cache::Forward;
use http1::{ConnectionOptions, Framing, Method, RequestHead, Target, Version};

use crate::context::client::Client;
use crate::context::exchange_slot::Memory;
use crate::context::exchange_state::ExchangeState;
use crate::context::plan::{Compression, Listener, Policies};
use crate::context::snapshot::{ClientLimits, Snapshot, TimeoutTicks};
use crate::context::worker::Worker;
use crate::shaping::{Named, Place};

/// The context of a request: its worker, the plan that it began under, its client.
#[derive(Clone, Copy)]
pub(crate) struct ExchangeContext<'a> {
    pub(crate) worker: &'a Rc<Worker>,
    pub(crate) snapshot: &'a Rc<Snapshot>,
    pub(crate) client: &'a Client,
    pub(crate) listener: &'a Listener,
}

impl<'a> ExchangeContext<'a> {
    /// The context of a request that begins now, under the worker's current plan.
    pub(crate) fn new(worker: &'a Rc<Worker>, snapshot: &'a Rc<Snapshot>, client: &'a Client) -> Self {
        Self { worker, snapshot, client, listener: snapshot.listener(&client.listening) }
    }
}

/// The state that the steps of an exchange share, from the request's admission on. The steps pass one reference along.
pub(crate) struct Exchange<'x, 's> {
    pub(crate) ctx: &'x ExchangeContext<'x>,
    pub(crate) routed: &'x RoutedRequest,
    pub(crate) memory: &'x mut Memory,
    pub(crate) state: &'x mut ExchangeState<'s>,
}

/// Whom a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client waits for it, or what is stored for clients.
    Client,
    /// It is a copy: nobody waits for it, and it is not repeated.
    Mirror,
    /// It asks whether a client is let in.
    Auth,
    /// Another instance has asked for it, or is asked.
    Peer,
}

/// An admitted request, with the decisions about it.
#[derive(Clone)]
pub(crate) struct RoutedRequest {
    pub(crate) target: Target,
    pub(crate) framing: Framing,
    pub(crate) connection: ConnectionOptions,
    /// Whether the client asks to switch to another protocol (Upgrade).
    pub(crate) wants_upgrade: bool,
    pub(crate) version: Version,
    pub(crate) method: Method,
    /// The client's address.
    pub(crate) client: IpAddr,
    /// The index of the authenticated user.
    pub(crate) user: Option<usize>,
    /// The index of the route.
    pub(crate) route: usize,
    /// The index of the upstream.
    pub(crate) upstream: usize,
    /// Whether the route has policies.
    pub(crate) has_policies: bool,
    /// Whether the route has a cache.
    pub(crate) is_cached: bool,
    /// What the cache did, for the log.
    pub(crate) cached: Cell<Cached>,
    pub(crate) purpose: Purpose,
}

/// What the cache did for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Cached {
    /// There is none, or it was not asked.
    #[default]
    Unasked,
    /// A stored response was sent.
    Hit,
    /// A stored response was sent although it is stale.
    Stale,
    /// The request went to a server for this reason.
    Forwarded(Forward),
    /// Another instance has answered it.
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
    /// A request without any decisions yet.
    pub(crate) fn new(ctx: &ExchangeContext<'_>, head: &RequestHead) -> Self {
        Self {
            target: Target::default(),
            framing: Framing::None,
            connection: ConnectionOptions::default(),
            wants_upgrade: false,
            version: head.start.version,
            method: head.start.method,
            client: ctx.client.address,
            user: None,
            route: 0,
            upstream: 0,
            has_policies: false,
            is_cached: false,
            cached: Cell::default(),
            purpose: Purpose::Client,
        }
    }

    /// The policies of the route, if it has any.
    #[inline]
    pub(crate) fn policies<'a>(&self, ctx: &ExchangeContext<'a>) -> Option<&'a Policies> {
        if self.has_policies { ctx.snapshot.plan.routes[self.route].policies.as_deref() } else { None }
    }

    /// The policies for the response to the client; another instance sees to them itself.
    #[inline]
    pub(crate) fn response_policies<'a>(&self, ctx: &ExchangeContext<'a>) -> Option<&'a Policies> {
        self.policies(ctx).filter(|_| self.purpose != Purpose::Peer)
    }

    /// How bodies are coded for the client; for another instance they are not.
    #[inline]
    pub(crate) fn compression<'a>(&self, ctx: &ExchangeContext<'a>) -> Option<&'a Compression> {
        let compression = ctx.snapshot.plan.routes[self.route].compress.as_ref();
        compression.filter(|_| self.purpose != Purpose::Peer)
    }

    /// Whether the route has a cache.
    #[inline]
    pub(crate) fn is_cached(&self) -> bool {
        self.is_cached
    }

    /// Whether the request's kind permits to answer it from the cache, and to store its response.
    #[inline]
    pub(crate) fn may_be_stored(&self) -> bool {
        self.is_cached
            && matches!(self.method, Method::Get | Method::Head)
            && self.framing == Framing::None
            && !self.wants_upgrade
    }

    /// Whether cache tags are removed from the response to the client.
    pub(crate) fn hides_tags(&self, ctx: &ExchangeContext<'_>) -> bool {
        let policy = || ctx.snapshot.plan.config.routes[self.route].cache.as_ref();
        self.is_cached && self.purpose != Purpose::Peer && policy().is_some_and(|policy| !policy.sends_tags)
    }

    /// The client, route and upstream, which select the bandwidth limits.
    pub(crate) fn place<'a>(&self, ctx: &ExchangeContext<'a>) -> Place<'a> {
        let ExchangeContext { worker, snapshot, client, .. } = *ctx;
        let route = &snapshot.plan.routes[self.route];
        // Files come from no upstream, so no limit of any holds for them.
        let upstream = snapshot.plan.upstreams.get(self.upstream);
        let upstream = upstream.map_or("", |upstream| upstream.config.name.as_str());
        Place {
            worker,
            client,
            address: self.client,
            is_for_client: self.purpose == Purpose::Client,
            route: Some(Named { name: &route.label, index: self.route }),
            upstream: Named { name: upstream, index: self.upstream },
        }
    }

    /// A copy of the request, to repeat it without a client that waits.
    pub(crate) fn detached(&self) -> Self {
        // Who is sent no interim responses is a client of HTTP/1.0.
        Self { version: Version::Http10, ..self.clone() }
    }

    /// The time-outs for the request: the route's own, or the global ones.
    #[inline]
    pub(crate) fn ticks<'a>(&self, ctx: &ExchangeContext<'a>) -> &'a TimeoutTicks {
        let own = self.policies(ctx).and_then(|policies| policies.ticks.as_ref());
        own.unwrap_or(&ctx.snapshot.ticks)
    }

    /// The limits on the client: the route's own, or the global ones.
    #[inline]
    pub(crate) fn client_limits<'a>(&self, ctx: &ExchangeContext<'a>) -> &'a ClientLimits {
        let own = self.policies(ctx).and_then(|policies| policies.client_limits.as_ref());
        own.unwrap_or(&ctx.snapshot.client_limits)
    }
}
