//! What only the machine knows: whether a certificate can be used, and whether a port is free.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// This machine.
pub(crate) struct Machine;

impl gateway::Machine for Machine {
    fn certificate(&self, certificate: &[u8], key: &[u8]) -> Result<(), String> {
        tls::check_pem(certificate, key)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    fn authorities(&self, pem: Option<&[u8]>) -> Result<(), String> {
        tls::check_authorities_pem(pem).map_err(|problem| problem.to_string())
    }

    /// The proxy's own sockets share their ports (SO_REUSEPORT), so one that it has is not taken. This one never listens:
    /// no connection comes to it.
    fn port(&self, address: Option<IpAddr>, port: u16) -> Result<(), String> {
        let address = SocketAddr::new(address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port);
        let bind = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?;
            socket.set_reuseport(true)?;
            socket.bind(address)
        };
        bind().map_err(|error| format!("{address} cannot be listened at: {error}"))
    }
}
