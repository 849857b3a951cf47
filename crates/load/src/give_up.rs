//! Timeout of a connection's current step, at almost no cost per step. The timer is registered once. It is moved only
//! if it fires too early, because earlier steps were quick.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

#[derive(Debug)]
pub(crate) struct GiveUp {
    after: Duration,
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
    /// Whether the timer is set and will wake the polling task.
    is_registered: bool,
}

impl GiveUp {
    pub(crate) fn new(after: Duration) -> Self {
        let deadline = Instant::now() + after;
        Self {
            after,
            deadline,
            timer: Box::pin(tokio::time::sleep_until(deadline.into())),
            is_registered: false,
        }
    }

    pub(crate) fn after(&self) -> Duration {
        self.after
    }

    pub(crate) fn start(&mut self, now: Instant) {
        self.deadline = now + self.after;
        // An elapsed timer does not wake the task again.
        if self.timer.is_elapsed() {
            self.is_registered = false;
        }
    }

    /// Ensures that the task is woken at the deadline or earlier.
    pub(crate) fn watch(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_registered { Poll::Pending } else { self.poll(context) }
    }

    /// Ready when the step has timed out. A woken task polls this when it finds nothing else to do.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            self.is_registered = self.timer.as_mut().poll(context).is_pending();
            if self.is_registered {
                return Poll::Pending;
            }
            if Instant::now() >= self.deadline {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(self.deadline.into());
        }
    }

    /// Output of a future, or `None` after the timeout.
    pub(crate) async fn bound<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => self.poll(context).map(|()| None),
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn later_steps_move_the_deadline_without_losing_it() {
        let mut give_up = GiveUp::new(Duration::from_millis(20));
        assert_eq!(give_up.bound(std::future::pending::<()>()).await, None);
        give_up.start(Instant::now());
        assert_eq!(give_up.bound(async { 5 }).await, Some(5));
        give_up.start(Instant::now());
        assert_eq!(give_up.bound(std::future::pending::<()>()).await, None);
    }
}
