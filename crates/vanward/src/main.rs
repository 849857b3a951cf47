//! The command line: each command is a module of `commands`, which parses its flags and calls one crate.
//!
//! Exit codes: 0 done, 1 failed while running, 2 wrong usage, 78 bad configuration, 98 an invalid lab run, 99 a
//! threshold missed.

/// The memory allocator.
mod allocator;
/// Commands, each in a separate module.
mod commands;

use std::error::Error as _;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A reverse proxy with a low cost per request, and a lab that measures proxies.
#[derive(Parser)]
#[command(name = "vanward", version = env!("VANWARD_VERSION"), max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  vanward demo                          the cost of a request, beside the installed peers
  vanward proxy --from 127.0.0.1:8080 --to http://127.0.0.1:9000
  vanward run --config vanward.toml     the same, from a file
  vanward help COMMAND                  flags and examples of one command";

#[derive(Subcommand)]
enum Command {
    #[cfg(feature = "lab")]
    Demo(commands::demo::DemoArgs),
    Proxy(Box<commands::proxy::ProxyArgs>),
    Run(Box<commands::run::RunArgs>),
    Check(commands::check::CheckArgs),
    Adapt(commands::adapt::AdaptArgs),
    #[cfg(feature = "lab")]
    Capture(commands::capture::CaptureArgs),
    Status(commands::status::StatusArgs),
    Top(commands::top::TopArgs),
    Reload(commands::reload::ReloadArgs),
    #[cfg(feature = "fleet")]
    Fleet(commands::fleet::FleetViewArgs),
    Drain(commands::servers::Drain),
    Restore(commands::servers::Restore),
    Weigh(commands::servers::Weigh),
    Add(commands::servers::Add),
    Remove(commands::servers::Remove),
    Certificates(commands::certificates::CertificatesArgs),
    Docker(commands::docker::DockerArgs),
    Cache(commands::cache::CacheArgs),
    Faults(commands::faults::FaultsArgs),
    Shape(commands::shape::ShapeArgs),
    Maintenance(commands::maintenance::MaintenanceArgs),
    Map(commands::map::MapArgs),
    Chaos(commands::chaos::ChaosArgs),
    #[cfg(feature = "lab")]
    Origin(commands::origin::OriginArgs),
    #[cfg(feature = "lab")]
    Load(Box<commands::load::LoadArgs>),
    #[cfg(feature = "lab")]
    Lab(commands::lab::LabArgs),
    Completions(commands::completions::CompletionsArgs),
    Man(commands::man::ManArgs),
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let command = server(&words).unwrap_or_else(|| {
        let parsed = Cli::try_parse();
        parsed.unwrap_or_else(|error| in_plain_words(of_another_build(nearest(error))).exit()).command
    });
    allow_many_files();
    match command {
        #[cfg(feature = "lab")]
        Command::Demo(arguments) => commands::demo::run(&arguments),
        Command::Proxy(arguments) => commands::proxy::run(&arguments),
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Adapt(arguments) => commands::adapt::run(&arguments),
        #[cfg(feature = "lab")]
        Command::Capture(arguments) => commands::capture::run(&arguments),
        Command::Status(arguments) => commands::status::run(&arguments),
        Command::Top(arguments) => commands::top::run(&arguments),
        Command::Reload(arguments) => commands::reload::run(&arguments),
        #[cfg(feature = "fleet")]
        Command::Fleet(arguments) => commands::fleet::run(&arguments),
        Command::Drain(arguments) => commands::servers::drain(&arguments),
        Command::Restore(arguments) => commands::servers::restore(&arguments),
        Command::Weigh(arguments) => commands::servers::weigh(&arguments),
        Command::Add(arguments) => commands::servers::add(&arguments),
        Command::Remove(arguments) => commands::servers::remove(&arguments),
        Command::Certificates(arguments) => commands::certificates::run(&arguments),
        Command::Docker(arguments) => commands::docker::run(&arguments),
        Command::Cache(arguments) => commands::cache::run(&arguments),
        Command::Faults(arguments) => commands::faults::run(&arguments),
        Command::Shape(arguments) => commands::shape::run(&arguments),
        Command::Maintenance(arguments) => commands::maintenance::run(&arguments),
        Command::Map(arguments) => commands::map::run(&arguments),
        Command::Chaos(arguments) => commands::chaos::run(&arguments),
        #[cfg(feature = "lab")]
        Command::Origin(arguments) => commands::origin::run(&arguments),
        #[cfg(feature = "lab")]
        Command::Load(arguments) => commands::load::run(&arguments),
        #[cfg(feature = "lab")]
        Command::Lab(arguments) => commands::lab::run(&arguments),
        Command::Completions(arguments) => commands::completions::run(&arguments, Cli::command()),
        Command::Man(arguments) => commands::man::run(&arguments, Cli::command()),
    }
}

