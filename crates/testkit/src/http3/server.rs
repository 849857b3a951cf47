//! HTTP/3 server over the QUIC of `quinn`: frames written and read by hand. Each wait is bounded by `PATIENCE`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, SendStream, TransportConfig, VarInt};
use rustls::version::TLS13;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::stream::{NO_SETTINGS, Stream, closed, hears, runtime, wait};
use crate::ports::loopback;
use crate::tls::Authority;

/// A server at a port of UDP.
pub struct Server {
    runtime: Arc<Runtime>,
    /// Its socket.
    pub endpoint: Endpoint,
}

/// A connection that a server has accepted.
pub struct Served {
    runtime: Arc<Runtime>,
    /// The connection of QUIC.
    pub quic: quinn::Connection,
    control: SendStream,
}

impl Server {
    /// A server with a certificate of a new authority, which nobody trusts.
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    /// The same with other settings of the transport.
    pub fn with(change: impl FnOnce(&mut TransportConfig)) -> Self {
        let authority = Authority::new();
        Self::of(authority.server(&authority.issue(&["test"]), &TLS13), loopback(), change)
    }

    /// A server with these settings of TLS and of the transport at an address. It offers HTTP/3.
    pub fn of(
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.endpoint.local_addr().expect("it listens")
    }

    /// The next connection, to which it has sent its settings: it takes no dynamic table.
    pub fn accept(&self) -> Served {
        let mut served = self.accept_silently();
        served.control(&NO_SETTINGS[1..]);
        served
    }

    /// The next connection, to which it has sent the kind of its control stream and nothing else.
    pub fn accept_silently(&self) -> Served {
        self.try_accept().unwrap_or_else(|why| panic!("no connection: {why}"))
    }

    /// The next connection, if its handshake succeeds.
    ///
    /// # Errors
    /// Why it does not.
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

    /// The next connection, if there is one within a moment.
    pub fn accept_soon(&self) -> Option<Served> {
        const MOMENT: Duration = Duration::from_millis(200);
        let _inside = self.runtime.enter();
        let incoming = self.runtime.block_on(async { timeout(MOMENT, self.endpoint.accept()).await });
        let mut served = self.accept_incoming(incoming.ok()??).expect("it connects");
        served.control(&NO_SETTINGS[1..]);
        Some(served)
    }
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Served {
    /// Writes on the control stream: behind its kind.
    pub fn control(&mut self, bytes: &[u8]) {
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

    /// The next request.
    pub fn request(&self) -> Stream {
        self.try_request().expect("the connection is there")
    }

    /// The next request, unless the connection ends.
    pub fn try_request(&self) -> Option<Stream> {
        let both = wait(&self.runtime, "a request", self.quic.accept_bi()).ok()?;
        Some(Stream::of(&self.runtime, both))
    }

    /// The next request, which is a GET or has been read; answers it with 200 and this body.
    pub fn answers(&self, body: &str) {
        let mut stream = self.request();
        stream.response();
        stream.answers(body);
    }

    /// Ends the connection with this code.
    pub fn closes(&self, code: u32) {
        self.quic.close(VarInt::from_u32(code), b"");
    }

    /// The code and the words with which the proxy ends the connection.
    pub fn closed(&self) -> (u64, String) {
        closed(&self.runtime, &self.quic)
    }

    /// The frames that the proxy sends on its control stream until there is one of this kind, whose payload it is.
    pub fn hears(&self, kind: u64) -> Vec<u8> {
        hears(&self.runtime, &self.quic, kind)
    }
}

impl Stream {
    /// Answers with 200 and this body.
    pub fn answers(&mut self, body: &str) {
        self.sends_head(&format!(":status: 200\ncontent-length: {}\n", body.len()));
        self.sends_data(body.as_bytes());
        self.ends();
    }
}
