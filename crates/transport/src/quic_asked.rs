//! New clients that the previous process was asked about, by the IDs that they have chosen. If it does not answer in
//! time, because it hangs or a message was lost, this process serves the client.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use quinn_proto::ConnectionId;

/// How long to wait for the answer. Clients send their first datagrams again after 1 s, and after 3 s.
const PATIENCE: Duration = Duration::from_secs(2);
/// Remembered clients. Beyond that, the other process may be asked twice about a client.
const ASKED_MAX: usize = 1024;

/// Clients that another process was asked about, and since when.
#[derive(Default)]
pub(crate) struct PendingClients(RefCell<HashMap<ConnectionId, Instant>>);

impl PendingClients {
    /// Whether to ask about a client that begins with this ID, or to ask again.
    pub(crate) fn may_ask(&self, id: ConnectionId, now: Instant) -> bool {
        let mut asked = self.0.borrow_mut();
        if asked.len() >= ASKED_MAX && !asked.contains_key(&id) {
            // Without looking for old entries: asking twice is cheap.
            asked.clear();
        }
        now.saturating_duration_since(*asked.entry(id).or_insert(now)) < PATIENCE
    }

    /// Forgets all clients: no process is asked any more.
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
    fn a_client_is_asked_about_only_for_a_short_time() {
        let (asked, now) = (PendingClients::default(), Instant::now());
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
        let (asked, now) = (PendingClients::default(), Instant::now());
        for number in 0..3 * ASKED_MAX as u64 {
            assert!(asked.may_ask(ConnectionId::new(&number.to_be_bytes()), now));
        }
        assert!(asked.0.borrow().len() <= ASKED_MAX);
    }
}
