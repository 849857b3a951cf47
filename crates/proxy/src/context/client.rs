//! A client's connection, as data that travels with its requests, and what follows on an exchange.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use crate::context::client_tls::ClientTls;
use crate::context::listening::Listening;
use crate::context::original_connection::OriginalConnection;
use crate::context::snapshot::Snapshot;
use crate::context::worker::Worker;
use crate::shaping::ConnectionTotals;
use crate::upstream::PinnedConnection;
use transport::deadline::Deadline;
use transport::endpoint::Endpoint;
use transport::tcp::Tcp;

/// A client's connection.
pub(crate) struct Client {
    pub(crate) socket: Endpoint,
    pub(crate) address: IpAddr,
    /// The client's port; 0 for a Unix socket.
    pub(crate) port: u16,
    /// The original connection that a PROXY header described, or is going to describe.
    pub(crate) original_connection: Option<Rc<OriginalConnection>>,
    /// A connection to a server that is reserved for this client, while it is idle.
    pub(crate) pinned: Cell<Option<Box<PinnedConnection>>>,
    /// Whether the peer is a trusted proxy.
    pub(crate) is_trusted: bool,
    /// The `Plan::trust` for which `is_trusted` was decided.
    pub(crate) trusted_by: u64,
    /// The listener that accepted the connection.
    pub(crate) listening: Rc<Listening>,
    /// The client's TLS session, if it uses TLS.
    pub(crate) tls: Option<Rc<ClientTls>>,
    /// What another instance says of its request, if that is who sends it.
    pub(crate) peer: Option<Introduction>,
    pub(crate) deadline: Deadline,
    /// The connection's own totals under bandwidth limits per connection.
    pub(crate) totals: ConnectionTotals,
    /// The number of requests so far.
    pub(crate) served: u64,
}

impl Client {
    pub(crate) fn new(worker: &Worker, tcp: Tcp, peer: SocketAddr, listening: Rc<Listening>) -> Self {
        let address = peer.ip().to_canonical();
        let snapshot = worker.snapshot();
        tcp.leaves_within(snapshot.plan.config.timeouts.client_write);
        Self {
            socket: tcp.into(),
            address,
            port: peer.port(),
            original_connection: None,
            pinned: Cell::new(None),
            is_trusted: snapshot.plan.trusts(address),
            trusted_by: snapshot.plan.trust,
            listening,
            tls: None,
            peer: None,
            deadline: worker.deadlines.deadline(),
            totals: ConnectionTotals::default(),
            served: 0,
        }
    }

    /// The client of a request of the proxy's own: nobody waits for the response. It has the address of `client`.
    pub(crate) fn detached(worker: &Worker, client: &Client) -> Self {
        Self {
            socket: Endpoint::Detached,
            original_connection: client.original_connection.clone(),
            pinned: Cell::new(None),
            tls: client.tls.clone(),
            peer: client.peer,
            totals: ConnectionTotals::default(),
            listening: Rc::clone(&client.listening),
            deadline: worker.deadlines.deadline(),
            served: 0,
            address: client.address,
            port: client.port,
            is_trusted: client.is_trusted,
            trusted_by: client.trusted_by,
        }
    }

    /// Sets the client that a PROXY header names.
    pub(crate) fn introduce(
        &mut self,
        worker: &Worker,
        source: SocketAddr,
        original_connection: Rc<OriginalConnection>,
    ) {
        self.address = source.ip();
        self.port = source.port();
        self.judge(&worker.snapshot());
        self.original_connection = Some(original_connection);
    }

    /// Decides whether the peer is a trusted proxy.
    #[cold]
    pub(crate) fn judge(&mut self, snapshot: &Snapshot) {
        self.is_trusted = snapshot.plan.trusts(self.address);
        self.trusted_by = snapshot.plan.trust;
    }
}

/// What another instance says of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Introduction {
    /// Nothing yet.
    Awaited,
    /// It is for this route and this upstream.
    Way { route: usize, upstream: usize },
    /// Something that it names is invalid.
    Invalidation,
    /// It is for nothing that is known here, or who sends it is no instance.
    Unknown,
}

/// What becomes of a client's connection after an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Keep the connection: the next request may follow.
    Reuse,
    /// Close the connection: the client has the whole response.
    Close,
    /// Close the connection slowly (linger), since the client may still be sending.
    Linger,
    /// Drop the connection: the response is incomplete, or nobody reads it.
    Drop,
}
