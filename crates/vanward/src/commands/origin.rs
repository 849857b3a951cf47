//! `vanward origin`.

use std::process::ExitCode;

/// Runs the test backend.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_arguments: &Args) -> ExitCode {
    super::fail(super::FAILED, "not built yet")
}
