//! Compares two results: which differences exceed noise and drift.
//!
//! Machines drift between runs. The controls are peers of the same version on the same machine: each figure is divided
//! by their mean figure in the same round. Every figure of the first run gets a verdict, in the words of `show`.

/// Verdicts on lost rounds, failed requests and sizes of responses.
mod counts;
/// A comparison as sentences, table and JSON.
pub mod show;
/// Differences of the plans and machines of two runs.
mod unlike;

use crate::results::{Arrivals, Case, ComparedProxy, ProxyRole, Results, Run};
use crate::statistics::{Estimate, median};
use crate::summary::{self, CaseCounts, Metric, Summary};

/// Probability of claiming any difference when there is none, over all compared figures together.
const FALSE_CLAIM: f64 = 0.04;
/// Assumed drift that the controls do not show, and assumed drift without controls.
const DRIFT_BESIDE_CONTROLS: f64 = 0.005;
const DRIFT_ALONE: f64 = 0.015;
/// Minimum number of repeats in each result for a verdict.
const REPEATS_LEAST: usize = 3;
/// A figure is undecided, not equal, if its interval allows that it became worse by this factor.
const GROSS: f64 = 1.5;
/// Median distance of two values of a normal distribution, in standard deviations.
const PAIR_MEDIAN: f64 = 0.954;
/// Extra variation of the median of all pairs, compared with a mean.
const PAIRS_COST: f64 = 1.05;

#[derive(Debug)]
pub struct Comparison<'r> {
    /// The baseline.
    pub before: &'r Results,
    pub after: &'r Results,
    pub basis: Basis,
    /// Changes by proxy and metric: first over all cases, then each case. Changes of counts follow, by proxy and case.
    pub changes: Vec<FigureChange>,
    /// Whether no proxy was measured in the same case in both.
    pub is_disjoint: bool,
    /// Proxies and cases that only one of the results has.
    pub unmatched: Vec<String>,
    /// Other differences of the two runs (durations, rates, machines), a sentence each.
    pub differences: Vec<String>,
    /// Proxies of the first run whose changes a gate checks: the subject; without a subject in either run, programs of
    /// unknown version. Other peers are only controls.
    pub gated: Vec<String>,
}

#[derive(Debug)]
pub enum Gate<'c> {
    /// Every figure of the first run is better or equal in the second, or worse by less than the threshold.
    Passed,
    Worse(Vec<&'c FigureChange>),
    /// Nothing became worse, but these figures are undecided.
    Undecided(Vec<&'c FigureChange>),
    /// No figure can be judged.
    Nothing,
}

/// Source of the estimate of the drift between two runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Basis {
    /// Controls: peers that are the same in both runs. Their change is the drift of the machine.
    Controls(Vec<String>),
    /// Both runs are from one machine, without controls.
    SameMachine,
    /// The runs are from two machines, whose difference is part of each change.
    Machines,
}

/// Change of one figure of a proxy.
#[derive(Debug, Clone)]
pub struct FigureChange {
    pub proxy: String,
    /// `None` for all cases together.
    pub case: Option<String>,
    pub metric: Metric,
    pub counted: CaseCounts,
    /// Figures before and after; `None` over all cases.
    pub figures: Option<[Estimate; 2]>,
    /// Ratio of after to before, relative to the controls; `None` for counts, where any change beyond chance counts.
    pub ratio: Option<Interval>,
    pub verdict: ChangeVerdict,
    /// First reason why rounds of the later run were lost.
    pub note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    pub middle: f64,
    pub low: f64,
    pub high: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeVerdict {
    /// Better, by more than noise and drift.
    Better,
    /// Worse, by more than noise and drift.
    Worse,
    /// No difference beyond noise and drift.
    Equal,
    Undecided(Doubt),
}

/// The reason why a change is undecided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// At least one result has fewer than three valid rounds.
    FewRounds,
    /// The judge refuses to rank the figure in one of the results, which contains the reason.
    Refused,
    /// The later run has no such figure.
    Absent,
    /// The rounds differ too much among themselves.
    Spread,
}

/// Figures of a proxy, metric and case in both runs, also as logarithms relative to the controls.
struct ComparedCell<'r> {
    proxy: &'r ComparedProxy,
    case: &'r Case,
    metric: Metric,
    counted: CaseCounts,
    figures: [Estimate; 2],
    logs: [Vec<f64>; 2],
    /// Names of the controls that were measured in every round of this figure.
    controls: Vec<String>,
    /// Whether the judge refuses to rank the figure in one of the results.
    is_refused: bool,
}

