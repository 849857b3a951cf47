//! Requests that wait for a server with room: first come, first served, with a bound. One worker's queue, and which
//! other workers have one.
//!
//! How long one may wait, and what wakes it, is its owner's.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::time::Time;

/// A place in a queue. It names no other one when it is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    slot: u32,
    /// How often the slot was given to somebody.
    turn: u32,
}

/// Who waits, in order. Allocates up to its bound and never again.
#[derive(Debug)]
pub struct Queue<T> {
    slots: Vec<Slot<T>>,
    /// The slots that wait, linked from the first to the last; those that are free, linked by `next`.
    first: Option<u32>,
    last: Option<u32>,
    free: Option<u32>,
    waiting: usize,
    waiting_max: usize,
}

#[derive(Debug)]
struct Slot<T> {
    turn: u32,
    previous: Option<u32>,
    next: Option<u32>,
    /// Who waits, since when; `None` while it is free.
    waits: Option<(T, Time)>,
}

impl<T> Queue<T> {
    /// A queue of up to so many.
    pub fn new(waiting_max: usize) -> Self {
        let waiting_max = waiting_max.min(u32::MAX as usize);
        Self { slots: Vec::new(), first: None, last: None, free: None, waiting: 0, waiting_max }
    }

    /// From now on up to so many. Those who wait already are not sent away.
    pub fn set_waiting_max(&mut self, waiting_max: usize) {
        self.waiting_max = waiting_max.min(u32::MAX as usize);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Waits behind all others.
    ///
    /// # Errors
    /// Gives back who may not wait, as the queue is full.
    pub fn join(&mut self, who: T, now: Time) -> Result<Ticket, T> {
        if self.waiting >= self.waiting_max {
            return Err(who);
        }
        let slot = self.free.unwrap_or(self.slots.len() as u32);
        if slot as usize == self.slots.len() {
            self.slots.push(Slot { turn: 0, previous: None, next: None, waits: None });
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

    /// Whose turn it is, and since when they wait. They wait no longer.
    pub fn take_next(&mut self) -> Option<(T, Time)> {
        self.remove(self.first?)
    }

    /// Since when the first one waits.
    pub fn waits_since(&self) -> Option<Time> {
        self.slots[self.first? as usize].waits.as_ref().map(|(_, since)| *since)
    }

    /// The first one, if it has waited since then or longer: called until `None`, all whose time is over.
    pub fn take_next_since(&mut self, since: Time) -> Option<(T, Time)> {
        if self.waits_since()? <= since { self.take_next() } else { None }
    }

    /// One who gives up, wherever they stand; `None` if it was their turn already.
    pub fn leave(&mut self, ticket: Ticket) -> Option<(T, Time)> {
        let slot = self.slots.get(ticket.slot as usize)?;
        if slot.turn == ticket.turn { self.remove(ticket.slot) } else { None }
    }

    fn remove(&mut self, slot: u32) -> Option<(T, Time)> {
        let free = self.free;
        let entry = &mut self.slots[slot as usize];
        let waits = entry.waits.take()?;
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

/// Which workers have somebody who waits: a bit for each. Whoever ends a request wakes one of them, if its own queue is
/// empty; so a place is never free while somebody waits with another worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WaitingWorkers([AtomicU64; WORDS]);

const BITS: usize = u64::BITS as usize;
/// As many as two cache lines hold.
const WORDS: usize = 16;

impl WaitingWorkers {
    /// Workers from this one on share a bit with others: woken, they look at their own queue.
    pub const WORKERS: usize = WORDS * BITS;

    /// This worker has somebody who waits.
    pub fn set(&self, worker: usize) {
        let (word, bit) = place(worker);
        self.0[word].fetch_or(1 << bit, AcqRel);
    }

    /// This worker has nobody left.
    pub fn clear(&self, worker: usize) {
        let (word, bit) = place(worker);
        self.0[word].fetch_and(!(1 << bit), AcqRel);
    }

    /// The next worker after this one that has somebody who waits; itself last.
    pub fn next_after(&self, worker: usize) -> Option<usize> {
        let (start, bit) = place(worker + 1);
        // The first word is looked at twice: from the worker on, and at last up to it.
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
    fn another_bound_holds_for_those_who_come_later() {
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
