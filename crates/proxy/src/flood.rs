//! Floods of frames that cost their sender nothing: counted as they arrive, and bounded over a second.

use crate::failure::Failure;

/// Frames of a kind that a connection may send within a second, whatever else it does.
const PER_SECOND: [(Failure, u32); 5] = [
    // CVE-2023-44487.
    (Failure::ResetFlood, 200),
    (Failure::SettingsFlood, 50),
    (Failure::PingFlood, 100),
    // It means nothing any more (RFC 9113 §5.3.2), but browsers still send some.
    (Failure::PriorityFlood, 500),
    // DATA or CONTINUATION without a byte and without an end.
    (Failure::EmptyFrameFlood, 90),
];

/// What the frame with this header would be a flood of.
fn flood_of(header: &[u8; HEADER_LEN]) -> Option<Failure> {
    let is_empty = header[..3] == [0, 0, 0];
    let [_, _, _, kind, flags, ..] = *header;
    Some(match kind {
        0 if is_empty && flags & END_STREAM == 0 => Failure::EmptyFrameFlood,
        CONTINUATION if is_empty && flags & END_HEADERS == 0 => Failure::EmptyFrameFlood,
        2 => Failure::PriorityFlood,
        3 => Failure::ResetFlood,
        4 if flags & ACK == 0 => Failure::SettingsFlood,
        6 if flags & ACK == 0 => Failure::PingFlood,
        _ => return None,
    })
}

/// Bytes of heads that are taken in at once.
const HEADS_PER_TURN: usize = 1024;

/// RFC 9113 §4.1, §6.
const HEADER_LEN: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// Follows the frames of a connection from byte to byte.
#[derive(Default)]
pub(crate) struct Walk {
    header: [u8; HEADER_LEN],
    header_len: usize,
    /// Of the current frame's payload, still to come.
    payload_left: usize,
    second: u32,
    counts: [u32; PER_SECOND.len()],
    tripped: Option<Failure>,
    has_begun: bool,
    /// Bytes of heads since a turn began.
    heads: usize,
}

impl Walk {
    /// What the connection has to end for, told once.
    pub(crate) fn tripped(&mut self) -> Option<Failure> {
        self.tripped.take()
    }

    /// Whether the peer's first frame has arrived, which says how it wants to be spoken to (RFC 9113 §3.4).
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Begins a turn: what was told of heads has been dealt with.
    pub(crate) fn begin_turn(&mut self) {
        self.heads = 0;
    }

    /// Whether enough heads have passed in this turn. They mean more than they are long (RFC 7541 §7.3), so that they
    /// are dealt with before the next.
    pub(crate) fn is_turn_over(&self) -> bool {
        self.heads >= HEADS_PER_TURN && self.header_len == 0 && self.payload_left == 0
    }

    /// Takes note of what has arrived within a second, which is counted from anywhere, to the end of a turn; how much
    /// that is.
    pub(crate) fn follow(&mut self, bytes: &[u8], second: u32) -> usize {
        if second != self.second {
            self.second = second;
            self.counts = Default::default();
        }
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_turn_over() {
            let skipped = self.payload_left.min(rest.len());
            self.payload_left -= skipped;
            rest = &rest[skipped..];
            self.has_begun |= skipped > 0 && self.payload_left == 0;
            if self.payload_left > 0 || self.is_turn_over() {
                break;
            }
            let taken = (HEADER_LEN - self.header_len).min(rest.len());
            self.header[self.header_len..self.header_len + taken].copy_from_slice(&rest[..taken]);
            self.header_len += taken;
            rest = &rest[taken..];
            if self.header_len == HEADER_LEN {
                let [a, b, c, kind, ..] = self.header;
                self.payload_left = u32::from_be_bytes([0, a, b, c]) as usize;
                self.header_len = 0;
                self.has_begun |= self.payload_left == 0;
                if matches!(kind, HEADERS | CONTINUATION) {
                    self.heads += HEADER_LEN + self.payload_left;
                }
                self.count();
            }
        }
        bytes.len() - rest.len()
    }

    fn count(&mut self) {
        let Some(flood) = flood_of(&self.header) else { return };
        for (count, (kind, limit)) in self.counts.iter_mut().zip(PER_SECOND) {
            if kind == flood {
                *count += 1;
                if *count > limit {
                    self.tripped = Some(flood);
                }
            }
        }
    }
}
