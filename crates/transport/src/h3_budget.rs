//! A budget for the memory that an HTTP/3 connection may hold for its peer. A new request, body buffer or wider window
//! is accepted only if it fits beside everything that is held, each part at its maximum. Otherwise it waits, and the
//! limit on unacknowledged bytes shrinks to make room.

use std::ops::RangeInclusive;

use quinn_proto::{Connection, StreamId, WriteError};

use crate::quic_held::HeldByPeer;

const KIB: usize = 1024;
/// Streams that carry no requests: control, encoder and decoder stream.
pub(crate) const OWN_STREAMS: usize = 3;
/// Budget for a client that reads and accepts nothing. It is a tenth of a MiB below 1 MiB, for memory that is not
/// counted, such as buffers that are not full.
const OF_CLIENT: usize = 912 * KIB;
/// Budget for a server, whose connection carries the requests of many clients.
// Servers are configured, not arbitrary peers.
const OF_SERVER: usize = 64 * KIB * KIB;
/// Memory of the connection itself, and of each request, as measured by `proxy/tests/http3_memory`.
const ITSELF: usize = 32 * KIB;
const REQUEST: usize = 8 * KIB + 512;
/// Bytes that a client may send on all streams together before the path has read any: initially, and once it sends
/// bodies.
pub(crate) const WINDOW_FIRST: u32 = 64 * KIB as u32;
const WINDOW_MAX: u32 = 256 * KIB as u32;
/// Memory that QUIC may need in addition to hold the window's bytes in small pieces.
const OF_PIECES: usize = 64 * KIB;
/// Bytes since the last request from which on a client counts as sending bodies.
// Clients that only send requests never need the wider window, which would count against their requests.
const OF_BODIES: usize = 32 * KIB;
/// Limits on bytes that are sent and not acknowledged. Between them it is twice the congestion window.
const UNDER_WAY: RangeInclusive<usize> = 32 * KIB..=4 * KIB * KIB;
/// Bytes that a stream may buffer while QUIC is not known to be full: as much as one write sends, and little on a full
/// connection.
const PIECE_MAX: usize = 64 * KIB;
const PIECE_MIN: usize = 16 * KIB;
/// Bytes that a stream may buffer while it waits for room.
const WAITING_MAX: usize = 128 * KIB;
/// Sizes of buffers that the path may use for a client's body: a large one for the first body, then small ones, then
/// none.
const LENDABLE: [usize; 2] = [128 * KIB, 16 * KIB];

/// The memory that a connection holds, by purpose, in bytes.
#[derive(Debug)]
pub(crate) struct Budget {
    total: usize,
    /// The window that QUIC announces: bytes that the peer may send before the path has read any.
    window: u32,
    window_max: u32,
    requests: u32,
    /// Received bytes that the HTTP layer holds.
    of_http: u32,
    /// Bytes that the path holds and has to send.
    of_path: u32,
    /// Sum of the buffers that the path uses for bodies of the peer.
    lent: u32,
    /// The largest request for memory that did not fit.
    wanted: u32,
    /// QUIC's current limit on unacknowledged bytes, and the highest limit under which it may still hold some.
    under_way: u32,
    was_under_way: u32,
    /// Bytes that have arrived since the last request.
    came: u32,
    held: HeldByPeer,
}

impl Budget {
    pub(crate) fn of_client() -> Self {
        Self::new(OF_CLIENT, WINDOW_FIRST, WINDOW_MAX)
    }

    /// `window` is the number of bytes that the server may send before the path has read any.
    pub(crate) fn of_server(window: u32) -> Self {
        Self::new(OF_SERVER, window, window)
    }

    fn new(total: usize, window: u32, window_max: u32) -> Self {
        Self {
            total,
            window,
            window_max,
            requests: 0,
            of_http: 0,
            of_path: 0,
            lent: 0,
            wanted: 0,
            under_way: 0,
            was_under_way: 0,
            came: 0,
            held: HeldByPeer::default(),
        }
    }

    /// Records the number of requests, and the memory that is held for them.
    pub(crate) fn note(&mut self, requests: usize, of_http: usize, of_path: usize) {
        (self.requests, self.of_http, self.of_path) = (requests as u32, of_http as u32, of_path as u32);
        if requests == 0 {
            // Resets the estimate, so that its errors do not add up over the life of a connection.
            self.held.clear();
        }
    }

