//! Answers to pending challenges of certificate authorities: files for HTTP-01 (RFC 8555 §8.3), certificates for
//! TLS-ALPN-01 (RFC 8737). The control side adds them, workers look them up.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rcgen::{CertificateParams, CustomExtension};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;

use crate::provider;

/// The protocol with which an authority verifies TLS-ALPN-01 (RFC 8737 §6.2).
pub const ACME_TLS: &str = "acme-tls/1";

/// The pending challenges of all listeners.
#[derive(Debug, Default)]
pub struct Challenges {
    /// Whether any challenge is pending. Requests usually read only this flag.
    is_any: AtomicBool,
    pending: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    /// Key authorizations by token.
    files: HashMap<String, String>,
    /// By the server name (SNI) that the authority requests.
    certificates: HashMap<String, Arc<CertifiedKey>>,
}

/// An answer that is given until this is dropped.
#[derive(Debug)]
pub struct ServedChallenge {
    challenges: Arc<Challenges>,
    key: ChallengeKey,
}

#[derive(Debug)]
enum ChallengeKey {
    Token(String),
    Name(String),
}

impl Challenges {
    /// Answers requests for this token with the key authorization.
    pub fn answer_file(self: &Arc<Self>, token: &str, key_authorization: &str) -> ServedChallenge {
        let mut pending = self.pending();
        pending.files.insert(token.to_owned(), key_authorization.to_owned());
        self.is_any.store(true, Ordering::Release);
        drop(pending);
        ServedChallenge { challenges: Arc::clone(self), key: ChallengeKey::Token(token.to_owned()) }
    }

    /// Answers the authority's handshakes for a name (a host or an IP address) with a certificate that has the digest
    /// of the key authorization.
    ///
    /// # Errors
    /// No certificate can be made.
    pub fn answer_handshake(
        self: &Arc<Self>,
        name: &str,
        digest: &[u8; 32],
    ) -> Result<ServedChallenge, String> {
        let certificate = certificate(name, digest).map_err(|error| error.to_string())?;
        let asked = server_name(name);
        let mut pending = self.pending();
        pending.certificates.insert(asked.clone(), Arc::new(certificate));
        self.is_any.store(true, Ordering::Release);
        drop(pending);
        Ok(ServedChallenge { challenges: Arc::clone(self), key: ChallengeKey::Name(asked) })
    }

    pub fn file(&self, token: &str) -> Option<String> {
        if !self.is_any() {
            return None;
        }
        self.pending().files.get(token).cloned()
    }

    /// Whether any challenge is pending.
    pub fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    pub(crate) fn certificate(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        if !self.is_any() {
            return None;
        }
        self.pending().certificates.get(name).cloned()
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ServedChallenge {
    fn drop(&mut self) {
        let mut pending = self.challenges.pending();
        match &self.key {
            ChallengeKey::Token(token) => drop(pending.files.remove(token)),
            ChallengeKey::Name(name) => drop(pending.certificates.remove(name)),
        }
        let is_any = !pending.files.is_empty() || !pending.certificates.is_empty();
        self.challenges.is_any.store(is_any, Ordering::Release);
    }
}

/// RFC 8738 §6: for an address, the server name is its name for reverse mapping.
fn server_name(name: &str) -> String {
    match name.parse() {
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(address)) => {
            let nibbles = address.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            let labels: String = nibbles.map(|nibble| format!("{nibble:x}.")).collect();
            labels + "ip6.arpa"
        }
        Err(_) => name.to_owned(),
    }
}

/// RFC 8737 §3: one alternative name, and the digest in a critical extension.
fn certificate(name: &str, digest: &[u8; 32]) -> Result<CertifiedKey, Box<dyn std::error::Error>> {
    let mut parameters = CertificateParams::new(vec![name.to_owned()])?;
    parameters.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let certificate = parameters.self_signed(&key)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let key = provider::for_certificates().key_provider.load_private_key(key)?;
    // Without the check whether certificate and key match, which would reject the extension.
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_given_while_it_is_held() {
        let challenges = Arc::new(Challenges::default());
        assert!(!challenges.is_any());
        let first = challenges.answer_file("token", "token.print");
        let second = challenges.answer_handshake("a.example", &[7; 32]).expect("it is made");
        assert_eq!(challenges.file("token").as_deref(), Some("token.print"));
        assert_eq!(challenges.file("other"), None);
        assert!(
            challenges.certificate("a.example").is_some() && challenges.certificate("b.example").is_none()
        );
        drop(first);
        assert!(challenges.is_any() && challenges.file("token").is_none());
        drop(second);
        assert!(!challenges.is_any() && challenges.certificate("a.example").is_none());
    }

    #[test]
    fn an_address_is_asked_for_by_its_reverse_name() {
        for (name, expected) in [
            ("a.example", "a.example"),
            ("192.0.2.1", "1.2.0.192.in-addr.arpa"),
            ("2001:db8::1", "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"),
        ] {
            assert_eq!(server_name(name), expected);
        }
        assert!(certificate("2001:db8::1", &[1; 32]).is_ok());
    }
}
