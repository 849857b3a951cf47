//! Forecast of a run: its minimum duration from the plan, and the remaining time from the measurements so far.
//!
//! The plan does not include the time to start and stop processes; only measured times do.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::Duration;

use report::results::ProxyRole;

use super::search;
use crate::plan::{CasePlan, PlanLoad, Timing};

#[derive(Debug, Clone)]
pub struct Forecast {
    cases: Vec<CaseShare>,
}

/// Number of participants of a case.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Takers {
    proxies: usize,
    /// Whether `direct` takes part too.
    has_direct: bool,
}

impl Takers {
    pub(crate) fn from_roles(roles: impl Iterator<Item = ProxyRole>) -> Self {
        roles.fold(Self::default(), |takers, role| match role {
            ProxyRole::Direct => Self { has_direct: true, ..takers },
            _ => Self { proxies: takers.proxies + 1, ..takers },
        })
    }
}

#[derive(Debug, Clone)]
struct CaseShare {
    /// Average duration of one measurement by the plan.
    planned: Duration,
    /// Measurements per round and proxy: a search has several steps.
    steps: RangeInclusive<usize>,
    is_counted: bool,
    /// Number of times that a proxy has to do the case.
    total: usize,
    /// Number of times that a proxy did the case in an earlier run.
    skipped: usize,
    done: usize,
    /// Total time of the completed measurements.
    took: Duration,
}

impl Forecast {
    pub(crate) fn new<'c>(cases: impl IntoIterator<Item = (&'c CasePlan, Takers)>, timing: Timing) -> Self {
        let share = |(case, takers): (&CasePlan, Takers)| CaseShare {
            planned: planned(case, takers, timing),
            steps: if matches!(case.load, PlanLoad::Search(_)) { search::STEPS } else { 1..=1 },
            is_counted: case.requests.is_some(),
            total: (takers.proxies + usize::from(takers.has_direct)) * timing.rounds,
            skipped: 0,
            done: 0,
            took: Duration::ZERO,
        };
        Self { cases: cases.into_iter().map(share).collect() }
    }

    /// Number of measurements; a search counts as one.
    pub fn measurements(&self) -> usize {
        self.cases.iter().map(|share| share.total).sum()
    }

    /// Number of measurements that an earlier run has already made, in addition to [`Forecast::measurements`].
    pub fn skipped(&self) -> usize {
        self.cases.iter().map(|share| share.skipped).sum()
    }

    /// Number of measurements that end after a number of requests, so they have no planned duration.
    pub fn counted(&self) -> usize {
        self.cases.iter().filter(|share| share.is_counted).map(|share| share.total).sum()
    }

    pub fn least(&self) -> Duration {
        self.by_plan(|share| *share.steps.start())
    }

    /// Minimum duration, if every search takes the maximum number of steps.
    pub fn longest_searches(&self) -> Duration {
        self.by_plan(|share| *share.steps.end())
    }

    fn by_plan(&self, steps: impl Fn(&CaseShare) -> usize) -> Duration {
        self.cases.iter().map(|share| share.planned.mul_f64((steps(share) * share.total) as f64)).sum()
    }

    /// Records how long a proxy took for a case, including starts and stops. `case` is its index in the plan.
    pub(crate) fn took(&mut self, case: usize, time: Duration) {
        let share = &mut self.cases[case];
        share.done += 1;
        share.took += time;
    }

    /// Records that an earlier run has already measured a proxy in this case.
    pub(crate) fn skip(&mut self, case: usize) {
        let share = &mut self.cases[case];
        share.total = share.total.saturating_sub(1);
        share.skipped += 1;
    }

    /// Remaining time: each case takes as long as before; a case not measured yet, as long as planned.
    pub fn left(&self) -> Duration {
        let left = |share: &CaseShare| {
            let each = match share.done {
                0 => share.planned.mul_f64(*share.steps.start() as f64),
                done => share.took.div_f64(done as f64),
            };
            each.mul_f64(share.total.saturating_sub(share.done) as f64)
        };
        self.cases.iter().map(left).sum()
    }
}

