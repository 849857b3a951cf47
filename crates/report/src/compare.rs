//! Compares two results: which differences exceed noise and drift.
//!
//! Machines drift between runs. Peers of the same version on the same machine are the controls: each figure is divided
//! by the mean figure of the controls in the same round. The words are in `show`.

/// A comparison as sentences, table and JSON.
pub mod show;
/// Differences of the plans and machines of two runs.
mod unlike;

use crate::results::{Arrivals, Case, Proxy, Results, Role, Run};
use crate::statistics::{Estimate, median};
use crate::summary::{self, Counted, Metric, Summary};

/// Probability of claiming any difference when there is none, over all compared figures together.
const FALSE_CLAIM: f64 = 0.04;
/// Assumed drift that the controls do not show, and assumed drift without controls.
const DRIFT_BESIDE_CONTROLS: f64 = 0.005;
const DRIFT_ALONE: f64 = 0.015;
/// Minimum number of repeats in each result for a verdict.
const REPEATS_LEAST: usize = 3;
/// Median distance of two values of a normal distribution, in standard deviations.
const PAIR_MEDIAN: f64 = 0.954;
/// How much more the typical ratio of all pairs varies than a mean would.
const PAIRS_COST: f64 = 1.05;

/// Comparison of two results.
#[derive(Debug)]
pub struct Comparison<'r> {
    /// Earlier result, the baseline.
    pub before: &'r Results,
    /// Later result.
    pub after: &'r Results,
    /// What the drift was estimated from.
    pub basis: Basis,
    /// Changes by proxy and metric: first over all cases, then each case.
    pub changes: Vec<Change>,
    /// Proxies and cases that only one of the results has.
    pub unmatched: Vec<String>,
    /// Other differences of the two runs (durations, rates, machines), a sentence each.
    pub differences: Vec<String>,
    /// Proxies whose changes a gate checks: the subject; without a subject in either run, programs of unknown version.
    /// Other peers are only controls.
    pub gated: Vec<String>,
}

/// What the drift between two runs was estimated from.
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
pub struct Change {
    /// Name of the proxy.
    pub proxy: String,
    /// Name of the case; `None` for all cases together.
    pub case: Option<String>,
    /// The metric.
    pub metric: Metric,
    /// What its figures count.
    pub counted: Counted,
    /// Figures before and after; `None` over all cases.
    pub figures: Option<[Estimate; 2]>,
    /// Ratio of after to before, relative to the controls.
    pub ratio: Interval,
    /// Whether the figure became better or worse.
    pub verdict: Verdict,
}

/// A ratio with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Typical ratio.
    pub middle: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Verdict about a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Better, by more than noise and drift.
    Better,
    /// Worse, by more than noise and drift.
    Worse,
    /// No difference beyond noise and drift.
    Even,
    /// Too few repeats for a verdict.
    Unjudged,
    /// The judge refuses to rank the figure in one of the results, which contains the reason.
    Refused,
}

/// Figures of a proxy, metric and case in both runs, also as logarithms relative to the controls.
struct Cell<'r> {
    proxy: &'r Proxy,
    case: &'r Case,
    metric: Metric,
    /// What the figures of the whole run count.
    counted: Counted,
    figures: [Estimate; 2],
    logs: [Vec<f64>; 2],
    /// Names of the controls that were measured in every round of this figure.
    controls: Vec<String>,
    /// Whether the judge refuses to rank the figure in one of the results.
    is_refused: bool,
}

