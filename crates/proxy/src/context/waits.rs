//! For how long a request waits for its client or for servers. In the rest of its time the proxy holds it.
//!
//! A clock is read when an exchange begins to wait and when it goes on, only where somebody wants to know. How long an
//! event was there before the worker saw it is not known here. Traces ask for less: when a step between two waits took place in
//! which something happened. It is over in microseconds, so its time is read at its end, and not at all in the last one.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

/// What is noted of an exchange's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noted {
    Nothing,
    /// All waits.
    Waits,
    /// The time of steps that somebody asks for. The step that runs is the first one.
    FirstStep,
    /// The same, in a later step, which nobody has asked for.
    Step,
    /// The same, in a step that somebody has asked for.
    AskedStep,
}

/// The waits of one exchange.
pub(crate) struct Waits {
    noted: Cell<Noted>,
    /// Since when it waits; of steps, since when that was asked for last has ended.
    since: Cell<Option<Instant>>,
    /// When it last went on.
    resumed: Cell<Option<Instant>>,
    waited: Cell<Duration>,
}

/// Whether what a worker's exchange has just begun to wait for is the proxy itself.
#[derive(Default)]
pub(crate) struct Holding(Cell<bool>);

impl Waits {
    /// Notes nothing.
    pub(crate) fn unnoted() -> Self {
        Self::noting(Noted::Nothing)
    }

    /// Notes all waits.
    pub(crate) fn noted() -> Self {
        Self::noting(Noted::Waits)
    }

    /// Notes the time of those steps that somebody asks for.
    pub(crate) fn of_steps() -> Self {
        Self::noting(Noted::FirstStep)
    }

    fn noting(noted: Noted) -> Self {
        let noted = Cell::new(noted);
        Self { noted, since: Cell::default(), resumed: Cell::default(), waited: Cell::default() }
    }

    /// Runs an exchange, and notes its waits. It waits for others unless `holding` says that the proxy holds it.
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
            Noted::Waits if !holding.0.get() => self.since.set(Some(Instant::now())),
            Noted::FirstStep => self.noted.set(Noted::Step),
            Noted::AskedStep => {
                self.noted.set(Noted::Step);
                self.since.set(Some(Instant::now()));
            }
            Noted::Nothing | Noted::Waits | Noted::Step => {}
        }
    }

    /// Whether times are those of steps, which are told once a step has ended.
    #[inline]
    pub(crate) fn counts_steps(&self) -> bool {
        matches!(self.noted.get(), Noted::FirstStep | Noted::Step | Noted::AskedStep)
    }

    /// Whether the step that runs is the one in which the exchange began.
    pub(crate) fn is_first_step(&self) -> bool {
        self.noted.get() == Noted::FirstStep
    }

    /// Asks for the time of the step that runs, which is not the first one.
    pub(crate) fn ask(&self) {
        self.noted.set(Noted::AskedStep);
    }

    /// The time of the last step that was asked for, once: `None` while that goes on.
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

    /// When the exchange last went on after a wait for others; `None` before the first one.
    pub(crate) fn resumed(&self) -> Option<Instant> {
        self.resumed.get()
    }

    /// How much of `duration`, the time of the whole exchange, the proxy has held it; `None` if nobody wants to know.
    pub(crate) fn held(&self, duration: Duration) -> Option<Duration> {
        (self.noted.get() == Noted::Waits).then(|| duration.saturating_sub(self.waited.get()))
    }
}

impl Holding {
    /// The proxy lets the exchange wait.
    #[inline]
    pub(crate) fn hold(&self) {
        self.0.set(true);
    }

    /// Waits for something of the proxy's own: that counts as time that it holds the exchange.
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
        let (waits, holding) = (Waits::of_steps(), Holding::default());
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
