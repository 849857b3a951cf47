//! TLS for QUIC (RFC 9001): the handshakes with clients and with servers, and the keys of endpoints.
//!
//! The QUIC implementation handles packets with these keys. It does not call this module for each request.

use std::any::Any;
use std::io::Cursor;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::{aead, hkdf, hmac};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::crypto::{
    self, ExportKeyingMaterialError, HandshakeTokenKey, HeaderKey, HmacKey, KeyPair, Keys, PacketKey,
    UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::AlertDescription;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, Connection, KeyChange, Secrets, ServerConnection, Suite, Version};

use crate::handshake::Agreed;
use crate::reason::{reason, reason_of_client};
use crate::store;

/// The ALPN name of HTTP/3 (RFC 9114 §3.1).
pub(crate) const H3: &str = "h3";

pub const QUIC_SECRET_BYTES: usize = 32;

/// Derives the secret of a process from the content of a file, of any length.
pub fn quic_secret(written: &[u8]) -> [u8; QUIC_SECRET_BYTES] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, written), b"vanward QUIC");
    let mut secret = [0; QUIC_SECRET_BYTES];
    secret.copy_from_slice(tag.as_ref());
    secret
}

/// The keys that all QUIC endpoints of a process share.
pub struct QuicKeys {
    /// For stateless resets (RFC 9000 §10.3).
    pub resets: Arc<dyn HmacKey>,
    /// For address validation tokens (RFC 9000 §8.1).
    pub tokens: Arc<dyn HandshakeTokenKey>,
    /// Encrypts the owners in connection IDs.
    pub connection_ids: [u8; 16],
}

impl QuicKeys {
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

/// The cipher suite of Initial packets (RFC 9001 §5.2). Clients may choose any suite afterwards.
fn initial_suite() -> Option<Suite> {
    TLS13_AES_128_GCM_SHA256.tls13()?.quic_suite()
}

/// The listener's side of QUIC handshakes.
pub(crate) struct QuicServer {
    config: Arc<rustls::ServerConfig>,
    initial: Suite,
    /// Initial keys and the tags of Retry packets, which need no session.
    sessionless: Arc<QuicServerConfig>,
    /// The local address of the client's connection.
    address: Option<IpAddr>,
    /// Whether handshakes end with an alert at the beginning.
    fails: bool,
}

impl QuicServer {
    /// A copy whose handshakes end with an alert at the beginning.
    pub(crate) fn failing(self) -> Self {
        Self { fails: true, ..self }
    }

    /// `None` if the configuration does not permit TLS 1.3.
    pub(crate) fn new(config: Arc<rustls::ServerConfig>, address: Option<IpAddr>) -> Option<Self> {
        let initial = initial_suite()?;
        // If one handshake can begin, the configuration cannot make later ones fail.
        ServerConnection::new(Arc::clone(&config), Version::V1, Vec::new()).ok()?;
        let sessionless = QuicServerConfig::with_initial(Arc::clone(&config), initial).ok()?;
        Some(Self { config, initial, sessionless: Arc::new(sessionless), address, fails: false })
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
            Ok(connection) => {
                let session = QuicSession::new(Connection::Server(connection), self.initial, self.address);
                Box::new(QuicSession { fails: self.fails, ..session })
            }
            // `new` has already started one with the same configuration.
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

/// The proxy's side of handshakes with servers.
pub(crate) struct QuicClient {
    config: Arc<rustls::ClientConfig>,
    initial: Suite,
}

impl QuicClient {
    pub(crate) fn new(config: Arc<rustls::ClientConfig>) -> Option<Self> {
        initial_suite().map(|initial| Self { config, initial })
    }
}

impl crypto::ClientConfig for QuicClient {
    fn start_session(
        self: Arc<Self>,
        _: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, ConnectError> {
        let mut written = Vec::new();
        params.write(&mut written);
        let refused = || ConnectError::InvalidServerName(server_name.to_owned());
        let name = ServerName::try_from(server_name.to_owned()).map_err(|_| refused())?;
        let connection = ClientConnection::new(Arc::clone(&self.config), Version::V1, name, written);
        let connection = Connection::Client(connection.map_err(|_| refused())?);
        Ok(Box::new(QuicSession::new(connection, self.initial, None)))
    }
}

/// A handshake, and the keys that follow it. Unlike the session of the QUIC implementation, it reports the cipher
/// suite, and whether a session was resumed. It is small once the handshake is over.
struct QuicSession {
    /// The handshake. For a client's connection it is dropped at the end; a server may send tickets later.
    connection: Option<Box<Connection>>,
    side: Side,
    initial: Suite,
    /// The local address of a client's connection.
    address: Option<IpAddr>,
    next: Option<Secrets>,
    /// The result of the handshake, until the first call that takes it.
    agreed: Mutex<Option<Box<Agreed>>>,
    /// Whether the end of the handshake was reported.
    is_told: bool,
    /// Whether the handshake ends with an alert at the beginning.
    fails: bool,
}

impl QuicSession {
    fn new(connection: Connection, initial: Suite, address: Option<IpAddr>) -> Self {
        let side = match connection {
            Connection::Client(_) => Side::Client,
            Connection::Server(_) => Side::Server,
        };
        let connection = Some(Box::new(connection));
        Self {
            connection,
            side,
            initial,
            address,
            next: None,
            agreed: Mutex::default(),
            is_told: false,
            fails: false,
        }
    }

    /// Describes a handshake error for the log.
    fn words(&self, error: &rustls::Error) -> String {
        if self.side.is_client() { reason(error, "tls") } else { reason_of_client(error) }
    }
}

impl crypto::Session for QuicSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        let side = if side.is_client() { rustls::Side::Client } else { rustls::Side::Server };
        boxed(self.initial.keys(dst_cid, side, Version::V1))
    }

    /// Returns [`Agreed`] to the first caller.
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let agreed = self.agreed.lock().unwrap_or_else(PoisonError::into_inner).take();
        agreed.map(|agreed| -> Box<dyn Any> { agreed })
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        // RFC 8446 §8: early data could be replayed. It is neither accepted nor sent.
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.is_handshaking())
    }

