//! Schedule of requests: due times as offsets from the start, and the connection that sends each. No clock, no timer.
//!
//! A backlog needs no queue: only the next due time is stored, however late the server is.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::plan::Arrival;
use crate::random::Random;
use crate::stages::Profile;

/// Infinite due times of one thread, as offsets from the start.
#[derive(Debug, Clone)]
pub(crate) enum Schedule {
    /// Equal intervals. The threads interleave, so that the intervals are equal over all threads too.
    Constant { interval_ns: f64, index: u64, stride: u64 },
    /// Poisson process with this thread's share of the rate: a sum of Poisson processes is a Poisson process.
    Poisson { mean_ns: f64, at_ns: f64, random: Random },
    /// Stages: a position in the requests of all threads, and its due time. With random steps between positions it is a
    /// Poisson process with a rate that changes.
    Stages { profile: Arc<Profile>, count: f64, due: Duration, threads: f64, random: Option<Random> },
}

impl Schedule {
    /// Schedule of one thread; `None` for a closed loop.
    pub(crate) fn new(
        arrival: &Arrival,
        warm_up_seconds: f64,
        thread: usize,
        threads: usize,
    ) -> Option<Self> {
        match *arrival {
            Arrival::Closed => None,
            Arrival::Constant { requests_per_second } => Some(Self::Constant {
                interval_ns: 1e9 / requests_per_second,
                index: thread as u64,
                stride: threads as u64,
            }),
            Arrival::Poisson { requests_per_second, seed } => {
                let mut random = Random::of_thread(seed, thread);
                let mean_ns = 1e9 * threads as f64 / requests_per_second;
                let at_ns = random.exponential(mean_ns);
                Some(Self::Poisson { mean_ns, at_ns, random })
            }
            Arrival::Stages { ref stages, seed } => {
                let profile = Arc::new(Profile::new(stages, warm_up_seconds));
                let mut random = seed.map(|seed| Random::of_thread(seed, thread));
                let count = match &mut random {
                    Some(random) => random.exponential(threads as f64),
                    None => thread as f64,
                };
                let due = profile.due(count);
                Some(Self::Stages { profile, count, due, threads: threads as f64, random })
            }
        }
    }

    fn due(&self) -> Duration {
        let nanoseconds = match *self {
            // Computed from the index, because adding up intervals would drift.
            Self::Constant { interval_ns, index, .. } => index as f64 * interval_ns,
            Self::Poisson { at_ns, .. } => at_ns,
            Self::Stages { due, .. } => return due,
        };
        Duration::from_nanos(nanoseconds as u64)
    }

