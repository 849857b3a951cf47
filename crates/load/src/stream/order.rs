//! Lost, repeated and reordered messages, by their numbers. No I/O.

use std::collections::{BTreeSet, HashMap};

/// Maximum number of senders that a stream tracks, and of missing numbers that it remembers for each.
const SENDERS_MAX: usize = 10_000;
const MISSING_MAX: usize = 10_000;

/// The place of a message in the order of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessagePlace {
    InOrder,
    /// A later message of the sender arrived first.
    OutOfOrder,
    Duplicate,
}

#[derive(Debug, Default)]
pub(crate) struct MessageOrder {
    senders: HashMap<u64, MessageSender>,
}

#[derive(Debug, Default)]
struct MessageSender {
    next: u64,
    missing: BTreeSet<u64>,
    /// Missing numbers that are not remembered.
    forgotten: u64,
}

impl MessageOrder {
    /// Begins with this number: earlier ones are not missing.
    fn begin(&mut self, sender: u64, next: u64) {
        self.senders.entry(sender).or_insert_with(|| MessageSender { next, ..MessageSender::default() });
    }

    /// Takes the number of a message. The first of a sender begins its order.
    pub(crate) fn take(&mut self, sender: u64, number: u64) -> MessagePlace {
        if !self.senders.contains_key(&sender) {
            if self.senders.len() == SENDERS_MAX {
                return MessagePlace::InOrder;
            }
            self.begin(sender, number);
        }
        let Some(sender) = self.senders.get_mut(&sender) else { return MessagePlace::InOrder };
        if number < sender.next {
            if sender.missing.remove(&number) {
                return MessagePlace::OutOfOrder;
            }
            // It may be one of the forgotten numbers.
            return match sender.forgotten.checked_sub(1) {
                Some(left) => {
                    sender.forgotten = left;
                    MessagePlace::OutOfOrder
                }
                None => MessagePlace::Duplicate,
            };
        }
        sender.skip_to(number);
        sender.next = number.saturating_add(1);
        MessagePlace::InOrder
    }

    /// Records that a sender has sent all numbers from `first` to `number`, excluding `number`.
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

impl MessageSender {
    /// Marks the numbers from the next one up to this as missing.
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
        use MessagePlace::{Duplicate, InOrder, OutOfOrder};
        let cases: [(&[u64], &[MessagePlace], u64); 6] = [
            (&[5, 6, 7], &[InOrder; 3], 0),
            (&[5, 8, 9], &[InOrder; 3], 2),
            (&[5, 8, 7, 6], &[InOrder, InOrder, OutOfOrder, OutOfOrder], 0),
            (&[5, 5, 6, 5], &[InOrder, Duplicate, InOrder, Duplicate], 0),
            (&[5, 7, 6, 6], &[InOrder, InOrder, OutOfOrder, Duplicate], 0),
            (&[5, 4], &[InOrder, Duplicate], 0),
        ];
        for (numbers, places, lost) in cases {
            let mut order = MessageOrder::default();
            let found: Vec<MessagePlace> = numbers.iter().map(|number| order.take(0, *number)).collect();
            assert_eq!((found.as_slice(), order.lost()), (places, lost), "{numbers:?}");
        }
    }

    #[test]
    fn senders_have_an_order_each_and_what_is_missing_at_the_end_is_lost() {
        let mut order = MessageOrder::default();
        order.begin(1, 1);
        assert_eq!(order.take(1, 3), MessagePlace::InOrder);
        assert_eq!(order.take(2, 9), MessagePlace::InOrder);
        order.end(1, 1, 5);
        order.end(2, 1, 10);
        assert_eq!(order.lost(), 3);
        order.end(3, 1, 4);
        assert_eq!(order.lost(), 6, "of the third sender nothing arrived");
        // A large gap takes no memory.
        assert_eq!(order.take(2, u64::MAX), MessagePlace::InOrder);
        assert_eq!(order.lost(), u64::MAX - 10 + 6);
        assert_eq!(order.senders[&2].missing.len(), MISSING_MAX);
        assert_eq!(order.take(2, u64::MAX - 1), MessagePlace::OutOfOrder);
    }
}
