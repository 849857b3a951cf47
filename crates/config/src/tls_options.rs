//! The options of TLS, declared once: of listeners and of upstreams. What they mean together is in `tls_resolve`.

use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use crate::fault::{Fault, ValueError};
use crate::host::{TLS_NAME, tls_name};
use crate::kind::{At, Kind, List, Located, Maybe, Switch, Text, Word, located, refuse_type};
use crate::range::Wait;
use crate::reader::Reader;
use crate::table::{Element, Inline, Page, Table, Written, element, key, required};
use crate::tls::{Hsts, UnknownNames};

/// A file that may be named, and where.
pub(crate) type Path = Option<Located<PathBuf>>;

const PATH_KIND: Maybe<At<PathKind>> = Maybe(At(PathKind));

/// The path of a file, from where vanward was started.
pub(crate) struct PathKind;

const PATH: Text<PathBuf> = Text {
    expected: "the path of a file such as /etc/vanward/site.pem",
    read: path,
    print: |path| path.display().to_string(),
};

fn path(text: &str) -> Result<PathBuf, ValueError> {
    let fault = match text {
        "" => Fault::Empty,
        text if text.contains('\0') => Fault::NotAPath { written: text.to_owned(), nearest: None },
        path => return Ok(PathBuf::from(path)),
    };
    Err(ValueError { fault, expected: PATH.expected })
}

impl Kind<PathBuf> for PathKind {
    fn expected(&self) -> String {
        PATH.expected()
    }

    fn brief(&self) -> String {
        "path".to_owned()
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<PathBuf> {
        PATH.read(written, reader)
    }

    fn print(&self, path: &PathBuf) -> Option<String> {
        PATH.print(path)
    }
}

/// `[[listen]] tls`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerTlsWritten {
    pub(crate) cert: Path,
    pub(crate) key: Path,
    pub(crate) ocsp: Path,
    pub(crate) certificates: Vec<Element<CertificateWritten>>,
    pub(crate) self_signed: bool,
    pub(crate) unknown_names: UnknownNames,
    pub(crate) client_certificates: Option<Element<ClientCertificatesWritten>>,
}

const CERT: &str = "The certificate in PEM, and after it those between it and its root.";
const KEY: &str =
    "Its private key in PEM: PKCS#8, PKCS#1 or SEC1; RSA, ECDSA or Ed25519; without a passphrase.";
const OCSP: &str = "An OCSP response to staple, in DER. It is left out once it has run out.";

pub(crate) const SERVER_TLS: Inline<ServerTlsWritten> = Inline {
    title: "tls",
    example: "{ cert = \"site.pem\", key = \"site.key\" }",
    table: &Table {
        options: &[
            &key("cert", PATH_KIND, |tls: &mut ServerTlsWritten| &mut tls.cert, CERT),
            &key("key", PATH_KIND, |tls: &mut ServerTlsWritten| &mut tls.key, KEY),
            &key("ocsp", PATH_KIND, |tls: &mut ServerTlsWritten| &mut tls.ocsp, OCSP),
            &key(
                "certificates",
                List { kind: CERTIFICATE, may_be_empty: true },
                |tls: &mut ServerTlsWritten| &mut tls.certificates,
                "Instead of `cert` and `key`: any number of certificates. A client gets one that has the name that it asks \
                 for, exactly or by a wildcard, with a kind of key that it understands, ECDSA first.",
            ),
            &key(
                "self_signed",
                Switch,
                |tls: &mut ServerTlsWritten| &mut tls.self_signed,
                "Instead of `cert` and `key`: a certificate made at each start, for `localhost` and the listener's own \
                 address. For trying out.",
            ),
            &key(
                "unknown_names",
                Word { words: &[("default", UnknownNames::Default), ("refuse", UnknownNames::Refuse)] },
                |tls: &mut ServerTlsWritten| &mut tls.unknown_names,
                "What a client gets that asks for a name that no certificate has, or for none: the first certificate, or \
                 no connection.",
            ),
            &key(
                "client_certificates",
                Maybe(CLIENT_CERTIFICATES),
                |tls: &mut ServerTlsWritten| &mut tls.client_certificates,
                "Asks clients for a certificate. Its subject and SHA-256 fingerprint reach servers as \
                 `X-Client-Cert-Subject` and `X-Client-Cert-Fingerprint`; those of clients are removed. Left out, \
                 clients are not asked.",
            ),
        ],
    },
};

