//! Seals secrets in Redis with a secret that all instances have. Readers of Redis learn nothing about them; writers
//! can neither forge one nor move it to another place.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::hmac;
use config::Redis;

/// Version of the sealed format.
const VERSION: u8 = 1;
const SALT: &[u8] = b"vanward: what instances share";

/// The sealing key. With GCM-SIV (RFC 8452), two equal random nonces reveal only whether two texts are the same.
pub(crate) struct Seal {
    key: LessSafeKey,
    names: hmac::Key,
}

impl Seal {
    /// Derives the key from the secret; `None` without a secret.
    pub(crate) fn new(settings: &Redis) -> Option<Self> {
        let secret = settings.secret.as_ref()?;
        let made = Salt::new(HKDF_SHA256, SALT).extract(&secret.bytes);
        let info = [settings.name.as_bytes()];
        let key = UnboundKey::from(made.expand(&info, &AES_256_GCM_SIV).ok()?);
        let info = [&b"names\0"[..], settings.name.as_bytes()];
        let names = made.expand(&info, hmac::HMAC_SHA256).ok()?;
        Some(Self { key: LessSafeKey::new(key), names: names.into() })
    }

    /// Returns a secret name for something: 128 bits in hexadecimal.
    pub(crate) fn name(&self, what: &[u8]) -> String {
        let tag = hmac::sign(&self.names, what);
        tag.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Seals a text for a place: it can be opened only there. `None` if there is no randomness.
    pub(crate) fn seal(&self, place: &str, text: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        let mut sealed = text.to_vec();
        let aad = Aad::from(place.as_bytes());
        self.key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).ok()?;
        Some([&[VERSION][..], &nonce, &sealed].concat())
    }

    /// Opens the text of a place; `None` if it was not sealed for it with this key.
    pub(crate) fn open(&self, place: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (version, rest) = sealed.split_first()?;
        let (nonce, text) = rest.split_first_chunk()?;
        let mut text = (*version == VERSION).then(|| text.to_vec())?;
        let aad = Aad::from(place.as_bytes());
        let opened = self.key.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut text).ok()?.len();
        text.truncate(opened);
        Some(text)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use config::{RedisUrl, Scheme, Server, ServerHost, SharedSecret};

    use super::*;

    pub(crate) fn settings(secret: Option<u8>) -> Redis {
        let server = Server {
            name: None,
            scheme: Scheme::Http,
            host: ServerHost::Name("redis.example".to_owned()),
            port: 6379,
            weight: 1,
            down: false,
            priority: 0,
            max_requests: None,
        };
        let secret = secret.map(|byte| SharedSecret { file: "secret".into(), bytes: vec![byte; 32].into() });
        Redis {
            url: RedisUrl { server, database: 0 },
            user: None,
            password_file: None,
            ca: None,
            name: "vanward".to_owned(),
            instance: None,
            instances: 1,
            secret,
        }
    }

    #[test]
    fn a_sealed_text_opens_only_at_its_place_and_with_its_secret() {
        let seal = |secret| Seal::new(&settings(Some(secret))).expect("a key");
        let sealed = seal(1).seal("certificate:a.example", b"the key").expect("it is sealed");
        assert!(!sealed.windows(7).any(|part| part == b"the key"));
        let open = |secret, place: &str, bytes: &[u8]| seal(secret).open(place, bytes);
        assert_eq!(open(1, "certificate:a.example", &sealed).as_deref(), Some(&b"the key"[..]));
        assert_eq!(open(2, "certificate:a.example", &sealed), None, "another secret");
        assert_eq!(open(1, "certificate:b.example", &sealed), None, "another place");
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(open(1, "certificate:a.example", &changed), None, "byte {place}");
            assert_eq!(open(1, "certificate:a.example", &sealed[..place]), None, "cut at {place}");
        }
        assert!(Seal::new(&settings(None)).is_none());
        assert_eq!(seal(1).name(b"a"), seal(1).name(b"a"));
        assert!(seal(1).name(b"a") != seal(1).name(b"b") && seal(1).name(b"a") != seal(2).name(b"a"));
    }
}
