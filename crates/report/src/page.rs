//! HTML page: one file that works without network and scripts, in light, dark and print.
//!
//! The template only arranges; all words and numbers come from modules that the terminal report uses too.

use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

use crate::compare::{Comparison, show};
use crate::judge;
use crate::leaders::{self, LeaderAnswer};
use crate::overview::{self, BrokenRule, Shown};
use crate::results::{
    Arrivals, Case, ComparedProxy, Cores, MachinePlace, ProxyRole, Run, RunMachine, Started, StartedProcess,
};
use crate::summary::{CaseSummary, Summary};
use crate::table::{self, TextTable};
use crate::{
    chart::{self, Chart},
    figure, findings, text,
};

/// A larger page would be hard to use and to mail.
const BYTES_MOST: usize = 1 << 20;

#[derive(Debug)]
pub enum PageError {
    /// The template does not fit its data: a bug.
    Template(minijinja::Error),
    TooLarge {
        bytes: usize,
    },
}

impl std::fmt::Display for PageError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Template(cause) => write!(out, "the report page: {cause}; please report this bug"),
            Self::TooLarge { bytes } => write!(
                out,
                "the report page would have {} and may have {}: run fewer cases or proxies at a time",
                figure::memory_bytes(*bytes as f64),
                figure::memory_bytes(BYTES_MOST as f64)
            ),
        }
    }
}

impl std::error::Error for PageError {}

/// Renders the complete page. If the charts of all cases do not fit, only closed loops have charts, or no single case
/// has. The tables stay, and a caveat explains it.
pub fn render(summary: &Summary<'_>) -> Result<String, PageError> {
    let mut page = page(summary);
    for detail in [Detail::Full, Detail::ClosedLoops, Detail::Drawn] {
        page.leave_out(summary, detail);
        match placed(include_str!("page.html"), &page) {
            Err(PageError::TooLarge { .. }) => {}
            placed => return placed,
        }
    }
    page.leave_out(summary, Detail::Tables);
    placed(include_str!("page.html"), &page)
}

/// The cases that have charts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    Full,
    /// Closed loops only: constant rates have one chart together.
    ClosedLoops,
    /// Closed loops only, without zoom.
    Drawn,
    Tables,
}

pub fn comparison(comparison: &Comparison<'_>) -> Result<String, PageError> {
    #[derive(Serialize)]
    struct ReportPage {
        style: &'static str,
        sentences: Vec<String>,
        changes: TextTable,
    }
    let page = ReportPage {
        style: include_str!("page.css"),
        sentences: show::sentences(comparison),
        changes: show::table(comparison),
    };
    placed(include_str!("compare.html"), page)
}

pub(crate) fn placed(template: &str, page: impl Serialize) -> Result<String, PageError> {
    let mut templates = Environment::new();
    templates.set_auto_escape_callback(|_| AutoEscape::Html);
    // Characters that could end the attribute are escaped for CSS.
    templates.add_filter("labels", |headings: Vec<String>| Value::from_safe_string(labels(&headings)));
    templates.add_template("macros", include_str!("macros.html")).map_err(PageError::Template)?;
    templates.add_template("page", template).map_err(PageError::Template)?;
    let page = templates
        .get_template("page")
        .and_then(|template| template.render(Serde(page)))
        .map_err(PageError::Template)?;
    if page.len() > BYTES_MOST {
        return Err(PageError::TooLarge { bytes: page.len() });
    }
    Ok(page)
}

/// Headings as CSS variables, from the second on: on a narrow screen each cell shows its own.
fn labels(headings: &[String]) -> String {
    let label = |(index, heading): (usize, &String)| {
        let mut text = String::new();
        for letter in heading.chars() {
            match letter {
                '\'' | '"' | '\\' | '<' | '>' | '&' | '\0'..=' ' if letter != ' ' => {
                    text.push_str(&format!("\\{:x} ", u32::from(letter)));
                }
                letter => text.push(letter),
            }
        }
        format!("--h{}:'{text}';", index + 1)
    };
    headings.iter().enumerate().skip(1).map(label).collect()
}

/// Zoom for time series: uPlot, and the script that passes it the samples.
#[derive(Serialize)]
struct Zoom {
    style: &'static str,
    library: &'static str,
    script: &'static str,
}

const ZOOM: Zoom = Zoom {
    style: include_str!("../vendor/uplot/uPlot.min.css"),
    library: include_str!("../vendor/uplot/uPlot.iife.min.js"),
    script: include_str!("zoom.js"),
};

#[derive(Serialize)]
struct Page<'r> {
    style: &'static str,
    chart_style: &'static str,
    zoom: Option<Zoom>,
    title: &'r str,
    lede: String,
    command: &'r str,
    legend: String,
    marks: String,
    /// The reason why nothing is ranked.
    headline: Option<String>,
    /// Whether the judge ranks nothing at all: then there are neither answers nor leaders.
    is_unranked: bool,
    answers: Vec<LeaderAnswer>,
    leaders: Option<TextTable>,
    findings: Vec<String>,
    /// Number of sentences: `2 sentences`.
    told: String,
    caveats: Vec<String>,
    omitted: Option<String>,
    standings: TextTable,
    expectations: Option<TextTable>,
    verdicts: Vec<BrokenRule>,
    kept: Vec<&'static str>,
    overview: Vec<Shown>,
    rates: Vec<Shown>,
    workers: Vec<Shown>,
    published: Option<TextTable>,
    published_verdicts: Vec<String>,
    cases: Vec<CaseSection>,
    conditions: Facts,
    machine: Facts,
    versions: Facts,
    processes: Vec<(String, &'r StartedProcess)>,
    commands: Facts,
}

