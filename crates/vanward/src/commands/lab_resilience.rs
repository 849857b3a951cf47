//! `vanward lab resilience`: runs a plan with faults and events during the load. The crate `lab` runs it, the crate
//! `report` interprets the results.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::lab::resilience::{self, ResiliencePlan, RunReport};
use ::lab::{Grammar, experiments};
use report::resilience::{Results, render};
use report::results::File;

use super::demo::{interruption, print};
use super::{lab, lab_files};

/// Shows what clients get while servers die, links slow down and configurations are reloaded.
///
/// The load has a constant rate. At the times in the plan, events hit origins, proxy or links. Each proxy goes through
/// the same run, with restarted origins. Figures are reported by phase, with the time to recover.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LabResilienceArgs {
    /// Name of a built-in plan, as in `vanward lab list`, or a plan file
    plan: String,
    /// Multiply the times of the plan by `times` of its `[quick]`
    #[arg(long)]
    quick: bool,
    /// Run only these proxies of the plan, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    proxies: Vec<String>,
    /// Directory for report.html, results.json and junit.xml [default: resilience-NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the results as JSON instead of tables
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  vanward lab resilience dying-servers --quick
  vanward lab show dying-servers > plan.toml    a plan as a start for your own
  vanward lab resilience plan.toml --proxies vanward,nginx --out result

