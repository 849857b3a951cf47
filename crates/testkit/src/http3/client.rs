//! HTTP/3 client over the QUIC of `quinn`: frames written and read by hand. Each wait is bounded by `PATIENCE`.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ConnectionError, Endpoint, RecvStream, SendStream};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::frame::{self, DATA, GOAWAY, HEADERS, head, headers, lines, request};
use crate::wait::PATIENCE;

/// Settings of a client that takes no dynamic table.
const NO_SETTINGS: &[u8] = &[0x00, 0x04, 0x00];

/// A connection. Waits are bounded by [`PATIENCE`].
pub struct Client {
    runtime: Arc<Runtime>,
    /// The connection of QUIC.
    pub quic: quinn::Connection,
    /// Its socket.
    pub endpoint: Endpoint,
    control: SendStream,
}

/// A stream of a request.
pub struct Stream {
    runtime: Arc<Runtime>,
    /// What the client sends.
    pub send: SendStream,
    /// What it gets.
    pub receive: RecvStream,
    held: Vec<u8>,
}

/// What comes on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Got {
    /// Lines of `name: value`.
    Headers(String),
    /// A part of a body.
    Data(Vec<u8>),
    /// The stream has ended.
    End,
    /// The stream was reset with this code.
    Reset(u64),
    /// The connection has ended.
    Gone,
}

fn wait<T>(runtime: &Runtime, what: &str, future: impl Future<Output = T>) -> T {
    runtime
        .block_on(async { timeout(PATIENCE, future).await })
        .unwrap_or_else(|_| panic!("{what} takes too long"))
}

impl Client {
    /// Connects, and says that it takes no dynamic table.
    pub fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, |_| ())
    }

    /// Connects with other settings of the transport.
    pub fn connect_with(address: SocketAddr, change: impl FnOnce(&mut quinn::TransportConfig)) -> Self {
        let mut transport = quinn::TransportConfig::default();
        change(&mut transport);
        let client = Self::try_connect(address, &[b"h3"], transport);
        let mut client = client.unwrap_or_else(|error| panic!("no connection: {error}"));
        client.control(NO_SETTINGS);
        client
    }

    /// Connects, without a word of HTTP/3 but the kind of the control stream.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn try_connect(
        address: SocketAddr,
        protocols: &[&[u8]],
        transport: quinn::TransportConfig,
    ) -> Result<Self, ConnectionError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = Arc::new(runtime.expect("a runtime"));
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
        let mut control = wait(&runtime, "a stream", quic.open_uni()).expect("a stream");
        wait(&runtime, "the control stream", control.write_all(&[0x00])).expect("it takes it");
        Ok(Self { runtime: Arc::clone(&runtime), quic, endpoint, control })
    }

    /// Writes on the control stream: behind its kind.
    pub fn control(&mut self, bytes: &[u8]) {
        // The settings' kind is 4: `NO_SETTINGS` begins behind the kind of the stream.
        let bytes = bytes.strip_prefix(&[0x00]).unwrap_or(bytes);
        wait(&self.runtime, "the control stream", self.control.write_all(bytes)).expect("it takes it");
    }

    /// Ends the control stream.
    pub fn ends_control(&mut self) {
        self.control.finish().expect("it was open");
    }

    /// Opens a unidirectional stream with these bytes.
    pub fn unidirectional(&self, bytes: &[u8]) -> SendStream {
        let mut stream = wait(&self.runtime, "a stream", self.quic.open_uni()).expect("a stream");
        wait(&self.runtime, "a write", stream.write_all(bytes)).expect("it takes it");
        stream
    }

    /// Goes on at another address.
    pub fn moves_to(&self, socket: std::net::UdpSocket) {
        let _inside = self.runtime.enter();
        self.endpoint.rebind(socket).expect("it can move");
    }

    /// Opens a stream for a request.
    pub fn open(&self) -> Stream {
        let (send, receive) = wait(&self.runtime, "a stream", self.quic.open_bi()).expect("a stream");
        Stream { runtime: Arc::clone(&self.runtime), send, receive, held: Vec::new() }
    }

    /// Opens a stream for a request, if the connection has not ended.
    pub fn try_open(&self) -> Option<Stream> {
        let (send, receive) = wait(&self.runtime, "a stream", self.quic.open_bi()).ok()?;
        Some(Stream { runtime: Arc::clone(&self.runtime), send, receive, held: Vec::new() })
    }

    /// Sends a request that ends with its head. `fields` are lines of `name: value`.
    pub fn asks(&self, method: &str, path: &str, fields: &str) -> Stream {
        let mut stream = self.open();
        stream.sends_head(&request(method, path, fields));
        stream.ends();
        stream
    }

    /// The stream that the last GOAWAY has named, from now on; `u64::MAX` before. It and later ones are not answered. Takes the
    /// proxy's control stream: [`hears`](Self::hears) hears nothing any more.
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

    /// The code and the words with which the proxy ends the connection.
    pub fn closed(&self) -> (u64, String) {
        match wait(&self.runtime, "the end", self.quic.closed()) {
            ConnectionError::ApplicationClosed(close) => {
                (close.error_code.into_inner(), String::from_utf8_lossy(&close.reason).into_owned())
            }
            other => panic!("it ended otherwise: {other}"),
        }
    }

    /// The frames that the proxy sends on its control stream until there is one of this kind, whose payload it is.
    pub fn hears(&self, kind: u64) -> Vec<u8> {
        loop {
            let mut stream = wait(&self.runtime, "a stream", self.quic.accept_uni()).expect("a stream");
            let mut held = Vec::new();
            let is_control = loop {
                let chunk = wait(&self.runtime, "its kind", stream.read_chunk(64, true)).expect("is read");
                held.extend_from_slice(&chunk.expect("it stays open").bytes);
                if let Some(first) = held.first() {
                    break *first == 0;
                }
            };
            if !is_control {
                // Let go of, it would be stopped, and the connection needs it.
                std::mem::forget(stream);
                continue;
            }
            held.remove(0);
            loop {
                while let Some((found, payload)) = frame::take(&mut held) {
                    if found == kind {
                        std::mem::forget(stream);
                        return payload;
                    }
                }
                let chunk = wait(&self.runtime, "a frame", stream.read_chunk(1024, true)).expect("is read");
                held.extend_from_slice(&chunk.expect("it stays open").bytes);
            }
        }
    }
}

