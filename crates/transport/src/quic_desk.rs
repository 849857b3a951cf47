//! State that an endpoint shares with its QUIC connections. A connection refers to it, not to its endpoint: the
//! endpoint owns its connections, and its driver owns the endpoint. So the socket closes with the driver, even if
//! connections still exist.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Waker};

use quinn_proto::ConnectionId;

use crate::deadline::Deadlines;
use crate::quic_asked::PendingClients;
use crate::quic_beginnings::Beginnings;
use crate::quic_endpoint::QuicShared as Endpoint;
use crate::quic_ids::{Destination, IdOwner, Ids};
use crate::quic_places::HandshakePlaces;

/// The state between an endpoint and its connections.
pub(crate) struct Desk {
    /// For actions that cannot wait until the endpoint is driven.
    // Weak, or endpoint and connections would keep each other, and with them the socket.
    pub(crate) endpoint: Weak<Endpoint>,
    /// `None` for the socket of a connection to a server.
    accepting: Option<Accepting>,
    pub(crate) asked: PendingClients,
    pub(crate) deadlines: Rc<Deadlines>,
    /// Connections that have something to do, each once.
    stirred: RefCell<VecDeque<usize>>,
    pub(crate) places: HandshakePlaces,
    driver: RefCell<Option<Waker>>,
    is_stirred: Cell<bool>,
}

/// State of an endpoint that accepts connections.
pub(crate) struct Accepting {
    pub(crate) ids: Ids,
    pub(crate) beginnings: Arc<Beginnings>,
}

impl Desk {
    pub(crate) fn new(
        endpoint: Weak<Endpoint>,
        accepting: Option<Accepting>,
        deadlines: &Rc<Deadlines>,
    ) -> Self {
        Self {
            endpoint,
            accepting,
            asked: PendingClients::default(),
            deadlines: Rc::clone(deadlines),
            stirred: RefCell::default(),
            places: HandshakePlaces::default(),
            driver: RefCell::default(),
            is_stirred: Cell::default(),
        }
    }

    pub(crate) fn accepts(&self) -> bool {
        self.accepting.is_some()
    }

    /// The endpoint that a datagram belongs to.
    pub(crate) fn destination(&self, datagram: &[u8]) -> Destination {
        // The socket to a server has one connection, and IDs of length zero.
        self.accepting.as_ref().map_or(Destination::Here, |accepting| accepting.ids.destination(datagram))
    }

    /// The endpoint of this process where a handshake has begun with this ID.
    pub(crate) fn begun(&self, id: &ConnectionId) -> Option<IdOwner> {
        self.accepting.as_ref()?.beginnings.owner(id)
    }

    /// Another endpoint where a handshake has begun with this ID. The kernel has since changed its choice of sockets.
    pub(crate) fn begun_elsewhere(&self, id: &ConnectionId) -> Option<IdOwner> {
        self.begun(id).filter(|owner| !self.is_own(*owner))
    }

    /// Whether this is the desk's own endpoint.
    pub(crate) fn is_own(&self, owner: IdOwner) -> bool {
        self.accepting.as_ref().is_some_and(|accepting| accepting.ids.owner() == owner)
    }

    /// Registers a handshake that begins with this ID. Returns false if it has begun elsewhere.
    pub(crate) fn claim(&self, id: ConnectionId) -> bool {
        let claim = |Accepting { ids, beginnings }: &Accepting| beginnings.claim(id, ids.owner());
        self.accepting.as_ref().is_none_or(claim)
    }

    pub(crate) fn release(&self, id: &ConnectionId) {
        if let Some(Accepting { beginnings, .. }) = &self.accepting {
            beginnings.release(id);
        }
    }

    /// Queues a connection for this turn or the next.
    pub(crate) fn enqueue(&self, at: usize) {
        self.stirred.borrow_mut().push_back(at);
    }

    /// Number of connections that have something to do.
    pub(crate) fn stirred(&self) -> usize {
        self.stirred.borrow().len()
    }

    /// The next connection that has something to do.
    pub(crate) fn next_stirred(&self) -> Option<usize> {
        self.stirred.borrow_mut().pop_front()
    }

    /// Called when the task of this context drives the endpoint.
    pub(crate) fn attend(&self, context: &Context<'_>) {
        match &mut *self.driver.borrow_mut() {
            Some(driver) => driver.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        self.is_stirred.set(false);
    }

    pub(crate) fn stir(&self) {
        if !self.is_stirred.replace(true)
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }

    /// Wakes the driver after all other ready tasks, and after the runtime has polled its sockets.
    pub(crate) fn stir_after_others(&self, context: &mut Context<'_>) {
        if !self.is_stirred.replace(true) {
            // Its first poll schedules the wake-up, and is never ready.
            // Waking the driver directly would run it before the runtime looks at its sockets.
            let _ = pin!(tokio::task::yield_now()).poll(context);
        }
    }
}
