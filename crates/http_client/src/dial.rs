//! Connects to a server by name, with TLS if its URL requires it. The system's resolver resolves names.

use std::io;
use std::path::PathBuf;

use config::{KeyPair, Scheme, Server, ServerHost, Upstream, UpstreamTls};
use tls::ClientSide;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::ClientStream;

/// A stream of bytes, with or without TLS.
pub trait DialedStream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> DialedStream for S {}

/// Describes a server for TLS.
pub fn server(host: &str, port: u16, is_secure: bool) -> Server {
    Server {
        name: None,
        scheme: if is_secure { Scheme::Https } else { Scheme::Http },
        host: host.parse().map_or_else(|_| ServerHost::Name(host.to_owned()), ServerHost::Address),
        port,
        weight: 1,
        down: false,
        priority: 0,
        max_requests: None,
    }
}

/// Loads the files for TLS to these servers; `None` if no server uses TLS. `user` names the client in messages.
///
/// # Errors
/// All problems of these files.
pub fn tls(
    user: &str,
    servers: Vec<Server>,
    ca: Option<PathBuf>,
    certificate: Option<KeyPair>,
) -> Result<Option<ClientSide>, String> {
    let tls = UpstreamTls { ca, certificate, ..UpstreamTls::default() };
    let loaded = ClientSide::load(&Upstream { tls, ..Upstream::from_name(user, servers) });
    loaded.map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

/// Connects to a server. `tls` has the server at this index.
///
/// # Errors
/// The reason, for messages.
pub async fn connect(
    (host, port): (&str, u16),
    tls: Option<&ClientSide>,
    index: usize,
) -> Result<ClientStream<Box<dyn DialedStream>>, String> {
    let reason = |error: io::Error| error.to_string();
    let tcp = TcpStream::connect((host, port)).await.map_err(reason)?;
    let _ = tcp.set_nodelay(true);
    let stream: Box<dyn DialedStream> =
        match tls.and_then(|tls| Some((tls.config(), tls.name(index)?.clone()))) {
            None => Box::new(tcp),
            Some((config, name)) => {
                Box::new(TlsConnector::from(config).connect(name, tcp).await.map_err(reason)?)
            }
        };
    Ok(ClientStream::new(stream, ToString::to_string))
}
