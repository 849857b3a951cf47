//! Wait queue for servers at their limit of requests under way. Each worker has its own queue; workers notify each other
//! of room.
//!
//! A configuration change leaves the queue alone, since the requests that make room may have begun under either plan.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use balance::{Queue, Ticket, Time, WaitingWorkers};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::context::worker::Message;

/// One worker's requests that wait for a server of one upstream.
pub(crate) struct WaitQueue {
    queue: RefCell<Queue<Waiter>>,
    /// Those of them who take whichever server has room first.
    waiting_for_any: Cell<usize>,
    /// Which workers have somebody in their lines.
    waiting: Arc<WaitingWorkers>,
    worker: usize,
    others: Arc<[UnboundedSender<Message>]>,
}

/// One who waits.
struct Waiter {
    turn: oneshot::Sender<()>,
    what_for: WhatFor,
}

/// The server that a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhatFor {
    /// Any server: the first with room.
    Any,
    /// The server of the request's session.
    ItsOwn,
}

impl WaitQueue {
    /// Creates a queue for at most `waiting_max` requests.
    pub(crate) fn new(
        waiting_max: usize,
        waiting: &Arc<WaitingWorkers>,
        worker: usize,
        others: &Arc<[UnboundedSender<Message>]>,
    ) -> Self {
        Self {
            queue: RefCell::new(Queue::new(waiting_max)),
            waiting_for_any: Cell::new(0),
            waiting: Arc::clone(waiting),
            worker,
            others: Arc::clone(others),
        }
    }

    /// Changes the maximum length of the queue.
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

    /// Joins the end of the queue. `None` if the queue is full.
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
                // One who has given up meanwhile has no use for the turn.
                Some((Waiter { turn, .. }, _)) => {
                    if turn.send(()).is_ok() {
                        return;
                    }
                }
                None => break,
            }
        }
        let next = self.waiting.next_after(self.worker).filter(|other| *other != self.worker);
        if let Some(other) = next.and_then(|other| self.others.get(other)) {
            // A worker that has ended has nobody who waits.
            let _ = other.send(Message::Room(Arc::clone(&self.waiting)));
        }
    }

    /// Waits no longer. Says whether it was one's turn already.
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

    /// Says to other workers that nobody waits here any more, if so.
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
    /// Whether no request is in front.
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
        let others: Arc<[UnboundedSender<Message>]> = Arc::from(Vec::new());
        let line = WaitQueue::new(2, &Arc::default(), 0, &others);
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
