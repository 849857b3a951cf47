//! Counts of one thread's streams, and the figures of all. No I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::grpc;
use super::plan::StreamsPlan;
use crate::outcome::Distribution;
use crate::record::TimeHistogram;

#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) counts: StreamCounts,
    pub(crate) open: TimeHistogram,
    pub(crate) gaps: TimeHistogram,
    /// Includes gaps that had no end.
    pub(crate) longest_gap: Duration,
    pub(crate) statuses: BTreeMap<u16, u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamCounts {
    /// Streams opened, including those before the measured window and reopened ones.
    pub opened: u64,
    pub failed: u64,
    /// Streams that the server ended in the measured window, or that broke in it. gRPC calls count if they broke.
    pub closed_early: u64,
    /// Streams that were reopened after that.
    pub reconnected: u64,
    /// gRPC calls that ended with a status.
    pub calls: u64,
    pub sent: u64,
    pub received: u64,
    /// Bytes of the messages sent, without framing.
    pub sent_bytes: u64,
    /// Bytes of the messages received, without framing.
    pub received_bytes: u64,
    /// Messages that did not arrive, or were not answered, although a later one was or the stream ended.
    pub lost: u64,
    /// Messages that had arrived before, or that answer nothing.
    pub duplicates: u64,
    /// Messages that arrived after a later one of the same sender.
    pub out_of_order: u64,
    /// Messages with a send time after their arrival, because the clocks differ. Their delay counts as 0.
    pub from_future: u64,
}

impl StreamCounts {
    fn add(&mut self, other: &Self) {
        let Self { opened, failed, closed_early, reconnected, calls, sent, received, .. } = other;
        let Self { sent_bytes, received_bytes, lost, duplicates, out_of_order, from_future, .. } = other;
        for (count, more) in [
            (&mut self.opened, opened),
            (&mut self.failed, failed),
            (&mut self.closed_early, closed_early),
            (&mut self.reconnected, reconnected),
            (&mut self.calls, calls),
            (&mut self.sent, sent),
            (&mut self.received, received),
            (&mut self.sent_bytes, sent_bytes),
            (&mut self.received_bytes, received_bytes),
            (&mut self.lost, lost),
            (&mut self.duplicates, duplicates),
            (&mut self.out_of_order, out_of_order),
            (&mut self.from_future, from_future),
        ] {
            *count = count.saturating_add(*more);
        }
    }
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            counts: StreamCounts::default(),
            open: TimeHistogram::new(),
            gaps: TimeHistogram::new(),
            longest_gap: Duration::ZERO,
            statuses: BTreeMap::new(),
        }
    }

    pub(crate) fn gap(&mut self, gap: Duration) {
        self.gaps.record(gap);
        self.longest_gap = self.longest_gap.max(gap);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.open.merge(&other.open);
        self.gaps.merge(&other.gaps);
        self.longest_gap = self.longest_gap.max(other.longest_gap);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamFigures {
    pub plan: StreamsPlan,
    pub counts: StreamCounts,
    pub sent_per_second: f64,
    pub received_per_second: f64,
    /// Time from the connect to the response that opens a stream, also before the window. Not measured for gRPC.
    pub open: Distribution,
    /// Times between two messages of a stream.
    pub gaps: Distribution,
    /// Longest time without a message on a stream, also after its last one.
    pub longest_gap_us: u64,
    /// gRPC: ended calls by the name of their status.
    pub grpc_statuses: BTreeMap<String, u64>,
}

impl StreamFigures {
    pub(crate) fn new(
        plan: &StreamsPlan,
        tally: &Tally,
        measured_seconds: f64,
        distribution: fn(&TimeHistogram) -> Distribution,
    ) -> Self {
        let rate = |count: u64| if measured_seconds > 0.0 { count as f64 / measured_seconds } else { 0.0 };
        let named = tally.statuses.iter().map(|(status, count)| (grpc::name(*status), *count));
        Self {
            plan: plan.clone(),
            counts: tally.counts,
            sent_per_second: rate(tally.counts.sent),
            received_per_second: rate(tally.counts.received),
            open: distribution(&tally.open),
            gaps: distribution(&tally.gaps),
            longest_gap_us: u64::try_from(tally.longest_gap.as_micros()).unwrap_or(u64::MAX),
            grpc_statuses: named.collect(),
        }
    }
}
