//! Listening sockets (one per address and worker), and accepting connections.
//!
//! The kernel spreads connections over the workers' sockets by hash; a worker well above its share hands new ones over.
//! All workers share a Unix socket: an idle worker accepts the next connection.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use config::ListenAddress;
use nix::sys::socket::SetSockOpt;
use nix::sys::socket::sockopt::SetUsize;
use nix::{libc, setsockopt_impl};
use rustix::io::Errno;
use socket2::{Domain, Socket as RawSocket, Type};
use telemetry::message;
use tokio::io::Interest;
use tokio::sync::watch;

use crate::connection::client;
use crate::connection::refused_handshake::ConnectionLimit;
use crate::context::client::FrontConnection;
use crate::context::worker::{Worker, WorkerMessage, WorkerPhase};
use crate::listening::{Listening, NOWHERE};
use transport::descriptors::{RAISE_LIMIT, is_out_of_descriptors};
use transport::tcp::{self, Tcp, accept_one};
use transport::unix::BACKLOG;
use transport::unix::{self, SocketFile};

/// Unsent bytes of a response that the kernel holds: enough for a fast link, few enough that a slow client is noticed
/// and costs little memory.
const UNSENT_MAX: u32 = 256 * 1024;
/// Time for which the kernel holds back a connection without data.
// Measured for a request on each connection: 32.4 us of CPU, 47.3 without holding back.
const DEFER_SECONDS: usize = 1;
/// Pause before accepting again when no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket option TCP_DEFER_ACCEPT, which socket2 and rustix lack.
#[derive(Clone)]
struct DeferAccept;

setsockopt_impl!(DeferAccept, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, usize, SetUsize);

pub struct OpenSockets {
    /// At least one for each worker.
    pub sockets: Vec<TcpListener>,
    /// The bound address, with the port that the kernel has chosen.
    pub bound: ListenAddress,
    /// The file of a Unix socket, kept while the process listens on it.
    pub file: Option<SocketFile>,
}

/// Opens the listening sockets of an address, one for each worker. Port 0 is resolved once for all. All sockets that
/// the previous process or the service manager handed over are kept, because connections queued in an unused one would
/// be lost. `leaving` are the addresses that this process stops listening on, once these sockets are open.
pub fn open(
    address: &ListenAddress,
    workers: usize,
    inherited: Vec<OwnedFd>,
    leaving: &[ListenAddress],
) -> io::Result<OpenSockets> {
    let mut sockets = Vec::with_capacity(workers);
    for socket in inherited {
        let socket = RawSocket::from(socket);
        if address.tcp().is_some() {
            prepare(&socket, address)?;
        }
        sockets.push(TcpListener::from(socket));
    }
    let (bound, file) = match address {
        ListenAddress::Tcp(_) if !sockets.is_empty() => (ListenAddress::Tcp(sockets[0].local_addr()?), None),
        ListenAddress::Any(_) if !sockets.is_empty() => {
            (ListenAddress::Any(sockets[0].local_addr()?.port()), None)
        }
        ListenAddress::Unix(path) if !sockets.is_empty() => {
            (address.clone(), Some(SocketFile::of_predecessor(path)))
        }

        ListenAddress::Tcp(_) | ListenAddress::Any(_) => {
            // The check cannot distinguish another process's socket from one of ours that is about to close.
            if !leaving.iter().any(|leaving| overlap(leaving, address)) {
                is_taken(address)?;
            }
            // A socket bound to an explicit port number keeps it, also while it refuses connections. The first socket,
            // with a port from the kernel, holds that port until then.
            let port = bind_one(address)?.local_addr()?.as_socket().map(|chosen| chosen.port());
            let chosen = with_port(address, port.unwrap_or_default());
            sockets.push(open_one(&chosen)?);
            (chosen, None)
        }
        ListenAddress::Unix(path) => {
            let (first, file) = unix::open(path, unix::MODE)?;
            sockets.push(first);
            (address.clone(), Some(file))
        }
    };
    for _ in sockets.len()..workers {
        sockets.push(match bound {
            ListenAddress::Tcp(_) | ListenAddress::Any(_) => open_beside(&bound, &sockets[0])?,
            ListenAddress::Unix(_) => sockets[0].try_clone()?,
        });
    }
    Ok(OpenSockets { sockets, bound, file })
}

