//! Listening sockets from the service manager (socket activation, sd_listen_fds(3)).
//!
//! They let a process without capabilities use port 443, and connections during a restart wait in the kernel. They
//! replace the sockets that the proxy would open at the same address.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use config::ListenAddress;
use listenfd::ListenFd;
use rustix::net::sockopt::ipv6_v6only;

/// Sockets that no listener has taken yet, by address.
#[derive(Debug, Default)]
pub(crate) struct Activated(Vec<(ListenAddress, OwnedFd)>);

impl Activated {
    /// Takes the sockets passed by the service manager. Call it once, before any other file is opened. It fails if a
    /// passed descriptor is no listening TCP socket, because the proxy could not serve it.
    pub(crate) fn claim() -> Result<Self, String> {
        let mut passed = ListenFd::from_env();
        let count = passed.len();
        let take = |index| {
            let socket = passed.take_tcp_listener(index).ok().flatten().ok_or_else(|| {
                format!(
                    "file descriptor {} from the service manager is not a listening TCP socket: remove its line from \
                     the socket unit (vanward opens Unix sockets, and UDP for http3, itself)",
                    3 + index
                )
            })?;
            let address =
                address_of(&socket).map_err(|error| format!("a socket of the service manager: {error}"))?;
            Ok((address, socket.into()))
        };
        (0..count).map(take).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn take(&mut self, address: &ListenAddress) -> Option<OwnedFd> {
        let place = self.0.iter().position(|(of, _)| of == address)?;
        Some(self.0.swap_remove(place).1)
    }

    /// The address of a socket that no listener has taken.
    pub(crate) fn left(&self) -> Option<&ListenAddress> {
        self.0.first().map(|(address, _)| address)
    }
}

/// Returns the address as the configuration must write it.
fn address_of(socket: &TcpListener) -> std::io::Result<ListenAddress> {
    let address = socket.local_addr()?;
    let is_both =
        matches!(address, SocketAddr::V6(six) if six.ip().is_unspecified()) && !ipv6_v6only(socket)?;
    Ok(if is_both { ListenAddress::Any(address.port()) } else { ListenAddress::Tcp(address) })
}
