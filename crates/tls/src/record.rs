//! The record layer (RFC 8446 §5, RFC 5246 §6.2) between the caller's buffers. Encrypts plaintext into the send buffer,
//! and decrypts records from the receive buffer directly into the reader's buffer.
//!
//! rustls did the handshake and supplies the keys; aws-lc-rs supplies the ciphers.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};

/// Type, version and length.
const HEADER_LEN: usize = 5;
/// The maximum plaintext of a record (RFC 8446 §5.1).
pub const PLAINTEXT_MAX: usize = 1 << 14;
/// The maximum overhead of a record that the proxy encrypts: header, explicit nonce or type, tag.
pub const OVERHEAD_MAX: usize = HEADER_LEN + NONCE_EXPLICIT_LEN + TAG_LEN;
/// The largest record that is accepted (RFC 8446 §5.2). TLS 1.2 allows more, which no peer sends without compression.
pub const RECORD_MAX: usize = HEADER_LEN + PLAINTEXT_MAX + 256;

const TAG_LEN: usize = 16;
const NONCE_LEN: usize = 12;
/// The part of the nonce that AES-GCM sends in TLS 1.2 (RFC 5288 §3).
const NONCE_EXPLICIT_LEN: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentType {
    /// ChangeCipherSpec: has no meaning in TLS 1.3, or after a handshake.
    ChangeCipherSpec,
    /// The end of the stream (close_notify), or an error.
    Alert,
    /// A handshake message after the handshake: session tickets and key updates.
    Handshake,
    /// Bytes of the stream.
    ApplicationData,
}

impl ContentType {
    fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            20 => Self::ChangeCipherSpec,
            21 => Self::Alert,
            22 => Self::Handshake,
            23 => Self::ApplicationData,
            _ => return None,
        })
    }

    fn byte(self) -> u8 {
        match self {
            Self::ChangeCipherSpec => 20,
            Self::Alert => 21,
            Self::Handshake => 22,
            Self::ApplicationData => 23,
        }
    }
}

/// The alert to send when a connection cannot continue (RFC 8446 §6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Alert {
    /// A message that is not allowed here.
    UnexpectedMessage = 10,
    /// A record that fails authentication.
    BadRecordMac = 20,
    /// A record above the size limit.
    RecordOverflow = 22,
    /// A value that the message does not permit.
    IllegalParameter = 47,
    /// A message that cannot be parsed.
    DecodeError = 50,
    /// A record of another version than was negotiated.
    ProtocolVersion = 70,
    /// An internal error, or a key that is exhausted.
    InternalError = 80,
    /// TLS 1.2: the peer asks for a renegotiation.
    NoRenegotiation = 100,
}

/// The layout of a connection's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordShape {
    /// TLS 1.3: the content type is encrypted, behind the plaintext.
    TypeInside,
    /// TLS 1.2 with AES-GCM: a part of the nonce is sent.
    NonceSent,
    /// TLS 1.2 with ChaCha20-Poly1305 (RFC 7905): no explicit nonce.
    Plain,
}

/// A key, its nonces, and the layout of its records.
struct Cipher {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
    shape: RecordShape,
}

impl Cipher {
    fn new(
        sequence: u64,
        secrets: &ConnectionTrafficSecrets,
        version: ProtocolVersion,
    ) -> Result<Self, Alert> {
        let (algorithm, key, iv): (&'static Algorithm, _, _) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            // Such suites are not offered.
            _ => return Err(Alert::InternalError),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| Alert::InternalError)?;
        let shape = match (version, secrets) {
            (ProtocolVersion::TLSv1_3, _) => RecordShape::TypeInside,
            (_, ConnectionTrafficSecrets::Chacha20Poly1305 { .. }) => RecordShape::Plain,
            _ => RecordShape::NonceSent,
        };
        let iv = iv.as_ref().try_into().map_err(|_| Alert::InternalError)?;
        Ok(Self { key: LessSafeKey::new(key), iv, sequence, shape })
    }

