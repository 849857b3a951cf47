//! Wait queue for servers at their limit: first come, first served, bounded. One queue per worker, and a bitmap of the
//! workers with waiting requests.
//!
//! The owner decides how long requests may wait, and wakes them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::time::Time;

/// A place in a queue. It is never valid for a later request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    slot: u32,
    /// How many times the slot has been used.
    turn: u32,
}

/// A bounded queue. Allocates up to its bound and never again.
#[derive(Debug)]
pub struct Queue<T> {
    slots: Vec<QueueSlot<T>>,
    /// The first waiting slot; waiting slots are linked in order, free ones by `next`.
    first: Option<u32>,
    last: Option<u32>,
    free: Option<u32>,
    waiting: usize,
    waiting_max: usize,
}

#[derive(Debug)]
struct QueueSlot<T> {
    turn: u32,
    previous: Option<u32>,
    next: Option<u32>,
    /// The entry, and since when it waits; `None` if the slot is free.
    waits: Option<(T, Time)>,
}

impl<T> Queue<T> {
    pub fn new(waiting_max: usize) -> Self {
        let waiting_max = waiting_max.min(u32::MAX as usize);
        Self { slots: Vec::new(), first: None, last: None, free: None, waiting: 0, waiting_max }
    }

    /// Changes the bound. Entries that already wait stay.
    pub fn set_waiting_max(&mut self, waiting_max: usize) {
        self.waiting_max = waiting_max.min(u32::MAX as usize);
    }

    pub fn len(&self) -> usize {
        self.waiting
    }

    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Adds an entry at the end.
    ///
    /// # Errors
    /// The queue is full: returns the entry.
    pub fn join(&mut self, who: T, now: Time) -> Result<Ticket, T> {
        if self.waiting >= self.waiting_max {
            return Err(who);
        }
        // Free slots first: the queue takes memory for the longest wait that occurred, not for its bound.
        let slot = self.free.unwrap_or(self.slots.len() as u32);
        if slot as usize == self.slots.len() {
            self.slots.push(QueueSlot { turn: 0, previous: None, next: None, waits: None });
        } else {
            self.free = self.slots[slot as usize].next;
        }
        let previous = self.last.replace(slot);
        match previous {
            Some(previous) => self.slots[previous as usize].next = Some(slot),
            None => self.first = Some(slot),
        }
        self.waiting += 1;
        let entry = &mut self.slots[slot as usize];
        entry.previous = previous;
        entry.next = None;
        entry.waits = Some((who, now));
        Ok(Ticket { slot, turn: entry.turn })
    }

    /// Removes the first entry. Returns it with the time since when it waited.
    pub fn take_next(&mut self) -> Option<(T, Time)> {
        self.remove(self.first?)
    }

    /// Since when the first entry waits.
    pub fn waits_since(&self) -> Option<Time> {
        self.slots[self.first? as usize].waits.as_ref().map(|(_, since)| *since)
    }

    /// Removes the first entry if it has waited since this time or longer. Call it until `None` to remove all that are
    /// overdue.
    pub fn take_next_since(&mut self, since: Time) -> Option<(T, Time)> {
        if self.waits_since()? <= since { self.take_next() } else { None }
    }

    /// Removes an entry that gives up, at any position. `None` if its turn has already come.
    pub fn leave(&mut self, ticket: Ticket) -> Option<(T, Time)> {
        let slot = self.slots.get(ticket.slot as usize)?;
        // A slot is used again, so a late `leave` could remove another request without this.
        if slot.turn == ticket.turn { self.remove(ticket.slot) } else { None }
    }

    fn remove(&mut self, slot: u32) -> Option<(T, Time)> {
        let free = self.free;
        let entry = &mut self.slots[slot as usize];
        let waits = entry.waits.take()?;
        // From here on, the ticket of the removed entry is invalid.
        entry.turn = entry.turn.wrapping_add(1);
        let (previous, next) = (entry.previous.take(), std::mem::replace(&mut entry.next, free));
        self.free = Some(slot);
        match previous {
            Some(previous) => self.slots[previous as usize].next = next,
            None => self.first = next,
        }
        match next {
            Some(next) => self.slots[next as usize].previous = previous,
            None => self.last = previous,
        }
        self.waiting -= 1;
        Some(waits)
    }
}

/// Bitmap of the workers with waiting requests. A worker that ends a request, and has an empty queue, wakes one of
/// them, so that no place stays free while another worker's requests wait.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WaitingWorkers([AtomicU64; WORDS]);

const BITS: usize = u64::BITS as usize;
/// Two cache lines.
const WORDS: usize = 16;

impl WaitingWorkers {
    /// The number of bits. Further workers share bits with others, and check their own queue when woken.
    pub const WORKERS: usize = WORDS * BITS;

