//! Options of TLS, declared once: of listeners and of upstreams. `resolve` converts them.

use std::time::Duration;

use toml::de::DeValue;

use crate::document::reader::Reader;
use crate::option::form::Form;
use crate::option::host::{NAMES_PATTERN, TLS_NAME, names_pattern, tls_name};
use crate::option::kind::{
    At, Described, Kind, List, Located, Made, Maybe, Switch, Text, Unless, Word, located, refuse_type,
};
use crate::option::path::{PATH_KIND, Path};
use crate::option::range::Wait;
use crate::option::table::{Element, Inline, Table, Written, element, key, required};
use crate::tables::acme::options::CERTIFICATE_NAME;
use crate::tables::tls::client_certificates::{
    CLIENT_CERTIFICATES, CLIENT_RULE, ClientCertificatesWritten, ClientRuleWritten,
};
use crate::tables::tls::negotiation_options::{
    CIPHERS, GROUPS, MAX_VERSION_DOC, MIN_VERSION_DOC, NegotiationWritten, PRESET, PRESET_DOC, VERSION,
};
use crate::tables::tls::{Hsts, UnknownNames};

#[derive(Debug, Clone, Default)]
pub(crate) struct ServerTlsWritten {
    pub(crate) cert: Path,
    pub(crate) key: Path,
    pub(crate) passphrase: Path,
    pub(crate) ocsp: Path,
    pub(crate) certificates: CertificatesWritten,
    pub(crate) names: Vec<Located<String>>,
    pub(crate) one_certificate: Option<Located<bool>>,
    pub(crate) self_signed: bool,
    pub(crate) unknown_names: UnknownNames,
    pub(crate) client_certificates: Option<Element<ClientCertificatesWritten>>,
    pub(crate) client_rules: Vec<Element<ClientRuleWritten>>,
    pub(crate) negotiation: NegotiationWritten,
    pub(crate) key_log: bool,
}

const CERT: &str = "The certificate in PEM, followed by the intermediate certificates.";
const KEY: &str =
    "Its private key in PEM: PKCS#8, PKCS#1 or SEC1; RSA, ECDSA (P-256, P-384, P-521) or Ed25519.";
const PASSPHRASE: &str =
    "File with the passphrase of `key`, if that is encrypted: PKCS#8 with PBKDF2 and AES.";
const KEY_LOG: &str = "For debugging: writes the secrets of sessions to the file that the environment \
                       variable `SSLKEYLOGFILE` names, in the format that Wireshark reads. Anyone with the \
                       file can decrypt the traffic, and a message warns about it.";
const OCSP: &str = "An OCSP response to staple, in DER. It is not sent after it has expired.";

pub(crate) const SERVER_TLS: Inline<ServerTlsWritten> = Inline {
    title: "tls",
    example: "{ cert = \"site.pem\", key = \"site.key\" }",
    table: &Table {
        options: &[
            key!("cert", PATH_KIND, ServerTlsWritten.cert, CERT),
            key!("key", PATH_KIND, ServerTlsWritten.key, KEY),
            key!("passphrase", PATH_KIND, ServerTlsWritten.passphrase, PASSPHRASE),
            key!("ocsp", PATH_KIND, ServerTlsWritten.ocsp, OCSP),
            key!(
                "certificates",
                CERTIFICATES,
                ServerTlsWritten.certificates,
                "Several certificates, instead of `cert` and `key`. The server name of the client (SNI) \
                 selects one, by exact name or wildcard, with a key type that the client \
                 supports, ECDSA first. `\"auto\"`: an authority issues and renews them, see \
                 `[acme]` and [certificates](certificates.md).",
            ),
            key!(
                "names",
                List { kind: At(CERTIFICATE_NAME), may_be_empty: true },
                ServerTlsWritten.names,
                "Names of automatic certificates: hosts, wildcards such as `*.example.com`, IP addresses. One \
                 certificate for each. Default: the hosts of all routes of this listener.",
            ),
            key!(
                "one_certificate",
                Maybe(At(Switch)),
                ServerTlsWritten.one_certificate,
                "One automatic certificate for all names of this listener, instead of one for each. Every \
                 client can read all names in it.",
            ),
            key!(
                "self_signed",
                Switch,
                ServerTlsWritten.self_signed,
                "Instead of `cert` and `key`: a self-signed certificate for `localhost` and the listener's \
                 address, new at each start. For tests.",
            ),
            key!(
                "unknown_names",
                Word { words: &[("default", UnknownNames::Default), ("refuse", UnknownNames::Refuse)] },
                ServerTlsWritten.unknown_names,
                "If no certificate has the server name of the client (SNI), or the client sends none: \
                 `\"default\"` uses the first certificate, `\"refuse\"` fails the \
                 handshake.",
            ),
            key!(
                "client_certificates",
                Maybe(CLIENT_CERTIFICATES),
                ServerTlsWritten.client_certificates,
                "Requests a certificate from clients. Servers get its subject and SHA-256 fingerprint as \
                 `X-Client-Cert-Subject` and `X-Client-Cert-Fingerprint`; the same fields \
                 sent by clients are removed. Default: no certificate is requested.",
            ),
            key!(
                "client_certificates_by_name",
                List { kind: CLIENT_RULE, may_be_empty: true },
                ServerTlsWritten.client_rules,
                "Other rules for client certificates, for clients that ask for one of these names (SNI); exact \
                 names take precedence over wildcards. A request for a name with another rule than that of \
                 its connection gets 421 (Misdirected Request), unless the name asks for no certificate.",
            ),
            key!("key_log", Switch, ServerTlsWritten.key_log, KEY_LOG),
            key!("preset", PRESET, ServerTlsWritten.negotiation.preset, PRESET_DOC),
            key!("min_version", VERSION, ServerTlsWritten.negotiation.min_version, MIN_VERSION_DOC,),
            key!("max_version", VERSION, ServerTlsWritten.negotiation.max_version, MAX_VERSION_DOC,),
            key!(
                "ciphers",
                CIPHERS,
                ServerTlsWritten.negotiation.ciphers,
                "The cipher suites by their IANA names, in the order of preference. Default: all, AES-256 first; \
                 with a `preset` all, in the client's order.",
            ),
            key!(
                "groups",
                GROUPS,
                ServerTlsWritten.negotiation.groups,
                "The groups of the key exchange. Among common groups, the client's order decides. Default: \
                 X25519, secp256r1, secp384r1 and X25519MLKEM768.",
            ),
        ],
    },
};

