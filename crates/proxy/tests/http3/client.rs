//! A client of HTTP/3 that writes its frames by hand. Field sections are literals without compression; those that come are
//! read by the decoder of the crate `http3`, which ls-qpack has tested.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ConnectionError, Endpoint, RecvStream, SendStream};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use testkit::wait::PATIENCE;
use tokio::runtime::Runtime;
use tokio::time::timeout;

pub(crate) const DATA: u64 = 0x0;
pub(crate) const HEADERS: u64 = 0x1;
pub(crate) const GOAWAY: u64 = 0x7;

/// Settings of a client that takes no dynamic table.
const NO_SETTINGS: &[u8] = &[0x00, 0x04, 0x00];

/// A connection. Waits are bounded by [`PATIENCE`].
pub(crate) struct Client {
    runtime: Arc<Runtime>,
    pub(crate) quic: quinn::Connection,
    pub(crate) endpoint: Endpoint,
    control: SendStream,
}

/// A stream of a request.
pub(crate) struct Stream {
    runtime: Arc<Runtime>,
    pub(crate) send: SendStream,
    pub(crate) receive: RecvStream,
    held: Vec<u8>,
}

/// What comes on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Got {
    /// Lines of `name: value`.
    Headers(String),
    Data(Vec<u8>),
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
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, |_| ())
    }

    /// Connects with other settings of the transport.
    pub(crate) fn connect_with(
        address: SocketAddr,
        change: impl FnOnce(&mut quinn::TransportConfig),
    ) -> Self {
        let mut transport = quinn::TransportConfig::default();
        change(&mut transport);
        let client = Self::try_connect(address, &[b"h3"], transport);
        let mut client = client.unwrap_or_else(|error| panic!("no connection: {error}"));
        client.control(NO_SETTINGS);
        client
    }

    /// Connects, without a word of HTTP/3 but the kind of the control stream.
    pub(crate) fn try_connect(
        address: SocketAddr,
        protocols: &[&[u8]],
        transport: quinn::TransportConfig,
    ) -> Result<Self, ConnectionError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = Arc::new(runtime.expect("a runtime"));
        let _inside = runtime.enter();
        let mut tls = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("it has TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone))
            .with_no_client_auth();
        tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
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
    pub(crate) fn control(&mut self, bytes: &[u8]) {
        // The settings' kind is 4: `NO_SETTINGS` begins behind the kind of the stream.
        let bytes = bytes.strip_prefix(&[0x00]).unwrap_or(bytes);
        wait(&self.runtime, "the control stream", self.control.write_all(bytes)).expect("it takes it");
    }

    /// Ends the control stream.
    pub(crate) fn ends_control(&mut self) {
        self.control.finish().expect("it was open");
    }

    /// Opens a unidirectional stream with these bytes.
    pub(crate) fn unidirectional(&self, bytes: &[u8]) -> SendStream {
        let mut stream = wait(&self.runtime, "a stream", self.quic.open_uni()).expect("a stream");
        wait(&self.runtime, "a write", stream.write_all(bytes)).expect("it takes it");
        stream
    }

    /// Goes on at another address.
    pub(crate) fn moves_to(&self, socket: std::net::UdpSocket) {
        let _inside = self.runtime.enter();
        self.endpoint.rebind(socket).expect("it can move");
    }

    /// Opens a stream for a request.
    pub(crate) fn open(&self) -> Stream {
        let (send, receive) = wait(&self.runtime, "a stream", self.quic.open_bi()).expect("a stream");
        Stream { runtime: Arc::clone(&self.runtime), send, receive, held: Vec::new() }
    }

    /// Sends a request that ends with its head. `fields` are lines of `name: value`.
    pub(crate) fn asks(&self, method: &str, path: &str, fields: &str) -> Stream {
        let mut stream = self.open();
        stream.sends_head(&request(method, path, fields));
        stream.ends();
        stream
    }

    /// The code and the words with which the proxy ends the connection.
    pub(crate) fn closed(&self) -> (u64, String) {
        match wait(&self.runtime, "the end", self.quic.closed()) {
            ConnectionError::ApplicationClosed(close) => {
                (close.error_code.into_inner(), String::from_utf8_lossy(&close.reason).into_owned())
            }
            other => panic!("it ended otherwise: {other}"),
        }
    }

    /// The frames that the proxy sends on its control stream until there is one of this kind, whose payload it is.
    pub(crate) fn hears(&self, kind: u64) -> Vec<u8> {
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
                while let Some((found, payload)) = frame(&mut held) {
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

impl Stream {
    pub(crate) fn sends(&mut self, bytes: &[u8]) {
        wait(&self.runtime, "a write", self.send.write_all(bytes)).expect("it takes it");
    }

    /// Sends a HEADERS frame.
    pub(crate) fn sends_head(&mut self, lines: &str) {
        self.sends(&headers(lines));
    }

    /// Sends a DATA frame.
    pub(crate) fn sends_data(&mut self, bytes: &[u8]) {
        self.sends(&[&head(DATA, bytes.len())[..], bytes].concat());
    }

    pub(crate) fn ends(&mut self) {
        self.send.finish().expect("it was open");
    }

    /// The next frame, or the end.
    pub(crate) fn gets(&mut self) -> Got {
        loop {
            if let Some((kind, payload)) = frame(&mut self.held) {
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

    /// The head of a response, or interim response.
    pub(crate) fn head(&mut self) -> String {
        match self.gets() {
            Got::Headers(lines) => lines,
            other => panic!("no head: {other:?}"),
        }
    }

    /// A response: its head, its body, and its trailers.
    pub(crate) fn response(&mut self) -> (String, Vec<u8>, String) {
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

/// The lines of a request for `test`.
pub(crate) fn request(method: &str, path: &str, fields: &str) -> String {
    format!(":method: {method}\n:scheme: https\n:authority: test\n:path: {path}\n{fields}")
}

/// A HEADERS frame of lines `name: value`.
pub(crate) fn headers(lines: &str) -> Vec<u8> {
    let section = section(lines);
    [&head(HEADERS, section.len())[..], &section].concat()
}

/// The header of a frame (RFC 9114 §7.1).
pub(crate) fn head(kind: u64, len: usize) -> Vec<u8> {
    [varint(kind), varint(len as u64)].concat()
}

/// RFC 9000 §16.
pub(crate) fn varint(number: u64) -> Vec<u8> {
    match number {
        0..0x40 => vec![number as u8],
        0x40..0x4000 => (number as u16 | 0x4000).to_be_bytes().to_vec(),
        0x4000..0x4000_0000 => (number as u32 | 0x8000_0000).to_be_bytes().to_vec(),
        _ => (number | 0xc000_0000_0000_0000).to_be_bytes().to_vec(),
    }
}

/// A field section of literals (RFC 9204 §4.5.6).
pub(crate) fn section(lines: &str) -> Vec<u8> {
    let mut section = vec![0, 0];
    for line in lines.lines() {
        let at = line[1..].find(": ").expect("a line is `name: value`") + 1;
        let (name, value) = (&line[..at], &line[at + 2..]);
        integer(&mut section, 0x20, 3, name.len());
        section.extend_from_slice(name.as_bytes());
        integer(&mut section, 0, 7, value.len());
        section.extend_from_slice(value.as_bytes());
    }
    section
}

/// RFC 9204 §4.1.1.
fn integer(out: &mut Vec<u8>, flags: u8, bits: u32, mut number: usize) {
    let most = (1 << bits) - 1;
    if number < most {
        return out.push(flags | number as u8);
    }
    out.push(flags | most as u8);
    number -= most;
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a whole frame from the front.
fn frame(held: &mut Vec<u8>) -> Option<(u64, Vec<u8>)> {
    let (kind, at) = read_varint(held)?;
    let (len, more) = read_varint(&held[at..])?;
    let start = at + more;
    let end = start + len as usize;
    let payload = held.get(start..end)?.to_vec();
    held.drain(..end);
    Some((kind, payload))
}

pub(crate) fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let len = 1 << (bytes.first()? >> 6);
    let all = bytes.get(..len)?;
    let number = all.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Some((number & ((1 << (8 * len - 2)) - 1), len))
}

fn lines(section: &[u8]) -> String {
    let mut lines = String::new();
    let decoded = http3::Decoder::new(0).decode(0, section, |name, value| {
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        lines += &format!("{name}: {value}\n");
    });
    assert_eq!(decoded, Ok(http3::Decoded::Whole));
    lines
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