    /// The rest of the budget for unacknowledged bytes and for data with gaps, if `more` bytes are accepted.
    fn left(&self, more: usize) -> usize {
        let counted = self.of_http + self.of_path + self.lent;
        let held = ITSELF + OF_PIECES + self.requests as usize * REQUEST + counted as usize;
        let held = held + in_quic(self.window);
        self.total.saturating_sub(held + more)
    }

    /// The share of it for unacknowledged bytes.
    fn share_under_way(left: usize) -> usize {
        (left * 3 / 5).max(*UNDER_WAY.start())
    }

    /// Whether `more` bytes fit. If fewer bytes may be unacknowledged than the limit allows, an empty write on our
    /// control stream shows it: QUIC refuses it only above the limit.
    fn fits(&mut self, more: usize, (quic, control): (&mut Connection, StreamId)) -> bool {
        let left = self.left(more);
        let most = Self::share_under_way(left);
        // Below this, not even the least that has to be sent would fit.
        if left < *UNDER_WAY.start() {
            return false;
        }
        // Without streams, nothing of an earlier response is unacknowledged.
        if quic.streams().send_streams() <= OWN_STREAMS {
            self.was_under_way = 0;
        }
        if self.was_under_way as usize > most {
            quic.set_send_window(most as u64 + 1);
            // QUIC does not tell how much it holds. The attempt is the only way to learn whether it is less than the
            // limit.
            if matches!(quic.send_stream(control).write(b""), Err(WriteError::Blocked)) {
                quic.set_send_window(self.under_way.into());
                return false;
            }
            self.was_under_way = most as u32;
        }
        self.under_way = self.under_way.min(most as u32);
        quic.set_send_window(self.under_way.into());
        true
    }

    /// Whether another request fits. If not, the limit on unacknowledged bytes shrinks for it.
    pub(crate) fn has_room_for_request(&mut self, quic: (&mut Connection, StreamId)) -> bool {
        let fits = self.fits(REQUEST, quic);
        // Remembered, so that the limit on unacknowledged bytes makes room for it.
        self.wanted = if fits { 0 } else { self.wanted.max(REQUEST as u32) };
        fits
    }

    pub(crate) fn took_request(&mut self) {
        self.requests += 1;
        self.came = 0;
    }

    /// Reserves a buffer for a body of the peer, which has a buffer of `had` bytes. Returns its new size.
    pub(crate) fn lend(&mut self, had: usize, (quic, control): (&mut Connection, StreamId)) -> usize {
        if had > 0 {
            return had;
        }
        let is_one_of_many = self.total == OF_CLIENT && self.lent > 0;
        for size in LENDABLE.into_iter().skip(usize::from(is_one_of_many)) {
            if self.fits(size, (quic, control)) {
                self.lent += size as u32;
                self.wanted = 0;
                return size;
            }
        }
        self.wanted = self.wanted.max(LENDABLE[1] as u32);
        0
    }

    pub(crate) fn give_back(&mut self, lent: usize) {
        self.lent -= lent as u32;
    }

    /// The wider window to announce: for a client that sends bodies, if it fits.
    pub(crate) fn wider(&mut self, quic: (&mut Connection, StreamId)) -> Option<u32> {
        let more = in_quic(self.window_max) - in_quic(self.window);
        if self.window == self.window_max || self.came as usize <= OF_BODIES || !self.fits(more, quic) {
            return None;
        }
        self.window = self.window_max;
        Some(self.window)
    }

    /// The limit on unacknowledged bytes, for a congestion window of `of_path` bytes.
    pub(crate) fn under_way(&mut self, of_path: u64) -> u64 {
        // Twice, so that new data is ready when acknowledgments arrive.
        let wanted = usize::try_from(2 * of_path).unwrap_or(usize::MAX);
        let most = Self::share_under_way(self.left(self.wanted as usize));
        self.under_way = wanted.clamp(*UNDER_WAY.start(), *UNDER_WAY.end()).min(most) as u32;
        self.under_way.into()
    }

