//! The state of a server, shared by all workers: requests in progress, availability, response time.
//!
//! One per server, lock-free, and kept over reloads. Everything that a request writes is on one pair of cache lines, so
//! that servers do not slow each other down. What to write is decided elsewhere.

use std::borrow::Borrow;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use crate::breaker::Breaker;
use crate::latency::Latency;
use crate::time::{Time, micros};

/// Counts changes of servers, so that workers examine all servers only after a change. Read for every pick, rarely
/// written; on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Changes(AtomicU32);

impl Changes {
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Acquire)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Release);
    }
}

/// The state of one server, shared by all workers.
#[derive(Debug)]
#[repr(align(128))]
pub struct ServerHealth {
    /// Requests or connections in progress, as the owner counts.
    in_flight: AtomicU32,
    /// One bit per `Cause` that stops the server.
    stopped: AtomicU32,
    failures_in_a_row: AtomicU32,
    /// The number of recent ejections.
    ejections: AtomicU32,
    pub(crate) latency: Latency,
    pub(crate) breaker: Breaker,
    /// Responses of this interval in the upper half, failures among them in the lower.
    answers: AtomicU64,
    /// The same of the interval before.
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
pub enum Cause {
    /// Health checks fail.
    Check,
    /// The server responded worse than the others.
    Ejection,
    /// An operator drains the server; its sessions may finish.
    Drain,
    /// An operator has taken the server out; its sessions move.
    Disabled,
}

impl Cause {
    const fn bit(self) -> u32 {
        match self {
            Cause::Check => 1,
            Cause::Ejection => 2,
            Cause::Drain => 4,
            Cause::Disabled => 8,
        }
    }
}

/// Whether a server gets requests. If several causes apply, the most severe one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The server gets requests.
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
    /// The number of recent ejections.
    pub ejections: u32,
}

/// How a request to a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The server responded after this time, if it was measured.
    Answered(Option<Duration>),
    /// The request failed: no connection, no response, none in time, or one that counts as a failure.
    Failed,
    /// The client left before the end, which says nothing about the server.
    Abandoned,
}

