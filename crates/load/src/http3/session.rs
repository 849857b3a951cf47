//! TLS within QUIC (RFC 9001): the client's handshake, its negotiated parameters, and the reason of a failure.

use std::any::Any;
use std::io::Cursor;
use std::sync::Arc;

use aws_lc_rs::aead;
use quinn_proto::crypto::{self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, KeyChange, Secrets, Suite, Version};
use rustls::{ClientConfig, HandshakeKind};

use crate::secure::Agreed;

/// RFC 9001 §5.8: public key and nonce of the tags of Retry packets.
const RETRY_KEY: [u8; 16] =
    [0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e];
const RETRY_NONCE: [u8; 12] = [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];

pub(super) struct HandshakeOutcome {
    pub(super) agreed: Option<Agreed>,
    pub(super) has_http3: bool,
    pub(super) error: Option<rustls::Error>,
}

pub(super) struct H3LoadClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    initial: Suite,
}

impl H3LoadClient {
    /// `None` if the TLS library has no cipher suite for the first packets.
    pub(super) fn new(config: Arc<ClientConfig>, name: ServerName<'static>) -> Option<Self> {
        let initial = TLS13_AES_128_GCM_SHA256.tls13()?.quic_suite()?;
        Some(Self { config, name, initial })
    }
}

impl crypto::ClientConfig for H3LoadClient {
    fn start_session(
        self: Arc<Self>,
        _: u32,
        _: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, ConnectError> {
        let mut written = Vec::new();
        params.write(&mut written);
        let made = ClientConnection::new(Arc::clone(&self.config), Version::V1, self.name.clone(), written);
        // The configuration permits TLS 1.3, which was checked before.
        let connection = made.map_err(|error| ConnectError::InvalidServerName(error.to_string()))?;
        Ok(Box::new(H3Handshake {
            connection,
            initial: self.initial,
            next: None,
            is_told: false,
            error: None,
        }))
    }
}

/// A handshake, and the keys that follow it.
struct H3Handshake {
    connection: ClientConnection,
    initial: Suite,
    next: Option<Secrets>,
    /// Whether the end of the handshake was reported.
    is_told: bool,
    error: Option<rustls::Error>,
}

impl crypto::Session for H3Handshake {
    fn initial_keys(&self, dst_cid: &ConnectionId, _: Side) -> Keys {
        boxed(self.initial.keys(dst_cid, rustls::Side::Client, Version::V1))
    }

    /// The state of the handshake, before and after its end.
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let agreed = || {
            Some(Agreed {
                version: self.connection.protocol_version()?,
                suite: self.connection.negotiated_cipher_suite()?.suite(),
                is_resumed: self.connection.handshake_kind()? == HandshakeKind::Resumed,
            })
        };
        let has_http3 = self.connection.alpn_protocol() == Some(b"h3");
        Some(Box::new(HandshakeOutcome { agreed: agreed(), has_http3, error: self.error.clone() }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        // No early data, because a whole handshake is measured.
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    fn read_handshake(&mut self, received: &[u8]) -> Result<bool, TransportError> {
        self.connection.read_hs(received).map_err(|error| {
            // RFC 9001 §4.8.
            let alert = self.connection.alert().map(u8::from);
            let code = alert.map_or(TransportErrorCode::PROTOCOL_VIOLATION, TransportErrorCode::crypto);
            let reason = error.to_string();
            self.error = Some(error);
            TransportError { code, frame: None, reason }
        })?;
        let is_news = !self.is_told && !self.is_handshaking();
        self.is_told |= is_news;
        Ok(is_news)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(written) = self.connection.quic_transport_parameters() else { return Ok(None) };
        Ok(Some(TransportParameters::read(Side::Client, &mut Cursor::new(written))?))
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

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        // RFC 9001 §5.8: the tag covers the client's first destination connection ID, and the packet.
        let Some((content, tag)) = payload.split_last_chunk::<16>() else { return false };
        let covered = [&[orig_dst_cid.len() as u8][..], orig_dst_cid, header, content].concat();
        let Ok(key) = aead::UnboundKey::new(&aead::AES_128_GCM, &RETRY_KEY) else { return false };
        let nonce = aead::Nonce::assume_unique_for_key(RETRY_NONCE);
        let mut tag = *tag;
        aead::LessSafeKey::new(key).open_in_place(nonce, aead::Aad::from(covered), &mut tag).is_ok()
    }

    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        // QUIC needs none.
        Err(ExportKeyingMaterialError)
    }
}

fn boxed(keys: rustls::quic::Keys) -> Keys {
    Keys {
        header: KeyPair { local: Box::new(keys.local.header), remote: Box::new(keys.remote.header) },
        packet: KeyPair { local: Box::new(keys.local.packet), remote: Box::new(keys.remote.packet) },
    }
}
