//! `--agent COMMAND`: load from several machines. The command runs `vanward load agent` on another machine, for example
//! through ssh, and connects its standard input and output. Agents have no port, so that command controls access.
//! Orders and answers are lines of JSON. All agents read the same arguments, and begin once all are ready. If one is
//! lost later, its part is missing, and the result says so.

/// Messages between both ends.
mod line;
/// The other end.
mod agent;

use std::io::BufReader;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use load::{RunOutcome, RunProblem, Seconds, SecondsOf};

pub(super) use agent::run as agent;
use line::{AgentLineOrder, AgentLineReply};

use super::watch::RunWatch;
use super::{LoadArgs, expect, out};
use crate::commands;

/// Options whose values agents do not need.
const OWN: [&str; 4] = ["--agent", "--agent-timeout", "--out", "--hgrm"];

pub(super) fn run(arguments: &LoadArgs) -> ExitCode {
    if let Err(message) = suited(arguments) {
        return commands::fail(commands::USAGE, message);
    }
    match together(arguments) {
        Ok(outcome) => super::told(arguments, &outcome),
        Err(message) => commands::fail(commands::FAILED, message),
    }
}

/// Rejects options that several machines do not support.
fn suited(arguments: &LoadArgs) -> Result<(), String> {
    expect::check(&arguments.expectations, false, false)?;
    if arguments.pid.is_some() {
        return Err(
            "--agent: --pid measures a server on one machine; run `vanward load --pid` there".to_owned()
        );
    }
    if arguments.remote_write.is_some() {
        return Err(
            "--agent: --remote-write pushes seconds of one machine; --out has those of all".to_owned()
        );
    }
    let agents = arguments.agents.len() as u64;
    if let [connections] = arguments.connections[..] {
        let least = arguments.requests.unwrap_or(u64::MAX).min(connections);
        if least < agents {
            return Err(format!("--agent: {agents} agents need a connection and a request each, at least"));
        }
        return Ok(());
    }
    Err("--agent: one number of connections is expected; run it once for each".to_owned())
}

fn together(arguments: &LoadArgs) -> Result<RunOutcome, String> {
    let folder = arguments.out.as_deref().map(out::OutFolder::create).transpose()?;
    let typed = for_agents(std::env::args().skip_while(|argument| argument != "load").skip(1));
    let patience = Duration::from_secs_f64(arguments.agent_timeout);
    let mut crew = Crew::start(&arguments.agents, patience)?;
    let Planned { window_seconds, end } = crew.prepare(&typed)?;
    let seconds_file = folder.as_ref().map(out::OutFolder::seconds);
    let mut watch = RunWatch::begin(arguments.quiet, window_seconds, seconds_file)?;
    let outcome = crew.send(end, &mut watch)?;
    let expectations = expect::judge(&arguments.expectations, &outcome);
    let outcome = RunOutcome { expectations, seconds: watch.ended(), ..outcome };
    watch.failure()?;
    folder.map_or(Ok(()), |folder| folder.write(&outcome))?;
    Ok(outcome)
}

fn for_agents(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut arguments = arguments;
    let mut kept = Vec::new();
    while let Some(argument) = arguments.next() {
        let name = argument.split_once('=').map_or(argument.as_str(), |(name, _)| name);
        if !OWN.contains(&name) {
            kept.push(argument);
        } else if name == argument {
            drop(arguments.next());
        }
    }
    kept
}

/// An agent's message; `None` at its end, an error if it cannot be parsed.
type Said = Option<Result<AgentLineReply, ()>>;

struct Crew {
    agents: Vec<LoadAgent>,
    heard: Receiver<(usize, Said)>,
    patience: Duration,
}

struct Planned {
    window_seconds: Option<f64>,
    /// Maximum time from the start.
    end: Option<Duration>,
}

/// An agent, which ends with its input.
struct LoadAgent {
    command: String,
    child: Child,
    input: Option<ChildStdin>,
}

/// The state of an agent that has begun.
enum AgentState {
    Runs { heard_at: Instant, seconds: SecondsOf },
    Ended(Box<RunOutcome>),
    Lost(String),
}

