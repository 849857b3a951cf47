//! The pace of one message's body, or of one direction of a tunnel: how much may be sent now, under all limits at once.
//!
//! The plan in force applies, not the one that the request began under, so that changes affect long bodies, too.
//! Without limits it costs one comparison.

use std::cell::{Cell, RefCell, RefMut};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use shape::StreamId;

use super::limits::{Direction, Limiter};
use super::share::Share;
use crate::context::client::Client;
use crate::context::snapshot::Snapshot;
use crate::context::worker::Worker;

/// Below this a piece is copied: a pipe would cost more than it saves.
const WIDE_PIECE_BYTES: u64 = 64 * 1024;

/// No change of the plan has this number.
const NEVER: u32 = u32::MAX;

/// The request of a body, which decides the limits that apply.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) client: &'a Client,
    /// The client's address.
    pub(crate) address: IpAddr,
    /// Whether the body is for the client, or from it: else only the limits of its upstream apply.
    pub(crate) is_for_client: bool,
    /// The route, if the request has one.
    pub(crate) route: Option<Named<'a>>,
    pub(crate) upstream: Named<'a>,
}

/// A part of a plan by its name. The index is a hint, since later plans may have another order.
#[derive(Clone, Copy)]
pub(crate) struct Named<'a> {
    pub(crate) name: &'a str,
    /// The index in the plan from which the name is.
    pub(crate) index: usize,
}

impl Named<'_> {
    fn find<T>(self, all: &[T], name: impl Fn(&T) -> &str) -> Option<&T> {
        let known = all.get(self.index).filter(|part| name(part) == self.name);
        known.or_else(|| all.iter().find(|part| name(part) == self.name))
    }
}

/// The pace of a body.
pub(crate) struct Pace {
    direction: Direction,
    /// The change of the plan since which nothing is limited.
    unlimited_since: Cell<u32>,
    /// The change of the plan that `levels` are of.
    followed: Cell<u32>,
    /// Each limit that holds.
    levels: RefCell<Vec<Level>>,
    /// Bytes that are not counted: a head before the body.
    free: Cell<u64>,
}

/// A stream under one limit.
struct Level {
    share: Rc<Share>,
    stream: StreamId,
    /// What may be sent and is not yet.
    granted: u64,
}

impl Pace {
    pub(crate) fn new(direction: Direction, worker: &Worker) -> Self {
        let shaper = &worker.shaper;
        let unlimited_since = if shaper.limits() { NEVER } else { shaper.changes() };
        Self {
            direction,
            unlimited_since: Cell::new(unlimited_since),
            followed: Cell::new(NEVER),
            levels: RefCell::default(),
            free: Cell::new(0),
        }
    }

    /// Excludes the next `bytes` bytes, such as a head, from the limits.
    pub(crate) fn pass(&self, bytes: usize) {
        self.free.set(bytes as u64);
    }

    /// Whether any limit may apply to the body.
    pub(crate) fn is_limited(&self) -> bool {
        self.unlimited_since.get() == NEVER
    }

    /// Whether no limit applies to the body, by the plan in force.
    #[inline]
    pub(crate) fn is_free(&self, worker: &Worker) -> bool {
        self.unlimited_since.get() == worker.shaper.changes()
    }

    /// Whether the amounts granted at once are large enough for splicing through a pipe.
    pub(crate) fn is_wide(&self, place: &Place<'_>) -> bool {
        self.is_free(place.worker) || {
            let levels = self.follow(place);
            levels.iter().all(|level| level.share.piece_bytes() >= WIDE_PIECE_BYTES)
        }
    }

    /// Waits until bytes may be sent. Returns how many of `wanted`, at least one.
    pub(crate) fn poll_allowance(
        &self,
        context: &mut Context<'_>,
        place: &Place<'_>,
        wanted: usize,
    ) -> Poll<usize> {
        // What is only a head counts nowhere.
        if self.is_free(place.worker) || wanted as u64 <= self.free.get() {
            return Poll::Ready(wanted);
        }
        self.poll_limited(context, place, wanted as u64)
    }

    #[cold]
    fn poll_limited(&self, context: &mut Context<'_>, place: &Place<'_>, wanted: u64) -> Poll<usize> {
        let free = self.free.get();
        let counted = wanted - free;
        let mut allowed = counted;
        let mut is_short = true;
        // All are asked at once: what they take longest is how long it takes.
        for level in &mut *self.follow(place) {
            if level.granted == 0
                && let Poll::Ready(granted) = level.share.poll_grant(level.stream, counted, context.waker())
            {
                level.granted = granted;
            }
            allowed = allowed.min(level.granted);
            is_short &= level.granted > 0 || level.share.is_short();
        }
        // A head does not wait long for its body.
        if allowed == 0 && (free == 0 || is_short) {
            place.worker.holding.hold();
            Poll::Pending
        } else {
            Poll::Ready((free + allowed) as usize)
        }
    }

    /// The limits that hold now.
    fn follow(&self, place: &Place<'_>) -> RefMut<'_, Vec<Level>> {
        let changes = place.worker.shaper.changes();
        let mut levels = self.levels.borrow_mut();
        if self.followed.replace(changes) != changes {
            follow(&mut levels, self.direction, place);
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
            // No more is sent than was allowed.
            level.granted = level.granted.saturating_sub(count - free);
        }
    }
}

/// The levels under the plan that is in force; those that there are go on.
fn follow(levels: &mut Vec<Level>, direction: Direction, place: &Place<'_>) {
    let snapshot = place.worker.snapshot();
    let mut before = std::mem::take(levels);
    let weight = weight(&snapshot, place);
    for limiter in limiters(&snapshot, direction, place) {
        let known = before.iter().position(|level| level.share.is_of(limiter));
        levels.push(match known {
            Some(index) => before.swap_remove(index),
            None => {
                let share = place.worker.shaper.share(limiter, place);
                let stream = share.join(weight);
                Level { share, stream, granted: 0 }
            }
        });
    }
}

/// All limits that hold for a body.
fn limiters<'s>(
    snapshot: &'s Snapshot,
    direction: Direction,
    place: &Place<'s>,
) -> impl Iterator<Item = &'s Arc<Limiter>> {
    let of_listener = || snapshot.listener(&place.client.listening).limits.as_ref();
    let of_route = || route(snapshot, place).and_then(|route| route.limits.as_ref());
    let of_client = if place.is_for_client { [of_listener(), of_route()] } else { [None, None] };
    let upstream = place.upstream.find(&snapshot.plan.upstreams, |upstream| &upstream.config.name);
    let of_upstream = upstream.and_then(|upstream| upstream.limits.as_ref());
    of_client.into_iter().chain([of_upstream]).flatten().flat_map(move |limits| limits.of(direction))
}

fn weight(snapshot: &Snapshot, place: &Place<'_>) -> u32 {
    route(snapshot, place).map_or(1, |route| route.weight.get())
}

fn route<'s>(snapshot: &'s Snapshot, place: &Place<'_>) -> Option<&'s crate::context::plan::Route> {
    place.route?.find(&snapshot.plan.routes, |route| &route.label)
}

impl Drop for Level {
    fn drop(&mut self) {
        self.share.leave(self.stream, self.granted);
    }
}
