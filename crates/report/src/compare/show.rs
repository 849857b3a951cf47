//! A comparison as sentences, table and JSON, for all forms of the report.

use serde::Serialize;

use super::{Basis, ChangeVerdict, Comparison, Doubt, FigureChange, Interval};
use crate::figure;
use crate::judge::OTHERS;
use crate::results::Results;
use crate::summary::{CaseSummary, Metric, Summary};
use crate::table::{NOTHING, TextTable};

/// Verdicts as sentences, then caveats.
pub fn sentences(comparison: &Comparison<'_>) -> Vec<String> {
    let mut said = Vec::new();
    for verdict in [ChangeVerdict::Worse, ChangeVerdict::Better] {
        let found = comparison.changes.iter().filter(|change| change.verdict == verdict);
        said.extend(found.map(|change| sentence(change, word(verdict))));
    }
    if comparison.is_disjoint {
        said.push("The two results have no proxy and case in common: nothing is compared.".to_owned());
    } else if said.is_empty() {
        said.push("No difference beyond noise and drift.".to_owned());
    }
    let has =
        |doubt| comparison.changes.iter().any(|change| change.verdict == ChangeVerdict::Undecided(doubt));
    let doubts = [
        (Doubt::FewRounds, "Figures with fewer than three valid rounds on either side are undecided."),
        (
            Doubt::Refused,
            "Figures that the judge does not rank in one of the results are undecided: the reasons are in their own reports.",
        ),
        (Doubt::Absent, "Figures that the second results do not have are undecided."),
        (
            Doubt::Spread,
            "Figures are undecided if their spread could hide that they became worse by half: measure longer, or with \
             more rounds.",
        ),
    ];
    said.extend(doubts.iter().filter(|(doubt, _)| has(*doubt)).map(|(_, text)| (*text).to_owned()));
    said.extend(comparison.differences.iter().cloned());
    said.push(match &comparison.basis {
        Basis::Controls(names) => format!(
            "Ratios are relative to {}, which are the same in both: this removes the drift of the machine.",
            names.join(", ")
        ),
        Basis::SameMachine => {
            "The two runs have no unchanged peer in common, so drift of the machine cannot be distinguished from \
             change: add a peer to the plan for a sharper comparison."
                .to_owned()
        }
        Basis::Machines => {
            "The two runs used different machines: each ratio includes the difference between the machines.".to_owned()
        }
    });
    said.extend(
        [(comparison.before, "first"), (comparison.after, "second")].into_iter().filter_map(disturbed),
    );
    said.extend(comparison.unmatched.iter().map(|what| format!("{what}.")));
    said
}

/// A change for the better or worse: `mine became worse in errors, tiny: 0.000% before, 0.500% after.`
fn sentence(change: &FigureChange, word: &str) -> String {
    let moved = match change.figures.filter(|_| change.ratio.is_none()) {
        Some([before, after]) => {
            let [before, after] = [before, after].map(|estimate| change.metric.figure(estimate.median));
            format!("{before} before, {after} after")
        }
        None => shift(change),
    };
    let note = change.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
    format!("{} became {word} in {}: {moved}{note}.", change.proxy, place(change))
}

/// Metric and case of a change: `memory, over all cases`.
pub fn place(change: &FigureChange) -> String {
    let case = change.case.as_deref().unwrap_or("over all cases");
    format!("{}, {case}", change.metric.phrase(change.counted))
}

/// Caveat about other processes during a run. If they ran in all its rounds, no interval shows their effect.
fn disturbed((results, which): (&Results, &str)) -> Option<String> {
    let summary = Summary::from_results(results);
    let is_disturbed = |case: &&CaseSummary<'_>| case.findings.iter().any(|finding| finding.rule == OTHERS);
    let cases = summary.cases.iter().filter(is_disturbed).count();
    (cases > 0).then(|| {
        format!(
            "In the {which} results, other programs used CPU time in {cases} of {}: they may have caused the \
             differences. Measure again on an idle machine.",
            figure::things(summary.cases.len(), "case")
        )
    })
}

pub fn table(comparison: &Comparison<'_>) -> TextTable {
    let row = |change: &FigureChange| {
        let figure = |side: usize| match change.figures {
            Some(figures) => {
                let estimate = figures[side];
                let median = change.metric.figure(estimate.median);
                // A single round has no known spread.
                if estimate.count > 1 {
                    format!("{median} ±{}", figure::percent(estimate.spread()))
                } else {
                    median
                }
            }
            None => NOTHING.to_owned(),
        };
        vec![
            change.proxy.clone(),
            change.case.clone().unwrap_or_else(|| "all cases".to_owned()),
            change.metric.heading(change.counted).to_owned(),
            figure(0),
            figure(1),
            shift(change),
            shown(change.verdict),
        ]
    };
    // Counts are shown only if they changed: usually no round is lost, and no request fails.
    let is_shown = |change: &&FigureChange| change.ratio.is_some() || change.verdict != ChangeVerdict::Equal;
    TextTable {
        caption: format!(
            "{} ({}) and {} ({})",
            comparison.before.title,
            figure::date(comparison.before.started_unix_seconds),
            comparison.after.title,
            figure::date(comparison.after.started_unix_seconds)
        ),
        headings: ["proxy", "case", "figure", "before", "after", "change", "verdict"]
            .map(str::to_owned)
            .to_vec(),
        rows: comparison.changes.iter().filter(is_shown).map(row).collect(),
    }
}

