//! A single order of a certificate (RFC 8555 §7.4): proofs, key, certificate.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use config::{Acme, Authority, ChallengeKind, ChallengePorts, KeyType};
use instant_acme::{
    AuthorizationStatus, CertificateIdentifier, ChallengeStatus, ChallengeType, Error, Identifier, NewOrder,
    Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, RsaKeySize};
use tls::Challenges;

use super::account::AccountSession;
use super::failure::{AcmeFailure, AcmeFailureKind, is_about_replacement, problem_text};
use super::proof::{AcmeProof, ProofRequest};
use crate::change::Control;

/// Time limits for an authority to check a proof, and to issue.
const POLLS: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(180));

pub(crate) struct OrderedNames<'a> {
    /// At least one.
    pub(crate) names: &'a [String],
    pub(crate) authority: &'a Authority,
    pub(crate) settings: &'a Acme,
    pub(crate) ports: &'a ChallengePorts,
    /// Index of the challenge among those for the name.
    pub(crate) challenge: usize,
    /// The certificate that this one replaces (RFC 9773 §5).
    pub(crate) replaces: Option<CertificateIdentifier<'static>>,
    pub(crate) challenges: &'a Arc<Challenges>,
    pub(crate) control: &'a Weak<Control>,
}

/// In PEM.
pub(crate) struct IssuedPair {
    pub(crate) chain: String,
    pub(crate) key: String,
}

pub(crate) async fn order(
    session: &AccountSession,
    wanted: &OrderedNames<'_>,
) -> Result<IssuedPair, AcmeFailure> {
    let failed = |error: Error| AcmeFailure::from_error(&error).with_retry_after(&session.client);
    let identifiers: Vec<Identifier> = wanted.names.iter().map(|name| identifier(name)).collect();
    let mut new = NewOrder::new(&identifiers);
    if let Some(profile) = &wanted.authority.profile {
        new = new.profile(profile);
    }
    if let Some(replaces) = wanted.replaces.clone() {
        new = new.replaces(replaces);
    }
    let order = session.account.new_order(&new).await;
    let mut order = order.map_err(|error| {
        let may_be_that = wanted.replaces.is_some() && is_about_replacement(&error);
        let failure = failed(error);
        AcmeFailure {
            kind: if may_be_that { AcmeFailureKind::NotReplaceable } else { failure.kind },
            ..failure
        }
    })?;
    let mut proofs = Vec::new();
    let outcome = fulfil(session, wanted, &mut order, &mut proofs).await;
    for proof in proofs {
        proof.remove().await;
    }
    outcome
}

/// RFC 8738 §3: an address is a separate type of identifier.
fn identifier(name: &str) -> Identifier {
    match name.parse::<IpAddr>() {
        Ok(address) => Identifier::Ip(address),
        Err(_) => Identifier::Dns(name.to_owned()),
    }
}

async fn fulfil(
    session: &AccountSession,
    wanted: &OrderedNames<'_>,
    order: &mut Order,
    proofs: &mut Vec<AcmeProof>,
) -> Result<IssuedPair, AcmeFailure> {
    let failed = |error: Error| AcmeFailure::from_error(&error).with_retry_after(&session.client);
    prove(session, wanted, order, proofs).await?;
    if order.state().status == OrderStatus::Pending {
        let status = match order.poll_ready(&POLLS).await {
            Ok(status) => status,
            // This error says that an authorization failed, but not why.
            Err(error @ Error::Api(_)) => return Err(why_not(order).await.unwrap_or_else(|| failed(error))),
            Err(error) => return Err(failed(error)),
        };
        if status != OrderStatus::Ready {
            let unknown = || AcmeFailure::said("the authority did not accept the proof".to_owned());
            return Err(why_not(order).await.unwrap_or_else(unknown));
        }
    }
    // An RSA key takes seconds, which would block the control thread.
    let kind = wanted.settings.key_type;
    let key = tokio::task::spawn_blocking(move || key(kind)).await;
    let key = key.map_err(|error| AcmeFailure::said(error.to_string()))?;
    let key = key.map_err(|error| AcmeFailure::said(error.to_string()))?;
    let request = request(wanted.names, &key).map_err(|error| AcmeFailure::said(error.to_string()))?;
    if let Err(error) = order.finalize_csr(&request).await {
        // RFC 8555 §7.4: the request may have arrived although its response was lost.
        let status = order.refresh().await.map(|state| state.status);
        if !matches!(status, Ok(OrderStatus::Processing | OrderStatus::Valid)) {
            return Err(failed(error));
        }
    }
    let chain = order.poll_certificate(&POLLS).await.map_err(failed)?;
    Ok(IssuedPair { chain, key: key.serialize_pem() })
}