A plan:
  title = \"A server dies\"
  proxies = [\"vanward\", \"nginx\"]
  origins = 3
  rate = 500
  duration = \"20s\"
  [[event]]
  at = \"5s\"
  do = \"kill origin 2\"
  phase = \"origin 2 is dead\"
  [[event]]
  at = \"15s\"
  do = \"start origin 2\"
  [[fault]]
  from = \"8s\"
  until = \"10s\"
  inject = \"5%:503\"
  [[expect]]
  phase = \"origin 2 is dead\"
  that = [\"errors < 1%\", \"recovers within 2s\"]

Exit codes: 0 done, 1 failed or interrupted, 78 mistake in the plan, 98 figures invalid, 99 an expectation was missed.";

pub(crate) fn run(arguments: &LabResilienceArgs) -> ExitCode {
    let (name, text) = match experiments::resilience_named(&arguments.plan) {
        Some(plan) => (format!("{}.toml", plan.name), plan.text.to_owned()),
        None => match lab_files::read(Path::new(&arguments.plan), lab::PLAN_BYTES_MAX) {
            Ok(text) => (arguments.plan.clone(), text),
            Err(message) => {
                let names = experiments::RESILIENCE.map(|plan| plan.name).join(", ");
                return super::fail(
                    super::USAGE,
                    format!("{message}; expected a plan file, or one of {names}"),
                );
            }
        },
    };
    let mut plan = match ResiliencePlan::read(&text, &name, arguments.quick, grammar()) {
        Ok(plan) => plan,
        Err(mistakes) => return lab::refused(&mistakes),
    };
    match plan.choose(&arguments.proxies) {
        Ok(left_out) => left_out.iter().for_each(super::say),
        Err(message) => return super::fail(super::USAGE, message),
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(|error| format!("cannot start: {error}")).and_then(|runtime| {
        // Dropping the future ends every process that it started.
        runtime.block_on(measure(arguments, &plan, File { name, text }))
    });
    done.unwrap_or_else(|message| super::fail(super::FAILED, message))
}

static PROFILES: std::sync::LazyLock<Vec<&'static str>> =
    std::sync::LazyLock::new(|| config::PROFILES.iter().map(|profile| profile.name).collect());

fn grammar() -> Grammar {
    Grammar { fault, profiles: &PROFILES }
}

/// Lists the built-in plans with their durations.
pub(super) fn list() -> Result<String, String> {
    let mut out = "\nResilience runs (vanward lab resilience NAME)\n".to_owned();
    for built_in in experiments::RESILIENCE {
        let plan = |quick| {
            ResiliencePlan::read(built_in.text, built_in.name, quick, grammar())
                .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        };
        let (full, quick) = (plan(false)?, plan(true)?);
        out += &format!(
            "{:<18}{}\n{:18}{:?} for each proxy; with --quick {:?}\n",
            built_in.name, full.title, "", full.duration, quick.duration
        );
    }
    Ok(out)
}

/// Rejects faults that an injector cannot produce: it speaks plain HTTP/1.1 over TCP.
fn fault(text: &str) -> Result<(), String> {
    let injection = config::injection(text).map_err(|error| error.to_string())?;
    let (listen, server) = ("127.0.0.1:1".parse(), "http://127.0.0.1:2".parse());
    let (Ok(listen), Ok(server)) = (listen, server) else { return Ok(()) };
    let injector = config::Config::for_servers(vec![listen], vec![server]);
    let rules = super::faults::rules(&[injection]);
    let written: String = rules.iter().map(|rule| config::written_rule(rule, &injector)).collect();
    match config::faults(&written, "the fault", &injector) {
        Ok(_) => Ok(()),
        Err(mistakes) => Err(mistakes.first().map_or_else(String::new, |mistake| {
            let expected = mistake.expected.as_ref().map(|expected| format!("; expected {expected}"));
            format!(
                "{text:?} cannot be injected in a resilience run: {}{}",
                mistake.message,
                expected.unwrap_or_default()
            )
        })),
    }
}

async fn measure(
    arguments: &LabResilienceArgs,
    plan: &ResiliencePlan,
    file: File,
) -> Result<ExitCode, String> {
    let own = lab::own()?;
    let out = folder(arguments);
    let mut folder = lab_files::RunFolder::open(&out, false)?;
    let mut told = |told: RunReport<'_>| match told {
        RunReport::Begins(proxy) => super::say(format_args!("{proxy}: {:?} of load", plan.duration)),
        RunReport::Step(proxy, at, words) => super::say(format_args!("{proxy}: {at:?} {words}")),
    };
    let results = resilience::run(plan, &own, file, command(arguments), interruption(), &mut told).await;
    let results = results.map_err(|error| error.to_string())?;
    let written = folder.write_resilience(&results);
    // Even if the files fail, the figures are on the terminal.
    let mut text = if arguments.json { results.to_json() + "\n" } else { render(&results) };
    if !arguments.json && written.is_ok() {
        text += &format!("\nReport: {}\n", folder.file("report.html").display());
    }
    let judged = super::verdict::after(written.and(print(&text)), &verdict(&results));
    let filed = folder.judge(&super::verdict::junit_of_resilience(&results, &judged));
    Ok(super::verdict::ended(super::verdict::after(filed, &judged)))
}

/// Renders the page of a run again, and prints the tables unless only the page is wanted.
pub(super) fn remake(
    folder: &Path,
    results: &Results,
    only_page: bool,
    wants_plots: bool,
) -> Result<(), String> {
    if wants_plots {
        return Err(format!("{} is a resilience run, which has no charts as files", folder.display()));
    }
    lab_files::write_resilience_page(folder, results)?;
    match only_page {
        true => print(&format!("{}\n", folder.join("report.html").display())),
        false => print(&render(results)),
    }
}

/// Judges a run. If the load generator had too little CPU time, a missed expectation does not count against the proxy.
fn verdict(results: &Results) -> Result<(), (u8, String)> {
    if results.interrupted {
        let message = "interrupted; the results are those of the proxies before";
        return Err((super::FAILED, message.to_owned()));
    }
    let invalid: Vec<_> = results.runs.iter().filter(|run| !run.problems.is_empty()).collect();
    let is_invalid = |proxy: &str| invalid.iter().any(|run| run.proxy == proxy);
    let missed = results.missed().filter(|each| !is_invalid(&each.proxy)).count();
    if missed > 0 {
        let required = results.expectations.iter().filter(|each| each.is_required).count();
        return Err((lab::MISSED, format!("{missed} of {required} expectations were missed")));
    }
    match invalid.first() {
        Some(run) => {
            let message = format!("the figures of {} are invalid: {}", run.proxy, run.problems.join(" "));
            Err((lab::INVALID_RUN, message))
        }
        None => Ok(()),
    }
}

/// The default output directory: `resilience-dying` for `plans/dying.toml`.
fn folder(arguments: &LabResilienceArgs) -> PathBuf {
    let stem = Path::new(&arguments.plan).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    arguments.out.clone().unwrap_or_else(|| PathBuf::from(format!("resilience-{stem}")))
}

fn command(arguments: &LabResilienceArgs) -> String {
    let proxies =
        (!arguments.proxies.is_empty()).then(|| format!(" --proxies {}", arguments.proxies.join(",")));
    let quick = if arguments.quick { " --quick" } else { "" };
    format!("vanward lab resilience {}{quick}{}", arguments.plan, proxies.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results with these runs: a proxy, whether its figures are valid, and whether its expectation was met.
    fn results(runs: &[(&str, bool, bool)]) -> Results {
        let run = |(proxy, is_valid, _): &(&str, bool, bool)| {
            let problems = if *is_valid { "" } else { "\"late\"" };
            let figures = "{\"requests\": 1, \"errors\": {}, \"requests_per_second\": 1.0}";
            format!(
                "{{\"proxy\": \"{proxy}\", \"version\": \"\", \"command\": \"\", \"files\": [], \"whole\": {figures}, \
                 \"phases\": [], \"recovered\": [], \"slots\": [], \"error_examples\": {{}}, \"remarks\": [], \
                 \"problems\": [{problems}]}}"
            )
        };
        let expectation = |(proxy, _, is_met): &(&str, bool, bool)| {
            format!(
                "{{\"text\": \"errors = 0\", \"proxy\": \"{proxy}\", \"phase\": \"steady\", \"is_met\": {is_met}, \
                 \"is_required\": true}}"
            )
        };
        let joined = |parts: Vec<String>| parts.join(", ");
        let text = format!(
            "{{\"schema\": 1, \"title\": \"\", \"command\": \"\", \"plan\": {{\"name\": \"\", \"text\": \"\"}}, \
             \"version\": \"\", \"started_unix_seconds\": 0, \"machine\": {{\"processor\": \"\", \"architecture\": \"\", \
             \"cores\": 1, \"memory_bytes\": 1, \"kernel\": \"\", \"settings\": {{}}}}, \"alike\": [], \"slot_seconds\": 0.1, \
             \"phases\": [], \"marks\": [], \"runs\": [{}], \"absent\": [], \"expectations\": [{}], \"interrupted\": false}}",
            joined(runs.iter().map(run).collect()),
            joined(runs.iter().map(expectation).collect())
        );
        Results::from_json(&text).expect("results")
    }

    #[test]
    fn missed_expectations_count_if_the_figures_are_valid() {
        for (runs, expected) in [
            (&[("a", true, true), ("b", true, true)][..], None),
            (&[("a", true, false), ("b", true, true)], Some(lab::MISSED)),
            (&[("a", false, false), ("b", true, true)], Some(lab::INVALID_RUN)),
            (&[("a", false, true), ("b", true, true)], Some(lab::INVALID_RUN)),
            (&[("a", false, true), ("b", true, false)], Some(lab::MISSED)),
        ] {
            assert_eq!(verdict(&results(runs)).err().map(|(code, _)| code), expected, "{runs:?}");
        }
    }
}
