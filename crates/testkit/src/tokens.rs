//! An issuer of tokens (JWT), with one Ed25519 key.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{PublicKeyData, SigningKey};
use sha2::{Digest, Sha256};

pub struct Issuer {
    key: rcgen::KeyPair,
    id: String,
}

impl Issuer {
    /// `id` names the key.
    pub fn new(id: &str) -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key can be made");
        Self { key, id: id.to_owned() }
    }

    /// The public key, as a JSON Web Key.
    pub fn jwk(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.key.der_bytes());
        format!(r#"{{"kty":"OKP","crv":"Ed25519","use":"sig","kid":"{}","x":"{x}"}}"#, self.id)
    }

    /// RFC 7638.
    pub fn thumbprint(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.key.der_bytes());
        URL_SAFE_NO_PAD.encode(Sha256::digest(format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#)))
    }

    /// Signs a text; base64.
    pub fn signature(&self, text: &str) -> String {
        STANDARD.encode(self.key.sign(text.as_bytes()).expect("it signs"))
    }

    pub fn pem(&self) -> String {
        self.key.public_key_pem()
    }

    /// Issues a token with these claims, which expires in a hundred years.
    pub fn token(&self, claims: &str) -> String {
        let separator = if claims.is_empty() { "" } else { "," };
        self.sign(&format!(r#"{{"exp":4900000000{separator}{claims}}}"#))
    }

    pub fn sign(&self, payload: &str) -> String {
        let header = format!(r#"{{"alg":"EdDSA","typ":"JWT","kid":"{}"}}"#, self.id);
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
        let signature = self.key.sign(signed.as_bytes()).expect("it signs");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

pub fn key_set(issuers: &[&Issuer]) -> String {
    let keys: Vec<String> = issuers.iter().map(|issuer| issuer.jwk()).collect();
    format!("{{\"keys\":[{}]}}", keys.join(","))
}
