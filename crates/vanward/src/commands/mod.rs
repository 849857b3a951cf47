//! The commands, in the order of `vanward --help`.

/// Shows what a proxied request costs, beside the peers installed here.
#[cfg(feature = "lab")]
pub(crate) mod demo;
/// Runs a proxy from flags.
pub(crate) mod proxy;
/// Runs a proxy from a file.
pub(crate) mod run;
/// Checks a configuration file.
pub(crate) mod check;
/// Which route a request takes.
mod check_route;
/// Runs the test backend.
#[cfg(feature = "lab")]
pub(crate) mod origin;
/// Generates load.
#[cfg(feature = "lab")]
pub(crate) mod load;

use std::process::ExitCode;

/// Failed while running.
pub(crate) const FAILED: u8 = 1;
/// Wrong usage, as clap has it.
pub(crate) const USAGE: u8 = 2;
/// Bad configuration (EX_CONFIG of sysexits.h).
pub(crate) const BAD_CONFIGURATION: u8 = 78;

/// Says on standard error what went wrong, and returns the exit code for it.
#[allow(clippy::print_stderr, reason = "the one place that tells a person why a command failed")]
pub(crate) fn fail(code: u8, message: impl std::fmt::Display) -> ExitCode {
    eprintln!("vanward: {message}");
    ExitCode::from(code)
}

/// Runs a proxy until it is told to end.
pub(crate) fn serve(config: config::Config) -> ExitCode {
    let running = match ::proxy::start(config) {
        Ok(running) => running,
        Err(error) => return fail(FAILED, error),
    };
    let announce = |running: &::proxy::Running| {
        let addresses: Vec<String> = running.listeners().iter().map(ToString::to_string).collect();
        say(&format!("listening on {}", addresses.join(", ")));
    };
    match ::proxy::run_until_signal(running, announce) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, format_args!("cannot wait for signals: {error}")),
    }
}

/// Says something on standard error that is no failure.
#[allow(clippy::print_stderr, reason = "standard output is for results and the access log")]
pub(crate) fn say(message: &str) {
    eprintln!("vanward: {message}");
}
