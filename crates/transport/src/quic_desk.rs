//! What connections of QUIC tell their endpoint, and need of it: a desk between them, so that a connection does not hold its
//! endpoint. An endpoint owns its connections, and whoever drives it owns the endpoint: its socket closes with that, whoever
//! still has a connection.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Waker};

use quinn_proto::ConnectionId;

use crate::deadline::Deadlines;
use crate::quic_asked::Asked;
use crate::quic_beginnings::Beginnings;
use crate::quic_endpoint::Shared as Endpoint;
use crate::quic_ids::{Destination, Ids, Owner};
use crate::quic_places::Places;

/// What is between an endpoint and its connections.
pub(crate) struct Desk {
    /// For what cannot wait until the endpoint is driven.
    pub(crate) endpoint: Weak<Endpoint>,
    /// `None` of the socket of a connection to a server.
    accepting: Option<Accepting>,
    pub(crate) asked: Asked,
    pub(crate) deadlines: Rc<Deadlines>,
    /// Connections that have something to do, each once.
    stirred: RefCell<VecDeque<usize>>,
    pub(crate) places: Places,
    driver: RefCell<Option<Waker>>,
    is_stirred: Cell<bool>,
}

/// What an endpoint needs that accepts connections.
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
            asked: Asked::default(),
            deadlines: Rc::clone(deadlines),
            stirred: RefCell::default(),
            places: Places::default(),
            driver: RefCell::default(),
            is_stirred: Cell::default(),
        }
    }

    /// Whether connections are accepted.
    pub(crate) fn accepts(&self) -> bool {
        self.accepting.is_some()
    }

    /// Whom a datagram is for.
    pub(crate) fn destination(&self, datagram: &[u8]) -> Destination {
        self.accepting.as_ref().map_or(Destination::Here, |accepting| accepting.ids.destination(datagram))
    }

    /// Where a handshake has begun with this ID, in this process.
    pub(crate) fn begun(&self, id: &ConnectionId) -> Option<Owner> {
        self.accepting.as_ref()?.beginnings.owner(id)
    }

    /// The other endpoint where a handshake has begun with this ID: since then the kernel chooses otherwise.
    pub(crate) fn begun_elsewhere(&self, id: &ConnectionId) -> Option<Owner> {
        self.begun(id).filter(|owner| !self.is_own(*owner))
    }

    /// Whether this is the endpoint of the desk.
    pub(crate) fn is_own(&self, owner: Owner) -> bool {
        self.accepting.as_ref().is_some_and(|accepting| accepting.ids.owner() == owner)
    }

    /// Notes a handshake that begins with this ID; false if it has begun elsewhere.
    pub(crate) fn claim(&self, id: ConnectionId) -> bool {
        let claim = |Accepting { ids, beginnings }: &Accepting| beginnings.claim(id, ids.owner());
        self.accepting.as_ref().is_none_or(claim)
    }

    /// Forgets a handshake that began with this ID.
    pub(crate) fn release(&self, id: &ConnectionId) {
        if let Some(Accepting { beginnings, .. }) = &self.accepting {
            beginnings.release(id);
        }
    }

    /// Has a connection driven in this turn or the next.
    pub(crate) fn enqueue(&self, at: usize) {
        self.stirred.borrow_mut().push_back(at);
    }

    /// How many connections have something to do.
    pub(crate) fn stirred(&self) -> usize {
        self.stirred.borrow().len()
    }

    /// The next connection that has something to do.
    pub(crate) fn next_stirred(&self) -> Option<usize> {
        self.stirred.borrow_mut().pop_front()
    }

    /// The endpoint is being driven, by the task of this context.
    pub(crate) fn attend(&self, context: &Context<'_>) {
        match &mut *self.driver.borrow_mut() {
            Some(driver) => driver.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        self.is_stirred.set(false);
    }

    /// Wakes the driver.
    pub(crate) fn stir(&self) {
        if !self.is_stirred.replace(true)
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }

    /// Wakes the driver after all others that have something to do, and after the runtime has looked at its sockets.
    pub(crate) fn stir_after_others(&self, context: &mut Context<'_>) {
        if !self.is_stirred.replace(true) {
            // Its first poll does that, and is never ready.
            let _ = pin!(tokio::task::yield_now()).poll(context);
        }
    }
}
