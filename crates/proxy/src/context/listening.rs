//! A listener for as long as the process listens on it, over reloads.

use std::cell::{Cell, OnceCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::watch;

use crate::context::plan::Listener;

/// The address of peers that have none: those of Unix sockets.
pub const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A listener for as long as it is listened on, over changes of the configuration.
/// Later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerId(pub u64);

/// A listener as one worker sees it. Its connections keep it.
pub(crate) struct Listening {
    pub(crate) id: ListenerId,
    /// Where it is in the worker's plan; `None` once it is not listened on any more.
    place: Cell<Option<usize>>,
    /// What was configured for it when it was listened on last.
    last: OnceCell<Arc<Listener>>,
    /// Told to all that accept for it here, of which there may be several.
    pub(crate) settled: watch::Sender<()>,
}

impl Listening {
    /// A listener that is yet to be settled.
    pub(crate) fn new(id: ListenerId) -> Rc<Self> {
        Rc::new(Self { id, place: Cell::new(None), last: OnceCell::new(), settled: watch::Sender::new(()) })
    }

    /// Where it is in the plan that the worker uses now.
    pub(crate) fn place(&self) -> Option<usize> {
        self.place.get()
    }

    /// What its connections go by once it is not listened on any more.
    pub(crate) fn last(&self) -> Option<&Listener> {
        self.last.get().map(Arc::as_ref)
    }

    /// Takes its place among those of a plan; false, and the end of its accepting, if it has none. `before` are the
    /// listeners of the plan that it was in.
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

    /// Has what accepts for it look at what has changed.
    pub(crate) fn look_again(&self) {
        self.settled.send_replace(());
    }
}
