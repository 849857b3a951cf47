//! Lost, repeated and reordered messages, by their numbers. No I/O.

use std::collections::{BTreeSet, HashMap};

/// Maximum number of senders that a stream is followed by, and of missing numbers that are remembered for each.
const SENDERS_MAX: usize = 10_000;
const MISSING_MAX: usize = 10_000;

/// What a message is, in the order of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    InOrder,
    /// It comes after a later one of its sender.
    OutOfOrder,
    /// It has come before.
    Duplicate,
}

/// The order of the messages of one stream.
#[derive(Debug, Default)]
pub(crate) struct Order {
    senders: HashMap<u64, Sender>,
}

#[derive(Debug, Default)]
struct Sender {
    next: u64,
    missing: BTreeSet<u64>,
    /// Missing numbers that are not remembered.
    forgotten: u64,
}

impl Order {
    /// Begins with this number: earlier ones are not missing.
    fn begin(&mut self, sender: u64, next: u64) {
        self.senders.entry(sender).or_insert_with(|| Sender { next, ..Sender::default() });
    }

    /// Takes the number of a message. The first of a sender begins its order.
    pub(crate) fn take(&mut self, sender: u64, number: u64) -> Place {
        if !self.senders.contains_key(&sender) {
            if self.senders.len() == SENDERS_MAX {
                return Place::InOrder;
            }
            self.begin(sender, number);
        }
        let Some(sender) = self.senders.get_mut(&sender) else { return Place::InOrder };
        if number < sender.next {
            if sender.missing.remove(&number) {
                return Place::OutOfOrder;
            }
            // It may be one that was forgotten.
            return match sender.forgotten.checked_sub(1) {
                Some(left) => {
                    sender.forgotten = left;
                    Place::OutOfOrder
                }
                None => Place::Duplicate,
            };
        }
        sender.skip_to(number);
        sender.next = number.saturating_add(1);
        Place::InOrder
    }

    /// Says that a sender has sent all numbers from `first` up to `number`, this one excluded.
    pub(crate) fn end(&mut self, sender: u64, first: u64, number: u64) {
        self.begin(sender, first);
        if let Some(sender) = self.senders.get_mut(&sender).filter(|sender| sender.next < number) {
            sender.skip_to(number);
            sender.next = number;
        }
    }

    /// Number of messages that are missing.
    pub(crate) fn lost(&self) -> u64 {
        let missing =
            self.senders.values().map(|sender| sender.forgotten.saturating_add(sender.missing.len() as u64));
        missing.fold(0, u64::saturating_add)
    }
}

impl Sender {
    /// The numbers from the next one up to this are missing.
    fn skip_to(&mut self, number: u64) {
        let room = (MISSING_MAX - self.missing.len().min(MISSING_MAX)) as u64;
        let kept = (number - self.next).min(room);
        self.missing.extend(self.next..self.next + kept);
        self.forgotten = self.forgotten.saturating_add(number - self.next - kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_repeated_and_reordered_messages_are_told_apart() {
        use Place::{Duplicate, InOrder, OutOfOrder};
        let cases: [(&[u64], &[Place], u64); 6] = [
            (&[5, 6, 7], &[InOrder; 3], 0),
            (&[5, 8, 9], &[InOrder; 3], 2),
            (&[5, 8, 7, 6], &[InOrder, InOrder, OutOfOrder, OutOfOrder], 0),
            (&[5, 5, 6, 5], &[InOrder, Duplicate, InOrder, Duplicate], 0),
            (&[5, 7, 6, 6], &[InOrder, InOrder, OutOfOrder, Duplicate], 0),
            (&[5, 4], &[InOrder, Duplicate], 0),
        ];
        for (numbers, places, lost) in cases {
            let mut order = Order::default();
            let found: Vec<Place> = numbers.iter().map(|number| order.take(0, *number)).collect();
            assert_eq!((found.as_slice(), order.lost()), (places, lost), "{numbers:?}");
        }
    }

    #[test]
    fn senders_have_an_order_each_and_what_is_missing_at_the_end_is_lost() {
        let mut order = Order::default();
        order.begin(1, 1);
        assert_eq!(order.take(1, 3), Place::InOrder);
        assert_eq!(order.take(2, 9), Place::InOrder);
        order.end(1, 1, 5);
        order.end(2, 1, 10);
        assert_eq!(order.lost(), 3);
        order.end(3, 1, 4);
        assert_eq!(order.lost(), 6, "of the third sender nothing arrived");
        // A leap does not take memory.
        assert_eq!(order.take(2, u64::MAX), Place::InOrder);
        assert_eq!(order.lost(), u64::MAX - 10 + 6);
        assert_eq!(order.senders[&2].missing.len(), MISSING_MAX);
        assert_eq!(order.take(2, u64::MAX - 1), Place::OutOfOrder);
    }
}