/// What a server did in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Finished requests, including failures.
    pub requests: u32,
    /// Failed requests.
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
            ejections: AtomicU32::new(0),
            latency: Latency::default(),
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
        health.returned_at.store(now.as_micros(), Relaxed);
        health
    }

    /// Requests in progress, over all workers.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Whether the server gets requests.
    pub fn state(&self) -> State {
        let stopped = self.stopped.load(Acquire);
        let holds = |cause: Cause| stopped & cause.bit() != 0;
        match () {
            () if holds(Cause::Check) || holds(Cause::Disabled) => State::Down,
            () if holds(Cause::Ejection) => State::Ejected,
            () if holds(Cause::Drain) => State::Draining,
            () => State::Up,
        }
    }

    /// Whether this cause stops the server.
    pub fn is_stopped_by(&self, cause: Cause) -> bool {
        self.stopped.load(Acquire) & cause.bit() != 0
    }

    /// Whether an operator wants no new requests there, not even as a last resort.
    pub fn is_withdrawn(&self) -> bool {
        let withdrawn = Cause::Drain.bit() | Cause::Disabled.bit();
        self.stopped.load(Acquire) & withdrawn != 0
    }

    /// Stops the server for a cause. Returns whether that is a change.
    pub fn stop(&self, cause: Cause) -> bool {
        let before = self.stopped.fetch_or(cause.bit(), AcqRel);
        let is_news = before & cause.bit() == 0;
        if is_news {
            self.changes.add();
        }
        is_news
    }

    /// Removes a cause. After the last one the server is up, and starts slowly. Returns whether that is a change.
    pub fn restore(&self, cause: Cause, now: Time) -> bool {
        let before = self.stopped.fetch_and(!cause.bit(), AcqRel);
        let is_news = before & cause.bit() != 0;
        if is_news {
            if before == cause.bit() {
                self.starts_slowly(now);
                // How fast it was before says nothing about how it comes back.
                self.latency.forget();
            }
            self.failures_in_a_row.store(0, Relaxed);
            // What stopped it is not held against it once more when the interval is judged.
            self.take_counts();
            self.answers_before.store(0, Relaxed);
            self.changes.add();
        }
        is_news
    }

    /// When the server last came up; `None` if it has been up from the start.
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

    /// The number of recent ejections.
    pub fn ejections(&self) -> u32 {
        self.ejections.load(Relaxed)
    }

    pub(crate) fn count_ejection(&self, until: Time) {
        self.ejections.fetch_add(1, Relaxed);
        self.ejected_until.store(until.as_micros(), Relaxed);
    }

    /// The state for another process to take over.
    pub fn handover(&self, now: Time) -> Inherited {
        let left = self.ejected_until().since(now);
        Inherited {
            is_down: self.is_stopped_by(Cause::Check),
            ejected_for: (self.is_stopped_by(Cause::Ejection) && !left.is_zero()).then_some(left),
            ejections: self.ejections(),
        }
    }

    /// Takes over the state from another process, before the server gets any request.
    pub fn inherit(&self, inherited: Inherited, now: Time) {
        self.ejections.store(inherited.ejections, Relaxed);
        if let Some(left) = inherited.ejected_for {
            self.ejected_until.store((now + left).as_micros(), Relaxed);
            self.stop(Cause::Ejection);
        }
        if inherited.is_down {
            self.stop(Cause::Check);
        }
    }

    pub(crate) fn forgive_ejection(&self) {
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

    /// Counts failures in a row. Returns the number, including this one.
    pub(crate) fn count(&self, outcome: Outcome) -> u32 {
        match outcome {
            Outcome::Answered(_) => {
                // Read first: in the steady state there is nothing to write.
                if self.failures_in_a_row.load(Relaxed) != 0 {
                    self.failures_in_a_row.store(0, Relaxed);
                }
                0
            }
            Outcome::Failed => self.failures_in_a_row.fetch_add(1, Relaxed) + 1,
            Outcome::Abandoned => 0,
        }
    }

    /// Adds to the counts of this interval.
    pub(crate) fn add_to_interval(&self, outcome: Outcome) {
        match outcome {
            Outcome::Answered(latency) => {
                let before = self.answers.fetch_add(1 << 32, Relaxed);
                match latency {
                    Some(latency) => {
                        self.answers_micros.fetch_add(micros(latency), Relaxed);
                    }
                    None => self.add_mean(before),
                }
            }
            Outcome::Failed => {
                self.answers.fetch_add((1 << 32) | 1, Relaxed);
            }
            Outcome::Abandoned => {}
        }
    }

    /// An answer that was not timed, where others are, takes as long as they do: the mean stays what it is.
    fn add_mean(&self, answers: u64) {
        let micros = self.answers_micros.load(Relaxed);
        let answered = (answers >> 32).saturating_sub(answers & u64::from(u32::MAX));
        if let Some(mean) = micros.checked_div(answered).filter(|mean| *mean > 0) {
            self.answers_micros.fetch_add(mean, Relaxed);
        }
    }

    /// The share of failures in this interval and the one before; 0 without requests.
    pub(crate) fn failed_share(&self) -> f64 {
        let both = [&self.answers_before, &self.answers].map(|answers| answers.load(Relaxed));
        let sum = |of: fn(u64) -> u32| both.into_iter().map(|answers| f64::from(of(answers))).sum::<f64>();
        sum(|answers| answers as u32) / sum(|answers| (answers >> 32) as u32).max(1.0)
    }

    /// The counts since the last call. For a single caller.
    pub fn take_counts(&self) -> Counts {
        let answers = self.answers.swap(0, Relaxed);
        self.answers_before.store(answers, Relaxed);
        let micros = self.answers_micros.swap(0, Relaxed);
        let (requests, failures) = ((answers >> 32) as u32, answers as u32);
        let answered = u64::from(requests.saturating_sub(failures));
        let latency = Duration::from_micros(micros.checked_div(answered).unwrap_or(0));
        Counts { requests, failures, latency }
    }
}

/// A request or connection in progress, counted until it is dropped.
///
/// The caller chooses how it holds the server's state: within one thread, no atomic count is needed.
#[derive(Debug)]
pub struct InFlight<Held: Borrow<Arc<ServerHealth>> = Arc<ServerHealth>>(Held);

