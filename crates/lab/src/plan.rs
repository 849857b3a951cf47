//! What a run is to measure, and how long each part of it lasts. Nothing here touches the system.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use report::results::{Role, Scheme};

use crate::proxies::Installed;

/// One run of the lab.
#[derive(Debug, Clone)]
pub struct Plan {
    /// A heading for the report.
    pub title: String,
    /// The command that repeats the run.
    pub command: String,
    /// Our own binary: proxy, origin and load generator.
    pub own: Own,
    /// What is compared, in the order of the tables.
    pub proxies: Vec<Installed>,
    /// What each is asked to do, in the order of the tables.
    pub cases: Vec<CasePlan>,
    /// Client connections.
    pub connections: NonZeroUsize,
    /// Origins behind each proxy.
    pub origins: NonZeroUsize,
    /// Worker threads or processes of each proxy.
    pub workers: NonZeroUsize,
    /// How often and how long.
    pub timing: Timing,
    /// Shuffles the order.
    pub seed: u64,
    /// What a reader of the report has to know, in whole sentences.
    pub notes: Vec<String>,
}

/// Our own binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// Where it is.
    pub program: PathBuf,
    /// As `vanward --version` says it.
    pub version: String,
}

/// What every proxy is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct CasePlan {
    /// Short and unique in the plan.
    pub name: String,
    /// What the client speaks; the origins are asked over plain HTTP.
    pub scheme: Scheme,
    /// What is asked for.
    pub payload: Payload,
    /// When it is asked for.
    pub load: Load,
}

/// A response of the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    /// `tiny`
    pub name: &'static str,
    /// The path that serves it.
    pub path: &'static str,
    /// Bytes of its body.
    pub bytes: u64,
}

impl Payload {
    /// 128 bytes: what a request costs by itself.
    pub const TINY: Self = Self { name: "tiny", path: "/tiny", bytes: 128 };
    /// 165,854 bytes: what moving a body costs.
    pub const LARGE: Self = Self { name: "large", path: "/large", bytes: 165_854 };
}

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// As soon as the last response is complete.
    Closed,
    /// At one rate for all: this share of the slowest one's requests per second in the closed loop with the same
    /// payload, which the plan has to have.
    ShareOfSlowest(f64),
}

/// How often and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Times that every proxy does every case.
    pub rounds: usize,
    /// What one measurement lasts.
    pub measured: Duration,
    /// Load before each, not counted.
    pub warm_up: Duration,
}

/// Starting a proxy and two runs of the generator, and stopping them, beside the load itself.
const OVERHEAD: Duration = Duration::from_millis(200);
/// Enough to open the connections and fill what fills once.
const WARM_UP: Duration = Duration::from_millis(150);
/// Round counts, and how long a measurement has to last to prefer them over fewer.
const ROUNDS: [(usize, Duration); 4] = [
    (7, Duration::from_millis(900)),
    (5, Duration::from_millis(600)),
    (3, Duration::from_millis(150)),
    (1, Duration::ZERO),
];
/// CPU time is told in hundredths of a second by some kernels: less than this measures nothing.
const MEASURED_LEAST: Duration = Duration::from_millis(100);

impl Plan {
    /// Measurements of one round: each proxy in each case that it takes part in.
    pub fn cells(&self) -> usize {
        cells(&self.proxies, &self.cases)
    }
}

/// The same for a plan yet to be made.
pub fn cells(proxies: &[Installed], cases: &[CasePlan]) -> usize {
    let of_case = |case: &CasePlan| proxies.iter().filter(|proxy| case.includes(proxy)).count();
    cases.iter().map(of_case).sum()
}

impl CasePlan {
    /// Whether a proxy takes part: `direct` speaks no TLS, as the origins are asked without.
    pub fn includes(&self, proxy: &Installed) -> bool {
        self.scheme == Scheme::Http || proxy.driver.role != Role::Direct
    }
}

impl Timing {
    /// As many rounds of as long measurements as a budget holds, for this many proxies times cases.
    pub fn within(budget: Duration, cells: usize) -> Self {
        let measured = |rounds: usize| {
            let share = budget / u32::try_from((rounds * cells).max(1)).unwrap_or(u32::MAX);
            share.saturating_sub(OVERHEAD + WARM_UP)
        };
        let rounds = ROUNDS
            .iter()
            .find(|(rounds, least)| measured(*rounds) >= *least)
            .map_or(1, |(rounds, _)| *rounds);
        Self { rounds, measured: measured(rounds).max(MEASURED_LEAST), warm_up: WARM_UP }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_not_exceeded_and_buys_repeats_before_length() {
        // Seconds, cells, rounds.
        let cases = [(50, 22, 3), (50, 16, 3), (50, 8, 5), (120, 16, 5), (8, 16, 1), (600, 16, 7)];
        for (seconds, cells, rounds) in cases {
            let budget = Duration::from_secs(seconds);
            let timing = Timing::within(budget, cells);
            assert_eq!(timing.rounds, rounds, "{seconds} s for {cells} cells");
            let run = timing.measured + timing.warm_up + OVERHEAD;
            assert!(run * (timing.rounds * cells) as u32 <= budget, "{timing:?} exceeds {seconds} s");
        }
    }

    #[test]
    fn too_small_a_budget_still_measures_something() {
        let timing = Timing::within(Duration::from_secs(1), 100);
        assert_eq!((timing.rounds, timing.measured), (1, MEASURED_LEAST));
        assert!(Timing::within(Duration::from_secs(1), 0).rounds >= 1);
    }
}
