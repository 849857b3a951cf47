//! A rate limit that all workers share.
//!
//! Workers serve their streams in rounds that keep in step, so every stream gets a piece per round on any worker. A
//! worker spends its credit for a round at once, and gives back the rest.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bucket::Bucket;
use crate::limit::{Limit, SECOND_NS};

/// Credit that is unused for this long goes to any worker that asks, so that a stalled worker delays no other.
const LEFT_LYING_NS: u64 = 3_000_000;

/// A shared rate limit and the rounds of the workers.
#[derive(Debug)]
pub struct Total {
    state: Mutex<TotalState>,
}

#[derive(Debug)]
struct TotalState {
    bucket: Bucket,
    /// The current round of each worker with waiting streams, by worker number.
    rounds: Vec<Option<u64>>,
}

impl Total {
    pub fn new(limit: Limit) -> Self {
        Self { state: Mutex::new(TotalState { bucket: Bucket::new(limit, 0), rounds: Vec::new() }) }
    }

    pub fn limit(&self) -> Limit {
        *self.state().bucket.limit()
    }

    /// Changes the limit. Waiting workers should ask again.
    pub fn set_limit(&self, limit: Limit, now_ns: u64) {
        let mut state = self.state();
        if *state.bucket.limit() != limit {
            state.bucket.set_limit(limit, now_ns);
        }
    }

    /// Whether the state equals that of an unused limit, so that it need not be kept.
    pub fn is_as_new(&self, now_ns: u64) -> bool {
        let mut state = self.state();
        state.slowest().is_none() && state.bucket.is_full(now_ns)
    }

    fn state(&self) -> MutexGuard<'_, TotalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a worker's first stream waits. Returns the round that the worker begins with, given its last round.
    pub(crate) fn begin(&self, worker: usize, last_round: u64, now_ns: u64) -> u64 {
        let mut state = self.state();
        state.bucket.set_waited_for(true, now_ns);
        // After a short absence a worker takes its place in the current round. A longer absence is not made up for.
        let round = state
            .slowest()
            .map_or(last_round, |slowest| last_round.clamp(slowest.saturating_sub(1), slowest));
        // Its next round is counted when it begins.
        state.is_in(worker, Some(round + 1));
        round
    }

    /// Records that no stream of a worker waits any more.
    pub(crate) fn rest(&self, worker: usize, now_ns: u64) {
        let mut state = self.state();
        state.is_in(worker, None);
        let is_waited_for = state.slowest().is_some();
        state.bucket.set_waited_for(is_waited_for, now_ns);
    }

    /// Takes up to `wanted_bytes`, and at least `piece_bytes`, for a worker's round.
    ///
    /// # Errors
    /// If the credit does not suffice, or other workers come first: the time at which to ask again.
    pub(crate) fn lease(
        &self,
        worker: usize,
        round: u64,
        piece_bytes: u64,
        wanted_bytes: u64,
        now_ns: u64,
    ) -> Result<u64, u64> {
        let mut state = self.state();
        // Recorded even without credit: other workers may wait for the end of this worker's last round.
        state.is_in(worker, Some(round));
        let available = state.bucket.available(now_ns);
        if available < piece_bytes {
            return Err(state.bucket.due_ns(piece_bytes));
        }
        let is_ahead = state.slowest().is_some_and(|slowest| round > slowest);
        if is_ahead && available < piece_bytes.saturating_add(state.bytes_in(LEFT_LYING_NS)) {
            return Err(now_ns.saturating_add(state.lasts_ns(piece_bytes)));
        }
        let lease = wanted_bytes.min(available);
        state.bucket.take(lease);
        Ok(lease)
    }

    /// Returns leased bytes that were not sent.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.state().bucket.give_back(bytes);
    }
}

impl TotalState {
    fn is_in(&mut self, worker: usize, round: Option<u64>) {
        if self.rounds.len() <= worker {
            self.rounds.resize(worker + 1, None);
        }
        self.rounds[worker] = round;
    }

    fn slowest(&self) -> Option<u64> {
        self.rounds.iter().flatten().min().copied()
    }

    fn bytes_in(&self, span_ns: u64) -> u64 {
        let rate = u128::from(self.bucket.limit().rate_bytes_per_second.get());
        u64::try_from(rate * u128::from(span_ns) / u128::from(SECOND_NS)).unwrap_or(u64::MAX).max(1)
    }

    fn lasts_ns(&self, bytes: u64) -> u64 {
        let rate = u128::from(self.bucket.limit().rate_bytes_per_second.get());
        u64::try_from((u128::from(bytes) * u128::from(SECOND_NS)).div_ceil(rate)).unwrap_or(u64::MAX).max(1)
    }
}
