//! Proofs of control over a name: responses by the proxy, or DNS records.

use std::sync::{Arc, Weak};

use config::{Acme, ChallengeKind, DnsChallenge, DnsWay};
use instant_acme::KeyAuthorization;
use telemetry::message;
use tls::{Challenges, ServedChallenge};

use super::dns_command;
use super::dns_update;
use super::failure::AcmeFailure;
use crate::change::Control;
use crate::shared::{Offer, Offered, offer};

pub(crate) struct ProofRequest<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: ChallengeKind,
    pub(crate) token: String,
    pub(crate) key_authorization: KeyAuthorization,
    pub(crate) account: &'a str,
    pub(crate) issuers: Vec<String>,
}

pub(crate) enum AcmeProof {
    /// This process and other instances respond.
    Answered(#[expect(dead_code, reason = "answers are given while it is held")] HeldProof),
    Record(TxtRecord, DnsWay),
    /// A DNS record that the operator maintains.
    Standing,
}

/// Responses, given while this is held.
pub(crate) struct HeldProof {
    _here: ServedChallenge,
    _elsewhere: Option<Offered>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TxtRecord {
    pub(crate) certificate: String,
    /// The record's name without a trailing dot.
    pub(crate) name: String,
    pub(crate) value: String,
}

impl AcmeProof {
    pub(crate) async fn prepare(
        asked: &ProofRequest<'_>,
        settings: &Acme,
        (challenges, control): (&Arc<Challenges>, &Weak<Control>),
    ) -> Result<Self, AcmeFailure> {
        let host = asked.name.trim_start_matches("*.");
        match (asked.kind, &settings.dns) {
            (ChallengeKind::Http01, _) => {
                let text = asked.key_authorization.as_str();
                let here = challenges.answer_file(&asked.token, text);
                let shared = Offer::File { token: asked.token.clone(), text: text.to_owned() };
                Ok(Self::Answered(HeldProof { _here: here, _elsewhere: offer(control, shared).await }))
            }
            (ChallengeKind::TlsAlpn01, _) => {
                let digest = asked.key_authorization.digest();
                let digest = digest.as_ref().try_into();
                let digest = digest.map_err(|_| AcmeFailure::said("a digest is too short".to_owned()))?;
                let here = challenges.answer_handshake(host, digest).map_err(AcmeFailure::said)?;
                let shared = Offer::Handshake { name: host.to_owned(), digest: *digest };
                Ok(Self::Answered(HeldProof { _here: here, _elsewhere: offer(control, shared).await }))
            }
            (ChallengeKind::Dns01, Some(DnsChallenge { way, wait })) => {
                let record = TxtRecord {
                    certificate: asked.name.to_owned(),
                    // RFC 8555 §8.4: for a wildcard, the name below which it is.
                    name: format!("_acme-challenge.{host}"),
                    value: asked.key_authorization.dns_value(),
                };
                change(way, &record, RecordChange::Present).await?;
                tokio::time::sleep(*wait).await;
                Ok(Self::Record(record, way.clone()))
            }
            (ChallengeKind::DnsPersist01, _) => {
                tell_standing(asked, host);
                Ok(Self::Standing)
            }
            (ChallengeKind::Dns01, None) => Err(AcmeFailure::said("[acme] has no dns".to_owned())),
        }
    }

    pub(crate) async fn remove(self) {
        let Self::Record(record, way) = self else { return };
        if let Err(failure) = change(&way, &record, RecordChange::Cleanup).await {
            message::warn(&format!("acme: {} stays in DNS: {}", record.name, failure.what));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordChange {
    Present,
    Cleanup,
}

async fn change(way: &DnsWay, record: &TxtRecord, change: RecordChange) -> Result<(), AcmeFailure> {
    let changed = match way {
        DnsWay::Command(words) => dns_command::run(words, record, change).await,
        DnsWay::Update(update) => dns_update::send(update, record, change).await,
        DnsWay::Persistent => Ok(()),
    };
    changed.map_err(|what| AcmeFailure::said(format!("{}: {what}", record.name)))
}

/// Tells the operator which record must exist (draft-ietf-acme-dns-persist).
fn tell_standing(asked: &ProofRequest<'_>, host: &str) {
    let policy = if asked.name.starts_with("*.") { "; policy=wildcard" } else { "" };
    for issuer in &asked.issuers {
        message::info(&format!(
            "certificate of {}: the authority requires this record: _validation-persist.{host}. IN TXT \"{issuer}; \
             accounturi={}{policy}\"",
            asked.name, asked.account
        ));
    }
}
