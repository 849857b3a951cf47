//! The addresses of a server. Connections of all threads take them in turn, and pass over one that failed a moment ago.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::directions::DialAddress;

/// How long an address that failed is used only if all others fail, too.
// A host often has an IPv6 address that nothing listens at.
const AVOIDED: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct ServerAddresses {
    current: RwLock<Arc<[Candidate]>>,
    next: AtomicUsize,
    /// How many times the addresses have changed.
    changes: AtomicU64,
    began: Instant,
}

/// An address, and when it last failed: milliseconds since `began`, plus one; 0 if it has not failed since a success.
#[derive(Debug)]
struct Candidate {
    address: DialAddress,
    failed_at: AtomicU64,
}

impl ServerAddresses {
    /// `addresses` has at least one.
    pub(crate) fn new(addresses: Vec<DialAddress>) -> Self {
        Self {
            current: RwLock::new(candidates(addresses)),
            next: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
            began: Instant::now(),
        }
    }

    /// How many times the addresses have changed. A connection of an earlier number is closed after its requests.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// Replaces the addresses, if these are others; their order does not matter. Returns whether they are.
    pub(crate) fn replace(&self, addresses: Vec<DialAddress>) -> bool {
        let known = self.candidates();
        let is_same = known.len() == addresses.len()
            && known.iter().all(|candidate| addresses.contains(&candidate.address));
        if is_same || addresses.is_empty() {
            return false;
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = candidates(addresses);
        self.changes.fetch_add(1, Relaxed);
        true
    }

    fn candidates(&self) -> Arc<[Candidate]> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The addresses for a new connection, in the order in which it tries them.
    pub(crate) fn turn(&self, now: Instant) -> Vec<TriedAddress> {
        let candidates = self.candidates();
        let at = now.saturating_duration_since(self.began).as_millis() as u64 + 1;
        let is_avoided = |index: &usize| {
            let failed_at = candidates[*index].failed_at.load(Relaxed);
            failed_at > 0 && at.saturating_sub(failed_at) < AVOIDED.as_millis() as u64
        };
        let (avoided, mut order): (Vec<usize>, Vec<usize>) = (0..candidates.len()).partition(is_avoided);
        if !order.is_empty() {
            let first = self.next.fetch_add(1, Relaxed) % order.len();
            order.rotate_left(first);
        }
        let tried = |index| TriedAddress { candidates: Arc::clone(&candidates), index, at };
        order.into_iter().chain(avoided).map(tried).collect()
    }
}

fn candidates(addresses: Vec<DialAddress>) -> Arc<[Candidate]> {
    addresses.into_iter().map(|address| Candidate { address, failed_at: AtomicU64::new(0) }).collect()
}

/// An address that a connection tries.
#[derive(Debug)]
pub(crate) struct TriedAddress {
    candidates: Arc<[Candidate]>,
    index: usize,
    at: u64,
}

impl TriedAddress {
    pub(crate) fn address(&self) -> &DialAddress {
        &self.candidates[self.index].address
    }

    /// Begins an attempt. It counts as failed unless it succeeds, also if its time runs out.
    pub(crate) fn attempt(&self) -> AddressAttempt<'_> {
        AddressAttempt { tried: self, has_succeeded: false }
    }
}

/// An attempt to connect to an address.
pub(crate) struct AddressAttempt<'a> {
    tried: &'a TriedAddress,
    has_succeeded: bool,
}

impl AddressAttempt<'_> {
    pub(crate) fn succeed(mut self) {
        self.has_succeeded = true;
    }
}

impl Drop for AddressAttempt<'_> {
    fn drop(&mut self) {
        let TriedAddress { candidates, index, at } = self.tried;
        let failed_at = if self.has_succeeded { 0 } else { *at };
        candidates[*index].failed_at.store(failed_at, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(ports: &[u16]) -> Vec<DialAddress> {
        ports.iter().map(|port| DialAddress::Ip(([127, 0, 0, 1], *port).into())).collect()
    }

    fn order(addresses: &ServerAddresses, now: Instant) -> Vec<String> {
        addresses
            .turn(now)
            .iter()
            .map(|tried| tried.address().to_string().replace("127.0.0.1:", ""))
            .collect()
    }

    #[test]
    fn connections_take_the_addresses_in_turn() {
        let all = ServerAddresses::new(addresses(&[1, 2, 3]));
        let now = Instant::now();
        let firsts: Vec<_> = (0..6).map(|_| order(&all, now).remove(0)).collect();
        assert_eq!(firsts, ["1", "2", "3", "1", "2", "3"]);
        assert_eq!(order(&all, now), ["1", "2", "3"]);
        assert_eq!(order(&all, now), ["2", "3", "1"], "the others follow, if the first fails");
    }

    #[test]
    fn an_address_that_failed_is_the_last_for_a_while() {
        let all = ServerAddresses::new(addresses(&[1, 2, 3]));
        let now = Instant::now();
        drop(all.turn(now)[0].attempt());
        let mut firsts: Vec<_> = (0..4).map(|_| order(&all, now).remove(0)).collect();
        firsts.sort_unstable();
        assert_eq!(firsts, ["2", "2", "3", "3"]);
        assert_eq!(order(&all, now).pop().as_deref(), Some("1"));
        let later = now + AVOIDED;
        assert!((0..3).any(|_| order(&all, later)[0] == "1"), "it is tried again");
        // All have failed: each is tried.
        all.turn(now).iter().for_each(|tried| drop(tried.attempt()));
        assert_eq!(order(&all, now).len(), 3);
        all.turn(now)[0].attempt().succeed();
        assert!((0..9).all(|_| order(&all, now)[0] == "1"));
    }

    #[test]
    fn another_answer_of_the_name_server_is_a_change_and_another_order_is_none() {
        let all = ServerAddresses::new(addresses(&[1, 2]));
        assert!(!all.replace(addresses(&[2, 1])) && !all.replace(Vec::new()));
        assert_eq!(all.changes(), 0);
        assert!(all.replace(addresses(&[2, 3])));
        assert_eq!((all.changes(), order(&all, Instant::now())), (1, vec!["2".to_owned(), "3".to_owned()]));
    }
}
