//! Results of a resilience run as text: a table for each proxy, and the expectations.

use crate::figure;
use crate::resilience::{Figures, Phase, PhaseExpectation, Recovery, ResilienceRun, Results};
use crate::table::{NOTHING, TextTable};
use crate::text;

pub fn render(results: &Results) -> String {
    let mut out = format!("{}\n", results.title);
    for absent in &results.absent {
        out += &format!("{} took no part: {}\n", absent.proxy, absent.remedy);
    }
    for run in &results.runs {
        out += &format!("\n{}", text::aligned(&figures(results, run)));
        for remark in run.remarks.iter().chain(&run.problems) {
            out += &format!("  {remark}\n");
        }
    }
    if !results.expectations.is_empty() {
        out += &format!("\n{}", text::aligned(&expectations(&results.expectations)));
    }
    out
}

/// The phases of a proxy.
pub(crate) fn figures(results: &Results, run: &ResilienceRun) -> TextTable {
    let headings =
        ["phase", "from", "requests/s", "requests", "failed", "p50", "p99", "max", "recovered", "errors"];
    let row = |name: &str, from: String, figures: &Figures| {
        let time = |us: Option<u64>| us.map_or_else(nothing, |us| figure::duration_us(us as f64));
        vec![
            name.to_owned(),
            from,
            figure::rate(figures.requests_per_second),
            figure::count(figures.requests as f64),
            figure::count(figures.failed() as f64),
            time(figures.p50_us),
            time(figures.p99_us),
            time(figures.max_us),
            figures.recovery.map_or_else(nothing, recovery),
            kinds(figures),
        ]
    };
    let of_phase =
        |(phase, figures): (&Phase, &Figures)| row(&phase.name, format!("{} s", phase.from_seconds), figures);
    let mut rows: Vec<Vec<String>> = results.phases.iter().zip(&run.phases).map(of_phase).collect();
    rows.push(row("whole run", String::new(), &run.whole));
    let name =
        if run.version.is_empty() { run.proxy.clone() } else { format!("{} {}", run.proxy, run.version) };
    TextTable { caption: name, headings: headings.map(str::to_owned).into(), rows }
}

/// The phases of all proxies: failures, 99th percentile, and recovery.
pub(crate) fn beside(results: &Results) -> TextTable {
    let cell = |figures: &Figures| {
        let all = figures.failed() + figures.requests;
        let failed = match figures.failed() {
            0 => "none failed".to_owned(),
            failed => format!("{:.2}% failed", 100.0 * failed as f64 / all as f64),
        };
        let p99 = figures.p99_us.map(|us| format!("p99 {}", figure::duration_us(us as f64)));
        let recovered = figures.recovery.map(|one| format!("recovered {}", recovery(one)));
        [Some(failed), p99, recovered].into_iter().flatten().collect::<Vec<_>>().join(", ")
    };
    let row = |(index, phase): (usize, &Phase)| {
        let cells = results.runs.iter().map(|run| cell(&run.phases[index]));
        [format!("{} {}", index + 1, phase.name)].into_iter().chain(cells).collect()
    };
    let headings = results.runs.iter().map(|run| run.proxy.clone());
    TextTable {
        caption: "All proxies compared, by phase".to_owned(),
        headings: ["phase".to_owned()].into_iter().chain(headings).collect(),
        rows: results.phases.iter().enumerate().map(row).collect(),
    }
}

/// All expectations, the missed ones first.
pub(crate) fn expectations(expectations: &[PhaseExpectation]) -> TextTable {
    let mut sorted: Vec<&PhaseExpectation> = expectations.iter().collect();
    sorted.sort_by_key(|each| (each.is_met, !each.is_required));
    let rows = sorted.into_iter().map(|each| {
        let result = match (each.is_met, each.is_required) {
            (true, _) => "met",
            (false, true) => "MISSED",
            (false, false) => "missed, not required",
        };
        let measured = each.measured.clone().unwrap_or_else(nothing);
        vec![each.text.clone(), each.proxy.clone(), each.phase.clone(), measured, result.to_owned()]
    });
    TextTable {
        caption: "Expectations".to_owned(),
        headings: ["expectation", "proxy", "phase", "measured", "result"].map(str::to_owned).into(),
        rows: rows.collect(),
    }
}

pub fn recovery(recovery: Recovery) -> String {
    match recovery {
        Recovery::AfterSeconds(0.0) => "at once".to_owned(),
        Recovery::AfterSeconds(seconds) => format!("after {seconds:.1} s"),
        Recovery::Never => "never".to_owned(),
    }
}

fn kinds(figures: &Figures) -> String {
    let told = figures.errors.iter().map(|(kind, count)| format!("{count} {kind}"));
    let told = told.collect::<Vec<_>>().join(", ");
    if told.is_empty() { nothing() } else { told }
}

fn nothing() -> String {
    NOTHING.to_owned()
}
