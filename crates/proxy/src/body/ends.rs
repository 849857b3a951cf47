//! The two sides of a body on its way, and how long each may take.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;

use crate::body::arrivals::Arrivals;
use crate::context::minimum_rate::{MinimumRate, Progress, TooSlow};
use crate::context::worker::Worker;
use crate::shaping::{Pace, Place};
use transport::deadline::{Deadline, Ticks};
use transport::endpoint::Endpoint;
use transport::tcp::Tcp;

/// How one side of a pump ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Closed, reset or otherwise broken.
    Gone,
    /// No byte moved for too long.
    Stalled,
    /// Bytes move, but more slowly than the minimum.
    TooSlow,
}

/// The two sides of a pump and how long each may take.
pub(crate) struct Ends<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) minimum_rate: Option<MinimumRate>,
    pub(crate) source: &'a Endpoint,
    pub(crate) sink: &'a Endpoint,
    pub(crate) deadline: &'a Deadline,
    pub(crate) source_limit: Ticks,
    pub(crate) sink_limit: Ticks,
    /// The side that has to keep up the minimum rate, if either.
    pub(crate) paced: Option<Side>,
    /// Whether the sink is closed right behind the body: then the last bytes leave in one segment with the end.
    pub(crate) closes_sink: bool,
    /// What may be sent by now.
    pub(crate) pace: &'a Pace,
    /// What decides about that.
    pub(crate) place: Place<'a>,
    /// The tick at which either direction last moved, where both are under way: a source is not late while the other moves.
    pub(crate) activity: Option<&'a Cell<u32>>,
    /// When pieces come from the source, if somebody wants to know.
    pub(crate) arrivals: Option<&'a Arrivals<'a>>,
    /// Whether this is a way of a tunnel: then a sink is not late either.
    pub(crate) is_tunnel: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Sink,
}

impl Ends<'_> {
    /// The source, where bytes can move between the two sides inside the kernel.
    pub(super) fn spliceable(&self) -> Option<&Tcp> {
        self.source.spliceable().filter(|_| self.sink.takes_pipes() && self.pace.is_wide(&self.place))
    }

    /// How much of what is there may be sent; waits where nothing may be.
    pub(crate) async fn allowance(&self, wanted: usize) -> usize {
        poll_fn(|context| self.pace.poll_allowance(context, &self.place, wanted)).await
    }

    /// Waits for one step of one side, within its limits.
    pub(super) async fn wait(
        &self,
        side: Side,
        progress: &mut Progress,
        step: impl Future<Output = io::Result<usize>>,
    ) -> Result<usize, End> {
        let limit = if side == Side::Source { self.source_limit } else { self.sink_limit };
        // Who has announced nothing may be quiet: that is no slowness.
        let is_judged = self.paced == Some(side) && (side == Side::Sink || progress.is_owed);
        let rate = self.minimum_rate.filter(|_| is_judged);
        let activity = self.activity.filter(|_| self.is_tunnel || side == Side::Source);
        let mut left = limit;
        let mut judged = self.worker.deadlines.now();
        let began = judged;
        let mut step = pin!(step);
        loop {
            // The next to be looked at is what comes first: the end of the window, or of the wait.
            let slice = rate.map_or(left, |rate| left.min(rate.left(progress)));
            let outcome = self.deadline.within(slice, step.as_mut()).await;
            let now = self.worker.deadlines.now();
            // The other side's slowness is none of the watched one's.
            if rate.is_some() {
                progress.waited_ticks += now - judged;
            }
            judged = now;
            if let Ok(result) = outcome {
                let count = result.map_err(|_| End::Gone)?;
                if let Some(arrivals) = self.arrivals.filter(|_| side == Side::Source) {
                    arrivals.piece();
                }
                if let Some(activity) = self.activity {
                    activity.set(now);
                }
                let Some(rate) = rate else { return Ok(count) };
                progress.moved += count as u64;
                return rate.judge(progress).map(|()| count).map_err(|TooSlow| End::TooSlow);
            }
            if let Some(rate) = rate {
                rate.judge(progress).map_err(|TooSlow| End::TooSlow)?;
            }
            let quiet = now - activity.map_or(began, Cell::get).max(began);
            if quiet >= limit.0 {
                return Err(End::Stalled);
            }
            left = Ticks(limit.0 - quiet);
        }
    }
}
