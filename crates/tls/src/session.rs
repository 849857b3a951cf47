//! An encrypted session without I/O: encrypts and decrypts records between the caller's buffers. rustls did the
//! handshake, holds the secrets for key updates, and processes session tickets.

use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ExtractedSecrets, ProtocolVersion};

use crate::record::{Alert, ContentType, Front, OVERHEAD_MAX, Opener, PLAINTEXT_MAX, Sealer};

/// Records in a row without data of the stream. More of them are a waste of the proxy's time.
const IDLE_RECORDS_MAX: u32 = 32;
/// The longest ticket message, in bytes.
const TICKET_MAX: usize = 64 * 1024;
/// RFC 8446 §4, RFC 5246 §7.4: types of messages that follow a handshake.
const HELLO_REQUEST: u8 = 0;
const CLIENT_HELLO: u8 = 1;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
/// RFC 8446 §6: levels of alerts, and alerts that are no errors.
const WARNING: u8 = 1;
const FATAL: u8 = 2;
const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;

pub struct TlsSession {
    sealer: Sealer,
    opener: Opener,
    renewal: KeyRenewal,
    /// Whether the peer asked us to update our key.
    owes_key_update: bool,
    idle_records: u32,
    /// The start of a message that continues in the next record.
    message: Vec<u8>,
    reading: ReadProgress,
}

/// The source of new keys.
pub(crate) enum KeyRenewal {
    Server(Box<KernelConnection<ServerConnectionData>>),
    Client(Box<KernelConnection<ClientConnectionData>>),
    /// TLS 1.2: there are no new keys.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadProgress {
    Open,
    Closed,
    Aborted(u8),
    Refused(Alert),
}

/// The result of decrypting the front of received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenedRecord {
    /// No whole record: more bytes have to arrive.
    Partial,
    /// A whole record that needs this much room in `out`.
    NoRoom(usize),
    /// A record was processed; it may contain no data of the stream.
    Data {
        /// Received bytes that are processed.
        consumed: usize,
        /// Bytes written to `out`.
        data: usize,
    },
    /// The peer has ended its stream (close_notify); later bytes are ignored.
    Closed,
    /// The peer gave up with this alert. Nothing may be sent any more.
    Aborted(u8),
}

impl TlsSession {
    pub(crate) fn new(
        secrets: &ExtractedSecrets,
        version: ProtocolVersion,
        renewal: KeyRenewal,
    ) -> Result<Self, rustls::Error> {
        let refused = |_| rustls::Error::General("a cipher suite that records cannot be made with".into());
        Ok(Self {
            sealer: Sealer::new(&secrets.tx, version).map_err(refused)?,
            opener: Opener::new(&secrets.rx, version).map_err(refused)?,
            renewal: if version == ProtocolVersion::TLSv1_3 { renewal } else { KeyRenewal::Never },
            owes_key_update: false,
            idle_records: 0,
            message: Vec::new(),
            reading: ReadProgress::Open,
        })
    }

    /// The maximum room that `seal` needs for `len` bytes.
    pub const fn sealed_len_max(len: usize) -> usize {
        // Whole records, a shorter first one, and the message before a new key.
        len + (len / PLAINTEXT_MAX + 3) * (OVERHEAD_MAX + 5)
    }

    /// Whether the connection should end soon: its key is exhausted, and TLS 1.2 has no key update. If this is checked
    /// in time, `seal` never fails because of it.
    pub fn is_key_exhausted(&self) -> bool {
        matches!(self.renewal, KeyRenewal::Never) && self.sealer.is_key_exhausted()
    }

    /// Encrypts `plaintext` as records at the start of `out`, the first with at most `first` bytes. Returns their
    /// length. `out` needs the room that `sealed_len_max` returns.
    ///
    /// # Errors
    /// The connection cannot continue; nothing was encrypted.
    pub fn seal(&mut self, plaintext: &[u8], first: usize, out: &mut [u8]) -> Result<usize, Alert> {
        let records_max = plaintext.len() / PLAINTEXT_MAX + 2;
        let is_exhausted =
            matches!(self.renewal, KeyRenewal::Never) && !self.sealer.is_good_for(records_max as u64);
        if is_exhausted || matches!(self.reading, ReadProgress::Aborted(_) | ReadProgress::Refused(_)) {
            return Err(Alert::InternalError);
        }
        let mut len = 0;
        let mut rest = plaintext;
        let mut limit = first.clamp(1, PLAINTEXT_MAX);
        while !rest.is_empty() {
            if self.owes_key_update || self.sealer.is_key_exhausted() {
                len += self.renew_key(&mut out[len..])?;
            }
            let (piece, behind) = rest.split_at(rest.len().min(limit));
            len += self.sealer.seal(ContentType::ApplicationData, piece, &mut out[len..])?;
            (rest, limit) = (behind, PLAINTEXT_MAX);
        }
        Ok(len)
    }

