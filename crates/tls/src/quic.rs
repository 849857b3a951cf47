//! TLS for QUIC (RFC 9001): the handshakes of a listener's clients, and the keys of its endpoints.
//!
//! Packets are for the QUIC implementation: it gets the keys, and asks nobody here for the path of a request.

use std::any::Any;
use std::io::Cursor;
use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::{hkdf, hmac};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::crypto::{
    self, ExportKeyingMaterialError, HandshakeTokenKey, HeaderKey, HmacKey, KeyPair, Keys, PacketKey,
    UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{KeyChange, Secrets, ServerConnection, Suite, Version};

use crate::handshake::Agreed;
use crate::store;

/// The ALPN name of HTTP/3 (RFC 9114 §3.1).
pub(crate) const H3: &str = "h3";

/// The bytes of a process's secret for QUIC.
pub const QUIC_SECRET_BYTES: usize = 32;

/// The keys that all QUIC endpoints of a process share.
pub struct QuicKeys {
    /// For stateless resets (RFC 9000 §10.3).
    pub resets: Arc<dyn HmacKey>,
    /// For address validation tokens (RFC 9000 §8.1).
    pub tokens: Arc<dyn HandshakeTokenKey>,
    /// Hides what connection IDs tell.
    pub connection_ids: [u8; 16],
}

impl QuicKeys {
    /// Derives the keys from the secret of the process.
    pub fn new(secret: &[u8; QUIC_SECRET_BYTES]) -> Self {
        let derive = |label: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), label);
        let mut connection_ids = [0; 16];
        connection_ids.copy_from_slice(&derive(b"connection ids").as_ref()[..16]);
        let tokens = hkdf::Salt::new(hkdf::HKDF_SHA256, b"tokens").extract(derive(b"tokens").as_ref());
        Self {
            resets: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, derive(b"resets").as_ref())),
            tokens: Arc::new(tokens),
            connection_ids,
        }
    }
}

/// The cipher suite of Initial packets (RFC 9001 §5.2), whichever suites clients may choose afterwards.
fn initial_suite() -> Option<Suite> {
    TLS13_AES_128_GCM_SHA256.tls13()?.quic_suite()
}

/// The listener's side of QUIC handshakes.
pub(crate) struct QuicServer {
    config: Arc<rustls::ServerConfig>,
    initial: Suite,
    /// Initial keys and the tags of Retry packets, which need no session.
    sessionless: Arc<QuicServerConfig>,
    /// The address that the client has connected to.
    address: Option<IpAddr>,
}

impl QuicServer {
    /// `None` if the configuration does not permit TLS 1.3.
    pub(crate) fn new(config: Arc<rustls::ServerConfig>, address: Option<IpAddr>) -> Option<Self> {
        let initial = initial_suite()?;
        // Later handshakes cannot fail for the configuration where one can be begun.
        ServerConnection::new(Arc::clone(&config), Version::V1, Vec::new()).ok()?;
        let sessionless = QuicServerConfig::with_initial(Arc::clone(&config), initial).ok()?;
        Some(Self { config, initial, sessionless: Arc::new(sessionless), address })
    }
}

impl crypto::ServerConfig for QuicServer {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let mut written = Vec::new();
        params.write(&mut written);
        match ServerConnection::new(Arc::clone(&self.config), Version::V1, written) {
            Ok(connection) => Box::new(Session {
                connection,
                initial: self.initial,
                address: self.address,
                next: None,
                is_told: false,
            }),
            // `new` has begun one with the same configuration.
            Err(_) => Arc::clone(&self.sessionless).start_session(version, params),
        }
    }

    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.sessionless.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.sessionless.retry_tag(version, orig_dst_cid, packet)
    }
}

/// A handshake, and the keys that follow it. Unlike the session of the QUIC implementation it tells which cipher suite was
/// chosen, and whether the client has resumed a session.
struct Session {
    connection: ServerConnection,
    initial: Suite,
    address: Option<IpAddr>,
    next: Option<Secrets>,
    /// Whether the end of the handshake was told.
    is_told: bool,
}

impl crypto::Session for Session {
    fn initial_keys(&self, dst_cid: &ConnectionId, _: Side) -> Keys {
        boxed(self.initial.keys(dst_cid, rustls::Side::Server, Version::V1))
    }

    /// What was agreed on, as [`Agreed`].
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let server_name = self.connection.server_name().map(Box::from);
        self.is_told
            .then(|| -> Box<dyn Any> { Box::new(Agreed { server_name, ..Agreed::of(&self.connection) }) })
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        // RFC 8446 §8: early data could be replayed. None is accepted.
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    fn read_handshake(&mut self, received: &[u8]) -> Result<bool, TransportError> {
        store::take_refusal();
        store::set_address(self.address);
        self.connection.read_hs(received).map_err(|error| {
            let alert = store::take_refusal().or(self.connection.alert().map(u8::from));
            // RFC 9001 §4.8.
            let code = alert.map_or(TransportErrorCode::PROTOCOL_VIOLATION, TransportErrorCode::crypto);
            TransportError { code, frame: None, reason: error.to_string() }
        })?;
        let is_news = !self.is_told && !self.is_handshaking();
        self.is_told |= is_news;
        Ok(is_news)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(written) = self.connection.quic_transport_parameters() else { return Ok(None) };
        Ok(Some(TransportParameters::read(Side::Server, &mut Cursor::new(written))?))
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        Some(boxed(match self.connection.write_hs(out)? {
            KeyChange::Handshake { keys } => keys,
            KeyChange::OneRtt { keys, next } => {
                self.next = Some(next);
                keys
            }
        }))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next.as_mut()?.next_packet_keys();
        Some(KeyPair { local: Box::new(keys.local), remote: Box::new(keys.remote) })
    }

    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        // Only servers send Retry packets.
        false
    }

    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        // Nobody asks for any.
        Err(ExportKeyingMaterialError)
    }
}

fn boxed(keys: rustls::quic::Keys) -> Keys {
    Keys {
        header: KeyPair { local: Box::new(keys.local.header), remote: Box::new(keys.remote.header) },
        packet: KeyPair { local: Box::new(keys.local.packet), remote: Box::new(keys.remote.packet) },
    }
}
