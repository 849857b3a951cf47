//! The highest rate that meets a bound: bracketed by doubling and halving, then bisected. Not the measuring of it.

/// The rates that meet the bound and those that don't come this close together.
const CLOSE: f64 = 1.05;
/// More steps than this find nothing: the bound is met by chance.
const STEPS_MOST: usize = 16;
/// Below this a proxy does not work.
const RATE_LEAST: f64 = 1.0;

/// A search under way, in requests per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    met: Option<f64>,
    missed: Option<f64>,
    first: f64,
    steps: usize,
}

impl Search {
    /// Begins at this rate.
    pub(super) fn from(first: f64) -> Self {
        Self { met: None, missed: None, first: first.max(RATE_LEAST), steps: 0 }
    }

    /// The rate to try next; `None` once it is known.
    pub(super) fn next(&self) -> Option<f64> {
        if self.steps == STEPS_MOST {
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

    /// Whether the rate that was tried met the bound.
    pub(super) fn tell(&mut self, rate: f64, is_met: bool) {
        self.steps += 1;
        if is_met {
            self.met = Some(self.met.map_or(rate, |met| met.max(rate)));
        } else {
            self.missed = Some(self.missed.map_or(rate, |missed| missed.min(rate)));
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
            search.tell(rate, rate <= capacity);
        }
        (search.met, search.steps)
    }

    #[test]
    fn any_capacity_is_found_from_any_start() {
        for first in [1.0, 1_000.0, 70_000.0] {
            for capacity in [3.0, 990.0, 12_345.0, 60_000.0] {
                let (found, steps) = search(first, capacity);
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
    fn a_proxy_that_never_meets_the_bound_is_not_asked_for_ever() {
        assert_eq!(search(1_000.0, 0.0).0, None);
        assert!(search(1_000.0, f64::INFINITY).1 <= STEPS_MOST);
    }
}
