//! The highest rate that meets a bound: bracketed by doubling and halving, then bisected. Not the measuring of it.

use std::ops::RangeInclusive;

use report::summary::SEARCH_CLOSE as CLOSE;

/// Steps of a search that nothing breaks off: two to bracket a rate, and four halve what lies between them until it is
/// close. More than so many find nothing: the bound is met by chance.
pub(super) const STEPS: RangeInclusive<usize> = 6..=STEPS_MOST;
const STEPS_MOST: usize = 16;
/// Below this a proxy does not work.
const RATE_LEAST: f64 = 1.0;

/// Of those, so many say nothing at most: a machine that is this busy finds no rate.
const SPOILED_MOST: usize = 4;

/// What came of a step.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tried {
    /// The rate met the bound.
    Met(f64),
    /// It did not.
    Missed(f64),
    /// The generator could not do its part: nothing is known.
    Spoiled,
}

/// A search under way, in requests per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    met: Option<f64>,
    missed: Option<f64>,
    first: f64,
    steps: usize,
    spoiled: usize,
}

impl Search {
    /// Begins at this rate.
    pub(super) fn from(first: f64) -> Self {
        Self { met: None, missed: None, first: first.max(RATE_LEAST), steps: 0, spoiled: 0 }
    }

    /// The rate to try next; `None` once it is known.
    pub(super) fn next(&self) -> Option<f64> {
        if self.steps == STEPS_MOST || self.spoiled == SPOILED_MOST {
            return None;
        }
        match (self.met, self.missed) {
            (None, None) => Some(self.first),
            (Some(met), None) => Some(met * 2.0),
            (None, Some(missed)) if missed <= RATE_LEAST => None,
            (None, Some(missed)) => Some((missed / 2.0).max(RATE_LEAST)),
            (Some(met), Some(missed)) if missed <= met * CLOSE => None,
            // Rates differ by ratios: the middle is the geometric one.
            (Some(met), Some(missed)) => Some((met * missed).sqrt()),
        }
    }

    /// What came of the rate that was tried; one that was spoiled is tried again.
    pub(super) fn tell(&mut self, tried: Tried) {
        self.steps += 1;
        match tried {
            Tried::Met(rate) => self.met = Some(self.met.map_or(rate, |met| met.max(rate))),
            Tried::Missed(rate) => self.missed = Some(self.missed.map_or(rate, |missed| missed.min(rate))),
            Tried::Spoiled => self.spoiled += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a proxy of that capacity is found to have, and in how many steps.
    fn search(first: f64, capacity: f64) -> (Option<f64>, usize) {
        let mut search = Search::from(first);
        while let Some(rate) = search.next() {
            search.tell(if rate <= capacity { Tried::Met(rate) } else { Tried::Missed(rate) });
        }
        (search.met, search.steps)
    }

    #[test]
    fn any_capacity_is_found_from_any_start() {
        for first in [1.0, 1_000.0, 70_000.0] {
            for capacity in [3.0, 990.0, 12_345.0, 60_000.0] {
                let (found, steps) = search(first, capacity);
                assert!(STEPS.contains(&steps), "{first} {capacity}: {steps} steps");
                if let Some(found) = found {
                    assert!(found <= capacity, "{first} {capacity}: {found}");
                    assert!(steps == STEPS_MOST || found * CLOSE >= capacity, "{first} {capacity}: {found}");
                }
            }
        }
        let (found, steps) = search(20_000.0, 31_000.0);
        assert!(found.is_some_and(|rate| rate > 29_500.0) && steps <= 7, "{found:?} in {steps}");
    }

    #[test]
    fn a_step_that_the_generator_spoiled_is_taken_again_but_not_for_ever() {
        let mut search = Search::from(1_000.0);
        search.tell(Tried::Met(1_000.0));
        let asked = search.next();
        search.tell(Tried::Spoiled);
        assert_eq!((search.next(), search.met), (asked, Some(1_000.0)));
        while search.next().is_some() {
            search.tell(Tried::Spoiled);
        }
        assert_eq!((search.spoiled, search.met, search.missed), (SPOILED_MOST, Some(1_000.0), None));
    }

    #[test]
    fn a_proxy_that_never_meets_the_bound_is_not_asked_for_ever() {
        assert_eq!(search(1_000.0, 0.0).0, None);
        assert!(search(1_000.0, f64::INFINITY).1 <= STEPS_MOST);
    }
}
