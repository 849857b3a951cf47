//! The state of a server, shared by all workers: requests in progress, availability, response time.
//!
//! One per server, lock-free, and kept over reloads. Everything that a request writes is on one pair of cache lines, so
//! that servers do not slow each other down. `fleet` and `eject` decide what to write.

use std::borrow::Borrow;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use crate::breaker::Breaker;
use crate::latency::LatencyAverage;
use crate::time::{Time, micros};

/// Counts changes of servers, so that workers examine all servers only after a change. Read for every pick, rarely
/// written; on separate cache lines.
#[derive(Debug, Default)]
// 128 bytes, because processors fetch cache lines in pairs.
#[repr(align(128))]
pub struct Changes(AtomicU32);

impl Changes {
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Acquire)
    }

    pub(crate) fn add(&self) {
        // Pairs with `count`: a worker that sees the new number also sees the change that it is about.
        self.0.fetch_add(1, Release);
    }
}

#[derive(Debug)]
#[repr(align(128))]
pub struct ServerHealth {
    /// Requests or connections in progress; the owner decides which.
    in_flight: AtomicU32,
    /// A bit per `Cause` that stops the server.
    stopped: AtomicU32,
    failures_in_a_row: AtomicU32,
    /// Whether the first of these failures was reported.
    is_failure_reported: AtomicBool,
    ejections: AtomicU32,
    pub(crate) latency: LatencyAverage,
    pub(crate) breaker: Breaker,
    /// Responses of this interval in the upper half, failures among them in the lower.
    // Both counts in one word, so that a response costs one atomic operation and they always fit each other.
    answers: AtomicU64,
    /// As `answers`, for the previous interval.
    answers_before: AtomicU64,
    /// The sum of the response times in this interval.
    answers_micros: AtomicU64,
    /// When the server last came up; `NEVER` if it has been up from the start.
    returned_at: AtomicU64,
    ejected_until: AtomicU64,
    changes: Arc<Changes>,
}

/// Why a server gets no new requests. Each cause comes and goes independently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IneligibleCause {
    /// Health checks fail.
    Check,
    /// The server responded worse than the others.
    Ejection,
    /// An operator drains the server; its sessions may finish.
    Drain,
    /// An operator has taken the server out; its sessions move.
    Disabled,
}

impl IneligibleCause {
    const fn bit(self) -> u32 {
        match self {
            IneligibleCause::Check => 1,
            IneligibleCause::Ejection => 2,
            IneligibleCause::Drain => 4,
            IneligibleCause::Disabled => 8,
        }
    }
}

/// Whether a server gets requests. If several causes apply, the most severe one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthState {
    Up,
    /// The server gets only requests of its sessions.
    Draining,
    /// The server gets no requests until its ejection ends.
    Ejected,
    /// The server gets no requests until checks succeed, or an operator restores it.
    Down,
}

/// The state of a server that another process can take over. Its clock differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inherited {
    /// Whether checks have found the server down.
    pub is_down: bool,
    /// The remaining time of its ejection.
    pub ejected_for: Option<Duration>,
    pub ejections: u32,
}

/// The end of a request to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The server responded after this time, if it was measured.
    Answered(Option<Duration>),
    /// No connection, no response, none in time, or a response that counts as a failure.
    Failed,
    /// The client left before the end, which says nothing about the server.
    Abandoned,
}

/// Counts and mean latency of a server in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IntervalCounts {
    /// Finished requests, including failures.
    pub requests: u32,
    pub failures: u32,
    /// The mean response time.
    pub latency: Duration,
}

