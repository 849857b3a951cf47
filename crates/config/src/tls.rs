//! What TLS needs: certificates and who is asked for one, and how servers are verified. Files are named, not read.

use std::path::PathBuf;
use std::time::Duration;

/// TLS towards clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTls {
    /// What is shown to clients.
    pub certificates: Certificates,
    /// What a client gets that asks for a name that no certificate has.
    pub unknown_names: UnknownNames,
    /// Whether clients are asked for a certificate.
    pub client_certificates: ClientCertificates,
}

/// The certificates of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certificates {
    /// At least one, chosen by the name that the client asks for; the first is the default.
    Files(Vec<CertificateFiles>),
    /// Made at each start, for `localhost`, the loopback addresses and the listener's own.
    SelfSigned,
}

/// A certificate's files, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and its key.
    pub pair: KeyPair,
    /// An OCSP response to staple, in DER as it comes from the responder.
    pub ocsp: Option<PathBuf>,
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// The certificate, and after it those between it and its root.
    pub cert: PathBuf,
    /// The private key: PKCS#8, PKCS#1 or SEC1, without a passphrase.
    pub key: PathBuf,
}

/// What a client gets that asks for a name that no certificate has, or for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownNames {
    /// The first certificate.
    #[default]
    Default,
    /// No connection.
    Refuse,
}

/// Whether clients are asked for a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// They are not.
    #[default]
    None,
    /// A client may show one that this CA signed, or none.
    Optional {
        /// The CA's certificates, in PEM.
        ca: PathBuf,
    },
    /// A client has to show one that this CA signed.
    Required {
        /// The CA's certificates, in PEM.
        ca: PathBuf,
    },
}

impl ClientCertificates {
    /// The CA that signs them, where they are asked for.
    pub fn ca(&self) -> Option<&PathBuf> {
        match self {
            Self::None => None,
            Self::Optional { ca } | Self::Required { ca } => Some(ca),
        }
    }
}

/// Strict-Transport-Security (RFC 6797).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hsts {
    /// How long a browser keeps to HTTPS; zero makes it forget.
    pub max_age: Duration,
    /// The same for all hosts below this one.
    pub include_subdomains: bool,
    /// Asks for a place in the lists that browsers come with.
    pub preload: bool,
}

impl Hsts {
    /// The field's value (RFC 6797 §6.1).
    pub fn header_value(&self) -> String {
        let include_subdomains = if self.include_subdomains { "; includeSubDomains" } else { "" };
        let preload = if self.preload { "; preload" } else { "" };
        format!("max-age={}{include_subdomains}{preload}", self.max_age.as_secs())
    }
}

/// TLS towards the servers of an upstream; it matters for those with `https`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The CA that signs the servers' certificates, in PEM; `None` is the system's roots.
    pub ca: Option<PathBuf>,
    /// The name that is asked for and verified; `None` is the server's own host.
    pub name: Option<String>,
    /// Whether certificates are verified at all.
    pub verify: bool,
    /// What is shown to servers that ask for a client certificate.
    pub certificate: Option<KeyPair>,
}

impl Default for UpstreamTls {
    fn default() -> Self {
        Self { ca: None, name: None, verify: true, certificate: None }
    }
}
