//! What one thread has counted of its streams, and the figures of all. No I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::grpc;
use super::plan::Streams;
use crate::outcome::Distribution;
use crate::record::Times;

/// Counts of one thread.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) counts: Counts,
    pub(crate) open: Times,
    pub(crate) gaps: Times,
    /// Also of gaps that had no end.
    pub(crate) longest_gap: Duration,
    pub(crate) statuses: BTreeMap<u16, u64>,
}

/// What a run counts of its streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Streams that were opened, also before the measured window, and again after they had ended.
    pub opened: u64,
    /// Attempts to open a stream that failed.
    pub failed: u64,
    /// Streams that the server ended in the measured window, or that broke in it. gRPC calls count if they broke.
    pub closed_early: u64,
    /// Streams that were opened again after that.
    pub reconnected: u64,
    /// gRPC calls that ended with a status.
    pub calls: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
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
    /// Messages whose time is after that of their arrival: the clocks differ. Their delay counts as 0.
    pub from_future: u64,
}

impl Counts {
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
            counts: Counts::default(),
            open: Times::new(),
            gaps: Times::new(),
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

/// Figures of the streams of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamFigures {
    /// What was planned.
    pub plan: Streams,
    /// Counts.
    pub counts: Counts,
    /// Messages sent per second.
    pub sent_per_second: f64,
    /// Messages received per second.
    pub received_per_second: f64,
    /// Time from the connect to the response that opens a stream, also before the window. Not of gRPC.
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
        plan: &Streams,
        tally: &Tally,
        measured_seconds: f64,
        distribution: fn(&Times) -> Distribution,
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
