//! HTTP/3 server over `quinn`'s QUIC, with frames written and read by hand. `PATIENCE` limits each wait.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, SendStream, TransportConfig, VarInt};
use rustls::version::TLS13;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::stream::{H3TestStream, NO_SETTINGS, closed, hears, runtime, wait};
use crate::ports::loopback;
use crate::tls::TestAuthority;

pub struct H3TestServer {
    runtime: Arc<Runtime>,
    pub endpoint: Endpoint,
}

pub struct Served {
    runtime: Arc<Runtime>,
    pub quic: quinn::Connection,
    control: SendStream,
}

impl H3TestServer {
    /// Makes a server with a certificate that no client trusts.
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    /// Makes such a server, after `change` of the transport's settings.
    pub fn with(change: impl FnOnce(&mut TransportConfig)) -> Self {
        let authority = TestAuthority::new();
        Self::from_tls(authority.server(&authority.issue(&["test"]), &TLS13), loopback(), change)
    }

    /// Makes a server with these TLS and transport settings at an address. It offers HTTP/3.
    pub fn from_tls(
        mut tls: rustls::ServerConfig,
        address: SocketAddr,
        change: impl FnOnce(&mut TransportConfig),
    ) -> Self {
        let runtime = runtime();
        let _inside = runtime.enter();
        if tls.alpn_protocols.is_empty() {
            tls.alpn_protocols = vec![b"h3".to_vec()];
        }
        let crypto = QuicServerConfig::try_from(tls).expect("is TLS 1.3");
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        let mut transport = TransportConfig::default();
        change(&mut transport);
        config.transport_config(Arc::new(transport));
        let endpoint = Endpoint::server(config, address).expect("the port is free");
        Self { runtime: Arc::clone(&runtime), endpoint }
    }

    pub fn address(&self) -> SocketAddr {
        self.endpoint.local_addr().expect("it listens")
    }

    /// Accepts a connection, and sends settings without a dynamic table.
    pub fn accept(&self) -> Served {
        let mut served = self.accept_silently();
        served.control(&NO_SETTINGS[1..]);
        served
    }

    /// Accepts a connection, and sends only the type of the control stream.
    pub fn accept_silently(&self) -> Served {
        self.try_accept().unwrap_or_else(|why| panic!("no connection: {why}"))
    }

    /// Accepts a connection.
    ///
    /// # Errors
    /// The reason why its handshake fails.
    pub fn try_accept(&self) -> Result<Served, String> {
        let incoming = wait(&self.runtime, "a connection", self.endpoint.accept()).expect("it listens");
        self.accept_incoming(incoming)
    }

    fn accept_incoming(&self, incoming: quinn::Incoming) -> Result<Served, String> {
        let _inside = self.runtime.enter();
        let connecting = incoming.accept().map_err(|error| error.to_string())?;
        let quic = wait(&self.runtime, "a handshake", connecting).map_err(|error| error.to_string())?;
        let mut control =
            wait(&self.runtime, "a stream", quic.open_uni()).map_err(|error| error.to_string())?;
        let written = wait(&self.runtime, "the control stream", control.write_all(&[0x00]));
        written.map_err(|error| error.to_string())?;
        Ok(Served { runtime: Arc::clone(&self.runtime), quic, control })
    }

    /// Accepts a connection if one arrives within a moment.
    pub fn accept_soon(&self) -> Option<Served> {
        const MOMENT: Duration = Duration::from_millis(200);
        let _inside = self.runtime.enter();
        let incoming = self.runtime.block_on(async { timeout(MOMENT, self.endpoint.accept()).await });
        let mut served = self.accept_incoming(incoming.ok()??).expect("it connects");
        served.control(&NO_SETTINGS[1..]);
        Some(served)
    }
}

impl Default for H3TestServer {
    fn default() -> Self {
        Self::new()
    }
}

impl Served {
    /// Writes to the control stream, behind its type.
    pub fn control(&mut self, bytes: &[u8]) {
        wait(&self.runtime, "the control stream", self.control.write_all(bytes)).expect("it takes it");
    }

    pub fn ends_control(&mut self) {
        self.control.finish().expect("it was open");
    }

    pub fn unidirectional(&self, bytes: &[u8]) -> SendStream {
        let mut stream = wait(&self.runtime, "a stream", self.quic.open_uni()).expect("a stream");
        wait(&self.runtime, "a write", stream.write_all(bytes)).expect("it takes it");
        stream
    }

    pub fn request(&self) -> H3TestStream {
        self.try_request().expect("the connection is there")
    }

    /// Waits for the next request; `None` if the connection ends.
    pub fn try_request(&self) -> Option<H3TestStream> {
        let both = wait(&self.runtime, "a request", self.quic.accept_bi()).ok()?;
        Some(H3TestStream::new(&self.runtime, both))
    }

    /// Answers the next request, which must be a GET or already read, with 200 and this body.
    pub fn answers(&self, body: &str) {
        let mut stream = self.request();
        stream.response();
        stream.answers(body);
    }

    pub fn closes(&self, code: u32) {
        self.quic.close(VarInt::from_u32(code), b"");
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

impl H3TestStream {
    pub fn answers(&mut self, body: &str) {
        self.sends_head(&format!(":status: 200\ncontent-length: {}\n", body.len()));
        self.sends_data(body.as_bytes());
        self.ends();
    }
}