impl Crew {
    fn start(commands: &[String], patience: Duration) -> Result<Self, String> {
        let (sender, heard) = channel();
        let mut agents = Vec::with_capacity(commands.len());
        for (number, command) in commands.iter().enumerate() {
            let (agent, output) = LoadAgent::start(command)?;
            agents.push(agent);
            let sender = sender.clone();
            std::thread::spawn(move || listen(number, output, &sender));
        }
        Ok(Self { agents, heard, patience })
    }

    /// Lets all agents read their arguments.
    fn prepare(&mut self, arguments: &[String]) -> Result<Planned, String> {
        let of = self.agents.len();
        for (number, agent) in self.agents.iter_mut().enumerate() {
            let (version, arguments) = (env!("CARGO_PKG_VERSION").to_owned(), arguments.to_vec());
            agent.ask(&AgentLineOrder::Prepare { version, arguments, number, of })?;
        }
        let until = Instant::now() + self.patience;
        let mut planned: Vec<Option<(Option<f64>, f64)>> = vec![None; of];
        while let Some(first) = planned.iter().position(Option::is_none) {
            let left = until.saturating_duration_since(Instant::now());
            let Ok((number, said)) = self.heard.recv_timeout(left) else {
                let why = format!("it was not ready within {:?} (--agent-timeout)", self.patience);
                return Err(self.agents[first].told(&why));
            };
            let agent = &self.agents[number];
            match agent.answer(said)? {
                AgentLineReply::Ready { window_seconds, around_seconds } if planned[number].is_none() => {
                    planned[number] = Some((window_seconds, around_seconds));
                }
                _ => return Err(agent.confused()),
            }
        }
        let planned = || planned.iter().flatten();
        let window_seconds = planned().filter_map(|(window, _)| *window).reduce(f64::max);
        let around_seconds = planned().map(|(_, around)| *around).fold(0.0, f64::max);
        let end = window_seconds.and_then(|window| Duration::try_from_secs_f64(window + around_seconds).ok());
        Ok(Planned { window_seconds, end })
    }

    /// Lets all agents send their parts, within `end` if there is one.
    fn send(&mut self, end: Option<Duration>, watch: &mut RunWatch) -> Result<RunOutcome, String> {
        for agent in &mut self.agents {
            agent.ask(&AgentLineOrder::Begin)?;
        }
        let begun = Instant::now();
        let over = end.map(|end| begun + end + self.patience);
        let (of, mut seconds) = load::seconds_together(self.agents.len());
        let runs = |seconds| AgentState::Runs { heard_at: begun, seconds };
        let mut courses: Vec<AgentState> = of.into_iter().map(runs).collect();
        while let Some(silent_at) = next_silence(&courses, self.patience) {
            let until = over.map_or(silent_at, |over| over.min(silent_at));
            match self.heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((number, said)) => self.hear(number, said, &mut courses[number])?,
                // Each agent's thread drops its sender after it has reported the end.
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {}
            }
            self.give_up(over, &mut courses);
            show(&mut seconds, watch);
        }
        seconds.finish().into_iter().for_each(|second| watch.add(second));
        self.judge(courses)
    }

    fn hear(&self, number: usize, said: Said, course: &mut AgentState) -> Result<(), String> {
        let AgentState::Runs { heard_at, seconds } = course else { return Ok(()) };
        let agent = &self.agents[number];
        let next = match said {
            None => AgentState::Lost("it has gone".to_owned()),
            said => match agent.answer(said)? {
                AgentLineReply::Ended(outcome) => AgentState::Ended(outcome),
                AgentLineReply::Second(second) => {
                    *heard_at = Instant::now();
                    return seconds.add(&second).map_err(|error| agent.told(&error.to_string()));
                }
                AgentLineReply::Runs => {
                    *heard_at = Instant::now();
                    return Ok(());
                }
                AgentLineReply::Ready { .. } | AgentLineReply::Failed(_) => return Err(agent.confused()),
            },
        };
        course.become_(next);
        Ok(())
    }

    /// Gives up agents that are silent, or do not end.
    fn give_up(&self, over: Option<Instant>, courses: &mut [AgentState]) {
        let now = Instant::now();
        for course in courses {
            let AgentState::Runs { heard_at, .. } = course else { continue };
            let why = if now >= *heard_at + self.patience {
                format!("it has been silent for {:?}", self.patience)
            } else if over.is_some_and(|over| now >= over) {
                format!("it has not ended within {:?} after its time", self.patience)
            } else {
                continue;
            };
            course.become_(AgentState::Lost(why));
        }
    }

    /// Merges the outcomes of agents that have ended.
    fn judge(&self, courses: Vec<AgentState>) -> Result<RunOutcome, String> {
        let (mut outcomes, mut lost) = (Vec::new(), Vec::new());
        for (agent, course) in self.agents.iter().zip(courses) {
            match course {
                AgentState::Ended(outcome) => outcomes.push(*outcome),
                AgentState::Lost(why) => lost.push((agent, why)),
                AgentState::Runs { .. } => {}
            }
        }
        let together = RunOutcome::together(outcomes).map_err(|error| error.to_string())?;
        let Some(mut outcome) = together else {
            let first = lost.first();
            return Err(first.map_or_else(|| "no agent is given".to_owned(), |(agent, why)| agent.told(why)));
        };
        let problems = lost
            .into_iter()
            .map(|(agent, why)| RunProblem::AgentLost { command: agent.command.clone(), why });
        outcome.problems.extend(problems);
        Ok(outcome)
    }
}