    pub fn set(&self, worker: usize) {
        let (word, bit) = place(worker);
        // Pairs with the load in `next_after`, which any worker may make at the end of a request.
        self.0[word].fetch_or(1 << bit, AcqRel);
    }

    pub fn clear(&self, worker: usize) {
        let (word, bit) = place(worker);
        self.0[word].fetch_and(!(1 << bit), AcqRel);
    }

    /// The next worker after this one with waiting requests; this one comes last.
    pub fn next_after(&self, worker: usize) -> Option<usize> {
        // From the next worker on, so that low numbers are not always served first.
        let (start, bit) = place(worker + 1);
        // The first word is checked twice: from the worker on, and at the end up to it.
        (0..=WORDS).find_map(|turn| {
            let word = (start + turn) % WORDS;
            let seen = match turn {
                0 => u64::MAX << bit,
                WORDS => !(u64::MAX << bit),
                _ => u64::MAX,
            };
            let waiting = self.0[word].load(Acquire) & seen;
            (waiting != 0).then(|| word * BITS + waiting.trailing_zeros() as usize)
        })
    }
}

fn place(worker: usize) -> (usize, usize) {
    let worker = worker % WaitingWorkers::WORKERS;
    (worker / BITS, worker % BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn first_come_first_served_within_the_bound() {
        let mut queue = Queue::new(2);
        assert_eq!(queue.take_next(), None);
        let first = queue.join('a', at(1)).expect("room");
        queue.join('b', at(2)).expect("room");
        assert_eq!(queue.join('c', at(3)), Err('c'));
        assert_eq!(queue.take_next(), Some(('a', at(1))));
        assert_eq!(queue.leave(first), None, "it was its turn");
        let again = queue.join('d', at(4)).expect("room");
        assert_eq!(queue.leave(first), None, "the slot is somebody else's");
        assert_eq!(queue.leave(again), Some(('d', at(4))));
        assert_eq!((queue.len(), queue.waits_since()), (1, Some(at(2))));
        assert_eq!(queue.take_next_since(at(1)), None);
        assert_eq!(queue.take_next_since(at(2)), Some(('b', at(2))));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_new_bound_applies_to_later_entries() {
        let mut queue = Queue::new(1);
        queue.join('a', at(1)).expect("room");
        assert_eq!(queue.join('b', at(2)), Err('b'));
        queue.set_waiting_max(2);
        queue.join('b', at(3)).expect("room");
        queue.set_waiting_max(0);
        assert_eq!(queue.join('c', at(4)), Err('c'));
        assert_eq!((queue.take_next(), queue.take_next()), (Some(('a', at(1))), Some(('b', at(3)))));
    }

    #[test]
    fn a_worker_that_waits_is_found_from_any_other() {
        let waiting = WaitingWorkers::default();
        assert_eq!(waiting.next_after(3), None);
        [1, 5, 63].into_iter().for_each(|worker| waiting.set(worker));
        for (worker, next) in [(0, 1), (1, 5), (4, 5), (5, 63), (62, 63), (63, 1)] {
            assert_eq!(waiting.next_after(worker), Some(next), "after {worker}");
        }
        waiting.clear(5);
        waiting.clear(63);
        assert_eq!(waiting.next_after(1), Some(1));
    }

    #[test]
    fn many_workers_wait_each_by_itself() {
        let waiting = WaitingWorkers::default();
        [0, 64, 127, 1023].into_iter().for_each(|worker| waiting.set(worker));
        for (worker, next) in [(0, 64), (63, 64), (64, 127), (127, 1023), (1022, 1023), (1023, 0)] {
            assert_eq!(waiting.next_after(worker), Some(next), "after {worker}");
        }
        waiting.clear(0);
        assert_eq!(waiting.next_after(1023), Some(64), "it is not another one's bit");
        [127, 1023].into_iter().for_each(|worker| waiting.clear(worker));
        assert_eq!(waiting.next_after(64), Some(64), "itself last");
    }

    proptest! {
        #[test]
        fn it_does_as_a_list_would(steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 0..200)) {
            let mut queue = Queue::new(8);
            let mut list: VecDeque<(Ticket, usize)> = VecDeque::new();
            for (number, (step, index)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => match queue.join(number, at(0)) {
                        Ok(ticket) => list.push_back((ticket, number)),
                        Err(_) => prop_assert_eq!(list.len(), 8),
                    },
                    2 => prop_assert_eq!(queue.take_next().map(|next| next.0), list.pop_front().map(|next| next.1)),
                    _ if list.is_empty() => {}
                    _ => {
                        let (ticket, who) = list.remove(index.index(list.len())).expect("in the list");
                        prop_assert_eq!(queue.leave(ticket).map(|left| left.0), Some(who));
                    }
                }
                prop_assert_eq!(queue.len(), list.len());
                prop_assert!(queue.slots.len() <= 8);
            }
        }
    }
}
