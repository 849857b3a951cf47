//! Stages of a schedule: rates that are constant or change linearly, and the due times of their requests. No clock.

use std::time::Duration;

use crate::plan::RateStage;

/// Due time beyond the last stage: the window is over long before.
const NEVER: Duration = Duration::from_secs(10 * 366 * 86_400);

/// Due times of the requests of all threads: the inverse of the number of requests over time.
#[derive(Debug)]
pub(crate) struct Profile {
    parts: Vec<StagePart>,
}

#[derive(Debug, Clone, Copy)]
struct StagePart {
    starts_seconds: f64,
    /// Requests that were due before.
    starts_count: f64,
    stage: RateStage,
}

impl StagePart {
    fn count(&self) -> f64 {
        self.stage.seconds * (self.stage.from_per_second + self.stage.to_per_second) / 2.0
    }
}

impl Profile {
    /// The stages, after a warm-up at the initial rate of the first one.
    pub(crate) fn new(stages: &[RateStage], warm_up_seconds: f64) -> Self {
        let first = stages.first().map_or(0.0, |stage| stage.from_per_second);
        let warm_up = RateStage { seconds: warm_up_seconds, from_per_second: first, to_per_second: first };
        let (mut starts_seconds, mut starts_count) = (0.0, 0.0);
        let warm_up = [warm_up];
        let all = warm_up.iter().chain(stages).filter(|stage| stage.seconds > 0.0);
        let parts = all.map(|stage| {
            let part = StagePart { starts_seconds, starts_count, stage: *stage };
            starts_seconds += stage.seconds;
            starts_count += part.count();
            part
        });
        Self { parts: parts.collect() }
    }

    /// The due time of the request with this position, over all threads.
    pub(crate) fn due(&self, count: f64) -> Duration {
        // The last part that has begun by then. A part without requests ends where it starts, and is skipped.
        let after = self.parts.partition_point(|part| part.starts_count <= count);
        let Some(part) = after.checked_sub(1).and_then(|at| self.parts.get(at)) else { return NEVER };
        let within = count - part.starts_count;
        if within >= part.count() {
            return NEVER;
        }
        Duration::from_secs_f64(part.starts_seconds + part.stage.seconds_until(within))
    }
}

impl RateStage {
    /// Time from the start of the stage until this many of its requests are due.
    fn seconds_until(&self, count: f64) -> f64 {
        if count <= 0.0 {
            return 0.0;
        }
        // count = from t + slope t^2 / 2, solved for t in a form that is exact for a slope of 0.
        let slope = (self.to_per_second - self.from_per_second) / self.seconds;
        let root = (self.from_per_second.powi(2) + 2.0 * slope * count).max(0.0).sqrt();
        (2.0 * count / (self.from_per_second + root)).min(self.seconds)
    }
}

/// Index of the stage at this time after the start of the window.
pub(crate) fn at(stages: &[RateStage], after: Duration) -> usize {
    let mut end_seconds = 0.0;
    let ended = stages.iter().take_while(|stage| {
        end_seconds += stage.seconds;
        end_seconds <= after.as_secs_f64()
    });
    ended.count().min(stages.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stage(seconds: f64, from_per_second: f64, to_per_second: f64) -> RateStage {
        RateStage { seconds, from_per_second, to_per_second }
    }

    fn dues_ms(stages: &[RateStage], warm_up_seconds: f64, counts: &[f64]) -> Vec<u128> {
        let profile = Profile::new(stages, warm_up_seconds);
        counts.iter().map(|count| profile.due(*count).as_micros().div_ceil(1_000)).collect()
    }

    #[test]
    fn rates_hold_and_ramp() {
        let never = NEVER.as_millis();
        // 10/s for a second, then from 10/s to 30/s within a second: 20 more.
        let stages = [stage(1.0, 10.0, 10.0), stage(1.0, 10.0, 30.0)];
        assert_eq!(
            dues_ms(&stages, 0.0, &[0.0, 1.0, 9.0, 10.0, 20.0, 30.0]),
            [0, 100, 900, 1_000, 1_619, never]
        );
        // The warm-up has the rate of the start.
        assert_eq!(dues_ms(&stages, 2.0, &[0.0, 19.0, 20.0, 30.0]), [0, 1_900, 2_000, 3_000]);
        // Up from zero, a pause, and down to zero.
        let stages = [stage(2.0, 0.0, 10.0), stage(1.0, 0.0, 0.0), stage(2.0, 10.0, 0.0)];
        assert_eq!(dues_ms(&stages, 1.0, &[0.0, 2.5, 10.0, 17.5, 20.0]), [1_000, 2_000, 4_000, 5_000, never]);
    }

    #[test]
    fn a_time_is_in_its_stage() {
        let stages = [stage(1.0, 1.0, 1.0), stage(2.0, 1.0, 1.0)];
        let found = [0, 999, 1_000, 2_999, 3_000, 9_000].map(|ms| at(&stages, Duration::from_millis(ms)));
        assert_eq!(found, [0, 0, 1, 1, 1, 1]);
    }

    proptest! {
        #[test]
        fn due_times_ascend_and_are_as_many_as_the_rates_say(
            rates in prop::collection::vec((0.1f64..5.0, 0.0f64..500.0, 0.0f64..500.0), 1..6),
        ) {
            let stages: Vec<RateStage> = rates.iter().map(|&(seconds, from, to)| stage(seconds, from, to)).collect();
            let profile = Profile::new(&stages, 0.0);
            let dues: Vec<Duration> =
                (0..).map(|index| profile.due(f64::from(index))).take_while(|due| *due < NEVER).collect();
            prop_assert!(dues.is_sorted());
            let expected: f64 = stages.iter().map(|stage| stage.seconds * (stage.from_per_second + stage.to_per_second) / 2.0).sum();
            prop_assert!((dues.len() as f64 - expected).abs() <= 1.0, "{} for {expected}", dues.len());
        }
    }
}
