//! Counts the first requests of each key: of a client, a header value, or all requests together.

use super::key::RateKey;
use super::states::States;
use crate::request::{FieldLookup, RequestParts};

/// Distinguishes the first requests of each key from later ones.
///
/// Takes as much memory as a [`RateLimiter`](super::RateLimiter) with as many keys. If there is no room for a new key,
/// it takes the place and the count of the key with the lowest count. So there may be fewer first requests, never more.
#[derive(Debug)]
pub struct FirstRequests {
    count: u64,
    key: RateKey,
    states: States,
}

/// The number of requests of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyCount {
    /// The keyed hash of the key.
    pub key: u64,
    /// Stops at the number of first requests.
    pub count: u64,
}

impl FirstRequests {
    /// Counts the first `count` requests per key, with room for `keys_max` keys, rounded up to a power of two. `secret`
    /// must be random.
    pub fn new(count: u32, key: RateKey, keys_max: usize, secret: [u64; 2]) -> Self {
        Self { count: count.into(), key, states: States::new(keys_max, secret) }
    }

    /// The secret that keys are hashed with.
    pub fn secret(&self) -> [u64; 2] {
        self.states.secret()
    }

    pub fn counts(&self) -> impl Iterator<Item = KeyCount> {
        self.states.all().map(|(key, count)| KeyCount { key, count })
    }

    /// Restores a count from another instance with the same secret.
    pub fn go_on(&self, KeyCount { key, count }: KeyCount) {
        self.states.put(key, count);
    }

    /// Counts a request. Returns whether it is one of the first.
    pub fn take<F: FieldLookup + ?Sized>(&self, request: &RequestParts<'_, F>) -> bool {
        let tag = self.states.tag(|hasher| self.key.hash(request, "", hasher));
        self.states
            .update(tag, |counted| if counted < self.count { Ok(counted + 1) } else { Err(()) })
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::RateKeyPart;

    fn request<'a>(
        client: u8,
        fields: &'a [(&'a str, &'a str); 1],
    ) -> RequestParts<'a, [(&'a str, &'a str); 1]> {
        let client = [10, 0, 0, client].into();
        RequestParts {
            listener: 0,
            host: b"a",
            path: b"/",
            query: None,
            method: b"GET",
            client,
            fields,
            conditions: &crate::NoConditions,
        }
    }

    #[test]
    fn each_key_has_its_first_requests() {
        let by_client = RateKey(vec![RateKeyPart::ClientNetwork { bits_v4: 32, bits_v6: 64 }]);
        let by_header = RateKey(vec![RateKeyPart::Header("x-key".to_owned())]);
        let asked = [(1, "a"), (1, "b"), (2, "a"), (1, "b"), (2, "b"), (2, "a")];
        for (key, expected) in [
            (by_client, [true, true, true, false, true, false]),
            (by_header, [true, true, true, true, false, false]),
            (RateKey::default(), [true, true, false, false, false, false]),
        ] {
            let first = FirstRequests::new(2, key, 64, [1, 2]);
            assert_eq!(
                asked.map(|(client, value)| first.take(&request(client, &[("X-Key", value)]))),
                expected
            );
        }
    }

    #[test]
    fn one_goes_on_where_another_was() {
        let by_client = RateKey(vec![RateKeyPart::ClientNetwork { bits_v4: 32, bits_v6: 64 }]);
        let one = FirstRequests::new(2, by_client.clone(), 64, [1, 2]);
        let take = |first: &FirstRequests, client| first.take(&request(client, &[("a", "")]));
        assert_eq!([1, 1, 2].map(|client| take(&one, client)), [true; 3]);
        let other = FirstRequests::new(2, by_client, 64, one.secret());
        one.counts().for_each(|count| other.go_on(count));
        assert_eq!(other.counts().count(), 2);
        assert_eq!([1, 2, 2, 3].map(|client| take(&other, client)), [false, true, false, true]);
    }

    #[test]
    fn more_keys_than_there_is_room_for_have_no_more_first_requests() {
        let key = RateKey(vec![RateKeyPart::ClientNetwork { bits_v4: 32, bits_v6: 64 }]);
        let first = FirstRequests::new(1, key, 8, [1, 2]);
        let taken = (0..=255).filter(|client| first.take(&request(*client, &[("a", "")]))).count();
        assert_eq!(taken, 8);
    }
}
