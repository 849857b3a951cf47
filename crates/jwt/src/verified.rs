//! A cache of verified tokens: a known token costs a lookup instead of verifying a signature.
//!
//! It stores only valid tokens, as keyed SHA-256 hashes, so its memory has no usable token.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Verified tokens until they expire, each with a value for its bearer. Use it behind a lock, which is held only for a
/// lookup.
#[derive(Debug)]
pub struct VerifiedTokens<T> {
    secret: [u8; 32],
    /// Sets of `PLACES` entries. The first bytes of a digest select the set.
    sets: Box<[[Option<VerifiedEntry<T>>; PLACES]]>,
}

/// A keyed hash of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

#[derive(Debug)]
struct VerifiedEntry<T> {
    digest: TokenDigest,
    /// When the token expires, in seconds since 1970.
    until_s: u64,
    /// The number of the key set that verified the token.
    keys: u64,
    bearer: Arc<T>,
}

const PLACES: usize = 4;

impl TokenDigest {
    /// A byte for choosing a shard. It does not take part in choosing the set.
    pub fn shard(&self) -> u8 {
        self.0[31]
    }
}

impl<T> VerifiedTokens<T> {
    /// Has room for at least `entries_max` tokens, each of 56 bytes and its value. `secret` must be random.
    pub fn new(entries_max: usize, secret: [u8; 32]) -> Self {
        let sets = entries_max.div_ceil(PLACES).next_power_of_two();
        Self { secret, sets: (0..sets).map(|_| [const { None }; PLACES]).collect() }
    }

    /// Takes a microsecond or less.
    pub fn digest(&self, token: &[u8]) -> TokenDigest {
        let mut hasher = Sha256::new();
        hasher.update(self.secret);
        hasher.update(token);
        TokenDigest(hasher.finalize().into())
    }

    /// Returns the bearer of a token that this key set verified and that has not expired.
    pub fn bearer(&self, digest: &TokenDigest, keys: u64, now_s: u64) -> Option<Arc<T>> {
        let entries = self.sets[self.set_of(digest)].iter().flatten();
        let mut living = entries.filter(|entry| entry.until_s > now_s && entry.keys == keys);
        let found = living.find(|entry| entry.digest.0.ct_eq(&digest.0).into())?;
        Some(Arc::clone(&found.bearer))
    }

    /// Stores a verified token until `until_s`, in seconds since 1970. In a full set, it replaces the entry that
    /// expires first.
    pub fn keep(&mut self, digest: TokenDigest, keys: u64, until_s: u64, bearer: &Arc<T>) {
        let place = self.set_of(&digest);
        let set = &mut self.sets[place];
        // Entries of another key set are worthless.
        let worth = |place: &usize| {
            set[*place].as_ref().filter(|entry| entry.keys == keys).map(|entry| entry.until_s)
        };
        let same = set.iter().position(|entry| entry.as_ref().is_some_and(|entry| entry.digest == digest));
        let place = same.or_else(|| (0..PLACES).min_by_key(worth)).unwrap_or(0);
        set[place] = Some(VerifiedEntry { digest, until_s, keys, bearer: Arc::clone(bearer) });
    }

    fn set_of(&self, digest: &TokenDigest) -> usize {
        let [first, second, third, fourth, ..] = digest.0;
        u32::from_le_bytes([first, second, third, fourth]) as usize & (self.sets.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_until_it_expires_or_its_keys_go() {
        let mut verified = VerifiedTokens::new(100, [7; 32]);
        let digest = verified.digest(b"a.b.c");
        let bearer = Arc::new("alice");
        assert_eq!(verified.bearer(&digest, 1, 0), None);
        verified.keep(digest, 1, 50, &bearer);
        assert_eq!(verified.bearer(&digest, 1, 49).as_ref(), Some(&bearer));
        assert_eq!(verified.bearer(&digest, 1, 50), None);
        assert_eq!(verified.bearer(&digest, 2, 49), None, "other keys");
        assert_eq!(verified.bearer(&verified.digest(b"a.b.d"), 1, 0), None);
        assert_ne!(VerifiedTokens::<()>::new(100, [8; 32]).digest(b"a.b.c"), digest);
    }

    #[test]
    fn the_entry_that_expires_first_is_replaced() {
        let mut verified = VerifiedTokens::new(4, [7; 32]);
        let digests: Vec<_> = (0..6_u8).map(|number| verified.digest(&[number])).collect();
        for (until_s, digest) in (1..).zip(&digests) {
            verified.keep(*digest, 1, until_s, &Arc::new(()));
        }
        let kept = |verified: &VerifiedTokens<()>| {
            digests.iter().filter(|digest| verified.bearer(digest, 1, 0).is_some()).count()
        };
        assert_eq!(kept(&verified), 4);
        assert_eq!(verified.bearer(&digests[0], 1, 0), None);
        verified.keep(digests[0], 2, 1, &Arc::new(()));
        assert_eq!((kept(&verified), verified.bearer(&digests[0], 2, 0).is_some()), (3, true));
        assert_eq!(size_of::<Option<VerifiedEntry<()>>>(), 56);
    }
}
