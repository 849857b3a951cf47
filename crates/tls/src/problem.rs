//! Problems of the files that TLS needs: a table of faults and their texts.

use std::fmt;
use std::path::{Path, PathBuf};

/// A problem of a file, or of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path as configured; `None` if the system's own files are meant.
    pub file: Option<PathBuf>,
    /// What is wrong.
    pub fault: Fault,
}

impl Problem {
    pub(crate) fn new(file: &Path, fault: Fault) -> Self {
        Self { file: Some(file.to_owned()), fault }
    }

    /// Whether the proxy starts in spite of the problem. The problem is hardly intended, but to refuse a hundred names
    /// at a restart because one certificate expired does more harm.
    pub fn is_usable(&self) -> bool {
        matches!(
            self.fault,
            Fault::Expired { .. }
                | Fault::NotYetValid { .. }
                | Fault::NoName
                | Fault::CrlExpired { .. }
                | Fault::KeyLog { .. }
                | Fault::Readable { .. }
                | Fault::UnreadableOcsp(_)
                | Fault::NotAnOcspResponse
                | Fault::OcspOfAnother
                | Fault::OcspStale { .. }
                | Fault::OcspNotGood(_)
        )
    }

    /// Whether a configuration is valid in spite of the problem, for `vanward check`, too: it is up to the operator.
    pub fn is_advice(&self) -> bool {
        matches!(self.fault, Fault::Readable { .. })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(formatter, "{}: ", file.display())?;
        }
        write!(formatter, "{}", self.fault)?;
        match self.fault.expected() {
            Some(expected) => write!(formatter, "; expected {expected}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

/// A fault of a file or of its content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file cannot be read; with the system's error.
    #[error("it can't be read: {0}")]
    Unreadable(String),
    /// The file is larger than any certificate needs; with the limit in KiB.
    #[error("it is larger than {0} KiB")]
    TooLarge(u64),
    /// A PEM section has no end, or is not base64.
    #[error("its PEM is broken: {0}")]
    BrokenPem(String),
    /// The file has no certificate.
    #[error("it has no certificate")]
    NoCertificate,
    /// A PEM section labelled as a certificate is none; with its number.
    #[error("its certificate {0} can't be understood")]
    NotACertificate(usize),
    /// The file has no private key.
    #[error("it has no private key")]
    NoKey,
    /// The private key needs a passphrase.
    #[error("its private key is encrypted")]
    EncryptedKey,
    /// The private key is encrypted in a way that is not supported.
    #[error("its private key is encrypted in another way than is known")]
    KeyEncryption,
    /// The private key cannot be decrypted with the passphrase in this file.
    #[error("its private key can't be decrypted with the passphrase in {}", .0.display())]
    Passphrase(PathBuf),
    /// The private key has an unknown type, or is damaged.
    #[error("its private key can't be used")]
    UnusableKey,
    /// No cipher suite of the permitted versions is for keys of this kind, such as RSA.
    #[error(
        "it has an {0} key, and no cipher suite of this listener is for those: no handshake could succeed"
    )]
    NoSuite(&'static str),
    /// The private key belongs to another certificate than the one in this file.
    #[error("it is not the key of the certificate in {}", .0.display())]
    OtherKey(PathBuf),
    /// The certificate has expired.
    #[error("its certificate has expired: it was valid until {until}")]
    Expired {
        /// The end of its validity.
        until: String,
    },
    /// The certificate is not valid yet.
    #[error("its certificate is not valid before {from}")]
    NotYetValid {
        /// The begin of its validity.
        from: String,
    },
    /// The certificate has no host name or address and is not the default, so no client could ever get it.
    #[error("its certificate has no host name, and is not the first: it would never be used")]
    NoName,
    /// The OCSP response cannot be read; with the system's error.
    #[error("the OCSP response can't be read: {0}")]
    UnreadableOcsp(String),
    /// The OCSP response is not DER, or is an error message.
    #[error("it is not an OCSP response")]
    NotAnOcspResponse,
    /// The OCSP response is about another certificate.
    #[error("its OCSP response is about another certificate")]
    OcspOfAnother,
    /// The OCSP response has expired.
    #[error("its OCSP response was valid until {until}")]
    OcspStale {
        /// The time of the next update.
        until: String,
    },
    /// The OCSP response says that the certificate is `revoked` or `unknown`.
    #[error("its OCSP response says that the certificate is {0}")]
    OcspNotGood(&'static str),
    /// The file has no revocation list.
    #[error("it has no certificate revocation list")]
    NoCrl,
    /// A revocation list cannot be parsed; with its number.
    #[error("its revocation list {0} can't be understood")]
    NotACrl(usize),
    /// The next update of a revocation list is due.
    #[error(
        "its revocation list was to be replaced by {until}; {}",
        if *is_refused { "client certificates of its CA are refused" } else { "it is used nevertheless" }
    )]
    CrlExpired {
        /// The time of the next update.
        until: String,
        /// Whether the certificates that it could have revoked are refused.
        is_refused: bool,
    },
    /// The secrets of sessions are written to a file, or would be if there was one.
    #[error("{}", match file {
        Some(file) => format!("key_log: secrets of TLS sessions are written to {file}: whoever reads it can decrypt them"),
        None => "key_log has no effect: SSLKEYLOGFILE is not set".to_owned(),
    })]
    KeyLog {
        /// The file that the environment names.
        file: Option<String>,
    },
    /// A private key or its passphrase can be read by more than the process.
    #[error("{} can read this secret (mode {mode:04o})", if *is_for_all { "every user" } else { "the file's group" })]
    Readable {
        /// The permissions of the file.
        mode: u32,
        /// Whether every user may read it, or the file's group.
        is_for_all: bool,
    },
    /// The system has no trusted CAs.
    #[error("the system has no certificates of CAs: {0}")]
    NoSystemRoots(String),
    /// The host of a server cannot be a name in a certificate.
    #[error("{0:?} can't be the name of a certificate")]
    NotAName(String),
    /// rustls rejects the combination of settings for another reason.
    #[error("it can't be used: {0}")]
    Refused(String),
}

