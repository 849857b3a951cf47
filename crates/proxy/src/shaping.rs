//! Traffic shaping: how much of a body may be sent now, and delays of messages.
//!
//! An unshaped message costs one comparison.

/// A worker's streams under one limit.
mod share;
/// The pace of one body, under all its limits.
mod pace;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use config::Scope;
use shape::Total;

use crate::context::plan::Plan;
use transport::alarm::Alarms;
use transport::latency_emulation::EmulatedLink;

pub(crate) use crate::shared::limits::Direction;
use crate::shared::limits::Limiter;
pub(crate) use pace::{LimitedRequest, NamedPart, Pace};
use share::RateShare;

/// Number of shares beyond which ended ones are removed.
const SHARES_KEPT: usize = 64;

pub(crate) struct Shaper {
    worker: usize,
    alarms: Rc<Alarms>,
    plan: RefCell<Arc<Plan>>,
    /// Counts plan changes.
    changes: Cell<u32>,
    /// Whether the plan has any limit.
    limits: Cell<bool>,
    /// Whether a listener's link delays its clients' bytes.
    late: Cell<bool>,
    shares: RefCell<Shares>,
}

/// Shares, by the address of their total, which each of them holds.
#[derive(Default)]
struct Shares {
    known: HashMap<*const Total, Weak<RateShare>>,
    /// The number of shares at which ended ones are removed.
    sweep_at: usize,
}

impl Shaper {
    pub(crate) fn new(worker: usize, alarms: Rc<Alarms>, plan: &Arc<Plan>) -> Self {
        Self {
            worker,
            alarms,
            plan: RefCell::new(Arc::clone(plan)),
            changes: Cell::new(0),
            limits: Cell::new(!plan.limits.is_empty()),
            late: Cell::new(has_delayed_listener(plan)),
            shares: RefCell::default(),
        }
    }

    pub(crate) fn alarms(&self) -> &Rc<Alarms> {
        &self.alarms
    }

    #[inline]
    fn changes(&self) -> u32 {
        self.changes.get()
    }

    /// Whether the plan has any limit.
    fn limits(&self) -> bool {
        self.limits.get()
    }

    /// Whether any listener's link delays the bytes of its clients.
    #[inline]
    pub(crate) fn has_delayed_listener(&self) -> bool {
        self.late.get()
    }

    /// Applies another plan, also to bodies that are under way.
    pub(crate) fn follow(&self, plan: &Arc<Plan>) {
        self.plan.replace(Arc::clone(plan));
        let now_ns = self.alarms.now_ns();
        plan.limits.iter().for_each(|limits| limits.enforce(now_ns));
        self.limits.set(!plan.limits.is_empty());
        links(plan).for_each(|link| link.enforce());
        self.late.set(has_delayed_listener(plan));
        // The remainder keeps the count apart from `NEVER`, which is u32::MAX.
        self.changes.set(self.changes.get().wrapping_add(1) % u32::MAX);
        let shares: Vec<Rc<RateShare>> =
            self.shares.borrow().known.values().filter_map(Weak::upgrade).collect();
        shares.iter().for_each(|share| share.follow());
    }

    /// Returns this worker's share of the total that a body counts against. It exists as long as a body uses it.
    fn share(&self, limiter: &Arc<Limiter>, place: &LimitedRequest<'_>) -> Rc<RateShare> {
        let now_ns = self.alarms.now_ns();
        let total = match limiter.scope {
            Scope::Connection => place.totals.for_limiter(limiter, place, now_ns),
            Scope::All | Scope::Client(_) | Scope::Request => limiter.total(place.address, now_ns),
        };
        let shares = &mut *self.shares.borrow_mut();
        if let Some(share) = shares.known.get(&Arc::as_ptr(&total)).and_then(Weak::upgrade) {
            return share;
        }
        // Ended shares are removed once the map has doubled, which keeps the cost per share constant.
        if shares.known.len() >= shares.sweep_at {
            shares.known.retain(|_, share| share.strong_count() > 0);
            shares.sweep_at = SHARES_KEPT.max(2 * shares.known.len());
        }
        let share = RateShare::new(limiter, &total, self.worker, &self.alarms);
        shares.known.insert(Arc::as_ptr(&total), Rc::downgrade(&share));
        share
    }
}

fn links(plan: &Plan) -> impl Iterator<Item = &Arc<EmulatedLink>> {
    let of_listeners = plan.listeners.iter().filter_map(|listener| listener.link.as_ref());
    of_listeners.chain(plan.upstreams.iter().filter_map(|upstream| upstream.link.as_ref()))
}

fn has_delayed_listener(plan: &Plan) -> bool {
    plan.listeners.iter().filter_map(|listener| listener.link.as_ref()).any(|link| link.is_delayed())
}

/// The totals of one client connection, one for each limit per connection.
#[derive(Default)]
pub(crate) struct ConnectionTotals(OnceCell<Rc<RefCell<Vec<ConnectionTotal>>>>);

/// The limit, and this connection's total.
type ConnectionTotal = (Arc<Limiter>, Arc<Total>);

impl ConnectionTotals {
    /// Shares the totals with a stream of the connection.
    pub(crate) fn shared(&self) -> Self {
        Self(OnceCell::from(Rc::clone(self.0.get_or_init(Rc::default))))
    }

    fn for_limiter(&self, limiter: &Arc<Limiter>, place: &LimitedRequest<'_>, now_ns: u64) -> Arc<Total> {
        let mut totals = self.0.get_or_init(Rc::default).borrow_mut();
        // Removes totals whose limit no plan has any more.
        totals.retain(|(limiter, _)| Arc::strong_count(limiter) > 1);
        if let Some((_, total)) = totals.iter().find(|(of, _)| Arc::ptr_eq(of, limiter)) {
            // The limit may have changed since the total was made.
            total.set_limit(limiter.limit(), now_ns);
            return Arc::clone(total);
        }
        let total = limiter.total(place.address, now_ns);
        totals.push((Arc::clone(limiter), Arc::clone(&total)));
        total
    }
}