/// Opens UDP sockets for QUIC at the address of a TCP listener, one for each worker.
///
/// # Errors
/// If another program has the port.
pub fn open_udp(bound: &ListenAddress, workers: usize) -> io::Result<Vec<UdpSocket>> {
    let open = |_| {
        let socket = bind(bound, Type::DGRAM, true)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    let opened: io::Result<_> = (0..workers).map(open).collect();
    opened.map_err(|error| io::Error::new(error.kind(), format!("UDP, for http3: {error}")))
}

/// Returns the address with the port that the kernel has chosen.
fn with_port(address: &ListenAddress, port: u16) -> ListenAddress {
    match address {
        ListenAddress::Tcp(address) => ListenAddress::Tcp(SocketAddr::new(address.ip(), port)),
        ListenAddress::Any(_) => ListenAddress::Any(port),
        ListenAddress::Unix(_) => address.clone(),
    }
}

/// Opens one more socket. If the port cannot be shared (a socket from the service manager) or may not be bound, workers
/// share the first socket.
fn open_beside(bound: &ListenAddress, first: &TcpListener) -> io::Result<TcpListener> {
    match open_one(bound) {
        Err(error) if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied) => {
            first.try_clone()
        }
        opened => opened,
    }
}

fn open_one(address: &ListenAddress) -> io::Result<TcpListener> {
    let socket = bind_one(address)?;
    prepare(&socket, address)?;
    Ok(socket.into())
}

fn prepare(socket: &RawSocket, address: &ListenAddress) -> io::Result<()> {
    // Linux copies these options to accepted connections, which saves a call for each.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_MAX)?;
    tcp::suit(&socket, address.tcp().unwrap_or(NOWHERE));
    socket.set_nonblocking(true)?;
    socket.listen(BACKLOG)
}

fn bind_one(address: &ListenAddress) -> io::Result<RawSocket> {
    bind(address, Type::STREAM, true)
}

/// Binds a separate socket. For an address of both families, the IPv6 socket also accepts IPv4-mapped addresses.
fn bind(address: &ListenAddress, kind: Type, shares_port: bool) -> io::Result<RawSocket> {
    let own = address.tcp().unwrap_or(NOWHERE);
    let is_both = matches!(address, ListenAddress::Any(_));
    let (socket, own) = match RawSocket::new(Domain::for_address(own), kind, None) {
        // Without IPv6 in the kernel, only IPv4 is bound.
        Err(error) if is_both && Errno::from_io_error(&error) == Some(Errno::AFNOSUPPORT) => {
            let own = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), own.port());
            (RawSocket::new(Domain::IPV4, kind, None)?, own)
        }
        made => (made?, own),
    };
    // A UDP socket with this option would share its port with any other.
    if kind == Type::STREAM {
        socket.set_reuse_address(true)?;
    }
    if shares_port {
        socket.set_reuse_port(true)?;
    }
    if own.is_ipv6() {
        socket.set_only_v6(!is_both)?;
    }
    socket.bind(&own.into())?;
    Ok(socket)
}

/// Whether two different addresses conflict: one is the wildcard address that includes the other.
fn overlap(one: &ListenAddress, other: &ListenAddress) -> bool {
    let is_all = |address: &ListenAddress| address.tcp().is_some_and(|address| address.ip().is_unspecified());
    let ([four, six], [other_four, other_six]) = (one.families(), other.families());
    one.port() == other.port() && (four && other_four || six && other_six) && (is_all(one) || is_all(other))
}

/// Checks that no other process listens at this address: SO_REUSEPORT would silently share it.
fn is_taken(address: &ListenAddress) -> io::Result<()> {
    if address.port() == Some(0) { Ok(()) } else { bind(address, Type::STREAM, false).map(drop) }
}

