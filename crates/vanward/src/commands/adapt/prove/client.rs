//! Sends requests to a proxy, each on its own connection and from its own address.

/// HTTP/2.
mod http2;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use prove::{OldDoor, ProofAnswer, ProofRequest, ResponseWire};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use socket2::{Domain, Socket, Type};

/// Without a byte for so long, a response is missing.
const PATIENCE: Duration = Duration::from_secs(30);

/// A message of a WebSocket: `ping!`, with a mask of zeros (RFC 6455 §5.2).
const MESSAGE: &[u8] = b"\x81\x85\0\0\0\0ping!";

pub(super) struct ProofClient {
    tls: Arc<ClientConfig>,
    /// Settings of TLS for HTTP/2.
    http2: Arc<ClientConfig>,
}

impl ProofClient {
    pub(super) fn new() -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("TLS cannot be used: {error}"))?;
        let verifier = Arc::new(AnyCertificate { algorithms });
        let mut tls = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        tls.resumption = rustls::client::Resumption::disabled();
        let mut http2 = tls.clone();
        http2.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { tls: Arc::new(tls), http2: Arc::new(http2) })
    }

    /// Sends a request to an address that stands in for a door.
    pub(super) fn send(&self, address: SocketAddr, door: &OldDoor, request: &ProofRequest) -> ProofAnswer {
        match self.exchange(address, door, request) {
            Ok(answer) => answer,
            Err(error) => ProofAnswer { trouble: trouble(&error), ..ProofAnswer::default() },
        }
    }

    fn exchange(
        &self,
        address: SocketAddr,
        door: &OldDoor,
        request: &ProofRequest,
    ) -> std::io::Result<ProofAnswer> {
        let mut stream = connect(request.client, address)?;
        if door.has_proxy_header {
            let from = stream.local_addr()?;
            let line =
                format!("PROXY TCP4 {} {} {} {}\r\n", from.ip(), address.ip(), from.port(), address.port());
            stream.write_all(line.as_bytes())?;
        }
        if !door.is_tls {
            return Ok(transfer(stream, door, request));
        }
        let name = ServerName::try_from(request.host.clone());
        let name = name.unwrap_or_else(|_| ServerName::IpAddress(address.ip().into()));
        let settings = Arc::clone(if request.is_http2 { &self.http2 } else { &self.tls });
        let connection = ClientConnection::new(settings, name).map_err(std::io::Error::other)?;
        let stream = StreamOwned::new(connection, stream);
        Ok(if request.is_http2 {
            http2::transfer(stream, door, request)
        } else {
            transfer(stream, door, request)
        })
    }
}

fn connect(client: Ipv4Addr, address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((client, 0)).into())?;
    socket.connect_timeout(&address.into(), PATIENCE)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn transfer(mut stream: impl Read + Write, door: &OldDoor, request: &ProofRequest) -> ProofAnswer {
    // A proxy that refuses a request may close before it has read everything; it has answered then.
    let _ = stream.write_all(&request.bytes(door)).and_then(|()| stream.flush());
    let mut wire = ResponseWire::new(&request.method);
    let mut piece = vec![0; 64 << 10];
    let mut has_spoken = !request.is_upgrade();
    loop {
        if !has_spoken && wire.has_switched() {
            has_spoken = true;
            let _ = stream.write_all(MESSAGE).and_then(|()| stream.flush());
        }
        match stream.read(&mut piece) {
            Ok(0) => return wire.answer("the connection was closed"),
            Ok(length) => {
                if wire.push(&piece[..length]) {
                    return wire.answer("");
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return wire.answer(&trouble(&error)),
        }
    }
}

fn trouble(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("nothing for {} s", PATIENCE.as_secs()),
        ErrorKind::UnexpectedEof => "the connection was closed".to_owned(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => "the connection was reset".to_owned(),
        _ => error.to_string(),
    }
}

/// Accepts every certificate: those of a proof are its own.
#[derive(Debug)]
struct AnyCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
