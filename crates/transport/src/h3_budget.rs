//! What a connection of HTTP/3 may hold for its peer: one number, and one rule. Whatever is new (a request, a buffer for a body, a
//! wider window) is taken on only if there is room for it beside all that is held, each at its most. What is not taken on waits,
//! and what is sent meanwhile makes way for it.

use std::ops::RangeInclusive;

use quinn_proto::{Connection, StreamId, WriteError};

use crate::quic_held::Held;

const KIB: usize = 1024;
/// The streams of a connection that are no requests: control, encoder and decoder stream.
pub(crate) const OWN_STREAMS: usize = 3;
/// What a connection holds for a client that takes and reads nothing, at most: a tenth of a mebibyte is for what is
/// not counted, as buffers that are larger than what is in them.
const OF_CLIENT: usize = 912 * KIB;
/// That of a connection with a server, which carries the requests of many.
const OF_SERVER: usize = 64 * KIB * KIB;
/// What the connection itself and each of its requests hold of that, measured (`proxy/tests/http3_memory`).
const ITSELF: usize = 32 * KIB;
const REQUEST: usize = 8 * KIB + 512;
/// What a client may send on all streams together before the path has taken any of it, at first and once it sends bodies.
pub(crate) const WINDOW_FIRST: u32 = 64 * KIB as u32;
const WINDOW_MAX: u32 = 256 * KIB as u32;
/// What QUIC may need beyond that to hold it in pieces, whatever else is held.
const OF_PIECES: usize = 64 * KIB;
/// Bytes that have come since the last request, from which on a client sends bodies.
const OF_BODIES: usize = 32 * KIB;
/// What is sent and not acknowledged: at least so much, at most so much, and twice what the path takes in a round trip.
const UNDER_WAY: RangeInclusive<usize> = 32 * KIB..=4 * KIB * KIB;
/// What a stream may hold that QUIC has room for, as far as is known: as much as leaves at a time, and little of a full connection.
const PIECE_MAX: usize = 64 * KIB;
const PIECE_MIN: usize = 16 * KIB;
/// What a stream may hold that waits for room.
const WAITING_MAX: usize = 128 * KIB;
/// What the path is lent for the body of a client: much for the first, then little, then nothing.
const LENDABLE: [usize; 2] = [128 * KIB, 16 * KIB];

/// What a connection holds, by what it is held for.
#[derive(Debug)]
pub(crate) struct Budget {
    total: usize,
    /// What the peer may send before the path has taken any of it, as QUIC was told.
    window: u32,
    window_max: u32,
    requests: u32,
    /// What HTTP holds of what came.
    of_http: u32,
    /// What the path holds of what is to be sent.
    of_path: u32,
    /// What the path was lent for bodies of the peer.
    lent: u32,
    /// What there was no room for.
    wanted: u32,
    /// What QUIC may have under way, and what it may have from before.
    under_way: u32,
    was_under_way: u32,
    /// Bytes that have come since the last request.
    came: u32,
    held: Held,
}

impl Budget {
    /// That of a connection with a client.
    pub(crate) fn of_client() -> Self {
        Self::new(OF_CLIENT, WINDOW_FIRST, WINDOW_MAX)
    }

