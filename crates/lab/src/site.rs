//! A machine of a run: its agent, here or at the other end of ssh, asked one thing at a time.
//!
//! What is asked and answered is the same wherever the agent runs; only how it is started differs.

/// How an agent gets to another machine.
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

/// How often an agent is told that it is not forgotten.
const BETWEEN_SIGNS: Duration = Duration::from_secs(3);
/// An agent at the other end of a network ends after so much silence: nobody else could end it.
pub(crate) const SILENCE_MOST: Duration = Duration::from_secs(20);
/// An agent that was left has this long to clean up. One behind a broken network does it by itself.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
/// What was lost has this long to say why. A process that it left behind could hold its standard error for ever.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Answers that nobody has taken: one for each ask.
const ANSWERS_WAITING_MOST: usize = 4;
/// What is kept of what was said on standard error.
const SAID_BYTES_MOST: usize = 600;
/// The clock is asked so often, and the quickest answer counts.
const CLOCK_READINGS: usize = 16;

/// Where a part of the lab is to run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Host {
    /// As ssh is told; `None` is this machine.
    pub ssh: Option<String>,
    /// More arguments for ssh.
    pub options: Vec<String>,
    /// Where the other machines reach it; `None` is the address that ssh reached.
    pub address: Option<IpAddr>,
    /// The binary to run there, on a machine of another kind than this one; `None` is this one's own.
    pub program: Option<PathBuf>,
}

/// An agent at work. It ends, and all that it started with it, when this is dropped.
#[derive(Debug)]
pub(crate) struct Site {
    /// As people call it; `None` is this machine.
    pub(crate) at: Option<String>,
    pub(crate) begun: Begun,
    pub(crate) clock: Clock,
    line: Line,
}

/// How far an agent's clock is from this process's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// When the agent's clock was 0.
    zero: Instant,
    /// It may be as much earlier or later as this.
    pub(crate) uncertainty: Duration,
}

impl Site {
    /// Starts an agent there, with its share of the work.
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

    /// Looks again how far its clock is from ours: over hours, clocks drift apart.
    pub(crate) async fn set_clock(&mut self) -> Result<(), Error> {
        self.clock = Clock::of(&mut self.line).await?;
        Ok(())
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Result<Answer, Error> {
        self.line.tell(ask);
        self.line.answer().await
    }

    /// Asks, without waiting.
    pub(crate) fn tell(&self, ask: &Ask) {
        self.line.tell(ask);
    }

    /// Waits for the answer to what was told.
    pub(crate) async fn answer(&mut self) -> Result<Answer, Error> {
        self.line.answer().await
    }

    /// For an answer that is none to what was asked.
    pub(crate) fn confused(&self) -> Error {
        self.line.confused()
    }
}

impl Clock {
    /// The middle between an ask and its answer, of the quickest of several: there the least can have come between.
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

    /// What the agent's clock says at an instant of ours.
    pub(crate) fn at(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.zero)
    }
}

/// What goes to an agent.
enum Piece {
    Line(Vec<u8>),
    /// Its program, before it runs.
    Program(Vec<u8>),
}

/// A process whose standard input and output are the way to an agent: itself, or ssh.
#[derive(Debug)]
struct Line {
    at: Option<String>,
    child: Child,
    /// `None` once it is to end.
    pieces: Option<Sender<Piece>>,
    answers: mpsc::Receiver<Vec<u8>>,
    said: Arc<Mutex<Vec<u8>>>,
    /// Ends with its standard error.
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

    /// The next line of output.
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

    /// The end of what it wrote to standard error, on one line.
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

/// Writes what comes, and signs of life between. The input of the process ends with the channel.
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

/// Reads all, and keeps the end of it.
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
