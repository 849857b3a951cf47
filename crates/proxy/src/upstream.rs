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

use crate::deadline::{Deadline, Deadlines, Ticks};
use crate::failure::Failure;
use crate::socket::Socket;

/// The addresses of a server; the control thread exchanges them as names are resolved again.
pub(crate) type Addresses = Arc<ArcSwap<Vec<SocketAddr>>>;

/// An upstream of the configuration, as one worker uses it.
pub(crate) struct Upstream {
    pub(crate) name: String,
    pub(crate) host: config::HostHeader,
    pub(crate) servers: Vec<Server>,
    balancer: RefCell<Balancer>,
}

/// One server and the connections to it.
pub(crate) struct Server {
    /// `host:port`, as Host and in the log.
    pub(crate) authority: String,
    addresses: Addresses,
    pool: config::Pool,
    idle_ticks: Ticks,
    idle: RefCell<Vec<Idle>>,
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
    open: Rc<Cell<usize>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.set(self.open.get() - 1);
    }
}

impl Upstream {
    pub(crate) fn new(config: &config::Upstream, addresses: &[Addresses]) -> Self {
        let weights: Vec<u32> = config.servers.iter().map(|server| server.weight).collect();
        let servers = config.servers.iter().zip(addresses).map(|(server, addresses)| Server {
            authority: authority(server),
            addresses: Arc::clone(addresses),
            pool: config.pool,
            idle_ticks: Ticks::from(config.pool.idle_timeout),
            idle: RefCell::default(),
            open: Rc::default(),
        });
        Self {
            name: config.name.clone(),
            host: config.host.clone(),
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
    match server.port {
        80 => server.host.to_string(),
        port => format!("{}:{port}", server.host),
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

    /// A new connection: each address of the server in turn, within the time-out for each.
    pub(crate) async fn connect(&self, deadline: &Deadline, limit: Ticks) -> Result<Connection, Failure> {
        if self.open.get() >= self.pool.connections {
            return Err(Failure::UpstreamFull);
        }
        // Counted before the wait, so that a crowd of connects keeps to the limit as well.
        let permit = Permit::new(&self.open);
        let addresses = self.addresses.load_full();
        let mut failure = Failure::UpstreamUnknown;
        for &address in addresses.iter() {
            failure = match deadline.within(limit, Socket::connect(address)).await {
                Ok(Ok(socket)) => {
                    return Ok(Connection {
                        socket,
                        is_reused: false,
                        expects_long: false,
                        open: permit.keep(),
                    });
                }
                Ok(Err(error)) if is_out_of_descriptors(&error) => return Err(Failure::OutOfDescriptors),
                Ok(Err(_)) => Failure::UpstreamRefused,
                Err(_) => Failure::UpstreamConnectTimeout,
            };
        }
        Err(failure)
    }

    /// Takes back a connection whose exchange has ended cleanly.
    pub(crate) fn release(&self, connection: Connection, deadlines: &Deadlines) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < self.pool.idle {
            idle.push(Idle { connection, since: deadlines.now() });
        }
    }

    /// Closes idle connections whose time is over, or that their server has closed.
    pub(crate) fn sweep(&self, now: u32) {
        self.idle
            .borrow_mut()
            .retain(|idle| now - idle.since < self.idle_ticks.0 && idle.connection.socket.is_quiet());
    }
}

/// One of the connections that a server may have.
struct Permit<'a>(&'a Rc<Cell<usize>>);

impl<'a> Permit<'a> {
    fn new(open: &'a Rc<Cell<usize>>) -> Self {
        open.set(open.get() + 1);
        Self(open)
    }

    /// The connection exists: its drop gives the permit back.
    fn keep(self) -> Rc<Cell<usize>> {
        let open = Rc::clone(self.0);
        std::mem::forget(self);
        open
    }
}

impl Drop for Permit<'_> {
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
