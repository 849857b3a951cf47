//! Settings of automatic certificates: authorities (RFC 8555), keys, challenges, storage.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::tables::jwt::KeyUrl;
use crate::tables::jwt::options::key_url;
use crate::tables::listen::Listener;
use crate::tables::tls::Certificates;

/// Options of automatic certificates.
pub(crate) mod options;
/// Checks and converts the options of automatic certificates.
pub(crate) mod resolve;

/// Settings of automatic certificates, for listeners with `Certificates::Automatic`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acme {
    /// The authority that is asked first.
    pub authority: Authority,
    /// The authority that is asked after several failures of the first.
    pub fallback: Option<Authority>,
    /// E-mail addresses for the authority's messages.
    pub contact: Vec<String>,
    /// The type of the certificates' keys.
    pub key_type: KeyType,
    /// The folder of certificates, keys and accounts.
    pub folder: PathBuf,
    /// The challenges that may be used, in order of preference; empty means the default.
    pub challenges: Vec<ChallengeKind>,
    /// Whether ports 80 and 443, which authorities connect to, lead to the listeners that answer.
    pub ports_forwarded: bool,
    /// Settings of DNS challenges.
    pub dns: Option<DnsChallenge>,
}

/// A certificate authority that speaks ACME.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// The URL of its directory.
    pub directory: KeyUrl,
    /// The CA certificates that sign the certificate of the directory's server; `None` means the system's.
    pub ca: Option<PathBuf>,
    /// The profile to ask for, such as `shortlived`; `None` means the authority's default.
    pub profile: Option<String>,
    /// The account of the authority's own that the ACME account is bound to.
    pub external_account: Option<ExternalAccount>,
}

/// An external account binding (RFC 8555 §7.3.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    pub id: String,
    /// The file with the HMAC key, in base64url.
    pub key_file: PathBuf,
}

/// The type of a certificate's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyType {
    #[default]
    EcdsaP256,
    EcdsaP384,
    Rsa2048,
    Rsa4096,
}

impl KeyType {
    /// The algorithm, as cipher suites name it.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::EcdsaP256 | Self::EcdsaP384 => "ECDSA",
            Self::Rsa2048 | Self::Rsa4096 => "RSA",
        }
    }
}

/// A way to prove control of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChallengeKind {
    /// A file over HTTP at port 80 (RFC 8555 §8.3).
    Http01,
    /// A certificate over TLS at port 443 (RFC 8737).
    TlsAlpn01,
    /// A TXT record for each order (RFC 8555 §8.4).
    Dns01,
    /// A TXT record that stays (draft-ietf-acme-dns-persist).
    DnsPersist01,
}

/// Settings of DNS challenges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsChallenge {
    /// The way to create the records.
    pub way: DnsWay,
    /// How long to wait between the change and the authority's look-up.
    pub wait: Duration,
}

/// A way to create the records of DNS challenges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DnsWay {
    /// A program with its arguments, at least one word.
    Command(Vec<String>),
    /// Dynamic updates (RFC 2136).
    Update(DnsUpdate),
    /// The operator, once: the record stays.
    Persistent,
}

/// Where dynamic DNS updates go, and who signs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsUpdate {
    /// The primary server of the zone.
    pub server: SocketAddr,
    /// The zone; `None` means that the server is asked for it.
    pub zone: Option<String>,
    /// The TSIG key (RFC 8945); `None` sends unsigned updates.
    pub key: Option<TsigKey>,
}

/// A TSIG key (RFC 8945).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TsigKey {
    /// The name, as the server knows it.
    pub name: String,
    /// The file with the secret, in base64.
    pub file: PathBuf,
    pub algorithm: TsigAlgorithm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TsigAlgorithm {
    #[default]
    Sha256,
    Sha384,
    Sha512,
}

/// The ports of the listeners that can answer challenges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChallengePorts {
    /// Ports of listeners for HTTP without TLS.
    pub http: Vec<u16>,
    /// Ports of listeners with automatic certificates that do not forward bytes.
    pub tls: Vec<u16>,
}

impl ChallengePorts {
    /// The ports of the listeners of a configuration.
    pub fn from_listeners(listeners: &[Listener]) -> Self {
        let of_http = listeners.iter().filter(|listener| listener.tcp.is_none());
        let (tls, http): (Vec<_>, Vec<_>) = of_http.partition(|listener| listener.tls.is_some());
        let is_automatic = |listener: &&&Listener| {
            listener
                .tls
                .as_ref()
                .is_some_and(|tls| matches!(tls.certificates, Certificates::Automatic { .. }))
        };
        // A Unix socket may be behind a proxy that forwards to it.
        let port = |listener: &&Listener| listener.address.port().unwrap_or_default();
        Self {
            http: http.iter().map(port).collect(),
            tls: tls.iter().filter(is_automatic).map(port).collect(),
        }
    }
}

/// The directory of Let's Encrypt.
pub(crate) const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

impl Acme {
    pub const FOLDER: &str = "/var/lib/vanward/acme";

