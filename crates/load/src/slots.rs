//! The server's limit of concurrent requests on an HTTP/2 connection (RFC 9113 §5.1.2). Further requests wait here, and
//! count neither as sent nor as failed.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Slots {
    taken: Cell<usize>,
    is_over: Cell<bool>,
    /// Notified when a slot is free, the connection is over, or the server's limit may be known for the first time.
    changed: Notify,
    /// Notified when a slot became free, for tasks that wait only for that.
    freed: Notify,
}

/// A taken slot; dropping it releases the slot.
#[derive(Debug)]
pub(crate) struct TakenSlot(Rc<Slots>);

impl Slots {
    /// Takes a slot, waiting if all are in use. Also returns whether it waited. `None` once the connection is over.
    pub(crate) async fn take(self: &Rc<Self>, most: impl Fn() -> usize) -> Option<(TakenSlot, bool)> {
        let mut waited = false;
        while !self.is_over.get() {
            // The server may change its limit at any time.
            if self.taken.get() < most() {
                self.taken.set(self.taken.get() + 1);
                return Some((TakenSlot(Rc::clone(self)), waited));
            }
            waited = true;
            self.changed.notified().await;
        }
        // Wakes the next waiting task, which has to end, too.
        self.changed.notify_one();
        None
    }

    /// Waits until a slot is released, or the connection is over.
    pub(crate) async fn freed(&self) {
        if !self.is_over.get() {
            self.freed.notified().await;
        }
    }

    /// Waits until the server's limit is known.
    pub(crate) async fn opened(&self, most: impl Fn() -> usize) {
        while most() == 0 && !self.is_over.get() {
            self.changed.notified().await;
        }
    }

    /// Polls the HTTP/2 connection, and notifies the waiting tasks of changes.
    pub(crate) async fn drive<F: Future>(self: Rc<Self>, connection: F) {
        let mut connection = std::pin::pin!(connection);
        poll_fn(|context: &mut Context<'_>| {
            let polled = connection.as_mut().poll(context);
            // The first message of the server is its limit of streams.
            if self.taken.get() == 0 {
                self.changed.notify_one();
            }
            if polled.is_ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.end();
    }

    /// Ends the connection for new requests; active ones may continue.
    pub(crate) fn end(&self) {
        self.is_over.set(true);
        self.changed.notify_one();
        self.freed.notify_waiters();
    }

    /// Whether the connection accepts no more requests.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }
}

impl Drop for TakenSlot {
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
        // A server may lower its limit.
        limit.set(0);
        drop(second);
        assert!(now(third.as_mut()).is_pending());
        assert!(now(pin!(Rc::clone(&slots).drive(async {}))).is_ready());
        assert!(matches!(now(third.as_mut()), Poll::Ready(None)));
        assert!(matches!(now(pin!(take())), Poll::Ready(None)) && slots.is_over());
    }
}
