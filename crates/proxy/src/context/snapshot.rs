//! A plan as one worker uses it, until the next change. A request keeps the snapshot that it began under.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use balance::Time;
use http1::HeadLimits;
use tokio::sync::mpsc::UnboundedSender;

use crate::context::plan::{Plan, PlanListener, PlanRouteTable, ServerPlan, UpstreamPlan};
use crate::context::worker::WorkerMessage;
use crate::context::worker_conditions::WorkerConditions;
use crate::listening::Listening;
use crate::shared::client_limits::{ClientLimits, TimeoutTicks};
use crate::upstream::wait_queue::{CallWorker, WaitQueue};
use crate::upstream::{Surroundings, UpstreamServer, WorkerUpstream};

/// A plan, with the state that belongs to this worker.
pub(crate) struct Snapshot {
    pub(crate) plan: Arc<Plan>,
    pub(crate) table: Arc<PlanRouteTable>,
    pub(crate) upstreams: Vec<Rc<WorkerUpstream>>,
    pub(crate) ticks: TimeoutTicks,
    pub(crate) head_limits: HeadLimits,
    pub(crate) client_limits: ClientLimits,
    /// The conditions of options with regular expressions.
    pub(crate) conditions: WorkerConditions,
    /// Whether requests under way are noted for operators.
    pub(crate) is_watched: bool,
}

impl Snapshot {
    /// The settings of a listener; for a removed one, its last settings.
    pub(crate) fn listener<'a>(&'a self, listening: &'a Listening) -> &'a PlanListener {
        listening.settings(&self.plan)
    }

    /// The servers of all upstreams.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &UpstreamServer> {
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
        others: &Arc<[UnboundedSender<WorkerMessage>]>,
        now: Time,
    ) -> Self {
        let others = Arc::clone(others);
        let call: Rc<CallWorker> = Rc::new(move |other, waiting| {
            if let Some(other) = others.get(other) {
                // An error means that the worker has ended, so no request waits there.
                let _ = other.send(WorkerMessage::Room(Arc::clone(waiting)));
            }
        });
        let surroundings = Surroundings { worker, call: &call, shed: plan.config.shed.concurrency, now };
        let before = previous.map_or(&[][..], |previous| &previous.upstreams);
        // The limit on requests under way belongs to an upstream, but is configured globally.
        let is_shed_alike =
            previous.is_some_and(|previous| previous.plan.config.shed.concurrency == surroundings.shed);
        let mut by_name: Option<HashMap<&str, &Rc<WorkerUpstream>>> = None;
        // A plan takes servers over from the upstream of the same name.
        let mut upstream = |(place, plan): (usize, &Arc<UpstreamPlan>)| {
            let is_same = |known: &&Rc<WorkerUpstream>| is_shed_alike && Arc::ptr_eq(&known.plan, plan);
            if let Some(same) = before.get(place).filter(is_same) {
                return Rc::clone(same);
            }
            let at_place = before.get(place).filter(|known| known.plan.config.name == plan.config.name);
            let known = at_place.or_else(|| {
                let by_name = by_name.get_or_insert_with(|| {
                    before.iter().map(|known| (known.plan.config.name.as_str(), known)).collect()
                });
                by_name.get(plan.config.name.as_str()).copied()
            });
            if let Some(same) = known.filter(is_same) {
                return Rc::clone(same);
            }
            // A server is found by the address of its plan: the same object means unchanged settings.
            let servers: HashMap<*const ServerPlan, &Rc<UpstreamServer>> = known
                .iter()
                .flat_map(|upstream| &upstream.servers)
                .map(|server| (Arc::as_ptr(&server.plan), server))
                .collect();
            let server = |plan: &Arc<ServerPlan>| servers.get(&Arc::as_ptr(plan)).copied();
            let line = known.and_then(|known| known.line.as_ref());
            let line = line.filter(|line| line.is_of(&plan.waiting));
            Rc::new(WorkerUpstream::new(plan, server, line, &surroundings))
        };
        let limits = plan.config.limits;
        // An unchanged table is reused, because a copy may be large.
        let table = previous.filter(|previous| Arc::ptr_eq(&previous.plan.table, &plan.table));
        let table =
            table.map_or_else(|| PlanRouteTable::for_worker(&plan.table), |same| Arc::clone(&same.table));
        Self {
            upstreams: plan.upstreams.iter().enumerate().map(&mut upstream).collect(),
            ticks: TimeoutTicks::new(&plan.config.timeouts),
            head_limits: HeadLimits {
                bytes: limits.header_bytes,
                fields: limits.header_count,
                target: limits.target_bytes,
            },
            client_limits: ClientLimits::of_route(&limits, &config::RouteLimits::default()),
            conditions: WorkerConditions::new(&plan.conditions),
            is_watched: plan.config.is_watched(),
            table,
            plan,
        }
    }
}
