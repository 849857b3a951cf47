//! The processes of an upgrade that share QUIC sockets: those before this one, which still have connections, and the next.
//! What is passed on between them is in `worker/quic_upgrade`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use transport::quic_strays::{self, Gone, Stray};

/// Processes before this one that are reached: more upgrades within the life of a connection are rare.
const PROCESSES_MAX: usize = 8;

/// The processes before this one that may still have connections, the newest first.
#[derive(Default)]
pub struct QuicProcesses(Vec<QuicProcess>);

/// A process before this one.
pub struct QuicProcess {
    generation: u8,
    /// One to each of its workers.
    channels: Vec<Channel>,
    /// With how many of them clients may be beginning.
    asked: AtomicUsize,
}

struct Channel {
    socket: OwnedFd,
    /// Whether clients may be beginning with this worker, or it can tell who is with the others.
    asks: AtomicBool,
}

impl QuicProcesses {
    /// The processes with these generations, and the ways to their workers, the newest first.
    pub fn new(processes: Vec<(u8, Vec<OwnedFd>)>) -> Self {
        let channel = |socket| Channel { socket, asks: AtomicBool::new(true) };
        let process = |(generation, sockets): (u8, Vec<OwnedFd>)| QuicProcess {
            generation,
            asked: AtomicUsize::new(sockets.len()),
            channels: sockets.into_iter().map(channel).collect(),
        };
        Self(processes.into_iter().map(process).collect())
    }

    /// The ways to those that have not ended, for the next process.
    ///
    /// # Errors
    /// If there is no file descriptor left.
    pub fn handover(&self) -> io::Result<Vec<(u8, Vec<OwnedFd>)>> {
        let lives = |process: &&QuicProcess| process.channels.iter().any(Channel::is_alive);
        let copies = |process: &QuicProcess| {
            let copies: io::Result<Vec<_>> = process.channels.iter().map(Channel::copy).collect();
            Ok((process.generation, copies?))
        };
        self.0.iter().filter(lives).take(PROCESSES_MAX).map(copies).collect()
    }

    /// The process of which this one is the next.
    pub(crate) fn last(&self) -> Option<&QuicProcess> {
        self.0.first()
    }

    /// The process of this generation.
    pub(crate) fn of(&self, generation: u8) -> Option<&QuicProcess> {
        self.0.iter().find(|process| process.generation == generation)
    }
}

impl QuicProcess {
    /// The number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.channels.len()
    }

    /// Whether clients may be beginning there.
    pub(crate) fn asks(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 0
    }

    /// No client is beginning any more, as far as this worker tells.
    pub(crate) fn ask_no_more(&self, worker: usize) {
        // Several workers may hear it at once: each of theirs counts once.
        if self.channels.get(worker).is_some_and(|channel| channel.asks.swap(false, Ordering::Relaxed)) {
            self.asked.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Asks whether a client is beginning there: this worker, or the next one that may tell.
    ///
    /// # Errors
    /// If none may.
    pub(crate) fn ask(&self, first: usize, stray: &Stray) -> Result<(), Gone> {
        let count = self.channels.len();
        let mut workers = (first..first + count).map(|worker| worker % count.max(1));
        let is_asked = workers.any(|worker| {
            self.channels[worker].asks.load(Ordering::Relaxed) && self.pass(worker, stray).is_ok()
        });
        if is_asked { Ok(()) } else { Err(Gone) }
    }

    /// Sends a message to a worker.
    ///
    /// # Errors
    /// If the worker has ended.
    pub(crate) fn pass(&self, worker: usize, stray: &Stray) -> Result<(), Gone> {
        let channel = self.channels.get(worker).ok_or(Gone)?;
        quic_strays::pass(&channel.socket, stray).inspect_err(|Gone| self.ask_no_more(worker))
    }

    /// The way to a worker, once more.
    pub(crate) fn channel(&self, worker: usize) -> io::Result<OwnedFd> {
        self.channels.get(worker).map_or(Err(io::ErrorKind::NotFound.into()), Channel::copy)
    }
}

impl Channel {
    fn is_alive(&self) -> bool {
        quic_strays::is_alive(&self.socket)
    }

    fn copy(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }
}
