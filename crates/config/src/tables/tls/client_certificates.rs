//! Options of client certificates: of a listener, and of some names; their relations, and their settings.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::document::reader::{Reader, Span};
use crate::option::host::{DEEP_PATTERN, deep_pattern};
use crate::option::kind::{At, List, Located, Maybe, Text, Word};
use crate::option::path::{PATH_KIND, Path, PathKind};
use crate::option::range::{Count, Unit};
use crate::option::table::{Element, Inline, Table, key, required};
use crate::tables::tls::{ClientCertificates, ClientRule, ClientTrust, ExpiredCrls};

#[derive(Debug, Clone, Default)]
pub(crate) struct ClientCertificatesWritten {
    pub(crate) mode: Option<Mode>,
    pub(crate) trust: TrustWritten,
}

/// The parsed options of which certificates are accepted.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrustWritten {
    pub(crate) ca: Path,
    pub(crate) crls: Vec<Located<PathBuf>>,
    pub(crate) expired_crls: ExpiredCrls,
    pub(crate) depth: Option<usize>,
}

/// Whether a client must have a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Only if names have separate rules.
    None,
    Optional,
    Required,
}

const MODE_DOC: &str = "`\"optional\"` also serves clients without a certificate. A certificate that the CA has not \
    signed is rejected in both modes.";
const CA_DOC: &str = "The CA certificates that sign client certificates, in PEM.";
const CRLS_DOC: &str = "Certificate revocation lists, in PEM or DER: one from each CA that has signed a \
                        client certificate or an intermediate. A certificate from a CA without a list is \
                        rejected. Changed files are reloaded. Default: nothing is revoked.";
const EXPIRED_CRLS_DOC: &str = "What happens when a revocation list is past its next update: `\"refuse\"` \
                                rejects the certificates of its CA, `\"use\"` continues to use it. A message \
                                warns in both cases.";

const DEPTH_DOC: &str = "The most intermediate certificates between the client's and that of a CA. 0: the CA itself has \
                         signed it. Default: 6.";
/// The library accepts no more.
const DEPTH: Maybe<Count> = Maybe(Count { range: 0..=6, unit: Unit::Things });

const CRLS: List<At<PathKind>> = List { kind: At(PathKind), may_be_empty: true };
const EXPIRED_CRLS: Word<ExpiredCrls> =
    Word { words: &[("refuse", ExpiredCrls::Refuse), ("use", ExpiredCrls::Use)] };

pub(crate) const CLIENT_CERTIFICATES: Inline<ClientCertificatesWritten> = Inline {
    title: "client_certificates",
    example: "{ mode = \"required\", ca = \"clients.pem\" }",
    table: &Table {
        options: &[
            required!(
                "mode",
                Maybe(Word { words: &[("optional", Mode::Optional), ("required", Mode::Required)] }),
                ClientCertificatesWritten.mode,
                MODE_DOC,
            ),
            required!("ca", PATH_KIND, ClientCertificatesWritten.trust.ca, CA_DOC,),
            key!("crls", CRLS, ClientCertificatesWritten.trust.crls, CRLS_DOC),
            key!(
                "expired_crls",
                EXPIRED_CRLS,
                ClientCertificatesWritten.trust.expired_crls,
                EXPIRED_CRLS_DOC,
            ),
            key!("depth", DEPTH, ClientCertificatesWritten.trust.depth, DEPTH_DOC),
        ],
    },
};

/// A parsed element of `client_certificates_by_name`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientRuleWritten {
    pub(crate) names: Option<Vec<Located<String>>>,
    pub(crate) mode: Option<Mode>,
    pub(crate) trust: TrustWritten,
}

