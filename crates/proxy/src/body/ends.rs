//! The source and the sink of a body, with their time-outs.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;

use crate::body::arrivals::StreamPieces;
use crate::shaping::{LimitedRequest, Pace};
use crate::shared::minimum_rate::{MinimumRate, RateProgress, TooSlow};
use transport::buffer::Buffers;
use transport::deadline::{Deadline, Deadlines, Ticks};
use transport::endpoint::MessageEndpoint;
use transport::pipes::Pipes;
use transport::tcp::Tcp;

/// Why one side of a pump ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PumpEnd {
    /// Closed, reset or otherwise broken.
    Gone,
    /// No byte moved until the time-out.
    Stalled,
    /// Bytes moved, but more slowly than the minimum rate.
    TooSlow,
}

/// The two sides of a pump, with their time-outs and rates.
pub(crate) struct Ends<'a> {
    pub(crate) buffers: &'a Buffers,
    pub(crate) pipes: &'a Pipes,
    pub(crate) deadlines: &'a Deadlines,
    pub(crate) minimum_rate: Option<MinimumRate>,
    pub(crate) source: &'a MessageEndpoint,
    pub(crate) sink: &'a MessageEndpoint,
    pub(crate) deadline: &'a Deadline,
    pub(crate) source_limit: Ticks,
    pub(crate) sink_limit: Ticks,
    /// The side that must keep the minimum rate, if either.
    pub(crate) paced: Option<PumpSide>,
    /// Whether the sink is closed after the body: the last bytes then leave in one segment with the end.
    pub(crate) closes_sink: bool,
    /// Limits the rate of the body.
    pub(crate) pace: &'a Pace,
    /// The rates that apply to the body.
    pub(crate) place: LimitedRequest<'a>,
    /// The tick at which either direction last moved, if both are under way: a source is not late while the other
    /// direction moves.
    pub(crate) activity: Option<&'a Cell<u32>>,
    /// Times the pieces from the source, if they are measured.
    pub(crate) arrivals: Option<&'a StreamPieces<'a>>,
    /// Whether this is one direction of a tunnel: its sink is not late either while the other direction moves.
    pub(crate) is_tunnel: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PumpSide {
    Source,
    Sink,
}

impl Ends<'_> {
    /// Returns the source if bytes can move to the sink inside the kernel.
    pub(super) fn spliceable(&self) -> Option<&Tcp> {
        // A pipe moves many bytes at once, past any narrow rate: then bytes go through a buffer.
        self.source.spliceable().filter(|_| self.sink.takes_pipes() && self.pace.is_wide(&self.place))
    }

    /// Returns how many of the wanted bytes may be sent now; waits while none may.
    pub(crate) async fn allowance(&self, wanted: usize) -> usize {
        poll_fn(|context| self.pace.poll_allowance(context, &self.place, wanted)).await
    }

    /// Waits for one step of one side, within its time-out and minimum rate. Called for each read and write that is not
    /// immediately possible.
    pub(super) async fn wait(
        &self,
        side: PumpSide,
        progress: &mut RateProgress,
        step: impl Future<Output = io::Result<usize>>,
    ) -> Result<usize, PumpEnd> {
        let limit = if side == PumpSide::Source { self.source_limit } else { self.sink_limit };
        // A source that has announced no bytes may pause without counting as slow.
        let is_judged = self.paced == Some(side) && (side == PumpSide::Sink || progress.is_owed);
        let rate = self.minimum_rate.filter(|_| is_judged);
        let activity = self.activity.filter(|_| self.is_tunnel || side == PumpSide::Source);
        let mut left = limit;
        let mut judged = self.deadlines.now();
        let began = judged;
        let mut step = pin!(step);
        loop {
            // Wakes at the end of the rate's window or of the time-out, whichever comes first.
            let slice = rate.map_or(left, |rate| left.min(rate.left(progress)));
            let outcome = self.deadline.within(slice, step.as_mut()).await;
            let now = self.deadlines.now();
            // Time in which the other side was slow does not count.
            if rate.is_some() {
                progress.waited_ticks += now - judged;
            }
            judged = now;
            if let Ok(result) = outcome {
                let count = result.map_err(|_| PumpEnd::Gone)?;
                if let Some(arrivals) = self.arrivals.filter(|_| side == PumpSide::Source) {
                    arrivals.piece();
                }
                if let Some(activity) = self.activity {
                    activity.set(now);
                }
                // Without a minimum rate there is nothing to judge.
                let Some(rate) = rate else { return Ok(count) };
                progress.moved += count as u64;
                return rate.judge(progress).map(|()| count).map_err(|TooSlow| PumpEnd::TooSlow);
            }
            if let Some(rate) = rate {
                rate.judge(progress).map_err(|TooSlow| PumpEnd::TooSlow)?;
            }
            // The other direction may have moved meanwhile: then the wait goes on for the time that is left.
            let quiet = now - activity.map_or(began, Cell::get).max(began);
            if quiet >= limit.0 {
                return Err(PumpEnd::Stalled);
            }
            left = Ticks(limit.0 - quiet);
        }
    }
}
