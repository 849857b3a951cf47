//! `vanward lab compare`: compares two results. The crate `report` compares; this module writes the output.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use report::compare::{Comparison, show};
use report::{markdown, page, text};

use super::demo::print;
use super::lab_files;

/// Exit code: nothing could be judged.
const UNJUDGED: u8 = 98;
/// Exit code: a figure became worse.
const MISSED: u8 = 99;

/// Compares two results, with intervals.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
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
    /// Exit with 99 if a figure of Vanward became worse by at least this percentage, beyond noise
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

--fail-on judges Vanward, or if neither result has it the programs of [command]. It does not judge peers, nor figures that the
judge of either run rejected.

Exit codes: 0 done, 1 failed, 98 --fail-on found nothing to judge, 99 a figure became worse by --fail-on or more.";

pub(super) fn run(arguments: &Args) -> Result<ExitCode, String> {
    let [before, after] = [&arguments.before, &arguments.after].map(|path| lab_files::read_results(path));
    let (before, after) = (before?, after?);
    let comparison = Comparison::of(&before, &after);
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
    let Some(threshold) = arguments.fail_on else { return Ok(ExitCode::SUCCESS) };
    let regressions = comparison.regressions(threshold).count();
    if regressions == 0 && comparison.has_judged() {
        return Ok(ExitCode::SUCCESS);
    }
    if regressions == 0 {
        let whose = match comparison.gated.as_slice() {
            [] => "whoever is to be judged is not in both results".to_owned(),
            names => {
                format!("no figure of {} counts in both results, in three rounds or more", names.join(", "))
            }
        };
        return Ok(super::fail(UNJUDGED, format!("--fail-on has nothing to go by: {whose}")));
    }
    let message = format!("{regressions} figures became worse by {:.1}% or more", threshold * 100.0);
    Ok(super::fail(MISSED, message))
}

fn percent(text: &str) -> Result<f64, String> {
    let number =
        text.trim_end_matches('%').parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
    number
        .map(|number| number / 100.0)
        .ok_or_else(|| "expected a percentage from 0 to 100, such as 3".to_owned())
}
