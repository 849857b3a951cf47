//! Traffic shaping: how much of a body may be sent now, and delays of messages.
//!
//! A message that is not shaped pays for one comparison.

/// Bandwidth limits, shared by all workers.
mod limits;
/// One worker's streams under one limit.
mod share;
/// The pace of one body, under all its limits.
mod pace;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use config::Scope;
use shape::Total;

use crate::context::exchange::ExchangeContext;
use crate::context::exchange_slot::Memory;
use crate::context::plan::Plan;
use transport::alarm::Alarms;
use transport::delay::Delayed;
use transport::latency_emulation::Link;

pub(crate) use limits::{Direction, Limiter, Limits};
pub(crate) use pace::{Named, Pace, Place};
use share::Share;

/// Shares that are known before those are looked for that have ended.
const SHARES_KEPT: usize = 64;

/// Delays a message. Meanwhile it keeps no more memory than its bytes need.
pub(crate) async fn hold_back(ctx: &ExchangeContext<'_>, delay: &Delayed, memory: &mut Memory) {
    let ExchangeContext { worker, .. } = *ctx;
    memory.park(worker);
    worker.holding.during(worker.shaper.alarms().wait(delay)).await;
    memory.unpark(worker);
}

/// One worker's state of shaped messages.
pub(crate) struct Shaper {
    worker: usize,
    alarms: Rc<Alarms>,
    /// How often there was another plan.
    changes: Cell<u32>,
    /// Whether the plan has a limit anywhere.
    limits: Cell<bool>,
    /// Whether the bytes of clients are late anywhere.
    late: Cell<bool>,
    shares: RefCell<Shares>,
}

/// By the address of their totals, which each of them holds.
#[derive(Default)]
struct Shares {
    known: HashMap<*const Total, Weak<Share>>,
    /// How many there may be before those are forgotten that have ended.
    sweep_at: usize,
}

impl Shaper {
    pub(crate) fn new(worker: usize, alarms: Rc<Alarms>, plan: &Plan) -> Self {
        Self {
            worker,
            alarms,
            changes: Cell::new(0),
            limits: Cell::new(limits(plan).next().is_some()),
            late: Cell::new(has_delayed_listener(plan)),
            shares: RefCell::default(),
        }
    }

    /// The worker's precise timers.
    pub(crate) fn alarms(&self) -> &Rc<Alarms> {
        &self.alarms
    }

    /// How often there was another plan.
    #[inline]
    fn changes(&self) -> u32 {
        self.changes.get()
    }

    /// Whether the plan has a limit anywhere.
    fn limits(&self) -> bool {
        self.limits.get()
    }

    /// Whether any listener's link delays the bytes of its clients.
    #[inline]
    pub(crate) fn has_delayed_listener(&self) -> bool {
        self.late.get()
    }

    /// Applies another plan, also to bodies that are under way.
    pub(crate) fn follow(&self, plan: &Plan) {
        let now_ns = self.alarms.now_ns();
        limits(plan).for_each(|limits| limits.enforce(now_ns));
        self.limits.set(limits(plan).next().is_some());
        links(plan).for_each(|link| link.enforce());
        self.late.set(has_delayed_listener(plan));
        self.changes.set(self.changes.get().wrapping_add(1) % u32::MAX);
        let shares: Vec<Rc<Share>> = self.shares.borrow().known.values().filter_map(Weak::upgrade).collect();
        shares.iter().for_each(|share| share.follow());
    }

    /// This worker's share of the total that a body counts under, for as long as one has a part in it.
    fn share(&self, limiter: &Arc<Limiter>, place: &Place<'_>) -> Rc<Share> {
        let now_ns = self.alarms.now_ns();
        let total = match limiter.scope {
            Scope::Connection => place.client.totals.of(limiter, place, now_ns),
            Scope::All | Scope::Client(_) | Scope::Request => limiter.total(place.address, now_ns),
        };
        let shares = &mut *self.shares.borrow_mut();
        if let Some(share) = shares.known.get(&Arc::as_ptr(&total)).and_then(Weak::upgrade) {
            return share;
        }
        if shares.known.len() >= shares.sweep_at {
            shares.known.retain(|_, share| share.strong_count() > 0);
            shares.sweep_at = SHARES_KEPT.max(2 * shares.known.len());
        }
        let share = Share::new(limiter, &total, self.worker, &self.alarms);
        shares.known.insert(Arc::as_ptr(&total), Rc::downgrade(&share));
        share
    }
}

/// All limits of a plan.
fn limits(plan: &Plan) -> impl Iterator<Item = &Arc<Limits>> {
    let of_listeners = plan.listeners.iter().filter_map(|listener| listener.limits.as_ref());
    let of_routes = plan.routes.iter().filter_map(|route| route.limits.as_ref());
    let of_upstreams = plan.upstreams.iter().filter_map(|upstream| upstream.limits.as_ref());
    of_listeners.chain(of_routes).chain(of_upstreams)
}

/// All links of a plan.
fn links(plan: &Plan) -> impl Iterator<Item = &Arc<Link>> {
    let of_listeners = plan.listeners.iter().filter_map(|listener| listener.link.as_ref());
    of_listeners.chain(plan.upstreams.iter().filter_map(|upstream| upstream.link.as_ref()))
}

fn has_delayed_listener(plan: &Plan) -> bool {
    plan.listeners.iter().filter_map(|listener| listener.link.as_ref()).any(|link| link.is_delayed())
}

/// The totals that belong to one client's connection, one for each limit per connection.
#[derive(Default)]
pub(crate) struct ConnectionTotals(OnceCell<Rc<RefCell<Vec<ConnectionTotal>>>>);

/// The limit, and what a connection has of it.
type ConnectionTotal = (Arc<Limiter>, Arc<Total>);

impl ConnectionTotals {
    /// Shares the totals with a stream of the connection.
    pub(crate) fn shared(&self) -> Self {
        Self(OnceCell::from(Rc::clone(self.0.get_or_init(Rc::default))))
    }

    fn of(&self, limiter: &Arc<Limiter>, place: &Place<'_>, now_ns: u64) -> Arc<Total> {
        let mut totals = self.0.get_or_init(Rc::default).borrow_mut();
        // Those that no plan has any more.
        totals.retain(|(limiter, _)| Arc::strong_count(limiter) > 1);
        if let Some((_, total)) = totals.iter().find(|(of, _)| Arc::ptr_eq(of, limiter)) {
            total.set_limit(limiter.limit(), now_ns);
            return Arc::clone(total);
        }
        let total = limiter.total(place.address, now_ns);
        totals.push((Arc::clone(limiter), Arc::clone(&total)));
        total
    }
}