/// Reads a stream of the proxy to its end, and notes what the frames GOAWAY of a control stream name.
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

impl Stream {
    /// Its ID.
    pub fn id(&self) -> u64 {
        self.send.id().into()
    }

    /// Sends a request that ends with its head, unless the stream has ended.
    pub fn asks(&mut self, method: &str, path: &str, fields: &str) {
        let head = headers(&request(method, path, fields));
        let _ = wait(&self.runtime, "a write", self.send.write_all(&head));
        let _ = self.send.finish();
    }

    /// Sends bytes as they are.
    pub fn sends(&mut self, bytes: &[u8]) {
        wait(&self.runtime, "a write", self.send.write_all(bytes)).expect("it takes it");
    }

    /// Sends a HEADERS frame.
    pub fn sends_head(&mut self, lines: &str) {
        self.sends(&headers(lines));
    }

    /// Sends a DATA frame.
    pub fn sends_data(&mut self, bytes: &[u8]) {
        self.sends(&[&head(DATA, bytes.len())[..], bytes].concat());
    }

    /// Ends what the client sends.
    pub fn ends(&mut self) {
        self.send.finish().expect("it was open");
    }

    /// The next frame, or the end.
    pub fn gets(&mut self) -> Got {
        loop {
            if let Some((kind, payload)) = frame::take(&mut self.held) {
                match kind {
                    DATA => return Got::Data(payload),
                    HEADERS => return Got::Headers(lines(&payload)),
                    _ => continue,
                }
            }
            match wait(&self.runtime, "a frame", self.receive.read_chunk(usize::MAX, true)) {
                Ok(Some(chunk)) => self.held.extend_from_slice(&chunk.bytes),
                Ok(None) => {
                    assert!(self.held.is_empty(), "a frame is cut off: {:x?}", self.held);
                    return Got::End;
                }
                Err(quinn::ReadError::Reset(code)) => return Got::Reset(code.into_inner()),
                Err(_) => return Got::Gone,
            }
        }
    }

    /// Takes bytes of whatever frames, at most so many; how many there were, 0 at the end.
    pub fn receives(&mut self, most: usize) -> usize {
        let chunk = wait(&self.runtime, "more", self.receive.read_chunk(most, true));
        chunk.expect("it goes on").map_or(0, |chunk| chunk.bytes.len())
    }

    /// The head of a response, or interim response.
    pub fn head(&mut self) -> String {
        match self.gets() {
            Got::Headers(lines) => lines,
            other => panic!("no head: {other:?}"),
        }
    }

    /// A response: its head, its body, and its trailers.
    pub fn response(&mut self) -> (String, Vec<u8>, String) {
        let head = self.head();
        let (mut body, mut trailers) = (Vec::new(), String::new());
        loop {
            match self.gets() {
                Got::Data(bytes) => body.extend_from_slice(&bytes),
                Got::Headers(lines) => trailers = lines,
                Got::End => return (head, body, trailers),
                other => panic!("the response is cut off by {other:?}, behind {} bytes", body.len()),
            }
        }
    }
}

/// What a client does that believes everybody, with these names of protocols.
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

/// Believes everybody: certificates are not what is tested here.
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
