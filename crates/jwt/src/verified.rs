//! Verified tokens, so that one that was seen before costs a look-up and no signature.
//!
//! Only valid tokens are kept, as keyed SHA-256 hashes: what lies here is no token that somebody could use.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Verified tokens, each until it expires, with what is known of its bearer. Behind a lock that is held for a look.
#[derive(Debug)]
pub struct Verified<T> {
    secret: [u8; 32],
    /// Sets of entries; the beginning of a digest selects the set.
    sets: Box<[[Option<Entry<T>>; PLACES]]>,
}

/// The digest that a token is stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

#[derive(Debug)]
struct Entry<T> {
    digest: TokenDigest,
    /// When the token expires, in seconds since 1970.
    until_s: u64,
    /// The number of the key set that verified it.
    keys: u64,
    bearer: Arc<T>,
}

const PLACES: usize = 4;

impl TokenDigest {
    /// A byte to choose a shard by, of those that choose nothing else.
    pub fn shard(&self) -> u8 {
        self.0[31]
    }
}

impl<T> Verified<T> {
    /// Room for `entries_max` tokens, rounded up to a power of two; each takes 56 bytes, and its claims. `secret` must be
    /// random.
    pub fn new(entries_max: usize, secret: [u8; 32]) -> Self {
        let sets = entries_max.div_ceil(PLACES).next_power_of_two();
        Self { secret, sets: (0..sets).map(|_| [const { None }; PLACES]).collect() }
    }

    /// The digest of a token. Takes a microsecond or less.
    pub fn digest(&self, token: &[u8]) -> TokenDigest {
        let mut hasher = Sha256::new();
        hasher.update(self.secret);
        hasher.update(token);
        TokenDigest(hasher.finalize().into())
    }

    /// Who bears a token, if it was verified by this key set and has not expired.
    pub fn bearer(&self, digest: &TokenDigest, keys: u64, now_s: u64) -> Option<Arc<T>> {
        let entries = self.sets[self.set_of(digest)].iter().flatten();
        let mut living = entries.filter(|entry| entry.until_s > now_s && entry.keys == keys);
        let found = living.find(|entry| entry.digest.0.ct_eq(&digest.0).into())?;
        Some(Arc::clone(&found.bearer))
    }

    /// Stores a verified token, until the second `until_s` since 1970. If its set is full, what expires first is replaced.
    pub fn keep(&mut self, digest: TokenDigest, keys: u64, until_s: u64, bearer: &Arc<T>) {
        let place = self.set_of(&digest);
        let set = &mut self.sets[place];
        // What another key set has verified is of no use any more.
        let worth = |place: &usize| {
            set[*place].as_ref().filter(|entry| entry.keys == keys).map(|entry| entry.until_s)
        };
        let same = set.iter().position(|entry| entry.as_ref().is_some_and(|entry| entry.digest == digest));
        let place = same.or_else(|| (0..PLACES).min_by_key(worth)).unwrap_or(0);
        set[place] = Some(Entry { digest, until_s, keys, bearer: Arc::clone(bearer) });
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
        let mut verified = Verified::new(100, [7; 32]);
        let digest = verified.digest(b"a.b.c");
        let bearer = Arc::new("alice");
        assert_eq!(verified.bearer(&digest, 1, 0), None);
        verified.keep(digest, 1, 50, &bearer);
        assert_eq!(verified.bearer(&digest, 1, 49).as_ref(), Some(&bearer));
        assert_eq!(verified.bearer(&digest, 1, 50), None);
        assert_eq!(verified.bearer(&digest, 2, 49), None, "other keys");
        assert_eq!(verified.bearer(&verified.digest(b"a.b.d"), 1, 0), None);
        assert_ne!(Verified::<()>::new(100, [8; 32]).digest(b"a.b.c"), digest);
    }

    #[test]
    fn what_ends_first_makes_room() {
        let mut verified = Verified::new(4, [7; 32]);
        let digests: Vec<_> = (0..6_u8).map(|number| verified.digest(&[number])).collect();
        for (until_s, digest) in (1..).zip(&digests) {
            verified.keep(*digest, 1, until_s, &Arc::new(()));
        }
        let kept = |verified: &Verified<()>| {
            digests.iter().filter(|digest| verified.bearer(digest, 1, 0).is_some()).count()
        };
        assert_eq!(kept(&verified), 4);
        assert_eq!(verified.bearer(&digests[0], 1, 0), None);
        verified.keep(digests[0], 2, 1, &Arc::new(()));
        assert_eq!((kept(&verified), verified.bearer(&digests[0], 2, 0).is_some()), (3, true));
        assert_eq!(size_of::<Option<Entry<()>>>(), 56);
    }
}
