//! An emulated path of datagrams: some are lost, late or twice. Nothing of it is touched while no path is emulated.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use quinn_proto::Transmit;

use crate::quic_endpoint::Datagram;

/// What is on its way at most; what comes beyond that is lost.
const BYTES_MAX: usize = 16 << 20;

/// What becomes of a datagram on its way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passage {
    /// It is lost.
    pub is_lost: bool,
    /// It comes twice.
    pub is_twice: bool,
    /// How much later it comes, and all behind it.
    pub delay: Duration,
    /// How much later it comes beyond that, by itself.
    pub alone: Duration,
}

/// Decides about datagrams.
pub trait Weather {
    /// Whether any datagram may be lost, late or twice.
    fn is_bad(&self) -> bool;
    /// What becomes of a datagram of so many bytes.
    fn passage(&self, client: IpAddr, bytes: usize, way: Way) -> Passage;
}

/// The way of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From a client.
    Up {
        /// Whether a connection begins with it.
        begins: bool,
    },
    /// To a client.
    Down,
}

/// Datagrams on an emulated path.
#[derive(Default)]
pub(crate) struct Path {
    /// Whether datagrams go over it now.
    is_on: Cell<bool>,
    /// Those that are to be sent, and nobody has decided about.
    outgoing: RefCell<Vec<(Transmit, Vec<u8>)>>,
    late: RefCell<BinaryHeap<Reverse<Late>>>,
    /// When the last one is due that has kept its order, from clients and to them.
    last: [Cell<Option<Instant>>; 2],
    held_bytes: Cell<usize>,
    count: Cell<u64>,
}

/// One that is due later.
struct Late {
    due: Instant,
    /// Those that are due at once keep their order.
    number: u64,
    step: Step,
}

/// What becomes of a datagram that has passed.
pub(crate) enum Step {
    /// It is handled.
    Receive(Datagram),
    /// It is sent.
    Send(Transmit, Vec<u8>),
}

impl Path {
    /// Looks whether datagrams go over it.
    pub(crate) fn look(&self, weather: &impl Weather) {
        self.is_on.set(weather.is_bad());
    }

    /// Whether datagrams go over it.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// Takes datagrams that are to be sent, of which a transmission may have several.
    pub(crate) fn send(&self, transmit: &Transmit, bytes: &[u8]) {
        let mut outgoing = self.outgoing.borrow_mut();
        for bytes in bytes.chunks(transmit.segment_size.unwrap_or(bytes.len()).max(1)) {
            let one = Transmit {
                destination: transmit.destination,
                ecn: transmit.ecn,
                size: bytes.len(),
                segment_size: None,
                src_ip: transmit.src_ip,
            };
            outgoing.push((one, bytes.to_vec()));
        }
    }

    /// Decides about a datagram that has come.
    pub(crate) fn received(&self, datagram: Datagram, begins: bool, weather: &impl Weather, now: Instant) {
        let passage = weather.passage(datagram.remote.ip(), datagram.bytes.len(), Way::Up { begins });
        let again = passage.is_twice.then(|| Step::Receive(datagram.again()));
        self.pass(passage, Step::Receive(datagram), again, now);
    }

    /// Decides about those that are to be sent.
    pub(crate) fn decide(&self, weather: &impl Weather, now: Instant) {
        for (transmit, bytes) in self.outgoing.take() {
            let passage = weather.passage(transmit.destination.ip(), bytes.len(), Way::Down);
            let again = passage.is_twice.then(|| {
                let again = Transmit { size: bytes.len(), ..copy(&transmit) };
                Step::Send(again, bytes.clone())
            });
            self.pass(passage, Step::Send(transmit, bytes), again, now);
        }
    }

    fn pass(&self, passage: Passage, step: Step, again: Option<Step>, now: Instant) {
        if passage.is_lost {
            return;
        }
        let last = &self.last[usize::from(matches!(step, Step::Send(..)))];
        let in_order = last.get().max(Some(now + passage.delay)).unwrap_or(now);
        last.set(Some(in_order));
        for step in std::iter::once(step).chain(again) {
            let held = self.held_bytes.get() + step.len();
            if held > BYTES_MAX {
                return;
            }
            self.held_bytes.set(held);
            let number = self.count.replace(self.count.get() + 1);
            self.late.borrow_mut().push(Reverse(Late { due: in_order + passage.alone, number, step }));
        }
    }

    /// Whether no datagram is on it.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.outgoing.borrow().is_empty() && self.late.borrow().is_empty()
    }

    /// The next that has passed.
    pub(crate) fn next(&self, now: Instant) -> Option<Step> {
        let mut late = self.late.borrow_mut();
        let Reverse(first) = late.peek()?;
        if first.due > now {
            return None;
        }
        let Reverse(Late { step, .. }) = late.pop()?;
        self.held_bytes.set(self.held_bytes.get() - step.len());
        Some(step)
    }

    /// When the next one is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.late.borrow().peek().map(|Reverse(first)| first.due)
    }
}