    /// Encrypts a close_notify alert, the end of the stream (RFC 8446 §6.1).
    ///
    /// # Errors
    /// The connection cannot continue.
    pub fn seal_close(&mut self, out: &mut [u8]) -> Result<usize, Alert> {
        self.sealer.seal(ContentType::Alert, &[WARNING, CLOSE_NOTIFY], out)
    }

    /// Encrypts an error alert, after which the connection ends.
    ///
    /// # Errors
    /// The connection cannot continue anyway.
    pub fn seal_alert(&mut self, alert: Alert, out: &mut [u8]) -> Result<usize, Alert> {
        self.sealer.seal(ContentType::Alert, &[FATAL, alert as u8], out)
    }

    /// RFC 8446 §4.6.3: announces our new key with the old one.
    fn renew_key(&mut self, out: &mut [u8]) -> Result<usize, Alert> {
        let secrets = match &mut self.renewal {
            KeyRenewal::Server(kernel) => kernel.update_tx_secret(),
            KeyRenewal::Client(kernel) => kernel.update_tx_secret(),
            // Unreachable: TLS 1.2 has no message that asks for it, and `seal` has checked.
            KeyRenewal::Never => return Ok(0),
        };
        let renewed = Sealer::new(&secrets.map_err(|_| Alert::InternalError)?, ProtocolVersion::TLSv1_3)?;
        let len = self.sealer.seal(ContentType::Handshake, &[KEY_UPDATE, 0, 0, 1, 0], out)?;
        self.sealer = renewed;
        self.owes_key_update = false;
        Ok(len)
    }

    /// Decrypts the record at the front of received bytes into `out`, if it is whole. After the end of the stream, each
    /// call returns that end again.
    ///
    /// # Errors
    /// The alert to send: the peer violated the protocol, or the record was tampered with.
    pub fn open(&mut self, received: &[u8], out: &mut [u8]) -> Result<OpenedRecord, Alert> {
        match self.reading {
            ReadProgress::Open => {}
            ReadProgress::Closed => return Ok(OpenedRecord::Closed),
            ReadProgress::Aborted(description) => return Ok(OpenedRecord::Aborted(description)),
            ReadProgress::Refused(alert) => return Err(alert),
        }
        let opened = self.open_next(received, out);
        match opened {
            Ok(OpenedRecord::Closed) => self.reading = ReadProgress::Closed,
            Ok(OpenedRecord::Aborted(description)) => self.reading = ReadProgress::Aborted(description),
            Ok(_) => {}
            Err(alert) => self.reading = ReadProgress::Refused(alert),
        }
        opened
    }

    fn open_next(&mut self, received: &[u8], out: &mut [u8]) -> Result<OpenedRecord, Alert> {
        let Front::Record { len, room } = self.opener.front(received)? else {
            return Ok(OpenedRecord::Partial);
        };
        if room > out.len() {
            return Ok(OpenedRecord::NoRoom(room));
        }
        let (kind, data) = self.opener.open(&received[..len], out)?;
        // RFC 8446 §5.1: no other record may come between the parts of a message.
        if !self.message.is_empty() && kind != ContentType::Handshake {
            return Err(Alert::UnexpectedMessage);
        }
        if kind == ContentType::ApplicationData && data > 0 {
            self.idle_records = 0;
            return Ok(OpenedRecord::Data { consumed: len, data });
        }
        self.idle_records += 1;
        if self.idle_records > IDLE_RECORDS_MAX {
            return Err(Alert::UnexpectedMessage);
        }
        match kind {
            ContentType::ApplicationData => {}
            ContentType::Alert => return self.alerted(&out[..data], len),
            ContentType::Handshake => self.told(&out[..data])?,
            ContentType::ChangeCipherSpec => return Err(Alert::UnexpectedMessage),
        }
        Ok(OpenedRecord::Data { consumed: len, data: 0 })
    }