    /// The challenges for a name, in order of preference; none if no configured challenge can be used for it, or no
    /// listener answers those that can.
    pub fn challenges_for(&self, name: &str, ports: &ChallengePorts) -> Vec<ChallengeKind> {
        let mut challenges = self.provable(name);
        challenges.retain(|kind| match kind {
            ChallengeKind::Http01 => !ports.http.is_empty(),
            ChallengeKind::TlsAlpn01 => !ports.tls.is_empty(),
            ChallengeKind::Dns01 | ChallengeKind::DnsPersist01 => true,
        });
        // Where nothing says otherwise, first the one that authorities reach without any forwarding of ports.
        if self.challenges.is_empty()
            && !self.ports_forwarded
            && ports.tls.contains(&443)
            && !ports.http.contains(&80)
        {
            challenges.sort_by_key(|kind| *kind == ChallengeKind::Http01);
        }
        challenges
    }

    /// The configured challenges that can prove a name, if there is a listener.
    pub(crate) fn provable(&self, name: &str) -> Vec<ChallengeKind> {
        let dns = match &self.dns {
            None => None,
            Some(DnsChallenge { way: DnsWay::Persistent, .. }) => Some(ChallengeKind::DnsPersist01),
            Some(_) => Some(ChallengeKind::Dns01),
        };
        let is_address = name.parse::<std::net::IpAddr>().is_ok();
        let wanted = match (&self.challenges[..], dns) {
            ([], Some(dns)) if !is_address => vec![dns],
            ([], _) => vec![ChallengeKind::Http01, ChallengeKind::TlsAlpn01],
            (written, _) => written.to_vec(),
        };
        let is_possible = |kind: &ChallengeKind| match kind {
            // RFC 8555 §7.1.3, §8.3; RFC 8737 §3: a wildcard can only be proven by DNS.
            ChallengeKind::Http01 | ChallengeKind::TlsAlpn01 => !name.starts_with("*."),
            // RFC 8738 §7: DNS says nothing about addresses.
            kind => !is_address && dns == Some(*kind),
        };
        wanted.into_iter().filter(is_possible).collect()
    }
}

impl Default for Acme {
    fn default() -> Self {
        Self {
            authority: Authority::default(),
            fallback: None,
            contact: Vec::new(),
            key_type: KeyType::default(),
            folder: PathBuf::from(Self::FOLDER),
            challenges: Vec::new(),
            ports_forwarded: false,
            dns: None,
        }
    }
}

/// Let's Encrypt.
impl Default for Authority {
    fn default() -> Self {
        let directory = key_url(LETS_ENCRYPT).unwrap_or_else(|error| panic!("it is a URL: {error:?}"));
        Self { directory, ca: None, profile: None, external_account: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_name_has_its_challenges() {
        use ChallengeKind::{Dns01, DnsPersist01, Http01, TlsAlpn01};
        let by = |way| Some(DnsChallenge { way, wait: Duration::ZERO });
        let command = by(DnsWay::Command(vec!["hook".to_owned()]));
        let persistent = by(DnsWay::Persistent);
        for (written, dns, name, expected) in [
            (&[][..], &None, "a.example", &[Http01, TlsAlpn01][..]),
            (&[], &None, "*.a.example", &[]),
            (&[], &None, "192.0.2.1", &[Http01, TlsAlpn01]),
            (&[], &command, "a.example", &[Dns01]),
            (&[], &command, "*.a.example", &[Dns01]),
            (&[], &command, "2001:db8::1", &[Http01, TlsAlpn01]),
            (&[], &persistent, "*.a.example", &[DnsPersist01]),
            (&[TlsAlpn01], &None, "a.example", &[TlsAlpn01]),
            (&[TlsAlpn01, Dns01], &command, "*.a.example", &[Dns01]),
            (&[Dns01], &command, "192.0.2.1", &[]),
            (&[Dns01], &persistent, "a.example", &[]),
        ] {
            let acme = Acme { challenges: written.to_vec(), dns: dns.clone(), ..Acme::default() };
            assert_eq!(acme.provable(name), expected, "{written:?} {dns:?} {name}");
        }
    }

    #[test]
    fn a_challenge_is_one_that_a_listener_answers() {
        use ChallengeKind::{Http01, TlsAlpn01};
        for (written, http, tls, expected) in [
            (&[][..], &[80][..], &[443][..], &[Http01, TlsAlpn01][..]),
            (&[], &[8080], &[443], &[TlsAlpn01, Http01]),
            (&[], &[8080], &[8443], &[Http01, TlsAlpn01]),
            (&[], &[], &[8443], &[TlsAlpn01]),
            (&[], &[80], &[], &[Http01]),
            (&[], &[], &[], &[]),
            (&[Http01], &[], &[443], &[]),
            (&[Http01, TlsAlpn01], &[8080], &[443], &[Http01, TlsAlpn01]),
        ] {
            let acme = Acme { challenges: written.to_vec(), ..Acme::default() };
            let ports = ChallengePorts { http: http.to_vec(), tls: tls.to_vec() };
            assert_eq!(acme.challenges_for("a.example", &ports), expected, "{written:?} {ports:?}");
        }
        let acme = Acme { ports_forwarded: true, ..Acme::default() };
        let ports = ChallengePorts { http: vec![8080], tls: vec![443] };
        assert_eq!(acme.challenges_for("a.example", &ports), [Http01, TlsAlpn01]);
    }
}
