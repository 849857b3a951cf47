//! Stable hashes of keys and servers, equal in all processes, machines and versions.
//!
//! SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012): without the secret, an attacker
//! cannot choose keys that all meet one server. Not for signatures: see `session::cookie`.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hasher128, SipHasher13 as SipHasher13Wide};

/// The ID of a server, which is kept over reloads and in clients' cookies. Unique within an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(u64);

impl ServerId {
    /// The ID of the server with this name, such as its configured URL. Equal names always give equal IDs.
    pub fn from_name(name: &str) -> Self {
        Self(HashSecret::default().hash(name.as_bytes()))
    }

    pub const fn as_u64(self) -> u64 {
        self.0
    }

    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }
}

/// The secret of a hash. Proxies with equal secrets, such as the default one, send a key to the same server.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct HashSecret(u64, u64);

impl fmt::Debug for HashSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}

impl HashSecret {
    pub const fn new(bits: u128) -> Self {
        Self((bits >> 64) as u64, bits as u64)
    }

    /// For the process that takes over.
    pub const fn bits(self) -> u128 {
        (self.0 as u128) << 64 | self.1 as u128
    }

    pub fn hash(self, key: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        hasher.write(key);
        hasher.finish()
    }

    /// Hashes a key to 128 bits, so that collisions do not occur in practice.
    pub fn hash_wide(self, key: &[u8]) -> u128 {
        let mut hasher = SipHasher13Wide::new_with_keys(self.0, self.1);
        hasher.write(key);
        hasher.finish128().as_u128()
    }
}

/// Mixes the bits of a number, so that every bit of the result depends on every bit of the input (the finaliser of
/// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[inline]
pub(crate) const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// A number below `bound`, as uniform as 64 random bits allow.
#[inline]
pub(crate) const fn below(random: u64, bound: u64) -> u64 {
    ((random as u128 * bound as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_never_change() {
        // Recorded, because cookies and other proxies contain these numbers.
        assert_eq!(ServerId::from_name("http://127.0.0.1:9000").as_u64(), 0x5403_15ce_30fa_98d9);
        assert_eq!(HashSecret::default().hash(b""), 0xd1fb_a762_150c_532c);
        assert_eq!(HashSecret::new(1).hash(b"key"), HashSecret::new(1).hash(b"key"));
        assert_ne!(HashSecret::new(1).hash(b"key"), HashSecret::new(2).hash(b"key"));
        assert_ne!(HashSecret::new(1).hash_wide(b"key"), HashSecret::new(1 << 64).hash_wide(b"key"));
    }

    #[test]
    fn numbers_below_a_bound_reach_both_ends() {
        assert_eq!((below(0, 7), below(u64::MAX, 7), below(u64::MAX, 1)), (0, 6, 0));
        assert_ne!(mix(0), mix(1));
    }
}
