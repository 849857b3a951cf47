//! Limits how many failed handshakes a worker reports, because any client can cause any number of them.

use std::cell::Cell;

const TOLD_PER_SECOND: u32 = 10;

/// Counts the failed handshakes that a worker has reported.
#[derive(Default)]
pub(crate) struct HandshakeNotices {
    second: Cell<u32>,
    count: Cell<u32>,
    /// Failures that were not reported since.
    more: Cell<u32>,
}

impl HandshakeNotices {
    /// Returns how many failures were omitted before, if another one may be reported now.
    pub(crate) fn next(&self, second: u32) -> Option<u32> {
        if self.second.replace(second) != second {
            self.count.set(0);
        }
        if self.count.get() == TOLD_PER_SECOND {
            self.more.set(self.more.get().saturating_add(1));
            return None;
        }
        self.count.set(self.count.get() + 1);
        Some(self.more.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_told_of_in_a_second_and_the_others_are_counted() {
        let told = HandshakeNotices::default();
        let told_in = |second, count| (0..count).filter_map(|_| told.next(second)).collect::<Vec<u32>>();
        assert_eq!(told_in(1, 25), [0; 10]);
        assert_eq!(told_in(2, 2), [15, 0]);
    }
}