fn copy(transmit: &Transmit) -> Transmit {
    let Transmit { destination, ecn, size, segment_size, src_ip } = *transmit;
    Transmit { destination, ecn, size, segment_size, src_ip }
}

impl Step {
    fn len(&self) -> usize {
        match self {
            Self::Receive(datagram) => datagram.bytes.len(),
            Self::Send(_, bytes) => bytes.len(),
        }
    }
}

impl PartialEq for Late {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.number) == (other.due, other.number)
    }
}

impl Eq for Late {}

impl PartialOrd for Late {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Late {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<Passage>, Cell<usize>);

    impl Weather for Fixed {
        fn is_bad(&self) -> bool {
            true
        }

        fn passage(&self, _: IpAddr, _: usize, _: Way) -> Passage {
            self.0[self.1.replace(self.1.get() + 1)]
        }
    }

    /// A link of 1 MB/s with a queue.
    struct Narrow(shape::Queue, Instant, Cell<u64>);

    impl Narrow {
        fn new(queue_bytes: u64, began: Instant) -> Self {
            let rate_bytes_per_second = std::num::NonZeroU64::new(1_000_000).expect("is not zero");
            let queue = shape::Queue::new(shape::Bottleneck { rate_bytes_per_second, queue_bytes });
            Self(queue, began, Cell::new(0))
        }

        /// Lets time pass.
        fn at(&self, ms: u64) -> Instant {
            self.2.set(ms * 1_000_000);
            self.1 + Duration::from_millis(ms)
        }
    }

    impl Weather for Narrow {
        fn is_bad(&self) -> bool {
            true
        }

        fn passage(&self, _: IpAddr, bytes: usize, _: Way) -> Passage {
            match self.0.take(bytes, self.2.get()) {
                Some(ns) => Passage { delay: Duration::from_nanos(ns), ..Passage::default() },
                None => Passage { is_lost: true, ..Passage::default() },
            }
        }
    }

    #[test]
    fn datagrams_leave_at_the_rate_of_a_link_and_are_lost_behind_a_full_queue() {
        let (path, weather) = (Path::default(), Narrow::new(2_000, Instant::now()));
        let transmit = Transmit {
            destination: "192.0.2.1:1".parse().expect("is an address"),
            ecn: None,
            size: 5_000,
            segment_size: Some(1_000),
            src_ip: None,
        };
        let bytes: Vec<u8> = (0..5_000).map(|at| (at / 1_000) as u8).collect();
        let mut passed = Vec::new();
        for ms in 0..=12 {
            let now = weather.at(ms);
            if ms == 0 || ms == 8 {
                path.send(&transmit, &bytes);
            }
            path.decide(&weather, now);
            while let Some(Step::Send(_, bytes)) = path.next(now) {
                passed.push((ms, bytes[0]));
            }
        }
        // Of five datagrams one is sent, one waits, and three are lost.
        assert_eq!(passed, [(1, 0), (2, 1), (9, 0), (10, 1)]);
        assert_eq!((path.held_bytes.get(), path.due()), (0, None));
    }

    #[test]
    fn datagrams_are_lost_late_and_twice_each_by_itself() {
        let (usual, ms) = (Passage::default(), Duration::from_millis);
        let passages = vec![
            Passage { alone: ms(20), ..usual },
            Passage { is_lost: true, ..usual },
            Passage { delay: ms(10), is_twice: true, ..usual },
            Passage { delay: ms(5), ..usual },
            usual,
        ];
        let (path, weather, now) = (Path::default(), Fixed(passages, Cell::new(0)), Instant::now());
        let transmit = Transmit {
            destination: "192.0.2.1:1".parse().expect("is an address"),
            ecn: None,
            size: 9,
            segment_size: Some(2),
            src_ip: None,
        };
        path.send(&transmit, b"aabbccdde");
        path.decide(&weather, now);
        let mut passed = Vec::new();
        for after in [0, 9, 10, 20] {
            while let Some(Step::Send(transmit, bytes)) = path.next(now + ms(after)) {
                assert_eq!((transmit.size, transmit.segment_size), (bytes.len(), None));
                passed.push((after, String::from_utf8(bytes).expect("is text")));
            }
        }
        let expected = [(10, "cc"), (10, "cc"), (10, "dd"), (10, "e"), (20, "aa")];
        assert_eq!(passed, expected.map(|(after, text)| (after, text.to_owned())));
        assert_eq!((path.held_bytes.get(), path.due()), (0, None));
    }
}
