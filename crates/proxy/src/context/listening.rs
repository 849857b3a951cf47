//! A listener for as long as the process listens on it, over reloads.

use std::cell::{Cell, OnceCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::watch;

use crate::context::plan::Listener;

/// A placeholder for the address of peers without one: those of Unix sockets.
pub const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Identifies a listener for as long as the process listens on it, over reloads. Later listeners have greater numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerId(pub u64);

/// A listener as one worker sees it. Its connections hold a reference.
pub(crate) struct Listening {
    pub(crate) id: ListenerId,
    /// Where it is in the worker's plan; `None` once it is not listened on any more.
    place: Cell<Option<usize>>,
    /// What was configured for it when it was listened on last.
    last: OnceCell<Arc<Listener>>,
    /// Notifies the tasks that accept for the listener, of which there may be several.
    settled: watch::Sender<()>,
}

impl Listening {
    /// A listener that has no place in a plan yet.
    pub(crate) fn new(id: ListenerId) -> Rc<Self> {
        Rc::new(Self { id, place: Cell::new(None), last: OnceCell::new(), settled: watch::Sender::new(()) })
    }

    /// The index of the listener in the worker's current plan.
    pub(crate) fn place(&self) -> Option<usize> {
        self.place.get()
    }

    /// The settings for the remaining connections of a listener that was removed.
    pub(crate) fn last(&self) -> Option<&Listener> {
        self.last.get().map(Arc::as_ref)
    }

    /// Looks up the listener's place in a new plan. Returns `false` if it has none, and ends accepting. `before` are
    /// the listeners of the previous plan.
    pub(crate) fn settle(&self, order: &[ListenerId], before: &[Arc<Listener>]) -> bool {
        let place = order.iter().position(|id| *id == self.id);
        let last = self.place.replace(place);
        if place.is_none()
            && let Some(listener) = last.and_then(|last| before.get(last))
        {
            // It never comes back: a listener at the same address has another id.
            let _ = self.last.set(Arc::clone(listener));
        }
        self.look_again();
        place.is_some()
    }

    /// Notifies a task that accepts for the listener of changes. The task keeps the receiver for as long as its socket.
    pub(crate) fn settled(&self) -> watch::Receiver<()> {
        self.settled.subscribe()
    }

    /// Returns when no task accepts for the listener.
    pub(crate) async fn closed(&self) {
        self.settled.closed().await;
    }

    /// Makes the accepting tasks check for changes.
    pub(crate) fn look_again(&self) {
        self.settled.send_replace(());
    }
}