#[derive(Debug, Clone)]
pub(crate) enum CertificatesWritten {
    Automatic,
    Listed(Vec<Element<CertificateWritten>>),
}

impl Default for CertificatesWritten {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl CertificatesWritten {
    pub(crate) fn is_automatic(&self) -> bool {
        matches!(self, Self::Automatic)
    }

    /// Returns the listed certificates; none if they are automatic.
    pub(crate) fn listed(&self) -> &[Element<CertificateWritten>] {
        match self {
            Self::Automatic => &[],
            Self::Listed(listed) => listed,
        }
    }
}

type CertificateList = Unless<List<Inline<CertificateWritten>>>;

const CERTIFICATES: Made<CertificateList, Option<Vec<Element<CertificateWritten>>>, CertificatesWritten> =
    Made {
        kind: Unless { word: "auto", kind: List { kind: CERTIFICATE, may_be_empty: true } },
        make: |listed| listed.map_or(CertificatesWritten::Automatic, CertificatesWritten::Listed),
        written: |certificates| match certificates {
            CertificatesWritten::Automatic => None,
            CertificatesWritten::Listed(listed) => Some(listed.clone()),
        },
    };

/// A parsed element of `certificates`.
#[derive(Debug, Clone, Default)]
pub(crate) struct CertificateWritten {
    pub(crate) cert: Path,
    pub(crate) key: Path,
    pub(crate) passphrase: Path,
    pub(crate) ocsp: Path,
    pub(crate) names: Vec<String>,
}

const CERTIFICATE: Inline<CertificateWritten> = Inline {
    title: "this certificate",
    example: "{ cert = \"site.pem\", key = \"site.key\" }",
    table: &Table {
        options: &[
            required!("cert", PATH_KIND, CertificateWritten.cert, CERT),
            required!("key", PATH_KIND, CertificateWritten.key, KEY),
            key!("passphrase", PATH_KIND, CertificateWritten.passphrase, PASSPHRASE,),
            key!("ocsp", PATH_KIND, CertificateWritten.ocsp, OCSP),
            key!(
                "names",
                List {
                    kind: Text { expected: NAMES_PATTERN, read: names_pattern, print: String::clone },
                    may_be_empty: true,
                },
                CertificateWritten.names,
                "The server names (SNI) that get this certificate, as in `passthrough.names`: `\"*\"` \
                 matches all other names, and clients without one. Default: the names in the certificate.",
            ),
        ],
    },
};

#[derive(Debug, Clone)]
pub(crate) struct UpstreamTlsWritten {
    pub(crate) ca: Path,
    pub(crate) name: Option<String>,
    pub(crate) verify: Located<bool>,
    pub(crate) cert: Path,
    pub(crate) key: Path,
    pub(crate) passphrase: Path,
    pub(crate) negotiation: NegotiationWritten,
    pub(crate) key_log: bool,
}

impl Default for UpstreamTlsWritten {
    fn default() -> Self {
        Self {
            ca: None,
            name: None,
            verify: located(true),
            cert: None,
            key: None,
            passphrase: None,
            negotiation: NegotiationWritten::default(),
            key_log: false,
        }
    }
}

pub(crate) const UPSTREAM_TLS: Inline<UpstreamTlsWritten> = Inline {
    title: "tls",
    example: "{ ca = \"internal.pem\" }",
    table: &Table {
        options: &[
            key!(
                "ca",
                PATH_KIND,
                UpstreamTlsWritten.ca,
                "The CA certificates that sign the servers' certificates, in PEM. Default: those of the \
                 system.",
            ),
            key!(
                "name",
                Maybe(Text { expected: TLS_NAME, read: tls_name, print: String::clone }),
                UpstreamTlsWritten.name,
                "Server name (SNI) to send and to verify. Default: the host of each server.",
            ),
            key!(
                "verify",
                At(Switch),
                UpstreamTlsWritten.verify,
                "`false` accepts any certificate: an attacker on the network can read and change \
                 everything.",
            ),
            key!(
                "cert",
                PATH_KIND,
                UpstreamTlsWritten.cert,
                "Client certificate, for servers that request one, in PEM.",
            ),
            key!("key", PATH_KIND, UpstreamTlsWritten.key, KEY),
            key!("passphrase", PATH_KIND, UpstreamTlsWritten.passphrase, PASSPHRASE),
            key!("key_log", Switch, UpstreamTlsWritten.key_log, KEY_LOG),
            key!("preset", PRESET, UpstreamTlsWritten.negotiation.preset, PRESET_DOC),
            key!("min_version", VERSION, UpstreamTlsWritten.negotiation.min_version, MIN_VERSION_DOC,),
            key!("max_version", VERSION, UpstreamTlsWritten.negotiation.max_version, MAX_VERSION_DOC,),
            key!(
                "ciphers",
                CIPHERS,
                UpstreamTlsWritten.negotiation.ciphers,
                "The cipher suites to offer, by their IANA names, in the order of preference. Default: all, AES-128 \
                 first.",
            ),
            key!(
                "groups",
                GROUPS,
                UpstreamTlsWritten.negotiation.groups,
                "The groups of the key exchange to offer. The first gets a key share, so a server that has \
                 it needs no further round trip. `[\"X25519MLKEM768\", \"X25519\"]` is post-quantum if the \
                 server supports it. Default: X25519, secp256r1 and secp384r1.",
            ),
        ],
    },
};

/// The kind of value for `hsts`: a duration, or a table.
pub(crate) struct HstsKind;

const HSTS: &str = "a duration such as 365d, or { max_age = \"365d\", include_subdomains = true }";
const MAX_AGE: Wait = Wait { range: Duration::ZERO..=Duration::from_secs(2 * 365 * 24 * 3600) };

/// `{ max_age, include_subdomains, preload }`.
#[derive(Debug, Clone, Default)]
struct HstsWritten {
    max_age: Option<Duration>,
    include_subdomains: bool,
    preload: bool,
}

const HSTS_TABLE: Inline<HstsWritten> = Inline {
    title: "hsts",
    example: "{ max_age = \"365d\", include_subdomains = true }",
    table: &Table {
        options: &[
            required!(
                "max_age",
                Maybe(MAX_AGE),
                HstsWritten.max_age,
                "How long browsers use only HTTPS, if `hsts` is a table.",
            ),
            key!(
                "include_subdomains",
                Switch,
                HstsWritten.include_subdomains,
                "Applies it to all subdomains as well.",
            ),
            key!(
                "preload",
                Switch,
                HstsWritten.preload,
                "Asks for inclusion in the preload lists of browsers.",
            ),
        ],
    },
};

impl Described for HstsKind {
    fn form(&self) -> Form {
        Form::WordsOrTable { expected: HSTS, brief: "duration or table", table: HSTS_TABLE.table }
    }
}

impl Kind<Hsts> for HstsKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Hsts> {
        match written.value.get_ref() {
            DeValue::String(_) => {
                let max_age = MAX_AGE.read(written, reader)?;
                Some(Hsts { max_age, include_subdomains: false, preload: false })
            }
            DeValue::Table(_) => {
                let HstsWritten { max_age, include_subdomains, preload } =
                    HSTS_TABLE.read(written, reader)?.value;
                Some(Hsts { max_age: max_age?, include_subdomains, preload })
            }
            _ => {
                refuse_type(written, self.expected(), reader);
                None
            }
        }
    }

    fn print(&self, hsts: &Hsts) -> Option<String> {
        let Hsts { max_age, include_subdomains, preload } = *hsts;
        if !include_subdomains && !preload {
            return MAX_AGE.print(&max_age);
        }
        let written = HstsWritten { max_age: Some(max_age), include_subdomains, preload };
        HSTS_TABLE.print(&element(written))
    }
}
