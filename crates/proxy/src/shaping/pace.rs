//! The pace of a body, or of one direction of a tunnel: how much may be sent now, under all limits at once.
//!
//! The plan in force applies, rather than the request's, so that changes affect long bodies, too. Without limits it
//! costs one comparison.

use std::cell::{Cell, RefCell, RefMut};
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use shape::StreamId;

use super::share::RateShare;
use super::{ConnectionTotals, Shaper};
use crate::context::plan::{Plan, PlanRoute};
use crate::listening::Listening;
use crate::shared::limits::{Direction, Limiter};
use crate::shared::waits::Holding;

/// Minimum piece for splicing: below, a pipe costs more than it saves.
const WIDE_PIECE_BYTES: u64 = 64 * 1024;

/// A number that no plan change has.
const NEVER: u32 = u32::MAX;

/// The request of a body, which decides the limits that apply.
#[derive(Clone, Copy)]
pub(crate) struct LimitedRequest<'a> {
    pub(crate) shaper: &'a Shaper,
    /// Notes whether the exchange waits for the proxy itself.
    pub(crate) holding: &'a Holding,
    /// The listener of the client's connection, and the connection's totals.
    pub(crate) listening: &'a Listening,
    pub(crate) totals: &'a ConnectionTotals,
    pub(crate) address: IpAddr,
    /// Whether the body is for the client, or from it; otherwise only the upstream's limits apply.
    pub(crate) is_for_client: bool,
    /// The route, if the request has one.
    pub(crate) route: Option<NamedPart<'a>>,
    pub(crate) upstream: NamedPart<'a>,
}

/// A part of a plan, by name. The index is a hint, because later plans may have another order.
#[derive(Clone, Copy)]
pub(crate) struct NamedPart<'a> {
    pub(crate) name: &'a str,
    /// Index in the plan that the name is from.
    pub(crate) index: usize,
}

impl NamedPart<'_> {
    fn find<T>(self, all: &[T], name: impl Fn(&T) -> &str) -> Option<&T> {
        let known = all.get(self.index).filter(|part| name(part) == self.name);
        known.or_else(|| all.iter().find(|part| name(part) == self.name))
    }
}

pub(crate) struct Pace {
    direction: Direction,
    /// The plan change since which nothing is limited.
    unlimited_since: Cell<u32>,
    /// The plan change that `levels` belong to.
    followed: Cell<u32>,
    /// The limit that the server has set for its response, beside those of plans.
    of_server: Option<Arc<Limiter>>,
    /// A level for each limit.
    levels: RefCell<Vec<Level>>,
    /// Bytes that are not counted: a head before the body.
    free: Cell<u64>,
}

/// A stream under one limit.
struct Level {
    share: Rc<RateShare>,
    stream: StreamId,
    /// Granted bytes that were not sent yet.
    granted: u64,
}

impl Pace {
    pub(crate) fn new(direction: Direction, shaper: &Shaper) -> Self {
        let unlimited_since = if shaper.limits() { NEVER } else { shaper.changes() };
        Self {
            direction,
            unlimited_since: Cell::new(unlimited_since),
            followed: Cell::new(NEVER),
            of_server: None,
            levels: RefCell::default(),
            free: Cell::new(0),
        }
    }

    /// The pace of a response's body, with the rate that the server has set for it.
    #[inline]
    pub(crate) fn of_response(shaper: &Shaper, rate_bytes_per_second: Option<NonZeroU64>) -> Self {
        let pace = Self::new(Direction::Down, shaper);
        let Some(rate) = rate_bytes_per_second else { return pace };
        let of_server = Some(Arc::new(Limiter::of_response(rate)));
        Self { unlimited_since: Cell::new(NEVER), of_server, ..pace }
    }

    /// Excludes the next `bytes` bytes, such as a head, from the limits.
    pub(crate) fn pass(&self, bytes: usize) {
        self.free.set(bytes as u64);
    }

    /// Whether any limit may apply to the body.
    pub(crate) fn is_limited(&self) -> bool {
        self.unlimited_since.get() == NEVER
    }

    /// Whether no limit applies to the body under the plan in force.
    #[inline]
    pub(crate) fn is_free(&self, shaper: &Shaper) -> bool {
        self.unlimited_since.get() == shaper.changes()
    }

    /// Whether the amounts granted at once are large enough for splicing through a pipe.
    pub(crate) fn is_wide(&self, place: &LimitedRequest<'_>) -> bool {
        self.is_free(place.shaper) || {
            let levels = self.follow(place);
            levels.iter().all(|level| level.share.piece_bytes() >= WIDE_PIECE_BYTES)
        }
    }

