//! The way of a line: formatted into a buffer that its worker owns, handed over when full or at the worker's tick,
//! written by a thread of its own, and the buffer comes back. A worker never waits: when the queue is full it keeps
//! what it has, and drops and counts the lines that no longer fit.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crate::entry::Entry;
use crate::line::Format;
use crate::timestamp::Timestamp;
use crate::writer::{Output, Writer};

/// A buffer that holds this much is handed over without waiting for the tick.
const BATCH_BYTES: usize = 64 * 1024;
/// Buffers on their way to the writer, from all workers: 4 MiB of lines.
const QUEUE_BATCHES: usize = 64;
/// Empty buffers that wait for one worker; more are freed.
const SPARE_BATCHES: usize = 4;
/// How long the end of a worker, or of the log, waits for a writer that is behind.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Where lines go.
pub enum Target {
    /// Standard output.
    Stdout,
    /// Appended to this file, which is created where missing, readable by its owner and group.
    File(PathBuf),
    /// To this writer, each batch of lines in as few calls as it takes.
    Writer(Box<dyn Write + Send>),
}

/// The access log. Clones share one writer thread; `close` it last to be sure that every line is out.
#[derive(Clone)]
pub struct AccessLog {
    queue: SyncSender<Message>,
    format: Format,
    state: Arc<State>,
    thread: Arc<Mutex<Option<WriterThread>>>,
}

/// What the log, its workers and its writer all see.
#[derive(Default)]
pub(crate) struct State {
    /// Lines lost, for whatever reason.
    pub(crate) dropped: AtomicU64,
    /// The file is to be opened again.
    pub(crate) reopen: AtomicBool,
}

struct WriterThread {
    handle: JoinHandle<()>,
    /// Disconnects when the thread ends.
    running: Receiver<()>,
}

/// What the writer is sent.
pub(crate) enum Message {
    /// Whole lines, and where the empty buffer goes afterwards.
    Lines(Vec<u8>, SyncSender<Vec<u8>>),
    /// Look at the state.
    Wake,
    /// Write what is queued, and end.
    Close,
}

impl AccessLog {
    /// Opens `target` and starts the thread that writes to it.
    pub fn open(target: Target, format: Format) -> io::Result<Self> {
        Self::open_with(target, format, Box::new(io::stderr()))
    }

    /// The same, with another place for what the writer has to say.
    fn open_with(target: Target, format: Format, complaints: Box<dyn Write + Send>) -> io::Result<Self> {
        let output = match target {
            // The descriptor itself: standard output's own buffer would only copy the lines once more.
            Target::Stdout => {
                Output::stream("stdout", File::from(io::stdout().as_fd().try_clone_to_owned()?))
            }
            Target::File(path) => Output::file(path)?,
            Target::Writer(writer) => Output::stream("the log's writer", writer),
        };
        let (queue, lines) = sync_channel(QUEUE_BATCHES);
        let state = Arc::new(State::default());
        let writer = Writer::new(lines, output, complaints, Arc::clone(&state));
        let (alive, running) = sync_channel(0);
        let handle = thread::Builder::new().name("access log".to_owned()).spawn(move || {
            let _alive: SyncSender<()> = alive;
            writer.run();
        })?;
        let thread = Arc::new(Mutex::new(Some(WriterThread { handle, running })));
        Ok(Self { queue, format, state, thread })
    }

    /// The part of the log that one worker owns.
    #[must_use]
    pub fn for_worker(&self) -> WorkerLog {
        let (home, spares) = sync_channel(SPARE_BATCHES);
        WorkerLog {
            queue: self.queue.clone(),
            format: self.format,
            state: Arc::clone(&self.state),
            timestamp: Timestamp::new(),
            lines: Vec::with_capacity(BATCH_BYTES),
            spares,
            home,
        }
    }

    /// Opens the file anew under its name, as after a rotation. Where that fails the old one is kept, and it is said.
    pub fn reopen(&self) {
        self.state.reopen.store(true, Ordering::Release);
        // When the queue is full the writer will look soon in any case.
        drop(self.queue.try_send(Message::Wake));
    }

    /// Lines lost so far: the writer was behind, the target failed, or the log was closed already.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::Relaxed)
    }

    /// Writes what the workers handed over, and ends the thread. Waits at most two seconds for a target that takes
    /// nothing. Workers drop theirs first; what they record after this is counted as dropped.
    pub fn close(self) {
        self.close_within(END_PATIENCE);
    }

    fn close_within(self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        if send_by(deadline, &self.queue, Message::Close).is_err() {
            return;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if thread.running.recv_timeout(left) == Err(RecvTimeoutError::Disconnected) {
            drop(thread.handle.join());
        }
    }
}

/// One worker's end of the log. Dropping it hands over what it holds.
pub struct WorkerLog {
    queue: SyncSender<Message>,
    format: Format,
    state: Arc<State>,
    timestamp: Timestamp,
    lines: Vec<u8>,
    spares: Receiver<Vec<u8>>,
    home: SyncSender<Vec<u8>>,
}

impl WorkerLog {
    /// Adds the line of a request that ended `now`.
    pub fn record(&mut self, entry: &Entry<'_>, now: SystemTime) {
        if self.lines.len() >= BATCH_BYTES && !self.hand_over() {
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.timestamp.set(now);
        self.format.write(entry, &self.timestamp, &mut self.lines);
        if self.lines.len() >= BATCH_BYTES {
            self.hand_over();
        }
    }

    /// Hands over what there is. For the worker's tick, about ten times a second.
    pub fn flush(&mut self) {
        if !self.lines.is_empty() {
            self.hand_over();
        }
    }

    /// Whether there is room for more lines now. If the queue is full, the lines are kept for the next try.
    fn hand_over(&mut self) -> bool {
        let batch = Message::Lines(std::mem::take(&mut self.lines), self.home.clone());
        match self.queue.try_send(batch) {
            Ok(()) => {
                self.lines = self.spares.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH_BYTES));
                true
            }
            Err(TrySendError::Full(message)) => {
                if let Message::Lines(lines, _) = message {
                    self.lines = lines;
                }
                false
            }
            Err(TrySendError::Disconnected(message)) => {
                if let Message::Lines(lines, _) = message {
                    self.state.dropped.fetch_add(count_lines(&lines), Ordering::Relaxed);
                    self.lines = lines;
                    self.lines.clear();
                }
                true
            }
        }
    }
}

impl Drop for WorkerLog {
    fn drop(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let batch = Message::Lines(std::mem::take(&mut self.lines), self.home.clone());
        if let Err(Message::Lines(lines, _)) = send_by(Instant::now() + END_PATIENCE, &self.queue, batch) {
            self.state.dropped.fetch_add(count_lines(&lines), Ordering::Relaxed);
        }
    }
}

/// Sends, or gives the message back when there was no room by the deadline. Only where a worker or the log ends:
/// the standard channel has no send with a time limit.
fn send_by(deadline: Instant, queue: &SyncSender<Message>, mut message: Message) -> Result<(), Message> {
    loop {
        message = match queue.try_send(message) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Disconnected(message)) => return Err(message),
            Err(TrySendError::Full(message)) if Instant::now() >= deadline => return Err(message),
            Err(TrySendError::Full(message)) => message,
        };
        thread::sleep(Duration::from_millis(1));
    }
}

/// Each line holds exactly one line feed, its last byte.
pub(crate) fn count_lines(lines: &[u8]) -> u64 {
    lines.iter().filter(|&&byte| byte == b'\n').count() as u64
}
