//! Passes purges on to other instances. Who carries them is on the control side; this side knows neither them nor the way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::cache::{Force, Named};
use api::cache::PurgedElsewhere;
use tokio::sync::mpsc::{Sender, UnboundedSender};
use tokio::sync::oneshot;

use super::Cache;
use super::successor;
use crate::context::exchange::ExchangeContext;
use transport::deadline::Ticks;

/// A client waits for no longer until others have purged as well: a little more than they have.
const KNOWN_LIMIT: Ticks = Ticks(13);

/// A purge for other instances.
#[derive(Debug)]
pub struct Publication {
    /// What they are to obey, each by [`Cache::obey`].
    pub messages: Vec<Vec<u8>>,
    /// Where it is told who has.
    pub told: oneshot::Sender<PurgedElsewhere>,
}

/// The ways to other instances.
#[derive(Debug, Clone)]
pub struct Ways {
    /// Of purges, which all of them do.
    pub purges: UnboundedSender<Publication>,
    /// Of what unsafe requests invalidate, each obeyed by [`Cache::obey`]. Clients decide how much that is, so its queue is bounded.
    pub invalid: Sender<Vec<u8>>,
    /// Counts what the queue had no room for.
    pub lost: Arc<AtomicU64>,
}

/// The ways to other instances, if there are any.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// Whether there are: unsafe requests pay no more than a look at this.
    are_there: AtomicBool,
    ways: Mutex<Option<Ways>>,
}

impl Others {
    /// Nothing that holds it can panic halfway through a change.
    fn ways(&self) -> MutexGuard<'_, Option<Ways>> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are any.
    pub(super) fn are_there(&self) -> bool {
        self.are_there.load(Ordering::Relaxed)
    }

    fn lead(&self, ways: Option<Ways>) {
        self.are_there.store(ways.is_some(), Ordering::Relaxed);
        *self.ways() = ways;
    }

    /// Has them invalidate the same, some time later. Nobody waits for it, and what finds no room is lost: RFC 9111 §4.4 asks it only
    /// of caches that a request passes.
    pub(super) fn tell_invalid(&self, named: &[Named]) {
        let ways = self.ways();
        let Some(Ways { invalid, lost, .. }) = &*ways else { return };
        for named in named {
            if invalid.try_send(successor::written(named, Force::Hard)).is_err() {
                lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Cache {
    /// From now on purges are published this way; `None` ends it.
    pub fn publish_by(&self, ways: Option<Ways>) {
        self.others.lead(ways);
    }

    /// Has other instances purge the same. The receiver tells who has done it; `None` if there are no others.
    pub fn publish(&self, named: &[Named], force: Force) -> Option<oneshot::Receiver<PurgedElsewhere>> {
        let ways = self.others.ways();
        let (told, elsewhere) = oneshot::channel();
        let messages = named.iter().map(|named| successor::written(named, force)).collect();
        let is_sent = ways.as_ref()?.purges.send(Publication { messages, told }).is_ok();
        drop(ways);
        if !is_sent {
            self.others.lead(None);
            return None;
        }
        Some(elsewhere)
    }
}

/// What has an instance purge everything, by [`Cache::obey`].
pub fn purge_of_everything() -> Vec<u8> {
    successor::written(&Named::All, Force::Hard)
}

/// Waits until other instances have purged as well, for a limited time.
pub(crate) async fn known(
    ctx: &ExchangeContext<'_>,
    elsewhere: oneshot::Receiver<PurgedElsewhere>,
) -> PurgedElsewhere {
    let deadline = ctx.worker.deadlines.deadline();
    let known = deadline.within(KNOWN_LIMIT, elsewhere).await;
    known.ok().and_then(Result::ok).unwrap_or_else(PurgedElsewhere::unknown)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{channel, unbounded_channel};

    use super::*;

    #[test]
    fn what_finds_no_room_is_counted_as_lost() {
        let others = Others::default();
        let named = [Named::Tag(b"a"[..].into()), Named::Tag(b"b"[..].into()), Named::Tag(b"c"[..].into())];
        others.tell_invalid(&named);
        assert!(!others.are_there());
        let (invalid, mut waiting) = channel(2);
        let (purges, _) = unbounded_channel();
        let lost = Arc::new(AtomicU64::new(0));
        others.lead(Some(Ways { purges, invalid, lost: Arc::clone(&lost) }));
        assert!(others.are_there());
        others.tell_invalid(&named);
        assert_eq!(lost.load(Ordering::Relaxed), 1);
        let heard = [waiting.try_recv(), waiting.try_recv(), waiting.try_recv()];
        let expected = |named| Ok(successor::written(named, Force::Hard));
        assert_eq!(heard[..2], [expected(&named[0]), expected(&named[1])]);
        assert!(heard[2].is_err());
        others.lead(None);
        assert!(!others.are_there());
    }
}
