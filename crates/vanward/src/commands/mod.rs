//! The commands, in the order of `vanward --help`.

/// `vanward demo`: measures the cost of a proxied request beside the installed peers.
#[cfg(feature = "lab")]
pub(crate) mod demo;
/// `vanward lab`: runs experiments.
#[cfg(feature = "lab")]
pub(crate) mod lab;
/// Verdicts on measurements: exit codes and JUnit files.
#[cfg(feature = "lab")]
mod verdict;
/// `vanward lab compare`: compares two results.
#[cfg(feature = "lab")]
mod lab_compare;
/// Reads and writes the files of a lab run.
#[cfg(feature = "lab")]
mod lab_files;
/// `vanward lab resilience`: faults and events beside the load.
#[cfg(feature = "lab")]
mod lab_resilience;
/// `vanward proxy`: runs a proxy from flags.
pub(crate) mod proxy;
/// Flags of `vanward proxy` for automatic certificates.
mod automatic;
/// `vanward run`: runs a proxy from a file.
pub(crate) mod run;
/// Cargo features that a build may lack.
pub(crate) mod features;
/// Flags for a configuration in etcd.
mod fleet_flags;
/// Flags for a Kubernetes cluster.
mod kubernetes_flags;
/// `vanward run` with a configuration in etcd.
#[cfg(feature = "fleet")]
mod run_fleet;
/// `vanward run` in a Kubernetes cluster.
#[cfg(feature = "kubernetes")]
mod run_kubernetes;
/// `vanward fleet`: the instances with a configuration in etcd.
#[cfg(feature = "fleet")]
pub(crate) mod fleet;
/// `vanward check`: validates a configuration file.
pub(crate) mod check;
/// `vanward adapt`: translates the configuration of another proxy.
pub(crate) mod adapt;
/// `vanward capture`: reads captured traffic.
#[cfg(feature = "lab")]
pub(crate) mod capture;
/// `vanward capture live`: captures running traffic.
#[cfg(feature = "lab")]
mod capture_live;
/// `vanward check --costs`: the cost of expressions.
mod check_costs;
/// Checks by `vanward check` on this machine.
mod check_needs;
/// `vanward check --route`: explains which route a request takes.
mod check_route;
/// The client of the admin API.
mod reach;
/// Tables on the terminal.
mod table;
/// Formats numbers for readers.
mod units;
/// `vanward status`: shows the state of the running proxy.
pub(crate) mod status;
/// `vanward top`: shows the running proxy live, with keys that change it.
pub(crate) mod top;
/// `vanward reload`: reloads the configuration of the running proxy.
pub(crate) mod reload;
/// Flags that address a server, and hints for old forms.
mod address;
/// `vanward drain`, `restore`, `weigh`, `add`, `remove`: change servers of the running proxy.
pub(crate) mod servers;
/// `vanward certificates`: lists and renews the certificates of the running proxy.
pub(crate) mod certificates;
/// `vanward docker`: follows the containers of Docker or Podman.
pub(crate) mod docker;
/// `vanward cache`: purges and explains the cache of the running proxy.
pub(crate) mod cache;
/// `vanward cache explain`: shows what is cached for a URL.
mod cache_explain;
/// `vanward faults`: injects faults in the running proxy.
pub(crate) mod faults;
/// `vanward shape`: changes rate limits and delays of the running proxy.
pub(crate) mod shape;
/// `vanward maintenance`: takes routes of the running proxy out of service and back.
pub(crate) mod maintenance;
/// `vanward map`: shows and changes the maps of the running proxy.
pub(crate) mod map;
/// `vanward chaos`: runs TCP proxies with faults.
pub(crate) mod chaos;
/// `vanward origin`: runs the test server.
#[cfg(feature = "lab")]
pub(crate) mod origin;
/// `vanward load`: generates load.
#[cfg(feature = "lab")]
pub(crate) mod load;
/// `vanward completions`.
pub(crate) mod completions;
/// `vanward man`.
pub(crate) mod man;

