//! When faults happen: probability, share of clients, schedule. Seed, rule and number always give the same decision.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::draw::{Draws, number_of};

/// A share in millionths, so that percentages in the configuration are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millionths(u32);

impl Millionths {
    pub const WHOLE: Self = Self(1_000_000);

    /// Returns `None` above 100 percent.
    pub fn of_millionths(millionths: u32) -> Option<Self> {
        (millionths <= Self::WHOLE.0).then_some(Self(millionths))
    }

    pub fn millionths(self) -> u32 {
        self.0
    }

    fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE.0)
    }
}

/// When a fault happens to matching requests or connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occasion {
    pub probability: Millionths,
    /// Only every n-th candidate counts: 3 means the third, the sixth and so on.
    pub every: NonZeroU32,
    /// The share of clients that are affected; always the same clients.
    pub clients: Millionths,
    /// Counted from when the rule took effect.
    pub from: Duration,
    /// Counted from when the rule took effect.
    pub until: Option<Duration>,
    /// Period after which the schedule repeats.
    pub repeat: Option<Duration>,
    /// Time after which the fault ends for good.
    pub expires: Option<Duration>,
}

impl Default for Occasion {
    fn default() -> Self {
        Self {
            probability: Millionths::WHOLE,
            every: NonZeroU32::MIN,
            clients: Millionths::WHOLE,
            from: Duration::ZERO,
            until: None,
            repeat: None,
            expires: None,
        }
    }
}

/// The source of a rule's random decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dice {
    seed: u64,
    rule: u64,
}

/// The decision that a draw is for. Separate draws make the decisions independent.
const HAPPENS: u64 = 1;
const CLIENT: u64 = 2;
const EXTENT: u64 = 3;

impl Dice {
    pub fn new(seed: u64, rule: &str) -> Self {
        Self { seed, rule: number_of(rule.as_bytes()) }
    }

    pub fn seed(self) -> u64 {
        self.seed
    }

    /// Returns 64 random bits for the extent of the fault's `number`th occurrence.
    pub fn extent(self, number: u64) -> u64 {
        self.draws(EXTENT, number).next_u64()
    }

    fn draws(self, question: u64, number: u64) -> Draws {
        Draws::new(self.seed, &[self.rule, question, number])
    }
}

impl Occasion {
    /// Whether the fault is active `age` after its rule took effect.
    pub fn is_on(&self, age: Duration) -> bool {
        if self.expires.is_some_and(|expires| age >= expires) {
            return false;
        }
        let age = match self.repeat.map(|repeat| repeat.as_nanos()) {
            // u64 nanoseconds hold centuries.
            Some(repeat_ns) if repeat_ns > 0 => Duration::from_nanos((age.as_nanos() % repeat_ns) as u64),
            _ => age,
        };
        age >= self.from && self.until.is_none_or(|until| age < until)
    }

    /// Time until the fault may begin or end, `age` after its rule took effect; `None` if that never happens again.
    pub fn changes_in(&self, age: Duration) -> Option<Duration> {
        if self.expires.is_some_and(|expires| age >= expires) {
            return None;
        }
        let repeat = self.repeat.filter(|repeat| !repeat.is_zero());
        // u64 nanoseconds hold centuries.
        let nanos = |time: Duration| time.as_nanos() as u64;
        let phase = repeat.map_or(age, |repeat| Duration::from_nanos(nanos(age) % nanos(repeat)));
        // A fault that is always active does not change at the ends of rounds.
        let is_timed = !self.from.is_zero() || self.until.is_some();
        let of_round = [Some(self.from), self.until, repeat.filter(|_| is_timed)].into_iter().flatten();
        let to_come = of_round.filter(|time| *time > phase).map(|time| time - phase);
        to_come.chain(self.expires.map(|expires| expires - age)).min()
    }

    /// Whether the fault applies to this client; any bytes may identify it.
    pub fn is_for(&self, dice: Dice, client: &[u8]) -> bool {
        self.clients == Millionths::WHOLE
            || dice.draws(CLIENT, number_of(client)).happens(self.clients.as_f64())
    }

