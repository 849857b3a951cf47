//! What is wrong with a file that TLS needs: a table of facts and their wording.

use std::fmt;
use std::path::{Path, PathBuf};

/// Something that is wrong with a file, or with what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file as it was named; none where the system's own are meant.
    pub file: Option<PathBuf>,
    /// What is wrong.
    pub fault: Fault,
}

impl Problem {
    pub(crate) fn new(file: &Path, fault: Fault) -> Self {
        Self { file: Some(file.to_owned()), fault }
    }

    /// Whether the file can be used all the same. It is hardly what was meant; but a restart that refuses to serve a
    /// hundred names for the sake of one that has run out does more harm.
    pub fn is_usable(&self) -> bool {
        matches!(
            self.fault,
            Fault::Expired { .. }
                | Fault::NotYetValid { .. }
                | Fault::NoName
                | Fault::UnreadableOcsp(_)
                | Fault::NotAnOcspResponse
                | Fault::OcspOfAnother
                | Fault::OcspStale { .. }
                | Fault::OcspNotGood(_)
        )
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

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The system's answer.
    #[error("it can't be read: {0}")]
    Unreadable(String),
    /// More than any certificate needs.
    #[error("it is larger than {0} KiB")]
    TooLarge(u64),
    /// A section that doesn't end, or isn't base64.
    #[error("its PEM is broken: {0}")]
    BrokenPem(String),
    /// No certificate in it.
    #[error("it has no certificate")]
    NoCertificate,
    /// A section is called a certificate and isn't one.
    #[error("its certificate {0} can't be understood")]
    NotACertificate(usize),
    /// No private key in it.
    #[error("it has no private key")]
    NoKey,
    /// A private key that needs a passphrase.
    #[error("its private key is encrypted")]
    EncryptedKey,
    /// A private key of a kind that isn't known, or a broken one.
    #[error("its private key can't be used")]
    UnusableKey,
    /// The key of another certificate.
    #[error("it is not the key of the certificate in {}", .0.display())]
    OtherKey(PathBuf),
    /// After the end of its validity.
    #[error("its certificate has expired: it was valid until {until}")]
    Expired {
        /// The end of its validity.
        until: String,
    },
    /// Before the begin of its validity.
    #[error("its certificate is not valid before {from}")]
    NotYetValid {
        /// The begin of its validity.
        from: String,
    },
    /// A certificate that no client can ask for, and that isn't the default.
    #[error("its certificate has no host name, and is not the first: it would never be used")]
    NoName,
    /// The system's answer about an OCSP response.
    #[error("the OCSP response can't be read: {0}")]
    UnreadableOcsp(String),
    /// Not DER, or an error instead of a response.
    #[error("it is not an OCSP response")]
    NotAnOcspResponse,
    /// A response about another certificate.
    #[error("its OCSP response is about another certificate")]
    OcspOfAnother,
    /// A response that has run out.
    #[error("its OCSP response was valid until {until}")]
    OcspStale {
        /// The time of the next update.
        until: String,
    },
    /// `revoked` or `unknown`.
    #[error("its OCSP response says that the certificate is {0}")]
    OcspNotGood(&'static str),
    /// The system has no roots.
    #[error("the system has no certificates of CAs: {0}")]
    NoSystemRoots(String),
    /// A server's host that can't be in a certificate.
    #[error("{0:?} can't be the name of a certificate")]
    NotAName(String),
    /// What rustls says of a combination that we didn't foresee.
    #[error("it can't be used: {0}")]
    Refused(String),
}

impl Fault {
    /// What would do.
    pub fn expected(&self) -> Option<&'static str> {
        Some(match self {
            Self::TooLarge(_) | Self::BrokenPem(_) | Self::NoCertificate | Self::NotACertificate(_) => {
                "certificates in PEM: -----BEGIN CERTIFICATE-----"
            }
            Self::NoKey => "a private key in PEM: -----BEGIN PRIVATE KEY-----",
            Self::EncryptedKey => "a key without a passphrase, readable by this user alone",
            Self::UnusableKey => {
                "an RSA key of at least 2048 bits, an ECDSA key (P-256, P-384, P-521) or Ed25519"
            }
            Self::OtherKey(_) => "the key that the certificate was made for",
            Self::Expired { .. } => "a renewed certificate",
            Self::NotYetValid { .. } => "a certificate that is valid now; is the clock right?",
            Self::NoName => "a certificate with a DNS name among its alternative names",
            Self::NotAnOcspResponse | Self::OcspOfAnother => {
                "the responder's answer about this certificate, in DER"
            }
            Self::OcspStale { .. } => "a newer response",
            Self::NoSystemRoots(_) => {
                "the system's package of CA certificates, or a file of your own as tls.ca"
            }
            Self::NotAName(_) => "a name to verify, as tls.name",
            Self::Unreadable(_) | Self::UnreadableOcsp(_) | Self::OcspNotGood(_) | Self::Refused(_) => {
                return None;
            }
        })
    }
}