    /// Handles an alert (RFC 8446 §6, RFC 5246 §7.2).
    fn alerted(&self, alert: &[u8], consumed: usize) -> Result<OpenedRecord, Alert> {
        let is_old = matches!(self.renewal, KeyRenewal::Never);
        match *alert {
            // RFC 8446 §5.4: an alert must not be empty. §5.1: nor combined with others, or split.
            [] => Err(Alert::UnexpectedMessage),
            [_, CLOSE_NOTIFY] => Ok(OpenedRecord::Closed),
            [WARNING, _] if is_old => Ok(OpenedRecord::Data { consumed, data: 0 }),
            // RFC 8446 §6.1: a close_notify follows it, and its level has no meaning.
            [_, USER_CANCELED] if !is_old => Ok(OpenedRecord::Data { consumed, data: 0 }),
            [_, description] => Ok(OpenedRecord::Aborted(description)),
            _ => Err(Alert::DecodeError),
        }
    }

    /// Handles messages after the handshake; a record may contain parts of them.
    fn told(&mut self, bytes: &[u8]) -> Result<(), Alert> {
        if bytes.is_empty() {
            // RFC 8446 §5.4.
            return Err(Alert::UnexpectedMessage);
        }
        let mut message = std::mem::take(&mut self.message);
        message.extend_from_slice(bytes);
        let mut rest = message.as_slice();
        while let Some((&[kind, a, b, c], behind)) = rest.split_first_chunk::<4>() {
            let len = u32::from_be_bytes([0, a, b, c]) as usize;
            if len > self.message_len_max(kind)? {
                return Err(Alert::DecodeError);
            }
            let Some((body, behind)) = behind.split_at_checked(len) else { break };
            self.message_told(kind, body, behind.is_empty())?;
            rest = behind;
        }
        self.message = rest.to_vec();
        Ok(())
    }

    /// The longest message of this kind. An error if the kind is not allowed, so that nothing of it is kept.
    fn message_len_max(&self, kind: u8) -> Result<usize, Alert> {
        match (kind, &self.renewal) {
            (KEY_UPDATE, KeyRenewal::Server(_) | KeyRenewal::Client(_)) => Ok(1),
            (NEW_SESSION_TICKET, KeyRenewal::Client(_)) => Ok(TICKET_MAX),
            (HELLO_REQUEST | CLIENT_HELLO, KeyRenewal::Never) => Err(Alert::NoRenegotiation),
            _ => Err(Alert::UnexpectedMessage),
        }
    }

    fn message_told(&mut self, kind: u8, body: &[u8], is_last: bool) -> Result<(), Alert> {
        if kind == NEW_SESSION_TICKET
            && let KeyRenewal::Client(kernel) = &mut self.renewal
        {
            return kernel.handle_new_session_ticket(body).map_err(|_| Alert::DecodeError);
        }
        // RFC 8446 §4.6.3.
        let wants_ours = match *body {
            [wanted @ (0 | 1)] => wanted == 1,
            [_] => return Err(Alert::IllegalParameter),
            _ => return Err(Alert::DecodeError),
        };
        if !is_last {
            // RFC 8446 §5.1: later bytes are encrypted with the new key, so nothing may follow in this record.
            return Err(Alert::UnexpectedMessage);
        }
        let secrets = match &mut self.renewal {
            KeyRenewal::Server(kernel) => kernel.update_rx_secret(),
            KeyRenewal::Client(kernel) => kernel.update_rx_secret(),
            KeyRenewal::Never => return Err(Alert::UnexpectedMessage),
        };
        let secrets = secrets.map_err(|_| Alert::InternalError)?;
        self.opener = Opener::new(&secrets, ProtocolVersion::TLSv1_3)?;
        self.owes_key_update |= wants_ours;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite};

    use super::*;
    use crate::handshake::Handshake;
    use crate::record::{KEY_EXHAUSTED_RECORDS, SEALED_MAX};

    const TLS12_CHACHA: SupportedCipherSuite =
        provider::cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    const TLS12: SupportedCipherSuite = provider::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    const TLS13: SupportedCipherSuite = provider::cipher_suite::TLS13_AES_256_GCM_SHA384;
    const TLS13_CHACHA: SupportedCipherSuite = provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;