/// The task that accepts connections on one socket until the worker stops accepting, or its plan no longer has the
/// listener.
pub(crate) async fn accept(
    worker: Rc<Worker>,
    listening: Rc<Listening>,
    listener: TcpListener,
    mut settled: watch::Receiver<()>,
) {
    // tokio's listener would register each connection with epoll before it must wait. A `TcpStream` of tokio accepts
    // any socket, and its readiness interface is safe where `AsyncFd` is not.
    let listener = TcpStream::from(OwnedFd::from(listener));
    let mut listener = match tokio::net::TcpStream::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return message::error(&format!("cannot listen: {error}")),
    };
    settled.mark_changed();
    let mut refuses = false;
    loop {
        // `settled` and the worker's state are checked first: while connections keep coming, `turn` would never get to
        // them.
        let is_due = worker.state.get() != WorkerPhase::Running || settled.has_changed().unwrap_or(true);
        let accepted = match turn(&listener, !refuses && !is_due, &mut settled, worker.leaving()).await {
            AcceptTurn::Accept(accepted) => accepted,
            // The command that ends the refusal wakes this task.
            AcceptTurn::Refuse => {
                refuses = true;
                continue;
            }
            AcceptTurn::Leave => break,
            AcceptTurn::LookAgain => {
                if listening.place().is_none() {
                    break;
                }
                wait_for_data(&listener, worker.snapshot().listener(&listening).passes_on.is_none());
                // The runtime caches that a socket was shut down, so it is registered again.
                listener = match listener.into_std().and_then(tokio::net::TcpStream::from_std) {
                    Ok(listener) => listener,
                    Err(error) => return message::error(&format!("cannot listen any longer: {error}")),
                };
                refuses = false;
                continue;
            }
        };
        match accepted {
            Ok((stream, peer)) => {
                admit(&worker, &listening, stream, peer);
                // An accepted connection is served, however many wait.
                tokio::task::coop::consume_budget().await;
            }
            Err(error) if is_out_of_descriptors(&error) && worker.give_up_idle() => {}
            Err(error) if is_out_of_descriptors(&error) => {
                worker.counters.accept_pauses.increment();
                message::error(&format!("accepting pauses: {error}{RAISE_LIMIT}"));
                worker.alarms.sleep(PAUSE).await;
            }
            // Another worker has taken it, or there was none.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // The socket is shut down; the runtime has not reported it yet.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refuses = true,
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => {
                message::warn(&format!("cannot accept a connection: {error}"));
                worker.alarms.sleep(PAUSE).await;
            }
        }
    }
    empty_queue(&worker, &listening, &listener);
}

/// Accepts all queued connections, which the kernel would reset when the socket is shut down.
fn empty_queue(worker: &Rc<Worker>, listening: &Rc<Listening>, listener: &tokio::net::TcpStream) {
    for _ in 0..BACKLOG {
        match accept_one(listener, NOWHERE) {
            Ok((stream, peer)) => admit(worker, listening, stream, peer),
            Err(_) => return,
        }
    }
}

/// Next step of the accepting task.
enum AcceptTurn {
    Accept(io::Result<(TcpStream, SocketAddr)>),
    /// The socket was shut down, so that connections are refused.
    Refuse,
    /// The listener's settings may have changed, and have to be checked.
    LookAgain,
    Leave,
}

/// Waits for a connection, a change of settings, or the end of the worker.
async fn turn(
    listener: &tokio::net::TcpStream,
    may_accept: bool,
    settled: &mut watch::Receiver<()>,
    leaving: impl Future<Output = ()>,
) -> AcceptTurn {
    tokio::select! {
        biased;
        ready = listener.ready(Interest::READABLE), if may_accept => match ready {
            // The runtime keeps this state even if the socket listens again: it would report readiness forever.
            Ok(ready) if ready.is_read_closed() => AcceptTurn::Refuse,
            ready => AcceptTurn::Accept(ready.and_then(|_| listener.try_io(Interest::READABLE, || accept_one(listener, NOWHERE)))),
        },
        () = leaving => AcceptTurn::Leave,
        _ = settled.changed() => AcceptTurn::LookAgain,
    }
}

