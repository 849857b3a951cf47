//! The command line: each command is a module of `commands`, which parses its flags and calls one crate.
//!
//! Exit codes: 0 done, 1 failed while running, 2 wrong usage, 78 bad configuration, 98 an invalid lab run,
//! 99 a threshold missed.

/// One module per command.
mod commands;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

// Without huge pages (`no_thp`): 6,000 idle connections hold 1.1 KiB each with small ones, 2.3 with 2 MiB at a time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    Demo(commands::demo::Args),
    Proxy(Box<commands::proxy::Args>),
    Run(Box<commands::run::Args>),
    Check(commands::check::Args),
    Adapt(commands::adapt::Args),
    Status(commands::status::Args),
    Top(commands::top::Args),
    Reload(commands::reload::Args),
    Fleet(commands::fleet::Args),
    Drain(commands::servers::Drain),
    Restore(commands::servers::Restore),
    Weigh(commands::servers::Weigh),
    Add(commands::servers::Add),
    Remove(commands::servers::Remove),
    Certificates(commands::certificates::Args),
    Docker(commands::docker::Args),
    Cache(commands::cache::Args),
    Faults(commands::faults::Args),
    Shape(commands::shape::Args),
    Maintenance(commands::maintenance::Args),
    Chaos(commands::chaos::Args),
    #[cfg(feature = "lab")]
    Origin(commands::origin::Args),
    #[cfg(feature = "lab")]
    Load(Box<commands::load::Args>),
    #[cfg(feature = "lab")]
    Lab(commands::lab::Args),
    Completions(commands::completions::Args),
    Man(commands::man::Args),
}

fn main() -> ExitCode {
    let command = Cli::try_parse().unwrap_or_else(|error| nearest(error).exit()).command;
    allow_many_files();
    match command {
        #[cfg(feature = "lab")]
        Command::Demo(arguments) => commands::demo::run(&arguments),
        Command::Proxy(arguments) => commands::proxy::run(&arguments),
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Adapt(arguments) => commands::adapt::run(&arguments),
        Command::Status(arguments) => commands::status::run(&arguments),
        Command::Top(arguments) => commands::top::run(&arguments),
        Command::Reload(arguments) => commands::reload::run(&arguments),
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

/// What is wrong with the command line. After `help` clap names no similar command, but for `COMMAND --help` it does.
fn nearest(error: clap::Error) -> clap::Error {
    let mut words: Vec<_> = std::env::args_os().collect();
    if error.kind() != ErrorKind::InvalidSubcommand || words.get(1).is_none_or(|word| word != "help") {
        return error;
    }
    words.remove(1);
    words.push("--help".into());
    Cli::try_parse_from(words).err().unwrap_or(error)
}

/// Raises the limit on open files to the system's maximum, since each connection is an open file. If that fails, the
/// proxy accepts fewer connections, and says so when file descriptors run out.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