impl<'r> Comparison<'r> {
    /// Compares the proxies and cases that both results have, by name.
    pub fn new(before: &'r Results, after: &'r Results) -> Self {
        let mut basis = basis(before, after);
        let controls = match &basis {
            Basis::Controls(names) => names.as_slice(),
            Basis::SameMachine | Basis::Machines => &[],
        };
        let summaries = [before, after].map(Summary::from_results);
        let cells = cells(before, after, controls, &summaries);
        if let Basis::Controls(names) = &mut basis {
            // Removes controls that were measured beside no figure: they corrected no drift.
            names.retain(|name| cells.iter().any(|cell| cell.controls.contains(name)));
            if names.is_empty() {
                basis = Basis::SameMachine;
            }
        }
        let compared = cells.iter().filter(|cell| cell.is_judged()).count() + groups(&cells).len();
        let normal = normal_quantile(1.0 - FALSE_CLAIM / (2.0 * compared.max(1) as f64));
        let gated = gated(before, after);
        let counted = counts::CountedPairs::new(before, after, &gated);
        let mut changes: Vec<FigureChange> =
            groups(&cells).iter().flat_map(|group| changes_of(group, normal)).collect();
        changes.extend(counted.changes(normal));
        let (unmatched, mut differences) = (unmatched(before, after), unlike::differences(before, after));
        differences.extend(unranked_rates(before, &summaries[0], &gated));
        let incomplete = |(results, which): (&Results, &str)| {
            Some(format!("The {which} results are incomplete: {}", results.incomplete.as_ref()?))
        };
        differences.extend([(before, "first"), (after, "second")].into_iter().filter_map(incomplete));
        let is_disjoint = counted.is_disjoint();
        Self { before, after, unmatched, differences, basis, changes, is_disjoint, gated }
    }

    /// The verdict of a gate that rejects figures that became worse by `threshold` (a share) or more.
    pub fn gate(&self, threshold: f64) -> Gate<'_> {
        let worse: Vec<&FigureChange> = self.regressions(threshold).collect();
        let undecided: Vec<&FigureChange> = self.of_gate().filter(|change| change.is_undecided()).collect();
        match (worse.is_empty(), undecided.is_empty()) {
            (false, _) => Gate::Worse(worse),
            (true, _) if !self.has_judged() => Gate::Nothing,
            (true, false) => Gate::Undecided(undecided),
            (true, true) => Gate::Passed,
        }
    }

    /// Changes for the worse by at least `threshold` (a share), among the gated proxies.
    pub fn regressions(&self, threshold: f64) -> impl Iterator<Item = &FigureChange> {
        self.of_gate()
            .filter(move |change| change.verdict == ChangeVerdict::Worse && change.magnitude() >= threshold)
    }

    /// Whether a gate has a verdict on at least one figure beside counts.
    pub fn has_judged(&self) -> bool {
        self.of_gate().any(|change| change.ratio.is_some() && !change.is_undecided())
    }

    fn of_gate(&self) -> impl Iterator<Item = &FigureChange> {
        self.changes.iter().filter(|change| self.gated.contains(&change.proxy))
    }
}

