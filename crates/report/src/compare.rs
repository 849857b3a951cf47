//! Two results beside each other: what differs beyond noise and drift.
//!
//! Machines drift between runs. Where both runs hold peers of the same version on the same machine, these are the
//! controls: each figure is taken beside theirs of the same round before it is compared. Not here: words.

/// A comparison as sentences, a table and JSON.
pub mod show;
/// What two runs have unlike before any figure is.
mod unlike;

use crate::results::{Arrivals, Case, Proxy, Results, Role, Run};
use crate::statistics::{Estimate, median};
use crate::summary::{self, Metric, Summary};

/// The chance of claiming any difference where there is none, over all that is compared at once.
const FALSE_CLAIM: f64 = 0.04;
/// Drift that controls do not show, and that which nobody shows where there are none.
const DRIFT_BESIDE_CONTROLS: f64 = 0.005;
const DRIFT_ALONE: f64 = 0.015;
/// Fewer repeats than this on either side, and nothing is claimed.
const REPEATS_LEAST: usize = 3;
/// The spread of the differences of two values of a normal distribution, halved by their median.
const PAIR_MEDIAN: f64 = 0.954;
/// What the typical ratio of all pairs spreads more than a mean would.
const PAIRS_COST: f64 = 1.05;

/// Two results, compared.
#[derive(Debug)]
pub struct Comparison<'r> {
    /// The earlier, or whatever the other is compared with.
    pub before: &'r Results,
    /// The later.
    pub after: &'r Results,
    /// What differences were taken beside.
    pub basis: Basis,
    /// By proxy and metric: over all cases first, then a case each.
    pub changes: Vec<Change>,
    /// Proxies and cases that only one of them has.
    pub unmatched: Vec<String>,
    /// What else the two have unlike: durations, rates, machines; a sentence each.
    pub differences: Vec<String>,
    /// Whose figures a gate is about: the subject's, and where both runs have none those of programs whose version nobody
    /// knows. Peers are what a change is seen beside.
    pub gated: Vec<String>,
}

/// What differences are taken beside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Basis {
    /// Peers that are the same in both: their drift is the machine's.
    Controls(Vec<String>),
    /// One machine, and nothing on it that is known to be the same.
    SameMachine,
    /// Two machines: their difference is part of what is compared.
    Machines,
}

/// How one figure of a proxy changed.
#[derive(Debug, Clone)]
pub struct Change {
    /// The proxy's name.
    pub proxy: String,
    /// The case's name; `None` is all of them together.
    pub case: Option<String>,
    /// Of what.
    pub metric: Metric,
    /// Both figures; `None` over all cases.
    pub figures: Option<[Estimate; 2]>,
    /// After by before, beside the controls: the typical ratio and where it may lie.
    pub ratio: Interval,
    /// What may be said.
    pub verdict: Verdict,
}

/// A ratio and where it may lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The typical one.
    pub middle: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// What may be said of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Better than noise and drift explain.
    Better,
    /// Worse than they explain.
    Worse,
    /// No difference.
    Even,
    /// Too few repeats.
    Unjudged,
    /// The judge refuses the figure in one of the results: see there.
    Refused,
}

/// The figures of a proxy, metric and case in both runs, as logarithms beside the controls.
struct Cell<'r> {
    proxy: &'r Proxy,
    case: &'r Case,
    metric: Metric,
    figures: [Estimate; 2],
    logs: [Vec<f64>; 2],
    /// Which controls they are beside: those that were measured in every round that it was.
    controls: Vec<String>,
    /// Whether the judge refuses it in one of the results.
    is_refused: bool,
}

impl<'r> Comparison<'r> {
    /// Matches proxies and cases by name, and compares what both have.
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

    /// What became worse of those that a gate is about, by at least `threshold`, a share.
    pub fn regressions(&self, threshold: f64) -> impl Iterator<Item = &Change> {
        self.of_gate()
            .filter(move |change| change.verdict == Verdict::Worse && change.magnitude() >= threshold)
    }

    /// Whether a gate has anything to go by.
    pub fn has_judged(&self) -> bool {
        self.of_gate().any(|change| !matches!(change.verdict, Verdict::Unjudged | Verdict::Refused))
    }

    fn of_gate(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| self.gated.contains(&change.proxy))
    }
}

impl Change {
    /// By how much the figure differs, as a share of what it was.
    pub fn magnitude(&self) -> f64 {
        (self.ratio.middle - 1.0).abs()
    }
}

/// A difference of logarithms, and its standard error.
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

    /// What may differ though nothing was changed.
    fn drift(&self) -> f64 {
        if self.controls.is_empty() { DRIFT_ALONE } else { DRIFT_BESIDE_CONTROLS }
    }

    /// The median of all differences between a value after and one before: near the mean in precision, near the
    /// median in what a disturbed value does to it.
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

    /// What became of a figure that shifted, where so many errors are still noise.
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
        Change { proxy: self.proxy.name.clone(), case, metric: self.metric, figures, ratio, verdict }
    }
}

/// Controls are what was not changed: the same version of another's program, or no program at all.
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

/// Whom a gate is about.
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

/// Whether the judge refuses a figure of a proxy in a case of that summary.
fn is_refused(summary: &Summary<'_>, proxy: &str, case: &str, metric: Metric) -> bool {
    let is_rate = metric == Metric::RequestsPerSecond;
    let of_case = summary.cases.iter().filter(|one| one.case.name == case);
    of_case.flat_map(|one| &one.findings).any(|finding| finding.spoils(proxy, is_rate))
}

/// In the order of the results: proxies, metrics, cases.
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
                    cells.push(Cell { proxy, case, metric, figures, logs, controls, is_refused });
                }
            }
        }
    }
    cells
}

/// The cells of each proxy and metric.
fn groups<'c, 'r>(cells: &'c [Cell<'r>]) -> Vec<Vec<&'c Cell<'r>>> {
    cells
        .chunk_by(|one, other| one.proxy.name == other.proxy.name && one.metric == other.metric)
        .map(|group| group.iter().collect())
        .collect()
}

/// The logarithms of a figure in both runs, less the mean of those controls that both measured in every round of it; and
/// which those are.
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

/// Round and value of each valid measurement; of repeated ones the last, of a search what it found.
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

/// How far values of one case and run lie from each other: by the median of their differences, which one disturbed
/// value in ten does not move.
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

/// The value below which a share of the standard normal distribution lies; of shares from a half up, to four digits
/// (Abramowitz and Stegun, 26.2.23).
fn normal_quantile(share: f64) -> f64 {
    let t = (-2.0 * (1.0 - share).max(1e-12).ln()).sqrt();
    t - (2.515_517 + t * (0.802_853 + t * 0.010_328))
        / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

/// How far a value may lie from the mean, in errors that were estimated from so many independent values: farther than
/// by the normal distribution, since a few are alike by chance (Student's, by the first term of its expansion).
fn of_few(normal: f64, values: usize) -> f64 {
    normal + (normal.powi(3) + normal) / (4.0 * values.max(1) as f64)
}

#[cfg(test)]
mod tests;
