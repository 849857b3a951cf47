//! Machine of a run: the connection to its agent, local or over ssh. One order is active at a time.
//!
//! Orders and answers are the same for both; only the start differs.

/// Starts an agent on another machine.
mod ssh;

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::IpAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::agent::words::{AgentOrder, AgentReply, Begun, MachineShare};
use crate::error::Error;
use crate::plan::OwnProgram;

/// Interval of keep-alive messages to an agent.
const BETWEEN_SIGNS: Duration = Duration::from_secs(3);
/// Time without messages after which a remote agent ends, because no other process could end it.
pub(crate) const SILENCE_MOST: Duration = Duration::from_secs(20);
/// Time for an agent to clean up. If the network fails, the agent cleans up without an order.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
/// Time to read a lost agent's last messages: a process that it left could keep its standard error open forever.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Maximum number of unread answers: one for each order.
const ANSWERS_WAITING_MOST: usize = 4;
/// Maximum bytes that are kept of standard error.
const SAID_BYTES_MOST: usize = 600;
/// Number of readings of the agent's clock; the quickest answer counts.
const CLOCK_READINGS: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Host {
    /// Destination for ssh; `None` is this machine.
    pub ssh: Option<String>,
    pub options: Vec<String>,
    /// Address for the other machines; `None` is the address that ssh connected to.
    pub address: Option<IpAddr>,
    /// Program to run there, for a machine of another architecture; `None` is this program.
    pub program: Option<PathBuf>,
}

/// A running agent. It ends with all its processes when this is dropped.
#[derive(Debug)]
pub(crate) struct RunningAgent {
    /// Name of the machine; `None` is this one.
    pub(crate) at: Option<String>,
    pub(crate) begun: Begun,
    pub(crate) clock: ClockOffset,
    line: SiteLine,
}

/// Difference between an agent's clock and this process's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockOffset {
    /// This process's time when the agent's clock was 0.
    zero: Instant,
    /// Maximum error of the difference.
    pub(crate) uncertainty: Duration,
}

impl RunningAgent {
    /// Starts an agent on a machine, with its share of the work.
    pub(crate) async fn open(host: &Host, own: &OwnProgram, share: MachineShare) -> Result<Self, Error> {
        let mut line = match &host.ssh {
            None => {
                let mut command = Command::new(&own.program);
                command.args(["lab", "agent"]);
                SiteLine::to(command, None)?
            }
            Some(to) => ssh::open(to, host, own).await?,
        };
        line.tell(&AgentOrder::Begin(share));
        let begun = match line.answer().await? {
            AgentReply::Begun(begun) if begun.version == own.version => *begun,
            AgentReply::Begun(begun) => {
                return Err(line.unusable(&format!(
                    "its vanward is {}, this one is {}: build both from one source",
                    begun.version, own.version
                )));
            }
            _ => return Err(line.confused()),
        };
        let clock = ClockOffset::new(&mut line).await?;
        Ok(Self { at: host.ssh.clone(), begun, clock, line })
    }

    /// Measures the difference of the clocks again: over hours, clocks drift apart.
    pub(crate) async fn set_clock(&mut self) -> Result<(), Error> {
        self.clock = ClockOffset::new(&mut self.line).await?;
        Ok(())
    }

    /// Sends an order and waits for the answer.
    pub(crate) async fn ask(&mut self, ask: &AgentOrder) -> Result<AgentReply, Error> {
        self.line.tell(ask);
        self.line.answer().await
    }

    /// Sends an order without waiting.
    pub(crate) fn tell(&self, ask: &AgentOrder) {
        self.line.tell(ask);
    }

    /// Waits for the answer to an order sent with [`Site::tell`].
    pub(crate) async fn answer(&mut self) -> Result<AgentReply, Error> {
        self.line.answer().await
    }

    /// The error for an answer that does not fit the order.
    pub(crate) fn confused(&self) -> Error {
        self.line.confused()
    }
}

impl ClockOffset {
    /// Takes the middle between an order and its answer, of the quickest of several: its error is the smallest.
    async fn new(line: &mut SiteLine) -> Result<Self, Error> {
        let mut best: Option<Self> = None;
        for _ in 0..CLOCK_READINGS {
            let asked = Instant::now();
            line.tell(&AgentOrder::Clock);
            let AgentReply::Clock(since) = line.answer().await? else { return Err(line.confused()) };
            let uncertainty = asked.elapsed() / 2;
            if best.is_none_or(|best| uncertainty < best.uncertainty) {
                // If the agent's clock began before this machine did, its start is not an instant here.
                let zero = (asked + uncertainty).checked_sub(since).ok_or_else(|| line.confused())?;
                best = Some(Self { zero, uncertainty });
            }
        }
        best.ok_or_else(|| line.confused())
    }

    /// The agent's time at an instant of this process.
    pub(crate) fn at(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.zero)
    }
}

/// Data for an agent's standard input.
enum InputPiece {
    Line(Vec<u8>),
    /// The program, copied before it is started.
    Program(Vec<u8>),
}

