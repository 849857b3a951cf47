//! `vanward run`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs a reverse proxy from a configuration file.
///
/// SIGTERM or Ctrl-C drains: requests under way are finished; a second one stops at once.
#[derive(clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{SMALLEST_FILE}"))]
pub(crate) struct Args {
    /// The configuration file.
    #[arg(long, short, value_name = "FILE", default_value = "vanward.toml")]
    config: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  vanward run                               with vanward.toml of this folder
  vanward run --config /etc/vanward.toml
  vanward check vanward.toml                only says whether it is valid";

const SMALLEST_FILE: &str = "\
The smallest file:
  [[listen]]
  address = \"127.0.0.1:8080\"

  [[route]]
  upstream = \"app\"

  [upstream.app]
  servers = [\"http://127.0.0.1:9000\"]";

pub(crate) fn run(arguments: &Args) -> ExitCode {
    // What can be used all the same is said by the proxy as it starts.
    let reading = config::examine_file(&arguments.config);
    let reading = super::check::with_files(reading, |problem| !problem.is_usable());
    // The exit code tells as well, where nobody reads standard error.
    let _ = std::io::stderr().lock().write_all(super::check::remarks(&reading).as_bytes());
    match reading.config {
        Some(config) => super::serve(config),
        None if is_missing(&arguments.config) => super::fail(super::BAD_CONFIGURATION, without_a_file()),
        None => ExitCode::from(super::BAD_CONFIGURATION),
    }
}

/// Whoever has no file yet is shown one; whoever misspelt its name still sees that above.
fn is_missing(file: &Path) -> bool {
    file.try_exists().is_ok_and(|exists| !exists)
}

fn without_a_file() -> String {
    format!(
        "run needs a configuration file: vanward.toml of this folder, or another by --config FILE.\n\
         `vanward check FILE` says whether one is valid; `vanward proxy --from ADDR --to URL` needs none.\n\n\
         {SMALLEST_FILE}"
    )
}
