//! Search for the highest rate that meets a bound: doubling and halving, then bisection. No measuring.

use std::ops::RangeInclusive;

use report::summary::SEARCH_CLOSE as CLOSE;

/// Number of steps of a complete search: two to bracket a rate, then four bisections. At the maximum the search gives
/// up, because the bound is met by chance.
pub(super) const STEPS: RangeInclusive<usize> = 6..=STEPS_MOST;
const STEPS_MOST: usize = 16;
/// Minimum rate: below it, a proxy does not work.
const RATE_LEAST: f64 = 1.0;

/// Maximum number of spoiled steps: on a machine this busy, no rate can be found.
const SPOILED_MOST: usize = 4;

#[derive(Debug, Clone, Copy)]
pub(super) enum Tried {
    Met(f64),
    Missed(f64),
    /// The generator failed to send the load: the step says nothing.
    Spoiled,
}

/// Rates in requests per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateSearch {
    met: Option<f64>,
    missed: Option<f64>,
    first: f64,
    steps: usize,
    spoiled: usize,
}

impl RateSearch {
    /// Begins a search at this rate.
    pub(super) fn from(first: f64) -> Self {
        Self { met: None, missed: None, first: first.max(RATE_LEAST), steps: 0, spoiled: 0 }
    }

    /// The rate to try next; `None` when the search is over.
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
            // Rates differ by ratios, so the geometric mean is the middle.
            (Some(met), Some(missed)) => Some((met * missed).sqrt()),
        }
    }

    /// Records the result of a step. A spoiled step is repeated.
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

    /// Returns the rate that a search finds for a proxy of this capacity, and the number of steps.
    fn search(first: f64, capacity: f64) -> (Option<f64>, usize) {
        let mut search = RateSearch::from(first);
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
        let mut search = RateSearch::from(1_000.0);
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