    /// Both ends of a connection. The first has encrypted this many records.
    fn with_sealed(suite: SupportedCipherSuite, sealed: u64) -> (TlsSession, TlsSession) {
        let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
        let provider = CryptoProvider { cipher_suites: vec![suite], ..provider::default_provider() };
        let provider = Arc::new(provider);
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let server = server.with_protocol_versions(&[suite.version()]).unwrap().with_no_client_auth();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let mut server = server.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        (server.enable_secret_extraction, server.send_tls13_tickets) = (true, 0);
        let client = ClientConfig::builder_with_provider(provider);
        let client = client.with_protocol_versions(&[suite.version()]).unwrap();
        let mut client = client.with_root_certificates(roots).with_no_client_auth();
        client.enable_secret_extraction = true;

        let name = ServerName::try_from("a.example").unwrap();
        let mut client = Handshake::client(Arc::new(client), name).unwrap();
        let mut server = Handshake::server(Arc::new(server)).unwrap();
        let (mut upward, mut downward) = (Vec::new(), Vec::new());
        let mut are_done = [false; 2];
        while are_done != [true; 2] {
            for (index, end) in [&mut client, &mut server].into_iter().enumerate() {
                if !are_done[index] {
                    let advance = end.advance(&mut downward, &mut upward).unwrap();
                    downward.drain(..advance.consumed);
                    are_done[index] = advance.is_done;
                }
                std::mem::swap(&mut upward, &mut downward);
            }
        }
        let (mut client, mut server) = (client.finish().unwrap().0, server.finish().unwrap().0);
        client.sealer.wear(sealed);
        server.opener.wear(sealed);
        (client, server)
    }

    fn opened(session: &mut TlsSession, mut bytes: &[u8]) -> (Vec<u8>, Result<OpenedRecord, Alert>) {
        let (mut data, mut out) = (Vec::new(), vec![0; 20_000]);
        loop {
            match session.open(bytes, &mut out) {
                Ok(OpenedRecord::Data { consumed, data: count }) => {
                    data.extend_from_slice(&out[..count]);
                    bytes = &bytes[consumed..];
                }
                end => return (data, end),
            }
        }
    }

    #[test]
    fn a_key_of_tls13_is_renewed_before_it_is_used_up() {
        let (mut ours, mut theirs) = with_sealed(TLS13, KEY_EXHAUSTED_RECORDS - 2);
        let data: Vec<u8> = (0..40_000).map(|index| (index % 251) as u8).collect();
        let mut out = vec![0; TlsSession::sealed_len_max(data.len())];
        let len = ours.seal(&data, PLAINTEXT_MAX, &mut out).unwrap();
        assert_eq!(len, data.len() + 3 * (5 + 17) + (5 + 5 + 17));
        assert_eq!(opened(&mut theirs, &out[..len]), (data, Ok(OpenedRecord::Partial)));
        assert!(!ours.is_key_exhausted());
    }

    #[test]
    fn a_connection_of_tls12_ends_before_its_key_is_used_up() {
        let (ours, _) = with_sealed(TLS12, KEY_EXHAUSTED_RECORDS - 1);
        assert!(!ours.is_key_exhausted());
        let (mut ours, mut theirs) = with_sealed(TLS12, KEY_EXHAUSTED_RECORDS);
        assert!(ours.is_key_exhausted());
        let mut out = [0; 200];
        let len = ours.seal(b"what is under way", 100, &mut out).unwrap();
        assert_eq!(opened(&mut theirs, &out[..len]).0, b"what is under way");

        // If the end continues anyway, the other side can tell that the stream is incomplete.
        let (mut ours, mut theirs) = with_sealed(TLS12, SEALED_MAX - 3);
        let len = ours.seal(b"a", 100, &mut out).unwrap();
        let more = ours.seal(b"b", 100, &mut out[len..]);
        assert_eq!(more, Err(Alert::InternalError));
        let len = len + ours.seal_alert(Alert::InternalError, &mut out[len..]).unwrap();
        assert_eq!(opened(&mut theirs, &out[..len]), (b"a".to_vec(), Ok(OpenedRecord::Aborted(80))));
    }

    #[test]
    fn chacha_does_not_wear_out() {
        for suite in [TLS12_CHACHA, TLS13_CHACHA] {
            let (mut ours, mut theirs) = with_sealed(suite, SEALED_MAX + 7);
            assert!(!ours.is_key_exhausted());
            let mut out = [0; 200];
            let len = ours.seal(b"hello", 100, &mut out).unwrap();
            assert_eq!(len, 5 + 5 + 16 + usize::from(suite == TLS13_CHACHA));
            assert_eq!(opened(&mut theirs, &out[..len]).0, b"hello");
        }
    }

    #[test]
    fn no_number_is_used_twice() {
        let (mut ours, mut theirs) = with_sealed(TLS13_CHACHA, u64::MAX - 1);
        let mut out = [0; 200];
        let len = ours.seal(b"last", 100, &mut out).unwrap();
        assert_eq!(opened(&mut theirs, &out[..len]).0, b"last");
        assert_eq!(ours.seal(b"one more", 100, &mut out), Err(Alert::InternalError));
    }
}
