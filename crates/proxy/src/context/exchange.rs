//! What surrounds a request, and what is decided about it.

use std::net::IpAddr;
use std::rc::Rc;

use http1::{ConnectionOptions, Framing, Method, RequestHead, Target, Version};

use crate::context::client::Client;
use crate::context::exchange_slot::Memory;
use crate::context::exchange_state::ExchangeState;
use crate::context::plan::{Listener, Policies};
use crate::context::snapshot::{ClientLimits, Snapshot, TimeoutTicks};
use crate::context::worker::Worker;
use crate::shaping::{Named, Place};

/// What surrounds a request: its worker, the plan that it began under, its client.
#[derive(Clone, Copy)]
pub(crate) struct ExchangeContext<'a> {
    pub(crate) worker: &'a Rc<Worker>,
    pub(crate) snapshot: &'a Rc<Snapshot>,
    pub(crate) client: &'a Client,
    pub(crate) listener: &'a Listener,
}

impl<'a> ExchangeContext<'a> {
    /// Of a request that begins now, under the plan that the worker uses now.
    pub(crate) fn new(worker: &'a Rc<Worker>, snapshot: &'a Rc<Snapshot>, client: &'a Client) -> Self {
        Self { worker, snapshot, client, listener: snapshot.listener(&client.listening) }
    }
}

/// What the steps of one exchange share, from the moment when the request is admitted. One reference to it travels.
pub(crate) struct Exchange<'x, 's> {
    pub(crate) ctx: &'x ExchangeContext<'x>,
    pub(crate) routed: &'x RoutedRequest,
    pub(crate) memory: &'x mut Memory,
    pub(crate) state: &'x mut ExchangeState<'s>,
}

/// A request that may go on, and what was decided about it.
#[derive(Clone)]
pub(crate) struct RoutedRequest {
    pub(crate) target: Target,
    pub(crate) framing: Framing,
    pub(crate) connection: ConnectionOptions,
    /// Whether the server is asked to switch to another protocol.
    pub(crate) wants_upgrade: bool,
    pub(crate) version: Version,
    pub(crate) method: Method,
    /// Who asks.
    pub(crate) client: IpAddr,
    /// Who has given the right password, by number.
    pub(crate) user: Option<usize>,
    /// Index of its route.
    pub(crate) route: usize,
    /// Index of the upstream that it goes to.
    pub(crate) upstream: usize,
    /// Whether its route has policies.
    pub(crate) has_policies: bool,
    /// Whether responses of its route are stored.
    pub(crate) is_cached: bool,
}

impl RoutedRequest {
    /// A request that nothing is decided about yet.
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
        }
    }

    /// What its route asks besides, and does with it.
    #[inline]
    pub(crate) fn policies<'a>(&self, ctx: &ExchangeContext<'a>) -> Option<&'a Policies> {
        if self.has_policies { ctx.snapshot.plan.routes[self.route].policies.as_deref() } else { None }
    }

    /// Whether responses of its route are stored.
    #[inline]
    pub(crate) fn is_cached(&self) -> bool {
        self.is_cached
    }

    /// Whether what is stored may answer it, and what comes may be stored, as far as can be told from its kind.
    #[inline]
    pub(crate) fn may_be_stored(&self) -> bool {
        self.is_cached
            && matches!(self.method, Method::Get | Method::Head)
            && self.framing == Framing::None
            && !self.wants_upgrade
    }

    /// Whether its client does not get to see what caches alone are told.
    pub(crate) fn hides_tags(&self, ctx: &ExchangeContext<'_>) -> bool {
        let policy = || ctx.snapshot.plan.config.routes[self.route].cache.as_ref();
        self.is_cached && policy().is_some_and(|policy| !policy.sends_tags)
    }

    /// What decides how it is slowed down.
    pub(crate) fn place<'a>(&self, ctx: &ExchangeContext<'a>) -> Place<'a> {
        let ExchangeContext { worker, snapshot, client, .. } = *ctx;
        let (route, upstream) = (&snapshot.plan.routes[self.route], &snapshot.plan.upstreams[self.upstream]);
        Place {
            worker,
            client,
            address: self.client,
            route: Some(Named { name: &route.label, index: self.route }),
            upstream: Named { name: &upstream.config.name, index: self.upstream },
        }
    }

    /// The same for a request that is repeated when no client waits for it.
    pub(crate) fn detached(&self) -> Self {
        // Who is sent no interim responses is a client of HTTP/1.0.
        Self { version: Version::Http10, ..self.clone() }
    }

    /// How long it may take.
    #[inline]
    pub(crate) fn ticks<'a>(&self, ctx: &ExchangeContext<'a>) -> &'a TimeoutTicks {
        let own = self.policies(ctx).and_then(|policies| policies.ticks.as_ref());
        own.unwrap_or(&ctx.snapshot.ticks)
    }

    /// What its client may send, and how slow the client may be.
    #[inline]
    pub(crate) fn client_limits<'a>(&self, ctx: &ExchangeContext<'a>) -> &'a ClientLimits {
        let own = self.policies(ctx).and_then(|policies| policies.client_limits.as_ref());
        own.unwrap_or(&ctx.snapshot.client_limits)
    }
}