impl Fault {
    /// The expected content, as advice for the operator.
    pub fn expected(&self) -> Option<&'static str> {
        Some(match self {
            Self::TooLarge(_) | Self::BrokenPem(_) | Self::NoCertificate | Self::NotACertificate(_) => {
                "certificates in PEM: -----BEGIN CERTIFICATE-----"
            }
            Self::NoKey => "a private key in PEM: -----BEGIN PRIVATE KEY-----",
            Self::EncryptedKey => {
                "the file of its passphrase as passphrase, or a key without one, readable by this user alone"
            }
            Self::KeyEncryption => {
                "PKCS#8 with PBKDF2 and AES, as of: openssl pkcs8 -topk8 -v2 aes-256-cbc -in KEY -out NEW"
            }
            Self::Passphrase(_) => "the passphrase that the key was encrypted with, in the first line",
            Self::UnusableKey => {
                "an RSA key of at least 2048 bits, an ECDSA key (P-256, P-384, P-521) or Ed25519"
            }
            Self::NoSuite(_) => {
                "another kind of key, its suites in ciphers, or TLS 1.3, whose suites are for all keys"
            }
            Self::OtherKey(_) => "the key that the certificate was made for",
            Self::Expired { .. } => "a renewed certificate",
            Self::NotYetValid { .. } => "a certificate that is valid now; is the clock right?",
            Self::NoName => "a certificate with a DNS name or an IP address among its alternative names",
            Self::NotAnOcspResponse | Self::OcspOfAnother => {
                "the responder's answer about this certificate, in DER"
            }
            Self::NoCrl | Self::NotACrl(_) => "lists in PEM, -----BEGIN X509 CRL-----, or one in DER",
            Self::CrlExpired { .. } => "a newer list",
            Self::OcspStale { .. } => "a newer response",
            Self::NoSystemRoots(_) => {
                "the system's package of CA certificates, or a file of your own as tls.ca"
            }
            Self::Readable { .. } => {
                "mode 0600; or 0640, with root as the owner and the group of the process as the group"
            }
            Self::NotAName(_) => "a name to verify, as tls.name",
            Self::Unreadable(_)
            | Self::UnreadableOcsp(_)
            | Self::OcspNotGood(_)
            | Self::KeyLog { .. }
            | Self::Refused(_) => {
                return None;
            }
        })
    }
}
