//! The servers of each upstream as one worker sees them: their addresses, and the connections that it keeps.
//!
//! A pool is a stack: the connection used last is the one least likely to have been closed meanwhile, and idle ones
//! at the bottom time out.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;
use balance::{Balancer, RoundRobin};
use config::{Protocol, Scheme};
use tls::{ClientSide, Handshake};

use crate::control::notice;
use crate::deadline::{Deadline, Deadlines, Ticks};
use crate::failure::Failure;
use crate::multiplex::Multiplex;
use crate::secure::{HandshakeError, Secure};
use crate::socket::Socket;
use crate::tcp::Tcp;
use crate::worker::Worker;

/// The addresses of a server; the control thread exchanges them as names are resolved again.
pub(crate) type Addresses = Arc<ArcSwap<Vec<SocketAddr>>>;

/// An upstream of the configuration, as one worker uses it.
pub(crate) struct Upstream {
    pub(crate) name: String,
    pub(crate) host: config::HostHeader,
    pub(crate) protocol: Protocol,
    pub(crate) servers: Vec<Server>,
    balancer: RefCell<Balancer>,
}

/// One server and the connections to it.
pub(crate) struct Server {
    /// `host:port`, as Host and in the log.
    pub(crate) authority: String,
    scheme: Scheme,
    /// The upstream's TLS, and the index of this server in it.
    tls: Option<(Arc<ClientSide>, usize)>,
    addresses: Addresses,
    pool: config::Pool,
    idle_ticks: Ticks,
    /// Connections of HTTP/1.
    idle: RefCell<Vec<Idle>>,
    /// Connections of HTTP/2.
    multiplex: Multiplex,
    /// Connections that exist, busy and idle.
    open: Rc<Cell<usize>>,
}

struct Idle {
    connection: Connection,
    since: u32,
}

/// A connection to a server. Dropped, it is closed.
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    /// Whether it has carried an exchange before.
    pub(crate) is_reused: bool,
    /// Whether its last response was long: then the next head is read without much of its body, which is spliced.
    pub(crate) expects_long: bool,
    /// One of the server's connections, or of a connection's streams.
    _permit: Permit,
}

impl Connection {
    pub(crate) fn new(socket: Socket, permit: Permit, is_reused: bool) -> Self {
        Self { socket, is_reused, expects_long: false, _permit: permit }
    }
}

impl Upstream {
    pub(crate) fn new(
        config: &config::Upstream,
        addresses: &[Addresses],
        tls: Option<&Arc<ClientSide>>,
    ) -> Self {
        let weights: Vec<u32> = config.servers.iter().map(|server| server.weight).collect();
        let servers = config.servers.iter().zip(addresses).enumerate();
        let servers = servers.map(|(index, (server, addresses))| Server {
            authority: authority(server),
            scheme: server.scheme,
            tls: tls.filter(|_| server.scheme == Scheme::Https).map(|tls| (Arc::clone(tls), index)),
            addresses: Arc::clone(addresses),
            pool: config.pool,
            idle_ticks: Ticks::from(config.pool.idle_timeout),
            idle: RefCell::default(),
            multiplex: Multiplex::default(),
            open: Rc::default(),
        });
        Self {
            name: config.name.clone(),
            host: config.host.clone(),
            protocol: config.protocol,
            servers: servers.collect(),
            balancer: RefCell::new(balancer(config.balance, &weights)),
        }
    }

    /// The index of the server that is next, but for those already tried; `None` when all were.
    pub(crate) fn pick(&self, tried: &[usize]) -> Option<usize> {
        if tried.is_empty() {
            return Some(self.balancer.borrow_mut().pick());
        }
        self.balancer.borrow_mut().pick_except(tried)
    }
}

fn balancer(policy: config::Balance, weights: &[u32]) -> Balancer {
    match policy {
        config::Balance::RoundRobin => Balancer::RoundRobin(RoundRobin::new(weights)),
    }
}

/// The default port is left out, as in the Host that a client of that server would send.
fn authority(server: &config::Server) -> String {
    match (server.scheme, server.port) {
        (Scheme::Http, 80) | (Scheme::Https, 443) => server.host.to_string(),
        (_, port) => format!("{}:{port}", server.host),
    }
}