    /// Whether the fault happens to the `number`th candidate.
    pub fn happens(&self, dice: Dice, number: u64) -> bool {
        let is_its_turn = number.wrapping_add(1).is_multiple_of(u64::from(self.every.get()));
        if !is_its_turn {
            return false;
        }
        self.probability == Millionths::WHOLE
            || dice.draws(HAPPENS, number).happens(self.probability.as_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(millionths: u32) -> Millionths {
        Millionths::of_millionths(millionths).unwrap()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn every_third_candidate() {
        let third = Occasion { every: NonZeroU32::new(3).unwrap(), ..Occasion::default() };
        let happens = |occasion: &Occasion| {
            (0..9).filter(|number| occasion.happens(Dice::new(1, "a"), *number)).collect::<Vec<u64>>()
        };
        assert_eq!(happens(&third), [2, 5, 8]);
        assert_eq!(happens(&Occasion { probability: share(0), ..third }), []);
        assert_eq!(happens(&Occasion::default()).len(), 9);
    }

    #[test]
    fn timelines() {
        let from_10_until_15 =
            Occasion { from: 10 * SECOND, until: Some(15 * SECOND), ..Occasion::default() };
        let each_20 = Occasion { repeat: Some(20 * SECOND), ..from_10_until_15.clone() };
        let for_a_minute = Occasion { expires: Some(60 * SECOND), ..each_20.clone() };
        let from_10 = Occasion { from: 10 * SECOND, ..Occasion::default() };
        for (age, expected) in [
            (0, [true, false, false, false, false]),
            (10, [true, true, true, true, true]),
            (14, [true, true, true, true, true]),
            (15, [true, false, false, false, true]),
            (29, [true, false, false, false, true]),
            (30, [true, false, true, true, true]),
            (35, [true, false, false, false, true]),
            (70, [true, false, true, false, true]),
        ] {
            let rules = [&Occasion::default(), &from_10_until_15, &each_20, &for_a_minute, &from_10];
            assert_eq!(rules.map(|rule| rule.is_on(age * SECOND)), expected, "at {age} s");
        }
    }

    #[test]
    fn what_is_looked_at_when_it_may_change_is_never_missed() {
        let times = |from, until: Option<u32>, repeat: Option<u32>, expires: Option<u32>| Occasion {
            from: from * SECOND,
            until: until.map(|until| until * SECOND),
            repeat: repeat.map(|repeat| repeat * SECOND),
            expires: expires.map(|expires| expires * SECOND),
            ..Occasion::default()
        };
        for rule in [
            times(10, Some(15), None, None),
            times(10, Some(15), Some(20), None),
            times(10, Some(15), Some(20), Some(33)),
            times(10, None, Some(20), None),
            times(0, Some(5), Some(5), Some(7)),
            times(3, None, None, None),
        ] {
            let mut looked_at = 0;
            let mut now = SECOND / 2;
            let mut seen = rule.is_on(now);
            for age in (1..400).map(|half| half * SECOND / 2) {
                let looks = rule.changes_in(now).is_some_and(|rest| now + rest <= age);
                if looks {
                    (looked_at, now, seen) = (looked_at + 1, age, rule.is_on(age));
                }
                assert_eq!(seen, rule.is_on(age), "{rule:?} at {age:?}");
            }
            assert!(looked_at <= 32, "{rule:?} is looked at {looked_at} times");
        }
        assert_eq!(Occasion::default().changes_in(SECOND), None);
        assert_eq!(times(0, None, Some(1), None).changes_in(SECOND), None, "it is always on");
        assert_eq!(times(0, None, None, Some(7)).changes_in(7 * SECOND), None, "it is over");
    }

    #[test]
    fn the_same_seed_and_number_decide_alike() {
        let rule = Occasion { probability: share(300_000), ..Occasion::default() };
        let run = |seed, name| {
            let dice = Dice::new(seed, name);
            (0..10_000).map(|number| rule.happens(dice, number)).collect::<Vec<_>>()
        };
        assert_eq!(run(1, "a"), run(1, "a"));
        assert_ne!(run(1, "a"), run(2, "a"));
        assert_ne!(run(1, "a"), run(1, "b"));
        let happened = run(1, "a").iter().filter(|happens| **happens).count();
        assert!((2_800..3_200).contains(&happened), "{happened}");
    }

    #[test]
    fn a_share_of_the_clients_is_always_the_same() {
        let rule = Occasion { clients: share(100_000), ..Occasion::default() };
        let dice = Dice::new(7, "a");
        let chosen = |address: u32| rule.is_for(dice, &address.to_be_bytes());
        let count = (0..10_000).filter(|address| chosen(*address)).count();
        assert!((850..1_150).contains(&count), "{count}");
        assert!((0..10_000).all(|address| chosen(address) == chosen(address)));
    }

    #[test]
    fn never_and_always() {
        let dice = Dice::new(1, "a");
        let never = Occasion { probability: share(0), clients: share(0), ..Occasion::default() };
        for number in 0..1000 {
            assert!(Occasion::default().happens(dice, number) && !never.happens(dice, number));
            assert!(!never.is_for(dice, &number.to_be_bytes()));
        }
        assert_eq!(Millionths::of_millionths(1_000_001), None);
    }

    #[test]
    fn extents_stay_what_they_are() {
        // Logs are compared between versions.
        assert_eq!(
            [0, 1].map(|number| Dice::new(1, "a").extent(number)),
            [16_931_423_577_076_343_845, 13_112_128_946_154_809_698]
        );
    }
}
