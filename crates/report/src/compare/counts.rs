//! Verdicts on counts, as opposed to times: lost rounds, failed requests, and bytes of a response. Figures that the
//! later run lost are undecided here, too.

use super::{ChangeVerdict, Doubt, FigureChange, rounds, unlike};
use crate::results::{Case, MeasuredFigures, MeasurementOutcome, Results, Run};
use crate::statistics::{Difference, Estimate, difference};
use crate::summary::{CaseCounts, Metric};

/// Allowed difference of a response's bytes between two versions, for an additional or missing field …
const BYTES_ALLOWED: f64 = 100.0;
/// … and as a share of the size.
const BYTES_SHARE_ALLOWED: f64 = 0.02;

/// Counts of one proxy in one case of a run.
#[derive(Debug, Default)]
struct RunCounts<'r> {
    /// Measured rounds, valid or not.
    all: usize,
    /// Rounds with valid figures.
    valid: usize,
    /// Rounds that the proxy lost: it ended, or failed too many requests.
    lost: usize,
    /// Failed and all requests of each measurement that says something about the proxy.
    failed: Vec<(u64, u64)>,
    /// Bytes of a response, for each valid round.
    bytes: Vec<f64>,
    /// The reason for the first lost round.
    reason: Option<&'r str>,
}

/// A proxy and a case of the first run, with its counts in both runs.
struct CountedPair<'r> {
    proxy: &'r str,
    case: &'r Case,
    counts: [RunCounts<'r>; 2],
    /// Metrics that only the first run has, although the second has valid rounds.
    absent: Vec<Metric>,
}

pub(super) struct CountedPairs<'r>(Vec<CountedPair<'r>>);

impl<'r> CountedPairs<'r> {
    /// Pairs the proxies and cases that were measured in both runs; for gated proxies, all of the first run.
    pub(super) fn new(before: &'r Results, after: &'r Results, gated: &[String]) -> Self {
        let mut pairs = Vec::new();
        for proxy in before.proxies.iter().map(|proxy| proxy.name.as_str()) {
            for case in &before.cases {
                let same =
                    after.cases.iter().any(|other| other.name == case.name && unlike::is_same(case, other));
                let later = if same { RunCounts::new(after, proxy, case) } else { RunCounts::default() };
                let counts = [RunCounts::new(before, proxy, case), later];
                let is_asked = counts[1].all > 0 || gated.iter().any(|name| name == proxy);
                if counts[0].all > 0 && is_asked {
                    let has = |run, metric| !rounds(run, proxy, case, metric).is_empty();
                    let is_absent = |metric: &Metric| {
                        metric.is_comparable(case) && has(before, *metric) && !has(after, *metric)
                    };
                    let metrics = Metric::ALL.into_iter().filter(|_| counts[1].valid > 0);
                    let absent = metrics.filter(is_absent).collect();
                    pairs.push(CountedPair { proxy, case, counts, absent });
                }
            }
        }
        Self(pairs)
    }

    /// Whether nothing was measured in both runs.
    pub(super) fn is_disjoint(&self) -> bool {
        self.0.iter().all(|pair| pair.counts[1].all == 0)
    }

    /// Returns the verdicts. Beyond `normal`, a quantile of the normal distribution, a difference is not chance.
    pub(super) fn changes(&self, normal: f64) -> Vec<FigureChange> {
        self.0.iter().flat_map(|pair| pair.changes(normal)).collect()
    }
}

impl CountedPair<'_> {
    fn changes(&self, normal: f64) -> Vec<FigureChange> {
        let [before, after] = &self.counts;
        let change = |metric, figures: Option<[Estimate; 2]>, verdict| FigureChange {
            proxy: self.proxy.to_owned(),
            case: Some(self.case.name.clone()),
            metric,
            counted: CaseCounts::from(self.case.streams.as_ref()),
            figures,
            ratio: None,
            verdict,
            note: (metric == Metric::LostRounds).then(|| after.reason.map(str::to_owned)).flatten(),
        };
        let both = |one: Option<Estimate>, other: Option<Estimate>| Some([one?, other?]);
        let lost_shares = both(before.lost_share(), after.lost_share());
        let lost = change(Metric::LostRounds, lost_shares, lost(before, after));
        let failed_shares = both(before.failed_share(), after.failed_share());
        let failed =
            failed(before, after, normal).map(|verdict| change(Metric::FailedShare, failed_shares, verdict));
        let sizes = both(before.size(), after.size());
        let bytes = sizes.map(|sizes| change(Metric::ResponseBytes, Some(sizes), bytes(&sizes)));
        let absent =
            self.absent.iter().map(|metric| change(*metric, None, ChangeVerdict::Undecided(Doubt::Absent)));
        [lost].into_iter().chain(failed).chain(bytes).chain(absent).collect()
    }
}

