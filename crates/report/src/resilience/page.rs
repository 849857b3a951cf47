//! Page of a resilience run: one file that works without network and scripts, in light, dark and print.

use serde::Serialize;

use crate::page::{PageError, placed};
use crate::resilience::{Results, chart, text};
use crate::table::TextTable;
use crate::{chart as charts, figure};

#[derive(Serialize)]
struct ResiliencePage<'r> {
    style: &'static str,
    chart_style: &'static str,
    time_style: &'static str,
    title: &'r str,
    lede: String,
    verdict: String,
    absent: Vec<String>,
    /// Expectations that any proxy missed.
    missed: Option<TextTable>,
    /// All proxies in one table, if there are several.
    beside: Option<TextTable>,
    expectations: Option<TextTable>,
    sections: Vec<ProxySection>,
    conditions: Vec<(String, String)>,
    plan: &'r str,
}

#[derive(Serialize)]
struct ProxySection {
    name: String,
    chart: String,
    figures: TextTable,
    notes: Vec<String>,
    started: String,
    files: Vec<(String, String)>,
}

pub fn page(results: &Results) -> Result<String, PageError> {
    let scale = chart::AxisScale::from_results(results);
    let sections = results.runs.iter().enumerate().map(|(index, run)| {
        let mut figures = text::figures(results, run);
        let name = std::mem::replace(
            &mut figures.caption,
            "Figures by phase, for the requests due in it".to_owned(),
        );
        // The chart has the numbers.
        let phases = results.phases.len();
        for (row, number) in figures.rows.iter_mut().zip(1..).take(phases) {
            row[0] = format!("{number} {}", row[0]);
        }
        let bounds = format!(
            "Recovered: the time after which the rest of the phase has {}.",
            run.recovered.join(" and ")
        );
        let examples = run.error_examples.iter().map(|(kind, text)| format!("{kind}: {text}"));
        ProxySection {
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
        ("Same for every proxy", results.alike.join("; ")),
        ("Machine", format!("{}, {}", machine.processor, figure::things(machine.cores, "core"))),
        ("Kernel", machine.kernel.clone()),
        ("Made by", format!("vanward {}", results.version)),
        ("Command to repeat it", results.command.clone()),
    ];
    let page = ResiliencePage {
        style: include_str!("../page.css"),
        chart_style: charts::STYLE,
        time_style: chart::STYLE,
        title: &results.title,
        lede: format!(
            "Results for clients of {} while servers, links and configurations changed; {}.",
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

fn missed(results: &Results) -> Option<TextTable> {
    let missed: Vec<_> = results.expectations.iter().filter(|each| !each.is_met).cloned().collect();
    let table = TextTable { caption: "Missed expectations".to_owned(), ..text::expectations(&missed) };
    (!missed.is_empty()).then_some(table)
}

fn verdict(results: &Results) -> String {
    let required = results.expectations.iter().filter(|each| each.is_required).count();
    match (required, results.missed().count()) {
        (0, _) => "The plan has no expectations.".to_owned(),
        (required, 0) => format!("All {} were met.", figure::things(required, "expectation")),
        (required, missed) => format!("{missed} of {required} expectations were missed."),
    }
}