/// Prepares the proofs for the order, and tells the authority to check them.
async fn prove(
    session: &AccountSession,
    wanted: &OrderedNames<'_>,
    order: &mut Order,
    proofs: &mut Vec<AcmeProof>,
) -> Result<(), AcmeFailure> {
    let failed = |error: Error| AcmeFailure::from_error(&error).with_retry_after(&session.client);
    let mut refused = None;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(failed)?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let offered: Vec<ChallengeType> =
            authorization.challenges.iter().map(|challenge| challenge.r#type.clone()).collect();
        // With `*.` for a wildcard, which the identifier lacks (RFC 8555 §7.1.4).
        let name = authorization.identifier().to_string();
        let kind = choose(wanted, &name, &offered)?;
        let Some(mut challenge) = authorization.challenge(written(kind)) else { continue };
        let asked = ProofRequest {
            name: &name,
            kind,
            token: challenge.token.clone(),
            key_authorization: challenge.key_authorization(),
            account: session.account.id(),
            issuers: session.client.issuers(),
        };
        proofs.push(AcmeProof::prepare(&asked, wanted.settings, (wanted.challenges, wanted.control)).await?);
        if let Err(error) = challenge.set_ready().await {
            refused = Some(error);
        }
    }
    match refused {
        // RFC 8555 §7.5.1: the request may have arrived although its response was lost.
        Some(error) if !are_looked_at(order).await => Err(failed(error)),
        _ => Ok(()),
    }
}

/// Whether the authority checks a proof for each name, or has done so.
async fn are_looked_at(order: &mut Order) -> bool {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let Ok(mut authorization) = authorization else { return false };
        let Ok(state) = authorization.refresh().await else { return false };
        let mut challenges = state.challenges.iter();
        let is_pending = challenges.all(|challenge| challenge.status == ChallengeStatus::Pending);
        if is_pending && state.status == AuthorizationStatus::Pending {
            return false;
        }
    }
    true
}

fn choose(
    wanted: &OrderedNames<'_>,
    name: &str,
    offered: &[ChallengeType],
) -> Result<ChallengeKind, AcmeFailure> {
    let mut kinds = wanted.settings.challenges_for(name, wanted.ports);
    kinds.retain(|kind| offered.contains(&written(*kind)));
    match kinds.len() {
        0 => {
            let offered: Vec<String> = offered.iter().map(|kind| format!("{kind:?}")).collect();
            let what =
                format!("[acme] allows no challenge that the authority offers: {}", offered.join(", "));
            Err(AcmeFailure::said(what))
        }
        count => Ok(kinds[wanted.challenge % count]),
    }
}

fn written(kind: ChallengeKind) -> ChallengeType {
    match kind {
        ChallengeKind::Http01 => ChallengeType::Http01,
        ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
        ChallengeKind::Dns01 => ChallengeType::Dns01,
        ChallengeKind::DnsPersist01 => ChallengeType::Unknown("dns-persist-01".to_owned()),
    }
}

async fn why_not(order: &mut Order) -> Option<AcmeFailure> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.ok()?;
        let state = authorization.refresh().await.ok()?;
        let invalid = state.challenges.iter().find(|challenge| challenge.status == ChallengeStatus::Invalid);
        if let Some(problem) = invalid.and_then(|challenge| challenge.error.as_ref()) {
            let kind = match invalid.map(|challenge| &challenge.r#type) {
                Some(ChallengeType::Http01) => "http-01, at port 80",
                Some(ChallengeType::TlsAlpn01) => "tls-alpn-01, at port 443",
                Some(ChallengeType::Dns01) => "dns-01",
                Some(ChallengeType::Unknown(kind)) => kind,
                _ => "the challenge",
            };
            return Some(AcmeFailure::said(format!("{kind}: {}", problem_text(problem))));
        }
    }
    None
}

fn key(kind: KeyType) -> Result<rcgen::KeyPair, rcgen::Error> {
    match kind {
        KeyType::EcdsaP256 => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        KeyType::EcdsaP384 => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        KeyType::Rsa2048 => rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048),
        KeyType::Rsa4096 => rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_4096),
    }
}

/// RFC 8555 §7.4: a request with only the names, in DER.
fn request(names: &[String], key: &rcgen::KeyPair) -> Result<Vec<u8>, rcgen::Error> {
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name = DistinguishedName::new();
    Ok(parameters.serialize_request(key)?.der().to_vec())
}
