//! Which requests of a route are in the access log.

use config::RouteLog;
use telemetry::WHOLE;

/// Which requests of a route are in the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logged {
    /// All of them.
    All,
    /// None.
    Off,
    /// A share, and all that fail.
    Sample {
        /// How many of a million.
        millionths: u32,
        /// How many requests a line stands for, in hundredths.
        weight: u32,
    },
}

impl Logged {
    pub(crate) fn new(settings: Option<RouteLog>) -> Self {
        match settings {
            None | Some(RouteLog::All) => Self::All,
            Some(RouteLog::Off) => Self::Off,
            Some(RouteLog::Share(share)) => {
                let millionths = share.millionths();
                // Without a share only those are logged that fail, each for itself.
                let weight = (u64::from(WHOLE) * 1_000_000).checked_div(millionths.into());
                Self::Sample { millionths, weight: weight.map_or(WHOLE, |weight| weight as u32) }
            }
        }
    }

    /// How many requests the line of one stands for, in hundredths; `None` if it has none. `random` draws a number.
    pub(crate) fn weight(self, has_failed: bool, random: impl FnOnce() -> u32) -> Option<u32> {
        match self {
            Self::All => Some(WHOLE),
            Self::Off => None,
            Self::Sample { .. } if has_failed => Some(WHOLE),
            Self::Sample { millionths, weight } => (random() % 1_000_000 < millionths).then_some(weight),
        }
    }
}

#[cfg(test)]
mod tests {
    use shape::Share;

    use super::*;

    #[test]
    fn a_line_of_a_sample_stands_for_those_without_one() {
        let sample =
            |millionths| Logged::new(Some(RouteLog::Share(Share::of_millionths(millionths).unwrap())));
        for (logged, has_failed, drawn, weight) in [
            (Logged::new(None), false, 999_999, Some(100)),
            (Logged::new(Some(RouteLog::Off)), true, 0, None),
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
