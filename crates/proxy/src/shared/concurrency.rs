//! Limits on what is under way per key: guards that count requests and connections, and places in the queue.
//!
//! Any worker may call a request that waits on another one.

use std::sync::Arc;

use route::{Concurrency, ConcurrencyEntry, ConcurrencyKey, ConcurrencyTicket};
use tokio::sync::oneshot;

use super::secret::secret;

/// The counts of one limit. Each request that waits has the receiver of its sender.
type Limiter = route::ConcurrencyLimiter<oneshot::Sender<()>>;

/// The counts of one limit, for all workers.
#[derive(Clone)]
pub(crate) struct ConcurrencyLimiter(Arc<Limiter>);

/// Counts a request or a connection as under way until it is dropped.
pub(crate) struct Counted {
    limiter: Arc<Limiter>,
    key: ConcurrencyKey,
}

/// A place in the queue of a key. Dropping it leaves the queue, and passes an unused turn on.
pub(crate) struct WaitingPlace {
    limiter: Arc<Limiter>,
    key: ConcurrencyKey,
    ticket: ConcurrencyTicket,
    turn: oneshot::Receiver<()>,
    has_come: bool,
}

/// The result of an entry.
pub(crate) enum Entered {
    UnderWay(Counted),
    Waits(WaitingPlace),
    Full,
}

impl ConcurrencyLimiter {
    pub(crate) fn new() -> Self {
        // Random, so that clients cannot choose keys that collide.
        let [low, high] = [secret(), secret()].map(u64::from_le_bytes);
        Self(Arc::new(Limiter::new([low, high])))
    }

    /// The counts, to find the key of a request or a connection.
    pub(crate) fn counts(&self) -> &Limiter {
        &self.0
    }

    pub(crate) fn enter(&self, key: ConcurrencyKey, limit: Concurrency) -> Entered {
        let mut turn = None;
        let make = || {
            let (sender, receiver) = oneshot::channel();
            turn = Some(receiver);
            sender
        };
        let entry = self.0.enter(key, limit, make);
        let limiter = Arc::clone(&self.0);
        match (entry, turn) {
            (ConcurrencyEntry::UnderWay, _) => Entered::UnderWay(Counted { limiter, key }),
            (ConcurrencyEntry::Waits(ticket), Some(turn)) => {
                Entered::Waits(WaitingPlace { limiter, key, ticket, turn, has_come: false })
            }
            (ConcurrencyEntry::Waits(_) | ConcurrencyEntry::Full, _) => Entered::Full,
        }
    }
}

/// Notifies the next request. One that has left passes its turn on itself.
fn call(next: Option<oneshot::Sender<()>>) {
    if let Some(next) = next {
        let _ = next.send(());
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        call(self.limiter.exit(self.key));
    }
}

impl WaitingPlace {
    /// Ready when it is the request's turn, which then counts as under way.
    pub(crate) async fn turn(mut self) -> Counted {
        let _ = (&mut self.turn).await;
        self.has_come = true;
        let (limiter, key) = (Arc::clone(&self.limiter), self.key);
        // After a reload that raises the limit, there may be room for several.
        call(limiter.next(key));
        Counted { limiter, key }
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        if !self.has_come {
            call(self.limiter.leave(self.key, self.ticket));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use transport::cold::poll_once;

    use super::*;

    #[test]
    fn one_that_leaves_passes_its_turn_on() {
        let limiter = ConcurrencyLimiter::new();
        let key = limiter.counts().key_of_client([10, 0, 0, 1].into());
        let limit = Concurrency { max: NonZeroU32::MIN, waiting_max: 2 };
        let enter = || limiter.enter(key, limit);
        let Entered::UnderWay(first) = enter() else { panic!("there is room") };
        let (Entered::Waits(second), Entered::Waits(third)) = (enter(), enter()) else { panic!("they wait") };
        assert!(matches!(enter(), Entered::Full));
        let mut third = Box::pin(third.turn());
        assert!(poll_once(|context| third.as_mut().poll(context)).is_none());
        // Its turn comes while it leaves.
        drop(first);
        drop(second);
        let counted = poll_once(|context| third.as_mut().poll(context)).expect("it is the next");
        let is_full = || matches!(limiter.enter(key, Concurrency { waiting_max: 0, ..limit }), Entered::Full);
        assert!(is_full());
        drop(counted);
        assert!(!is_full());
    }
}