impl ServerHealth {
    /// A server that has been up from the start.
    pub fn new(changes: &Arc<Changes>) -> Arc<Self> {
        Arc::new(Self {
            in_flight: AtomicU32::new(0),
            stopped: AtomicU32::new(0),
            failures_in_a_row: AtomicU32::new(0),
            is_failure_reported: AtomicBool::new(false),
            ejections: AtomicU32::new(0),
            latency: LatencyAverage::default(),
            breaker: Breaker::default(),
            answers: AtomicU64::new(0),
            answers_before: AtomicU64::new(0),
            answers_micros: AtomicU64::new(0),
            returned_at: AtomicU64::new(Time::NEVER.as_micros()),
            ejected_until: AtomicU64::new(0),
            changes: Arc::clone(changes),
        })
    }

    /// A server that joins others that are already up; it starts slowly.
    pub fn joining(changes: &Arc<Changes>, now: Time) -> Arc<Self> {
        let health = Self::new(changes);
        // No other thread has the server yet.
        health.returned_at.store(now.as_micros(), Relaxed);
        health
    }

    /// Requests in progress, over all workers.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    pub fn state(&self) -> HealthState {
        let stopped = self.stopped.load(Acquire);
        let holds = |cause: IneligibleCause| stopped & cause.bit() != 0;
        match () {
            // The most severe cause first, because several may hold at once.
            () if holds(IneligibleCause::Check) || holds(IneligibleCause::Disabled) => HealthState::Down,
            () if holds(IneligibleCause::Ejection) => HealthState::Ejected,
            () if holds(IneligibleCause::Drain) => HealthState::Draining,
            () => HealthState::Up,
        }
    }

    pub fn is_stopped_by(&self, cause: IneligibleCause) -> bool {
        self.stopped.load(Acquire) & cause.bit() != 0
    }

    /// Whether an operator has drained or disabled the server. Then it is not even a last resort.
    pub fn is_withdrawn(&self) -> bool {
        let withdrawn = IneligibleCause::Drain.bit() | IneligibleCause::Disabled.bit();
        self.stopped.load(Acquire) & withdrawn != 0
    }

    /// Stops the server for a cause. Returns whether that is a change.
    pub fn stop(&self, cause: IneligibleCause) -> bool {
        // Bits in one word: causes come and go independently, and no order of two threads loses one.
        let before = self.stopped.fetch_or(cause.bit(), AcqRel);
        let is_news = before & cause.bit() == 0;
        // Renewing the views of all workers is expensive, so a repeated cause must not count as a change.
        if is_news {
            self.changes.add();
        }
        is_news
    }

    /// Removes a cause. After the last one the server is up, and starts slowly. Returns whether that is a change.
    pub fn restore(&self, cause: IneligibleCause, now: Time) -> bool {
        let before = self.stopped.fetch_and(!cause.bit(), AcqRel);
        let is_news = before & cause.bit() != 0;
        if is_news {
            // Only the last cause brings the server back; a slow start before that would be over too early.
            if before == cause.bit() {
                self.starts_slowly(now);
                // Its earlier speed says nothing about its speed after the return.
                self.latency.forget();
            }
            self.failures_in_a_row.store(0, Relaxed);
            self.is_failure_reported.store(false, Relaxed);
            // The failures that stopped it must not count again at the end of the interval.
            self.take_counts();
            self.answers_before.store(0, Relaxed);
            self.changes.add();
        }
        is_news
    }

    /// When the server last came up. `None` if it has been up from the start.
    pub fn returned_at(&self) -> Option<Time> {
        Some(Time::from_micros(self.returned_at.load(Relaxed))).filter(|time| *time != Time::NEVER)
    }

    pub(crate) fn starts_slowly(&self, now: Time) {
        self.returned_at.store(now.as_micros(), Relaxed);
    }

    /// When the last ejection ends, or ended.
    pub fn ejected_until(&self) -> Time {
        Time::from_micros(self.ejected_until.load(Relaxed))
    }

    pub fn ejections(&self) -> u32 {
        self.ejections.load(Relaxed)
    }

    pub(crate) fn count_ejection(&self, until: Time) {
        self.ejections.fetch_add(1, Relaxed);
        self.ejected_until.store(until.as_micros(), Relaxed);
    }

    /// Moves the end of an ejection, if it is still `from`. Returns whether it was.
    pub(crate) fn postpone_return(&self, from: Time, until: Time) -> bool {
        let (from, until) = (from.as_micros(), until.as_micros());
        let is_moved = self.ejected_until.compare_exchange(from, until, Relaxed, Relaxed).is_ok();
        // The views of all workers know the earlier end.
        if is_moved {
            self.changes.add();
        }
        is_moved
    }

    /// The state for another process to take over.
    pub fn handover(&self, now: Time) -> Inherited {
        let left = self.ejected_until().since(now);
        Inherited {
            is_down: self.is_stopped_by(IneligibleCause::Check),
            // As a remaining time: the next process counts its time from another start.
            ejected_for: (self.is_stopped_by(IneligibleCause::Ejection) && !left.is_zero()).then_some(left),
            ejections: self.ejections(),
        }
    }

    /// Takes over the state from another process, before the server gets any request.
    pub fn inherit(&self, inherited: Inherited, now: Time) {
        // Kept over the handover, so that a server that was ejected again and again does not begin with a short
        // ejection.
        self.ejections.store(inherited.ejections, Relaxed);
        if let Some(left) = inherited.ejected_for {
            self.ejected_until.store((now + left).as_micros(), Relaxed);
            self.stop(IneligibleCause::Ejection);
        }
        if inherited.is_down {
            self.stop(IneligibleCause::Check);
        }
    }

    pub(crate) fn forgive_ejection(&self) {
        // Never below zero: two threads may forgive the last ejection at once.
        let one_less = |count: u32| count.checked_sub(1);
        let _ = self.ejections.fetch_update(Relaxed, Relaxed, one_less);
    }

    pub(crate) fn changed(&self) {
        self.changes.add();
    }

    /// The counter of changes, which all servers of a fleet share.
    pub fn changes(&self) -> &Arc<Changes> {
        &self.changes
    }

    /// Whether no failure was reported since the last success. Of several workers, one gets `true`.
    pub fn is_first_to_report(&self) -> bool {
        !self.is_failure_reported.swap(true, Relaxed)
    }

    /// Counts failures in a row. Returns the number, including this one.
    pub(crate) fn count(&self, outcome: RequestOutcome) -> u32 {
        match outcome {
            RequestOutcome::Answered(_) => {
                // Reads first, because in the steady state there is nothing to write.
                if self.failures_in_a_row.load(Relaxed) != 0 {
                    self.failures_in_a_row.store(0, Relaxed);
                    self.is_failure_reported.store(false, Relaxed);
                }
                0
            }
            RequestOutcome::Failed => self.failures_in_a_row.fetch_add(1, Relaxed) + 1,
            RequestOutcome::Abandoned => 0,
        }
    }

    pub(crate) fn add_to_interval(&self, outcome: RequestOutcome) {
        match outcome {
            RequestOutcome::Answered(latency) => {
                // Relaxed suffices for all counts here: no other memory depends on them.
                let before = self.answers.fetch_add(1 << 32, Relaxed);
                match latency {
                    Some(latency) => {
                        self.answers_micros.fetch_add(micros(latency), Relaxed);
                    }
                    // Left out of the sum, an untimed response would make the server look faster.
                    None => self.add_mean(before),
                }
            }
            RequestOutcome::Failed => {
                self.answers.fetch_add((1 << 32) | 1, Relaxed);
            }
            RequestOutcome::Abandoned => {}
        }
    }

    /// Counts a response that was not timed as if it took as long as the timed ones, so that the mean stays.
    fn add_mean(&self, answers: u64) {
        let micros = self.answers_micros.load(Relaxed);
        let answered = (answers >> 32).saturating_sub(answers & u64::from(u32::MAX));
        if let Some(mean) = micros.checked_div(answered).filter(|mean| *mean > 0) {
            self.answers_micros.fetch_add(mean, Relaxed);
        }
    }

    /// The share of failures in this interval and the previous one; 0 without requests.
    pub(crate) fn failed_share(&self) -> f64 {
        let both = [&self.answers_before, &self.answers].map(|answers| answers.load(Relaxed));
        let sum = |of: fn(u64) -> u32| both.into_iter().map(|answers| f64::from(of(answers))).sum::<f64>();
        sum(|answers| answers as u32) / sum(|answers| (answers >> 32) as u32).max(1.0)
    }

    /// The counts since the last call. For a single caller.
    pub fn take_counts(&self) -> IntervalCounts {
        // A response between the two exchanges is counted in one interval and timed in the other. The mean tolerates
        // that.
        let answers = self.answers.swap(0, Relaxed);
        self.answers_before.store(answers, Relaxed);
        let micros = self.answers_micros.swap(0, Relaxed);
        let (requests, failures) = ((answers >> 32) as u32, answers as u32);
        let answered = u64::from(requests.saturating_sub(failures));
        let latency = Duration::from_micros(micros.checked_div(answered).unwrap_or(0));
        IntervalCounts { requests, failures, latency }
    }
}