/// The process at this end of the connection: the agent itself, or ssh.
#[derive(Debug)]
struct SiteLine {
    at: Option<String>,
    child: Child,
    /// Queue of the data for standard input; `None` after the end was requested.
    pieces: Option<Sender<InputPiece>>,
    answers: mpsc::Receiver<Vec<u8>>,
    said: Arc<Mutex<Vec<u8>>>,
    /// Closed at the end of standard error.
    all_said: mpsc::Receiver<Infallible>,
}

impl SiteLine {
    fn to(mut command: Command, at: Option<String>) -> Result<Self, Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C in a terminal is for the lab, which ends its agents.
            .process_group(0)
            .spawn();
        let mut child = child.map_err(|source| Error::Spawn { program, source })?;
        let ends = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(output), Some(errors)) = ends else {
            unreachable!("all three were asked to be pipes");
        };
        let (pieces, to_write) = channel();
        let (answered, answers) = mpsc::channel(ANSWERS_WAITING_MOST);
        let said = Arc::new(Mutex::new(Vec::new()));
        std::thread::spawn(move || write(input, &to_write));
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while matches!(output.read_until(b'\n', &mut line), Ok(1..)) {
                if answered.blocking_send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        let kept = Arc::clone(&said);
        let (saying, all_said) = mpsc::channel(1);
        std::thread::spawn(move || {
            keep_last(errors, &kept);
            drop(saying);
        });
        Ok(Self { at, child, pieces: Some(pieces), answers, said, all_said })
    }

    fn tell(&self, ask: &AgentOrder) {
        let mut line =
            serde_json::to_vec(ask).expect("asks have string keys and finite numbers by their types");
        line.push(b'\n');
        self.send(InputPiece::Line(line));
    }

    fn send(&self, piece: InputPiece) {
        if let Some(pieces) = &self.pieces {
            // If the reader is gone, the missing answer reports the reason.
            let _ = pieces.send(piece);
        }
    }

    async fn answer(&mut self) -> Result<AgentReply, Error> {
        let line = self.line().await?;
        match serde_json::from_slice(&line) {
            Ok(AgentReply::Failed(reason)) => Err(Error::There { at: self.at.clone(), reason }),
            Ok(answer) => Ok(answer),
            Err(_) => Err(self.confused()),
        }
    }

    /// Reads the next line of standard output.
    async fn line(&mut self) -> Result<Vec<u8>, Error> {
        if let Some(line) = self.answers.recv().await {
            return Ok(line);
        }
        // Its output ended. The reason is on standard error, and may arrive a moment later.
        let _ = tokio::time::timeout(LAST_WORDS, self.all_said.recv()).await;
        Err(Error::Lost { at: self.name(), log: self.said() })
    }

    fn name(&self) -> String {
        self.at.clone().unwrap_or_else(|| "this machine".to_owned())
    }

    /// The end of standard error, on one line.
    fn said(&self) -> String {
        let said = self.said.lock().map(|said| said.clone()).unwrap_or_default();
        String::from_utf8_lossy(&said).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn confused(&self) -> Error {
        self.unusable("its answer cannot be parsed: both machines must run the same version of vanward")
    }

    fn unusable(&self, reason: &str) -> Error {
        Error::Unusable { at: self.name(), reason: reason.to_owned() }
    }
}

impl Drop for SiteLine {
    fn drop(&mut self) {
        // The agent's input ends. The agent then ends its processes, and itself.
        self.pieces = None;
        let until = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= until {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            // Discards answers, because a full queue would block the agent.
            while self.answers.try_recv().is_ok() {}
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }
}

/// Writes the queued data, and keep-alive messages between them. Standard input is closed with the queue.
fn write(mut input: ChildStdin, pieces: &std::sync::mpsc::Receiver<InputPiece>) {
    let mut alive = serde_json::to_vec(&AgentOrder::Alive).expect("a word");
    alive.push(b'\n');
    let mut has_begun = false;
    loop {
        let bytes = match pieces.recv_timeout(BETWEEN_SIGNS) {
            Ok(InputPiece::Line(line)) => {
                has_begun = true;
                line
            }
            Ok(InputPiece::Program(program)) => program,
            Err(RecvTimeoutError::Timeout) if has_begun => alive.clone(),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if input.write_all(&bytes).and_then(|()| input.flush()).is_err() {
            return;
        }
    }
}

fn keep_last(mut errors: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut piece = [0; 1024];
    while let Ok(count @ 1..) = errors.read(&mut piece) {
        let Ok(mut kept) = kept.lock() else { return };
        kept.extend_from_slice(&piece[..count]);
        let beyond = kept.len().saturating_sub(SAID_BYTES_MOST);
        kept.drain(..beyond);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_words_of_what_was_lost_are_waited_for() {
        let mut command = Command::new("sh");
        command.args(["-c", "exec >&-; sleep 0.2; echo no such host >&2"]);
        let mut line = SiteLine::to(command, Some("there".to_owned())).expect("a shell");
        // A second call returns the same error.
        for _ in 0..2 {
            let lost = line.line().await.expect_err("it says nothing");
            assert_eq!(
                lost.to_string(),
                "the connection to the agent on there was lost; it said: no such host"
            );
        }
    }
}
