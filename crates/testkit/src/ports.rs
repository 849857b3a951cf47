//! Listening sockets on loopback, with ports that the kernel chooses.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use socket2::SockRef;

use crate::wait::{self, PATIENCE};

/// An address on loopback with port 0: the kernel chooses a free one.
pub fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Loopback address where nobody listens: the kernel never chooses port 1.
pub fn nobody() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1))
}

/// Listens on a free port of loopback. `accept` fails after [`PATIENCE`].
pub fn listen() -> TcpListener {
    with_patience(TcpListener::bind(loopback()).expect("a port on loopback is free"))
}

/// Listens on a Unix socket. The standard library's `accept` does not know its addresses: use [`accept`].
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

/// Address of a listening socket.
pub fn address_of(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("it listens")
}

/// Accepts the next connection, of TCP or a Unix socket.
#[track_caller]
pub fn accept(listener: &TcpListener) -> TcpStream {
    // The standard library wants an address of the peer, which a Unix socket does not have.
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
