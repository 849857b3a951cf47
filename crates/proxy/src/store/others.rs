//! Passes purges on to other instances. The control side carries them; this side does not know the transport.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::cache::{Force, PurgeTarget};
use api::cache::PurgedElsewhere;
use tokio::sync::mpsc::{Sender, UnboundedSender};
use tokio::sync::oneshot;

use super::Cache;
use super::successor;

/// A purge for other instances.
#[derive(Debug)]
pub struct Publication {
    /// Messages for [`Cache::obey`] of the other instances.
    pub messages: Vec<Vec<u8>>,
    /// Receives which instances have purged.
    pub told: oneshot::Sender<PurgedElsewhere>,
}

#[derive(Debug, Clone)]
pub struct Ways {
    /// Purges: every instance runs them.
    pub purges: UnboundedSender<Publication>,
    /// Invalidations by unsafe requests, for [`Cache::obey`]. Clients decide how many there are, so the queue is
    /// bounded.
    pub invalid: Sender<Vec<u8>>,
    /// Counts invalidations for which the queue had no room.
    pub lost: Arc<AtomicU64>,
}

/// The channels to other instances, if there are any.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// Whether there are any, which unsafe requests check first.
    are_there: AtomicBool,
    ways: Mutex<Option<Ways>>,
}

impl Others {
    /// Returns the channels. No holder of the lock can panic halfway through a change.
    fn ways(&self) -> MutexGuard<'_, Option<Ways>> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn are_there(&self) -> bool {
        self.are_there.load(Ordering::Relaxed)
    }

    fn lead(&self, ways: Option<Ways>) {
        // A request that sees the flag too early finds no channel, and goes on.
        self.are_there.store(ways.is_some(), Ordering::Relaxed);
        *self.ways() = ways;
    }

    /// Invalidates the same responses on other instances, without waiting for them. Names that find no room are lost:
    /// RFC 9111 §4.4 only requires invalidation from caches that the request passes.
    pub(crate) fn tell_invalid(&self, named: &[PurgeTarget]) {
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
    /// Sets the channels for purges; `None` ends their propagation.
    pub fn publish_by(&self, ways: Option<Ways>) {
        self.others.lead(ways);
    }

    /// Purges the same responses on other instances. The receiver gets which have done it; `None` if there are no
    /// others.
    pub fn publish(&self, named: &[PurgeTarget], force: Force) -> Option<oneshot::Receiver<PurgedElsewhere>> {
        let ways = self.others.ways();
        let (told, elsewhere) = oneshot::channel();
        let messages = named.iter().map(|named| successor::written(named, force)).collect();
        let is_sent = ways.as_ref()?.purges.send(Publication { messages, told }).is_ok();
        drop(ways);
        if !is_sent {
            // The receiver has ended, so nothing is published any more.
            self.others.lead(None);
            return None;
        }
        Some(elsewhere)
    }
}

/// Returns the message that purges everything, for [`Cache::obey`].
pub fn purge_of_everything() -> Vec<u8> {
    successor::written(&PurgeTarget::All, Force::Hard)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{channel, unbounded_channel};

    use super::*;

    #[test]
    fn what_finds_no_room_is_counted_as_lost() {
        let others = Others::default();
        let named = [
            PurgeTarget::Tag(b"a"[..].into()),
            PurgeTarget::Tag(b"b"[..].into()),
            PurgeTarget::Tag(b"c"[..].into()),
        ];
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