    /// Called when QUIC has accepted bytes to send: up to its limit may be unacknowledged now.
    pub(crate) fn wrote(&mut self) {
        self.was_under_way = self.was_under_way.max(self.under_way);
    }

    /// Bytes that each request may buffer while it waits for room. The most urgent one should buffer as much as a
    /// client allows at a time.
    pub(crate) fn waiting(&self) -> usize {
        (self.left(0) * 2 / 5 / self.requests.max(1) as usize).min(WAITING_MAX)
    }

    /// The growth that long heads are allowed: while they are processed, three times as much is held.
    pub(crate) fn heads(&self) -> usize {
        self.left(0) / 5
    }

    /// Bytes that a stream may buffer while QUIC is not known to be full.
    pub(crate) fn piece(&self) -> usize {
        if self.left(0) >= 4 * PIECE_MAX { PIECE_MAX } else { PIECE_MIN }
    }

    /// Called after a piece of this many bytes was read from QUIC.
    pub(crate) fn read(&mut self, bytes: usize) {
        self.held.read();
        self.came = self.came.saturating_add(bytes as u32);
    }

    /// Called for each received datagram. Returns whether the estimate is due.
    pub(crate) fn received(&mut self) -> bool {
        self.held.received()
    }

    /// Estimates the memory that QUIC holds.
    pub(crate) fn look(&mut self, quic: &Connection) {
        let stats = quic.stats();
        self.held.look(stats.frame_rx.stream, stats.udp_rx.bytes);
    }

    /// Whether the estimate is too high, because small pieces arrived with gaps between them.
    pub(crate) fn is_scattered(&self) -> bool {
        // The estimate includes the overhead of datagrams, the window does not.
        let window = self.window as usize * 17 / 16;
        self.held.estimate() > (window + OF_PIECES + self.left(0) / 5) as u64
    }
}

/// Memory that QUIC may need to hold a full window of a peer's data. It keeps whole datagrams, and an entry for each,
/// which take up to a quarter more than the data (measured in `proxy/tests/http3_memory`).
fn in_quic(window: u32) -> usize {
    window as usize * 5 / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's budget with this many requests.
    fn of_client(requests: usize) -> Budget {
        let mut budget = Budget::of_client();
        budget.note(requests, 0, 0);
        budget
    }

    /// Whether another request fits, while nothing is unacknowledged.
    fn has_room(budget: &Budget) -> bool {
        budget.left(REQUEST) >= *UNDER_WAY.start()
    }

    #[test]
    fn a_client_that_sends_no_bodies_is_served_nearly_all_that_it_may_ask_at_once() {
        let most = (0..200).take_while(|&requests| has_room(&of_client(requests))).count();
        assert!(most >= 80, "{most} requests");
        let mut budget = of_client(most);
        let held = ITSELF + OF_PIECES + most * REQUEST + in_quic(WINDOW_FIRST);
        let under_way = budget.under_way(u64::from(u32::MAX)) as usize;
        assert_eq!(under_way, *UNDER_WAY.start());
        assert!(held + under_way <= OF_CLIENT);
    }

    #[test]
    fn held_and_wanted_bytes_reduce_the_limit_in_transit() {
        let fast = u64::from(u32::MAX);
        let mut budget = of_client(1);
        let alone = budget.under_way(fast);
        assert!(alone > 400 * KIB as u64, "{alone}");
        budget.note(1, 100 * KIB, 100 * KIB);
        let beside = budget.under_way(fast);
        assert_eq!(alone - beside, 120 * KIB as u64);
        budget.wanted = 50 * KIB as u32;
        assert_eq!(beside - budget.under_way(fast), 30 * KIB as u64);
        // On a slow path, the limit is only twice the congestion window.
        assert_eq!(budget.under_way(20 * KIB as u64), 40 * KIB as u64);
        assert_eq!(budget.under_way(0), *UNDER_WAY.start() as u64);
    }

    #[test]
    fn a_server_may_have_as_much_under_way_as_its_path_takes() {
        let mut budget = Budget::of_server(16 << 20);
        budget.note(64, 1 << 20, 1 << 20);
        assert_eq!(budget.under_way(u64::from(u32::MAX)), *UNDER_WAY.end() as u64);
    }
}
