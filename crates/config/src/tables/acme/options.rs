//! Options of automatic certificates (ACME), declared once. `resolve` converts them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::document::value_error::{ValueError, ValueFault};
use crate::option::host::{LISTEN_ADDRESS, listen_address, tls_name};
use crate::option::kind::{At, List, Located, Maybe, Name, Switch, Text, Word};
use crate::option::pairs::OneOrMany;
use crate::option::path::{PATH_KIND, Path};
use crate::option::range::Wait;
use crate::option::table::{Element, Inline, Table, key, required};
use crate::tables::acme::{Authority, ChallengeKind, KeyType, TsigAlgorithm};
use crate::tables::cache::options::FOLDER;
use crate::tables::jwt::KeyUrl;
use crate::tables::jwt::options::key_url;

#[derive(Debug, Clone)]
pub(crate) struct AcmeWritten {
    pub(crate) directory: Located<KeyUrl>,
    pub(crate) ca: Path,
    pub(crate) profile: Option<String>,
    pub(crate) external_account: Option<Element<ExternalAccountWritten>>,
    pub(crate) fallback: Option<Element<FallbackWritten>>,
    pub(crate) contact: Vec<String>,
    pub(crate) key_type: KeyType,
    pub(crate) folder: Path,
    pub(crate) challenges: Vec<Located<ChallengeKind>>,
    pub(crate) ports_forwarded: bool,
    pub(crate) dns: Option<Element<DnsWritten>>,
}

impl Default for AcmeWritten {
    fn default() -> Self {
        Self {
            directory: crate::option::kind::located(Authority::default().directory),
            ca: None,
            profile: None,
            external_account: None,
            fallback: None,
            contact: Vec::new(),
            key_type: KeyType::default(),
            folder: None,
            challenges: Vec::new(),
            ports_forwarded: false,
            dns: None,
        }
    }
}

pub(crate) static ACME: Table<AcmeWritten> = Table {
    options: &[
        key!(
            "directory",
            At(DIRECTORY),
            AcmeWritten.directory,
            "URL of the authority's directory. The default is Let's Encrypt; by using an authority you agree \
             to its terms of service.",
        ),
        key!(
            "contact",
            OneOrMany(EMAIL),
            AcmeWritten.contact,
            "E-mail addresses that the authority may write to.",
        ),
        key!(
            "folder",
            Maybe(At(FOLDER)),
            AcmeWritten.folder,
            "Directory for certificates, their keys and accounts, created if missing, for the user of the process \
             alone. `NAME/fullchain.pem` and `NAME/privkey.pem` are in PEM. Several processes may share it: \
             only one at a time asks for a certificate. Default: /var/lib/vanward/acme.",
        ),
        key!("profile", PROFILE, AcmeWritten.profile, PROFILE_DOC),
        key!(
            "key_type",
            Word {
                words: &[
                    ("ecdsa-p256", KeyType::EcdsaP256),
                    ("ecdsa-p384", KeyType::EcdsaP384),
                    ("rsa-2048", KeyType::Rsa2048),
                    ("rsa-4096", KeyType::Rsa4096),
                ],
            },
            AcmeWritten.key_type,
            "Type of the certificates' keys. Each certificate has a separate key, and each renewal a new one.",
        ),
        key!("ca", PATH_KIND, AcmeWritten.ca, CA_DOC),
        key!("external_account", Maybe(EXTERNAL_ACCOUNT), AcmeWritten.external_account, EXTERNAL_ACCOUNT_DOC,),
        key!(
            "fallback",
            Maybe(FALLBACK),
            AcmeWritten.fallback,
            "Another authority, used after three failures in a row of the first; then the two alternate.",
        ),
        key!(
            "challenges",
            List {
                kind: At(Word {
                    words: &[
                        ("http-01", ChallengeKind::Http01),
                        ("tls-alpn-01", ChallengeKind::TlsAlpn01),
                        ("dns-01", ChallengeKind::Dns01),
                        ("dns-persist-01", ChallengeKind::DnsPersist01),
                    ],
                }),
                may_be_empty: true,
            },
            AcmeWritten.challenges,
            "The challenges that may be used, in this order; after a failure the next one is tried. \
             `\"http-01\"`: every listener without `tls` answers, before its routes apply; the authority \
             connects to port 80. `\"tls-alpn-01\"`: the listener with the certificate answers; the \
             authority connects to port 443. Default: these two, or with `dns` its challenge.",
        ),
        key!(
            "ports_forwarded",
            Switch,
            AcmeWritten.ports_forwarded,
            "Another device forwards ports 80 and 443 to these listeners, which have other ports. This \
             disables the warning about their ports.",
        ),
        key!(
            "dns",
            Maybe(DNS),
            AcmeWritten.dns,
            "How TXT records are created for `\"dns-01\"`: by `command`, or by `server` with dynamic updates \
             (RFC 2136). Wildcards need it. With `persist` you create a permanent record once \
             (`\"dns-persist-01\"`).",
        ),
    ],
};

