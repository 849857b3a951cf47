//! A listener for as long as the process listens on it, across reloads.

use std::cell::{Cell, OnceCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::watch;

use crate::context::plan::{Plan, PlanListener};

/// A placeholder for the address of peers without one, such as Unix sockets.
pub const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Identifies a listener across reloads. Later listeners have greater numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerId(pub u64);

/// A listener as one worker sees it. Its connections hold a reference.
pub(crate) struct Listening {
    pub(crate) id: ListenerId,
    /// Its index in the worker's plan; `None` once it is removed.
    place: Cell<Option<usize>>,
    /// Its last settings, set when it is removed.
    last: OnceCell<Arc<PlanListener>>,
    /// Notifies the tasks that accept for the listener; there may be several.
    settled: watch::Sender<()>,
}

impl Listening {
    /// Creates a listener that is not in a plan yet.
    pub(crate) fn new(id: ListenerId) -> Rc<Self> {
        Rc::new(Self { id, place: Cell::new(None), last: OnceCell::new(), settled: watch::Sender::new(()) })
    }

    /// Index in the worker's current plan.
    pub(crate) fn place(&self) -> Option<usize> {
        self.place.get()
    }

    /// Its settings in the worker's current plan; once it is removed, its last settings.
    pub(crate) fn settings<'a>(&'a self, plan: &'a Plan) -> &'a PlanListener {
        // A listener that was in no plan yet has no settings.
        static NONE: PlanListener = PlanListener::none();
        let now = self.place().map(|place| &*plan.listeners[place]);
        now.or_else(|| self.last.get().map(Arc::as_ref)).unwrap_or(&NONE)
    }

    /// Looks up the listener's place in a new plan. Without one, ends accepting and returns false. `before` are the
    /// listeners of the previous plan.
    pub(crate) fn settle(&self, order: &[ListenerId], before: &[Arc<PlanListener>]) -> bool {
        let place = order.iter().position(|id| *id == self.id);
        let last = self.place.replace(place);
        if place.is_none()
            && let Some(listener) = last.and_then(|last| before.get(last))
        {
            // A removed listener never returns: a later one at the same address has another ID.
            let _ = self.last.set(Arc::clone(listener));
        }
        self.look_again();
        place.is_some()
    }

    /// Returns a receiver of changes for a task that accepts. The task keeps it as long as its socket.
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
