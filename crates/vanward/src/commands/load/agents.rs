//! `--agent COMMAND`: a load of several machines. At the other end of a command's standard input and output, through ssh or
//! kubectl, `vanward load agent` sends a part of it. Agents have no port: who may have one send load is a matter of that command.
//!
//! Orders and answers are lines of JSON. All agents read the same arguments, and begin once all are ready.

use std::io::{BufRead, BufReader, Read as _, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use clap::Parser;
use load::Outcome;
use serde::{Deserialize, Serialize};

use super::{Args, expect, planned};
use crate::commands;

/// The longest line: a result with its histograms.
const LINE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// What an agent is asked for.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ask {
    /// Reads arguments of `vanward load`, of which it has a part.
    Prepare { version: String, arguments: Vec<String>, number: usize, of: usize },
    /// Sends the load.
    Begin,
}

/// What it answers.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ready,
    Failed(String),
    Ended(Box<Outcome>),
}

/// The arguments of an agent.
#[derive(Parser)]
struct Typed {
    #[command(flatten)]
    arguments: Args,
}

/// An agent, which ends with its input.
struct Agent {
    /// The command that leads to it.
    command: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// Runs a load on agents, and prints one result.
pub(super) fn run(arguments: &Args) -> ExitCode {
    if let Err(message) = suited(arguments) {
        return commands::fail(commands::USAGE, message);
    }
    match together(&arguments.agents) {
        Ok(outcome) => {
            let expectations = expect::judge(&arguments.expectations, &outcome);
            super::told(arguments, &Outcome { expectations, ..outcome })
        }
        Err(message) => commands::fail(commands::FAILED, message),
    }
}

/// What cannot be had of several machines.
fn suited(arguments: &Args) -> Result<(), String> {
    expect::check(&arguments.expectations, false, false)?;
    let agents = arguments.agents.len() as u64;
    if let [connections] = arguments.connections[..] {
        let least = arguments.requests.unwrap_or(u64::MAX).min(connections);
        if least < agents {
            return Err(format!("--agent: {agents} agents need a connection and a request each, at least"));
        }
        return Ok(());
    }
    Err("--agent: one number of connections is expected".to_owned())
}

fn together(commands: &[String]) -> Result<Outcome, String> {
    let arguments = for_agents(std::env::args().skip_while(|argument| argument != "load").skip(1));
    let mut agents = commands.iter().map(|command| Agent::start(command)).collect::<Result<Vec<_>, _>>()?;
    let of = agents.len();
    for (number, agent) in agents.iter_mut().enumerate() {
        let (version, arguments) = (env!("CARGO_PKG_VERSION").to_owned(), arguments.clone());
        agent.ask(&Ask::Prepare { version, arguments, number, of })?;
    }
    for agent in &mut agents {
        match agent.answer()? {
            Answer::Ready => {}
            _ => return Err(agent.confused()),
        }
    }
    for agent in &mut agents {
        agent.ask(&Ask::Begin)?;
    }
    let mut outcomes = Vec::with_capacity(of);
    for agent in &mut agents {
        match agent.answer()? {
            Answer::Ended(outcome) => outcomes.push(*outcome),
            _ => return Err(agent.confused()),
        }
    }
    let outcome = Outcome::together(outcomes).map_err(|error| error.to_string())?;
    outcome.ok_or_else(|| "there is no agent".to_owned())
}

/// The arguments that agents get: without the agents themselves.
fn for_agents(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut arguments = arguments;
    let mut kept = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--agent" => drop(arguments.next()),
            other if other.starts_with("--agent=") => {}
            _ => kept.push(argument),
        }
    }
    kept
}

impl Agent {
    fn start(command: &str) -> Result<Self, String> {
        let failed = |why: String| format!("--agent: `{command}`: {why}");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec {command}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().map_err(|error| failed(error.to_string()))?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or_else(|| failed("it has no output".to_owned()))?;
        Ok(Self { command: command.to_owned(), child, input, output: BufReader::new(output) })
    }

    fn ask(&mut self, ask: &Ask) -> Result<(), String> {
        let written = self.input.as_mut().map(|input| write_line(input, ask));
        match written {
            Some(Ok(())) => Ok(()),
            _ => Err(self.lost()),
        }
    }

    fn answer(&mut self) -> Result<Answer, String> {
        match read_line(&mut self.output) {
            Some(Ok(Answer::Failed(why))) => Err(format!("--agent: `{}`: {why}", self.command)),
            Some(Ok(answer)) => Ok(answer),
            Some(Err(())) => Err(self.confused()),
            None => Err(self.lost()),
        }
    }

    fn lost(&self) -> String {
        format!(
            "--agent: `{}`: the agent is gone, or never was there: it has to run `vanward load agent`",
            self.command
        )
    }

    fn confused(&self) -> String {
        format!("--agent: `{}`: what it says is no answer of an agent of this version", self.command)
    }
}

impl Drop for Agent {
    /// Its input ends, and so does the load that it sends.
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a part of a load as ordered on standard input, until that ends.
pub(super) fn agent() -> ExitCode {
    let mut input = BufReader::new(std::io::stdin());
    let Some(Ok(Ask::Prepare { version, arguments, number, of })) = read_line(&mut input) else {
        return commands::fail(
            commands::USAGE,
            "an agent is asked on its standard input, by `vanward load --agent COMMAND`",
        );
    };
    let plan = match prepared(&version, arguments, number, of) {
        Ok(plan) => plan,
        Err(why) => return answered(&Answer::Failed(why)),
    };
    if answered(&Answer::Ready) != ExitCode::SUCCESS {
        return ExitCode::FAILURE;
    }
    let Some(Ok(Ask::Begin)) = read_line(&mut input) else { return ExitCode::FAILURE };
    let running = match load::start(&plan) {
        Ok(running) => running,
        Err(error) => return answered(&Answer::Failed(error.to_string())),
    };
    let control = running.control();
    std::thread::spawn(move || {
        // Whoever wants the result is there as long as the input is.
        let _ = std::io::copy(&mut input, &mut std::io::sink());
        control.stop();
    });
    match running.wait() {
        Ok(outcome) => answered(&Answer::Ended(Box::new(outcome))),
        Err(error) => answered(&Answer::Failed(error.to_string())),
    }
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
    let plan = planned::plan(&arguments)?.part(number, of);
    load::check(&plan).map_err(|error| error.to_string())?;
    Ok(plan)
}

fn answered(answer: &Answer) -> ExitCode {
    match write_line(&mut std::io::stdout(), answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn write_line(output: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

/// The next line; `None` if there is none, an error if it cannot be understood.
fn read_line<T: for<'de> Deserialize<'de>>(input: &mut impl BufRead) -> Option<Result<T, ()>> {
    let mut line = Vec::new();
    match input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
        Ok(1..) => Some(serde_json::from_slice(&line).map_err(drop)),
        Ok(0) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_get_all_arguments_but_their_commands() {
        let typed = ["--agent", "ssh a", "-c", "30", "--agent=ssh b", "--json", "http://a/"];
        let kept = for_agents(typed.into_iter().map(str::to_owned));
        assert_eq!(kept, ["-c", "30", "--json", "http://a/"]);
    }
}
