//! `vanward origin`: flags, the lines that say where it listens, signals. What it serves is the crate `origin`'s.

use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

const EXAMPLES: &str = "\
Examples:
  vanward origin                                      on 127.0.0.1:9000; GET / lists the pages
  vanward origin --listen 127.0.0.1:9000 --listen 127.0.0.1:9001
  vanward origin --listen 127.0.0.1:0                 the kernel chooses a port
  curl http://127.0.0.1:9000/echo                     what reaches it
  curl http://127.0.0.1:9000/stats                    how much reached it

Each address is printed on standard output as a line `listening http://ADDRESS`, once connections are taken.
SIGINT and SIGTERM end it.";

/// Runs the test backend: pages of known size, every framing, faults, counts.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where to listen; may be repeated. Port 0 lets the kernel choose.
    #[arg(long, value_name = "ADDRESS", default_values_t = [SocketAddr::from((Ipv4Addr::LOCALHOST, 9000))])]
    listen: Vec<SocketAddr>,
    /// Threads [default: one for each core that the process may use].
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// Says nothing on standard output.
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Args) -> ExitCode {
    allow_many_connections();
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::fail(super::FAILED, format_args!("origin: {error}")),
    }
}

fn serve(arguments: &Args) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before anybody is told that it listens: a signal right after that must find them.
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let options = origin::Options { listen: arguments.listen.clone(), workers: arguments.workers };
        let running = origin::start(options)?;
        if !arguments.quiet {
            announce(running.addresses())?;
        }
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        running.stop();
        Ok(())
    })
}

fn announce(addresses: &[SocketAddr]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for address in addresses {
        writeln!(out, "listening http://{address}")?;
    }
    out.flush()?;
    if out.is_terminal() {
        writeln!(out, "GET / lists what it serves. Ctrl-C ends it.")?;
    }
    Ok(())
}

/// Raises the limit of open files to what the system allows. Where that fails, the old one still serves many.
fn allow_many_connections() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
