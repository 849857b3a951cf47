//! Proofs of control over a name: answers of the proxy, or records in DNS.

use std::sync::{Arc, Weak};

use config::{Acme, ChallengeKind, DnsChallenge, DnsWay};
use instant_acme::KeyAuthorization;
use telemetry::message;
use tls::{Answered, Challenges};

use super::dns_command;
use super::dns_update;
use super::failure::Failure;
use crate::change::Control;
use crate::shared::{Offer, Offered, offer};

/// What an authority asks for.
pub(crate) struct Asked<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: ChallengeKind,
    pub(crate) token: String,
    pub(crate) key_authorization: KeyAuthorization,
    /// The URL of the account.
    pub(crate) account: &'a str,
    /// The names by which the authority is called in DNS.
    pub(crate) issuers: Vec<String>,
}

/// A proof, until it is removed.
pub(crate) enum Proof {
    /// This process answers, and other instances do.
    Answered(#[expect(dead_code, reason = "answers are given while it is held")] Given),
    Record(Record, DnsWay),
    /// One that the operator has made.
    Standing,
}

/// Answers, which are given while this is held.
pub(crate) struct Given {
    _here: Answered,
    _elsewhere: Option<Offered>,
}

/// A TXT record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// The name of the certificate.
    pub(crate) certificate: String,
    /// The name of the record, without a dot at its end.
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Proof {
    /// Prepares a proof, so that the authority may look at it.
    pub(crate) async fn prepare(
        asked: &Asked<'_>,
        settings: &Acme,
        (challenges, control): (&Arc<Challenges>, &Weak<Control>),
    ) -> Result<Self, Failure> {
        let host = asked.name.trim_start_matches("*.");
        match (asked.kind, &settings.dns) {
            (ChallengeKind::Http01, _) => {
                let text = asked.key_authorization.as_str();
                let here = challenges.answer_file(&asked.token, text);
                let shared = Offer::File { token: asked.token.clone(), text: text.to_owned() };
                Ok(Self::Answered(Given { _here: here, _elsewhere: offer(control, shared).await }))
            }
            (ChallengeKind::TlsAlpn01, _) => {
                let digest = asked.key_authorization.digest();
                let digest = digest.as_ref().try_into();
                let digest = digest.map_err(|_| Failure::said("a digest is too short".to_owned()))?;
                let here = challenges.answer_handshake(host, digest).map_err(Failure::said)?;
                let shared = Offer::Handshake { name: host.to_owned(), digest: *digest };
                Ok(Self::Answered(Given { _here: here, _elsewhere: offer(control, shared).await }))
            }
            (ChallengeKind::Dns01, Some(DnsChallenge { way, wait })) => {
                let record = Record {
                    certificate: asked.name.to_owned(),
                    // RFC 8555 §8.4: of a wildcard, that of the name below which it is.
                    name: format!("_acme-challenge.{host}"),
                    value: asked.key_authorization.dns_value(),
                };
                change(way, &record, Change::Present).await?;
                tokio::time::sleep(*wait).await;
                Ok(Self::Record(record, way.clone()))
            }
            (ChallengeKind::DnsPersist01, _) => {
                tell_standing(asked, host);
                Ok(Self::Standing)
            }
            (ChallengeKind::Dns01, None) => Err(Failure::said("[acme] has no dns".to_owned())),
        }
    }

    /// Removes what was prepared.
    pub(crate) async fn remove(self) {
        let Self::Record(record, way) = self else { return };
        if let Err(failure) = change(&way, &record, Change::Cleanup).await {
            message::warn(&format!("acme: {} stays in DNS: {}", record.name, failure.what));
        }
    }
}

/// Whether a record is made or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Present,
    Cleanup,
}

async fn change(way: &DnsWay, record: &Record, change: Change) -> Result<(), Failure> {
    let changed = match way {
        DnsWay::Command(words) => dns_command::run(words, record, change).await,
        DnsWay::Update(update) => dns_update::send(update, record, change).await,
        DnsWay::Persistent => Ok(()),
    };
    changed.map_err(|what| Failure::said(format!("{}: {what}", record.name)))
}

/// Tells the operator which record has to be there (draft-ietf-acme-dns-persist).
fn tell_standing(asked: &Asked<'_>, host: &str) {
    let policy = if asked.name.starts_with("*.") { "; policy=wildcard" } else { "" };
    for issuer in &asked.issuers {
        message::info(&format!(
            "certificate of {}: the authority looks for this record: _validation-persist.{host}. IN TXT \"{issuer}; \
             accounturi={}{policy}\"",
            asked.name, asked.account
        ));
    }
}
