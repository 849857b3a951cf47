//! `vanward load agent`: sends a part of a load as ordered on standard input, until that ends.

use std::io::BufReader;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Parser;
use load::{RunControl, RunningLoad, Seconds};

use super::line::{self, AgentLineOrder, AgentLineReply};
use crate::commands;
use crate::commands::load::{LoadArgs, planned};

/// Interval of checks for an ended second.
const TICK: Duration = Duration::from_millis(100);
/// Maximum interval of messages while the load runs.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// The arguments of an agent.
#[derive(Parser)]
struct Typed {
    #[command(flatten)]
    arguments: LoadArgs,
}

pub(in crate::commands::load) fn run() -> ExitCode {
    let mut input = BufReader::new(std::io::stdin());
    let Some(Ok(AgentLineOrder::Prepare { version, arguments, number, of })) = line::read(&mut input) else {
        return commands::fail(
            commands::USAGE,
            "an agent reads orders from its standard input: start it with `vanward load --agent COMMAND`",
        );
    };
    let plan = match prepared(&version, arguments, number, of) {
        Ok(plan) => plan,
        Err(why) => return exit(told(&AgentLineReply::Failed(why))),
    };
    let (window_seconds, around_seconds) =
        (plan.window_seconds(), plan.warm_up_seconds + plan.timeout_seconds);
    if !told(&AgentLineReply::Ready { window_seconds, around_seconds }) {
        return ExitCode::FAILURE;
    }
    let Some(Ok(AgentLineOrder::Begin)) = line::read(&mut input) else { return ExitCode::FAILURE };
    let running = match load::start(&plan) {
        Ok(running) => running,
        Err(error) => return exit(told(&AgentLineReply::Failed(error.to_string()))),
    };
    let control = running.control();
    let stopped = control.clone();
    std::thread::spawn(move || {
        // The input stays open as long as the result is wanted.
        let _ = std::io::copy(&mut input, &mut std::io::sink());
        stopped.stop();
    });
    exit(tell(running, &control))
}

/// Reports each second, and the result. Returns whether the reports were read.
fn tell(mut running: RunningLoad, control: &RunControl) -> bool {
    let mut seconds = running.seconds();
    let (ended, end) = channel();
    std::thread::spawn(move || drop(ended.send(running.wait())));
    let mut last = Instant::now();
    let outcome = loop {
        match end.recv_timeout(TICK) {
            Ok(outcome) => break outcome,
            Err(RecvTimeoutError::Disconnected) => break Err(load::Error::ThreadEnded),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let taken = seconds.as_mut().map(Seconds::take).unwrap_or_default();
        let is_silent = taken.is_empty() && last.elapsed() >= SIGN_OF_LIFE;
        let mut answers: Vec<AgentLineReply> =
            taken.iter().map(|second| AgentLineReply::Second(Box::new(second.told()))).collect();
        answers.extend(is_silent.then_some(AgentLineReply::Runs));
        if !answers.is_empty() {
            last = Instant::now();
        }
        if !answers.iter().all(told) {
            control.stop();
        }
    };
    let rest = seconds.map(Seconds::finish).unwrap_or_default();
    let has_told = rest.iter().all(|second| told(&AgentLineReply::Second(Box::new(second.told()))));
    let result = match outcome {
        Ok(outcome) => AgentLineReply::Ended(Box::new(outcome)),
        Err(error) => AgentLineReply::Failed(error.to_string()),
    };
    has_told && told(&result)
}

fn prepared(
    version: &str,
    arguments: Vec<String>,
    number: usize,
    of: usize,
) -> Result<load::LoadPlan, String> {
    let own = env!("CARGO_PKG_VERSION");
    if version != own {
        return Err(format!("its vanward is {own}, the other one is {version}: both must be the same"));
    }
    let typed = Typed::try_parse_from(["load".to_owned()].into_iter().chain(arguments));
    let Typed { arguments } = typed.map_err(|error| error.to_string())?;
    if arguments.command.is_some() || !arguments.agents.is_empty() {
        return Err("an agent sends only requests, not streams".to_owned());
    }
    let plan = load::LoadPlan { seconds: true, ..planned::plan(&arguments)?.part(number, of) };
    load::check(&plan).map_err(|error| error.to_string())?;
    Ok(plan)
}

fn exit(is_heard: bool) -> ExitCode {
    if is_heard { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn told(answer: &AgentLineReply) -> bool {
    line::write(&mut std::io::stdout(), answer).is_ok()
}