/// Changes of a proxy and metric: over all cases, then each case.
fn changes_of(group: &[&ComparedCell<'_>], normal: f64) -> Vec<FigureChange> {
    // The cases of one proxy and metric have similar noise. Pooled, they show noise that few repeats cannot.
    let pooled = scale(group.iter().flat_map(|cell| &cell.logs));
    let judged = group.iter().filter(|cell| cell.is_judged());
    let shifts: Vec<Shift> = judged.map(|cell| cell.shift(pooled)).collect();
    // The drift over all cases is that of the case with the most drift.
    let drift = group.iter().map(|cell| cell.drift()).fold(DRIFT_BESIDE_CONTROLS, f64::max);
    let logs = group.iter().flat_map(|cell| &cell.logs);
    let errors = of_few(normal, logs.map(|logs| logs.len().saturating_sub(1)).sum());
    let over_all = (shifts.len() > 1).then(|| group[0].change(None, Shift::mean(&shifts), errors, drift));
    let each = group
        .iter()
        .map(|cell| cell.change(Some(cell.case.name.clone()), cell.shift(pooled), errors, cell.drift()));
    over_all.into_iter().chain(each).collect()
}

/// Cases in which the first run's judge ranks no requests per second, because the proxy was not the limit.
fn unranked_rates(before: &Results, summary: &Summary<'_>, gated: &[String]) -> Option<String> {
    let is_unranked =
        |case: &&Case| gated.iter().any(|proxy| is_rate_alone_refused(summary, proxy, &case.name));
    let cases: Vec<&str> = before.cases.iter().filter(is_unranked).map(|case| case.name.as_str()).collect();
    (!cases.is_empty()).then(|| {
        format!(
            "Requests per second are not compared in {}: the proxy was not the limit in the first results.",
            cases.join(", ")
        )
    })
}

impl FigureChange {
    /// Size of the change, as a share of the earlier figure; infinite for counts.
    pub fn magnitude(&self) -> f64 {
        self.ratio.map_or(f64::INFINITY, |ratio| (ratio.middle - 1.0).abs())
    }

    fn is_undecided(&self) -> bool {
        matches!(self.verdict, ChangeVerdict::Undecided(_))
    }
}

/// Difference of logarithms, with its standard error.
#[derive(Debug, Clone, Copy)]
struct Shift {
    middle: f64,
    error: f64,
}

impl Shift {
    fn mean(shifts: &[Self]) -> Self {
        let count = shifts.len() as f64;
        Self {
            middle: shifts.iter().map(|shift| shift.middle).sum::<f64>() / count,
            error: shifts.iter().map(|shift| shift.error.powi(2)).sum::<f64>().sqrt() / count,
        }
    }
}

impl ComparedCell<'_> {
    fn is_judged(&self) -> bool {
        !self.is_refused && self.logs.iter().all(|logs| logs.len() >= REPEATS_LEAST)
    }

    /// Drift that is allowed without a verdict.
    fn drift(&self) -> f64 {
        if self.controls.is_empty() { DRIFT_ALONE } else { DRIFT_BESIDE_CONTROLS }
    }

    /// Median of all differences between a later and an earlier value (Hodges–Lehmann): nearly as precise as the mean,
    /// nearly as robust as the median.
    fn shift(&self, pooled: f64) -> Shift {
        let [before, after] = &self.logs;
        let mut differences: Vec<f64> =
            after.iter().flat_map(|later| before.iter().map(move |earlier| later - earlier)).collect();
        if differences.is_empty() {
            return Shift { middle: 0.0, error: f64::INFINITY };
        }
        differences.sort_by(f64::total_cmp);
        let spread = pooled.max(scale(self.logs.iter()));
        let count = 1.0 / before.len() as f64 + 1.0 / after.len() as f64;
        Shift { middle: median(&differences), error: spread * (PAIRS_COST * count).sqrt() }
    }

    /// Makes the change for a shift, with an interval of this many standard errors and this drift.
    fn change(&self, case: Option<String>, shift: Shift, errors: f64, drift: f64) -> FigureChange {
        let reach = errors * shift.error + drift;
        let ratio = Interval {
            middle: shift.middle.exp(),
            low: (shift.middle - reach).exp(),
            high: (shift.middle + reach).exp(),
        };
        let more_is_better = self.metric == Metric::RequestsPerSecond;
        let is_wide = if more_is_better { ratio.low < GROSS.recip() } else { ratio.high > GROSS };
        let verdict = match (ratio.low > 1.0, ratio.high < 1.0) {
            _ if case.is_some() && self.is_refused => ChangeVerdict::Undecided(Doubt::Refused),
            _ if case.is_some() && !self.is_judged() => ChangeVerdict::Undecided(Doubt::FewRounds),
            (false, false) if is_wide => ChangeVerdict::Undecided(Doubt::Spread),
            (false, false) => ChangeVerdict::Equal,
            (higher, _) if higher == more_is_better => ChangeVerdict::Better,
            _ => ChangeVerdict::Worse,
        };
        let figures = case.is_some().then_some(self.figures);
        let counted =
            if case.is_some() { CaseCounts::from(self.case.streams.as_ref()) } else { self.counted };
        let (proxy, metric) = (self.proxy.name.clone(), self.metric);
        FigureChange { proxy, case, metric, counted, figures, ratio: Some(ratio), verdict, note: None }
    }
}