fn page<'r>(summary: &Summary<'r>) -> Page<'r> {
    let results = summary.results;
    let RunMachine { processor, cores, kernel, .. } = &results.machine;
    let verdicts = overview::verdicts(summary);
    let is_unranked = leaders::is_unranked(summary);
    let findings = findings::sentences(summary);
    Page {
        style: include_str!("page.css"),
        chart_style: chart::STYLE,
        zoom: None,
        title: &results.title,
        lede: format!(
            "{} · {processor}, {cores} cores · {kernel} · {}",
            figure::date(results.started_unix_seconds),
            results.measured_by
        ),
        command: &results.command,
        legend: chart::legend(&results.proxies.iter().collect::<Vec<_>>()),
        marks: text::legend(summary),
        headline: findings::headline(summary),
        is_unranked,
        answers: if is_unranked { Vec::new() } else { leaders::answers(summary) },
        leaders: leaders::by_case(summary).filter(|_| !is_unranked),
        told: figure::things(findings.len(), "sentence"),
        findings,
        caveats: findings::caveats(summary),
        omitted: None,
        standings: findings::standings(summary),
        expectations: overview::expectations(summary),
        kept: kept(&verdicts),
        verdicts,
        overview: overview::beside_each_other(summary),
        rates: overview::latency_against_rate(summary),
        workers: overview::by_workers(summary),
        published: overview::published_ratios(summary),
        published_verdicts: overview::published_verdicts(summary),
        cases: summary.cases.iter().enumerate().map(|(index, case)| section(index, case)).collect(),
        conditions: conditions(summary),
        machine: machine(&results.machine),
        versions: versions(&results.proxies),
        processes: processes(summary),
        commands: commands(summary),
    }
}

/// Rules that no case breaks.
fn kept(broken: &[BrokenRule]) -> Vec<&'static str> {
    let names = judge::RULES.iter().map(|rule| rule.name);
    names.filter(|name| broken.iter().all(|broken| broken.rule != *name)).collect()
}

impl Page<'_> {
    fn leave_out(&mut self, summary: &Summary<'_>, detail: Detail) {
        let what = match detail {
            Detail::Full => "",
            Detail::ClosedLoops | Detail::Drawn => "of constant rates",
            Detail::Tables => "of single cases",
        };
        for (section, case) in self.cases.iter_mut().zip(&summary.cases) {
            let is_drawn = match detail {
                Detail::Full => true,
                Detail::ClosedLoops | Detail::Drawn => case.case.arrivals == Arrivals::Closed,
                Detail::Tables => false,
            };
            if !is_drawn {
                section.cpu_chart = None;
                section.latency_chart = None;
                section.over_time.clear();
                section.parts = None;
            }
            if detail == Detail::Drawn {
                section.over_time.iter_mut().for_each(|shown| shown.series = None);
            }
        }
        let can_zoom = self.cases.iter().flat_map(|case| &case.over_time).any(|shown| shown.series.is_some());
        self.zoom = can_zoom.then_some(ZOOM);
        if detail == Detail::Full {
            return;
        }
        self.omitted = Some(format!(
            "Charts {what} are left out to keep this page below 1 MiB; their tables are here, and their charts are \
             among the plot files."
        ));
    }
}

/// Section of a case: its figures, and charts with a table each.
#[derive(Serialize)]
struct CaseSection {
    figures: TextTable,
    streams: Option<TextTable>,
    errors: Option<TextTable>,
    cpu_heading: String,
    cpu_chart: Option<Chart>,
    cpu: TextTable,
    latency_heading: &'static str,
    latency_chart: Option<Chart>,
    percentiles: TextTable,
    over_time: Vec<Shown>,
    parts: Option<TextTable>,
}

fn section(index: usize, case: &CaseSummary<'_>) -> CaseSection {
    CaseSection {
        figures: table::figures(case),
        streams: table::streams(case),
        errors: table::errors(case),
        cpu_heading: format!("CPU time per {}", case.counted().one()),
        cpu_chart: chart::cpu_per_request(case, &format!("cpu-{index}")),
        cpu: table::cpu(case),
        latency_heading: chart::latency_heading(case),
        latency_chart: chart::latency(case, &format!("latency-{index}")),
        percentiles: table::percentiles(case),
        over_time: overview::over_time(case, index),
        parts: overview::parts(case),
    }
}

type Facts = Vec<(String, String)>;