    fn read_handshake(&mut self, received: &[u8]) -> Result<bool, TransportError> {
        if self.fails {
            let code = TransportErrorCode::crypto(AlertDescription::HandshakeFailure.into());
            return Err(TransportError { code, frame: None, reason: "it was refused on purpose".to_owned() });
        }
        let Some(connection) = &mut self.connection else {
            // RFC 9001 §4.4, §6: a client must send neither certificates nor key updates after its handshake.
            let code = TransportErrorCode::crypto(AlertDescription::UnexpectedMessage.into());
            let reason = "a message of TLS after the handshake".to_owned();
            return Err(TransportError { code, frame: None, reason });
        };
        store::take_refusal();
        store::set_address(self.address);
        if let Err(error) = connection.read_hs(received) {
            let alert = store::take_refusal().or(connection.alert().map(u8::from));
            // RFC 9001 §4.8.
            let code = alert.map_or(TransportErrorCode::PROTOCOL_VIOLATION, TransportErrorCode::crypto);
            return Err(TransportError { code, frame: None, reason: self.words(&error) });
        }
        let is_news = !self.is_told && !connection.is_handshaking();
        if is_news {
            let server_name = match &**connection {
                Connection::Server(connection) => connection.server_name().map(Box::from),
                Connection::Client(_) => None,
            };
            let agreed = Agreed { server_name, ..Agreed::from_common(connection) };
            self.agreed = Mutex::new(Some(Box::new(agreed)));
            self.is_told = true;
        }
        Ok(is_news)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let connection = self.connection.as_ref();
        let Some(written) = connection.and_then(|connection| connection.quic_transport_parameters()) else {
            return Ok(None);
        };
        Ok(Some(TransportParameters::read(self.side, &mut Cursor::new(written))?))
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let Some(change) = self.connection.as_mut()?.write_hs(out) else {
            // The tickets were sent, too. Drops three kilobytes that only handshakes need, so that an idle connection
            // is small.
            if self.is_told && self.side.is_server() && out.is_empty() {
                self.connection = None;
            }
            return None;
        };
        Some(boxed(match change {
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

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.side.is_client() && is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        // Never called.
        Err(ExportKeyingMaterialError)
    }
}

/// Checks the tag of a Retry packet (RFC 9001 §5.8).
fn is_valid_retry(orig_dst_cid: &[u8], header: &[u8], payload: &[u8]) -> bool {
    const KEY: [u8; 16] = *b"\xbe\x0c\x69\x0b\x9f\x66\x57\x5a\x1d\x76\x6b\x54\xe3\x68\xc8\x4e";
    const NONCE: [u8; 12] = *b"\x46\x15\x99\xd3\x5d\x63\x2b\xf2\x23\x98\x25\xbb";
    const TAG: usize = 16;
    let (Some((rest, tag)), Ok(len)) = (payload.split_last_chunk::<TAG>(), u8::try_from(orig_dst_cid.len()))
    else {
        return false;
    };
    let packet = [&[len], orig_dst_cid, header, rest].concat();
    let Ok(key) = aead::UnboundKey::new(&aead::AES_128_GCM, &KEY).map(aead::LessSafeKey::new) else {
        return false;
    };
    let nonce = aead::Nonce::assume_unique_for_key(NONCE);
    key.open_in_place(nonce, aead::Aad::from(packet), &mut tag.to_vec()).is_ok()
}

fn boxed(keys: rustls::quic::Keys) -> Keys {
    Keys {
        header: KeyPair { local: Box::new(keys.local.header), remote: Box::new(keys.remote.header) },
        packet: KeyPair { local: Box::new(keys.local.packet), remote: Box::new(keys.remote.packet) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_packet_is_believed_if_its_tag_is_right() {
        // RFC 9001 §A.4.
        let id = *b"\x83\x94\xc8\xf0\x3e\x51\x57\x08";
        let header = *b"\xff\x00\x00\x00\x01\x00\x08\xf0\x67\xa5\x50\x2a\x42\x62\xb5";
        let tag = *b"\x04\xa2\x65\xba\x2e\xff\x4d\x82\x90\x58\xfb\x3f\x0f\x24\x96\xba";
        let payload = [&b"token"[..], &tag].concat();
        assert!(is_valid_retry(&id, &header, &payload));
        assert!(!is_valid_retry(&id[1..], &header, &payload));
        assert!(!is_valid_retry(&id, &header, &payload[1..]));
        assert!(!is_valid_retry(&id, &header, &tag[1..]));
    }

    /// All messages that a session can send now. Each piece is encrypted with the same keys.
    fn said(session: &mut dyn crypto::Session) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let mut out = Vec::new();
            let has_keys = session.write_handshake(&mut out).is_some();
            if out.is_empty() && !has_keys {
                return all;
            }
            all.push(out);
        }
    }

    /// Whether these messages end the handshake of a session.
    fn ends(session: &mut dyn crypto::Session, said: &[Vec<u8>]) -> bool {
        said.iter().fold(false, |ends, piece| ends | session.read_handshake(piece).unwrap())
    }

    #[test]
    fn a_server_s_session_forgets_its_handshake_and_a_client_s_takes_tickets() {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(signing_key.serialize_der()).into();
        let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        server.alpn_protocols = vec![H3.into()];
        let mut roots = rustls::RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let mut client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![H3.into()];

        let parameters = TransportParameters::read(Side::Client, &mut Cursor::new(b"")).unwrap();
        let server = Arc::new(QuicServer::new(Arc::new(server), None).unwrap());
        let mut server = crypto::ServerConfig::start_session(server, 1, &parameters);
        let client = Arc::new(QuicClient::new(Arc::new(client)).unwrap());
        let mut client = crypto::ClientConfig::start_session(client, 1, "a.test", &parameters).unwrap();
        assert!(!ends(&mut *server, &said(&mut *client)));
        assert!(ends(&mut *client, &said(&mut *server)));
        assert!(server.handshake_data().is_none(), "it is not over yet");
        assert!(ends(&mut *server, &said(&mut *client)));
        let tickets = said(&mut *server);
        assert!(!tickets.is_empty() && !server.is_handshaking() && server.next_1rtt_keys().is_some());
        let agreed = server.handshake_data().and_then(|told| told.downcast::<Agreed>().ok()).unwrap();
        assert_eq!((agreed.protocol, agreed.server_name.as_deref()), (H3, Some("a.test")));
        assert!(server.handshake_data().is_none(), "it is told once");
        assert!(!ends(&mut *client, &tickets));
        assert!(client.handshake_data().is_some());
        // RFC 8446 §4.6.3: a KeyUpdate.
        let error = server.read_handshake(b"\x18\0\0\x01\0").unwrap_err();
        assert_eq!(error.code, TransportErrorCode::crypto(10), "{error}");
    }
}
