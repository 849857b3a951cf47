//! Checks that need the machine: whether a certificate is usable, and whether a port is free.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

pub(crate) struct ClusterMachine<'a> {
    /// The ports of this process. `None` stands for any, because another process hands over its sockets.
    pub(crate) own: Option<&'a BTreeSet<u16>>,
}

impl gateway::MachineFacts for ClusterMachine<'_> {
    fn certificate(&self, certificate: &[u8], key: &[u8]) -> Result<Vec<String>, String> {
        tls::check_pem(certificate, key)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    fn authorities(&self, pem: Option<&[u8]>) -> Result<(), String> {
        tls::check_authorities_pem(pem).map_err(|problem| problem.to_string())
    }

    fn users(&self, lines: &[u8]) -> Result<(), String> {
        config::check_users(lines)
    }

    /// A port of this process counts as free, because our sockets share ports (SO_REUSEPORT). Other ports are tried
    /// without sharing. Otherwise the kernel would share them with another Vanward and split the connections. The
    /// tried socket never listens, so it receives no connection.
    fn port(&self, address: Option<IpAddr>, port: u16) -> Result<(), String> {
        let address = SocketAddr::new(address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port);
        let may_be_own = self.own.is_none_or(|own| own.contains(&port));
        let bind = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?;
            socket.set_reuseport(may_be_own)?;
            socket.bind(address)
        };
        bind().map_err(|error| format!("{address} cannot be listened at: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use gateway::MachineFacts as _;

    use super::*;

    #[test]
    fn a_port_that_another_process_shares_is_taken_unless_it_is_our_own() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let _entered = runtime.enter();
        // Another Vanward's socket.
        let other = TcpSocket::new_v4().unwrap();
        other.set_reuseaddr(true).unwrap();
        other.set_reuseport(true).unwrap();
        other.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let port = other.local_addr().unwrap().port();
        let _listener = other.listen(1).unwrap();
        let loopback = Some(IpAddr::from([127, 0, 0, 1]));
        let (none, own) = (BTreeSet::new(), BTreeSet::from([port]));
        for (own, is_free) in [(Some(&none), false), (Some(&own), true), (None, true)] {
            assert_eq!(ClusterMachine { own }.port(loopback, port).is_ok(), is_free, "{own:?}");
        }
    }
}
