//! `vanward load agent`: sends a part of a load as ordered on standard input, until that ends.

use std::io::BufReader;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Parser;
use load::{Control, Running, Seconds};

use super::line::{self, Answer, Ask};
use crate::commands;
use crate::commands::load::{Args, planned};

/// How often it looks whether a second has ended.
const TICK: Duration = Duration::from_millis(100);
/// How often it says at least that the load goes on.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// The arguments of an agent.
#[derive(Parser)]
struct Typed {
    #[command(flatten)]
    arguments: Args,
}

pub(in crate::commands::load) fn run() -> ExitCode {
    let mut input = BufReader::new(std::io::stdin());
    let Some(Ok(Ask::Prepare { version, arguments, number, of })) = line::read(&mut input) else {
        return commands::fail(
            commands::USAGE,
            "an agent is asked on its standard input, by `vanward load --agent COMMAND`",
        );
    };
    let plan = match prepared(&version, arguments, number, of) {
        Ok(plan) => plan,
        Err(why) => return exit(told(&Answer::Failed(why))),
    };
    let (window_seconds, around_seconds) =
        (plan.window_seconds(), plan.warm_up_seconds + plan.timeout_seconds);
    if !told(&Answer::Ready { window_seconds, around_seconds }) {
        return ExitCode::FAILURE;
    }
    let Some(Ok(Ask::Begin)) = line::read(&mut input) else { return ExitCode::FAILURE };
    let running = match load::start(&plan) {
        Ok(running) => running,
        Err(error) => return exit(told(&Answer::Failed(error.to_string()))),
    };
    let control = running.control();
    let stopped = control.clone();
    std::thread::spawn(move || {
        // Whoever wants the result is there as long as the input is.
        let _ = std::io::copy(&mut input, &mut std::io::sink());
        stopped.stop();
    });
    exit(tell(running, &control))
}

/// Tells each second, and the result. Returns whether somebody hears it.
fn tell(mut running: Running, control: &Control) -> bool {
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
        let mut answers: Vec<Answer> =
            taken.iter().map(|second| Answer::Second(Box::new(second.told()))).collect();
        answers.extend(is_silent.then_some(Answer::Runs));
        if !answers.is_empty() {
            last = Instant::now();
        }
        if !answers.iter().all(told) {
            control.stop();
        }
    };
    let rest = seconds.map(Seconds::finish).unwrap_or_default();
    let has_told = rest.iter().all(|second| told(&Answer::Second(Box::new(second.told()))));
    let result = match outcome {
        Ok(outcome) => Answer::Ended(Box::new(outcome)),
        Err(error) => Answer::Failed(error.to_string()),
    };
    has_told && told(&result)
}

fn prepared(version: &str, arguments: Vec<String>, number: usize, of: usize) -> Result<load::Plan, String> {
    let own = env!("CARGO_PKG_VERSION");
    if version != own {
        return Err(format!("its vanward is {own}, the other one is {version}: both have to be the same"));
    }
    let typed = Typed::try_parse_from(["load".to_owned()].into_iter().chain(arguments));
    let Typed { arguments } = typed.map_err(|error| error.to_string())?;
    if arguments.command.is_some() || !arguments.agents.is_empty() {
        return Err("an agent sends requests, no streams".to_owned());
    }
    let plan = load::Plan { seconds: true, ..planned::plan(&arguments)?.part(number, of) };
    load::check(&plan).map_err(|error| error.to_string())?;
    Ok(plan)
}

fn exit(is_heard: bool) -> ExitCode {
    if is_heard { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn told(answer: &Answer) -> bool {
    line::write(&mut std::io::stdout(), answer).is_ok()
}
