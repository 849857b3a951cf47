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

use clap::builder::{PossibleValuesParser, TypedValueParser};
use config::{MessageFormat, MessageLevel};
use telemetry::message;

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

    #[command(flatten)]
    messages: MessageFlags,
}

/// What is said on standard error while a program runs.
#[derive(Clone, clap::Args)]
pub(crate) struct MessageFlags {
    /// Form of messages on standard error [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = words(&MessageFormat::NAMED))]
    message_format: Option<MessageFormat>,

    /// The least serious messages to write: error, warn or info [default: info]
    #[arg(long, value_name = "LEVEL", hide_possible_values = true, value_parser = words(&MessageLevel::NAMED))]
    message_level: Option<MessageLevel>,
}

impl MessageFlags {
    /// What they ask for, over what is configured.
    fn over(&self, messages: &mut config::Messages) {
        messages.format = self.message_format.unwrap_or(messages.format);
        messages.level = self.message_level.unwrap_or(messages.level);
    }

    /// Whether programs are to read them, mistakes of the file included.
    pub(crate) fn are_json(&self) -> bool {
        self.message_format == Some(MessageFormat::Json)
    }

    /// Has messages written so, until a configuration says more.
    pub(crate) fn speak(&self) {
        let mut messages = config::Messages::default();
        self.over(&mut messages);
        ::proxy::speak(&messages);
    }
}

/// Reads one of a few words.
fn words<V: Copy + Send + Sync>(named: &'static [(&'static str, V)]) -> impl TypedValueParser<Value = V> {
    PossibleValuesParser::new(named.iter().map(|(name, _)| *name)).map(|word| {
        // It is one of them: the parser lets no other pass.
        named.iter().find(|(name, _)| *name == word).map_or(named[0].1, |(_, value)| *value)
    })
}

impl Operation {
    /// What the flags ask for, over the configuration.
    pub(crate) fn over(&self, config: &mut config::Config) {
        if let Some(admin) = &self.admin {
            config.admin = Some(admin.clone());
        }
        self.messages.over(&mut config.messages);
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
        Err(error) => return not_run(&error.to_string()),
    };
    say_panics();
    let announce = |running: &::proxy::Running| {
        let addresses: Vec<String> = running.listeners().iter().map(ToString::to_string).collect();
        message::info(&format!("listening on {}", addresses.join(", ")));
        for alone in running.listeners().iter().filter(|address| address.is_ipv6_alone()) {
            let port = alone.port().unwrap_or_default();
            message::info(&format!("{alone} takes IPv6 alone; *:{port} takes IPv4 as well"));
        }
    };
    match ::proxy::run_until_signal(running, operation.pid_file.as_deref(), announce) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => not_run(&format!("cannot be operated: {error}")),
    }
}

/// Says why a program does not run, or no longer, as it says all else.
pub(crate) fn not_run(why: &str) -> ExitCode {
    message::error(why);
    ExitCode::from(FAILED)
}

/// Has a bug of ours said like all else, by thread and place.
fn say_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
        let what = panic.payload_as_str().unwrap_or("no message");
        message::error(&format!(
            "a bug in vanward: {} panicked{place}: {what}",
            thread.name().unwrap_or("a thread")
        ));
    }));
}

/// Says something on standard error: standard output is for results and the access log.
pub(crate) fn say(message: impl Display) {
    // Nothing can be done where nobody listens, or their disk is full.
    let _ = writeln!(io::stderr(), "vanward: {message}");
}