    /// Waits until bytes may be sent. Returns how many of `wanted`, at least one. Called before each write of a body.
    pub(crate) fn poll_allowance(
        &self,
        context: &mut Context<'_>,
        place: &LimitedRequest<'_>,
        wanted: usize,
    ) -> Poll<usize> {
        // A head is not limited.
        if self.is_free(place.shaper) || wanted as u64 <= self.free.get() {
            return Poll::Ready(wanted);
        }
        self.poll_limited(context, place, wanted as u64)
    }

    /// Requests bytes from each limit in force. Called when more is wanted than is free.
    #[cold]
    fn poll_limited(
        &self,
        context: &mut Context<'_>,
        place: &LimitedRequest<'_>,
        wanted: u64,
    ) -> Poll<usize> {
        let free = self.free.get();
        let counted = wanted - free;
        let mut allowed = counted;
        let mut is_short = true;
        // All limits are asked at once, so the total wait is that of the slowest.
        for level in &mut *self.follow(place) {
            if level.granted == 0
                && let Poll::Ready(granted) = level.share.poll_grant(level.stream, counted, context.waker())
            {
                level.granted = granted;
            }
            allowed = allowed.min(level.granted);
            is_short &= level.granted > 0 || level.share.is_short();
        }
        // A head is sent without its body if that must wait long.
        if allowed == 0 && (free == 0 || is_short) {
            place.holding.hold();
            Poll::Pending
        } else {
            Poll::Ready((free + allowed) as usize)
        }
    }

    /// Returns the limits in force.
    fn follow(&self, place: &LimitedRequest<'_>) -> RefMut<'_, Vec<Level>> {
        let changes = place.shaper.changes();
        let mut levels = self.levels.borrow_mut();
        // Looked up once for each plan, not for each write.
        if self.followed.replace(changes) != changes {
            follow(&mut levels, self.direction, self.of_server.as_ref(), place);
            self.unlimited_since.set(if levels.is_empty() { changes } else { NEVER });
        }
        levels
    }

    /// Reports that `count` of the granted bytes were sent.
    #[inline]
    pub(crate) fn sent(&self, count: usize) {
        if self.unlimited_since.get() == NEVER {
            self.count(count as u64);
        }
    }

    #[cold]
    fn count(&self, count: u64) {
        let free = self.free.get().min(count);
        self.free.set(self.free.get() - free);
        for level in &mut *self.levels.borrow_mut() {
            // No more is sent than was granted.
            level.granted = level.granted.saturating_sub(count - free);
        }
    }
}

/// Updates the levels to the plan in force; existing ones continue.
fn follow(
    levels: &mut Vec<Level>,
    direction: Direction,
    of_server: Option<&Arc<Limiter>>,
    place: &LimitedRequest<'_>,
) {
    let plan = Arc::clone(&place.shaper.plan.borrow());
    // Limits that stay keep the stream's place and its granted bytes.
    let mut before = std::mem::take(levels);
    let weight = weight(&plan, place);
    for limiter in limiters(&plan, direction, place).chain(of_server) {
        let known = before.iter().position(|level| level.share.is_of(limiter));
        levels.push(match known {
            Some(index) => before.swap_remove(index),
            None => {
                let share = place.shaper.share(limiter, place);
                let stream = share.join(weight);
                Level { share, stream, granted: 0 }
            }
        });
    }
}

/// Returns all limits that apply to a body.
fn limiters<'s>(
    plan: &'s Plan,
    direction: Direction,
    place: &LimitedRequest<'s>,
) -> impl Iterator<Item = &'s Arc<Limiter>> {
    let of_listener = || place.listening.settings(plan).limits.as_ref();
    let of_route = || route(plan, place).and_then(|route| route.limits.as_ref());
    let of_client = if place.is_for_client { [of_listener(), of_route()] } else { [None, None] };
    let upstream = place.upstream.find(&plan.upstreams, |upstream| &upstream.config.name);
    let of_upstream = upstream.and_then(|upstream| upstream.limits.as_ref());
    of_client
        .into_iter()
        .chain([of_upstream])
        .flatten()
        .flat_map(move |limits| limits.for_direction(direction))
}

fn weight(plan: &Plan, place: &LimitedRequest<'_>) -> u32 {
    route(plan, place).map_or(1, |route| route.weight.get())
}

fn route<'s>(plan: &'s Plan, place: &LimitedRequest<'_>) -> Option<&'s PlanRoute> {
    place.route?.find(&plan.routes, |route| &route.label).map(Arc::as_ref)
}

impl Drop for Level {
    fn drop(&mut self) {
        // Granted bytes that were not sent go back to the other streams.
        self.share.leave(self.stream, self.granted);
    }
}
