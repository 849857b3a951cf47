//! `vanward load`.

use std::process::ExitCode;

/// Generates load and measures latency.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_arguments: &Args) -> ExitCode {
    super::fail(super::FAILED, "not built yet")
}