    /// RFC 8446 §5.3; RFC 5288 leaves the choice to the sender, and RFC 7905 §2 requires the same.
    fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        for (byte, of_sequence) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        nonce
    }

    /// The associated data: the header as sent, or in TLS 1.2 the sequence number and the header of the plaintext
    /// record (RFC 5246 §6.2.3.3).
    fn associated(&self, kind: u8, plaintext_len: usize, sent_len: usize) -> Associated {
        let mut bytes = [0; 13];
        match self.shape {
            RecordShape::TypeInside => bytes[..HEADER_LEN].copy_from_slice(&header(kind, sent_len)),
            RecordShape::NonceSent | RecordShape::Plain => {
                bytes[..8].copy_from_slice(&self.sequence.to_be_bytes());
                bytes[8..].copy_from_slice(&header(kind, plaintext_len));
            }
        }
        Associated { bytes, len: if self.shape == RecordShape::TypeInside { HEADER_LEN } else { 13 } }
    }

    /// Whether the number of records per key is limited for security. ChaCha20-Poly1305 is limited only by its sequence
    /// numbers.
    fn has_limit(&self) -> bool {
        self.key.algorithm() != &CHACHA20_POLY1305
    }

    /// RFC 8446 §5.3, RFC 5246 §6.1: a sequence number is used once. The last one is never reached in practice.
    fn count(&mut self) -> Result<(), Alert> {
        self.sequence = self.sequence.checked_add(1).ok_or(Alert::InternalError)?;
        Ok(())
    }

    /// Bytes between the header and the ciphertext.
    fn nonce_sent_len(&self) -> usize {
        if self.shape == RecordShape::NonceSent { NONCE_EXPLICIT_LEN } else { 0 }
    }
}

struct Associated {
    bytes: [u8; 13],
    len: usize,
}

impl AsRef<[u8]> for Associated {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The length of the record at the front of `bytes`. `None` if the header has not arrived.
pub(crate) fn len(bytes: &[u8]) -> Option<usize> {
    let &[_, _, _, high, low] = bytes.first_chunk::<HEADER_LEN>()?;
    Some(HEADER_LEN + usize::from(u16::from_be_bytes([high, low])))
}

/// A fatal alert in plaintext, for use before there are keys.
pub(crate) fn unsealed_alert(description: u8) -> [u8; HEADER_LEN + 2] {
    let [kind, major, minor, high, low] = header(ContentType::Alert.byte(), 2);
    [kind, major, minor, high, low, 2, description]
}

fn header(kind: u8, len: usize) -> [u8; HEADER_LEN] {
    // No record is longer than 2^16.
    let len = (len as u16).to_be_bytes();
    [kind, 3, 3, len[0], len[1]]
}

/// The maximum number of records under one key: 2^24.5 for AES-GCM (RFC 8446 §5.5), to keep its security margin.
pub(crate) const SEALED_MAX: u64 = 23_726_566;
/// The number of records after which a key is renewed, or its connection ended. Leaves room for a long response.
pub(crate) const KEY_EXHAUSTED_RECORDS: u64 = 1 << 24;

pub(crate) struct Sealer(Cipher);

impl Sealer {
    pub(crate) fn new(
        (sequence, secrets): &(u64, ConnectionTrafficSecrets),
        version: ProtocolVersion,
    ) -> Result<Self, Alert> {
        Cipher::new(*sequence, secrets, version).map(Self)
    }

    /// Whether the key has encrypted nearly as many records as it may.
    pub(crate) fn is_key_exhausted(&self) -> bool {
        self.0.sequence >= KEY_EXHAUSTED_RECORDS && self.0.has_limit()
    }

    /// Whether the key may encrypt this many further records, and an alert behind them.
    pub(crate) fn is_good_for(&self, records: u64) -> bool {
        self.0.sequence + records < SEALED_MAX || !self.0.has_limit()
    }

    /// Encrypts at most `PLAINTEXT_MAX` bytes as one record at the start of `out`, which needs room for `OVERHEAD_MAX`
    /// more. Returns the record's length.
    pub(crate) fn seal(
        &mut self,
        kind: ContentType,
        plaintext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Alert> {
        let Self(cipher) = self;
        assert!(plaintext.len() <= PLAINTEXT_MAX, "who cuts into records keeps to their limit");
        let nonce = cipher.nonce();
        let kind_inside = [kind.byte()];
        let (outer, inside): (u8, &[u8]) = match cipher.shape {
            RecordShape::TypeInside => (ContentType::ApplicationData.byte(), &kind_inside),
            RecordShape::NonceSent | RecordShape::Plain => (kind.byte(), &[]),
        };
        let sent_len = cipher.nonce_sent_len() + plaintext.len() + inside.len() + TAG_LEN;
        let record = out.get_mut(..HEADER_LEN + sent_len).ok_or(Alert::InternalError)?;
        let (head, sealed) = record.split_at_mut(HEADER_LEN + cipher.nonce_sent_len());
        head[..HEADER_LEN].copy_from_slice(&header(outer, sent_len));
        head[HEADER_LEN..].copy_from_slice(&nonce[NONCE_LEN - cipher.nonce_sent_len()..]);
        let (ciphertext, tail) = sealed.split_at_mut(plaintext.len());
        let associated = cipher.associated(outer, plaintext.len(), sent_len);
        cipher
            .key
            .seal_out_of_place_scatter(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(associated),
                plaintext,
                ciphertext,
                inside,
                tail,
            )
            .map_err(|_| Alert::InternalError)?;
        cipher.count()?;
        Ok(HEADER_LEN + sent_len)
    }
}

#[cfg(test)]
impl Sealer {
    /// For tests: pretends that this many records were encrypted.
    pub(crate) fn wear(&mut self, sealed: u64) {
        self.0.sequence = sealed;
    }
}

#[cfg(test)]
impl Opener {
    /// For tests: pretends that this many records were decrypted.
    pub(crate) fn wear(&mut self, opened: u64) {
        self.0.sequence = opened;
    }
}

/// The state of the front of received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    /// An incomplete record, or nothing.
    Partial,
    /// A record of `len` bytes, including its header, that decrypts to at most `room` bytes.
    Record { len: usize, room: usize },
}

pub(crate) struct Opener(Cipher);

impl Opener {
    pub(crate) fn new(
        (sequence, secrets): &(u64, ConnectionTrafficSecrets),
        version: ProtocolVersion,
    ) -> Result<Self, Alert> {
        Cipher::new(*sequence, secrets, version).map(Self)
    }