impl<'r> Comparison<'r> {
    /// Compares the proxies and cases that both results have, by name.
    pub fn of(before: &'r Results, after: &'r Results) -> Self {
        let mut basis = basis(before, after);
        let controls = match &basis {
            Basis::Controls(names) => names.as_slice(),
            Basis::SameMachine | Basis::Machines => &[],
        };
        let summaries = [before, after].map(Summary::of);
        let cells = cells(before, after, controls, &summaries);
        if let Basis::Controls(names) = &mut basis {
            // Whoever no figure could be taken beside has taken no drift off.
            names.retain(|name| cells.iter().any(|cell| cell.controls.contains(name)));
            if names.is_empty() {
                basis = Basis::SameMachine;
            }
        }
        let compared = cells.iter().filter(|cell| cell.is_judged()).count() + groups(&cells).len();
        let normal = normal_quantile(1.0 - FALSE_CLAIM / (2.0 * compared.max(1) as f64));
        let mut changes = Vec::new();
        for group in groups(&cells) {
            // Cases of one proxy and metric are alike noisy: together they tell the noise that few repeats cannot.
            let pooled = scale(group.iter().flat_map(|cell| &cell.logs));
            let judged: Vec<&Cell<'_>> = group.iter().copied().filter(|cell| cell.is_judged()).collect();
            let shifts: Vec<Shift> = judged.iter().map(|cell| cell.shift(pooled)).collect();
            // Over all cases there is as much drift as in the one that has most of it.
            let drift = group.iter().map(|cell| cell.drift()).fold(DRIFT_BESIDE_CONTROLS, f64::max);
            let logs = group.iter().flat_map(|cell| &cell.logs);
            let errors = of_few(normal, logs.map(|logs| logs.len().saturating_sub(1)).sum());
            if shifts.len() > 1 {
                changes.push(group[0].change(None, Shift::mean(&shifts), errors, drift));
            }
            for cell in group {
                let shift = cell.shift(pooled);
                changes.push(cell.change(Some(cell.case.name.clone()), shift, errors, cell.drift()));
            }
        }
        let (unmatched, differences) = (unmatched(before, after), unlike::differences(before, after));
        Self { before, after, unmatched, differences, basis, changes, gated: gated(before, after) }
    }

    /// Changes for the worse by at least `threshold` (a share), among the gated proxies.
    pub fn regressions(&self, threshold: f64) -> impl Iterator<Item = &Change> {
        self.of_gate()
            .filter(move |change| change.verdict == Verdict::Worse && change.magnitude() >= threshold)
    }

    /// Whether a gate has at least one verdict.
    pub fn has_judged(&self) -> bool {
        self.of_gate().any(|change| !matches!(change.verdict, Verdict::Unjudged | Verdict::Refused))
    }

    fn of_gate(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| self.gated.contains(&change.proxy))
    }
}

