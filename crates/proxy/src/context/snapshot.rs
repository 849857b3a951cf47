//! A plan as one worker uses it, until the next change. A request keeps the snapshot that it began under.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use balance::Time;
use http1::HeadLimits;
use tokio::sync::mpsc::UnboundedSender;

use crate::context::listening::Listening;
use crate::context::minimum_rate::MinimumRate;
use crate::context::plan::{Listener, Plan, ServerPlan, Table, UpstreamPlan};
use crate::context::worker::Message;
use crate::upstream::wait_queue::WaitQueue;
use crate::upstream::{Server, Surroundings, Upstream};
use transport::deadline::Ticks;

/// A plan, with the state that belongs to this worker.
pub(crate) struct Snapshot {
    pub(crate) plan: Arc<Plan>,
    pub(crate) table: Arc<Table>,
    pub(crate) upstreams: Vec<Rc<Upstream>>,
    pub(crate) ticks: TimeoutTicks,
    pub(crate) head_limits: HeadLimits,
    pub(crate) client_limits: ClientLimits,
    /// Whether requests under way are noted for who watches.
    pub(crate) is_watched: bool,
}

/// The limits on a client: sizes and minimum rate.
pub(crate) struct ClientLimits {
    /// The maximum size of a request body; `None` is no limit.
    pub(crate) body_bytes: Option<u64>,
    pub(crate) minimum_rate: Option<MinimumRate>,
}

impl ClientLimits {
    /// The limits of a route that has some of its own.
    pub(crate) fn of_route(limits: &config::Limits, own: &config::RouteLimits) -> Self {
        let bytes_per_second =
            own.minimum_rate_bytes_per_second.unwrap_or(limits.minimum_rate_bytes_per_second);
        let window = own.rate_window.unwrap_or(limits.rate_window);
        Self {
            body_bytes: own.body_bytes.unwrap_or(limits.body_bytes),
            minimum_rate: MinimumRate::new(bytes_per_second, window),
        }
    }
}

/// The time-outs in ticks.
pub(crate) struct TimeoutTicks {
    pub(crate) client_header: Ticks,
    pub(crate) client_body: Ticks,
    pub(crate) client_write: Ticks,
    pub(crate) keep_alive: Ticks,
    pub(crate) upstream_connect: Ticks,
    pub(crate) upstream_first_byte: Ticks,
    pub(crate) upstream_body: Ticks,
    pub(crate) upstream_send: Ticks,
    pub(crate) tunnel_idle: Ticks,
}

impl TimeoutTicks {
    fn new(timeouts: &config::Timeouts) -> Self {
        Self {
            client_header: timeouts.client_header.into(),
            client_body: timeouts.client_body.into(),
            client_write: timeouts.client_write.into(),
            keep_alive: timeouts.keep_alive.into(),
            upstream_connect: timeouts.upstream_connect.into(),
            upstream_first_byte: timeouts.upstream_first_byte.into(),
            upstream_body: timeouts.upstream_body.into(),
            upstream_send: timeouts.upstream_send.unwrap_or(timeouts.upstream_body).into(),
            tunnel_idle: timeouts.tunnel_idle.into(),
        }
    }

    /// The time-outs of a route that has some of its own.
    pub(crate) fn of_route(timeouts: &config::Timeouts, own: &config::RouteTimeouts) -> Self {
        Self::new(&config::Timeouts {
            client_body: own.client_body.unwrap_or(timeouts.client_body),
            client_write: own.client_write.unwrap_or(timeouts.client_write),
            upstream_first_byte: own.upstream_first_byte.unwrap_or(timeouts.upstream_first_byte),
            upstream_body: own.upstream_body.unwrap_or(timeouts.upstream_body),
            upstream_send: own.upstream_send.or(timeouts.upstream_send),
            tunnel_idle: own.tunnel_idle.unwrap_or(timeouts.tunnel_idle),
            ..*timeouts
        })
    }
}

impl Snapshot {
    /// The settings of a listener; for one that was removed, its last settings.
    pub(crate) fn listener<'a>(&'a self, listening: &'a Listening) -> &'a Listener {
        static NONE: Listener = Listener::none();
        let now = listening.place().map(|place| &*self.plan.listeners[place]);
        now.or_else(|| listening.last()).unwrap_or(&NONE)
    }

    /// The servers of all upstreams.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Server> {
        self.upstreams.iter().flat_map(|upstream| &upstream.servers).map(Rc::as_ref)
    }

    /// The wait queues of all upstreams.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &WaitQueue> {
        self.upstreams.iter().filter_map(|upstream| upstream.line.as_deref())
    }

    /// Builds the snapshot of a plan for worker number `worker`. Upstreams and servers of the previous snapshot keep
    /// their state: turns, budgets, pools.
    pub(crate) fn new(
        plan: Arc<Plan>,
        previous: Option<&Self>,
        worker: usize,
        others: &Arc<[UnboundedSender<Message>]>,
        now: Time,
    ) -> Self {
        let surroundings = Surroundings { worker, others, shed: plan.config.shed.concurrency, now };
        let before = previous.map_or(&[][..], |previous| &previous.upstreams);
        let lines: Vec<&Rc<WaitQueue>> =
            before.iter().filter_map(|upstream| upstream.line.as_ref()).collect();
        // A limit on what is under way is part of an upstream, and configured elsewhere.
        let is_shed_alike =
            previous.is_some_and(|previous| previous.plan.config.shed.concurrency == surroundings.shed);
        let alike = before.iter().filter(|_| is_shed_alike);
        let upstreams: HashMap<_, _> =
            alike.map(|upstream| (Arc::as_ptr(&upstream.plan), upstream)).collect();
        let servers: HashMap<*const ServerPlan, &Rc<Server>> = before
            .iter()
            .flat_map(|upstream| &upstream.servers)
            .map(|server| (Arc::as_ptr(&server.plan), server))
            .collect();
        let upstream = |plan: &Arc<UpstreamPlan>| match upstreams.get(&Arc::as_ptr(plan)) {
            Some(upstream) => Rc::clone(upstream),
            None => {
                let known = |plan: &Arc<ServerPlan>| servers.get(&Arc::as_ptr(plan)).copied();
                let line = lines.iter().find(|line| line.is_of(&plan.waiting));
                Rc::new(Upstream::new(plan, known, line.copied(), &surroundings))
            }
        };
        let limits = plan.config.limits;
        Self {
            upstreams: plan.upstreams.iter().map(upstream).collect(),
            ticks: TimeoutTicks::new(&plan.config.timeouts),
            head_limits: HeadLimits {
                bytes: limits.header_bytes,
                fields: limits.header_count,
                target: limits.target_bytes,
            },
            client_limits: ClientLimits::of_route(&limits, &config::RouteLimits::default()),
            is_watched: plan.config.is_watched(),
            table: Table::for_worker(&plan.table),
            plan,
        }
    }
}