const PROFILE_DOC: &str = "Profile to ask for, one that the authority lists, such as `\"shortlived\"`. Default: the \
                           authority's.";
const CA_DOC: &str = "The CA certificates that sign the certificate of the directory's server, in PEM. Default: those \
                      of the system.";
const EXTERNAL_ACCOUNT_DOC: &str = "Binds the ACME account to an account at the authority (EAB): `id` is its \
                                    key identifier.";

const DIRECTORY: Text<KeyUrl> =
    Text { expected: DIRECTORY_EXPECTED, read: directory, print: ToString::to_string };
const DIRECTORY_EXPECTED: &str = "a URL such as https://acme-v02.api.letsencrypt.org/directory";

/// Parses the URL of an authority's directory.
pub fn directory(text: &str) -> Result<KeyUrl, ValueError> {
    let url = key_url(text).map_err(|error| ValueError { expected: DIRECTORY_EXPECTED, ..error })?;
    // RFC 8555 §6.1: HTTPS only.
    if url.server.scheme == crate::option::server::Scheme::Https {
        return Ok(url);
    }
    let nearest = Some(text.replacen("http://", "https://", 1));
    let fault = ValueFault::Unknown { written: text.to_owned(), why: "is not https", nearest };
    Err(ValueError { fault, expected: DIRECTORY_EXPECTED })
}

const EMAIL: Text<String> = Text { expected: EMAIL_EXPECTED, read: email, print: Clone::clone };
const EMAIL_EXPECTED: &str = "an e-mail address such as ops@example.com";

/// Parses an e-mail address, with or without `mailto:`.
pub fn email(text: &str) -> Result<String, ValueError> {
    let address = text.strip_prefix("mailto:").unwrap_or(text);
    let is_whole = address.split_once('@').is_some_and(|(user, host)| {
        !user.is_empty() && host.contains('.') && !host.contains('@') && !host.ends_with('.')
    });
    // RFC 8555 §7.3: one address, without header fields.
    if is_whole && address.bytes().all(|byte| byte.is_ascii_graphic() && !b",?<>\"".contains(&byte)) {
        return Ok(address.to_owned());
    }
    let fault = ValueFault::Unknown { written: text.to_owned(), why: "is no e-mail address", nearest: None };
    Err(ValueError { fault, expected: EMAIL_EXPECTED })
}

const PROFILE: Maybe<Name> = Maybe(Name { expected: "the name of a profile such as shortlived" });

#[derive(Debug, Clone, Default)]
pub(crate) struct ExternalAccountWritten {
    pub(crate) id: Option<String>,
    pub(crate) key_file: Path,
}

const EXTERNAL_ACCOUNT: Inline<ExternalAccountWritten> = Inline {
    title: "external_account",
    example: "{ id = \"kid-1\", key_file = \"/etc/vanward/eab.key\" }",
    table: &Table {
        options: &[
            required!(
                "id",
                Maybe(Name { expected: "the key identifier that the authority has given" }),
                ExternalAccountWritten.id,
                "The key identifier.",
            ),
            required!(
                "key_file",
                PATH_KIND,
                ExternalAccountWritten.key_file,
                "File with the HMAC key, in base64url as the authority shows it. Read when the account is made.",
            ),
        ],
    },
};

#[derive(Debug, Clone, Default)]
pub(crate) struct FallbackWritten {
    pub(crate) directory: Option<KeyUrl>,
    pub(crate) ca: Path,
    pub(crate) profile: Option<String>,
    pub(crate) external_account: Option<Element<ExternalAccountWritten>>,
}

const FALLBACK: Inline<FallbackWritten> = Inline {
    title: "fallback",
    example: "{ directory = \"https://acme.zerossl.com/v2/DV90\" }",
    table: &Table {
        options: &[
            required!(
                "directory",
                Maybe(DIRECTORY),
                FallbackWritten.directory,
                "URL of the authority's directory.",
            ),
            key!("profile", PROFILE, FallbackWritten.profile, PROFILE_DOC),
            key!("ca", PATH_KIND, FallbackWritten.ca, CA_DOC),
            key!(
                "external_account",
                Maybe(EXTERNAL_ACCOUNT),
                FallbackWritten.external_account,
                EXTERNAL_ACCOUNT_DOC,
            ),
        ],
    },
};

#[derive(Debug, Clone)]
pub(crate) struct DnsWritten {
    pub(crate) command: Vec<String>,
    pub(crate) server: Option<SocketAddr>,
    pub(crate) zone: Option<String>,
    pub(crate) key_name: Option<String>,
    pub(crate) key_file: Path,
    pub(crate) algorithm: TsigAlgorithm,
    pub(crate) persist: bool,
    pub(crate) wait: Duration,
}