impl Change {
    /// Size of the change, as a share of the earlier figure.
    pub fn magnitude(&self) -> f64 {
        (self.ratio.middle - 1.0).abs()
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

impl Cell<'_> {
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

    /// The change for a shift, with an interval of this many standard errors and this drift.
    fn change(&self, case: Option<String>, shift: Shift, errors: f64, drift: f64) -> Change {
        let reach = errors * shift.error + drift;
        let ratio = Interval {
            middle: shift.middle.exp(),
            low: (shift.middle - reach).exp(),
            high: (shift.middle + reach).exp(),
        };
        let more_is_better = self.metric == Metric::RequestsPerSecond;
        let verdict = match (ratio.low > 1.0, ratio.high < 1.0) {
            _ if case.is_some() && self.is_refused => Verdict::Refused,
            _ if case.is_some() && !self.is_judged() => Verdict::Unjudged,
            (false, false) => Verdict::Even,
            (higher, _) if higher == more_is_better => Verdict::Better,
            _ => Verdict::Worse,
        };
        let figures = case.is_some().then_some(self.figures);
        let counted = if case.is_some() { Counted::from(self.case.streams.as_ref()) } else { self.counted };
        Change { proxy: self.proxy.name.clone(), case, metric: self.metric, counted, figures, ratio, verdict }
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
    let same = |proxy: &&Proxy| {
        // Of a program that tells no version nobody knows whether it is the same.
        (proxy.role == Role::Direct || proxy.role == Role::Peer && !proxy.version.is_empty())
            && after
                .proxies
                .iter()
                .any(|other| (&other.name, &other.version) == (&proxy.name, &proxy.version))
    };
    let controls: Vec<String> = before.proxies.iter().filter(same).map(|proxy| proxy.name.clone()).collect();
    if controls.is_empty() { Basis::SameMachine } else { Basis::Controls(controls) }
}

/// Names of the proxies that a gate checks.
fn gated(before: &Results, after: &Results) -> Vec<String> {
    let names = |is_it: &dyn Fn(&Proxy) -> bool| -> Vec<String> {
        let here = before.proxies.iter().filter(|proxy| is_it(proxy));
        let there =
            |proxy: &&Proxy| after.proxies.iter().any(|other| other.name == proxy.name && is_it(other));
        here.filter(there).map(|proxy| proxy.name.clone()).collect()
    };
    let has_subject =
        [before, after].iter().any(|results| results.proxies.iter().any(|proxy| proxy.role == Role::Subject));
    if has_subject {
        names(&|proxy| proxy.role == Role::Subject)
    } else {
        names(&|proxy| proxy.role == Role::Peer && proxy.version.is_empty())
    }
}

/// Whether the judge refuses to rank a figure of a proxy in a case.
fn is_refused(summary: &Summary<'_>, proxy: &str, case: &str, metric: Metric) -> bool {
    let is_rate = metric == Metric::RequestsPerSecond;
    let of_case = summary.cases.iter().filter(|one| one.case.name == case);
    of_case.flat_map(|one| &one.findings).any(|finding| finding.spoils(proxy, is_rate))
}

/// Figures in the order of the results: proxies, metrics, cases.
fn cells<'r>(
    before: &'r Results,
    after: &'r Results,
    controls: &[String],
    summaries: &[Summary<'r>; 2],
) -> Vec<Cell<'r>> {
    let mut cells = Vec::new();
    for proxy in
        before.proxies.iter().filter(|proxy| after.proxies.iter().any(|other| other.name == proxy.name))
    {
        for metric in Metric::ALL {
            let is_asked_again = |case: &&Case| {
                after.cases.iter().any(|other| other.name == case.name && unlike::is_same(case, other))
            };
            for case in before.cases.iter().filter(is_asked_again) {
                if !metric.is_comparable(case) {
                    continue;
                }
                let figures = [before, after].map(|results| {
                    Estimate::of(
                        rounds(results, &proxy.name, case, metric).into_iter().map(|(_, value)| value),
                    )
                });
                if let [Some(one), Some(other)] = figures {
                    // A machine that is slower takes no more memory, and what a control shares of it with others on
                    // the machine is no drift.
                    let controls = if metric == Metric::Memory { &[] } else { controls };
                    let others: Vec<&String> = controls.iter().filter(|name| **name != proxy.name).collect();
                    let (logs, controls) = beside(before, after, &proxy.name, &others, case, metric);
                    let is_refused =
                        summaries.iter().any(|summary| is_refused(summary, &proxy.name, &case.name, metric));
                    let figures = [one, other];
                    let counted = summaries[0].counted();
                    cells.push(Cell { proxy, case, metric, counted, figures, logs, controls, is_refused });
                }
            }
        }
    }
    cells
}

/// Figures grouped by proxy and metric.
fn groups<'c, 'r>(cells: &'c [Cell<'r>]) -> Vec<Vec<&'c Cell<'r>>> {
    cells
        .chunk_by(|one, other| one.proxy.name == other.proxy.name && one.metric == other.metric)
        .map(|group| group.iter().collect())
        .collect()
}

/// Logarithms of a figure in both runs, minus the mean of the controls that were measured in every round of it. Also
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

/// Round and value of each valid measurement. A repeated measurement replaces the earlier; of a search, the found rate
/// counts.
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

/// Scale of the noise within a case and run, from the median of the differences. One disturbed value in ten does not
/// affect it.
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

/// Quantile of the standard normal distribution for a share of at least a half, with four digits (Abramowitz and
/// Stegun, 26.2.23).
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
