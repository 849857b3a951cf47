//! An estimate of what QUIC holds of a peer that nobody has read: with gaps between small pieces a peer has it hold far more than
//! windows tell, since each piece keeps its datagram, and takes an entry in a list.

/// What a piece takes beside its bytes.
const PIECE_BYTES: u64 = 160;
/// Datagrams between two looks.
const DATAGRAMS_BETWEEN: u32 = 16;
/// Pieces for each datagram up to which estimates are corrected: more of them are no ordinary peer's.
const PIECES_USUAL: u64 = 4;

/// What QUIC holds of a peer, as far as can be told from outside.
#[derive(Debug, Default)]
pub(crate) struct Held {
    datagrams: u32,
    read: u64,
    /// Frames and bytes that had come by the last look.
    frames: u64,
    bytes: u64,
    held: u64,
}

impl Held {
    /// A datagram has come; whether it is time for a look.
    pub(crate) fn received(&mut self) -> bool {
        self.datagrams += 1;
        self.datagrams >= DATAGRAMS_BETWEEN
    }

    /// A piece was read.
    pub(crate) fn read(&mut self) {
        self.read += 1;
    }

    /// Nothing is held.
    pub(crate) fn clear(&mut self) {
        self.held = 0;
    }

    /// What is held, as far as is known.
    pub(crate) fn estimate(&self) -> u64 {
        self.held
    }

    /// Looks what is held, now that so many frames and bytes have come in all.
    pub(crate) fn look(&mut self, frames: u64, bytes: u64) {
        let datagrams = u64::from(std::mem::take(&mut self.datagrams));
        let read = std::mem::take(&mut self.read);
        let came = frames - std::mem::replace(&mut self.frames, frames);
        let each = PIECE_BYTES + (bytes - std::mem::replace(&mut self.bytes, bytes)) / came.max(1);
        self.held = (self.held + came * each).saturating_sub(read * each);
        // What came twice, and what was put together before it was read, is held no longer, and was not read as so many pieces.
        if came <= datagrams * PIECES_USUAL && read * 10 >= came * 9 {
            self.held -= self.held / 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks with so many frames, of so many bytes each, of which so many are read, until it is too much; how many.
    fn looks(frames: u64, bytes: u64, read: u64) -> Option<u64> {
        let mut held = Held::default();
        (1..10_000).find(|look| {
            (0..DATAGRAMS_BETWEEN).for_each(|_| _ = held.received());
            (0..read).for_each(|_| held.read());
            held.look(look * frames, look * frames * bytes);
            held.estimate() > 2 * 384 * 1024
        })
    }

    #[test]
    fn what_is_read_is_not_held_and_pieces_without_end_are_too_much() {
        for (frames, bytes, read, expected) in [
            // An upload, of which a tenth comes twice; acknowledgments.
            (16, 1200, 16, None),
            (20, 1200, 18, None),
            (0, 0, 0, None),
            // A body that nobody reads: more than the windows permit.
            (16, 1200, 0, Some(37)),
            // Bytes, each in a frame, in full datagrams and in padded ones.
            (3200, 6, 0, Some(2)),
            (16, 1252, 0, Some(35)),
            (3200, 6, 2900, Some(16)),
        ] {
            assert_eq!(looks(frames, bytes, read), expected, "{frames} frames of {bytes} bytes, {read} read");
        }
    }
}
