//! Connects to servers and does the TLS handshake, for pools and health checks.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::ServerHost;
use rustls::ClientConfig;
use tls::{ClientSide, Handshake, HandshakeFault};

use crate::tcp::Tcp;
use crate::tls::{HandshakeError, Records, TlsConnection};

#[derive(Debug, Clone, Copy)]
pub enum Destination<'a> {
    Unix(&'a Path),
    Tcp(SocketAddr),
}

/// The addresses of a server, in the order of attempts: its Unix socket, or `addresses`, to which its name resolved.
pub fn destinations<'a>(
    host: &'a ServerHost,
    addresses: &'a [SocketAddr],
) -> impl Iterator<Item = Destination<'a>> {
    let (unix, addresses) = match host {
        ServerHost::Unix(path) => (Some(Destination::Unix(path)), [].as_slice()),
        _ => (None, addresses),
    };
    unix.into_iter().chain(addresses.iter().copied().map(Destination::Tcp))
}

impl Destination<'_> {
    /// Connects. `sleep` waits between attempts while the backlog of a Unix socket is full.
    ///
    /// # Errors
    /// The kernel's error.
    pub async fn connect(self, sleep: impl AsyncFn(Duration)) -> io::Result<Tcp> {
        match self {
            Self::Unix(path) => Tcp::connect_unix(path, sleep).await,
            Self::Tcp(address) => Tcp::connect(address).await,
        }
    }
}

/// Whether every local port is in use for connections to this destination.
pub fn is_out_of_ports(error: &io::Error, destination: Destination<'_>) -> bool {
    let Destination::Tcp(address) = destination else { return false };
    match error.kind() {
        // From UDP sockets, which are bound first.
        ErrorKind::AddrInUse => true,
        // The kernel reports the same error if this machine has no address that reaches the destination. UDP has
        // separate ports, so a UDP socket shows which it is.
        ErrorKind::AddrNotAvailable => {
            let any = match address {
                SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            };
            // Connecting a UDP socket sends nothing: it only looks for a route.
            UdpSocket::bind(any).and_then(|socket| socket.connect(address)).is_ok()
        }
        _ => false,
    }
}

#[derive(Debug)]
pub enum NotSecure {
    /// The upstream has no TLS settings for this server.
    NotConfigured,
    Closed,
    /// The handshake was rejected. Includes the name of the table with the upstream's options.
    Refused(rustls::Error, &'static str),
    /// The server sent something other than a TLS handshake.
    NoHandshake,
}

impl NotSecure {
    /// The part of the handshake that failed. `None` if the server closed the connection.
    pub fn fault(&self) -> Option<HandshakeFault> {
        match self {
            Self::Closed => None,
            Self::Refused(error, _) => Some(HandshakeFault::from_error(error)),
            Self::NotConfigured | Self::NoHandshake => Some(HandshakeFault::Other),
        }
    }
}

impl fmt::Display for NotSecure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConfigured => formatter.write_str("it has no TLS"),
            Self::Closed => formatter.write_str("no TLS: it closed the connection"),
            Self::Refused(error, table) => write!(formatter, "no TLS: {}", tls::reason(error, table)),
            Self::NoHandshake => formatter.write_str("no TLS"),
        }
    }
}

/// Does the TLS handshake with the server at index `place` of its upstream. `config` may offer other ALPN protocols
/// than those for requests. Also returns whether HTTP/2 was negotiated.
///
/// # Errors
/// See [`NotSecure`].
pub async fn secure(
    (tls, place): (&ClientSide, usize),
    config: Arc<ClientConfig>,
    tcp: Tcp,
    records: &Rc<Records>,
) -> Result<(TlsConnection, bool), NotSecure> {
    let name = tls.name(place).ok_or(NotSecure::NotConfigured)?.clone();
    let refused = |error| NotSecure::Refused(error, tls.table());
    let handshake = Handshake::client(config, name).map_err(refused)?;
    match TlsConnection::establish(tcp, handshake, records, Vec::new()).await {
        Ok((secure, agreed)) => Ok((secure, agreed.is_http2())),
        Err(HandshakeError::Refused(error, _)) => Err(refused(error)),
        Err(HandshakeError::Io) => Err(NotSecure::Closed),
        Err(HandshakeError::TooLong | HandshakeError::InTheClear(_)) => Err(NotSecure::NoHandshake),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_short_only_where_this_machine_reaches_the_destination() {
        let error = |kind: ErrorKind| io::Error::from(kind);
        let [loopback, broadcast] =
            ["127.0.0.1:1", "255.255.255.255:1"].map(|text| text.parse().expect("is an address"));
        for (kind, destination, expected) in [
            (ErrorKind::AddrNotAvailable, Destination::Tcp(loopback), true),
            (ErrorKind::AddrInUse, Destination::Tcp(loopback), true),
            // A socket may send to a broadcast address only with SO_BROADCAST.
            (ErrorKind::AddrNotAvailable, Destination::Tcp(broadcast), false),
            (ErrorKind::AddrNotAvailable, Destination::Unix(Path::new("/a")), false),
            (ErrorKind::ConnectionRefused, Destination::Tcp(loopback), false),
        ] {
            assert_eq!(is_out_of_ports(&error(kind), destination), expected, "{kind:?} {destination:?}");
        }
    }
}
