//! The commands, in the order of `vanward --help`.

/// Shows what a proxied request costs, beside the peers installed here.
#[cfg(feature = "lab")]
pub(crate) mod demo;
/// Runs the experiments.
#[cfg(feature = "lab")]
pub(crate) mod lab;
/// Shows two results of the lab beside each other.
#[cfg(feature = "lab")]
mod lab_compare;
/// The files that a run of the lab leaves.
#[cfg(feature = "lab")]
mod lab_files;
/// Runs a proxy from flags.
pub(crate) mod proxy;
/// Runs a proxy from a file.
pub(crate) mod run;
/// Checks a configuration file.
pub(crate) mod check;
/// Which route a request takes.
mod check_route;
/// The admin socket of the running proxy.
mod reach;
/// Shows how the running proxy stands.
pub(crate) mod status;
/// Has it read its configuration again.
pub(crate) mod reload;
/// Changes its servers.
pub(crate) mod servers;
/// What it has stored.
pub(crate) mod cache;
/// What is stored of a URL, and why not.
mod cache_explain;
/// Has things go wrong in it on purpose.
pub(crate) mod faults;
/// Slows it down while it runs.
pub(crate) mod shape;
/// Breaks the network between programs.
pub(crate) mod chaos;
/// Runs the test backend.
#[cfg(feature = "lab")]
pub(crate) mod origin;
/// Generates load.
#[cfg(feature = "lab")]
pub(crate) mod load;

use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// Failed while running.
pub(crate) const FAILED: u8 = 1;
/// Wrong usage, as clap has it.
pub(crate) const USAGE: u8 = 2;
/// Bad configuration (EX_CONFIG of sysexits.h).
pub(crate) const BAD_CONFIGURATION: u8 = 78;

/// Says on standard error what went wrong, and returns the exit code for it.
pub(crate) fn fail(code: u8, message: impl Display) -> ExitCode {
    say(message);
    ExitCode::from(code)
}

/// How a proxy is operated, whatever it does.
#[derive(Clone, clap::Args)]
pub(crate) struct Operation {
    /// Socket of the admin API, for `vanward status`, `reload`, `drain` and so on
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,

    /// Keeps the number of the process in this file, for as long as it runs
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
}

impl Operation {
    /// What the flags ask for, over the configuration.
    pub(crate) fn over(&self, config: &mut config::Config) {
        if let Some(admin) = &self.admin {
            config.admin = Some(admin.clone());
        }
    }
}

/// What the process before passes on, if this one is started to take over.
pub(crate) fn inheritance() -> Result<Option<::proxy::Inheritance>, ExitCode> {
    ::proxy::Inheritance::claim()
        .map_err(|error| fail(FAILED, format_args!("cannot take over from the process before: {error}")))
}

/// Runs a proxy until it is told to end.
pub(crate) fn serve(config: config::Config, setup: ::proxy::Setup, operation: &Operation) -> ExitCode {
    let running = match ::proxy::start_with(config, setup) {
        Ok(running) => running,
        Err(error) => return fail(FAILED, error),
    };
    let announce = |running: &::proxy::Running| {
        let addresses: Vec<String> = running.listeners().iter().map(ToString::to_string).collect();
        say(format_args!("listening on {}", addresses.join(", ")));
    };
    match ::proxy::run_until_signal(running, operation.pid_file.as_deref(), announce) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, format_args!("cannot be operated: {error}")),
    }
}

/// Says something on standard error: standard output is for results and the access log.
pub(crate) fn say(message: impl Display) {
    // Nothing can be done where nobody listens, or their disk is full.
    let _ = writeln!(io::stderr(), "vanward: {message}");
}
