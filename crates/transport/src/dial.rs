//! Connects to servers and does the TLS handshake, for pools and health checks.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::ServerHost;
use rustls::ClientConfig;
use tls::{ClientSide, Handshake};

use crate::tcp::Tcp;
use crate::tls::{HandshakeError, Records, TlsConnection};

/// An address at which a server listens.
#[derive(Debug, Clone, Copy)]
pub enum Destination<'a> {
    /// A Unix socket.
    Unix(&'a Path),
    /// A TCP address.
    Tcp(SocketAddr),
}

/// The addresses of a server, to be tried in order: its Unix socket, or `addresses`, to which its name resolved.
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
    /// Connects. `sleep` waits between tries while the backlog of a Unix socket is full.
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

/// Why the TLS handshake with a server failed.
#[derive(Debug)]
pub enum NotSecure {
    /// The upstream has no TLS for this server.
    NotConfigured,
    /// The server closed the connection.
    Closed,
    /// One side rejected the handshake. With the table of the upstream's options.
    Refused(rustls::Error, &'static str),
    /// The server sent something other than a TLS handshake.
    NoHandshake,
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
/// than requests do. Returns whether HTTP/2 was negotiated, too.
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
