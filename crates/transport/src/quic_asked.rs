//! Clients that begin, of whom the process before this one was asked, by the IDs that they have chosen: one that does not answer
//! in time, because it hangs or a message was lost, has begun nothing that is worth waiting for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use quinn_proto::ConnectionId;

/// How long that process is asked. Clients send their first datagrams again after 1 s, and after 3 s.
const PATIENCE: Duration = Duration::from_secs(2);
/// Clients that are remembered. With more of them at once some are asked of once more.
const ASKED_MAX: usize = 1024;

/// Clients of whom another process was asked, and since when.
#[derive(Default)]
pub(crate) struct Asked(RefCell<HashMap<ConnectionId, Instant>>);

impl Asked {
    /// Whether to ask, or to ask again, for a client that begins with this ID.
    pub(crate) fn may_ask(&self, id: ConnectionId, now: Instant) -> bool {
        let mut asked = self.0.borrow_mut();
        if asked.len() >= ASKED_MAX && !asked.contains_key(&id) {
            asked.clear();
        }
        now.saturating_duration_since(*asked.entry(id).or_insert(now)) < PATIENCE
    }

    /// Nobody is asked any more.
    pub(crate) fn forget(&self) {
        if !self.0.borrow().is_empty() {
            self.0.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_asked_of_a_client_for_long() {
        let (asked, now) = (Asked::default(), Instant::now());
        let [one, other] = [1, 2].map(|byte| ConnectionId::new(&[byte; 8]));
        let after = |ms| now + Duration::from_millis(ms);
        assert!(
            asked.may_ask(one, now) && asked.may_ask(one, after(1000)) && asked.may_ask(other, after(1500))
        );
        assert!(!asked.may_ask(one, after(3000)) && asked.may_ask(other, after(3000)));
        asked.forget();
        assert!(asked.may_ask(one, after(3000)));
    }

    #[test]
    fn a_flood_of_clients_takes_little_memory() {
        let (asked, now) = (Asked::default(), Instant::now());
        for number in 0..3 * ASKED_MAX as u64 {
            assert!(asked.may_ask(ConnectionId::new(&number.to_be_bytes()), now));
        }
        assert!(asked.0.borrow().len() <= ASKED_MAX);
    }
}
