//! `vanward run`.

use std::process::ExitCode;

/// Runs a reverse proxy from a configuration file.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_arguments: &Args) -> ExitCode {
    super::fail(super::FAILED, "not built yet")
}
