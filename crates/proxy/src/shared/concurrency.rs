//! Limits on what is under way per key: guards that count requests and connections, and places in the queue.
//!
//! Any worker may call a request that waits on another one.

use std::sync::Arc;

use route::{
    Alone, Concurrency, ConcurrencyDemand, ConcurrencyEntry, ConcurrencyKey, ConcurrencyTicket, ShareStanding,
};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::secret::secret;

/// The counts of one limit. Each request that waits has the receiver of its sender. A sender that is dropped refuses it.
type Limiter = route::ConcurrencyLimiter<oneshot::Sender<()>>;

/// The counts of one limit, for all workers.
#[derive(Debug, Clone)]
pub(crate) struct ConcurrencyLimiter(Arc<Limiter>);

/// A limit that instances share.
#[derive(Debug, Clone)]
pub struct SharedConcurrency {
    /// Equal on all instances.
    pub id: u64,
    pub(crate) limiter: ConcurrencyLimiter,
}

impl SharedConcurrency {
    /// Sets the standing, and lets requests in that it has room for. Those beyond it are refused.
    pub fn stand(&self, standing: ShareStanding) {
        self.limiter.0.stand(standing).into_iter().for_each(call);
    }

    /// Sets a function that workers call if there is something to report.
    pub fn call_with(&self, caller: impl Fn() + Send + Sync + 'static) {
        self.limiter.0.call_with(caller);
    }

    /// Lets the next change call the function. Returns whether there is nothing to report.
    pub fn rest(&self) -> bool {
        self.limiter.0.rest()
    }

    /// Whether nothing is counted.
    pub fn is_unused(&self) -> bool {
        self.limiter.0.is_unused()
    }

    /// Identifies the limiter among those of this instance.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.limiter.0).addr()
    }

    /// Lets all counts be reported again.
    pub fn tell_all(&self) {
        self.limiter.0.tell_all();
    }

    /// Takes what must be reported, or of it what requests wait for.
    pub fn take_demands(&self, all: bool, demands: &mut Vec<ConcurrencyDemand>) {
        self.limiter.0.take_demands(all, demands);
    }

    /// Applies an answer: how many may be under way here. Requests that it has no room for are refused.
    pub fn learn(&self, demand: &ConcurrencyDemand, permits: u32) {
        self.limiter.0.learn(demand, permits).into_iter().for_each(call);
    }
}

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
    /// Whether the turn has come, or the request is refused.
    is_over: bool,
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

    /// As [`new`](Self::new), for a limit over several instances; `instances` is their number until it is known.
    pub(crate) fn shared(secret: [u64; 2], alone: Alone, instances: u32) -> Self {
        Self(Arc::new(Limiter::shared(secret, alone, instances)))
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
                Entered::Waits(WaitingPlace { limiter, key, ticket, turn, is_over: false })
            }
            (ConcurrencyEntry::Waits(_) | ConcurrencyEntry::Full, _) => Entered::Full,
        }
    }
}

/// Notifies a request. One that has left passes its turn on itself.
fn call(next: oneshot::Sender<()>) {
    let _ = next.send(());
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.limiter.exit(self.key).into_iter().for_each(call);
    }
}

impl WaitingPlace {
    /// Ready when it is the request's turn, which then counts as under way, or with `None` if there is no room in the
    /// queue either, as other instances say.
    pub(crate) async fn turn(mut self) -> Option<Counted> {
        let turn = (&mut self.turn).await;
        self.is_over = true;
        turn.ok()?;
        let (limiter, key) = (Arc::clone(&self.limiter), self.key);
        // After a reload that raises the limit, there may be room for several.
        limiter.next(key).into_iter().for_each(call);
        Some(Counted { limiter, key })
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        if !self.is_over {
            let Self { limiter, key, ticket, turn, .. } = self;
            let is_refused = || turn.try_recv() == Err(TryRecvError::Closed);
            limiter.leave(*key, *ticket, is_refused).into_iter().for_each(call);
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
        let counted = poll_once(|context| third.as_mut().poll(context)).flatten().expect("it is the next");
        let is_full = || matches!(limiter.enter(key, Concurrency { waiting_max: 0, ..limit }), Entered::Full);
        assert!(is_full());
        drop(counted);
        assert!(!is_full());
    }
}