pub(crate) const CLIENT_RULE: Inline<ClientRuleWritten> = Inline {
    title: "this rule",
    example: "{ names = [\"admin.example.com\"], mode = \"required\", ca = \"staff.pem\" }",
    table: &Table {
        options: &[
            required!(
                "names",
                Maybe(List {
                    kind: At(Text { expected: DEEP_PATTERN, read: deep_pattern, print: String::clone }),
                    may_be_empty: false,
                }),
                ClientRuleWritten.names,
                "The names, also with a wildcard for one label, `*.example.com`, or for any number: `**.example.com`.",
            ),
            required!(
                "mode",
                Maybe(Word {
                    words: &[
                        ("none", Mode::None),
                        ("optional", Mode::Optional),
                        ("required", Mode::Required),
                    ],
                }),
                ClientRuleWritten.mode,
                "As `mode` of `client_certificates`; `\"none\"` requests no certificate.",
            ),
            key!("ca", PATH_KIND, ClientRuleWritten.trust.ca, CA_DOC),
            key!("crls", CRLS, ClientRuleWritten.trust.crls, CRLS_DOC),
            key!("expired_crls", EXPIRED_CRLS, ClientRuleWritten.trust.expired_crls, EXPIRED_CRLS_DOC,),
            key!("depth", DEPTH, ClientRuleWritten.trust.depth, DEPTH_DOC),
        ],
    },
};

/// Adds mistakes about rules that contradict each other or themselves.
pub(crate) fn check_rules(rules: &[Element<ClientRuleWritten>], reader: &mut Reader<'_>) {
    let mut refuse = |at: &Span, message: String, expected: &str| {
        let mistake = reader.mistake(at, message);
        reader.add(mistake.expecting(expected));
    };
    let mut known: HashMap<&str, ()> = HashMap::new();
    for Element { value: rule, at, .. } in rules.iter().filter(|rule| rule.is_intact) {
        let TrustWritten { ca, crls, .. } = &rule.trust;
        match (rule.mode, ca) {
            (Some(Mode::None), Some(ca)) => {
                refuse(&ca.at, "ca is not used: no certificate is requested".to_owned(), "another mode");
            }
            (Some(Mode::None), None) if !crls.is_empty() => {
                refuse(&crls[0].at, "crls needs ca".to_owned(), "another mode, with ca");
            }
            (Some(Mode::Optional | Mode::Required), None) => {
                refuse(at, "this rule has no ca".to_owned(), "the CA that signs client certificates");
            }
            _ => {}
        }
        for name in rule.names.iter().flatten() {
            if known.insert(&name.value, ()).is_some() {
                let message = format!("names: {:?} has another rule already", name.value);
                refuse(&name.at, message, "each name once");
            }
        }
    }
}

/// Converts the parsed option to settings; `None` if it has a mistake.
pub(crate) fn settings(written: Option<Element<ClientCertificatesWritten>>) -> Option<ClientCertificates> {
    let Some(Element { value, .. }) = written else { return Some(ClientCertificates::None) };
    of_mode(value.mode, value.trust)
}

/// Converts a parsed rule to settings; `None` if it has a mistake.
pub(crate) fn rule(written: ClientRuleWritten) -> Option<ClientRule> {
    let ClientRuleWritten { names, mode, trust } = written;
    Some(ClientRule {
        names: names?.into_iter().map(|name| name.value).collect(),
        client_certificates: of_mode(mode, trust)?,
    })
}

fn of_mode(mode: Option<Mode>, trust: TrustWritten) -> Option<ClientCertificates> {
    let TrustWritten { ca, crls, expired_crls, depth } = trust;
    let crls = crls.into_iter().map(|path| path.value).collect();
    let trust = || ca.map(|ca| ClientTrust { ca: ca.value, crls, expired_crls, depth });
    Some(match mode? {
        Mode::None => ClientCertificates::None,
        Mode::Optional => ClientCertificates::Optional(trust()?),
        Mode::Required => ClientCertificates::Required(trust()?),
    })
}

/// The files, with their options.
pub(crate) fn files(trust: &TrustWritten) -> impl Iterator<Item = (&'static str, &Located<PathBuf>)> {
    trust.ca.iter().map(|ca| ("ca", ca)).chain(trust.crls.iter().map(|crl| ("crls", crl)))
}
