//! Sampling of the access log.

use config::RouteLog;
use shape::Millionths;
use telemetry::WHOLE;

/// The requests of a route that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logged {
    All,
    Off,
    /// A sample, and all failed requests.
    Sample {
        millionths: u32,
        /// The number of requests that a line represents, in hundredths.
        weight: u32,
    },
}

impl Logged {
    pub(crate) fn new(settings: Option<&RouteLog>) -> Self {
        match settings {
            None | Some(RouteLog::All) => Self::All,
            Some(RouteLog::Off) => Self::Off,
            // The condition is evaluated before: see `PlanRoute::log_when`.
            Some(RouteLog::When(_, Millionths::WHOLE)) => Self::All,
            Some(RouteLog::Share(share) | RouteLog::When(_, share)) => {
                let millionths = share.millionths();
                // With share 0, only failed requests are logged, each representing itself.
                let weight = (u64::from(WHOLE) * 1_000_000).checked_div(millionths.into());
                Self::Sample { millionths, weight: weight.map_or(WHOLE, |weight| weight as u32) }
            }
        }
    }

    /// Returns how many requests the log line represents, in hundredths; `None` if the request is not logged.
    pub(crate) fn weight(self, has_failed: bool, random: impl FnOnce() -> u32) -> Option<u32> {
        match self {
            Self::All => Some(WHOLE),
            Self::Off => None,
            // All failures are logged, so each line stands for itself.
            Self::Sample { .. } if has_failed => Some(WHOLE),
            Self::Sample { millionths, weight } => (random() % 1_000_000 < millionths).then_some(weight),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_sample_stands_for_those_without_one() {
        let sample =
            |millionths| Logged::new(Some(&RouteLog::Share(Millionths::of_millionths(millionths).unwrap())));
        for (logged, has_failed, drawn, weight) in [
            (Logged::new(None), false, 999_999, Some(100)),
            (Logged::new(Some(&RouteLog::Off)), true, 0, None),
            (sample(10_000), false, 9_999, Some(10_000)),
            (sample(10_000), false, 10_000, None),
            (sample(10_000), true, 10_000, Some(100)),
            (sample(300_000), false, 0, Some(333)),
            (sample(1_000_000), false, 999_999, Some(100)),
            (sample(0), false, 0, None),
            (sample(0), true, 0, Some(100)),
        ] {
            assert_eq!(logged.weight(has_failed, || drawn), weight, "{logged:?} {drawn}");
        }
    }
}
