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

use crate::agent::words::{Answer, Ask, Begun, Share};
use crate::error::Error;
use crate::plan::Own;

/// Interval of keep-alive messages to an agent.
const BETWEEN_SIGNS: Duration = Duration::from_secs(3);
/// Time without messages after which a remote agent ends: nobody else could end it.
pub(crate) const SILENCE_MOST: Duration = Duration::from_secs(20);
/// Time for an agent to clean up. Behind a broken network, it cleans up by itself.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
/// Time to read the last messages of a lost agent. A process that it left behind could keep its standard error open
/// forever.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Maximum number of unread answers: one for each order.
const ANSWERS_WAITING_MOST: usize = 4;
/// Maximum bytes that are kept of standard error.
const SAID_BYTES_MOST: usize = 600;
/// Number of readings of the agent's clock; the quickest answer counts.
const CLOCK_READINGS: usize = 16;

/// Machine for a part of the lab.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Host {
    /// Destination for ssh; `None` is this machine.
    pub ssh: Option<String>,
    /// Additional arguments for ssh.
    pub options: Vec<String>,
    /// Address for the other machines; `None` is the address that ssh connected to.
    pub address: Option<IpAddr>,
    /// Program to run there, for a machine of another architecture; `None` is this program.
    pub program: Option<PathBuf>,
}

/// A running agent. It ends with all its processes when this is dropped.
#[derive(Debug)]
pub(crate) struct Site {
    /// Name of the machine; `None` is this one.
    pub(crate) at: Option<String>,
    pub(crate) begun: Begun,
    pub(crate) clock: Clock,
    line: Line,
}

/// Difference between an agent's clock and this process's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// This process's time when the agent's clock was 0.
    zero: Instant,
    /// Maximum error of the difference.
    pub(crate) uncertainty: Duration,
}

impl Site {
    /// Starts an agent on a machine, with its share of the work.
    pub(crate) async fn open(host: &Host, own: &Own, share: Share) -> Result<Self, Error> {
        let mut line = match &host.ssh {
            None => {
                let mut command = Command::new(&own.program);
                command.args(["lab", "agent"]);
                Line::to(command, None)?
            }
            Some(to) => ssh::open(to, host, own).await?,
        };
        line.tell(&Ask::Begin(share));
        let begun = match line.answer().await? {
            Answer::Begun(begun) if begun.version == own.version => *begun,
            Answer::Begun(begun) => {
                return Err(line.unusable(&format!(
                    "its vanward is {}, this one is {}: build both from one source",
                    begun.version, own.version
                )));
            }
            _ => return Err(line.confused()),
        };
        let clock = Clock::of(&mut line).await?;
        Ok(Self { at: host.ssh.clone(), begun, clock, line })
    }

    /// Measures the difference of the clocks again: over hours, clocks drift apart.
    pub(crate) async fn set_clock(&mut self) -> Result<(), Error> {
        self.clock = Clock::of(&mut self.line).await?;
        Ok(())
    }

    /// Sends an order and waits for the answer.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Result<Answer, Error> {
        self.line.tell(ask);
        self.line.answer().await
    }

    /// Sends an order without waiting.
    pub(crate) fn tell(&self, ask: &Ask) {
        self.line.tell(ask);
    }

    /// Waits for the answer to an order sent with [`Site::tell`].
    pub(crate) async fn answer(&mut self) -> Result<Answer, Error> {
        self.line.answer().await
    }

    /// Error: the answer does not fit the order.
    pub(crate) fn confused(&self) -> Error {
        self.line.confused()
    }
}

impl Clock {
    /// Takes the middle between an order and its answer, of the quickest of several: its error is the smallest.
    async fn of(line: &mut Line) -> Result<Self, Error> {
        let mut best: Option<Self> = None;
        for _ in 0..CLOCK_READINGS {
            let asked = Instant::now();
            line.tell(&Ask::Clock);
            let Answer::Clock(since) = line.answer().await? else { return Err(line.confused()) };
            let uncertainty = asked.elapsed() / 2;
            if best.is_none_or(|best| uncertainty < best.uncertainty) {
                // A clock that began before this machine did would have no instant here.
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
enum Piece {
    Line(Vec<u8>),
    /// The program, copied before it is started.
    Program(Vec<u8>),
}

/// The process at this end of the connection: the agent itself, or ssh.
#[derive(Debug)]
struct Line {
    at: Option<String>,
    child: Child,
    /// Queue of the data for standard input; `None` after the end was requested.
    pieces: Option<Sender<Piece>>,
    answers: mpsc::Receiver<Vec<u8>>,
    said: Arc<Mutex<Vec<u8>>>,
    /// Closed at the end of standard error.
    all_said: mpsc::Receiver<Infallible>,
}

impl Line {
    fn to(mut command: Command, at: Option<String>) -> Result<Self, Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // What a terminal sends at Ctrl-C is for the lab, which ends its agents.
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

    fn tell(&self, ask: &Ask) {
        let mut line =
            serde_json::to_vec(ask).expect("asks have string keys and finite numbers by their types");
        line.push(b'\n');
        self.send(Piece::Line(line));
    }

    fn send(&self, piece: Piece) {
        if let Some(pieces) = &self.pieces {
            // If nobody takes it any more, the answer that does not come says why.
            let _ = pieces.send(piece);
        }
    }

    async fn answer(&mut self) -> Result<Answer, Error> {
        let line = self.line().await?;
        match serde_json::from_slice(&line) {
            Ok(Answer::Failed(reason)) => Err(Error::There { at: self.at.clone(), reason }),
            Ok(answer) => Ok(answer),
            Err(_) => Err(self.confused()),
        }
    }

    /// Reads the next line of standard output.
    async fn line(&mut self) -> Result<Vec<u8>, Error> {
        if let Some(line) = self.answers.recv().await {
            return Ok(line);
        }
        // Its output ended; the reason for that comes by another pipe, and may be read a moment later.
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
        self.unusable("its answer was not understood: both ends have to be the same version of vanward")
    }

    fn unusable(&self, reason: &str) -> Error {
        Error::Unusable { at: self.name(), reason: reason.to_owned() }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Its input ends, and so does the agent, after it ended what it started.
        self.pieces = None;
        let until = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= until {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            // An answer that nobody wants must not hold it up.
            while self.answers.try_recv().is_ok() {}
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }
}

/// Writes the queued data, and keep-alive messages between them. Standard input is closed with the queue.
fn write(mut input: ChildStdin, pieces: &std::sync::mpsc::Receiver<Piece>) {
    let mut alive = serde_json::to_vec(&Ask::Alive).expect("a word");
    alive.push(b'\n');
    let mut has_begun = false;
    loop {
        let bytes = match pieces.recv_timeout(BETWEEN_SIGNS) {
            Ok(Piece::Line(line)) => {
                has_begun = true;
                line
            }
            Ok(Piece::Program(program)) => program,
            Err(RecvTimeoutError::Timeout) if has_begun => alive.clone(),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if input.write_all(&bytes).and_then(|()| input.flush()).is_err() {
            return;
        }
    }
}

/// Reads standard error to its end, and keeps the last bytes.
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
        let mut line = Line::to(command, Some("there".to_owned())).expect("a shell");
        // Whoever asks again hears the same.
        for _ in 0..2 {
            let lost = line.line().await.expect_err("it says nothing");
            assert_eq!(
                lost.to_string(),
                "the connection to the agent on there was lost; it said: no such host"
            );
        }
    }
}
