//! Estimates the unread data that QUIC holds for a peer. With gaps between small pieces, a peer can cause far more than
//! its windows allow: each piece keeps its datagram, and takes an entry in a list.

/// Overhead of a piece, in bytes.
const PIECE_BYTES: u64 = 160;
/// Datagrams between two estimates.
const DATAGRAMS_BETWEEN: u32 = 16;
/// Pieces per datagram up to which estimates are corrected. A normal peer does not send more.
const PIECES_USUAL: u64 = 4;
/// More held bytes are unusual: reads of a normal peer leave less.
const HELD_USUAL: u64 = 64 * 1024;

/// The estimate, from QUIC's public statistics.
#[derive(Debug, Default)]
pub(crate) struct HeldByPeer {
    datagrams: u32,
    /// Whether the last datagrams had more pieces than a normal peer sends.
    is_unusual: bool,
    read: u64,
    /// Frames and bytes at the last estimate.
    frames: u64,
    bytes: u64,
    lately: Lately,
    held: u64,
}

/// Recently received and read pieces. One datagram says little: it can be an acknowledgment while many pieces are read.
#[derive(Debug, Default)]
struct Lately {
    datagrams: u32,
    pieces: u64,
    bytes: u64,
    read: u64,
}

impl Lately {
    /// Average bytes that a piece takes.
    fn each(&self) -> u64 {
        PIECE_BYTES + self.bytes / self.pieces.max(1)
    }

    /// Whether nearly all of the pieces were read, as those of a normal peer.
    fn was_read(&self) -> bool {
        self.read > 0 && self.read * 8 >= self.pieces * 7
    }

    /// Halves the weight of what was counted so far.
    fn fade(&mut self) {
        *self = Self { datagrams: 0, pieces: self.pieces / 2, bytes: self.bytes / 2, read: self.read / 2 };
    }
}

impl HeldByPeer {
    /// Counts a datagram. Returns whether an estimate is due.
    pub(crate) fn received(&mut self) -> bool {
        self.datagrams += 1;
        // The statistics of QUIC are a large struct, so they are not copied for each datagram of a normal peer. A datagram
        // can hold a piece for each of a hundred streams, and the lists of all of them grow at once.
        self.is_unusual || self.held > HELD_USUAL || self.datagrams >= DATAGRAMS_BETWEEN
    }

    /// Counts a piece that was read.
    pub(crate) fn read(&mut self) {
        self.read += 1;
    }

    /// Called when nothing is held.
    pub(crate) fn clear(&mut self) {
        self.held = 0;
    }

    /// In bytes.
    pub(crate) fn estimate(&self) -> u64 {
        self.held
    }

    /// Updates the estimate. `frames` and `bytes` count everything received so far.
    pub(crate) fn look(&mut self, frames: u64, bytes: u64) {
        let datagrams = std::mem::take(&mut self.datagrams);
        let read = std::mem::take(&mut self.read);
        let came = frames - std::mem::replace(&mut self.frames, frames);
        self.lately.datagrams += datagrams;
        self.lately.pieces += came;
        self.lately.bytes += bytes - std::mem::replace(&mut self.bytes, bytes);
        self.lately.read += read;
        // An estimate, because QUIC does not show how much it holds.
        let each = self.lately.each();
        self.held = (self.held + came * each).saturating_sub(read * each);
        self.is_unusual = came > u64::from(datagrams) * PIECES_USUAL;
        if self.lately.datagrams >= DATAGRAMS_BETWEEN {
            // Duplicates, and pieces that were merged before they were read, are no longer held, and were not read as
            // separate pieces.
            if !self.is_unusual && self.lately.was_read() {
                self.held -= self.held / 8;
            }
            self.lately.fade();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeats estimates with these frames, bytes per frame and reads until the limit is exceeded. Returns how many it
    /// took.
    fn looks(frames: u64, bytes: u64, read: u64) -> Option<u64> {
        let mut held = HeldByPeer::default();
        (1..10_000).find(|look| {
            (0..DATAGRAMS_BETWEEN).for_each(|_| _ = held.received());
            (0..read).for_each(|_| held.read());
            held.look(look * frames, look * frames * bytes);
            held.estimate() > 2 * 384 * 1024
        })
    }

    #[test]
    fn read_bytes_are_not_held_and_endless_pieces_are_too_much() {
        for (frames, bytes, read, expected) in [
            // An upload with a tenth of duplicates; acknowledgments.
            (16, 1200, 16, None),
            (20, 1200, 18, None),
            (0, 0, 0, None),
            // An unread body: more than the windows allow.
            (16, 1200, 0, Some(36)),
            // Frames of one byte, in full datagrams and in padded ones.
            (3200, 6, 0, Some(2)),
            (16, 1252, 0, Some(35)),
            (3200, 6, 2900, Some(16)),
        ] {
            assert_eq!(looks(frames, bytes, read), expected, "{frames} frames of {bytes} bytes, {read} read");
        }
    }

    #[test]
    fn many_pieces_in_a_datagram_are_estimated_datagram_by_datagram() {
        let mut held = HeldByPeer::default();
        let due = |held: &mut HeldByPeer| (1..100).find(|_| held.received());
        assert_eq!(due(&mut held), Some(DATAGRAMS_BETWEEN));
        held.look(16 * 82, 16 * 1200);
        assert_eq!(due(&mut held), Some(1));
        held.look(17 * 82, 17 * 1200);
        assert_eq!(due(&mut held), Some(1));
        // A datagram with an acknowledgment alone changes nothing while much is held.
        held.look(17 * 82, 18 * 1200);
        assert_eq!(due(&mut held), Some(1));
        held.clear();
        held.look(17 * 82, 19 * 1200);
        assert_eq!(due(&mut held), Some(DATAGRAMS_BETWEEN));
    }

    #[test]
    fn a_burst_that_is_read_between_acknowledgments_is_not_held() {
        let mut held = HeldByPeer::default();
        let (mut frames, mut bytes) = (0, 0);
        for _ in 0..1000 {
            for _ in 0..100 {
                (frames, bytes) = (frames + 1, bytes + 1200);
                if held.received() {
                    held.look(frames, bytes);
                }
            }
            (0..100).for_each(|_| held.read());
            bytes += 40;
            held.received();
            held.look(frames, bytes);
            assert!(held.estimate() < 10_000, "{}", held.estimate());
        }
    }
}
