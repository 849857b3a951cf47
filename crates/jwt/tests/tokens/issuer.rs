//! An issuer with a key of each kind. It signs any header and payload, with a library that the crate does not parse
//! with.

use std::sync::LazyLock;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
    EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512,
    RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaKeyPair,
};
use aws_lc_rs::{hmac, signature};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jwt::{Algorithm, Audience, KeySet, RequiredClaims};

/// The time in all tests, in seconds since 1970.
pub(crate) const NOW: u64 = 1_800_000_000;

/// For HMAC.
pub(crate) const SECRET: &[u8] = b"a secret of thirty-two bytes or more";

pub(crate) struct Issuer {
    pub(crate) rsa: RsaKeyPair,
    pub(crate) p256: EcdsaKeyPair,
    pub(crate) p384: EcdsaKeyPair,
    pub(crate) p521: EcdsaKeyPair,
    pub(crate) ed25519: Ed25519KeyPair,
}

/// Keys are new in each run, except the RSA key.
pub(crate) static ISSUER: LazyLock<Issuer> = LazyLock::new(|| Issuer {
    rsa: RsaKeyPair::from_pkcs8(&rsa_key()).expect("a key"),
    p256: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key"),
    p384: EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).expect("a key"),
    p521: EcdsaKeyPair::generate(&ECDSA_P521_SHA512_FIXED_SIGNING).expect("a key"),
    ed25519: Ed25519KeyPair::generate().expect("a key"),
});

/// A fixed key for tests only, because generating an RSA key takes a second.
fn rsa_key() -> Vec<u8> {
    let text: String = include_str!("rsa-key.txt").split_ascii_whitespace().collect();
    STANDARD.decode(text).expect("is base64")
}

pub(crate) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Issuer {
    pub(crate) fn token(&self, algorithm: Algorithm, header: &str, payload: &str) -> String {
        let signed = format!("{}.{}", encoded(header), encoded(payload));
        format!("{signed}.{}", encoded(self.sign(algorithm, signed.as_bytes())))
    }

    /// A token with these claims and `exp`.
    pub(crate) fn with_claims(&self, algorithm: Algorithm, claims: &str) -> String {
        let separator = if claims.is_empty() { "" } else { "," };
        let payload = format!("{{\"exp\":{}{separator}{claims}}}", NOW + 60);
        self.token(algorithm, &format!("{{\"alg\":\"{}\"}}", algorithm.name()), &payload)
    }

    pub(crate) fn sign(&self, algorithm: Algorithm, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        let rsa = |encoding: &'static dyn signature::RsaEncoding| {
            let mut made = vec![0; self.rsa.public_modulus_len()];
            self.rsa.sign(encoding, &random, message, &mut made).expect("it signs");
            made
        };
        let secret = |algorithm| hmac::sign(&hmac::Key::new(algorithm, SECRET), message).as_ref().to_vec();
        match algorithm {
            Algorithm::Hs256 => secret(hmac::HMAC_SHA256),
            Algorithm::Hs384 => secret(hmac::HMAC_SHA384),
            Algorithm::Hs512 => secret(hmac::HMAC_SHA512),
            Algorithm::Rs256 => rsa(&RSA_PKCS1_SHA256),
            Algorithm::Rs384 => rsa(&RSA_PKCS1_SHA384),
            Algorithm::Rs512 => rsa(&RSA_PKCS1_SHA512),
            Algorithm::Ps256 => rsa(&RSA_PSS_SHA256),
            Algorithm::Ps384 => rsa(&RSA_PSS_SHA384),
            Algorithm::Ps512 => rsa(&RSA_PSS_SHA512),
            Algorithm::Es256 => self.p256.sign(&random, message).expect("it signs").as_ref().to_vec(),
            Algorithm::Es384 => self.p384.sign(&random, message).expect("it signs").as_ref().to_vec(),
            Algorithm::Es512 => self.p521.sign(&random, message).expect("it signs").as_ref().to_vec(),
            Algorithm::EdDsa => self.ed25519.sign(message).as_ref().to_vec(),
        }
    }

    /// The public keys in PEM: each as SubjectPublicKeyInfo, and the RSA key also as PKCS #1.
    pub(crate) fn pems(&self) -> [String; 6] {
        let x509 = |der: PublicKeyX509Der<'_>| pem("PUBLIC KEY", der.as_ref());
        [
            x509(self.rsa.public_key().as_der().expect("is DER")),
            x509(self.p256.public_key().as_der().expect("is DER")),
            x509(self.p384.public_key().as_der().expect("is DER")),
            x509(self.p521.public_key().as_der().expect("is DER")),
            x509(self.ed25519.public_key().as_der().expect("is DER")),
            pem("RSA PUBLIC KEY", self.rsa.public_key().as_ref()),
        ]
    }

    /// The public keys as JWK objects with additional members.
    pub(crate) fn jwks(&self, members: &str) -> [String; 5] {
        let rsa = self.rsa.public_key();
        let (n, e) = (rsa.modulus().big_endian_without_leading_zero(), rsa.exponent());
        let (n, e) = (encoded(n), encoded(e.big_endian_without_leading_zero()));
        let point = |key: &EcdsaKeyPair| {
            let coordinates = key.public_key().as_ref()[1..].to_vec();
            let (x, y) = coordinates.split_at(coordinates.len() / 2);
            (encoded(x), encoded(y))
        };
        let ((x, y), (far_x, far_y)) = (point(&self.p256), point(&self.p384));
        let (farthest_x, farthest_y) = point(&self.p521);
        let ed = encoded(self.ed25519.public_key());
        [
            format!(r#"{{"kty":"RSA","n":"{n}","e":"{e}"{members}}}"#),
            format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}"{members}}}"#),
            format!(r#"{{"kty":"EC","crv":"P-384","x":"{far_x}","y":"{far_y}"{members}}}"#),
            format!(r#"{{"kty":"EC","crv":"P-521","x":"{farthest_x}","y":"{farthest_y}"{members}}}"#),
            format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{ed}"{members}}}"#),
        ]
    }

    pub(crate) fn keys(&self) -> KeySet {
        KeySet::parse(set(&self.jwks("")).as_bytes()).expect("is a key set")
    }
}

pub(crate) fn set(keys: &[String]) -> String {
    format!("{{\"keys\":[{}]}}", keys.join(","))
}

pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).expect("is ASCII")).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Rules that require no claim except `exp`.
pub(crate) fn rules() -> RequiredClaims {
    RequiredClaims {
        algorithms: Algorithm::ASYMMETRIC.to_vec(),
        issuers: Vec::new(),
        audience: Audience::Nobody,
        leeway_s: 5,
        accepts_no_expiry: false,
        required: Vec::new(),
        user: "sub".to_owned(),
        passed: Vec::new(),
        kept: Vec::new(),
        token_bytes_max: 8192,
    }
}
