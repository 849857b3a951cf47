//! An emulated network path for datagrams: some are lost, late or duplicated. Costs nothing while no path is emulated.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use quinn_proto::Transmit;

use crate::quic_endpoint::Datagram;

/// Bytes in transit. Datagrams beyond that are lost.
// As on a real link, whose queue is limited, too.
const BYTES_MAX: usize = 16 << 20;

/// The fate of a datagram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passage {
    pub is_lost: bool,
    /// Whether the datagram arrives twice.
    pub is_twice: bool,
    /// The delay of this datagram and of all behind it.
    pub delay: Duration,
    /// An additional delay of this datagram only.
    pub alone: Duration,
}

/// Decides about datagrams.
pub trait Weather {
    /// Whether any datagram may be lost, late or duplicated.
    fn is_bad(&self) -> bool;
    fn passage(&self, client: IpAddr, bytes: usize, way: DatagramWay) -> Passage;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramWay {
    Up {
        /// Whether a connection begins with the datagram.
        begins: bool,
    },
    Down,
}

/// Datagrams on an emulated path.
#[derive(Default)]
pub(crate) struct Path {
    /// Whether datagrams use the path now.
    is_on: Cell<bool>,
    /// Outgoing datagrams that are not decided about yet.
    outgoing: RefCell<Vec<(Transmit, Vec<u8>)>>,
    late: RefCell<BinaryHeap<Reverse<Late>>>,
    /// Due time of the last datagram in order, from clients and to them.
    last: [Cell<Option<Instant>>; 2],
    held_bytes: Cell<usize>,
    count: Cell<u64>,
}

/// A delayed datagram.
struct Late {
    due: Instant,
    /// Keeps the order of datagrams with equal due times.
    number: u64,
    step: DatagramStep,
}

/// The action after a datagram has passed.
pub(crate) enum DatagramStep {
    Receive(Datagram),
    Send(Transmit, Vec<u8>),
}

impl Path {
    /// Updates whether datagrams use the path.
    pub(crate) fn look(&self, weather: &impl Weather) {
        self.is_on.set(weather.is_bad());
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// Takes outgoing datagrams; a transmission may contain several.
    pub(crate) fn send(&self, transmit: &Transmit, bytes: &[u8]) {
        let mut outgoing = self.outgoing.borrow_mut();
        // Split, because each datagram is lost or late separately.
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

    /// Decides about a received datagram.
    pub(crate) fn received(&self, datagram: Datagram, begins: bool, weather: &impl Weather, now: Instant) {
        let passage = weather.passage(datagram.remote.ip(), datagram.bytes.len(), DatagramWay::Up { begins });
        // A duplicate passes with its original, so that it takes part in the order.
        let again = passage.is_twice.then(|| DatagramStep::Receive(datagram.again()));
        self.pass(passage, DatagramStep::Receive(datagram), again, now);
    }

    /// Decides about the outgoing datagrams.
    pub(crate) fn decide(&self, weather: &impl Weather, now: Instant) {
        for (transmit, bytes) in self.outgoing.take() {
            let passage = weather.passage(transmit.destination.ip(), bytes.len(), DatagramWay::Down);
            let again = passage.is_twice.then(|| {
                let again = Transmit { size: bytes.len(), ..copy(&transmit) };
                DatagramStep::Send(again, bytes.clone())
            });
            self.pass(passage, DatagramStep::Send(transmit, bytes), again, now);
        }
    }

    fn pass(&self, passage: Passage, step: DatagramStep, again: Option<DatagramStep>, now: Instant) {
        // Before the order: a lost datagram delays no other.
        if passage.is_lost {
            return;
        }
        let last = &self.last[usize::from(matches!(step, DatagramStep::Send(..)))];
        // A later datagram never overtakes an earlier one, unless a fault delays single ones.
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

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.outgoing.borrow().is_empty() && self.late.borrow().is_empty()
    }

    /// The next datagram that is due.
    pub(crate) fn next(&self, now: Instant) -> Option<DatagramStep> {
        let mut late = self.late.borrow_mut();
        let Reverse(first) = late.peek()?;
        if first.due > now {
            return None;
        }
        let Reverse(Late { step, .. }) = late.pop()?;
        self.held_bytes.set(self.held_bytes.get() - step.len());
        Some(step)
    }

    /// When the next datagram is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.late.borrow().peek().map(|Reverse(first)| first.due)
    }
}

fn copy(transmit: &Transmit) -> Transmit {
    let Transmit { destination, ecn, size, segment_size, src_ip } = *transmit;
    Transmit { destination, ecn, size, segment_size, src_ip }
}

impl DatagramStep {
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

        fn passage(&self, _: IpAddr, _: usize, _: DatagramWay) -> Passage {
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

        /// Advances the time to this millisecond.
        fn at(&self, ms: u64) -> Instant {
            self.2.set(ms * 1_000_000);
            self.1 + Duration::from_millis(ms)
        }
    }

    impl Weather for Narrow {
        fn is_bad(&self) -> bool {
            true
        }

        fn passage(&self, _: IpAddr, bytes: usize, _: DatagramWay) -> Passage {
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
            while let Some(DatagramStep::Send(_, bytes)) = path.next(now) {
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
            while let Some(DatagramStep::Send(transmit, bytes)) = path.next(now + ms(after)) {
                assert_eq!((transmit.size, transmit.segment_size), (bytes.len(), None));
                passed.push((after, String::from_utf8(bytes).expect("is text")));
            }
        }
        let expected = [(10, "cc"), (10, "cc"), (10, "dd"), (10, "e"), (20, "aa")];
        assert_eq!(passed, expected.map(|(after, text)| (after, text.to_owned())));
        assert_eq!((path.held_bytes.get(), path.due()), (0, None));
    }
}
