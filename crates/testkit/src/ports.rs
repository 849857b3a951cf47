//! Listening sockets on loopback, with ports that the kernel chooses.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};

use socket2::SockRef;

use crate::wait::{self, PATIENCE};

/// An address on loopback with port 0: the kernel chooses a free one.
pub fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A loopback address without a listener: the kernel never chooses port 1.
pub fn nobody() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1))
}

/// Listens on a free port of loopback. `accept` fails after [`PATIENCE`].
pub fn listen() -> TcpListener {
    with_patience(TcpListener::bind(loopback()).expect("a port on loopback is free"))
}

/// Returns addresses that are free, for programs that need each other's before they start. Their ports are below those
/// that the kernel chooses, so that no other test takes them meanwhile.
pub fn free(count: usize) -> Vec<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run beside this one begin elsewhere.
    let first = 10_000 + (std::process::id() % 200) as u16 * 100;
    let candidates = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000);
    let addresses = candidates.take(2_000).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let free: Vec<SocketAddr> =
        addresses.filter(|address| TcpListener::bind(address).is_ok()).take(count).collect();
    assert_eq!(free.len(), count, "free ports on loopback");
    free
}

/// Listens on a Unix socket. The standard library's `accept` does not support its addresses: use [`accept`].
pub fn listen_unix(path: &Path) -> TcpListener {
    let listener = UnixListener::bind(path).expect("the path is free");
    with_patience(TcpListener::from(OwnedFd::from(listener)))
}

/// Listens on one port that is free at 127.0.0.1, 127.0.0.2, … up to `count` addresses.
pub fn listen_at_one_port(count: u8) -> (u16, Vec<TcpListener>) {
    let mut found = None;
    wait::assert_soon("no port is free at all addresses", || {
        let first = TcpListener::bind(loopback()).expect("a port on loopback is free");
        let port = address_of(&first).port();
        let others = (2..=count).map(|last| TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), port)));
        found = others.collect::<Result<Vec<_>, _>>().ok().map(|others| {
            let all = std::iter::once(first).chain(others);
            (port, all.collect())
        });
        found.is_some()
    });
    found.expect("the wait is over")
}

fn with_patience(listener: TcpListener) -> TcpListener {
    SockRef::from(&listener).set_read_timeout(Some(PATIENCE)).expect("is a socket");
    listener
}

pub fn address_of(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("it listens")
}

/// Accepts the next connection, of TCP or a Unix socket.
#[track_caller]
pub fn accept(listener: &TcpListener) -> TcpStream {
    // The standard library needs the peer's IP address, which a Unix socket does not have.
    let accepted = SockRef::from(listener).accept();
    let (socket, _) = accepted.unwrap_or_else(|error| panic!("no connection reaches the server: {error}"));
    TcpStream::from(OwnedFd::from(socket))
}

/// Accepts a connection if one is already waiting.
pub fn try_accept(listener: &TcpListener) -> Option<TcpStream> {
    listener.set_nonblocking(true).expect("is a socket");
    let accepted = listener.accept();
    listener.set_nonblocking(false).expect("is a socket");
    accepted.ok().map(|(stream, _)| stream)
}
