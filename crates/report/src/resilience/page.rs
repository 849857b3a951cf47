//! Page of a resilience run: one file that works without network and scripts, in light, dark and print.

use serde::Serialize;

use crate::page::{PageError, placed};
use crate::resilience::{Results, chart, text};
use crate::table::Table;
use crate::{chart as charts, figure};

/// Data of the template.
#[derive(Serialize)]
struct Page<'r> {
    style: &'static str,
    chart_style: &'static str,
    time_style: &'static str,
    title: &'r str,
    lede: String,
    verdict: String,
    absent: Vec<String>,
    /// Expectations that were missed, by any proxy.
    missed: Option<Table>,
    /// All proxies in one table, if there are several.
    beside: Option<Table>,
    expectations: Option<Table>,
    sections: Vec<Section>,
    conditions: Vec<(String, String)>,
    plan: &'r str,
}

/// A proxy.
#[derive(Serialize)]
struct Section {
    name: String,
    chart: String,
    figures: Table,
    notes: Vec<String>,
    started: String,
    files: Vec<(String, String)>,
}

/// The page.
pub fn page(results: &Results) -> Result<String, PageError> {
    let scale = chart::Scale::of(results);
    let sections = results.runs.iter().enumerate().map(|(index, run)| {
        let mut figures = text::figures(results, run);
        let name = std::mem::replace(
            &mut figures.caption,
            "Figures by phase, of requests that were due in it".to_owned(),
        );
        // The chart has the numbers.
        let phases = results.phases.len();
        for (row, number) in figures.rows.iter_mut().zip(1..).take(phases) {
            row[0] = format!("{number} {}", row[0]);
        }
        let bounds =
            format!("Recovered: from when the rest of the phase has {}.", run.recovered.join(" and "));
        let examples = run.error_examples.iter().map(|(kind, text)| format!("{kind}: {text}"));
        Section {
            name,
            chart: chart::draw(results, run, scale, &format!("time-{index}")),
            figures,
            notes: run.problems.iter().chain(&run.remarks).cloned().chain(examples).chain([bounds]).collect(),
            started: run.command.clone(),
            files: run.files.iter().map(|file| (file.name.clone(), file.text.clone())).collect(),
        }
    });
    let machine = &results.machine;
    let facts = [
        ("Alike for every proxy", results.alike.join("; ")),
        ("Machine", format!("{}, {}", machine.processor, figure::things(machine.cores, "core"))),
        ("Kernel", machine.kernel.clone()),
        ("Made by", format!("vanward {}", results.version)),
        ("To repeat it", results.command.clone()),
    ];
    let page = Page {
        style: include_str!("../page.css"),
        chart_style: charts::STYLE,
        time_style: chart::STYLE,
        title: &results.title,
        lede: format!(
            "What clients of {} got while servers, links and configurations changed; {}.",
            results.runs.iter().map(|run| run.proxy.as_str()).collect::<Vec<_>>().join(", "),
            figure::date(results.started_unix_seconds)
        ),
        verdict: verdict(results),
        absent: results
            .absent
            .iter()
            .map(|one| format!("{} took no part: {}", one.proxy, one.remedy))
            .collect(),
        missed: missed(results),
        beside: (results.runs.len() > 1).then(|| text::beside(results)),
        expectations: (!results.expectations.is_empty()).then(|| text::expectations(&results.expectations)),
        sections: sections.collect(),
        conditions: facts.map(|(name, value)| (name.to_owned(), value)).into(),
        plan: &results.plan.text,
    };
    placed(include_str!("../resilience.html"), page)
}

fn missed(results: &Results) -> Option<Table> {
    let missed: Vec<_> = results.expectations.iter().filter(|each| !each.is_met).cloned().collect();
    let table = Table { caption: "Missed expectations".to_owned(), ..text::expectations(&missed) };
    (!missed.is_empty()).then_some(table)
}

fn verdict(results: &Results) -> String {
    let required = results.expectations.iter().filter(|each| each.is_required).count();
    match (required, results.missed().count()) {
        (0, _) => "The plan expects nothing.".to_owned(),
        (required, 0) => format!("All {} were met.", figure::things(required, "expectation")),
        (required, missed) => format!("{missed} of {required} expectations were missed."),
    }
}