/// Parses the command of a long-running process, if its words are valid. Builds only that command's flags: those of
/// all commands would leave unused pages in memory.
fn server(words: &[OsString]) -> Option<Command> {
    fn parsed<A: clap::Args>(words: &[OsString]) -> Option<A> {
        let command = A::augment_args(clap::Command::new("vanward"));
        A::from_arg_matches(&command.try_get_matches_from(words).ok()?).ok()
    }
    match words.first()?.to_str()? {
        "proxy" => parsed(words).map(Box::new).map(Command::Proxy),
        "run" => parsed(words).map(Box::new).map(Command::Run),
        "chaos" => parsed(words).map(Command::Chaos),
        #[cfg(feature = "lab")]
        "origin" => parsed(words).map(Command::Origin),
        _ => None,
    }
}

/// Replaces the error for an unknown command, if it belongs to a feature that this build lacks.
fn of_another_build(error: clap::Error) -> clap::Error {
    let command = std::env::args().skip(1).find(|word| word != "help");
    let missing = command.filter(|_| error.kind() == ErrorKind::InvalidSubcommand);
    match missing.and_then(|command| commands::features::missing_command(&command)) {
        Some(missing) => clap::Error::raw(ErrorKind::InvalidSubcommand, format_args!("{missing}\n")),
        None => error,
    }
}

/// Adds the most similar command to an error after `help`. Clap does that only for `COMMAND --help`.
fn nearest(error: clap::Error) -> clap::Error {
    let mut words: Vec<_> = std::env::args_os().collect();
    if error.kind() != ErrorKind::InvalidSubcommand || words.get(1).is_none_or(|word| word != "help") {
        return error;
    }
    words.remove(1);
    words.push("--help".into());
    Cli::try_parse_from(words).err().unwrap_or(error)
}

/// Replaces the messages of Rust's number parsers by plain words.
fn in_plain_words(error: clap::Error) -> clap::Error {
    let said = error.source().map(ToString::to_string).unwrap_or_default();
    let plain = mistake::value_error(&said).sentence();
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    match (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue)) {
        (Some(flag), Some(value)) if error.kind() == ErrorKind::ValueValidation && plain != said => {
            let message = format!(
                "invalid value '{value}' for '{flag}': {plain}\n\nFor more information, try '--help'.\n"
            );
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(&Cli::command())
        }
        _ => error,
    }
}

/// Raises the limit on open files to the system's maximum, because each connection is an open file. If that fails,
/// the proxy accepts fewer connections, and reports it when file descriptors run out.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_the_flags_of_their_command() {
        let server = |line: &str| server(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(matches!(server("run --config a.toml --admin a.sock"), Some(Command::Run(_))));
        assert!(matches!(
            server("proxy --from 127.0.0.1:1 --to http://127.0.0.1:2"),
            Some(Command::Proxy(_))
        ));
        assert!(matches!(server("chaos"), Some(Command::Chaos(_))));
        for line in ["", "help run", "run --help", "run --hlep", "run --version", "check a.toml", "rnu"] {
            assert!(server(line).is_none(), "{line}: the whole command line says what is wrong");
        }
    }
}
