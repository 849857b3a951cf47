//! A comparison as sentences, table and JSON, for all forms of the report.

use serde::Serialize;

use super::{Basis, Change, Comparison, Verdict};
use crate::figure;
use crate::judge::OTHERS;
use crate::results::Results;
use crate::summary::{CaseSummary, Metric, Summary};
use crate::table::{NOTHING, Table};

/// Verdicts as sentences, then caveats.
pub fn sentences(comparison: &Comparison<'_>) -> Vec<String> {
    let mut said = Vec::new();
    for (verdict, word) in [(Verdict::Worse, "worse"), (Verdict::Better, "better")] {
        let found = comparison.changes.iter().filter(|change| change.verdict == verdict);
        said.extend(found.map(|change| {
            format!(
                "{} became {word} in {}, {}: {}.",
                change.proxy,
                change.metric.phrase(change.counted),
                change.case.as_deref().unwrap_or("over all cases"),
                shift(change)
            )
        }));
    }
    if said.is_empty() {
        said.push("No difference beyond noise and drift.".to_owned());
    }
    if comparison.changes.iter().any(|change| change.verdict == Verdict::Unjudged) {
        said.push("Where fewer than three repeats count on either side, nothing is claimed.".to_owned());
    }
    if comparison.changes.iter().any(|change| change.verdict == Verdict::Refused) {
        said.push(
            "What the judge refused in one of the results is not compared: the reasons are in their own reports.".to_owned(),
        );
    }
    said.extend(comparison.differences.iter().cloned());
    said.push(match &comparison.basis {
        Basis::Controls(names) => format!(
            "Ratios are taken beside {}, which are the same in both: what the machine drifted is taken off.",
            names.join(", ")
        ),
        Basis::SameMachine => {
            "Nothing in both runs is known to be the same, so that drift of the machine cannot be told \
             from change: add a peer to the plan for a sharper comparison."
                .to_owned()
        }
        Basis::Machines => {
            "The two ran on different machines: a ratio is that of proxy and machine together.".to_owned()
        }
    });
    said.extend(
        [(comparison.before, "first"), (comparison.after, "second")].into_iter().filter_map(disturbed),
    );
    said.extend(comparison.unmatched.iter().map(|what| format!("{what}.")));
    said
}

/// Caveat about other processes during a run. If they ran in all its rounds, no interval shows their effect.
fn disturbed((results, which): (&Results, &str)) -> Option<String> {
    let summary = Summary::of(results);
    let is_disturbed = |case: &&CaseSummary<'_>| case.findings.iter().any(|finding| finding.rule == OTHERS);
    let cases = summary.cases.iter().filter(is_disturbed).count();
    (cases > 0).then(|| {
        format!(
            "In the {which} results others took a part of the machine in {cases} of {}: what differs may be their doing. \
             Measure again on a machine that does nothing else.",
            figure::things(summary.cases.len(), "case")
        )
    })
}

/// Table with a row for each change.
pub fn table(comparison: &Comparison<'_>) -> Table {
    let row = |change: &Change| {
        let figure = |side: usize| match change.figures {
            Some(figures) => {
                let estimate = figures[side];
                let median = change.metric.figure(estimate.median);
                // Of one round nobody knows the spread.
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
            word(change.verdict).to_owned(),
        ]
    };
    Table {
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
        rows: comparison.changes.iter().map(row).collect(),
    }
}

/// The changes as one line of JSON.
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
        verdict: Verdict,
    }
    let (basis, controls) = match &comparison.basis {
        Basis::Controls(names) => ("controls", names.as_slice()),
        Basis::SameMachine => ("same-machine", &[][..]),
        Basis::Machines => ("machines", &[][..]),
    };
    let side = |change: &Change, side: usize| {
        change.figures.map(|figures| [figures[side].low, figures[side].median, figures[side].high])
    };
    let changes = comparison.changes.iter().map(|change| ShownChange {
        proxy: &change.proxy,
        case: change.case.as_deref(),
        metric: change.metric.key(),
        before: side(change, 0),
        after: side(change, 1),
        ratio: is_known(change).then_some([change.ratio.low, change.ratio.middle, change.ratio.high]),
        verdict: change.verdict,
    });
    let Comparison { unmatched, differences, gated, .. } = comparison;
    let shown = Shown { basis, controls, changes: changes.collect(), unmatched, differences, gated };
    serde_json::to_string(&shown).expect("strings and finite numbers")
}

/// Text of a change: `+4.9% (3.1% to 6.7%)`.
fn shift(change: &Change) -> String {
    if !is_known(change) {
        return NOTHING.to_owned();
    }
    let signed =
        |ratio: f64| format!("{}{:.1}%", if ratio >= 1.0 { "+" } else { "−" }, (ratio - 1.0).abs() * 100.0);
    let ratio = change.ratio;
    format!("{} ({} to {})", signed(ratio.middle), signed(ratio.low), signed(ratio.high))
}

fn is_known(change: &Change) -> bool {
    let is_claimed = !matches!(change.verdict, Verdict::Unjudged | Verdict::Refused);
    is_claimed && change.ratio.low.is_finite() && change.ratio.high.is_finite()
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Even => "no difference",
        Verdict::Unjudged => "unjudged",
        Verdict::Refused => "refused",
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
        }
    }
}