use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use config::{MessageFormat, MessageLevel};
use telemetry::message;

/// Exit code: the command failed while running.
pub(crate) const FAILED: u8 = 1;
/// Exit code: wrong usage; the same as clap's.
pub(crate) const USAGE: u8 = 2;
/// Exit code: invalid configuration (EX_CONFIG of sysexits.h).
pub(crate) const BAD_CONFIGURATION: u8 = 78;

pub(crate) fn fail(code: u8, message: impl Display) -> ExitCode {
    // Nothing can be done if standard error is closed, or its disk is full.
    let _ = io::stderr()
        .lock()
        .write_all(&message::marked(message::Level::Error, &format!("vanward: {message}\n")));
    ExitCode::from(code)
}

/// The configuration file in the working directory, and that of an installed package.
const FILE: &str = "vanward.toml";
const INSTALLED_FILE: &str = "/etc/vanward/vanward.toml";

/// Returns the configuration file of a command that starts no proxy: named, in the working directory, or the package's.
fn file_or_usual(named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| usual(Path::new(FILE), Path::new(INSTALLED_FILE)), Path::to_owned)
}

/// Returns the file of the working directory, unless only the installed one exists. Messages are about the former.
fn usual(here: &Path, installed: &Path) -> PathBuf {
    if !here.exists() && installed.exists() { installed.to_owned() } else { here.to_owned() }
}

/// Flags that operate a proxy, the same for all proxy commands.
#[derive(Clone, clap::Args)]
pub(crate) struct Operation {
    /// Unix socket of the admin API, for `vanward status`, `reload`, `drain` and others
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,

    /// Write the process ID to this file, which is removed on exit
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,

    #[command(flatten)]
    messages: MessageFlags,
}

/// Flags for the messages on standard error.
#[derive(Clone, clap::Args)]
pub(crate) struct MessageFlags {
    /// Format of messages on standard error [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = words(&MessageFormat::NAMED))]
    message_format: Option<MessageFormat>,

    /// Lowest level of messages to write: error, warn or info [default: info]
    #[arg(long, value_name = "LEVEL", hide_possible_values = true, value_parser = words(&MessageLevel::NAMED))]
    message_level: Option<MessageLevel>,
}

impl MessageFlags {
    /// Applies the flags to the configured settings.
    fn over(&self, messages: &mut config::Messages) {
        messages.format = self.message_format.unwrap_or(messages.format);
        messages.level = self.message_level.unwrap_or(messages.level);
    }

    /// The options of `[messages]` that the flags set, with their words.
    pub(crate) fn words(&self) -> Vec<(&'static str, &'static str)> {
        let format =
            MessageFormat::NAMED.into_iter().find(|(_, format)| self.message_format == Some(*format));
        let level = MessageLevel::NAMED.into_iter().find(|(_, level)| self.message_level == Some(*level));
        let named = [("format", format.map(|(word, _)| word)), ("level", level.map(|(word, _)| word))];
        named.into_iter().filter_map(|(option, word)| Some((option, word?))).collect()
    }

    /// Whether messages are JSON, also mistakes of the file.
    pub(crate) fn are_json(&self) -> bool {
        self.message_format == Some(MessageFormat::Json)
    }

    /// Applies the flags until a configuration is read.
    pub(crate) fn speak(&self) {
        let mut messages = config::Messages::default();
        self.over(&mut messages);
        ::control::speak(&messages);
    }
}

/// Builds a parser for one of a few words.
fn words<V: Copy + Send + Sync>(named: &'static [(&'static str, V)]) -> impl TypedValueParser<Value = V> {
    PossibleValuesParser::new(named.iter().map(|(name, _)| *name)).map(|word| {
        // The parser accepts no other word.
        named.iter().find(|(name, _)| *name == word).map_or(named[0].1, |(_, value)| *value)
    })
}

