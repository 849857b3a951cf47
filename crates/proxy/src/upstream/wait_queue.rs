//! Wait queue for servers at their limit of requests under way. Each worker has a queue; workers notify each other of
//! room.
//!
//! A configuration change keeps the queue, because the requests that make room may have begun under either plan.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use balance::{Queue, Ticket, Time, WaitingWorkers};
use tokio::sync::oneshot;

/// Notifies another worker, by its index, that a server of an upstream has room.
pub(crate) type CallWorker = dyn Fn(usize, &Arc<WaitingWorkers>);

/// A worker's requests that wait for a server of one upstream.
pub(crate) struct WaitQueue {
    queue: RefCell<Queue<Waiter>>,
    /// How many of them take any server with room.
    waiting_for_any: Cell<usize>,
    /// Bit set of the workers whose queue is not empty.
    waiting: Arc<WaitingWorkers>,
    worker: usize,
    call: Rc<CallWorker>,
}

struct Waiter {
    turn: oneshot::Sender<()>,
    what_for: WhatFor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhatFor {
    /// The first server with room.
    Any,
    /// The server of the request's session.
    ItsOwn,
}

impl WaitQueue {
    pub(crate) fn new(
        waiting_max: usize,
        waiting: &Arc<WaitingWorkers>,
        worker: usize,
        call: &Rc<CallWorker>,
    ) -> Self {
        Self {
            queue: RefCell::new(Queue::new(waiting_max)),
            waiting_for_any: Cell::new(0),
            waiting: Arc::clone(waiting),
            worker,
            call: Rc::clone(call),
        }
    }

    pub(crate) fn set_waiting_max(&self, waiting_max: usize) {
        self.queue.borrow_mut().set_waiting_max(waiting_max);
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Whether a request waits for any server: later ones must queue behind it. Requests that wait for a particular
    /// server do not hold up others.
    pub(crate) fn is_for_any(&self) -> bool {
        self.waiting_for_any.get() > 0
    }

    /// Whether the queue belongs to the upstream of `waiting`.
    pub(crate) fn is_of(&self, waiting: &Arc<WaitingWorkers>) -> bool {
        Arc::ptr_eq(&self.waiting, waiting)
    }

    /// Joins the end of the queue. Returns `None` if the queue is full.
    pub(crate) fn join(&self, what_for: WhatFor, now: Time) -> Option<InLine<'_>> {
        let (sender, turn) = oneshot::channel();
        let ticket = self.queue.borrow_mut().join(Waiter { turn: sender, what_for }, now).ok()?;
        if what_for == WhatFor::Any {
            self.waiting_for_any.set(self.waiting_for_any.get() + 1);
        }
        self.waiting.set(self.worker);
        Some(InLine { line: self, ticket, turn, has_come: false })
    }

    /// Announces that there may be room: the first request of this worker tries, else one of another worker.
    pub(crate) fn call_next(&self) {
        loop {
            let next = self.queue.borrow_mut().take_next();
            self.has_left(next.as_ref().map(|(waiter, _)| waiter.what_for));
            self.settle();
            match next {
                // A request that has left meanwhile does not use its turn.
                Some((Waiter { turn, .. }, _)) => {
                    if turn.send(()).is_ok() {
                        return;
                    }
                }
                None => break,
            }
        }
        // No request waits here, but other workers may have some.
        if let Some(other) = self.waiting.next_after(self.worker).filter(|other| *other != self.worker) {
            (self.call)(other, &self.waiting);
        }
    }

    /// Leaves the queue. Returns whether its turn had come.
    fn leave(&self, ticket: Ticket) -> bool {
        let left = self.queue.borrow_mut().leave(ticket);
        let was_called = left.is_none();
        self.has_left(left.map(|(waiter, _)| waiter.what_for));
        self.settle();
        was_called
    }

    fn has_left(&self, what_for: Option<WhatFor>) {
        if what_for == Some(WhatFor::Any) {
            self.waiting_for_any.set(self.waiting_for_any.get() - 1);
        }
    }

    /// Clears this worker's bit if its queue is empty.
    fn settle(&self) {
        if self.is_empty() {
            self.waiting.clear(self.worker);
        }
    }
}

/// A place in the queue. Dropping it leaves the queue, and passes an unused turn on.
pub(crate) struct InLine<'a> {
    line: &'a WaitQueue,
    ticket: Ticket,
    turn: oneshot::Receiver<()>,
    has_come: bool,
}

impl InLine<'_> {
    pub(crate) fn is_first(&self) -> bool {
        self.line.len() == 1
    }

    /// Ready when it is the request's turn.
    pub(crate) async fn turn(&mut self) {
        let _ = (&mut self.turn).await;
        self.has_come = true;
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        // A turn that was not used goes to the next request. Otherwise the room would stay empty.
        if self.line.leave(self.ticket) && !self.has_come {
            self.line.call_next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_passes_on_its_turn_and_keeps_no_place() {
        let call: Rc<CallWorker> = Rc::new(|_, _| {});
        let line = WaitQueue::new(2, &Arc::default(), 0, &call);
        let join = |what_for| line.join(what_for, Time::START);
        let (own, any) = (join(WhatFor::ItsOwn).expect("room"), join(WhatFor::Any).expect("room"));
        assert!(join(WhatFor::Any).is_none() && line.is_for_any());
        line.call_next();
        assert_eq!(line.len(), 1, "it is the first one's turn");
        drop(own);
        assert!(line.is_empty() && !line.is_for_any(), "it has passed it on");
        drop(any);
        let own = join(WhatFor::ItsOwn).expect("room");
        assert!(own.is_first() && !line.is_for_any());
        line.set_waiting_max(1);
        assert!(join(WhatFor::Any).is_none(), "another length holds at once");
        drop(own);
        assert!(line.is_empty());
    }
}