/// One of `certificates`.
#[derive(Debug, Clone, Default)]
pub(crate) struct CertificateWritten {
    pub(crate) cert: Path,
    pub(crate) key: Path,
    pub(crate) ocsp: Path,
}

const CERTIFICATE: Inline<CertificateWritten> = Inline {
    title: "this certificate",
    example: "{ cert = \"site.pem\", key = \"site.key\" }",
    table: &Table {
        options: &[
            &required("cert", PATH_KIND, |written: &mut CertificateWritten| &mut written.cert, CERT),
            &required("key", PATH_KIND, |written: &mut CertificateWritten| &mut written.key, KEY),
            &key("ocsp", PATH_KIND, |written: &mut CertificateWritten| &mut written.ocsp, OCSP),
        ],
    },
};

/// `client_certificates`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientCertificatesWritten {
    pub(crate) mode: Option<Mode>,
    pub(crate) ca: Path,
}

/// Whether a client has to have a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Optional,
    Required,
}

const CLIENT_CERTIFICATES: Inline<ClientCertificatesWritten> = Inline {
    title: "client_certificates",
    example: "{ mode = \"required\", ca = \"clients.pem\" }",
    table: &Table {
        options: &[
            &required(
                "mode",
                Maybe(Word { words: &[("optional", Mode::Optional), ("required", Mode::Required)] }),
                |written: &mut ClientCertificatesWritten| &mut written.mode,
                "`\"optional\"`: a client without one is served as well. One that the CA has not signed is refused \
                 either way.",
            ),
            &required(
                "ca",
                PATH_KIND,
                |written: &mut ClientCertificatesWritten| &mut written.ca,
                "The certificates of the CA that signs them, in PEM.",
            ),
        ],
    },
};

/// `[upstream.NAME] tls`.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamTlsWritten {
    pub(crate) ca: Path,
    pub(crate) name: Option<String>,
    pub(crate) verify: Located<bool>,
    pub(crate) cert: Path,
    pub(crate) key: Path,
}

impl Default for UpstreamTlsWritten {
    fn default() -> Self {
        Self { ca: None, name: None, verify: located(true), cert: None, key: None }
    }
}

pub(crate) const UPSTREAM_TLS: Inline<UpstreamTlsWritten> = Inline {
    title: "tls",
    example: "{ ca = \"internal.pem\" }",
    table: &Table {
        options: &[
            &key(
                "ca",
                PATH_KIND,
                |tls: &mut UpstreamTlsWritten| &mut tls.ca,
                "The certificates of the CA that signs the servers' certificates, in PEM. Left out, the system's.",
            ),
            &key(
                "name",
                Maybe(Text { expected: TLS_NAME, read: tls_name, print: String::clone }),
                |tls: &mut UpstreamTlsWritten| &mut tls.name,
                "The name that servers are asked for and have to prove. Left out, each server's own host.",
            ),
            &key(
                "verify",
                At(Switch),
                |tls: &mut UpstreamTlsWritten| &mut tls.verify,
                "`false` believes any certificate: whoever is in between can read and change everything.",
            ),
            &key(
                "cert",
                PATH_KIND,
                |tls: &mut UpstreamTlsWritten| &mut tls.cert,
                "A client certificate for servers that ask for one, in PEM.",
            ),
            &key("key", PATH_KIND, |tls: &mut UpstreamTlsWritten| &mut tls.key, KEY),
        ],
    },
};

/// A duration, or a table with more.
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
            &required(
                "max_age",
                Maybe(MAX_AGE),
                |hsts: &mut HstsWritten| &mut hsts.max_age,
                "How long a browser keeps to HTTPS, where it is written as a table.",
            ),
            &key(
                "include_subdomains",
                Switch,
                |hsts: &mut HstsWritten| &mut hsts.include_subdomains,
                "The same for all hosts below this one.",
            ),
            &key(
                "preload",
                Switch,
                |hsts: &mut HstsWritten| &mut hsts.preload,
                "Asks for a place in the lists that browsers come with.",
            ),
        ],
    },
};

impl Kind<Hsts> for HstsKind {
    fn expected(&self) -> String {
        HSTS.to_owned()
    }

    fn brief(&self) -> String {
        "duration or table".to_owned()
    }

    fn document(&self, page: &mut Page) {
        HSTS_TABLE.document(page);
    }

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