/// Sets TCP_DEFER_ACCEPT: where clients speak first, a connection is accepted with its first bytes, which saves a
/// wake-up. At layer 4 the server may speak first, so `waits` is false there.
fn wait_for_data(listener: &tokio::net::TcpStream, waits: bool) {
    // Old kernels and Unix sockets lack the option, so errors are ignored.
    let _ = DeferAccept.set(listener, &if waits { DEFER_SECONDS } else { 0 });
}

/// Serves an accepted connection here, hands it to a less loaded worker, or rejects it above `limits.connections`.
fn admit(worker: &Rc<Worker>, listening: &Rc<Listening>, stream: TcpStream, peer: SocketAddr) {
    worker.wake();
    let (connections, limit) =
        (worker.connections_in_all(), worker.snapshot().plan.config.limits.connections);
    worker.pressure.accept(connections, limit);
    if connections >= limit {
        worker.pressure.refuse(limit);
        let client = FrontConnection::new(worker, Tcp::new(stream), peer, Rc::clone(listening));
        let limit = ConnectionLimit::InAll(limit);
        tokio::task::spawn_local(client::turn_away(Rc::clone(worker), client, limit));
        return;
    }
    let Some(other) = less_loaded(worker, listening) else { return worker.begin(stream, peer, listening) };
    if let Err(unsent) = worker.others[other].send(WorkerMessage::Connection(stream, peer, listening.id))
        && let WorkerMessage::Connection(stream, peer, _) = unsent.0
    {
        // The other worker has ended: keep the connection.
        worker.begin(stream, peer, listening);
    }
}

/// Returns the worker with the fewest connections, if this one is well above the mean. The last connections of a
/// removed listener stay, because other workers may have forgotten it.
fn less_loaded(worker: &Worker, listening: &Listening) -> Option<usize> {
    let loads = &worker.loads;
    if loads.len() == 1 || !worker.keeps(listening) {
        return None;
    }
    let own = loads[worker.index].load(Ordering::Relaxed);
    let mean = worker.connections_in_all() / loads.len();
    // A small difference is not worth the message that a hand-over costs.
    if own <= mean + mean / 8 + 4 {
        return None;
    }
    loads.iter().enumerate().min_by_key(|(_, load)| load.load(Ordering::Relaxed)).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use rustix::net::{Shutdown, listen, shutdown};
    use tokio::task::yield_now;

    use super::*;

    /// More turns than the runtime needs to report the state of a socket.
    const TURNS: usize = 1_000;

    /// The socket listens again after the runtime has seen the shutdown, and before the accepting task runs.
    #[tokio::test]
    async fn a_listener_that_refused_for_a_moment_is_looked_at_again() {
        let any = ListenAddress::Tcp("127.0.0.1:0".parse().expect("is an address"));
        let mut opened = open(&any, 1, Vec::new(), &[]).expect("a port is free");
        let own = opened.sockets.pop().expect("there is one");
        let copy = own.try_clone().expect("is a socket");
        let listener = tokio::net::TcpStream::from_std(OwnedFd::from(own).into()).expect("can be registered");
        let (settles, mut settled) = watch::channel(());
        let looks_again = tokio::spawn(async move {
            let mut refuses = false;
            loop {
                match turn(&listener, !refuses, &mut settled, pending()).await {
                    AcceptTurn::Refuse => refuses = true,
                    AcceptTurn::Accept(accepted) => panic!("there is none to accept: {accepted:?}"),
                    AcceptTurn::LookAgain => return refuses,
                    AcceptTurn::Leave => panic!("nobody leaves"),
                }
            }
        });
        for _ in 0..TURNS {
            yield_now().await;
        }
        shutdown(&copy, Shutdown::Read).expect("it listens");
        yield_now().await;
        listen(&copy, BACKLOG).expect("it is bound");
        for _ in 0..TURNS {
            yield_now().await;
        }
        settles.send_replace(());
        assert!(looks_again.await.expect("it is looked at again"), "the runtime was told in time");
    }
}
