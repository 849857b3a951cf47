//! Wake-up coalescing: a busy worker sleeps briefly before it checks for events, so that one wake-up handles many.
//! Network cards do the same with interrupts.
//!
//! The sleep is at most half of the usual time of a request. The worker does not sleep if a sleep would gather too few
//! events, or while work is left. So throughput does not suffer.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;

/// Beginnings and ends of requests that a sleep must gather to be worth its timer.
const EVENTS_MIN: u128 = 12;

/// After this many sleeps in a row without events, the worker stops sleeping until `look` finds load again.
// With sleeps of 250 us, that is 10 ms.
const FRUITLESS_MAX: u32 = 40;

/// Weight of the moving average of requests under way: each look counts 1/LOOKS.
const LOOKS: u64 = 4;

/// Fractions of a request in which the average is counted.
const PARTS: u64 = 256;

/// A worker's progress: it changes whenever the worker does something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WorkerProgress {
    /// The number of requests begun so far.
    pub(crate) requests: u64,
    pub(crate) active: u64,
}

#[derive(Default)]
pub(crate) struct Coalescing {
    /// Zero means no sleep.
    moment: Cell<Duration>,
    is_wanted: Notify,
    looked_ns: Cell<u64>,
    requests: Cell<u64>,
    /// Average of requests under way, in `PARTS` per request.
    active: Cell<u64>,
}

impl Coalescing {
    /// Recomputes the length of the sleep, at most `longest`. Called a few times a second.
    pub(crate) fn look(&self, now_ns: u64, progress: WorkerProgress, longest: Duration) {
        let elapsed_ns = now_ns.saturating_sub(self.looked_ns.replace(now_ns));
        let requests = progress.requests.wrapping_sub(self.requests.replace(progress.requests));
        let before = self.active.get();
        let active = before - before / LOOKS + progress.active.saturating_mul(PARTS) / LOOKS;
        self.active.set(active);
        let moment = moment_for(requests, elapsed_ns, active, longest);
        if self.moment.replace(moment).is_zero() && !moment.is_zero() {
            self.is_wanted.notify_one();
        }
    }

    fn moment(&self) -> Option<Duration> {
        Some(self.moment.get()).filter(|moment| !moment.is_zero())
    }

    /// The task that makes the worker sleep when it would otherwise wait for events. It runs as long as the worker.
    ///
    /// `sleep` deliberately blocks the whole thread.
    pub(crate) async fn run(&self, progress: impl Fn() -> WorkerProgress, mut sleep: impl FnMut(Duration)) {
        loop {
            self.is_wanted.notified().await;
            let mut fruitless = 0;
            while let Some(moment) = self.moment() {
                let before = progress();
                // The runtime first polls for events and runs tasks that are ready.
                tokio::task::yield_now().await;
                if progress() != before {
                    fruitless = 0;
                } else if fruitless < FRUITLESS_MAX {
                    fruitless += 1;
                    sleep(moment);
                } else {
                    self.moment.set(Duration::ZERO);
                }
            }
        }
    }
}