impl Default for DnsWritten {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            server: None,
            zone: None,
            key_name: None,
            key_file: None,
            algorithm: TsigAlgorithm::default(),
            persist: false,
            wait: Duration::from_secs(10),
        }
    }
}

const DNS: Inline<DnsWritten> = Inline {
    title: "dns",
    example: "{ command = [\"/etc/vanward/dns-hook\"] }",
    table: &Table {
        options: &[
            key!(
                "command",
                List { kind: Name { expected: "a program or an argument" }, may_be_empty: true },
                DnsWritten.command,
                "Program that creates and removes records, with its arguments. Two are added: `present` or \
                 `cleanup`, and the name of the record. The value is in the environment as `ACME_VALUE`, the \
                 name of the certificate as `ACME_NAME`. It must end with 0 within 2 minutes, when the \
                 record is published.",
            ),
            key!(
                "server",
                Maybe(Text { expected: LISTEN_ADDRESS, read: listen_address, print: ToString::to_string }),
                DnsWritten.server,
                "The zone's primary server: IP address and port. Updates are sent over TCP.",
            ),
            key!(
                "zone",
                Maybe(Text { expected: NAME_EXPECTED, read: tls_name, print: Clone::clone }),
                DnsWritten.zone,
                "The zone that has the records. Default: from the server's SOA record.",
            ),
            key!(
                "key_name",
                Maybe(Name { expected: "the name of a TSIG key" }),
                DnsWritten.key_name,
                "Name of the TSIG key that signs updates (RFC 8945). Default: they are not signed.",
            ),
            key!(
                "key_file",
                PATH_KIND,
                DnsWritten.key_file,
                "File with the secret of the TSIG key, in base64.",
            ),
            key!(
                "algorithm",
                Word {
                    words: &[
                        ("hmac-sha256", TsigAlgorithm::Sha256),
                        ("hmac-sha384", TsigAlgorithm::Sha384),
                        ("hmac-sha512", TsigAlgorithm::Sha512),
                    ],
                },
                DnsWritten.algorithm,
                "Algorithm of the TSIG key.",
            ),
            key!(
                "persist",
                Switch,
                DnsWritten.persist,
                "The record is permanent (`\"dns-persist-01\"`): the log says which one to create, once for \
                 each name.",
            ),
            key!(
                "wait",
                Wait { range: Duration::ZERO..=Duration::from_secs(3600) },
                DnsWritten.wait,
                "How long to wait after a record was created, until all servers of the zone have it.",
            ),
        ],
    },
};

/// The kind of value for the name of an automatic certificate.
pub(crate) const CERTIFICATE_NAME: Text<String> =
    Text { expected: NAME_EXPECTED, read: certificate_name, print: Clone::clone };
const NAME_EXPECTED: &str =
    "a host name such as www.example.com, a wildcard such as *.example.com, or an IP address";

/// Parses the name of an automatic certificate. It is also the name of a folder.
pub fn certificate_name(text: &str) -> Result<String, ValueError> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    let host = text.strip_prefix("*.").unwrap_or(text);
    match tls_name(&host.to_ascii_lowercase()) {
        Ok(name) => Ok(text.strip_prefix("*.").map_or(name.clone(), |_| format!("*.{name}"))),
        Err(error) => Err(ValueError { expected: NAME_EXPECTED, ..error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_hosts_wildcards_and_addresses() {
        for (written, expected) in [
            ("www.Example.com", Some("www.example.com")),
            ("*.example.com", Some("*.example.com")),
            ("192.0.2.1", Some("192.0.2.1")),
            ("2001:DB8::1", Some("2001:db8::1")),
            ("localhost", Some("localhost")),
            ("../../etc/passwd", None),
            ("a/b", None),
            ("*.*.example.com", None),
            ("w*.example.com", None),
            ("*.192.0.2.1", None),
            ("*", None),
            ("*.", None),
            ("", None),
            (".", None),
            ("..", None),
            ("www.example.com.", None),
            ("www.example.com:443", None),
            ("accounts", Some("accounts")),
        ] {
            assert_eq!(certificate_name(written).ok().as_deref(), expected, "{written}");
        }
    }

    #[test]
    fn contacts_are_addresses_of_mail() {
        for (written, expected) in [
            ("ops@example.com", Some("ops@example.com")),
            ("mailto:ops@example.com", Some("ops@example.com")),
            ("ops@example", None),
            ("ops", None),
            ("a@b.example,c@d.example", None),
            ("a@b.example?subject=x", None),
            ("a b@example.com", None),
        ] {
            assert_eq!(email(written).ok().as_deref(), expected, "{written}");
        }
    }

    #[test]
    fn a_directory_is_an_url_of_https() {
        assert!(directory("https://localhost:14000/dir").is_ok());
        for wrong in ["http://localhost:14000/dir", "localhost:14000", "ftp://a.example/", ""] {
            assert!(directory(wrong).is_err(), "{wrong}");
        }
    }
}
