//! Measures how long a request waits for its client or for servers. During the rest of its time the proxy holds it.
//!
//! The clock is read when an exchange begins to wait and when it resumes, only if a log or metric needs that. The delay
//! between an event and its notice by the worker is not measured. Traces need only the time of a step (between two
//! waits) in which an event happened. A step takes microseconds, so its time is read at its end.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noted {
    Nothing,
    Waits,
    /// The time of requested steps. The present step is the first one.
    FirstStep,
    /// As before, in a later step that was not requested.
    Step,
    /// As before, in a requested step.
    AskedStep,
}

/// The waits of one exchange.
pub(crate) struct ExchangeWaits {
    noted: Cell<Noted>,
    /// When the present wait began; for steps, when the last requested one ended.
    since: Cell<Option<Instant>>,
    resumed: Cell<Option<Instant>>,
    waited: Cell<Duration>,
}

/// Whether the exchange that a worker has just polled waits for the proxy itself.
#[derive(Default)]
pub(crate) struct Holding(Cell<bool>);

impl ExchangeWaits {
    pub(crate) fn unnoted() -> Self {
        Self::noting(Noted::Nothing)
    }

    pub(crate) fn noted() -> Self {
        Self::noting(Noted::Waits)
    }

    /// Measures the time of requested steps.
    pub(crate) fn of_steps() -> Self {
        Self::noting(Noted::FirstStep)
    }

    fn noting(noted: Noted) -> Self {
        let noted = Cell::new(noted);
        Self { noted, since: Cell::default(), resumed: Cell::default(), waited: Cell::default() }
    }

    /// Runs an exchange, and measures its waits. They count as waits for others unless `holding` is set.
    #[inline]
    pub(crate) async fn watch<T>(
        &self,
        holding: &Holding,
        mut exchange: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        poll_fn(|context| {
            if self.noted.get() == Noted::Nothing {
                return exchange.as_mut().poll(context);
            }
            self.resume();
            // A step of the proxy sets it again while it is polled.
            holding.0.set(false);
            let polled = exchange.as_mut().poll(context);
            if polled.is_pending() {
                self.pause(holding);
            }
            polled
        })
        .await
    }

    fn pause(&self, holding: &Holding) {
        match self.noted.get() {
            // A wait for the proxy itself is not timed: it counts as held.
            Noted::Waits if !holding.0.get() => self.since.set(Some(Instant::now())),
            Noted::FirstStep => self.noted.set(Noted::Step),
            Noted::AskedStep => {
                self.noted.set(Noted::Step);
                self.since.set(Some(Instant::now()));
            }
            Noted::Nothing | Noted::Waits | Noted::Step => {}
        }
    }

    /// Whether times are those of steps, which are known once a step has ended.
    #[inline]
    pub(crate) fn counts_steps(&self) -> bool {
        matches!(self.noted.get(), Noted::FirstStep | Noted::Step | Noted::AskedStep)
    }

    /// Whether the present step is the one in which the exchange began.
    pub(crate) fn is_first_step(&self) -> bool {
        self.noted.get() == Noted::FirstStep
    }

    /// Requests the time of the present step, which is not the first one.
    pub(crate) fn ask(&self) {
        self.noted.set(Noted::AskedStep);
    }

    /// Returns, once, the end of the last requested step; `None` while that still runs.
    pub(crate) fn take_ended(&self) -> Option<Instant> {
        if self.counts_steps() { self.since.take() } else { None }
    }

    fn resume(&self) {
        if self.noted.get() == Noted::Waits
            && let Some(since) = self.since.take()
        {
            let now = Instant::now();
            self.waited.set(self.waited.get() + now.duration_since(since));
            self.resumed.set(Some(now));
        }
    }

    /// When the exchange last resumed after a wait for others; `None` before the first one.
    pub(crate) fn resumed(&self) -> Option<Instant> {
        self.resumed.get()
    }

    /// How much of `duration`, the time of the whole exchange, the proxy has held it; `None` if that is not measured.
    pub(crate) fn held(&self, duration: Duration) -> Option<Duration> {
        (self.noted.get() == Noted::Waits).then(|| duration.saturating_sub(self.waited.get()))
    }
}

impl Holding {
    /// Marks the wait that begins as one for the proxy.
    #[inline]
    pub(crate) fn hold(&self) {
        self.0.set(true);
    }

    /// Runs a step of the proxy, whose waits count as time that it holds the exchange.
    pub(crate) async fn during<T>(&self, step: impl Future<Output = T>) -> T {
        let mut step = pin!(step);
        poll_fn(|context| {
            let polled = step.as_mut().poll(context);
            if polled.is_pending() {
                self.hold();
            }
            polled
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn the_time_of_a_step_is_told_once_it_is_over_and_only_if_it_was_asked_for() {
        let (waits, holding) = (ExchangeWaits::of_steps(), Holding::default());
        let mut step = 0;
        let began = Instant::now();
        let steps = pin!(poll_fn(|_| {
            step += 1;
            assert_eq!(waits.is_first_step(), step == 1);
            match step {
                1 | 3 => Poll::Pending,
                2 => {
                    assert_eq!(waits.take_ended(), None, "nobody asked in the first one");
                    waits.ask();
                    assert_eq!(waits.take_ended(), None, "it goes on");
                    Poll::Pending
                }
                _ => {
                    let ended = waits.take_ended().expect("the second one is over");
                    assert!(ended >= began && ended <= Instant::now());
                    assert_eq!(waits.take_ended(), None, "it is told once");
                    Poll::Ready(())
                }
            }
        }));
        let mut watched = pin!(waits.watch(&holding, steps));
        let mut context = Context::from_waker(Waker::noop());
        let polls = (1..=4).filter(|_| watched.as_mut().poll(&mut context).is_ready()).count();
        assert_eq!((polls, waits.held(Duration::from_secs(1))), (1, None));
    }
}
