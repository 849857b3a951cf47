//! How many requests may be under way at once on a connection of HTTP/2: as many as the server says (RFC 9113 §5.1.2).
//! What is beyond that waits here, and counts neither as sent nor as failed.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::sync::Notify;

/// The streams of one connection.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    taken: Cell<usize>,
    is_over: Cell<bool>,
    /// A slot became free, the connection is over, or, until it takes requests, it may do so now.
    changed: Notify,
    /// A slot became free, for those who wait for that alone.
    freed: Notify,
}

/// A slot that was taken; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Slot(Rc<Slots>);

impl Slots {
    /// Takes a slot, waiting for one while the server takes no more. `None` once the connection is over. Whether it
    /// waited is told too.
    pub(crate) async fn take(self: &Rc<Self>, most: impl Fn() -> usize) -> Option<(Slot, bool)> {
        let mut waited = false;
        while !self.is_over.get() {
            // The server may say something else at any time.
            if self.taken.get() < most() {
                self.taken.set(self.taken.get() + 1);
                return Some((Slot(Rc::clone(self)), waited));
            }
            waited = true;
            self.changed.notified().await;
        }
        // Whoever else waits has to hear of it as well.
        self.changed.notify_one();
        None
    }

    /// Waits until a slot becomes free. False if there is nobody whose slot could.
    pub(crate) async fn freed(&self) -> bool {
        if self.taken.get() == 0 || self.is_over.get() {
            return false;
        }
        self.freed.notified().await;
        true
    }

    /// Waits until the server has said how many it takes.
    pub(crate) async fn opened(&self, most: impl Fn() -> usize) {
        while most() == 0 && !self.is_over.get() {
            self.changed.notified().await;
        }
    }

    /// Polls the connection itself, and tells those who wait for what it hears.
    pub(crate) async fn drive<F: Future>(self: Rc<Self>, connection: F) {
        let mut connection = std::pin::pin!(connection);
        poll_fn(|context: &mut Context<'_>| {
            let polled = connection.as_mut().poll(context);
            // The first that is heard is how many streams the server takes.
            if self.taken.get() == 0 {
                self.changed.notify_one();
            }
            if polled.is_ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.end();
    }

    /// The connection takes no more requests; those that are under way may go on.
    pub(crate) fn end(&self) {
        self.is_over.set(true);
        self.changed.notify_one();
        self.freed.notify_waiters();
    }

    /// Whether the connection takes no more requests.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.taken.set(self.0.taken.get() - 1);
        self.0.changed.notify_one();
        self.0.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    /// What a future says when it is asked once.
    fn now<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_is_beyond_the_limit_waits_for_a_slot_and_not_beyond_the_end_of_the_connection() {
        let (slots, limit) = (Rc::new(Slots::default()), Cell::new(0));
        let take = || slots.take(|| limit.get());
        assert!(now(pin!(slots.opened(|| limit.get()))).is_pending(), "the server has not said anything");
        limit.set(1);
        assert!(now(pin!(slots.opened(|| limit.get()))).is_ready());
        let Poll::Ready(Some((first, false))) = now(pin!(take())) else { panic!("there is room for one") };
        let (mut second, mut third) = (pin!(take()), pin!(take()));
        assert!(now(second.as_mut()).is_pending() && now(third.as_mut()).is_pending());
        drop(first);
        let Poll::Ready(Some((second, true))) = now(second.as_mut()) else { panic!("it is free again") };
        assert!(now(third.as_mut()).is_pending());
        // A server may take fewer than before.
        limit.set(0);
        drop(second);
        assert!(now(third.as_mut()).is_pending());
        assert!(now(pin!(Rc::clone(&slots).drive(async {}))).is_ready());
        assert!(matches!(now(third.as_mut()), Poll::Ready(None)));
        assert!(matches!(now(pin!(take())), Poll::Ready(None)) && slots.is_over());
    }
}
