//! `vanward demo`.

use std::process::ExitCode;

/// Shows what a proxied request costs: Vanward beside the peers installed here.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_arguments: &Args) -> ExitCode {
    super::fail(super::FAILED, "not built yet")
}
