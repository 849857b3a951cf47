//! TLS settings: certificates for clients, client certificates, and verification of servers. Files are named, not read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::tables::tls::negotiation::Negotiation;

/// Options of TLS.
pub(crate) mod options;
/// Checks and converts the options of TLS.
pub(crate) mod resolve;
/// Options of client certificates.
pub(crate) mod client_certificates;
/// Versions, cipher suites and groups of TLS.
pub(crate) mod negotiation;
/// Options of what TLS may negotiate.
pub(crate) mod negotiation_options;

/// TLS towards clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTls {
    /// The certificates of the listener.
    pub certificates: Certificates,
    /// The answer to clients that request a name without a certificate.
    pub unknown_names: UnknownNames,
    /// Whether clients are asked for a certificate.
    pub client_certificates: ClientCertificates,
    /// Other client certificates for some names, which are different ones.
    pub client_rules: Vec<ClientRule>,
    /// Versions, cipher suites and groups.
    pub negotiation: Negotiation,
    /// Whether the secrets of sessions are written to `SSLKEYLOGFILE`.
    pub key_log: bool,
}

/// Client certificates for connections to some names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRule {
    /// The names in lower case, with wildcards such as `*.example.com`.
    pub names: Vec<String>,
    /// Whether clients of these names are asked for a certificate.
    pub client_certificates: ClientCertificates,
}

impl ListenerTls {
    /// TLS with these certificates, and defaults for the rest.
    pub fn new(certificates: Certificates) -> Self {
        Self {
            certificates,
            unknown_names: UnknownNames::default(),
            client_certificates: ClientCertificates::default(),
            client_rules: Vec::new(),
            negotiation: Negotiation::default(),
            key_log: false,
        }
    }
}

/// The certificates of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certificates {
    /// Certificates in files, at least one, chosen by the requested name; the first is the default.
    Files(Vec<CertificateFiles>),
    /// A self-signed certificate made at each start, for `localhost`, the loopback addresses and the listener's own.
    SelfSigned,
    /// Certificates that an authority issues on demand (ACME); self-signed ones until then.
    Automatic {
        /// The names, with a certificate for each, or one for all: hosts, wildcards of one label, IP addresses.
        names: Vec<String>,
        /// The folder that has `NAME/fullchain.pem` and `NAME/privkey.pem`.
        folder: PathBuf,
        /// Whether one certificate has all names. Each name has its own copy in the folder.
        is_one: bool,
    },
}

impl Certificates {
    /// The files of the automatic certificate of a name. A wildcard's folder begins with `_`, since some tools expand `*`.
    pub fn automatic_files(folder: &Path, name: &str) -> KeyPair {
        let folder = folder.join(name.replacen('*', "_", 1).replace(':', "_"));
        KeyPair { cert: folder.join("fullchain.pem"), key: folder.join("privkey.pem"), passphrase: None }
    }
}

/// The files of a certificate, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and its key.
    pub pair: KeyPair,
    /// An OCSP response to staple, in DER, unchanged from the responder.
    pub ocsp: Option<PathBuf>,
    /// The server names (SNI) that get it, in lower case, with wildcards for one label (`*.example.com`) or any number of labels
    /// (`**.example.com`), or `*` for all others and none. Empty: the names in the certificate.
    pub names: Vec<String>,
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// The certificate, followed by the intermediate certificates.
    pub cert: PathBuf,
    /// The private key: PKCS#8, PKCS#1 or SEC1; encrypted with a passphrase only in PKCS#8.
    pub key: PathBuf,
    /// The file with the passphrase of the key.
    pub passphrase: Option<PathBuf>,
}

impl KeyPair {
    /// A certificate and a key without a passphrase.
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { cert: cert.into(), key: key.into(), passphrase: None }
    }

    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.cert, &self.key].into_iter().chain(&self.passphrase)
    }
}

/// The answer to a client that requests a name without a certificate, or no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownNames {
    /// The default certificate.
    #[default]
    Default,
    /// No connection.
    Refuse,
}

/// Whether clients are asked for a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// Clients are not asked.
    #[default]
    None,
    /// A client may present a certificate of this CA, or none.
    Optional(ClientTrust),
    /// A client must present a certificate of this CA.
    Required(ClientTrust),
}

impl ClientCertificates {
    /// Which certificates of clients are accepted, if clients are asked for one.
    pub fn trust(&self) -> Option<&ClientTrust> {
        match self {
            Self::None => None,
            Self::Optional(trust) | Self::Required(trust) => Some(trust),
        }
    }
}

/// Which certificates of clients are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTrust {
    /// The CA's certificates, in PEM.
    pub ca: PathBuf,
    /// Certificate revocation lists, in PEM or DER; none if nothing is revoked.
    pub crls: Vec<PathBuf>,
    /// The effect of an expired revocation list.
    pub expired_crls: ExpiredCrls,
    /// The most intermediate certificates between that of the client and the CA's; `None` means the library's limit.
    pub depth: Option<usize>,
}

impl From<PathBuf> for ClientTrust {
    fn from(ca: PathBuf) -> Self {
        Self { ca, crls: Vec::new(), expired_crls: ExpiredCrls::default(), depth: None }
    }
}

/// The effect of a revocation list whose next update is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExpiredCrls {
    /// Certificates that it could have revoked are refused.
    #[default]
    Refuse,
    /// The list stays in use.
    Use,
}

/// Strict-Transport-Security (RFC 6797).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hsts {
    /// How long browsers use HTTPS only; zero makes them forget the host.
    pub max_age: Duration,
    /// Whether the rule applies to all subdomains as well.
    pub include_subdomains: bool,
    /// Asks to be included in browsers' preload lists.
    pub preload: bool,
}

impl Hsts {
    /// The value of the field (RFC 6797 §6.1).
    pub fn header_value(&self) -> String {
        let include_subdomains = if self.include_subdomains { "; includeSubDomains" } else { "" };
        let preload = if self.preload { "; preload" } else { "" };
        format!("max-age={}{include_subdomains}{preload}", self.max_age.as_secs())
    }
}

/// TLS towards the `https` servers of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The CA that signs the servers' certificates, in PEM; `None` means the system's roots.
    pub ca: Option<PathBuf>,
    /// The name to request and to verify; `None` means the server's host.
    pub name: Option<String>,
    /// Whether certificates are verified.
    pub verify: bool,
    /// The client certificate for servers that ask for one.
    pub certificate: Option<KeyPair>,
    /// Versions, cipher suites and groups.
    pub negotiation: Negotiation,
    /// Whether the secrets of sessions are written to `SSLKEYLOGFILE`.
    pub key_log: bool,
    /// The table of these options, for messages that name one: `tls`, or `cache.peers`.
    pub table: &'static str,
}

impl UpstreamTls {
    /// The defaults, with these CAs.
    pub fn trusting(ca: Option<PathBuf>) -> Self {
        Self { ca, ..Self::default() }
    }
}

impl Default for UpstreamTls {
    fn default() -> Self {
        Self {
            ca: None,
            name: None,
            verify: true,
            certificate: None,
            negotiation: Negotiation::default(),
            key_log: false,
            table: "tls",
        }
    }
}
