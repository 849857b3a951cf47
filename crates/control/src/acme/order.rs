//! One order of a certificate (RFC 8555 §7.4): proofs, key, certificate.

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

use super::account::Session;
use super::failure::{Failure, Kind, is_about_replacement, problem_text};
use super::proof::{Asked, Proof};
use crate::change::Control;

/// How long an authority may take to look at a proof, and to issue.
const POLLS: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(180));

/// What is ordered.
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    pub(crate) authority: &'a Authority,
    pub(crate) settings: &'a Acme,
    pub(crate) ports: &'a ChallengePorts,
    /// The place of the challenge among those for the name.
    pub(crate) challenge: usize,
    /// The certificate that this one replaces (RFC 9773 §5).
    pub(crate) replaces: Option<CertificateIdentifier<'static>>,
    pub(crate) challenges: &'a Arc<Challenges>,
    pub(crate) control: &'a Weak<Control>,
}

/// A certificate and its key, in PEM.
pub(crate) struct Pair {
    pub(crate) chain: String,
    pub(crate) key: String,
}

/// Orders a certificate, with a key of its own.
pub(crate) async fn order(session: &Session, wanted: &Wanted<'_>) -> Result<Pair, Failure> {
    let failed = |error: Error| Failure::of(&error).with_retry_after(&session.client);
    let identifiers = [identifier(wanted.name)];
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
        Failure { kind: if may_be_that { Kind::NotReplaceable } else { failure.kind }, ..failure }
    })?;
    let mut proofs = Vec::new();
    let outcome = fulfil(session, wanted, &mut order, &mut proofs).await;
    for proof in proofs {
        proof.remove().await;
    }
    outcome
}

/// RFC 8738 §3: an address is an identifier of its own kind.
fn identifier(name: &str) -> Identifier {
    match name.parse::<IpAddr>() {
        Ok(address) => Identifier::Ip(address),
        Err(_) => Identifier::Dns(name.to_owned()),
    }
}

async fn fulfil(
    session: &Session,
    wanted: &Wanted<'_>,
    order: &mut Order,
    proofs: &mut Vec<Proof>,
) -> Result<Pair, Failure> {
    let failed = |error: Error| Failure::of(&error).with_retry_after(&session.client);
    prove(session, wanted, order, proofs).await?;
    if order.state().status == OrderStatus::Pending {
        let status = match order.poll_ready(&POLLS).await {
            Ok(status) => status,
            // It says that an authorization failed, but not why.
            Err(error @ Error::Api(_)) => return Err(why_not(order).await.unwrap_or_else(|| failed(error))),
            Err(error) => return Err(failed(error)),
        };
        if status != OrderStatus::Ready {
            let unknown = || Failure::said("the authority did not accept the proof".to_owned());
            return Err(why_not(order).await.unwrap_or_else(unknown));
        }
    }
    // With RSA it takes seconds, and this thread has other things to do.
    let kind = wanted.settings.key_type;
    let key = tokio::task::spawn_blocking(move || key(kind)).await;
    let key = key.map_err(|error| Failure::said(error.to_string()))?;
    let key = key.map_err(|error| Failure::said(error.to_string()))?;
    let request = request(wanted.name, &key).map_err(|error| Failure::said(error.to_string()))?;
    order.finalize_csr(&request).await.map_err(failed)?;
    let chain = order.poll_certificate(&POLLS).await.map_err(failed)?;
    Ok(Pair { chain, key: key.serialize_pem() })
}

/// Prepares the proofs that the order asks for, and tells the authority that they can be looked at.
async fn prove(
    session: &Session,
    wanted: &Wanted<'_>,
    order: &mut Order,
    proofs: &mut Vec<Proof>,
) -> Result<(), Failure> {
    let failed = |error: Error| Failure::of(&error).with_retry_after(&session.client);
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(failed)?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let offered: Vec<ChallengeType> =
            authorization.challenges.iter().map(|challenge| challenge.r#type.clone()).collect();
        let kind = choose(wanted, &offered)?;
        let Some(mut challenge) = authorization.challenge(written(kind)) else { continue };
        let asked = Asked {
            name: wanted.name,
            kind,
            token: challenge.token.clone(),
            key_authorization: challenge.key_authorization(),
            account: session.account.id(),
            issuers: session.client.issuers(),
        };
        proofs.push(Proof::prepare(&asked, wanted.settings, (wanted.challenges, wanted.control)).await?);
        challenge.set_ready().await.map_err(failed)?;
    }
    Ok(())
}

/// The challenge whose turn it is, among those that are offered.
fn choose(wanted: &Wanted<'_>, offered: &[ChallengeType]) -> Result<ChallengeKind, Failure> {
    let mut kinds = wanted.settings.challenges_for(wanted.name, wanted.ports);
    kinds.retain(|kind| offered.contains(&written(*kind)));
    match kinds.len() {
        0 => {
            let offered: Vec<String> = offered.iter().map(|kind| format!("{kind:?}")).collect();
            let what =
                format!("the authority offers no challenge that [acme] has, but {}", offered.join(", "));
            Err(Failure::said(what))
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

/// What an authority says of a proof that it did not accept.
async fn why_not(order: &mut Order) -> Option<Failure> {
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
            return Some(Failure::said(format!("{kind}: {}", problem_text(problem))));
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

/// RFC 8555 §7.4: a request with the names and nothing else, in DER.
fn request(name: &str, key: &rcgen::KeyPair) -> Result<Vec<u8>, rcgen::Error> {
    let mut parameters = CertificateParams::new(vec![name.to_owned()])?;
    parameters.distinguished_name = DistinguishedName::new();
    Ok(parameters.serialize_request(key)?.der().to_vec())
}