    fn advance(&mut self) {
        match self {
            Self::Constant { index, stride, .. } => *index += *stride,
            Self::Poisson { mean_ns, at_ns, random } => *at_ns += random.exponential(*mean_ns),
            Self::Stages { profile, count, due, threads, random } => {
                *count += match random {
                    Some(random) => random.exponential(*threads),
                    None => *threads,
                };
                *due = profile.due(*count);
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ScheduleWindow {
    /// Start of the load. The warm-up is from here to `start`.
    pub(crate) load: Instant,
    pub(crate) start: Instant,
    /// End of the measured window; `None` if a number of requests ends it.
    pub(crate) end: Option<Instant>,
}

/// Gives due requests to one thread's free connections: first to the one free for longest, so that all are used.
#[derive(Debug)]
pub(crate) struct Dispatch {
    schedule: Schedule,
    window: ScheduleWindow,
    /// Requests that are left in the measured window.
    remaining: Option<u64>,
    idle: VecDeque<usize>,
}

impl Dispatch {
    pub(crate) fn new(schedule: Schedule, window: ScheduleWindow, requests: Option<u64>) -> Self {
        Self { schedule, window, remaining: requests, idle: VecDeque::new() }
    }

    /// Due time of the next request; `None` once the schedule is over.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        if self.is_spent() {
            return None;
        }
        let due = self.window.load + self.schedule.due();
        match self.window.end {
            Some(end) if due >= end => None,
            _ => Some(due),
        }
    }

    /// Whether the requested number of requests is used up.
    pub(crate) fn is_spent(&self) -> bool {
        self.remaining == Some(0)
    }

    /// Whether the window has ended, even if requests are overdue.
    pub(crate) fn is_past_end(&self, now: Instant) -> bool {
        self.window.end.is_some_and(|end| now >= end)
    }

    /// Takes a due request for a connection that has become free.
    pub(crate) fn claim(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next_due().filter(|due| *due <= now)?;
        self.schedule.advance();
        if due >= self.window.start {
            self.remaining = self.remaining.map(|requests| requests - 1);
        }
        Some(due)
    }

    /// Adds a waiting connection. Returns true if it is the only one.
    pub(crate) fn wait(&mut self, connection: usize) -> bool {
        self.idle.push_back(connection);
        self.idle.len() == 1
    }

    pub(crate) fn leave(&mut self, connection: usize) {
        self.idle.retain(|idle| *idle != connection);
    }

    /// Takes a due request for the next waiting connection.
    pub(crate) fn assign(&mut self, now: Instant) -> Option<(usize, Instant)> {
        if self.idle.is_empty() {
            return None;
        }
        let due = self.claim(now)?;
        self.idle.pop_front().map(|connection| (connection, due))
    }

    pub(crate) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    /// Removes all waiting connections, at the end of the schedule.
    pub(crate) fn dismiss(&mut self) -> impl Iterator<Item = usize> {
        self.idle.drain(..)
    }

    /// Due times of the window's requests that no connection had taken at `by`.
    pub(crate) fn unclaimed(&self, by: Instant) -> impl Iterator<Item = Instant> + use<> {
        let mut rest = Self {
            schedule: self.schedule.clone(),
            window: self.window,
            remaining: self.remaining,
            idle: VecDeque::new(),
        };
        let start = self.window.start;
        std::iter::from_fn(move || rest.claim(by)).filter(move |due| *due >= start)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dues(arrival: &Arrival, thread: usize, threads: usize, count: usize) -> Vec<Duration> {
        let mut schedule = Schedule::new(arrival, 0.0, thread, threads).expect("an open model");
        let next = || {
            let due = schedule.due();
            schedule.advance();
            due
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    fn window(load: Instant, warm_up_ms: u64, duration_ms: Option<u64>) -> ScheduleWindow {
        let start = load + Duration::from_millis(warm_up_ms);
        ScheduleWindow { load, start, end: duration_ms.map(|span| start + Duration::from_millis(span)) }
    }

    fn thousand_a_second() -> Schedule {
        Schedule::new(&Arrival::Constant { requests_per_second: 1000.0 }, 0.0, 0, 1).expect("an open model")
    }

    #[test]
    fn threads_of_a_constant_rate_interleave() {
        let arrival = Arrival::Constant { requests_per_second: 1000.0 };
        assert_eq!(dues(&arrival, 0, 2, 3), [0, 2, 4].map(Duration::from_millis));
        assert_eq!(dues(&arrival, 1, 2, 3), [1, 3, 5].map(Duration::from_millis));
    }

    #[test]
    fn a_constant_rate_does_not_drift() {
        let arrival = Arrival::Constant { requests_per_second: 3.0 };
        assert_eq!(dues(&arrival, 0, 1, 3001)[3000], Duration::from_secs(1000));
    }

    #[test]
    fn poisson_arrivals_keep_their_rate_and_repeat_with_their_seed() {
        let arrival = |seed| Arrival::Poisson { requests_per_second: 1000.0, seed };
        let first = dues(&arrival(1), 0, 2, 50_000);
        let seconds = first[49_999].as_secs_f64();
        assert!((98.0..102.0).contains(&seconds), "50,000 requests at 500/s took {seconds} s");
        assert_eq!(first, dues(&arrival(1), 0, 2, 50_000));
        assert_ne!(first, dues(&arrival(1), 1, 2, 50_000));
        assert_ne!(first, dues(&arrival(2), 0, 2, 50_000));
    }

    #[test]
    fn requests_go_to_the_connection_that_waited_longest_and_never_early() {
        let start = Instant::now();
        let mut dispatch = Dispatch::new(thousand_a_second(), window(start, 0, Some(10)), None);
        assert!(dispatch.wait(7));
        assert!(!dispatch.wait(8));
        assert!(!dispatch.wait(9));
        dispatch.leave(8);
        assert_eq!(dispatch.assign(start), Some((7, start)));
        assert_eq!(dispatch.assign(start), None);
        let second = start + Duration::from_millis(1);
        assert_eq!(dispatch.assign(second), Some((9, second)));
        assert!(!dispatch.has_idle());
        assert_eq!(dispatch.assign(start + Duration::from_secs(1)), None, "nobody waits");
        // Requests that fell due while no connection was free keep their due times.
        assert_eq!(dispatch.claim(start + Duration::from_secs(1)), Some(start + Duration::from_millis(2)));
        assert_eq!(dispatch.unclaimed(start + Duration::from_secs(1)).count(), 7);
    }

    #[test]
    fn the_window_and_the_count_end_a_schedule() {
        let start = Instant::now();
        let late = start + Duration::from_secs(1);
        let mut by_time = Dispatch::new(thousand_a_second(), window(start, 5, Some(10)), None);
        assert_eq!(std::iter::from_fn(|| by_time.claim(late)).count(), 15);
        assert_eq!(by_time.next_due(), None);
        // The warm-up does not use up the number of requests.
        let mut by_count = Dispatch::new(thousand_a_second(), window(start, 5, None), Some(3));
        assert_eq!(by_count.unclaimed(late).count(), 3);
        assert_eq!(std::iter::from_fn(|| by_count.claim(late)).count(), 8);
        assert_eq!(by_count.next_due(), None);
    }

    proptest! {
        #[test]
        fn every_due_request_is_claimed_once_in_order(rate in 1.0..50_000.0f64, polls_us in prop::collection::vec(0u64..5_000, 1..50)) {
            let start = Instant::now();
            let schedule = Schedule::new(&Arrival::Constant { requests_per_second: rate }, 0.0, 0, 1).expect("open");
            let mut dispatch = Dispatch::new(schedule, window(start, 0, None), None);
            let (mut now, mut claimed) = (start, Vec::new());
            for pause_us in polls_us {
                now += Duration::from_micros(pause_us);
                while let Some(due) = dispatch.claim(now) {
                    prop_assert!(due <= now);
                    claimed.push(due);
                }
            }
            prop_assert!(claimed.is_sorted());
            let expected = ((now - start).as_secs_f64() * rate).floor() as usize + 1;
            prop_assert!(claimed.len().abs_diff(expected) <= 1, "{} for {expected}", claimed.len());
        }
    }
}