fn machine(machine: &RunMachine) -> Facts {
    let mut facts = vec![
        ("Processor".to_owned(), machine.processor.clone()),
        ("Architecture".to_owned(), machine.architecture.clone()),
        ("Cores that may be used".to_owned(), machine.cores.to_string()),
        ("Memory".to_owned(), figure::memory_bytes(machine.memory_bytes as f64)),
        ("Kernel".to_owned(), machine.kernel.clone()),
        (
            "Frequency governor".to_owned(),
            machine.governor.clone().unwrap_or_else(|| "not reported by the kernel".to_owned()),
        ),
    ];
    facts.extend(machine.settings.iter().map(|(name, value)| (name.clone(), value.clone())));
    facts
}

fn conditions(summary: &Summary<'_>) -> Facts {
    let results = summary.results;
    let conditions = &results.conditions;
    let [one, five, fifteen] = conditions.load_before;
    let invalid = results.runs.iter().filter(|run| run.outcome.refusal().is_some()).count();
    let changes = (!conditions.changes.is_empty())
        .then(|| ("Changes to the plan".to_owned(), conditions.changes.join("; ")));
    let mut facts = vec![
        ("Date".to_owned(), figure::date(results.started_unix_seconds)),
        (
            "Load average before the run".to_owned(),
            format!("{one:.2}, {five:.2}, {fifteen:.2} (1, 5, 15 min)"),
        ),
        match results.machines.len() {
            0 => ("Cores assigned".to_owned(), cores(&conditions.cores)),
            _ => ("Machines".to_owned(), results.machines.iter().map(place).collect::<Vec<_>>().join(". ")),
        },
        (
            "Measurements".to_owned(),
            format!(
                "{} of {:.2} s each{} after {:.2} s of warm-up, {invalid} of them not counted; {} rounds, shuffled \
                 for each round (seed {}), with a new process of the proxy for each measurement",
                results.runs.len(),
                conditions.measured_seconds,
                otherwise_long(&results.cases),
                conditions.warm_up_seconds,
                conditions.rounds,
                conditions.seed
            ),
        ),
        ("Took".to_owned(), figure::span(results.took_seconds)),
        ("Same for all".to_owned(), conditions.alike.join("; ")),
    ];
    facts.extend(changes);
    facts
}

/// Text for cases with their own duration: ` (10.00 s in http-tiny-highest)`.
fn otherwise_long(cases: &[Case]) -> String {
    let say = |case: &Case| Some(format!("{:.2} s in {}", case.measured_seconds?, case.name));
    let said: Vec<String> = cases.iter().filter_map(say).collect();
    if said.is_empty() { String::new() } else { format!(" ({})", said.join(", ")) }
}

/// Text for one of several machines, with the parts on it.
fn place(place: &MachinePlace) -> String {
    let MachinePlace { name, address, machine, clock_uncertainty_us, .. } = place;
    let parts =
        [("proxy", &place.cores.proxy), ("origins", &place.cores.origins), ("load", &place.cores.load)];
    let here: Vec<&str> =
        parts.into_iter().filter(|(_, cores)| !cores.is_empty()).map(|(part, _)| part).collect();
    format!(
        "{} on {name} ({address}): {}, {} cores, {}; its clock is known to {clock_uncertainty_us} µs",
        here.join(" and "),
        machine.processor,
        machine.cores,
        machine.kernel,
    )
}

fn cores(cores: &Cores) -> String {
    let list = |cores: &[usize]| cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("proxy {}; origins {}; load {}", list(&cores.proxy), list(&cores.origins), list(&cores.load))
}

fn versions(proxies: &[ComparedProxy]) -> Facts {
    let named = proxies.iter().filter(|proxy| proxy.role != ProxyRole::Direct);
    named.map(|proxy| (proxy.name.clone(), proxy.version.clone())).collect()
}

/// Processes with their command and configuration files.
fn processes<'r>(summary: &Summary<'r>) -> Vec<(String, &'r StartedProcess)> {
    let results = summary.results;
    let proxies = results.proxies.iter().filter(|proxy| proxy.role != ProxyRole::Direct);
    let origins =
        results.origins.iter().enumerate().map(|(index, origin)| (format!("origin {}", index + 1), origin));
    let of_proxies = proxies.flat_map(|proxy| {
        proxy.started.iter().map(|started| (started_name(proxy, started), &started.process))
    });
    of_proxies.chain(origins).collect()
}

/// Name of a proxy, with the settings that it did not have in all cases.
fn started_name(proxy: &ComparedProxy, started: &Started) -> String {
    let is_everywhere = |phrase: &String| proxy.started.iter().all(|other| other.given.contains(phrase));
    let own: Vec<&str> =
        started.given.iter().filter(|phrase| !is_everywhere(phrase)).map(String::as_str).collect();
    if own.is_empty() { proxy.name.clone() } else { format!("{}, given: {}", proxy.name, own.join("; ")) }
}

/// The generator's command for each case; rounds differ only in the port.
fn commands(summary: &Summary<'_>) -> Facts {
    let first = |case: &Case| {
        let run: Option<&Run> = summary.results.runs.iter().find(|run| run.case == case.name);
        run.map_or_else(|| table::NOTHING.to_owned(), |run| run.command.clone())
    };
    summary.cases.iter().map(|case| (case.title(), first(case.case))).collect()
}