/// Minimum duration of a measurement. With a number of requests, the proxies' delay or rate limit bounds it.
fn planned(case: &CasePlan, takers: Takers, timing: Timing) -> Duration {
    let Some(requests) = case.requests else { return timing.warm_up + case.measured(timing) };
    let each = requests.div_ceil(NonZeroUsize::get(case.connections) as u64);
    let late = case.features.delay.unwrap_or_default().mul_f64(each as f64);
    let bytes = case.payload.bytes.filter(|_| case.urls.is_none()).unwrap_or(0).saturating_mul(requests);
    let paced = case.features.rate_bytes_per_second.map_or(0.0, |rate| bytes as f64 / rate.max(1) as f64);
    let all = takers.proxies + usize::from(takers.has_direct);
    late.max(Duration::from_secs_f64(paced)).mul_f64(takers.proxies as f64 / all.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WrittenPlan;

    /// The forecast of a plan with this case, for two proxies.
    fn forecast(case: &str) -> Forecast {
        forecast_for("\"vanward\", \"nginx\"", case)
    }

    fn forecast_for(proxies: &str, case: &str) -> Forecast {
        let text = format!(
            "title = \"t\"\nproxies = [{proxies}]\nrepeats = 3\nduration = \"10s\"\nwarm_up = \"1s\"\n\
             [[case]]\npayload = \"/blank/5000\"\nconnections = 10\n{case}"
        );
        WrittenPlan::read(&text, "f", false).expect("a plan").forecast()
    }

    #[test]
    fn a_run_takes_at_least_what_its_measurements_last() {
        // Number of measurements, minimum seconds, and seconds with the longest searches.
        let cases = [
            ("", 6, 66.0, 66.0),
            ("load = \"p99 < 5ms\"\n", 6, 6.0 * 66.0, 16.0 * 66.0),
            ("load = \"p99 < 5ms\"\nduration = \"2s\"\n", 6, 6.0 * 18.0, 16.0 * 18.0),
            ("requests = 100\n", 6, 0.0, 0.0),
            // Ten connections wait ten times each.
            ("requests = 100\ndelay = \"2s\"\n", 6, 120.0, 120.0),
            ("requests = 100\nrate = \"50KB/s\"\n", 6, 60.0, 60.0),
        ];
        for (case, measurements, least, longest) in cases {
            let forecast = forecast(case);
            assert_eq!(forecast.measurements(), measurements, "{case}");
            assert_eq!(forecast.least().as_secs_f64(), least, "{case}");
            assert_eq!(forecast.longest_searches().as_secs_f64(), longest, "{case}");
            assert_eq!(forecast.counted() > 0, case.contains("requests"), "{case}");
        }
    }

    #[test]
    fn what_no_proxy_holds_up_is_not_held_up() {
        for (case, least) in [
            ("requests = 100\ndelay = \"2s\"\n", 120.0),
            ("requests = 100\nrate = \"50KB/s\"\n", 60.0),
            ("", 99.0),
        ] {
            let forecast = forecast_for("\"direct\", \"vanward\", \"nginx\"", case);
            assert_eq!(
                (forecast.measurements(), forecast.least().as_secs_f64().round()),
                (9, least),
                "{case}"
            );
            let forecast = forecast_for("\"direct\"", case);
            assert_eq!(forecast.measurements(), 3);
        }
    }

    #[test]
    fn what_is_left_follows_what_was_seen() {
        let mut forecast = forecast("");
        assert_eq!(forecast.left(), Duration::from_secs(66));
        forecast.took(0, Duration::from_secs(12));
        assert_eq!(forecast.left(), Duration::from_secs(60));
        for _ in 0..6 {
            forecast.took(0, Duration::from_secs(14));
        }
        assert_eq!(forecast.left(), Duration::ZERO, "one more than planned is no less than nothing");
    }

    #[test]
    fn what_is_there_already_is_not_waited_for() {
        let mut forecast = forecast("");
        forecast.skip(0);
        assert_eq!((forecast.measurements(), forecast.skipped()), (5, 1));
        assert_eq!((forecast.least(), forecast.left()), (Duration::from_secs(55), Duration::from_secs(55)));
    }
}