impl Server {
    /// The pooled connection used last, if one is left that its server has not closed.
    ///
    /// A request that could not be repeated asks the kernel: the runtime may not have heard yet of a connection that
    /// was closed just now.
    pub(crate) fn pooled(&self, may_be_repeated: bool) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        while let Some(Idle { mut connection, .. }) = idle.pop() {
            let socket = &connection.socket;
            if socket.is_quiet() && (may_be_repeated || socket.is_quiet_still()) {
                connection.is_reused = true;
                return Some(connection);
            }
        }
        None
    }

    /// Connections that exist, busy and idle.
    pub(crate) fn connections(&self) -> usize {
        self.open.get()
    }

    /// What it is spoken to in.
    pub(crate) fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// A stream of a connection that is there, if one has room.
    pub(crate) fn stream(&self) -> Option<Connection> {
        self.multiplex.stream(self.scheme)
    }

    /// A new connection for one exchange at a time.
    pub(crate) async fn connect(&self, worker: &Worker, deadline: &Deadline) -> Result<Connection, Failure> {
        let (socket, permit) = self.open(worker, deadline).await?;
        Ok(Connection::new(socket, permit, false))
    }

    /// A stream of a new connection, or of one that others have made meanwhile.
    pub(crate) async fn connect_for_streams(
        &self,
        worker: &Worker,
        deadline: &Deadline,
        may_reuse: bool,
    ) -> Result<Connection, Failure> {
        self.multiplex.connect(worker, deadline, self, may_reuse).await
    }

    /// Opens a connection: each address of the server in turn, within the time-out for each.
    pub(crate) async fn open(
        &self,
        worker: &Worker,
        deadline: &Deadline,
    ) -> Result<(Socket, Permit), Failure> {
        if self.open.get() >= self.pool.connections {
            return Err(Failure::UpstreamFull);
        }
        // Counted before the wait, so that a crowd of connects keeps to the limit as well.
        let permit = Permit::new(&self.open);
        let addresses = self.addresses.load_full();
        let limit = worker.ticks.upstream_connect;
        let mut failure = Failure::UpstreamUnknown;
        for &address in addresses.iter() {
            failure = match deadline.within(limit, Tcp::connect(address)).await {
                Ok(Ok(tcp)) => match deadline.within(limit, self.secured(worker, tcp)).await {
                    Ok(Ok(socket)) => return Ok((socket, permit)),
                    Ok(Err(failure)) => failure,
                    Err(_) => Failure::UpstreamConnectTimeout,
                },
                Ok(Err(error)) if is_out_of_descriptors(&error) => return Err(Failure::OutOfDescriptors),
                Ok(Err(_)) => Failure::UpstreamRefused,
                Err(_) => Failure::UpstreamConnectTimeout,
            };
        }
        Err(failure)
    }

    /// Does the TLS handshake, if the server has TLS.
    async fn secured(&self, worker: &Worker, tcp: Tcp) -> Result<Socket, Failure> {
        let Some((tls, index)) = &self.tls else { return Ok(Socket::Plain(tcp)) };
        let name = tls.name(*index).ok_or(Failure::UpstreamHandshake)?.clone();
        let handshake = Handshake::client(tls.config(), name).map_err(|_| Failure::UpstreamHandshake)?;
        match Secure::establish(tcp, handshake, &worker.records).await {
            Ok((secure, agreed)) if agreed.is_http2 == (tls.protocol() == Protocol::Http2) => {
                Ok(Socket::Secure(Box::new(secure)))
            }
            Ok(_) => {
                notice(&format!(
                    "{}: the server does not speak the protocol that is configured",
                    self.authority
                ));
                Err(Failure::UpstreamHandshake)
            }
            Err(HandshakeError::Io) => Err(Failure::UpstreamRefused),
            Err(HandshakeError::Refused(error)) => {
                notice(&format!("{}: no TLS: {}", self.authority, tls::reason(&error)));
                Err(Failure::UpstreamHandshake)
            }
            Err(HandshakeError::TooLong | HandshakeError::InTheClear(_)) => Err(Failure::UpstreamHandshake),
        }
    }

    /// Takes back a connection whose exchange has ended cleanly.
    pub(crate) fn release(&self, connection: Connection, deadlines: &Deadlines) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < self.pool.idle && !connection.socket.is_worn() {
            idle.push(Idle { connection, since: deadlines.now() });
        }
    }

    /// Closes idle connections whose time is over, or that their server has closed.
    pub(crate) fn sweep(&self, now: u32) {
        self.idle
            .borrow_mut()
            .retain(|idle| now - idle.since < self.idle_ticks.0 && idle.connection.socket.is_quiet());
        self.multiplex.sweep(now, self.idle_ticks);
    }
}

/// One of a number of things that is counted for as long as it is there.
pub(crate) struct Permit(Rc<Cell<usize>>);

impl Permit {
    pub(crate) fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(Rc::clone(count))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Whether the process, or the machine, has no descriptor or memory left for a socket.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let codes = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.kind() == ErrorKind::OutOfMemory
        || error.raw_os_error().is_some_and(|code| codes.iter().any(|errno| errno.raw_os_error() == code))
}