/// Formats the changes as one line of JSON.
pub fn json(comparison: &Comparison<'_>) -> String {
    #[derive(Serialize)]
    struct Shown<'c> {
        basis: &'static str,
        controls: &'c [String],
        changes: Vec<ShownChange<'c>>,
        unmatched: &'c [String],
        differences: &'c [String],
        gated: &'c [String],
    }
    #[derive(Serialize)]
    struct ShownChange<'c> {
        proxy: &'c str,
        case: Option<&'c str>,
        metric: &'static str,
        before: Option<[f64; 3]>,
        after: Option<[f64; 3]>,
        ratio: Option<[f64; 3]>,
        verdict: &'static str,
        why: Option<&'static str>,
    }
    let (basis, controls) = match &comparison.basis {
        Basis::Controls(names) => ("controls", names.as_slice()),
        Basis::SameMachine => ("same-machine", &[][..]),
        Basis::Machines => ("machines", &[][..]),
    };
    let side = |change: &FigureChange, side: usize| {
        change.figures.map(|figures| [figures[side].low, figures[side].median, figures[side].high])
    };
    let changes = comparison.changes.iter().map(|change| ShownChange {
        proxy: &change.proxy,
        case: change.case.as_deref(),
        metric: change.metric.key(),
        before: side(change, 0),
        after: side(change, 1),
        ratio: known(change).map(|ratio| [ratio.low, ratio.middle, ratio.high]),
        verdict: word(change.verdict),
        why: match change.verdict {
            ChangeVerdict::Undecided(doubt) => Some(why(doubt)),
            ChangeVerdict::Better | ChangeVerdict::Worse | ChangeVerdict::Equal => None,
        },
    });
    let Comparison { unmatched, differences, gated, .. } = comparison;
    let shown = Shown { basis, controls, changes: changes.collect(), unmatched, differences, gated };
    serde_json::to_string(&shown).expect("strings and finite numbers")
}

/// Text of a change: `+4.9% (3.1% to 6.7%)`.
fn shift(change: &FigureChange) -> String {
    let Some(ratio) = known(change) else { return NOTHING.to_owned() };
    let signed =
        |ratio: f64| format!("{}{:.1}%", if ratio >= 1.0 { "+" } else { "−" }, (ratio - 1.0).abs() * 100.0);
    format!("{} ({} to {})", signed(ratio.middle), signed(ratio.low), signed(ratio.high))
}

/// Returns the ratio, if it is meaningful.
fn known(change: &FigureChange) -> Option<Interval> {
    let is_claimed = !matches!(
        change.verdict,
        ChangeVerdict::Undecided(Doubt::FewRounds | Doubt::Refused | Doubt::Absent)
    );
    change.ratio.filter(|ratio| is_claimed && ratio.low.is_finite() && ratio.high.is_finite())
}

/// A verdict with its doubt: `undecided: fewer than 3 rounds`.
fn shown(verdict: ChangeVerdict) -> String {
    match verdict {
        ChangeVerdict::Undecided(doubt) => format!("{}: {}", word(verdict), why(doubt)),
        ChangeVerdict::Better | ChangeVerdict::Worse | ChangeVerdict::Equal => word(verdict).to_owned(),
    }
}

fn word(verdict: ChangeVerdict) -> &'static str {
    match verdict {
        ChangeVerdict::Better => "better",
        ChangeVerdict::Worse => "worse",
        ChangeVerdict::Equal => "equal",
        ChangeVerdict::Undecided(_) => "undecided",
    }
}

/// The reason why a change is undecided, in a few words.
pub fn why(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::FewRounds => "fewer than 3 rounds",
        Doubt::Refused => "not ranked",
        Doubt::Absent => "not measured",
        Doubt::Spread => "spread",
    }
}

impl Metric {
    /// Name of a verdict in files for programs.
    pub fn key(self) -> &'static str {
        match self {
            Self::RequestsPerSecond => "requests_per_second",
            Self::LatencyP50 => "latency_p50_us",
            Self::LatencyP99 => "latency_p99_us",
            Self::CpuPerRequest => "cpu_per_request_us",
            Self::Memory => "memory_bytes",
            Self::LostRounds => "lost_rounds_share",
            Self::FailedShare => "failed_share",
            Self::ResponseBytes => "response_bytes",
        }
    }
}
