//! A client's connection, as the data that travels with its requests, and what an exchange leaves of it.

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
    /// Its port, 0 of a Unix socket.
    pub(crate) port: u16,
    /// What else a PROXY header said of it, or has to say.
    pub(crate) original_connection: Option<Rc<OriginalConnection>>,
    /// The connection to a server that bears its name, while it is not in use.
    pub(crate) pinned: Cell<Option<Box<PinnedConnection>>>,
    /// Whether it may say whom it forwards for.
    pub(crate) is_trusted: bool,
    /// The `Plan::trust` by which that was decided.
    pub(crate) trusted_by: u64,
    /// The listener that it came to.
    pub(crate) listening: Rc<Listening>,
    /// What is known of it if it speaks TLS.
    pub(crate) tls: Option<Rc<ClientTls>>,
    pub(crate) deadline: Deadline,
    /// What it has of limits on connections.
    pub(crate) totals: ConnectionTotals,
    /// Requests so far.
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
            deadline: worker.deadlines.deadline(),
            totals: ConnectionTotals::default(),
            served: 0,
        }
    }

    /// The client of a request of the proxy's own: nobody waits for the response. Its address is that of `client`.
    pub(crate) fn detached(worker: &Worker, client: &Client) -> Self {
        Self {
            socket: Endpoint::Detached,
            original_connection: client.original_connection.clone(),
            pinned: Cell::new(None),
            tls: client.tls.clone(),
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

    /// It is from this client, as the proxy in front of us says.
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

    /// Decides whether it may say whom it forwards for.
    #[cold]
    pub(crate) fn judge(&mut self, snapshot: &Snapshot) {
        self.is_trusted = snapshot.plan.trusts(self.address);
        self.trusted_by = snapshot.plan.trust;
    }
}

/// What an exchange leaves of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next request may follow.
    Reuse,
    /// To be closed: it has all that it gets.
    Close,
    /// To be closed, but the client may still be sending.
    Linger,
    /// To be dropped: what it has is not whole, or nobody listens.
    Drop,
}
