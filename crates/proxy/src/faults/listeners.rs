//! Listeners that refuse connections while a fault rule applies.
//!
//! A listening socket that is shut down keeps its port, and the kernel answers ECONNREFUSED. Listening again ends that.
//! The workers' descriptors refer to the same sockets, so workers are not involved.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use rustix::net::sockopt::{set_socket_reuseaddr, socket_acceptconn};
use rustix::net::{Shutdown, listen, shutdown};

use crate::listening::NOWHERE;
use transport::tcp::accept_one;
use transport::unix::BACKLOG;

/// Receives a connection that was established before the refusal.
type Taking<'a> = &'a dyn Fn(TcpStream, SocketAddr);

/// Makes the sockets of a listener refuse or accept connections. Returns whether that is a change. Accepts established
/// connections before, because the kernel would reset them.
pub fn settle(sockets: &[OwnedFd], refuses: bool, take: Taking<'_>) -> io::Result<bool> {
    let mut is_changed = false;
    for socket in sockets {
        if socket_acceptconn(socket)? != refuses {
            continue;
        }
        if refuses {
            take_all(socket, take);
            // Without SO_REUSEADDR, no other socket can bind the port while nothing listens on it.
            set_socket_reuseaddr(socket, false)?;
            shutdown(socket, Shutdown::Read)?;
        } else {
            set_socket_reuseaddr(socket, true)?;
            listen(socket, BACKLOG)?;
        }
        is_changed = true;
    }
    Ok(is_changed)
}

/// Accepts at most as many connections as the kernel queues, because others may arrive meanwhile.
fn take_all(socket: &OwnedFd, take: Taking<'_>) {
    for _ in 0..BACKLOG {
        match accept_one(socket, NOWHERE) {
            Ok((stream, peer)) => take(stream, peer),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use config::ListenAddress;

    use super::*;
    use crate::worker::listen::{OpenSockets, open};

    /// Every established connection is accepted once, and the socket's options are as before.
    #[test]
    fn what_waits_to_be_accepted_is_taken_before_all_is_refused() {
        const WAITING: usize = 3;
        let any = ListenAddress::Tcp("127.0.0.1:0".parse().expect("is an address"));
        let OpenSockets { sockets, bound, .. } = open(&any, 1, Vec::new(), &[]).expect("a port is free");
        let address = bound.tcp().expect("is one of TCP");
        let sockets: Vec<OwnedFd> = sockets.into_iter().map(OwnedFd::from).collect();
        let taken = Cell::new(0);
        let take = |_, _| taken.set(taken.get() + 1);
        let waiting: Vec<_> =
            (0..WAITING).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        for _ in 0..2 {
            assert!(settle(&sockets, true, &take).expect("it can"));
            assert!(!settle(&sockets, true, &take).expect("it does already"));
            assert!(TcpStream::connect(address).is_err());
            assert!(settle(&sockets, false, &take).expect("it can"));
            assert!(!settle(&sockets, false, &take).expect("it does already"));
        }
        assert_eq!(taken.get(), waiting.len());
        assert!(TcpStream::connect(address).is_ok());
    }
}
