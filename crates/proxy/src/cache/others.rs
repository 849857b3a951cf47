//! Passes purges on to other instances. Who carries them is on the control side; this side knows neither them nor the way.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ::cache::{Force, Named};
use api::cache::PurgedElsewhere;
use tokio::sync::mpsc::UnboundedSender;
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

/// The way to other instances, if there are any.
#[derive(Debug, Default)]
pub(super) struct Others {
    publications: Mutex<Option<UnboundedSender<Publication>>>,
}

impl Others {
    /// Nothing that holds it can panic halfway through a change.
    fn publications(&self) -> MutexGuard<'_, Option<UnboundedSender<Publication>>> {
        self.publications.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    /// From now on purges are published this way; `None` ends it.
    pub fn publish_by(&self, way: Option<UnboundedSender<Publication>>) {
        *self.others.publications() = way;
    }

    /// Has other instances purge the same. The receiver tells who has done it; `None` if there are no others.
    pub fn publish(&self, named: &[Named], force: Force) -> Option<oneshot::Receiver<PurgedElsewhere>> {
        let mut way = self.others.publications();
        let (told, elsewhere) = oneshot::channel();
        let messages = named.iter().map(|named| successor::written(named, force)).collect();
        if way.as_ref()?.send(Publication { messages, told }).is_err() {
            *way = None;
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