impl Operation {
    pub(crate) fn over(&self, settings: &mut config::Settings) {
        if let Some(admin) = self.admin() {
            settings.admin = Some(admin);
        }
        self.messages.over(&mut settings.messages);
    }

    /// The socket of the admin API. A flag may name a file of the working directory; a file of options has the whole path.
    pub(crate) fn admin(&self) -> Option<PathBuf> {
        let admin = self.admin.as_ref()?;
        Some(std::path::absolute(admin).unwrap_or_else(|_| admin.clone()))
    }
}

/// Receives the handover of the previous process, if this process was started by an upgrade, or of the service manager.
pub(crate) fn inheritance() -> Result<::control::Inheritance, ExitCode> {
    ::control::Inheritance::claim().map_err(|error| fail(FAILED, error))
}

pub(crate) fn serve(config: config::Config, setup: ::control::Setup, operation: &Operation) -> ExitCode {
    serve_with(config, setup, operation, |_| ())
}

/// Runs a proxy until a signal ends it. `begun` is called once it serves.
pub(crate) fn serve_with(
    config: config::Config,
    setup: ::control::Setup,
    operation: &Operation,
    begun: impl FnOnce(&::control::Running),
) -> ExitCode {
    say_panics();
    let setup = ::control::Setup { release_memory: Some(crate::allocator::release), ..setup };
    let running = match ::control::start_with(config, setup) {
        Ok(running) => running,
        Err(error) => return not_run(&error.to_string()),
    };
    crate::allocator::release();
    if rustix::process::geteuid().is_root() {
        message::warn(AS_ROOT);
    }
    let announce = |running: &::control::Running| {
        let addresses: Vec<String> = running.listeners().iter().map(ToString::to_string).collect();
        message::info(&format!("listening on {}", addresses.join(", ")));
        let served = running.served();
        served.iter().take(SERVED_MAX).for_each(|line| message::info(line));
        if let Some(more) = served.len().checked_sub(SERVED_MAX).filter(|more| *more > 0) {
            message::info(&format!("{more} more listeners: see vanward status"));
        }
        for alone in running.listeners().iter().filter(|address| address.is_ipv6_alone()) {
            let port = alone.port().unwrap_or_default();
            message::info(&format!("{alone} accepts only IPv6; *:{port} accepts IPv4 too"));
        }
        if let Some(address) = running.dashboard_address() {
            message::info(&format!("dashboard at http://{address}/"));
        }
        begun(running);
    };
    match ::control::run_until_signal(running, operation.pid_file.as_deref(), announce) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => not_run(&format!("cannot handle signals or write the PID file: {error}")),
    }
}

/// Listeners that the start describes, each in a line.
const SERVED_MAX: usize = 20;

/// Ports below 1024 need no root.
const AS_ROOT: &str = "running as root: an attacker who breaks in owns the machine; run it as a separate user, with the capability \
    CAP_NET_BIND_SERVICE for ports below 1024, as contrib/systemd/vanward.service does";

pub(crate) fn not_run(why: &str) -> ExitCode {
    message::error(why);
    ExitCode::from(FAILED)
}

/// Writes panics as messages, with thread and place.
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

/// Writes to standard error: standard output is for results and the access log.
pub(crate) fn say(message: impl Display) {
    // Nothing can be done if standard error is closed, or its disk is full.
    let _ = writeln!(io::stderr(), "vanward: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_this_folder_comes_before_the_installed_one() {
        assert_eq!(file_or_usual(Some(Path::new("mine.toml"))), Path::new("mine.toml"));
        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = ["here.toml", "installed.toml"].map(|name| folder.path().join(name));
        let found = || usual(&files[0], &files[1]);
        assert_eq!(found(), files[0], "where there is none, the message is about the one of this folder");
        std::fs::write(&files[1], "").expect("it is writable");
        assert_eq!(found(), files[1]);
        std::fs::write(&files[0], "").expect("it is writable");
        assert_eq!(found(), files[0]);
    }
}
