//! A client's connection, as data that travels with its requests; and what happens to it after an exchange.

use std::cell::{Cell, OnceCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use http1::HttpVersion;
use route::ProxyVersion;

use crate::context::client_tls::ClientTls;
use crate::context::original_connection::{self, OriginalConnection};
use crate::context::snapshot::Snapshot;
use crate::context::worker::Worker;
use crate::listening::Listening;
use crate::shaping::ConnectionTotals;
use crate::upstream::PinnedConnection;
use crate::upstream::lender::Reserver;
use transport::deadline::Deadline;
use transport::endpoint::MessageEndpoint;
use transport::tcp::Tcp;

/// The version of all messages on a stream; `None` for an HTTP/1 connection, whose messages state it.
#[inline]
pub(crate) fn framed_version(socket: &MessageEndpoint) -> Option<HttpVersion> {
    match socket {
        MessageEndpoint::Stream(_) => Some(HttpVersion::Http2),
        MessageEndpoint::Http3(_) => Some(HttpVersion::Http3),
        MessageEndpoint::Connection(_) | MessageEndpoint::Fastcgi(_) | MessageEndpoint::Detached => None,
    }
}

pub(crate) struct FrontConnection {
    pub(crate) socket: MessageEndpoint,
    pub(crate) address: IpAddr,
    /// 0 for a Unix socket.
    pub(crate) port: u16,
    /// The original connection, known from or needed for a PROXY header.
    pub(crate) original_connection: Option<Rc<OriginalConnection>>,
    /// The address that the client has connected to, once it was asked for.
    pub(crate) local: OnceCell<Box<SocketAddr>>,
    /// A server connection that is reserved for this client, while it is idle.
    pub(crate) pinned: Cell<Option<Box<PinnedConnection>>>,
    /// Whether the peer is a trusted proxy.
    pub(crate) is_trusted: bool,
    /// The `Plan::trust` for which `is_trusted` was decided.
    pub(crate) trusted_by: u64,
    pub(crate) listening: Rc<Listening>,
    /// `None` without TLS.
    pub(crate) tls: Option<Rc<ClientTls>>,
    /// Set for requests from other instances.
    pub(crate) peer: Option<Introduction>,
    pub(crate) deadline: Deadline,
    /// Whether an exchange has become a tunnel, so that no deadline of a request ends it.
    pub(crate) is_tunnel: Cell<bool>,
    /// Whether the time of the request is over: set during the last poll of its steps.
    pub(crate) is_overdue: Cell<bool>,
    /// The connection's own totals under bandwidth limits per connection.
    pub(crate) totals: ConnectionTotals,
    /// The number of requests so far.
    pub(crate) served: u64,
}

impl FrontConnection {
    pub(crate) fn new(worker: &Worker, tcp: Tcp, peer: SocketAddr, listening: Rc<Listening>) -> Self {
        // A socket for both families shows IPv4 clients by mapped addresses; rules and logs have plain ones.
        let address = peer.ip().to_canonical();
        let snapshot = worker.snapshot();
        // A client that reads nothing would keep the send buffer for minutes after the close (FIN_WAIT1).
        tcp.leaves_within(snapshot.plan.config.timeouts.client_write);
        Self {
            socket: tcp.into(),
            address,
            port: peer.port(),
            original_connection: None,
            local: OnceCell::new(),
            pinned: Cell::new(None),
            is_trusted: snapshot.plan.trusts(address),
            trusted_by: snapshot.plan.trust,
            listening,
            tls: None,
            peer: None,
            deadline: worker.deadlines.deadline(),
            is_tunnel: Cell::new(false),
            is_overdue: Cell::new(false),
            totals: ConnectionTotals::default(),
            served: 0,
        }
    }

    /// The client of a subrequest: no client waits for the response. Has the address of `client`.
    pub(crate) fn detached(worker: &Worker, client: &FrontConnection) -> Self {
        Self {
            socket: MessageEndpoint::Detached,
            original_connection: client.original_connection.clone(),
            local: client.local.clone(),
            pinned: Cell::new(None),
            tls: client.tls.clone(),
            peer: client.peer,
            totals: ConnectionTotals::default(),
            listening: Rc::clone(&client.listening),
            deadline: worker.deadlines.deadline(),
            is_tunnel: Cell::new(false),
            is_overdue: Cell::new(false),
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
        // Trust belongs to the client that the header names, not to the peer that has sent it.
        self.judge(&worker.snapshot());
        self.original_connection = Some(original_connection);
        self.local.take();
    }

    /// Decides whether the peer is a trusted proxy.
    #[cold]
    pub(crate) fn judge(&mut self, snapshot: &Snapshot) {
        self.is_trusted = snapshot.plan.trusts(self.address);
        self.trusted_by = snapshot.plan.trust;
    }
}

impl Reserver for FrontConnection {
    fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    fn pinned(&self) -> &Cell<Option<Box<PinnedConnection>>> {
        &self.pinned
    }

    fn header(&self, version: ProxyVersion) -> Vec<u8> {
        original_connection::header(version, self)
    }
}

/// The purpose of a request from another instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Introduction {
    /// The head was not read yet.
    Awaited,
    /// A request for this route and this upstream.
    Way {
        route: usize,
        upstream: usize,
    },
    Invalidation,
    /// The request names no known cache, or its sender is not one of our instances.
    Unknown,
}

/// The fate of a client's connection after an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterExchange {
    /// Keep the connection: the next request may follow.
    Reuse,
    /// Close the connection: the client has the whole response.
    Close,
    /// Close the connection slowly (linger), because the client may still be sending.
    Linger,
    /// Drop the connection: the response is incomplete, or no client reads it.
    Drop,
}