/// Returns when the first running agent will have been silent for too long; `None` once none runs.
fn next_silence(courses: &[AgentState], patience: Duration) -> Option<Instant> {
    let runs = courses.iter().filter_map(|course| match course {
        AgentState::Runs { heard_at, .. } => Some(*heard_at + patience),
        AgentState::Ended(_) | AgentState::Lost(_) => None,
    });
    runs.min()
}

/// Shows the seconds that all agents have reported.
fn show(seconds: &mut Seconds, watch: &mut RunWatch) {
    let mut is_new = false;
    for second in seconds.take() {
        watch.add(second);
        is_new = true;
    }
    if is_new {
        watch.draw_kept();
    }
}

impl AgentState {
    /// Enters a final state: no more seconds will come.
    fn become_(&mut self, next: Self) {
        if let Self::Runs { seconds, .. } = std::mem::replace(self, next) {
            seconds.end();
        }
    }
}

impl LoadAgent {
    fn start(command: &str) -> Result<(Self, BufReader<ChildStdout>), String> {
        let failed = |why: String| format!("--agent: `{command}`: {why}");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec {command}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().map_err(|error| failed(error.to_string()))?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or_else(|| failed("it has no output".to_owned()))?;
        Ok((Self { command: command.to_owned(), child, input }, BufReader::new(output)))
    }

    fn ask(&mut self, ask: &AgentLineOrder) -> Result<(), String> {
        let written = self.input.as_mut().map(|input| line::write(input, ask));
        match written {
            Some(Ok(())) => Ok(()),
            _ => Err(self.lost()),
        }
    }

    /// Returns the agent's answer, unless it has failed.
    fn answer(&self, said: Said) -> Result<AgentLineReply, String> {
        match said {
            Some(Ok(AgentLineReply::Failed(why))) => Err(self.told(&why)),
            Some(Ok(answer)) => Ok(answer),
            Some(Err(())) => Err(self.confused()),
            None => Err(self.lost()),
        }
    }

    fn told(&self, why: &str) -> String {
        format!("--agent: `{}`: {why}", self.command)
    }

    fn lost(&self) -> String {
        self.told("the agent has exited, or did not start: its command must run `vanward load agent`")
    }

    fn confused(&self) -> String {
        self.told("its output is not that of an agent of this version")
    }
}

impl Drop for LoadAgent {
    /// Closing its input ends its load, too.
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(number: usize, mut output: BufReader<ChildStdout>, sender: &Sender<(usize, Said)>) {
    loop {
        let said = line::read(&mut output);
        let is_end = !matches!(said, Some(Ok(_)));
        if sender.send((number, said)).is_err() || is_end {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_get_all_arguments_but_their_commands_and_files_of_the_result() {
        let typed = ["--agent", "ssh a", "-c", "30", "--agent=ssh b", "--out", "x", "--json", "http://a/"];
        let kept = for_agents(typed.into_iter().map(str::to_owned));
        assert_eq!(kept, ["-c", "30", "--json", "http://a/"]);
    }
}
