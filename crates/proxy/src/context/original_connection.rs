//! What the PROXY protocol says of a client's connection, and the header that says it to a server.

use std::net::SocketAddr;
use std::rc::Rc;

use route::{ProxyHeader, ProxyIntroduction, ProxyVersion, tlv_kind, write_proxy_header};

use crate::context::client::Client;
use crate::context::listening::NOWHERE;
use transport::endpoint::Endpoint;

/// What is known of a client's connection besides the client's own address.
pub(crate) struct OriginalConnection {
    /// Where the client has connected to.
    destination: SocketAddr,
    /// The host that it asked for, and what its connection is called: passed on, but not looked at.
    authority: Option<Box<str>>,
    unique_id: Option<Box<[u8]>>,
    /// Whether the client spoke TLS to whoever sent the header.
    pub(crate) is_secure: bool,
}

impl OriginalConnection {
    /// What is to be known without a header. To be asked before the socket is out of reach.
    pub(crate) fn by(socket: &Endpoint) -> Rc<Self> {
        Rc::new(Self { destination: destination(socket), authority: None, unique_id: None, is_secure: false })
    }

    pub(crate) fn new(destination: SocketAddr, header: &ProxyHeader<'_>) -> Rc<Self> {
        let said = |kind| header.tlvs().find(|tlv| tlv.kind == kind).map(|tlv| tlv.value);
        let authority = said(tlv_kind::AUTHORITY).and_then(|name| std::str::from_utf8(name).ok());
        Rc::new(Self {
            destination,
            authority: authority.map(Box::from),
            unique_id: said(tlv_kind::UNIQUE_ID).map(Box::from),
            // PROXY protocol §2.2.6: the first byte is a field of bits.
            is_secure: said(tlv_kind::SSL)
                .and_then(<[u8]>::first)
                .is_some_and(|client| client & tlv_kind::CLIENT_SSL != 0),
        })
    }
}

/// The header with which a connection to a server begins that is for this client alone.
pub(crate) fn header(version: ProxyVersion, client: &Client) -> Vec<u8> {
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

/// The address of ours that a connection came to; one of Unix sockets came to none.
pub(crate) fn destination(socket: &Endpoint) -> SocketAddr {
    socket.local_address().unwrap_or(NOWHERE)
}