/// A request or connection in progress, counted until it is dropped.
///
/// The caller chooses how it holds the server's state: within one thread, no atomic count is needed.
#[derive(Debug)]
pub struct InFlight<Held: Borrow<Arc<ServerHealth>> = Arc<ServerHealth>>(Held);

impl<Held: Borrow<Arc<ServerHealth>>> InFlight<Held> {
    /// Counts a request as in progress. `None` if `limit` is reached.
    #[inline]
    pub fn begin(health: Held, limit: Option<NonZeroU32>) -> Option<Self> {
        let in_flight = &health.borrow().in_flight;
        let is_admitted = match limit {
            None => {
                in_flight.fetch_add(1, Relaxed);
                true
            }
            Some(limit) => {
                // Checked and counted in one step, because another worker may take the last place in between.
                let one_more = |count| (count < limit.get()).then_some(count + 1);
                in_flight.fetch_update(Relaxed, Relaxed, one_more).is_ok()
            }
        };
        is_admitted.then(|| Self(health))
    }
}

impl<Held: Borrow<Arc<ServerHealth>>> Drop for InFlight<Held> {
    fn drop(&mut self) {
        self.0.borrow().in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_come_and_go_by_themselves() {
        let changes = Arc::new(Changes::default());
        let health = ServerHealth::new(&changes);
        let now = Time::from_millis(5);
        assert_eq!((health.state(), health.returned_at()), (HealthState::Up, None));
        assert!(health.stop(IneligibleCause::Drain) && !health.stop(IneligibleCause::Drain));
        assert_eq!(health.state(), HealthState::Draining);
        assert!(health.stop(IneligibleCause::Check));
        assert_eq!(health.state(), HealthState::Down);
        assert!(health.restore(IneligibleCause::Drain, now) && !health.restore(IneligibleCause::Drain, now));
        assert_eq!((health.state(), health.returned_at()), (HealthState::Down, None));
        assert!(health.stop(IneligibleCause::Ejection) && health.restore(IneligibleCause::Check, now));
        assert_eq!((health.state(), health.returned_at()), (HealthState::Ejected, None));
        assert!(health.restore(IneligibleCause::Ejection, now));
        assert_eq!((health.state(), health.returned_at()), (HealthState::Up, Some(now)));
        assert_eq!(changes.count(), 6, "what is no news makes nobody look");
    }

    #[test]
    fn another_process_continues_with_the_known_state() {
        let at = |millis| Time::from_millis(millis);
        let health = ServerHealth::new(&Arc::default());
        assert_eq!(health.handover(at(5)), Inherited::default());
        health.count_ejection(at(900));
        health.stop(IneligibleCause::Ejection);
        health.stop(IneligibleCause::Check);
        // The operator's changes are handed over separately.
        health.stop(IneligibleCause::Drain);
        let handover = health.handover(at(500));
        let left = Some(Duration::from_millis(400));
        assert_eq!(handover, Inherited { is_down: true, ejected_for: left, ejections: 1 });
        assert_eq!(health.handover(at(900)).ejected_for, None, "its time is over");
        let next = ServerHealth::new(&Arc::default());
        next.inherit(handover, at(10));
        assert_eq!((next.state(), next.ejected_until(), next.ejections()), (HealthState::Down, at(410), 1));
        assert!(next.is_stopped_by(IneligibleCause::Ejection) && !next.is_stopped_by(IneligibleCause::Drain));
    }

    #[test]
    fn no_more_than_the_limit_are_admitted_by_all_workers() {
        let health = ServerHealth::new(&Arc::default());
        let limit = NonZeroU32::new(3);
        let begin = |limit| InFlight::begin(Arc::clone(&health), limit);
        let admitted: Vec<InFlight> = std::thread::scope(|scope| {
            let worker = || (0..50).filter_map(|_| begin(limit)).collect::<Vec<_>>();
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect()
        });
        assert_eq!((admitted.len(), health.in_flight()), (3, 3));
        drop(admitted);
        assert_eq!(health.in_flight(), 0);
        assert!(begin(limit).is_some() && begin(None).is_some());
    }

    #[test]
    fn earlier_failures_do_not_count_after_a_return() {
        let health = ServerHealth::new(&Arc::default());
        for _ in 0..30 {
            health.add_to_interval(RequestOutcome::Failed);
        }
        health.stop(IneligibleCause::Ejection);
        health.restore(IneligibleCause::Ejection, Time::from_millis(5));
        assert_eq!(health.take_counts(), IntervalCounts::default());
        health.add_to_interval(RequestOutcome::Failed);
        assert!(!health.restore(IneligibleCause::Ejection, Time::from_millis(6)), "is no news");
        assert_eq!(health.take_counts().failures, 1);
    }

    #[test]
    fn failures_are_counted_until_an_answer() {
        let health = ServerHealth::new(&Arc::default());
        let answered = RequestOutcome::Answered(None);
        for (outcome, in_a_row) in [
            (RequestOutcome::Failed, 1),
            (RequestOutcome::Failed, 2),
            (RequestOutcome::Abandoned, 0),
            (RequestOutcome::Failed, 3),
            (answered, 0),
            (RequestOutcome::Failed, 1),
        ] {
            assert_eq!(health.count(outcome), in_a_row);
        }
    }

    #[test]
    fn an_answer_that_was_not_timed_leaves_the_mean_as_it_is() {
        let health = ServerHealth::new(&Arc::default());
        let millis = |millis| Some(Duration::from_millis(millis));
        for latency in [millis(2), millis(4), None, None] {
            health.add_to_interval(RequestOutcome::Answered(latency));
        }
        health.add_to_interval(RequestOutcome::Failed);
        let counts = health.take_counts();
        assert_eq!((counts.requests, counts.latency), (5, Duration::from_millis(3)));
        health.add_to_interval(RequestOutcome::Answered(None));
        assert_eq!(health.take_counts().latency, Duration::ZERO);
    }

    #[test]
    fn counts_are_of_one_interval() {
        let health = ServerHealth::new(&Arc::default());
        let answered = |millis| RequestOutcome::Answered(Some(Duration::from_millis(millis)));
        for outcome in [
            RequestOutcome::Failed,
            answered(2),
            RequestOutcome::Abandoned,
            answered(4),
            RequestOutcome::Failed,
        ] {
            health.add_to_interval(outcome);
        }
        let counts = IntervalCounts { requests: 4, failures: 2, latency: Duration::from_millis(3) };
        assert_eq!(health.take_counts(), counts);
        assert_eq!(health.take_counts(), IntervalCounts::default());
    }
}
