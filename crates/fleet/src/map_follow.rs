//! Follows the changes of maps in etcd, and makes changes for all instances.
//!
//! An instance applies every change, also its own, in the order of etcd's revisions, so that all have the same state.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::etcd::{EtcdEvent, EtcdFailure};
use crate::follow::{FollowedProxy, PAUSE_MAX, PAUSE_MIN, TICK};
use crate::map_store::{MapChange, MapNews, MapWork};
use crate::store::EtcdStore;

/// A change of a map for all instances.
#[derive(Debug)]
pub struct MapOrder {
    pub map: String,
    pub work: MapWork,
    /// Gets the outcome once this instance has applied the change, or why it is not made.
    pub reply: oneshot::Sender<Result<(), String>>,
}

/// How long an order waits for this instance to read it from etcd.
const READ_MAX: Duration = Duration::from_secs(5);

/// An order that is in etcd, and that this instance has not applied yet.
pub(crate) struct WaitingOrder {
    revision: i64,
    since: Instant,
    reply: oneshot::Sender<Result<(), String>>,
}

pub(crate) struct MapFollower<P> {
    pub(crate) store: Rc<EtcdStore>,
    pub(crate) proxy: Arc<P>,
    pub(crate) orders: UnboundedReceiver<MapOrder>,
    /// Notified when the configuration may have other maps.
    pub(crate) reloaded: Rc<Notify>,
    /// The instance.
    pub(crate) name: String,
    pub(crate) waiting: Vec<WaitingOrder>,
}

impl<P: FollowedProxy> MapFollower<P> {
    pub(crate) async fn run(mut self) {
        let (mut pause, mut reported) = (PAUSE_MIN, None);
        loop {
            let Err(failure) = self.once().await else {
                (pause, reported) = (PAUSE_MIN, None);
                continue;
            };
            for order in self.waiting.extract_if(.., |order| order.since.elapsed() > READ_MAX) {
                let why = format!("the change is in etcd, and this instance has not read it yet: {failure}");
                let _ = order.reply.send(Err(why));
            }
            // The configuration's part reports an etcd that does not answer.
            if matches!(failure, EtcdFailure::Refused(_)) && reported.as_ref() != Some(&failure) {
                self.proxy.warn(&format!("maps keep their entries, without changes in etcd: {failure}"));
                reported = Some(failure);
            }
            self.rest(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits before the next attempt. Orders are attempted at once; one that succeeds ends the pause.
    async fn rest(&mut self, pause: Duration) {
        let mut pause = pin!(tokio::time::sleep(pause));
        loop {
            tokio::select! {
                () = &mut pause => return,
                Some(order) = self.orders.recv() => if self.execute(order).await { return; },
            }
        }
    }

    /// Takes the state in etcd, and follows its changes until all has to be read again.
    async fn once(&mut self) -> Result<(), EtcdFailure> {
        let proxy = Arc::clone(&self.proxy);
        let take = async |name: String, state| {
            let proxy = Arc::clone(&proxy);
            // A large map takes long.
            let _ = tokio::task::spawn_blocking(move || proxy.take_map(&name, state)).await;
        };
        let revision = self.store.look_at_maps(self.proxy.maps(), take).await?;
        self.reply_up_to(revision);
        let client = &self.store.client;
        let (server, failures) = (client.server(), client.failures());
        let mut watch = client.watch(&self.store.maps(), revision + 1).await?;
        loop {
            self.proxy.note_maps(self.store.client.answered());
            let reloaded = Rc::clone(&self.reloaded);
            tokio::select! {
                events = watch.next() => match events? {
                    Some(events) if self.take(&events).await => {}
                    // A new generation, or lost changes.
                    _ => return Ok(()),
                },
                Some(order) = self.orders.recv() => {
                    self.execute(order).await;
                }
                () = reloaded.notified() => return Ok(()),
                () = tokio::time::sleep(TICK) => {}
            }
            // The watched server is silent, or was.
            let client = &self.store.client;
            if client.server() != server || client.failures() != failures {
                return Ok(());
            }
        }
    }

    /// Applies changes. Returns `false` if a map has to be read again.
    async fn take(&mut self, events: &[EtcdEvent]) -> bool {
        let MapNews::Changes(changes) = self.store.map_news(events) else { return false };
        let proxy = Arc::clone(&self.proxy);
        let apply = move || {
            for part in changes.chunk_by(|one, other| one.0 == other.0) {
                let Some((name, _)) = part.first() else { continue };
                let changes: Vec<MapChange> = part.iter().map(|(_, change)| change.clone()).collect();
                proxy.take_map_changes(name, changes);
            }
        };
        let _ = tokio::task::spawn_blocking(apply).await;
        self.reply_up_to(events.iter().map(|event| event.entry.modified).max().unwrap_or(0));
        true
    }

    /// Makes a change. Returns whether it is in etcd.
    async fn execute(&mut self, MapOrder { map, work, reply }: MapOrder) -> bool {
        match self.store.change_map(&map, work, &self.name).await {
            Ok(revision) => {
                self.waiting.push(WaitingOrder { revision, since: Instant::now(), reply });
                true
            }
            Err(why) => {
                // The command may have ended.
                let _ = reply.send(Err(why));
                false
            }
        }
    }

    fn reply_up_to(&mut self, revision: i64) {
        for order in self.waiting.extract_if(.., |order| order.revision <= revision) {
            // The command may have ended.
            let _ = order.reply.send(Ok(()));
        }
    }
}
