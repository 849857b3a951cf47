//! Problems of the files that TLS needs: a table of faults and their texts.

use std::fmt;
use std::path::{Path, PathBuf};

/// A problem of a file, or of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateProblem {
    /// The path as configured; `None` for the system's own files.
    pub file: Option<PathBuf>,
    pub fault: CertificateFault,
}

impl CertificateProblem {
    pub(crate) fn new(file: &Path, fault: CertificateFault) -> Self {
        Self { file: Some(file.to_owned()), fault }
    }

    /// Whether the proxy starts in spite of the problem. The problem is hardly intended, but refusing to serve a
    /// hundred names after a restart, because one certificate expired, does more harm.
    pub fn is_usable(&self) -> bool {
        matches!(
            self.fault,
            CertificateFault::Expired { .. }
                | CertificateFault::NotYetValid { .. }
                | CertificateFault::NoName
                | CertificateFault::OtherName { .. }
                | CertificateFault::CrlExpired { .. }
                | CertificateFault::KeyLog { .. }
                | CertificateFault::Readable { .. }
                | CertificateFault::UnreadableOcsp(_)
                | CertificateFault::NotAnOcspResponse
                | CertificateFault::OcspOfAnother
                | CertificateFault::OcspStale { .. }
                | CertificateFault::OcspNotGood(_)
        )
    }

    /// Whether a configuration is valid in spite of the problem, for `vanward check`, too: the operator decides.
    pub fn is_advice(&self) -> bool {
        matches!(self.fault, CertificateFault::Readable { .. })
    }
}

impl fmt::Display for CertificateProblem {
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

impl std::error::Error for CertificateProblem {}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateFault {
    /// With the system's error.
    #[error("it can't be read: {0}")]
    Unreadable(String),
    /// Larger than any certificate needs; with the limit in KiB.
    #[error("it is larger than {0} KiB")]
    TooLarge(u64),
    /// A PEM section has no end, or is not base64.
    #[error("its PEM is broken: {0}")]
    BrokenPem(String),
    #[error("it has no certificate")]
    NoCertificate,
    /// A PEM section labelled as a certificate is none; with its number.
    #[error("its certificate {0} can't be understood")]
    NotACertificate(usize),
    #[error("it has no private key")]
    NoKey,
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
    #[error("its certificate has expired: it was valid until {until}")]
    Expired { until: String },
    #[error("its certificate is not valid before {from}")]
    NotYetValid { from: String },
    /// The certificate has no host name or address and is not the default, so no client could ever get it.
    #[error("its certificate has no host name, and is not the first: it would never be used")]
    NoName,
    /// The certificate in the folder of an automatic one is for other names.
    #[error("its certificate is for {names}, not for {wanted}: it is not used")]
    OtherName {
        /// The names in the certificate.
        names: String,
        /// The configured name, which is the name of the folder.
        wanted: String,
    },
    /// With the system's error.
    #[error("the OCSP response can't be read: {0}")]
    UnreadableOcsp(String),
    /// The OCSP response is not DER, or is an error message.
    #[error("it is not an OCSP response")]
    NotAnOcspResponse,
    #[error("its OCSP response is about another certificate")]
    OcspOfAnother,
    #[error("its OCSP response was valid until {until}")]
    OcspStale {
        /// The time of the next update.
        until: String,
    },
    /// The OCSP response says that the certificate is `revoked` or `unknown`.
    #[error("its OCSP response says that the certificate is {0}")]
    OcspNotGood(&'static str),
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
        /// Whether the certificates that it could have revoked are rejected.
        is_refused: bool,
    },
    /// The secrets of sessions are written to a file, or would be if the environment named one.
    #[error("{}", match file {
        Some(file) => format!("key_log: secrets of TLS sessions are written to {file}: any reader of the file can decrypt them"),
        None => "key_log has no effect: SSLKEYLOGFILE is not set".to_owned(),
    })]
    KeyLog {
        /// The file that the environment names.
        file: Option<String>,
    },
    /// Other users can read a private key or its passphrase.
    #[error("{} can read this secret (mode {mode:04o})", if *is_for_all { "every user" } else { "the file's group" })]
    Readable {
        /// The permissions of the file.
        mode: u32,
        /// Whether every user may read it, or only the file's group.
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

impl CertificateFault {
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
            Self::OtherName { .. } => {
                "files that only the proxy writes; it asks for a certificate of this name"
            }
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
