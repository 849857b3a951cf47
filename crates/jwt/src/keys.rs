//! Keys from PEM files, JWKS documents (RFC 7517) and secrets. A set has either public keys or one secret.
//!
//! Unusable keys of a JWKS are skipped, because an issuer may also publish keys for other purposes.

use std::fmt;

use aws_lc_rs::signature::{ECDSA_P521_SHA512_FIXED, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::DecodingKey;
use sha2::{Digest, Sha256};

use crate::algorithm::Algorithm;
use crate::der::{self, PublicKey};
use crate::json::Json;
use crate::refusal::Refusal;
use crate::token::ParsedToken;

/// Further keys of a set are skipped.
const KEYS_MAX: usize = 128;
/// The number of keys tried per token. Only a token without `kid`, or a set without key IDs, can match more.
const TRIED_MAX: usize = 4;
/// RFC 7518 §3.3 requires at least 2048 bits. With more than 8192, verifying takes too long.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// RFC 7518 §3.2: at least the size of the hash.
const SECRET_BYTES_MIN: usize = 32;

/// Keys that verify tokens. `Debug` shows no key material.
#[derive(Clone, PartialEq)]
pub struct KeySet {
    keys: Vec<VerifyingKey>,
    skipped: Vec<String>,
}

/// The problem with a text from which keys are read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    #[error("it has neither a public key in PEM nor a JSON Web Key Set")]
    Form,
    /// The label of the PEM block, and a hint at a remedy.
    #[error("it has a {0}, which is no public key; {1}")]
    Label(String, &'static str),
    /// The number of the key in the PEM text, from 1.
    #[error("key {0} of it is no RSA key of 2048 to 8192 bits, and none on P-256, P-384, P-521 or Ed25519")]
    Kind(usize),
    #[error("it is no JSON Web Key Set: an object with a list \"keys\"")]
    NoSet,
    /// The reasons for all keys.
    #[error("none of its keys can be used{}", listed(.0))]
    Unusable(Vec<String>),
    #[error("the secret has fewer than {SECRET_BYTES_MIN} bytes")]
    Short,
    /// A public key used as the secret, which an attacker would know.
    #[error("it is a key in PEM or a JSON Web Key, and no secret: name it in `keys`")]
    NoSecret,
}

fn listed(skipped: &[String]) -> String {
    if skipped.is_empty() { String::new() } else { format!(": {}", skipped.join("; ")) }
}

#[derive(Clone)]
struct VerifyingKey {
    id: Option<String>,
    kind: KeyKind,
    /// From the key's `alg`: the only algorithm that it is for.
    algorithm: Option<Algorithm>,
    /// The key material. Equal keys have equal bytes.
    bytes: Vec<u8>,
    /// `None` for P-521, which the library `jsonwebtoken` lacks.
    decoding: Option<DecodingKey>,
}

impl PartialEq for VerifyingKey {
    fn eq(&self, other: &Self) -> bool {
        (&self.id, self.kind, self.algorithm, &self.bytes)
            == (&other.id, other.kind, other.algorithm, &other.bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Secret,
    Rsa,
    P256,
    P384,
    P521,
    Ed25519,
}

impl KeyKind {
    /// RFC 8725 §3.1: the kind of key restricts the algorithm, regardless of the token's header.
    fn takes(self, algorithm: Algorithm) -> bool {
        use Algorithm::{
            EdDsa, Es256, Es384, Es512, Hs256, Hs384, Hs512, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512,
        };
        match algorithm {
            Hs256 | Hs384 | Hs512 => self == Self::Secret,
            Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512 => self == Self::Rsa,
            Es256 => self == Self::P256,
            Es384 => self == Self::P384,
            Es512 => self == Self::P521,
            EdDsa => self == Self::Ed25519,
        }
    }
}

impl KeySet {
    /// Reads public keys from PEM or JWKS text.
    ///
    /// # Errors
    /// If the text has no usable key.
    pub fn parse(text: &[u8]) -> Result<Self, KeyFault> {
        match text.trim_ascii_start() {
            [b'{', ..] => Self::jwks(text),
            _ => Self::pem(std::str::from_utf8(text).map_err(|_| KeyFault::Form)?),
        }
    }

    /// Reads a JWKS document. Secrets in it (`oct`) are skipped.
    ///
    /// # Errors
    /// If the document has no usable key.
    pub fn jwks(text: &[u8]) -> Result<Self, KeyFault> {
        let json = Json::parse(text).ok_or(KeyFault::NoSet)?;
        let list = json.member("keys").and_then(Json::list).ok_or(KeyFault::NoSet)?;
        let mut set = Self { keys: Vec::new(), skipped: Vec::new() };
        for (place, jwk) in list.iter().enumerate() {
            let id = jwk.member("kid").and_then(Json::text);
            let read = if set.keys.len() == KEYS_MAX { Err("is one too many") } else { of_jwk(jwk) };
            match read {
                Ok(key) => set.keys.push(VerifyingKey { id: id.map(str::to_owned), ..key }),
                Err(reason) => {
                    let id = id.map(|id| format!(" ({:.64})", id.escape_debug().to_string()));
                    let name = format!("key {}{}", place + 1, id.unwrap_or_default());
                    set.skipped.push(format!("{name} {reason}"));
                }
            }
        }
        if set.keys.is_empty() { Err(KeyFault::Unusable(set.skipped)) } else { Ok(set) }
    }

    fn pem(text: &str) -> Result<Self, KeyFault> {
        const BEGIN: &str = "-----BEGIN ";
        let mut keys = Vec::new();
        let mut rest = text;
        while let Some((_, found)) = rest.split_once(BEGIN) {
            let (label, found) = found.split_once("-----").ok_or(KeyFault::Form)?;
            let (body, found) = found.split_once(&format!("-----END {label}-----")).ok_or(KeyFault::Form)?;
            rest = found;
            let body: String = body.split_ascii_whitespace().collect();
            let bytes = STANDARD.decode(body).map_err(|_| KeyFault::Form)?;
            let key = match label {
                "PUBLIC KEY" => der::public_key_info(&bytes),
                "RSA PUBLIC KEY" => der::rsa(&bytes),
                other => return Err(KeyFault::Label(other.to_ascii_lowercase(), remedy(other))),
            };
            let key = key.and_then(|key| of_public_key(&key));
            keys.push(key.ok_or(KeyFault::Kind(keys.len() + 1))?);
        }
        if keys.is_empty() { Err(KeyFault::Form) } else { Ok(Self { keys, skipped: Vec::new() }) }
    }

    /// Reads an HMAC secret. White space around it is removed.
    ///
    /// # Errors
    /// If the secret is too short, or is a public key.
    pub fn secret(text: &[u8]) -> Result<Self, KeyFault> {
        let secret = text.trim_ascii();
        // A public key used as an HMAC secret enables the algorithm confusion attack (RFC 8725 §2.1).
        if secret.starts_with(b"-----BEGIN ") || Json::parse(secret).is_some() {
            return Err(KeyFault::NoSecret);
        }
        if secret.len() < SECRET_BYTES_MIN {
            return Err(KeyFault::Short);
        }
        let key = key(KeyKind::Secret, secret.to_vec(), Some(DecodingKey::from_secret(secret)));
        Ok(Self { keys: vec![key], skipped: Vec::new() })
    }

    /// A reason for each key that was skipped.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Always false for a set that was read.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether the set has a key for the algorithm.
    pub fn takes(&self, algorithm: Algorithm) -> bool {
        self.keys.iter().any(|key| key.takes(algorithm))
    }

    /// Verifies an Ed25519 signature (RFC 8032) with the key that has this thumbprint (RFC 7638).
    ///
    /// # Errors
    /// `UnknownKey` if the set has no such key, `Signature` if the signature is wrong.
    pub fn verify_message(&self, thumbprint: &str, message: &[u8], signature: &[u8]) -> Result<(), Refusal> {
        let is_meant = |key: &&VerifyingKey| key.kind == KeyKind::Ed25519 && key.thumbprint() == thumbprint;
        let key = self.keys.iter().find(is_meant).ok_or(Refusal::UnknownKey)?;
        let signature = URL_SAFE_NO_PAD.encode(signature);
        let is_right = key.verifies(Algorithm::EdDsa, message, &signature);
        if is_right { Ok(()) } else { Err(Refusal::Signature) }
    }

    /// # Errors
    /// `UnknownKey` if no key of the set matches the token, `Signature` if the signature is wrong.
    pub(crate) fn verify(&self, token: &ParsedToken<'_>) -> Result<(), Refusal> {
        let is_meant = |key: &&VerifyingKey| {
            let is_named = match (&key.id, &token.key_id) {
                (Some(known), Some(named)) => known == named,
                // Keys from PEM have no ID, and `kid` is optional in tokens.
                (None, _) | (_, None) => true,
            };
            is_named && key.takes(token.algorithm)
        };
        let mut refusal = Refusal::UnknownKey;
        for key in self.keys.iter().filter(is_meant).take(TRIED_MAX) {
            if key.verifies(token.algorithm, token.signed, token.signature) {
                return Ok(());
            }
            refusal = Refusal::Signature;
        }
        Err(refusal)
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.keys.iter().map(|key| (key.kind, &key.id));
        formatter.debug_list().entries(ids).finish()
    }
}

impl VerifyingKey {
    fn takes(&self, algorithm: Algorithm) -> bool {
        self.kind.takes(algorithm) && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// `signature` is in base64url.
    fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &str) -> bool {
        match algorithm.verifier().zip(self.decoding.as_ref()) {
            Some((algorithm, key)) => {
                matches!(jsonwebtoken::crypto::verify(signature, message, key, algorithm), Ok(true))
            }
            // RFC 7518 §3.4: two numbers of 66 bytes each.
            None => URL_SAFE_NO_PAD.decode(signature).is_ok_and(|signature| {
                self.kind == KeyKind::P521
                    && UnparsedPublicKey::new(&ECDSA_P521_SHA512_FIXED, &self.bytes)
                        .verify(message, &signature)
                        .is_ok()
            }),
        }
    }

    /// RFC 7638, RFC 8037 Appendix A.3; for Ed25519 keys only.
    fn thumbprint(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(&self.bytes);
        URL_SAFE_NO_PAD.encode(Sha256::digest(format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#)))
    }
}

/// A hint for PEM blocks other than public keys.
fn remedy(label: &str) -> &'static str {
    match label {
        "CERTIFICATE" => "openssl x509 -pubkey -noout prints the key of a certificate",
        label if label.ends_with("PRIVATE KEY") => {
            "keep it at the issuer: openssl pkey -pubout prints its public key"
        }
        _ => "openssl pkey -pubin reads those that are",
    }
}

fn key(kind: KeyKind, bytes: Vec<u8>, decoding: Option<DecodingKey>) -> VerifyingKey {
    VerifyingKey { id: None, kind, algorithm: None, bytes, decoding }
}

fn of_public_key(found: &PublicKey<'_>) -> Option<VerifyingKey> {
    match *found {
        PublicKey::Rsa { modulus, exponent } => rsa(modulus, exponent),
        PublicKey::P256(point) => {
            Some(key(KeyKind::P256, point.to_vec(), Some(DecodingKey::from_ec_der(point))))
        }
        PublicKey::P384(point) => {
            Some(key(KeyKind::P384, point.to_vec(), Some(DecodingKey::from_ec_der(point))))
        }
        PublicKey::P521(point) => Some(key(KeyKind::P521, point.to_vec(), None)),
        PublicKey::Ed25519(point) => {
            Some(key(KeyKind::Ed25519, point.to_vec(), Some(DecodingKey::from_ed_der(point))))
        }
    }
}

fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<VerifyingKey> {
    let is_odd = |number: &[u8]| number.last().is_some_and(|last| last % 2 == 1);
    let is_usable = RSA_BYTES.contains(&modulus.len())
        && modulus[0] >= 0x80
        && is_odd(modulus)
        && exponent.len() <= 8
        && is_odd(exponent)
        && exponent != [1];
    let bytes = [modulus, b"/", exponent].concat();
    is_usable.then(|| key(KeyKind::Rsa, bytes, Some(DecodingKey::from_rsa_raw_components(modulus, exponent))))
}

/// RFC 7517 §4, RFC 7518 §6, RFC 8037 §2.
fn of_jwk(jwk: &Json) -> Result<VerifyingKey, &'static str> {
    let text = |name| jwk.member(name).and_then(Json::text);
    let bytes = |name| URL_SAFE_NO_PAD.decode(text(name)?).ok();
    if jwk.member("use").is_some() && text("use") != Some("sig") {
        return Err("is not for signatures");
    }
    if let Some(operations) = jwk.member("key_ops") {
        let verifies = |operation: &Json| operation.text() == Some("verify");
        if !operations.list().is_some_and(|list| list.iter().any(verifies)) {
            return Err("is not for verifying");
        }
    }
    let algorithm = match jwk.member("alg") {
        None => None,
        Some(name) => {
            Some(name.text().and_then(Algorithm::parse).ok_or("is for an algorithm that is not supported")?)
        }
    };
    let point = |length: usize| {
        let (x, y) = (bytes("x")?, bytes("y")?);
        (x.len() == length && y.len() == length).then(|| [&[4], &x[..], &y[..]].concat())
    };
    let read = match (text("kty"), text("crv")) {
        (Some("RSA"), _) => {
            let (modulus, exponent) = bytes("n").zip(bytes("e")).ok_or("has no n and e")?;
            rsa(&modulus, &exponent).ok_or("is no RSA key of 2048 to 8192 bits")?
        }
        (Some("EC"), Some("P-256")) => {
            of_public_key(&PublicKey::P256(&point(32).ok_or("has no x and y")?)).ok_or("is broken")?
        }
        (Some("EC"), Some("P-384")) => {
            of_public_key(&PublicKey::P384(&point(48).ok_or("has no x and y")?)).ok_or("is broken")?
        }
        (Some("EC"), Some("P-521")) => {
            of_public_key(&PublicKey::P521(&point(66).ok_or("has no x and y")?)).ok_or("is broken")?
        }
        (Some("OKP"), Some("Ed25519")) => {
            let point = bytes("x").filter(|x| x.len() == 32).ok_or("has no x")?;
            of_public_key(&PublicKey::Ed25519(&point)).ok_or("is broken")?
        }
        (Some("oct"), _) => return Err("is a secret, which is for the option `secret` alone"),
        _ => return Err("is of a kind that is not supported"),
    };
    if algorithm.is_some_and(|algorithm| !read.kind.takes(algorithm)) {
        return Err("is for an algorithm that it does not fit");
    }
    Ok(VerifyingKey { algorithm, ..read })
}