/// Finds the controls: peers of the same version in both runs, and `direct`.
fn basis(before: &Results, after: &Results) -> Basis {
    let machine = |results: &Results| {
        let machine = &results.machine;
        (machine.processor.clone(), machine.architecture.clone(), machine.cores, machine.memory_bytes)
    };
    if machine(before) != machine(after) {
        return Basis::Machines;
    }
    let same = |proxy: &&ComparedProxy| {
        // A program without a known version may have changed.
        (proxy.role == ProxyRole::Direct || proxy.role == ProxyRole::Peer && !proxy.version.is_empty())
            && after
                .proxies
                .iter()
                .any(|other| (&other.name, &other.version) == (&proxy.name, &proxy.version))
    };
    let controls: Vec<String> = before.proxies.iter().filter(same).map(|proxy| proxy.name.clone()).collect();
    if controls.is_empty() { Basis::SameMachine } else { Basis::Controls(controls) }
}

/// Names of the first run's proxies that a gate checks.
fn gated(before: &Results, after: &Results) -> Vec<String> {
    let is_subject = |proxy: &&ComparedProxy| proxy.role == ProxyRole::Subject;
    let is_unknown = |proxy: &&ComparedProxy| proxy.role == ProxyRole::Peer && proxy.version.is_empty();
    let has_subject =
        [before, after].iter().any(|results| results.proxies.iter().any(|one| is_subject(&one)));
    let proxies = before.proxies.iter();
    let chosen = proxies.filter(|proxy| if has_subject { is_subject(proxy) } else { is_unknown(proxy) });
    chosen.map(|proxy| proxy.name.clone()).collect()
}

fn is_refused(summary: &Summary<'_>, proxy: &str, case: &str, metric: Metric) -> bool {
    let is_rate = metric == Metric::RequestsPerSecond;
    let of_case = summary.cases.iter().filter(|one| one.case.name == case);
    of_case.flat_map(|one| &one.findings).any(|finding| finding.spoils(proxy, is_rate))
}

/// Whether the judge refuses to rank requests per second, but not the other figures.
fn is_rate_alone_refused(summary: &Summary<'_>, proxy: &str, case: &str) -> bool {
    is_refused(summary, proxy, case, Metric::RequestsPerSecond)
        && !is_refused(summary, proxy, case, Metric::CpuPerRequest)
}

/// Figures in the order of the results: proxies, metrics, cases.
fn cells<'r>(
    before: &'r Results,
    after: &'r Results,
    controls: &[String],
    summaries: &[Summary<'r>; 2],
) -> Vec<ComparedCell<'r>> {
    let mut cells = Vec::new();
    for proxy in
        before.proxies.iter().filter(|proxy| after.proxies.iter().any(|other| other.name == proxy.name))
    {
        for metric in Metric::ALL {
            let is_asked_again = |case: &&Case| {
                after.cases.iter().any(|other| other.name == case.name && unlike::is_same(case, other))
            };
            for case in before.cases.iter().filter(is_asked_again) {
                let is_left_out = metric == Metric::RequestsPerSecond
                    && is_rate_alone_refused(&summaries[0], &proxy.name, &case.name);
                if is_left_out || !metric.is_comparable(case) {
                    continue;
                }
                let figures = [before, after].map(|results| {
                    Estimate::from_values(
                        rounds(results, &proxy.name, case, metric).into_iter().map(|(_, value)| value),
                    )
                });
                if let [Some(one), Some(other)] = figures {
                    // A slower machine takes no more memory. A control's share of common memory depends on other
                    // programs, so it shows no drift.
                    let controls = if metric == Metric::Memory { &[] } else { controls };
                    let others: Vec<&String> = controls.iter().filter(|name| **name != proxy.name).collect();
                    let (logs, controls) = beside(before, after, &proxy.name, &others, case, metric);
                    let is_refused =
                        summaries.iter().any(|summary| is_refused(summary, &proxy.name, &case.name, metric));
                    let figures = [one, other];
                    let counted = summaries[0].counted();
                    cells.push(ComparedCell {
                        proxy,
                        case,
                        metric,
                        counted,
                        figures,
                        logs,
                        controls,
                        is_refused,
                    });
                }
            }
        }
    }
    cells
}

/// Figures grouped by proxy and metric.
fn groups<'c, 'r>(cells: &'c [ComparedCell<'r>]) -> Vec<Vec<&'c ComparedCell<'r>>> {
    cells
        .chunk_by(|one, other| one.proxy.name == other.proxy.name && one.metric == other.metric)
        .map(|group| group.iter().collect())
        .collect()
}