    /// That of a connection with a server, which may send so much before the path has taken any of it.
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
            held: Held::default(),
        }
    }

    /// Notes how many requests there are, and what is held of and for them.
    pub(crate) fn note(&mut self, requests: usize, of_http: usize, of_path: usize) {
        (self.requests, self.of_http, self.of_path) = (requests as u32, of_http as u32, of_path as u32);
        if requests == 0 {
            // Estimates do not add up over the life of a connection.
            self.held.clear();
        }
    }

    /// What is left for what is under way and for what comes with gaps, beside what is held and so much more.
    fn left(&self, more: usize) -> usize {
        let counted = self.of_http + self.of_path + self.lent;
        let held = ITSELF + OF_PIECES + self.requests as usize * REQUEST + counted as usize;
        let held = held + in_quic(self.window);
        self.total.saturating_sub(held + more)
    }

    /// What may be under way of that.
    fn share_under_way(left: usize) -> usize {
        (left * 3 / 5).max(*UNDER_WAY.start())
    }

    /// Whether there is room for so much more. A write of nothing on our control stream shows whether less is under way than
    /// might be.
    fn fits(&mut self, more: usize, (quic, control): (&mut Connection, StreamId)) -> bool {
        let left = self.left(more);
        let most = Self::share_under_way(left);
        if left < *UNDER_WAY.start() {
            return false;
        }
        if quic.streams().send_streams() <= OWN_STREAMS {
            self.was_under_way = 0;
        }
        if self.was_under_way as usize > most {
            quic.set_send_window(most as u64 + 1);
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

    /// Whether there is room for another request. Otherwise what is sent makes way for it.
    pub(crate) fn has_room_for_request(&mut self, quic: (&mut Connection, StreamId)) -> bool {
        let fits = self.fits(REQUEST, quic);
        self.wanted = if fits { 0 } else { self.wanted.max(REQUEST as u32) };
        fits
    }

    /// A request has begun.
    pub(crate) fn took_request(&mut self) {
        self.requests += 1;
        self.came = 0;
    }

    /// Lends the path room for a body of the peer, of which it has so much; how much it has then.
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

    /// The path gives back what it was lent.
    pub(crate) fn give_back(&mut self, lent: usize) {
        self.lent -= lent as u32;
    }

    /// The window for QUIC, if it is to be a wider one: for a client that sends bodies, if there is room.
    pub(crate) fn wider(&mut self, quic: (&mut Connection, StreamId)) -> Option<u32> {
        let more = in_quic(self.window_max) - in_quic(self.window);
        if self.window == self.window_max || self.came as usize <= OF_BODIES || !self.fits(more, quic) {
            return None;
        }
        self.window = self.window_max;
        Some(self.window)
    }

    /// What QUIC may have under way, if the path takes so much in a round trip.
    pub(crate) fn under_way(&mut self, of_path: u64) -> u64 {
        let wanted = usize::try_from(2 * of_path).unwrap_or(usize::MAX);
        let most = Self::share_under_way(self.left(self.wanted as usize));
        self.under_way = wanted.clamp(*UNDER_WAY.start(), *UNDER_WAY.end()).min(most) as u32;
        self.under_way.into()
    }

    /// QUIC has taken bytes to be sent: it had room for them.
    pub(crate) fn wrote(&mut self) {
        self.was_under_way = self.was_under_way.max(self.under_way);
    }

    /// What each request may hold of what waits for room. As much as a client permits at a time should be there of the most urgent one.
    pub(crate) fn waiting(&self) -> usize {
        (self.left(0) * 2 / 5 / self.requests.max(1) as usize).min(WAITING_MAX)
    }

    /// What long heads may take beyond what they do: three times that is held while they pass.
    pub(crate) fn heads(&self) -> usize {
        self.left(0) / 5
    }

    /// What may be held of what a stream has room for, as far as is known.
    pub(crate) fn piece(&self) -> usize {
        if self.left(0) >= 4 * PIECE_MAX { PIECE_MAX } else { PIECE_MIN }
    }

    /// A piece of so many bytes was read of QUIC.
    pub(crate) fn read(&mut self, bytes: usize) {
        self.held.read();
        self.came = self.came.saturating_add(bytes as u32);
    }

    /// A datagram has come; whether it is time to ask whether too much is held.
    pub(crate) fn received(&mut self) -> bool {
        self.held.received()
    }

    /// Looks what QUIC holds.
    pub(crate) fn look(&mut self, quic: &Connection) {
        let stats = quic.stats();
        self.held.look(stats.frame_rx.stream, stats.udp_rx.bytes);
    }

    /// Whether that is too much, because there are gaps between small pieces.
    pub(crate) fn is_scattered(&self) -> bool {
        self.held.estimate() > (in_quic(self.window) + OF_PIECES + self.left(0) / 5) as u64
    }
}

/// What QUIC may hold of what a peer may send: datagrams are a little larger than what is in them.
fn in_quic(window: u32) -> usize {
    window as usize * 17 / 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's budget with so many requests.
    fn of_client(requests: usize) -> Budget {
        let mut budget = Budget::of_client();
        budget.note(requests, 0, 0);
        budget
    }

    /// Whether a request fits beside so many, while nothing is under way.
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
    fn what_is_held_and_what_waits_for_room_leaves_less_to_be_under_way() {
        let fast = u64::from(u32::MAX);
        let mut budget = of_client(1);
        let alone = budget.under_way(fast);
        assert!(alone > 400 * KIB as u64, "{alone}");
        budget.note(1, 100 * KIB, 100 * KIB);
        let beside = budget.under_way(fast);
        assert_eq!(alone - beside, 120 * KIB as u64);
        budget.wanted = 50 * KIB as u32;
        assert_eq!(beside - budget.under_way(fast), 30 * KIB as u64);
        // A slow path takes no more than it needs.
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
