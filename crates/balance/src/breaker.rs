//! The circuit breaker of a server: closed, open, half open (Nygard, "Release It!", 2007). One atomic word for all
//! workers.
//!
//! It limits the damage of a broken server, independently of the others; `eject` compares servers. An open circuit
//! closes after a few test requests, never after a burst.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::time::{Time, micros};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures in a row that open the circuit; at least 1.
    pub failures: u32,
    /// How long the circuit stays open the first time. Doubles with each failed probe.
    pub open: Duration,
    pub open_max: Duration,
    /// Probe requests at a time while half open; at least 1.
    pub probes: u8,
    /// Successful responses that close the circuit; at least 1.
    pub successes: u8,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 10,
            open: Duration::from_secs(1),
            open_max: Duration::from_secs(30),
            probes: 1,
            successes: 2,
        }
    }
}

/// The requests that a circuit lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// All requests.
    Closed,
    /// A probe request, now.
    Probe,
    /// No request until this time.
    Open(Time),
}

/// The way in which a request passed a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// Through a closed circuit.
    Whole,
    /// As a probe, in one of the limited slots for probes.
    Probe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerTurn {
    Opened(Time),
    Closed,
}

/// A circuit in one atomic word; 0 means closed, without failures.
#[derive(Debug, Default)]
pub struct Breaker(AtomicU64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Circuit {
    Closed {
        failures: u32,
    },
    Open {
        /// How many times the circuit has opened without closing; at most `OPENINGS_MAX`.
        openings: u8,
        until_millis: u64,
    },
    HalfOpen {
        openings: u8,
        /// Probes in progress, as far as known.
        probes: u8,
        successes: u8,
        /// When the last probe began: a probe that never ends must not keep the circuit open.
        since_millis: u64,
    },
}

/// The number of openings after which the open time no longer grows.
const OPENINGS_MAX: u8 = 31;

impl Breaker {
    #[inline]
    pub fn flow(&self, settings: &BreakerSettings, now: Time) -> Flow {
        // The steady state is the word 0, which costs a load and no decoding.
        let word = self.0.load(Relaxed);
        if word == 0 { Flow::Closed } else { Circuit::unpack(word).flow(settings, now) }
    }

    /// Whether the circuit is half open, even if all slots for probes are taken.
    pub(crate) fn is_half_open(&self) -> bool {
        matches!(Circuit::unpack(self.0.load(Relaxed)), Circuit::HalfOpen { .. })
    }

    /// Lets a request pass, if possible. The caller must report its end; otherwise a probe's slot becomes free only
    /// after the open time.
    #[inline]
    pub fn admit(&self, settings: &BreakerSettings, now: Time) -> Option<Passage> {
        if self.0.load(Relaxed) == 0 {
            return Some(Passage::Whole);
        }
        let next = |word| Circuit::unpack(word).admitted(settings, now).map(Circuit::pack);
        // Whichever worker changes the word takes the slot; the others see it taken.
        let before = self.0.fetch_update(Relaxed, Relaxed, next).ok()?;
        match Circuit::unpack(before) {
            Circuit::Closed { .. } => Some(Passage::Whole),
            Circuit::Open { .. } | Circuit::HalfOpen { .. } => Some(Passage::Probe),
        }
    }

    #[inline]
    pub fn succeeded(&self, settings: &BreakerSettings, passage: Passage) -> Option<BreakerTurn> {
        if self.0.load(Relaxed) == 0 {
            return None;
        }
        self.turn(passage, |circuit| circuit.succeeded(settings))
    }

    pub fn failed(&self, settings: &BreakerSettings, passage: Passage, now: Time) -> Option<BreakerTurn> {
        self.turn(passage, |circuit| circuit.failed(settings, now))
    }

    /// Reports a request whose end says nothing about the server.
    pub fn abandoned(&self, passage: Passage) {
        if self.0.load(Relaxed) != 0 {
            self.turn(passage, Circuit::abandoned);
        }
    }

    fn turn(&self, passage: Passage, step: impl Fn(Circuit) -> Circuit) -> Option<BreakerTurn> {
        let step = |circuit| match (circuit, passage) {
            // Sent before the circuit opened: it is no news, and occupies no probe slot.
            (Circuit::HalfOpen { .. }, Passage::Whole) => circuit,
            _ => step(circuit),
        };
        let next = |word| Some(step(Circuit::unpack(word)).pack());
        let before = self.0.fetch_update(Relaxed, Relaxed, next).map(Circuit::unpack).ok()?;
        match (before, step(before)) {
            (Circuit::Open { .. }, Circuit::Open { .. }) => None,
            (_, Circuit::Open { until_millis, .. }) => {
                Some(BreakerTurn::Opened(Time::from_millis(until_millis)))
            }
            (Circuit::Closed { .. }, Circuit::Closed { .. }) => None,
            (_, Circuit::Closed { .. }) => Some(BreakerTurn::Closed),
            (_, Circuit::HalfOpen { .. }) => None,
        }
    }
}

impl Circuit {
    fn flow(self, settings: &BreakerSettings, now: Time) -> Flow {
        match self {
            Circuit::Closed { .. } => Flow::Closed,
            Circuit::Open { until_millis, .. } if now.as_millis() < until_millis => {
                Flow::Open(Time::from_millis(until_millis))
            }
            Circuit::Open { .. } => Flow::Probe,
            Circuit::HalfOpen { openings, probes, since_millis, .. } => {
                let forgotten = since_millis + open_millis(settings, openings);
                // A worker may never report the end of its probe. After the open time its slot is given away.
                if probes < settings.probes.max(1) || now.as_millis() >= forgotten {
                    Flow::Probe
                } else {
                    Flow::Open(Time::from_millis(forgotten))
                }
            }
        }
    }

    fn admitted(self, settings: &BreakerSettings, now: Time) -> Option<Self> {
        let since_millis = now.as_millis();
        match (self.flow(settings, now), self) {
            (Flow::Closed, closed) => Some(closed),
            (Flow::Open(_), _) => None,
            (Flow::Probe, Circuit::HalfOpen { openings, probes, successes, .. })
                if probes < settings.probes.max(1) =>
            {
                Some(Circuit::HalfOpen { openings, probes: probes + 1, successes, since_millis })
            }
            // Slots of forgotten probes are free again, so counting starts at one.
            (Flow::Probe, Circuit::HalfOpen { openings, successes, .. }) => {
                Some(Circuit::HalfOpen { openings, probes: 1, successes, since_millis })
            }
            (Flow::Probe, Circuit::Open { openings, .. }) => {
                Some(Circuit::HalfOpen { openings, probes: 1, successes: 0, since_millis })
            }
            (Flow::Probe, closed @ Circuit::Closed { .. }) => Some(closed),
        }
    }

    fn succeeded(self, settings: &BreakerSettings) -> Self {
        match self {
            Circuit::Closed { .. } => Circuit::Closed { failures: 0 },
            // Sent before it opened: too late to count.
            Circuit::Open { .. } => self,
            Circuit::HalfOpen { openings, probes, successes, since_millis } => {
                // More than one success, because a server that is starting may answer once and fail under load.
                if successes + 1 >= settings.successes.max(1) {
                    return Circuit::Closed { failures: 0 };
                }
                let (probes, successes) = (probes.saturating_sub(1), successes + 1);
                Circuit::HalfOpen { openings, probes, successes, since_millis }
            }
        }
    }

    fn failed(self, settings: &BreakerSettings, now: Time) -> Self {
        match self {
            // Failures in a row: any success sets the count to zero.
            Circuit::Closed { failures } if failures + 1 < settings.failures => {
                Circuit::Closed { failures: failures + 1 }
            }
            Circuit::Closed { .. } => Self::opened(settings, 0, now),
            Circuit::Open { .. } => self,
            // A single failed probe suffices, whatever others in progress find.
            Circuit::HalfOpen { openings, .. } => Self::opened(settings, openings, now),
        }
    }

    fn abandoned(self) -> Self {
        match self {
            Circuit::HalfOpen { openings, probes, successes, since_millis } => {
                Circuit::HalfOpen { openings, probes: probes.saturating_sub(1), successes, since_millis }
            }
            other => other,
        }
    }

    fn opened(settings: &BreakerSettings, openings: u8, now: Time) -> Self {
        let openings = (openings + 1).min(OPENINGS_MAX);
        Circuit::Open { openings, until_millis: now.as_millis() + open_millis(settings, openings) }
    }

    // The word: two bits for the state, six for the openings, then the rest.
    fn pack(self) -> u64 {
        match self {
            Circuit::Closed { failures } => u64::from(failures),
            Circuit::Open { openings, until_millis } => {
                1 << 62 | u64::from(openings) << 56 | until_millis.min(MILLIS_MAX)
            }
            Circuit::HalfOpen { openings, probes, successes, since_millis } => {
                let counts = u64::from(probes) << 48 | u64::from(successes) << 40;
                2 << 62 | u64::from(openings) << 56 | counts | since_millis.min(MILLIS_MAX)
            }
        }
    }

    fn unpack(word: u64) -> Self {
        let openings = (word >> 56) as u8 & 0x3f;
        match word >> 62 {
            0 => Circuit::Closed { failures: word as u32 },
            1 => Circuit::Open { openings, until_millis: word & MILLIS_MAX },
            _ => Circuit::HalfOpen {
                openings,
                probes: (word >> 48) as u8,
                successes: (word >> 40) as u8,
                since_millis: word & MILLIS_MAX,
            },
        }
    }
}

/// 34 years of milliseconds.
const MILLIS_MAX: u64 = (1 << 40) - 1;

/// The open time after this many openings.
fn open_millis(settings: &BreakerSettings, openings: u8) -> u64 {
    let doublings = u32::from(openings.saturating_sub(1).min(OPENINGS_MAX));
    let open = settings.open.saturating_mul(1 << doublings);
    // At least a millisecond: an open time of nothing would never be seen as open.
    (micros(open.min(settings.open_max.max(settings.open))) / 1000).clamp(1, MILLIS_MAX)
}

#[cfg(test)]
mod tests {
    use super::Passage::{Probe, Whole};
    use super::*;
    use proptest::prelude::*;

    const SETTINGS: BreakerSettings = BreakerSettings {
        failures: 3,
        open: Duration::from_secs(1),
        open_max: Duration::from_secs(3),
        probes: 1,
        successes: 2,
    };

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn opened_at(millis: u64) -> Breaker {
        let breaker = Breaker::default();
        assert_eq!(breaker.failed(&SETTINGS, Whole, at(millis)), None);
        assert_eq!(breaker.failed(&SETTINGS, Whole, at(millis)), None);
        assert_eq!(
            breaker.failed(&SETTINGS, Whole, at(millis)),
            Some(BreakerTurn::Opened(at(millis + 1000)))
        );
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it() {
        let breaker = Breaker::default();
        for _ in 0..10 {
            assert_eq!(breaker.failed(&SETTINGS, Whole, at(0)), None);
            assert_eq!(breaker.failed(&SETTINGS, Whole, at(0)), None);
            assert_eq!(breaker.succeeded(&SETTINGS, Whole), None, "an answer ends the row");
        }
        let breaker = opened_at(5);
        assert_eq!(breaker.admit(&SETTINGS, at(5)), None);
        assert_eq!(breaker.flow(&SETTINGS, at(1004)), Flow::Open(at(1005)));
        assert_eq!(breaker.failed(&SETTINGS, Whole, at(900)), None, "one that was under way changes nothing");
        assert_eq!(breaker.succeeded(&SETTINGS, Whole), None, "nor does an answer that comes late");
        assert_eq!(breaker.flow(&SETTINGS, at(1005)), Flow::Probe);
    }

    #[test]
    fn probes_one_at_a_time_close_it() {
        let breaker = opened_at(0);
        assert_eq!(breaker.admit(&SETTINGS, at(1000)), Some(Probe));
        assert_eq!(breaker.admit(&SETTINGS, at(1000)), None, "one probe at a time");
        assert_eq!(breaker.succeeded(&SETTINGS, Probe), None);
        assert_eq!(breaker.admit(&SETTINGS, at(1001)), Some(Probe));
        assert_eq!(breaker.succeeded(&SETTINGS, Probe), Some(BreakerTurn::Closed));
        assert_eq!(breaker.flow(&SETTINGS, at(1001)), Flow::Closed);
    }

    #[test]
    fn a_failed_probe_opens_it_for_longer_up_to_a_limit() {
        let breaker = opened_at(0);
        let mut now = 1000;
        for open in [2000, 3000, 3000] {
            assert_eq!(breaker.admit(&SETTINGS, at(now)), Some(Probe));
            assert_eq!(breaker.failed(&SETTINGS, Probe, at(now)), Some(BreakerTurn::Opened(at(now + open))));
            now += open;
        }
    }

    #[test]
    fn a_probe_without_a_result_frees_its_slot() {
        let breaker = opened_at(0);
        assert_eq!(breaker.admit(&SETTINGS, at(1000)), Some(Probe));
        breaker.abandoned(Probe);
        assert_eq!(breaker.admit(&SETTINGS, at(1000)), Some(Probe));
        assert_eq!(breaker.flow(&SETTINGS, at(1500)), Flow::Open(at(2000)));
        assert_eq!(breaker.admit(&SETTINGS, at(2000)), Some(Probe), "nor may one that never ends keep it");
        assert_eq!(breaker.admit(&SETTINGS, at(2000)), None);
    }

    #[test]
    fn requests_from_before_the_opening_are_no_probes() {
        let breaker = opened_at(0);
        assert_eq!(breaker.admit(&SETTINGS, at(1000)), Some(Probe));
        for _ in 0..3 {
            assert_eq!(breaker.succeeded(&SETTINGS, Whole), None);
            assert_eq!(breaker.failed(&SETTINGS, Whole, at(1001)), None);
            breaker.abandoned(Whole);
        }
        assert_eq!(breaker.admit(&SETTINGS, at(1001)), None, "the place is the probe's still");
        assert_eq!(breaker.succeeded(&SETTINGS, Probe), None);
        assert_eq!(breaker.admit(&SETTINGS, at(1001)), Some(Probe));
        assert_eq!(breaker.succeeded(&SETTINGS, Probe), Some(BreakerTurn::Closed));
    }

    proptest! {
        #[test]
        fn words_hold_circuits(
            openings in 0..=OPENINGS_MAX, probes: u8, successes: u8, millis in 0..=MILLIS_MAX, failures: u32,
        ) {
            for circuit in [
                Circuit::Closed { failures },
                Circuit::Open { openings, until_millis: millis },
                Circuit::HalfOpen { openings, probes, successes, since_millis: millis },
            ] {
                prop_assert_eq!(Circuit::unpack(circuit.pack()), circuit);
            }
        }
    }
}
