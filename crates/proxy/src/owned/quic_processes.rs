//! The processes of an upgrade that share QUIC sockets: previous ones that still have connections, and the next.
//! `worker/quic_upgrade` exchanges messages with them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use transport::quic_strays::{self, ProcessGone, Stray};

/// Maximum number of previous processes: more upgrades within the life of a connection are rare.
const PROCESSES_MAX: usize = 8;

/// Previous processes that may still have connections, the newest first.
#[derive(Default)]
pub struct QuicProcesses(Vec<QuicProcess>);

pub struct QuicProcess {
    generation: u8,
    /// A channel to each of its workers.
    channels: Vec<ProcessChannel>,
    /// The number of workers that may have handshakes under way.
    asked: AtomicUsize,
}

struct ProcessChannel {
    socket: OwnedFd,
    /// Whether handshakes may be under way with this worker, or it can tell for the others.
    asks: AtomicBool,
}

impl QuicProcesses {
    /// Creates the processes with these generations and channels to their workers, the newest first.
    pub fn new(processes: Vec<(u8, Vec<OwnedFd>)>) -> Self {
        let channel = |socket| ProcessChannel { socket, asks: AtomicBool::new(true) };
        let process = |(generation, sockets): (u8, Vec<OwnedFd>)| QuicProcess {
            generation,
            asked: AtomicUsize::new(sockets.len()),
            channels: sockets.into_iter().map(channel).collect(),
        };
        Self(processes.into_iter().map(process).collect())
    }

    /// Returns the channels of processes that still run, for the next process.
    ///
    /// # Errors
    /// If no file descriptor is left.
    pub fn handover(&self) -> io::Result<Vec<(u8, Vec<OwnedFd>)>> {
        // An ended process needs no channels, which are a descriptor for each worker.
        let lives = |process: &&QuicProcess| process.channels.iter().any(ProcessChannel::is_alive);
        let copies = |process: &QuicProcess| {
            let copies: io::Result<Vec<_>> = process.channels.iter().map(ProcessChannel::copy).collect();
            Ok((process.generation, copies?))
        };
        self.0.iter().filter(lives).take(PROCESSES_MAX).map(copies).collect()
    }

    /// The direct predecessor of this process.
    pub(crate) fn last(&self) -> Option<&QuicProcess> {
        self.0.first()
    }

    pub(crate) fn for_generation(&self, generation: u8) -> Option<&QuicProcess> {
        self.0.iter().find(|process| process.generation == generation)
    }
}

impl QuicProcess {
    pub(crate) fn workers(&self) -> usize {
        self.channels.len()
    }

    /// Whether handshakes may be under way there.
    pub(crate) fn asks(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 0
    }

    /// Notes that a worker there has no handshake under way any more.
    pub(crate) fn ask_no_more(&self, worker: usize) {
        // Several workers may receive the message: it counts once per worker.
        if self.channels.get(worker).is_some_and(|channel| channel.asks.swap(false, Ordering::Relaxed)) {
            self.asked.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Asks whether a client's handshake is under way there: this worker, or the next one that can tell.
    ///
    /// # Errors
    /// If none can.
    pub(crate) fn ask(&self, first: usize, stray: &Stray) -> Result<(), ProcessGone> {
        let count = self.channels.len();
        // Any worker there can tell for the others, because they share the table of handshakes.
        let mut workers = (first..first + count).map(|worker| worker % count.max(1));
        let is_asked = workers.any(|worker| {
            self.channels[worker].asks.load(Ordering::Relaxed) && self.pass(worker, stray).is_ok()
        });
        if is_asked { Ok(()) } else { Err(ProcessGone) }
    }

    /// Sends a message to a worker.
    ///
    /// # Errors
    /// If the worker has ended.
    pub(crate) fn pass(&self, worker: usize, stray: &Stray) -> Result<(), ProcessGone> {
        let channel = self.channels.get(worker).ok_or(ProcessGone)?;
        quic_strays::pass(&channel.socket, stray).inspect_err(|ProcessGone| self.ask_no_more(worker))
    }

    /// Returns a copy of the channel to a worker.
    pub(crate) fn channel(&self, worker: usize) -> io::Result<OwnedFd> {
        self.channels.get(worker).map_or(Err(io::ErrorKind::NotFound.into()), ProcessChannel::copy)
    }
}

impl ProcessChannel {
    fn is_alive(&self) -> bool {
        quic_strays::is_alive(&self.socket)
    }

    fn copy(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }
}
