//! `vanward run`.

use std::path::PathBuf;
use std::process::ExitCode;

/// Runs a reverse proxy from a configuration file.
///
/// SIGTERM or Ctrl-C drains: requests under way are finished; a second one stops at once.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The configuration file.
    #[arg(long, short, value_name = "FILE", default_value = "vanward.toml")]
    config: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  vanward run                               with vanward.toml of this folder
  vanward run --config /etc/vanward.toml
  vanward check vanward.toml                only says whether it is valid

The smallest file:
  [[listen]]
  address = \"127.0.0.1:8080\"

  [[route]]
  upstream = \"app\"

  [upstream.app]
  servers = [\"http://127.0.0.1:9000\"]";

pub(crate) fn run(arguments: &Args) -> ExitCode {
    match config::load(&arguments.config) {
        Ok(config) => super::serve(config),
        Err(mistakes) => {
            let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            super::fail(super::BAD_CONFIGURATION, lines.join("\n"))
        }
    }
}