impl<Held: Borrow<Arc<ServerHealth>>> InFlight<Held> {
    /// Counts a request as in progress; `None` if `limit` is reached.
    #[inline]
    pub fn begin(health: Held, limit: Option<NonZeroU32>) -> Option<Self> {
        let in_flight = &health.borrow().in_flight;
        let is_admitted = match limit {
            None => {
                in_flight.fetch_add(1, Relaxed);
                true
            }
            Some(limit) => {
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
        assert_eq!((health.state(), health.returned_at()), (State::Up, None));
        assert!(health.stop(Cause::Drain) && !health.stop(Cause::Drain));
        assert_eq!(health.state(), State::Draining);
        assert!(health.stop(Cause::Check));
        assert_eq!(health.state(), State::Down);
        assert!(health.restore(Cause::Drain, now) && !health.restore(Cause::Drain, now));
        assert_eq!((health.state(), health.returned_at()), (State::Down, None));
        assert!(health.stop(Cause::Ejection) && health.restore(Cause::Check, now));
        assert_eq!((health.state(), health.returned_at()), (State::Ejected, None));
        assert!(health.restore(Cause::Ejection, now));
        assert_eq!((health.state(), health.returned_at()), (State::Up, Some(now)));
        assert_eq!(changes.count(), 6, "what is no news makes nobody look");
    }

    #[test]
    fn another_process_goes_on_with_what_was_known() {
        let at = |millis| Time::from_millis(millis);
        let health = ServerHealth::new(&Arc::default());
        assert_eq!(health.handover(at(5)), Inherited::default());
        health.count_ejection(at(900));
        health.stop(Cause::Ejection);
        health.stop(Cause::Check);
        // An operator's word is handed over by itself.
        health.stop(Cause::Drain);
        let handover = health.handover(at(500));
        let left = Some(Duration::from_millis(400));
        assert_eq!(handover, Inherited { is_down: true, ejected_for: left, ejections: 1 });
        assert_eq!(health.handover(at(900)).ejected_for, None, "its time is over");
        let next = ServerHealth::new(&Arc::default());
        next.inherit(handover, at(10));
        assert_eq!((next.state(), next.ejected_until(), next.ejections()), (State::Down, at(410), 1));
        assert!(next.is_stopped_by(Cause::Ejection) && !next.is_stopped_by(Cause::Drain));
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
    fn what_was_before_a_return_does_not_count() {
        let health = ServerHealth::new(&Arc::default());
        for _ in 0..30 {
            health.add_to_interval(Outcome::Failed);
        }
        health.stop(Cause::Ejection);
        health.restore(Cause::Ejection, Time::from_millis(5));
        assert_eq!(health.take_counts(), Counts::default());
        health.add_to_interval(Outcome::Failed);
        assert!(!health.restore(Cause::Ejection, Time::from_millis(6)), "is no news");
        assert_eq!(health.take_counts().failures, 1);
    }

    #[test]
    fn failures_are_counted_until_an_answer() {
        let health = ServerHealth::new(&Arc::default());
        let answered = Outcome::Answered(None);
        for (outcome, in_a_row) in [
            (Outcome::Failed, 1),
            (Outcome::Failed, 2),
            (Outcome::Abandoned, 0),
            (Outcome::Failed, 3),
            (answered, 0),
            (Outcome::Failed, 1),
        ] {
            assert_eq!(health.count(outcome), in_a_row);
        }
    }

    #[test]
    fn an_answer_that_was_not_timed_leaves_the_mean_as_it_is() {
        let health = ServerHealth::new(&Arc::default());
        let millis = |millis| Some(Duration::from_millis(millis));
        for latency in [millis(2), millis(4), None, None] {
            health.add_to_interval(Outcome::Answered(latency));
        }
        health.add_to_interval(Outcome::Failed);
        let counts = health.take_counts();
        assert_eq!((counts.requests, counts.latency), (5, Duration::from_millis(3)));
        health.add_to_interval(Outcome::Answered(None));
        assert_eq!(health.take_counts().latency, Duration::ZERO);
    }

    #[test]
    fn counts_are_of_one_interval() {
        let health = ServerHealth::new(&Arc::default());
        let answered = |millis| Outcome::Answered(Some(Duration::from_millis(millis)));
        for outcome in [Outcome::Failed, answered(2), Outcome::Abandoned, answered(4), Outcome::Failed] {
            health.add_to_interval(outcome);
        }
        let counts = Counts { requests: 4, failures: 2, latency: Duration::from_millis(3) };
        assert_eq!(health.take_counts(), counts);
        assert_eq!(health.take_counts(), Counts::default());
    }
}
