//! Connections for health checks: each check opens a new one, in the same way as requests do.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use config::{Protocol, Scheme, ServerHost};
use route::{ProxyIntroduction, write_proxy_header};
use rustls::ClientConfig;
use tls::ClientSide;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::probe::http3;
use crate::probe::server::{ProbeShared, ProbedServer};
use transport::connection::Connection;
use transport::dial::{self, destinations};
use transport::endpoint::MessageEndpoint;
use transport::tcp::{Follows, Tcp};

pub(super) fn has_address(subject: &ProbedServer) -> bool {
    matches!(subject.server.config.host, ServerHost::Unix(_)) || !subject.server.addresses.load().is_empty()
}

pub(super) fn addresses(subject: &ProbedServer) -> Vec<SocketAddr> {
    let mut addresses = subject.server.addresses.load_full().to_vec();
    if let Some(port) = subject.check.port {
        addresses.iter_mut().for_each(|address| address.set_port(port));
    }
    addresses
}

/// Connects to the server, and sends a PROXY header if the server expects one.
pub(super) async fn reach(subject: &ProbedServer) -> Result<Tcp, String> {
    let tcp = connect(subject).await.map_err(|error| reason(&error))?;
    if let Some(version) = subject.introduction {
        let mut header = Vec::new();
        let of_our_own =
            ProxyIntroduction { client: None, authority: None, unique_id: None, has_checksum: false };
        write_proxy_header(version, &of_our_own, &mut header);
        // The buffer of a new socket has room for it.
        if !tcp.send_at_once(&header) {
            return Err("it closed the connection".to_owned());
        }
    }
    Ok(tcp)
}

async fn connect(subject: &ProbedServer) -> io::Result<Tcp> {
    let mut failure = ErrorKind::AddrNotAvailable.into();
    let addresses = addresses(subject);
    for destination in destinations(&subject.server.config.host, &addresses) {
        match destination.connect(tokio::time::sleep).await {
            Ok(tcp) => return Ok(tcp),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Connects to the server for a protocol, with TLS if requests use it.
pub(super) async fn open(
    subject: &ProbedServer,
    protocol: Protocol,
    shared: &ProbeShared,
) -> Result<Connection, String> {
    let tcp = reach(subject).await?;
    let Some((tls, place)) = &subject.tls else { return Ok(tcp.into()) };
    let config = match protocol {
        Protocol::Http3 => return Err("HTTP/3 is not spoken over TCP".to_owned()),
        _ if tls.protocol() == protocol => tls.config(),
        Protocol::Http1 => asking_for(tls, &[b"http/1.1"]),
        Protocol::Fastcgi => return Err("FastCGI has no TLS".to_owned()),
        Protocol::Http2 => asking_for(tls, &[b"h2"]),
    };
    let (secure, is_http2) = dial::secure((tls, *place), config, tcp, shared.records())
        .await
        .map_err(|error| error.to_string())?;
    if is_http2 != (protocol == Protocol::Http2) {
        return Err("it does not speak the configured protocol".to_owned());
    }
    Ok(secure.into())
}

pub(super) async fn shake_hands(subject: &ProbedServer, shared: &ProbeShared) -> Result<(), String> {
    let (tls, place) = subject.tls.as_ref().ok_or("it has no TLS")?;
    if subject.protocol == Protocol::Http3 {
        return http3::open(subject, shared).await.map(drop);
    }
    let tcp = reach(subject).await?;
    // ALPN is only for HTTP.
    let config = match subject.server.config.scheme {
        Scheme::Https => tls.config(),
        Scheme::Http | Scheme::Tcp | Scheme::Fcgi => asking_for(tls, &[]),
    };
    let (secure, _) = dial::secure((tls, *place), config, tcp, shared.records())
        .await
        .map_err(|error| error.to_string())?;
    // The last message is sent when the connection closes.
    secure.shutdown_write().map_err(|error| reason(&error))
}

fn asking_for(tls: &ClientSide, protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(&tls.config());
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}

pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => "it reset the connection".to_owned(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionAborted => "it closed the connection".to_owned(),
        ErrorKind::TimedOut => "no connection in time".to_owned(),
        ErrorKind::NotFound => "the socket does not exist".to_owned(),
        _ => error.to_string(),
    }
}

/// An endpoint with tokio's traits for reading and writing.
pub(super) struct ProbeStream<'a> {
    pub(super) endpoint: &'a MessageEndpoint,
    /// Operation that follows each write.
    pub(super) follows: Follows,
}

impl AsyncRead for ProbeStream<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = ready!(self.endpoint.poll_read(context, buffer.initialize_unfilled()))?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ProbeStream<'_> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.endpoint.poll_write(context, bytes, self.follows)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.endpoint.shutdown_write())
    }
}