    /// Examines the front of received bytes.
    pub(crate) fn front(&self, received: &[u8]) -> Result<Front, Alert> {
        let Some(&[kind, major, minor, high, low]) = received.first_chunk::<HEADER_LEN>() else {
            return Ok(Front::Partial);
        };
        // RFC 8446 §5: after the handshake there are no plaintext records, and the outer type of encrypted ones is
        // application data.
        match (self.0.shape, ContentType::parse(kind)) {
            (RecordShape::TypeInside, Some(ContentType::ApplicationData)) => {}
            (RecordShape::NonceSent | RecordShape::Plain, Some(_)) => {}
            _ => return Err(Alert::UnexpectedMessage),
        }
        if (major, minor) != (3, 3) {
            return Err(Alert::ProtocolVersion);
        }
        let sent_len = usize::from(u16::from_be_bytes([high, low]));
        if HEADER_LEN + sent_len > RECORD_MAX {
            return Err(Alert::RecordOverflow);
        }
        let room = sent_len.checked_sub(self.0.nonce_sent_len() + TAG_LEN).ok_or(Alert::BadRecordMac)?;
        let len = HEADER_LEN + sent_len;
        Ok(if received.len() < len { Front::Partial } else { Front::Record { len, room } })
    }

    /// Decrypts a whole record into `out`, which has the room that `front` returned. Returns its content type and
    /// length.
    pub(crate) fn open(&mut self, record: &[u8], out: &mut [u8]) -> Result<(ContentType, usize), Alert> {
        let Self(cipher) = self;
        let (head, sealed) = record.split_at_checked(HEADER_LEN).ok_or(Alert::InternalError)?;
        let mut nonce = cipher.nonce();
        let (nonce_sent, sealed) =
            sealed.split_at_checked(cipher.nonce_sent_len()).ok_or(Alert::BadRecordMac)?;
        // RFC 5288 §3: the sender chooses the explicit part.
        nonce[NONCE_LEN - nonce_sent.len()..].copy_from_slice(nonce_sent);
        let (ciphertext, tag) = sealed.split_last_chunk::<TAG_LEN>().ok_or(Alert::BadRecordMac)?;
        let out = out.get_mut(..ciphertext.len()).ok_or(Alert::InternalError)?;
        let associated = cipher.associated(head[0], ciphertext.len(), record.len() - HEADER_LEN);
        cipher
            .key
            .open_separate_gather(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(associated),
                ciphertext,
                tag,
                out,
            )
            .map_err(|_| Alert::BadRecordMac)?;
        cipher.count()?;
        let (kind, len) = match cipher.shape {
            RecordShape::NonceSent | RecordShape::Plain => (head[0], out.len()),
            RecordShape::TypeInside => {
                // RFC 8446 §5.4: padding counts towards the limit.
                if out.len() > PLAINTEXT_MAX + 1 {
                    return Err(Alert::RecordOverflow);
                }
                // The type is the last byte that is not padding.
                let last = out.iter().rposition(|&byte| byte != 0).ok_or(Alert::UnexpectedMessage)?;
                (out[last], last)
            }
        };
        if len > PLAINTEXT_MAX {
            return Err(Alert::RecordOverflow);
        }
        Ok((ContentType::parse(kind).ok_or(Alert::UnexpectedMessage)?, len))
    }
}
