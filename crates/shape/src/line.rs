//! The streams of one worker that share a total: deficit round robin, in rounds that keep step with other workers'.
//!
//! A stream that has nothing to send costs nobody anything; one that could not use its piece has the rest of it later.

use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;

use crate::total::Total;

/// A stream in a line; numbers are small, and used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamId(pub usize);

/// What a stream may send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The stream.
    pub stream: StreamId,
    /// So many bytes; what is not sent is given back.
    pub bytes: u64,
}

/// One worker's streams under one total.
#[derive(Debug)]
pub struct Line {
    total: Arc<Total>,
    worker: usize,
    piece_bytes: u64,
    streams: Slab<Stream>,
    round: u64,
    /// Those that this round has yet to serve.
    this_round: VecDeque<usize>,
    /// Those that came since it began, or come again.
    next_round: VecDeque<usize>,
    /// Whether the total counts with this worker.
    has_begun: bool,
}

#[derive(Debug)]
struct Stream {
    weight: u32,
    /// What it was granted and could not use.
    deficit: u64,
    /// What it waits for; 0 while it does not.
    wanted: u64,
    /// What it has had of the turn that it is in.
    taken: u64,
}

impl Line {
    /// Without any stream yet.
    pub fn new(total: Arc<Total>, worker: usize) -> Self {
        let piece_bytes = total.limit().piece_bytes();
        Self {
            total,
            worker,
            piece_bytes,
            streams: Slab::new(),
            round: 0,
            this_round: VecDeque::new(),
            next_round: VecDeque::new(),
            has_begun: false,
        }
    }

    /// The total that is shared.
    pub fn total(&self) -> &Arc<Total> {
        &self.total
    }

    /// One more stream, which gets `weight` pieces a round.
    pub fn join(&mut self, weight: u32) -> StreamId {
        StreamId(self.streams.insert(Stream { weight: weight.max(1), deficit: 0, wanted: 0, taken: 0 }))
    }

    /// A stream ends.
    pub fn leave(&mut self, stream: StreamId, now_ns: u64) {
        if self.streams.remove(stream.0).wanted > 0 {
            // Its key may be another's soon.
            self.this_round.retain(|&key| key != stream.0);
            self.next_round.retain(|&key| key != stream.0);
            self.rest_if_empty(now_ns);
        }
    }

    /// A stream has so many bytes to send, and waits for its turn.
    pub fn ask(&mut self, stream: StreamId, bytes: u64, now_ns: u64) {
        let is_waiting = self.streams[stream.0].wanted > 0;
        self.streams[stream.0].wanted = bytes.max(1);
        if is_waiting {
            return;
        }
        self.next_round.push_back(stream.0);
        if !self.has_begun {
            self.has_begun = true;
            self.round = self.total.begin(self.worker, self.round, now_ns);
        }
    }

    /// Grants what may be sent now. Says when to come again, if somebody still waits.
    pub fn serve(&mut self, now_ns: u64, grants: &mut Vec<Grant>) -> Option<u64> {
        // It may be another one by now.
        self.piece_bytes = self.total.limit().piece_bytes();
        loop {
            if self.this_round.is_empty() {
                if self.next_round.is_empty() {
                    self.rest_if_empty(now_ns);
                    return None;
                }
                self.round += 1;
                std::mem::swap(&mut self.this_round, &mut self.next_round);
            }
            let first = self.least(self.turn(self.this_round[0]));
            let wanted = self.this_round.iter().map(|&key| self.turn(key)).sum();
            let mut lease = match self.total.lease(self.worker, self.round, first, wanted, now_ns) {
                Ok(lease) => lease,
                Err(due_ns) => return Some(due_ns.max(now_ns + 1)),
            };
            while let Some(&key) = self.this_round.front() {
                let turn = self.turn(key);
                if self.least(turn) > lease {
                    break;
                }
                let bytes = turn.min(lease);
                lease -= bytes;
                grants.push(Grant { stream: StreamId(key), bytes });
                let stream = &mut self.streams[key];
                stream.taken += bytes;
                if bytes < turn {
                    // It goes on with its turn, whether or not it asks again.
                    stream.wanted -= bytes;
                    break;
                }
                stream.deficit = stream.deficit.saturating_sub(std::mem::take(&mut stream.taken));
                stream.wanted = 0;
                self.this_round.pop_front();
            }
            self.total.give_back(lease);
        }
    }

    /// A stream was granted these and does not send them: it has nothing, or is held up elsewhere. Others may be served
    /// with them at once.
    pub fn give_back(&mut self, stream: StreamId, bytes: u64) {
        self.total.give_back(bytes);
        let most = self.piece_bytes * u64::from(self.streams[stream.0].weight);
        let stream = &mut self.streams[stream.0];
        stream.deficit = (stream.deficit + bytes).min(most);
    }

    /// Whether all who wait now will have been served after so long, other workers apart.
    pub fn is_served_within(&self, span_ns: u64) -> bool {
        let waiting = (self.this_round.len() + self.next_round.len()) as u64;
        u128::from(waiting) * u128::from(self.piece_bytes) <= self.total.limit().bytes_in(span_ns)
    }

    /// What a stream that waits gets at its turn, or has yet to get of it.
    fn turn(&self, key: usize) -> u64 {
        let Stream { weight, deficit, wanted, taken } = self.streams[key];
        // Pieces may be smaller by now than when the turn began.
        wanted.min((self.piece_bytes * u64::from(weight) + deficit).saturating_sub(taken).max(1))
    }

    /// What of a turn is granted at once at least: a long one comes in parts, as there is never credit for all of it. For
    /// two pieces there is (`Bucket`).
    fn least(&self, turn: u64) -> u64 {
        if turn <= 2 * self.piece_bytes { turn } else { self.piece_bytes }
    }

    fn rest_if_empty(&mut self, now_ns: u64) {
        if self.has_begun && self.this_round.is_empty() && self.next_round.is_empty() {
            self.has_begun = false;
            self.total.rest(self.worker, now_ns);
        }
    }
}
