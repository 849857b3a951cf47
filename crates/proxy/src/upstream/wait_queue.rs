//! Requests that wait for a server with room: one worker's line of them, and how others hear that it is there.
//!
//! A change of the configuration leaves the line as it is, since what makes room may have begun under either plan.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use balance::{Queue, Ticket, Time, WaitingWorkers};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::context::worker::Message;

/// Those who wait with one worker for servers of one upstream.
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

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhatFor {
    /// Whichever server has room first.
    Any,
    /// The server of a session.
    ItsOwn,
}

impl WaitQueue {
    /// A line of up to so many.
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

    /// From now on up to so many wait.
    pub(crate) fn set_waiting_max(&self, waiting_max: usize) {
        self.queue.borrow_mut().set_waiting_max(waiting_max);
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Whether somebody waits who would take any server: who comes now comes after them. Those who wait for a server of
    /// their own keep nobody from the others.
    pub(crate) fn is_for_any(&self) -> bool {
        self.waiting_for_any.get() > 0
    }

    /// Whether it is one of these workers' lines.
    pub(crate) fn is_of(&self, waiting: &Arc<WaitingWorkers>) -> bool {
        Arc::ptr_eq(&self.waiting, waiting)
    }

    /// Waits behind all others. `None` if too many do.
    pub(crate) fn join(&self, what_for: WhatFor, now: Time) -> Option<InLine<'_>> {
        let (sender, turn) = oneshot::channel();
        let ticket = self.queue.borrow_mut().join(Waiter { turn: sender, what_for }, now).ok()?;
        if what_for == WhatFor::Any {
            self.waiting_for_any.set(self.waiting_for_any.get() + 1);
        }
        self.waiting.set(self.worker);
        Some(InLine { line: self, ticket, turn, has_come: false })
    }

    /// There may be room: whoever waits longest with this worker tries, else somebody with another.
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

/// A place in a line. Dropped, it is left, and a turn that was not taken is the next one's.
pub(crate) struct InLine<'a> {
    line: &'a WaitQueue,
    ticket: Ticket,
    turn: oneshot::Receiver<()>,
    has_come: bool,
}

impl InLine<'_> {
    /// Whether nobody stands before it.
    pub(crate) fn is_first(&self) -> bool {
        self.line.len() == 1
    }

    /// Ready when it is its turn.
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
