//! Recently verified credentials, so that not every request hashes a password.
//!
//! Only valid credentials are kept, as keyed SHA-256 hashes that cannot be read back.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Credentials;

/// Verified credentials, each for a limited time. Use one per worker, or one behind a lock.
///
/// Create a new one with another secret when the users change.
#[derive(Debug, Clone)]
pub struct VerifiedCredentials {
    secret: [u8; 32],
    lifetime_ns: u64,
    /// Sets of entries; the beginning of a digest selects the set.
    sets: Box<[[Option<CredentialEntry>; PLACES]]>,
}

/// The form in which credentials are stored.
#[derive(Debug, Clone, Copy)]
pub struct CredentialsDigest([u8; 32]);

#[derive(Debug, Clone, Copy)]
struct CredentialEntry {
    digest: CredentialsDigest,
    until_ns: u64,
    user: usize,
}

const PLACES: usize = 4;

impl VerifiedCredentials {
    /// Room for `entries_max` credentials, rounded up to a power of two; each takes 56 bytes. `secret` must be random.
    pub fn new(entries_max: usize, lifetime_ns: u64, secret: [u8; 32]) -> Self {
        let sets = entries_max.div_ceil(PLACES).next_power_of_two();
        Self { secret, lifetime_ns, sets: vec![[None; PLACES]; sets].into() }
    }

    /// Takes a fraction of a microsecond.
    pub fn digest(&self, credentials: &Credentials) -> CredentialsDigest {
        let mut hasher = Sha256::new();
        hasher.update(self.secret);
        // With its length, so that name and password cannot be confused.
        hasher.update((credentials.user.len() as u64).to_le_bytes());
        hasher.update(&credentials.user);
        hasher.update(&credentials.password);
        CredentialsDigest(hasher.finalize().into())
    }

    /// The number of the user, if the credentials were verified recently; see [`Users::name`](super::Users::name).
    pub fn user(&self, digest: &CredentialsDigest, now_ns: u64) -> Option<usize> {
        let entries = self.sets[self.set_of(digest)].iter().flatten();
        let mut living = entries.filter(|entry| entry.until_ns > now_ns);
        living.find(|entry| entry.digest.0.ct_eq(&digest.0).into()).map(|entry| entry.user)
    }

    /// Stores verified credentials. If the set is full, the entry that expires first is replaced.
    pub fn keep(&mut self, digest: CredentialsDigest, user: usize, now_ns: u64) {
        let set = &mut self.sets[digest.set_of(self.sets.len())];
        let until_ns = now_ns.saturating_add(self.lifetime_ns);
        let same = |entry: &Option<CredentialEntry>| entry.is_some_and(|entry| entry.digest.0 == digest.0);
        let place = set.iter().position(same).or_else(|| {
            let end = |place: &usize| set[*place].map(|entry| entry.until_ns);
            (0..PLACES).min_by_key(end)
        });
        set[place.unwrap_or(0)] = Some(CredentialEntry { digest, until_ns, user });
    }

    fn set_of(&self, digest: &CredentialsDigest) -> usize {
        digest.set_of(self.sets.len())
    }
}

impl CredentialsDigest {
    fn set_of(&self, sets: usize) -> usize {
        let [first, second, third, fourth, ..] = self.0;
        u32::from_le_bytes([first, second, third, fourth]) as usize & (sets - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(user: &str, password: &str) -> Credentials {
        Credentials { user: user.into(), password: password.into() }
    }

    #[test]
    fn verified_credentials_are_known_for_a_while() {
        let mut verified = VerifiedCredentials::new(100, 50, [7; 32]);
        let digest = verified.digest(&credentials("a", "secret"));
        assert_eq!(verified.user(&digest, 0), None);
        verified.keep(digest, 3, 10);
        assert_eq!(verified.user(&digest, 10), Some(3));
        assert_eq!(verified.user(&digest, 59), Some(3));
        assert_eq!(verified.user(&digest, 60), None);
        verified.keep(digest, 3, 60);
        assert_eq!(verified.user(&digest, 109), Some(3));
        for (user, password) in [("a", "Secret"), ("as", "ecret"), ("", "asecret"), ("asecret", "")] {
            assert_eq!(verified.user(&verified.digest(&credentials(user, password)), 60), None, "{user}");
        }
        assert_ne!(
            VerifiedCredentials::new(100, 50, [8; 32]).digest(&credentials("a", "secret")).0,
            digest.0
        );
    }

    #[test]
    fn the_entry_that_expires_first_is_replaced() {
        let mut verified = VerifiedCredentials::new(4, 1000, [7; 32]);
        let digests: Vec<_> =
            (0..6).map(|number| verified.digest(&credentials(&number.to_string(), ""))).collect();
        for (user, digest) in digests.iter().enumerate() {
            verified.keep(*digest, user, user as u64);
        }
        let kept: Vec<_> = digests.iter().map(|digest| verified.user(digest, 10)).collect();
        assert_eq!(kept, [None, None, Some(2), Some(3), Some(4), Some(5)]);
        assert_eq!(size_of::<Option<CredentialEntry>>(), 56);
    }
}
