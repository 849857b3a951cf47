//! Connection faults for HTTP/3 clients: refused connections, failed handshakes, unanswered ones.
//!
//! A fault is drawn once per connection. The outcome is kept, because its client repeats its first datagrams.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::faults::LiveFaultRule;

/// Maximum number of clients whose outcome is kept. Beyond that, all are forgotten, and drawn again.
const HELD_MAX: usize = 4096;

/// The fate of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuicStart {
    Served,
    Refused,
    /// The handshake ends with an alert.
    Failed,
    /// The client gets no answer.
    Ignored,
}

/// A worker's clients whose connections faults hold back.
#[derive(Default)]
pub(crate) struct HeldBack(RefCell<HashMap<SocketAddr, Hold>>);

/// A client that is held back while the rule applies.
struct Hold {
    rule: Arc<LiveFaultRule>,
    until_ns: u64,
    /// The fate of its connection.
    then: QuicStart,
}

impl HeldBack {
    /// Returns the outcome that was drawn for a client.
    pub(crate) fn for_client(&self, client: SocketAddr, now_ns: u64) -> Option<QuicStart> {
        let mut held = self.0.borrow_mut();
        let hold = held.get(&client)?;
        let is_over = hold.rule.expires_in(now_ns).is_some_and(|rest| rest.is_zero());
        // The rule is over, so the client's next datagram begins a connection as usual.
        if is_over || !hold.rule.stands() {
            held.remove(&client);
            return Some(QuicStart::Served);
        }
        Some(if now_ns < hold.until_ns { QuicStart::Ignored } else { hold.then })
    }

    /// Keeps the outcome for this long, or as long as the rule applies.
    pub(crate) fn hold(
        &self,
        client: SocketAddr,
        rule: &Arc<LiveFaultRule>,
        now_ns: u64,
        pause: Option<Duration>,
        then: QuicStart,
    ) {
        let mut held = self.0.borrow_mut();
        if held.len() >= HELD_MAX {
            held.clear();
        }
        let until_ns = pause.map_or(u64::MAX, |pause| now_ns.saturating_add(pause.as_nanos() as u64));
        held.insert(client, Hold { rule: Arc::clone(rule), until_ns, then });
    }
}