/// Logarithms of a figure in both runs, minus the mean of the controls that were measured in each of its rounds. Also
/// returns the names of these controls.
fn beside(
    before: &Results,
    after: &Results,
    proxy: &str,
    controls: &[&String],
    case: &Case,
    metric: Metric,
) -> ([Vec<f64>; 2], Vec<String>) {
    let own = [before, after].map(|results| rounds(results, proxy, case, metric));
    let of_control = |name: &str| -> Option<[Vec<f64>; 2]> {
        let both = [before, after].map(|results| rounds(results, name, case, metric));
        let aligned = [0, 1].map(|run| {
            let value =
                |round: usize| both[run].iter().find(|(of, _)| *of == round).map(|(_, value)| value.ln());
            own[run].iter().map(|(round, _)| value(*round)).collect::<Option<Vec<f64>>>()
        });
        let [one, other] = aligned;
        Some([one?, other?])
    };
    let (names, controls): (Vec<String>, Vec<[Vec<f64>; 2]>) =
        controls.iter().filter_map(|name| Some(((*name).clone(), of_control(name)?))).unzip();
    let logs = [0, 1].map(|run| {
        let less = |index: usize| {
            controls.iter().map(|control| control[run][index]).sum::<f64>() / controls.len().max(1) as f64
        };
        own[run].iter().enumerate().map(|(index, (_, value))| value.ln() - less(index)).collect()
    });
    (logs, names)
}

/// Round and value of each valid measurement. The last repetition counts; for a search, the found rate.
fn rounds(results: &Results, proxy: &str, case: &Case, metric: Metric) -> Vec<(usize, f64)> {
    let runs = results.runs.iter().filter(|run| run.proxy == proxy && run.case == case.name);
    let mut runs: Vec<&Run> = runs.collect();
    if matches!(case.arrivals, Arrivals::Searched { .. }) {
        runs = summary::searches(&runs).into_iter().filter_map(|(_, found)| found.ok()).collect();
    }
    let mut values: Vec<(usize, f64)> = Vec::new();
    for run in runs {
        if let Some(value) = run.outcome.valid().and_then(|measured| metric.value(measured))
            && value.is_finite()
            && value > 0.0
        {
            values.retain(|(round, _)| *round != run.round);
            values.push((run.round, value));
        }
    }
    values
}

/// Scale of the noise within a case and run: a median of differences, which one disturbed value in ten leaves alone.
fn scale<'l>(samples: impl Iterator<Item = &'l Vec<f64>>) -> f64 {
    let mut differences: Vec<f64> = samples
        .flat_map(|values| {
            values.iter().enumerate().flat_map(move |(index, one)| {
                values[index + 1..].iter().map(move |other| (one - other).abs())
            })
        })
        .collect();
    if differences.is_empty() {
        return 0.0;
    }
    differences.sort_by(f64::total_cmp);
    median(&differences) / PAIR_MEDIAN
}

fn unmatched(before: &Results, after: &Results) -> Vec<String> {
    let only = |one: &Results, other: &Results, which: &str| {
        let proxies = one.proxies.iter().map(|proxy| &proxy.name);
        let proxies = proxies.filter(|name| !other.proxies.iter().any(|proxy| proxy.name == **name));
        let cases = one.cases.iter().map(|case| &case.name);
        let cases = cases.filter(|name| !other.cases.iter().any(|case| case.name == **name));
        proxies.chain(cases).map(|name| format!("{name} is only in the {which} results")).collect::<Vec<_>>()
    };
    [only(before, after, "first"), only(after, before, "second")].concat()
}

/// Quantile of the standard normal distribution, for a share of at least 0.5 (Abramowitz and Stegun, 26.2.23).
fn normal_quantile(share: f64) -> f64 {
    let t = (-2.0 * (1.0 - share).max(1e-12).ln()).sqrt();
    t - (2.515_517 + t * (0.802_853 + t * 0.010_328))
        / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

/// Quantile of Student's distribution, by the first term of its expansion: with few values, more standard errors are
/// noise than with the normal distribution.
fn of_few(normal: f64, values: usize) -> f64 {
    normal + (normal.powi(3) + normal) / (4.0 * values.max(1) as f64)
}

#[cfg(test)]
mod tests;
