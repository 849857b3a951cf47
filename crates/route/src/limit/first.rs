//! The first requests of each client, of each value of a header, or of all together.

use super::key::RateKey;
use super::states::States;
use crate::request::{Fields, Request};

/// Tells the first requests that come with a key from those that follow.
///
/// Its memory is that of a [`RateLimiter`](super::RateLimiter) with as many keys. Where more keys are in use than there is
/// room for, the one that was counted least loses its place, and the new one goes on from its count: there may be fewer
/// first requests then, and never more.
#[derive(Debug)]
pub struct FirstRequests {
    count: u64,
    key: RateKey,
    states: States,
}

/// How many requests came with a key, which is told by its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyCount {
    /// A keyed hash of it.
    pub key: u64,
    /// No more than what counts as the first ones.
    pub count: u64,
}

impl FirstRequests {
    /// The first `count` of each key, with room for so many keys, rounded up to a power of two. `secret` is random, as
    /// that of a limiter.
    pub fn new(count: u32, key: RateKey, keys_max: usize, secret: [u64; 2]) -> Self {
        Self { count: count.into(), key, states: States::new(keys_max, secret) }
    }

    /// What the hashes of its keys are made with.
    pub fn secret(&self) -> [u64; 2] {
        self.states.secret()
    }

    /// What was counted so far.
    pub fn counts(&self) -> impl Iterator<Item = KeyCount> {
        self.states.all().map(|(key, count)| KeyCount { key, count })
    }

    /// Goes on from what another with the same secret has counted.
    pub fn go_on(&self, KeyCount { key, count }: KeyCount) {
        self.states.put(key, count);
    }

    /// Counts a request: whether it is one of the first.
    pub fn take<F: Fields + ?Sized>(&self, request: &Request<'_, F>) -> bool {
        let tag = self.states.tag(|hasher| self.key.hash(request, hasher));
        self.states
            .update(tag, |counted| if counted < self.count { Ok(counted + 1) } else { Err(()) })
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::RateKeyPart;

    fn request<'a>(client: u8, fields: &'a [(&'a str, &'a str); 1]) -> Request<'a, [(&'a str, &'a str); 1]> {
        let client = [10, 0, 0, client].into();
        Request { listener: 0, host: b"a", path: b"/", query: None, method: b"GET", client, fields }
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
