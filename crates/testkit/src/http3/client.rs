//! HTTP/3 client over `quinn`'s QUIC, with frames written and read by hand. `PATIENCE` limits each wait.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ConnectionError, Endpoint, RecvStream, SendStream, WriteError};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::runtime::Runtime;

use super::frame::{self, GOAWAY, request};
use super::stream::{H3TestStream, NO_SETTINGS, closed, hears, runtime, wait};

const NO_ERROR: u32 = 0x100;

pub struct H3TestClient {
    runtime: Arc<Runtime>,
    pub quic: quinn::Connection,
    pub endpoint: Endpoint,
    control: SendStream,
}

impl H3TestClient {
    /// Connects, and sends settings without a dynamic table.
    pub fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, |_| ())
    }

    /// Connects, after `change` of the transport's settings.
    pub fn connect_with(address: SocketAddr, change: impl FnOnce(&mut quinn::TransportConfig)) -> Self {
        let mut transport = quinn::TransportConfig::default();
        change(&mut transport);
        let client = Self::try_connect(address, &[b"h3"], transport);
        let mut client = client.unwrap_or_else(|error| panic!("no connection: {error}"));
        client.control(NO_SETTINGS);
        client
    }

    /// Connects, and sends only the type of the control stream.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn try_connect(
        address: SocketAddr,
        protocols: &[&[u8]],
        transport: quinn::TransportConfig,
    ) -> Result<Self, ConnectionError> {
        let runtime = runtime();
        let _inside = runtime.enter();
        let tls = trusting(protocols);
        let mut config =
            quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("is TLS 1.3")));
        config.transport_config(Arc::new(transport));
        let own = if address.is_ipv6() { "[::1]:0" } else { "127.0.0.1:0" };
        let mut endpoint = Endpoint::client(own.parse().expect("is an address")).expect("a socket");
        endpoint.set_default_client_config(config);
        let connecting = endpoint.connect(address, "test").expect("it can begin");
        let quic = wait(&runtime, "the handshake", connecting)?;
        // The server may reject the client's certificate after the client's side of the handshake.
        let mut control = wait(&runtime, "a stream", quic.open_uni())?;
        match wait(&runtime, "the control stream", control.write_all(&[0x00])) {
            Ok(()) => {}
            Err(WriteError::ConnectionLost(error)) => return Err(error),
            Err(error) => panic!("the control stream: {error}"),
        }
        Ok(Self { runtime: Arc::clone(&runtime), quic, endpoint, control })
    }

    /// Writes to the control stream, behind its type.
    pub fn control(&mut self, bytes: &[u8]) {
        // `NO_SETTINGS` starts with the stream's type, which is sent already.
        let bytes = bytes.strip_prefix(&[0x00]).unwrap_or(bytes);
        wait(&self.runtime, "the control stream", self.control.write_all(bytes)).expect("it takes it");
    }

    pub fn ends_control(&mut self) {
        self.control.finish().expect("it was open");
    }

    pub fn unidirectional(&self, bytes: &[u8]) -> SendStream {
        let mut stream = wait(&self.runtime, "a stream", self.quic.open_uni()).expect("a stream");
        // The proxy may close the connection because of the first bytes, before it has the others.
        let _ = wait(&self.runtime, "a write", stream.write_all(bytes));
        stream
    }

    /// Continues at another address (connection migration).
    pub fn moves_to(&self, socket: std::net::UdpSocket) {
        let _inside = self.runtime.enter();
        self.endpoint.rebind(socket).expect("it can move");
    }

    pub fn open(&self) -> H3TestStream {
        let both = wait(&self.runtime, "a stream", self.quic.open_bi()).expect("a stream");
        H3TestStream::new(&self.runtime, both)
    }

    /// Closes the connection with H3_NO_ERROR. A dropped client ends its runtime, and sends the server nothing.
    pub fn ends(self) {
        self.quic.close(NO_ERROR.into(), b"");
        wait(&self.runtime, "the end", self.endpoint.wait_idle());
    }

    /// Opens a request stream, if the connection has not ended.
    pub fn try_open(&self) -> Option<H3TestStream> {
        let both = wait(&self.runtime, "a stream", self.quic.open_bi()).ok()?;
        Some(H3TestStream::new(&self.runtime, both))
    }

    /// Sends a request that ends with its head. `fields` are lines of `name: value`.
    pub fn asks(&self, method: &str, path: &str, fields: &str) -> H3TestStream {
        let mut stream = self.open();
        stream.sends_head(&request(method, path, fields));
        stream.ends();
        stream
    }

    /// Returns the stream ID of the latest GOAWAY, kept up to date; `u64::MAX` before. Requests from this ID on are not
    /// answered. It reads the proxy's control stream, so [`hears`](Self::hears) gets nothing any more.
    pub fn last_named(&self) -> Arc<AtomicU64> {
        let last = Arc::new(AtomicU64::new(u64::MAX));
        let (quic, named) = (self.quic.clone(), Arc::clone(&last));
        self.runtime.spawn(async move {
            while let Ok(stream) = quic.accept_uni().await {
                tokio::spawn(note_last(stream, Arc::clone(&named)));
            }
        });
        last
    }

    /// Waits for the proxy to close the connection. Returns the code and the reason.
    pub fn closed(&self) -> (u64, String) {
        closed(&self.runtime, &self.quic)
    }

    /// Reads the proxy's control stream up to a frame of this type. Returns its payload.
    pub fn hears(&self, kind: u64) -> Vec<u8> {
        hears(&self.runtime, &self.quic, kind)
    }
}

/// Reads a stream of the proxy to its end, and stores the IDs of GOAWAY frames if it is a control stream.
async fn note_last(mut stream: RecvStream, last: Arc<AtomicU64>) {
    let (mut held, mut is_control) = (Vec::new(), None);
    while let Ok(Some(chunk)) = stream.read_chunk(1024, true).await {
        held.extend_from_slice(&chunk.bytes);
        if is_control.is_none() {
            is_control = Some(held.remove(0) == 0);
        }
        if is_control == Some(false) {
            held.clear();
        }
        while let Some((kind, payload)) = frame::take(&mut held) {
            if let (GOAWAY, Some((id, _))) = (kind, frame::read_varint(&payload)) {
                last.store(id, Ordering::Release);
            }
        }
    }
}

/// TLS configuration of a client that trusts every certificate, with these ALPN protocols.
pub fn trusting(protocols: &[&[u8]]) -> rustls::ClientConfig {
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("it has TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone))
        .with_no_client_auth();
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    tls
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Trusts every certificate: certificates are not tested here.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
