//! Requests that wait for a server with room: one worker's line of them, and how others hear that it is there.
//!
//! A change of the configuration leaves the line as it is, since what makes room may have begun under either plan.

use std::cell::RefCell;
use std::sync::Arc;

use balance::{Queue, Ticket, Time, WaitingWorkers};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::worker::Message;

/// Those who wait with one worker for servers of one upstream.
pub(crate) struct Line {
    queue: RefCell<Queue<oneshot::Sender<()>>>,
    /// Which workers have somebody in their lines.
    waiting: Arc<WaitingWorkers>,
    worker: usize,
    others: Arc<[UnboundedSender<Message>]>,
}

impl Line {
    /// A line of up to so many.
    pub(crate) fn new(
        waiting_max: usize,
        waiting: &Arc<WaitingWorkers>,
        worker: usize,
        others: &Arc<[UnboundedSender<Message>]>,
    ) -> Self {
        Self {
            queue: RefCell::new(Queue::new(waiting_max)),
            waiting: Arc::clone(waiting),
            worker,
            others: Arc::clone(others),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Whether it is one of these workers' lines.
    pub(crate) fn is_of(&self, waiting: &Arc<WaitingWorkers>) -> bool {
        Arc::ptr_eq(&self.waiting, waiting)
    }

    /// Waits behind all others: what is received is one's turn. `None` if too many do.
    pub(crate) fn join(&self, now: Time) -> Option<(oneshot::Receiver<()>, Ticket)> {
        let (turn, receiver) = oneshot::channel();
        let ticket = self.queue.borrow_mut().join(turn, now).ok()?;
        self.waiting.set(self.worker);
        Some((receiver, ticket))
    }

    /// Waits no longer, if it was not one's turn yet.
    pub(crate) fn leave(&self, ticket: Ticket) {
        let _ = self.queue.borrow_mut().leave(ticket);
        self.settle();
    }

    /// There may be room: whoever waits longest with this worker tries, else somebody with another.
    pub(crate) fn call_next(&self) {
        loop {
            let next = self.queue.borrow_mut().take_next();
            self.settle();
            match next {
                // One who has given up meanwhile has no use for the turn.
                Some((turn, _)) => {
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

    /// Says to other workers that nobody waits here any more, if so.
    fn settle(&self) {
        if self.is_empty() {
            self.waiting.clear(self.worker);
        }
    }
}