impl<'r> RunCounts<'r> {
    fn new(results: &'r Results, proxy: &str, case: &Case) -> Self {
        let runs: Vec<&Run> =
            results.runs.iter().filter(|run| run.proxy == proxy && run.case == case.name).collect();
        let valid = rounds(results, proxy, case, Metric::RequestsPerSecond);
        let mut numbers: Vec<usize> = runs.iter().map(|run| run.round).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let of_round = |number: usize| runs.iter().filter(move |run| run.round == number);
        let is_valid = |number: usize| valid.iter().any(|(round, _)| *round == number);
        // A round that the generator spoiled says nothing about the proxy.
        let is_lost =
            |number: &usize| !is_valid(*number) && of_round(*number).all(|run| !is_generators(&run.outcome));
        let lost: Vec<usize> = numbers.iter().copied().filter(is_lost).collect();
        let reason = lost.first().and_then(|number| of_round(*number).find_map(|run| run.outcome.refusal()));
        // A search also tries rates that are too high; their failures are expected.
        let telling =
            runs.iter().filter(|run| run.outcome.tells_of_proxy() && run.step.is_none_or(|step| step.is_met));
        Self {
            all: numbers.len(),
            valid: valid.len(),
            lost: lost.len(),
            failed: telling.filter_map(|run| Some(failures(run.outcome.figures()?))).collect(),
            bytes: rounds(results, proxy, case, Metric::ResponseBytes)
                .into_iter()
                .map(|(_, bytes)| bytes)
                .collect(),
            reason,
        }
    }

    fn lost_share(&self) -> Option<Estimate> {
        (self.all > 0).then(|| Estimate::from_values([self.lost as f64 / self.all as f64])).flatten()
    }

    fn failed_share(&self) -> Option<Estimate> {
        let (failed, all) = self.requests();
        (all > 0).then(|| Estimate::from_values([failed as f64 / all as f64])).flatten()
    }

    fn size(&self) -> Option<Estimate> {
        Estimate::from_values(self.bytes.iter().copied())
    }

    fn requests(&self) -> (u64, u64) {
        self.failed.iter().fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    }

    /// Share of failed requests over the rounds, with its spread.
    fn shares(&self) -> Option<Estimate> {
        Estimate::from_values(
            self.failed.iter().filter(|(_, all)| *all > 0).map(|(failed, all)| *failed as f64 / *all as f64),
        )
    }
}

fn is_generators(outcome: &MeasurementOutcome) -> bool {
    matches!(outcome, MeasurementOutcome::Invalid { is_generators: true, .. })
}

/// Failed and all requests of a measurement. For streams, includes lost messages, and streams that closed early.
fn failures(measured: &MeasuredFigures) -> (u64, u64) {
    let of_streams = measured.streams.as_ref().map_or(0, |streams| streams.lost + streams.closed_early);
    let failed = measured.error_count() + of_streams;
    (failed, failed + measured.requests)
}

fn lost(before: &RunCounts<'_>, after: &RunCounts<'_>) -> ChangeVerdict {
    let share = |counts: &RunCounts<'_>| counts.lost as f64 / counts.all.max(1) as f64;
    match share(after).total_cmp(&share(before)) {
        std::cmp::Ordering::Greater => ChangeVerdict::Worse,
        _ if after.valid == 0 => ChangeVerdict::Undecided(Doubt::Absent),
        std::cmp::Ordering::Less => ChangeVerdict::Better,
        std::cmp::Ordering::Equal => ChangeVerdict::Equal,
    }
}

/// Failed requests are equal if their number is within chance. Errors come in bursts: if both runs have some, the
/// rounds have to differ as well. `None` without requests.
fn failed(before: &RunCounts<'_>, after: &RunCounts<'_>, normal: f64) -> Option<ChangeVerdict> {
    let [(one, of_one), (other, of_other)] =
        [before.requests(), after.requests()].map(|(failed, all)| (failed as f64, all as f64));
    if of_one == 0.0 || of_other == 0.0 {
        return None;
    }
    let share = of_other / (of_one + of_other);
    let expected = (one + other) * share;
    if (other - expected).abs() - 0.5 <= normal * (expected * (1.0 - share)).sqrt() {
        return Some(ChangeVerdict::Equal);
    }
    let verdict = if other > expected { ChangeVerdict::Worse } else { ChangeVerdict::Better };
    if one == 0.0 || other == 0.0 {
        return Some(verdict);
    }
    Some(match difference(&after.shares()?, &before.shares()?) {
        Difference::Higher | Difference::Lower => verdict,
        Difference::Within => ChangeVerdict::Undecided(Doubt::Spread),
        Difference::Unjudged => ChangeVerdict::Undecided(Doubt::FewRounds),
    })
}

/// A response of another size is a difference, whether it is shorter or longer.
fn bytes([before, after]: &[Estimate; 2]) -> ChangeVerdict {
    let allowed = BYTES_ALLOWED.max(BYTES_SHARE_ALLOWED * before.median);
    if (after.median - before.median).abs() <= allowed {
        return ChangeVerdict::Equal;
    }
    match difference(after, before) {
        Difference::Higher | Difference::Lower => ChangeVerdict::Worse,
        Difference::Within => ChangeVerdict::Undecided(Doubt::Spread),
        Difference::Unjudged => ChangeVerdict::Undecided(Doubt::FewRounds),
    }
}
