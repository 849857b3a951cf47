//! Division of a shared rate limit among a worker's streams: deficit round robin, in step with other workers' rounds.
//!
//! Idle streams cost nothing. A stream that could not use its piece gets the rest of it later.

use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;

use crate::total::Total;

/// Identifies a stream in a line. Numbers are small, and are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamId(pub usize);

/// Permission for a stream to send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    pub stream: StreamId,
    /// Unused bytes must be given back.
    pub bytes: u64,
}

/// The streams of one worker under one shared limit.
#[derive(Debug)]
pub struct SharedLine {
    total: Arc<Total>,
    worker: usize,
    piece_bytes: u64,
    streams: Slab<LineStream>,
    round: u64,
    /// Streams that this round has yet to serve.
    this_round: VecDeque<usize>,
    /// Streams that joined after the round began, or that asked again.
    next_round: VecDeque<usize>,
    /// Whether this worker takes part in the rounds of the shared limit.
    has_begun: bool,
}

#[derive(Debug)]
struct LineStream {
    weight: u32,
    /// Bytes that were granted but could not be used.
    deficit: u64,
    /// Bytes that the stream waits for; 0 while it does not wait.
    wanted: u64,
    /// Bytes granted so far in the current turn.
    taken: u64,
}

impl SharedLine {
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

    pub fn total(&self) -> &Arc<Total> {
        &self.total
    }

    /// Adds a stream that gets `weight` pieces per round.
    pub fn join(&mut self, weight: u32) -> StreamId {
        StreamId(self.streams.insert(LineStream { weight: weight.max(1), deficit: 0, wanted: 0, taken: 0 }))
    }

    pub fn leave(&mut self, stream: StreamId, now_ns: u64) {
        if self.streams.remove(stream.0).wanted > 0 {
            // Another stream may get this key soon.
            self.this_round.retain(|&key| key != stream.0);
            self.next_round.retain(|&key| key != stream.0);
            self.rest_if_empty(now_ns);
        }
    }

    /// Queues a stream with `bytes` to send for its turn.
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

    /// Grants the bytes that may be sent now. Returns when to call again, if streams still wait.
    pub fn serve(&mut self, now_ns: u64, grants: &mut Vec<Grant>) -> Option<u64> {
        // The limit may have changed.
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
                    // The stream continues its turn, whether or not it asks again.
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

    /// Returns granted bytes that a stream does not send. Other streams may get them at once.
    pub fn give_back(&mut self, stream: StreamId, bytes: u64) {
        self.total.give_back(bytes);
        let most = self.piece_bytes * u64::from(self.streams[stream.0].weight);
        let stream = &mut self.streams[stream.0];
        stream.deficit = (stream.deficit + bytes).min(most);
    }

    /// Whether all waiting streams will be served within `span_ns`, if other workers send nothing.
    pub fn is_served_within(&self, span_ns: u64) -> bool {
        let waiting = (self.this_round.len() + self.next_round.len()) as u64;
        u128::from(waiting) * u128::from(self.piece_bytes) <= self.total.limit().bytes_in(span_ns)
    }

    /// Returns how many bytes a waiting stream gets in its turn, or still gets in the current one.
    fn turn(&self, key: usize) -> u64 {
        let LineStream { weight, deficit, wanted, taken } = self.streams[key];
        // Pieces may have become smaller since the turn began.
        wanted.min((self.piece_bytes * u64::from(weight) + deficit).saturating_sub(taken).max(1))
    }

    /// The minimum grant within a turn. A long turn is granted in parts, because credit is at most two pieces.
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
