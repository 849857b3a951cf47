//! `vanward check`.

use std::process::ExitCode;

/// Checks a configuration file and reports every mistake.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_arguments: &Args) -> ExitCode {
    super::fail(super::FAILED, "not built yet")
}