/// Returns the length of a sleep, given the requests begun within `elapsed_ns` and the average under way in parts.
fn moment_for(requests: u64, elapsed_ns: u64, active: u64, longest: Duration) -> Duration {
    // None of these products exceeds 128 bits.
    let [requests, elapsed_ns, active] = [requests, elapsed_ns.max(1), active].map(u128::from);
    // Little's law: requests under way, divided by their rate, give the time of one.
    let taken_ns = active * elapsed_ns / (u128::from(PARTS) * requests.max(1));
    let moment_ns = longest.as_nanos().min(taken_ns / 2);
    let gathered = 2 * requests * moment_ns / elapsed_ns;
    if gathered < EVENTS_MIN {
        return Duration::ZERO;
    }
    // At most `longest`, a setting of microseconds.
    Duration::from_nanos(moment_ns as u64)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const LONGEST: Duration = Duration::from_micros(250);

    #[test]
    fn a_moment_is_half_of_what_requests_take_and_gathers_enough() {
        // Requests per second, requests under way, sleep in microseconds.
        let cases = [
            (0, 0, 0),
            (0, 1_000, 0),
            // One at a time, at any speed.
            (40_000, 1, 0),
            (1_000_000, 5, 0),
            // Too few to be worth a sleep.
            (1_000, 20, 0),
            (23_000, 1_000, 0),
            // Half of the time of a request.
            (40_000, 11, 0),
            (40_000, 12, 150),
            (40_000, 16, 200),
            // At most the limit.
            (40_000, 20, 250),
            (40_000, 64, 250),
            (24_000, 10_000, 250),
        ];
        for (rate, active, micros) in cases {
            let found = moment_for(rate / 10, SECOND_NS / 10, active * PARTS, LONGEST);
            assert_eq!(found, Duration::from_micros(micros), "{rate}/s, {active} under way");
        }
        assert!(moment_for(4_000, SECOND_NS / 10, 64 * PARTS, Duration::ZERO).is_zero(), "it is off");
        assert_eq!(moment_for(u64::MAX, u64::MAX, u64::MAX, LONGEST), LONGEST, "nothing overflows");
    }

    /// The progress at the n-th look of a worker with 64 requests under way, at 40,000 per second.
    fn busy(look: u64) -> WorkerProgress {
        WorkerProgress { requests: look * 4_000, active: 64 }
    }

    #[test]
    fn a_burst_of_one_look_is_no_load() {
        let coalescing = Coalescing::default();
        let at = |look| look * SECOND_NS / 10;
        coalescing.look(at(1), WorkerProgress { requests: 0, active: 40 }, LONGEST);
        coalescing.look(at(2), WorkerProgress { requests: 4_000, active: 0 }, LONGEST);
        assert_eq!(coalescing.moment(), None);
        for look in 3..8 {
            coalescing.look(at(look), busy(look), LONGEST);
        }
        assert_eq!(coalescing.moment(), Some(LONGEST));
        // The end of the load shows at once.
        coalescing.look(at(8), WorkerProgress { requests: 28_000, active: 64 }, LONGEST);
        assert_eq!(coalescing.moment(), None);
    }

    #[test]
    fn it_sleeps_only_when_there_is_nothing_to_do() {
        let runtime = tokio::runtime::Builder::new_current_thread().build_local(Default::default());
        runtime.expect("it needs nothing").block_on(async {
            let coalescing = Rc::new(Coalescing::default());
            let done = Rc::new(Cell::new(WorkerProgress::default()));
            let sleeps = Rc::new(Cell::new(0));
            let (own, progress, slept) = (Rc::clone(&coalescing), Rc::clone(&done), Rc::clone(&sleeps));
            tokio::task::spawn_local(async move {
                let sleep = |moment| {
                    assert_eq!(moment, LONGEST);
                    slept.set(slept.get() + 1);
                };
                own.run(|| progress.get(), sleep).await;
            });
            tokio::task::yield_now().await;
            assert_eq!(sleeps.get(), 0, "it has not been told to");
            for (begin, ends_by_look) in [(0, true), (10, false)] {
                for look in begin + 1..=begin + 8 {
                    coalescing.look(look * SECOND_NS / 10, busy(look), LONGEST);
                }
                let mut now = busy(begin + 8);
                for _ in 0..100 {
                    now.requests += 1;
                    done.set(now);
                    tokio::task::yield_now().await;
                }
                assert_eq!(sleeps.get(), 0, "there was always something");
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
                let before = sleeps.get();
                assert!((1..=4).contains(&before), "{before}");
                if ends_by_look {
                    coalescing.look((begin + 9) * SECOND_NS / 10, now, LONGEST);
                }
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                match ends_by_look {
                    // One more sleep may have begun.
                    true => assert!(sleeps.replace(0) <= before + 1),
                    false => assert_eq!(sleeps.replace(0), FRUITLESS_MAX),
                }
                assert_eq!(coalescing.moment(), None);
            }
        });
    }
}
