//! The original connection of a client (PROXY protocol), and the PROXY header for servers.

use std::net::SocketAddr;
use std::rc::Rc;

use route::{ProxyHeader, ProxyIntroduction, ProxyVersion, tlv_kind, write_proxy_header};

use crate::context::client::FrontConnection;
use crate::listening::NOWHERE;
use transport::endpoint::MessageEndpoint;

/// Facts about the client's original connection, besides the client's address.
pub(crate) struct OriginalConnection {
    /// The address that the client has connected to.
    destination: SocketAddr,
    /// The requested host and the connection's unique ID: passed on, but not used.
    authority: Option<Box<str>>,
    unique_id: Option<Box<[u8]>>,
    /// Whether the client used TLS to the proxy that sent the header.
    pub(crate) is_secure: bool,
}

impl OriginalConnection {
    /// The address that the client has connected to.
    pub(crate) fn destination(&self) -> SocketAddr {
        self.destination
    }

    /// Returns the facts that are known without a PROXY header. Called while the socket is still accessible.
    pub(crate) fn by(socket: &MessageEndpoint) -> Rc<Self> {
        Self::at(destination(socket))
    }

    /// Returns the facts about a client that has connected to this address.
    pub(crate) fn at(destination: SocketAddr) -> Rc<Self> {
        Rc::new(Self { destination, authority: None, unique_id: None, is_secure: false })
    }

    /// Returns the same connection for a client that another instance names.
    pub(crate) fn told(&self, is_secure: bool) -> Rc<Self> {
        Rc::new(Self { destination: self.destination, authority: None, unique_id: None, is_secure })
    }

    pub(crate) fn new(destination: SocketAddr, header: &ProxyHeader<'_>) -> Rc<Self> {
        let said = |kind| header.tlvs().find(|tlv| tlv.kind == kind).map(|tlv| tlv.value);
        let authority = said(tlv_kind::AUTHORITY).and_then(|name| std::str::from_utf8(name).ok());
        Rc::new(Self {
            destination,
            authority: authority.map(Box::from),
            unique_id: said(tlv_kind::UNIQUE_ID).map(Box::from),
            // PROXY protocol §2.2.6: the first byte is a bit field.
            is_secure: said(tlv_kind::SSL)
                .and_then(<[u8]>::first)
                .is_some_and(|client| client & tlv_kind::CLIENT_SSL != 0),
        })
    }
}

/// Writes the PROXY header for a server connection that is reserved for this client.
pub(crate) fn header(version: ProxyVersion, client: &FrontConnection) -> Vec<u8> {
    let original_connection = client.original_connection.as_deref();
    let source = SocketAddr::new(client.address, client.port);
    let destination =
        original_connection.map_or_else(|| destination(&client.socket), |known| known.destination);
    let introduction = ProxyIntroduction {
        client: Some((source, destination)),
        authority: original_connection.and_then(|known| known.authority.as_deref()),
        unique_id: original_connection.and_then(|known| known.unique_id.as_deref()),
        has_checksum: false,
    };
    let mut out = Vec::new();
    write_proxy_header(version, &introduction, &mut out);
    out
}

/// The local address that the client connected to; a placeholder for Unix sockets.
pub(crate) fn destination(socket: &MessageEndpoint) -> SocketAddr {
    socket.local_address().unwrap_or(NOWHERE)
}
