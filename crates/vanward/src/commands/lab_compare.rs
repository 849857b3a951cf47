//! `vanward lab compare`: compares two results. The crate `report` compares; this module writes the output.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use report::compare::{ChangeVerdict, Comparison, FigureChange, Gate, show};
use report::{figure, markdown, page, text};

use super::demo::print;
use super::lab_files;

/// Exit code: nothing to compare, or a figure is undecided.
const UNDECIDED: u8 = 98;
/// Exit code: a figure became worse.
const MISSED: u8 = 99;
const NAMED_MOST: usize = 4;

/// Compares two results, with intervals.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct LabCompareArgs {
    /// Directory, results.json or results.json.gz of the first result (the baseline)
    before: PathBuf,
    /// The second result
    after: PathBuf,
    /// Print Markdown instead of text
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print the changes as JSON
    #[arg(long)]
    json: bool,
    /// Also write an HTML page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Exit with 99 if a figure of Vanward became worse by at least this percentage, beyond noise, and with 98 if one is undecided
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_on: Option<f64>,
}

const EXAMPLES: &str = "\
Peers of the same version in both results are the control: their change between the runs is the drift of the machine, which
is subtracted. Without a control, or on two machines, only larger differences are reported.

Examples:
  vanward lab compare before after                  differences beyond noise and drift
  vanward lab compare main branch --fail-on 3       for a CI job
  vanward lab compare amd64 arm64 --html arms.html  two machines

--fail-on judges Vanward, or if neither result has it the programs of [command], and not peers. Each figure of the first result is
better, worse, equal or undecided in the second. A figure is undecided if the second result does not have it, if fewer than three
rounds count, if the judge of either run does not rank it, or if it spreads so much that it may be worse by half. Lost rounds, errors
and responses of another size are worse at any percentage.

Exit codes: 0 done, 1 failed, 98 the results have nothing in common, or with --fail-on a figure is undecided, 99 a figure became
worse by --fail-on or more.";

pub(super) fn run(arguments: &LabCompareArgs) -> Result<ExitCode, String> {
    let [before, after] = [&arguments.before, &arguments.after].map(|path| {
        let measure = format!("; measure it first: vanward lab run PLAN --out {}", path.display());
        let remedy = if lab_files::has_results(path) { "" } else { &measure };
        lab_files::read_results(path).map_err(|why| why + remedy)
    });
    let (before, after) = (before?, after?);
    let comparison = Comparison::new(&before, &after);
    if let Some(path) = &arguments.html {
        let page = page::comparison(&comparison).map_err(|error| error.to_string())?;
        fs::write(path, page).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    print(&if arguments.json {
        show::json(&comparison) + "\n"
    } else if arguments.markdown {
        markdown::comparison(&comparison)
    } else {
        text::comparison(&comparison)
    })?;
    if comparison.is_disjoint {
        let message = "cannot compare: the two results have no proxy and case in common";
        return Ok(super::fail(UNDECIDED, message));
    }
    let Some(threshold) = arguments.fail_on else { return Ok(ExitCode::SUCCESS) };
    Ok(match comparison.gate(threshold) {
        Gate::Passed => ExitCode::SUCCESS,
        Gate::Worse(changes) => {
            let (count, names) = (figure::things(changes.len(), "figure"), named(&changes));
            let message = format!("{count} became worse by {:.1}% or more: {names}", threshold * 100.0);
            super::fail(MISSED, message)
        }
        Gate::Undecided(changes) => {
            let (count, names) = (figure::things(changes.len(), "figure"), named(&changes));
            super::fail(
                UNDECIDED,
                format!("undecided: {count}: {names}; measure again, or with more --repeats"),
            )
        }
        Gate::Nothing => {
            let whose = match comparison.gated.as_slice() {
                [] => "the first result has no proxy to judge".to_owned(),
                names => {
                    format!(
                        "no figure of {} counts in both results, in three rounds or more",
                        names.join(", ")
                    )
                }
            };
            super::fail(UNDECIDED, format!("--fail-on cannot judge: {whose}"))
        }
    })
}

/// Lists the first figures: `errors, tiny; memory, small (not ranked)`.
fn named(changes: &[&FigureChange]) -> String {
    let named = changes.iter().take(NAMED_MOST).map(|change| match change.verdict {
        ChangeVerdict::Undecided(doubt) => format!("{} ({})", show::place(change), show::why(doubt)),
        ChangeVerdict::Better | ChangeVerdict::Worse | ChangeVerdict::Equal => show::place(change),
    });
    let named = named.collect::<Vec<_>>().join("; ");
    match changes.len().saturating_sub(NAMED_MOST) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let number =
        text.trim_end_matches('%').parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
    number
        .map(|number| number / 100.0)
        .ok_or_else(|| "expected a percentage from 0 to 100, such as 3".to_owned())
}
