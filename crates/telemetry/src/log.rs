//! An access log. A worker formats lines into its own buffer, and hands it over when full or at its tick. A thread
//! writes it, and returns the buffer. A worker never waits: if the queue is full, it keeps its lines, and drops and
//! counts those that no longer fit.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use logline::{LineBatch, LineWriter, LogEntry, Needs, Timestamp};

use crate::file::{Output, Rotation};
use crate::journal::Journal;
use crate::message;
use crate::syslog::{Syslog, SyslogSink};
use crate::writer::{LogSink, LogWriter};

/// A buffer of this size is handed over without waiting for the tick.
const BATCH_BYTES: usize = 64 * 1024;
/// Capacity of a buffer, with room for the line that fills it, and for the space reserved while a line is written.
const BATCH_ROOM: usize = BATCH_BYTES + 4096;
/// Buffers on their way to the writer, from all workers: 4 MiB of lines.
pub(crate) const QUEUE_BATCHES: usize = 64;
/// Empty buffers that wait for one worker; more are freed.
const SPARE_BATCHES: usize = 4;
/// How long the end of a worker, or of the log, waits for a slow writer.
pub(crate) const END_PATIENCE: Duration = Duration::from_secs(2);

/// The destination of the access log.
pub enum LogDestination {
    Stdout,
    /// A file to append to, and when it is replaced by a new one. It is created if missing, readable by its owner and
    /// group.
    File(PathBuf, Option<Rotation>),
    /// A syslog receiver. It may be unreachable at first.
    Syslog(Syslog),
    /// The journal of systemd, at its usual socket or at another one. It may be missing at first.
    Journal(Option<PathBuf>),
    /// A writer, which gets each batch of lines in as few calls as possible.
    Writer(Box<dyn Write + Send>),
}

/// A log. Clones share one writer thread; `close` the log last to be sure that every line is written.
#[derive(Clone)]
pub(crate) struct AccessLogWriter {
    queue: SyncSender<LogMessage>,
    format: Arc<LineWriter>,
    state: Arc<LogState>,
    thread: Arc<Mutex<Option<WriterThread>>>,
}

/// The state that the log, its workers and its writer share.
#[derive(Default)]
pub(crate) struct LogState {
    /// The number of lines lost, for any reason.
    pub(crate) dropped: AtomicU64,
    /// Asks the writer to reopen the file.
    pub(crate) reopen: AtomicBool,
    /// Why the target accepts no lines, with its name; `None` while it does.
    pub(crate) trouble: Mutex<Option<String>>,
}

struct WriterThread {
    handle: JoinHandle<()>,
    /// Disconnects when the thread ends.
    running: Receiver<()>,
}

pub(crate) enum LogMessage {
    /// Whole lines, and the channel that takes the empty buffer back.
    Lines(LineBatch, SyncSender<LineBatch>),
    /// Check the state.
    Wake,
    /// Write the queued lines, and end.
    Close,
}

impl AccessLogWriter {
    /// Opens `target` and starts the thread that writes to it.
    pub(crate) fn open(target: LogDestination, lines: LineWriter) -> io::Result<Self> {
        Self::open_with(target, lines, Box::new(message::MessageSink(message::Level::Error)))
    }

    /// `open` with a destination for the writer's complaints.
    fn open_with(
        target: LogDestination,
        lines: LineWriter,
        complaints: Box<dyn Write + Send>,
    ) -> io::Result<Self> {
        let lines = Arc::new(lines);
        let output: Box<dyn LogSink> = match target {
            // The descriptor itself: standard output's own buffer would only copy the lines again.
            LogDestination::Stdout => {
                let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
                Box::new(Output::stream("stdout", stdout, &lines))
            }
            LogDestination::File(path, rotation) => Box::new(Output::file(path, rotation, &lines)?),
            LogDestination::Syslog(syslog) => Box::new(SyslogSink::new(syslog)),
            LogDestination::Journal(path) => Box::new(Journal::new(path)),
            LogDestination::Writer(writer) => Box::new(Output::stream("the log's writer", writer, &lines)),
        };
        let (queue, batches) = sync_channel(QUEUE_BATCHES);
        let state = Arc::new(LogState::default());
        let writer = LogWriter::new(batches, output, complaints, Arc::clone(&state));
        let (alive, running) = sync_channel(0);
        let handle = thread::Builder::new().name("access log".to_owned()).spawn(move || {
            let _alive: SyncSender<()> = alive;
            writer.run();
        })?;
        let thread = Arc::new(Mutex::new(Some(WriterThread { handle, running })));
        Ok(Self { queue, format: lines, state, thread })
    }

    pub(crate) fn for_worker(&self) -> LogOfWorker {
        let (home, spares) = sync_channel(SPARE_BATCHES);
        LogOfWorker {
            queue: self.queue.clone(),
            format: Arc::clone(&self.format),
            state: Arc::clone(&self.state),
            timestamp: Timestamp::new(),
            batch: LineBatch::with_room(BATCH_ROOM),
            spares,
            home,
        }
    }

    /// Reopens the file by its name, as after a rotation. If that fails, the old file is kept, and a message reports
    /// it.
    pub(crate) fn reopen(&self) {
        self.state.reopen.store(true, Ordering::Release);
        // If the queue is full, the writer will check the state soon anyway.
        drop(self.queue.try_send(LogMessage::Wake));
    }

    /// The number of lines lost so far: the writer was too slow, the target failed, or the log was already closed.
    pub(crate) fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::Relaxed)
    }

    /// Why the target accepts no lines now, with its name.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.state.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes the lines that workers handed over, and ends the thread. Waits for a target that accepts nothing, at most
    /// until the deadline. Workers drop their logs first; lines that they record later are counted as dropped.
    pub(crate) fn close_by(self, deadline: Instant) {
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        if send_by(deadline, &self.queue, LogMessage::Close).is_err() {
            return;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if thread.running.recv_timeout(left) == Err(RecvTimeoutError::Disconnected) {
            drop(thread.handle.join());
        }
    }
}

/// The log of one worker. Dropping it hands over its lines.
pub(crate) struct LogOfWorker {
    queue: SyncSender<LogMessage>,
    format: Arc<LineWriter>,
    state: Arc<LogState>,
    timestamp: Timestamp,
    batch: LineBatch,
    spares: Receiver<LineBatch>,
    home: SyncSender<LineBatch>,
}

impl LogOfWorker {
    /// The values that a line needs.
    pub(crate) fn needs(&self) -> Needs {
        self.format.needs()
    }

    /// Appends the line of a request that ended at `now`.
    pub(crate) fn record(&mut self, entry: &LogEntry<'_>, now: SystemTime) {
        if self.batch.lines().len() >= BATCH_BYTES && !self.hand_over() {
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.timestamp.set(now);
        self.format.write(entry, &self.timestamp, &mut self.batch);
        if self.batch.lines().len() >= BATCH_BYTES {
            self.hand_over();
        }
    }

    /// Hands over the buffered lines. Called at the worker's tick, about ten times a second.
    pub(crate) fn flush(&mut self) {
        if !self.batch.is_empty() {
            self.hand_over();
        }
    }

    /// Whether there is room for more lines now. If the queue is full, the lines are kept for the next attempt.
    fn hand_over(&mut self) -> bool {
        let message = LogMessage::Lines(std::mem::take(&mut self.batch), self.home.clone());
        match self.queue.try_send(message) {
            Ok(()) => {
                self.batch = self.spares.try_recv().unwrap_or_else(|_| LineBatch::with_room(BATCH_ROOM));
                true
            }
            Err(TrySendError::Full(message)) => {
                if let LogMessage::Lines(batch, _) = message {
                    self.batch = batch;
                }
                false
            }
            Err(TrySendError::Disconnected(message)) => {
                if let LogMessage::Lines(batch, _) = message {
                    self.state.dropped.fetch_add(count_lines(batch.lines()), Ordering::Relaxed);
                    self.batch = batch;
                    self.batch.clear();
                }
                true
            }
        }
    }
}

impl LogOfWorker {
    pub(crate) fn end_by(mut self, deadline: Instant) {
        self.hand_over_by(deadline);
    }

    fn hand_over_by(&mut self, deadline: Instant) {
        if self.batch.is_empty() {
            return;
        }
        let message = LogMessage::Lines(std::mem::take(&mut self.batch), self.home.clone());
        if let Err(LogMessage::Lines(batch, _)) = send_by(deadline, &self.queue, message) {
            self.state.dropped.fetch_add(count_lines(batch.lines()), Ordering::Relaxed);
        }
    }
}

impl Drop for LogOfWorker {
    /// Waits for a slow writer, because the worker ends. A worker that continues uses `AccessLog::close_after` instead.
    fn drop(&mut self) {
        self.hand_over_by(Instant::now() + END_PATIENCE);
    }
}

/// Sends a message, or returns it if there was no room by the deadline. Used only when a worker or the log ends,
/// because the standard channel has no send with a time limit.
fn send_by(
    deadline: Instant,
    queue: &SyncSender<LogMessage>,
    mut message: LogMessage,
) -> Result<(), LogMessage> {
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

/// Counts lines: each contains exactly one line feed, its last byte.
pub(crate) fn count_lines(lines: &[u8]) -> u64 {
    lines.iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::UNIX_EPOCH;

    use super::*;
    use logline::{LineFormat, LoggedVersion, Masks};

    const ENTRY: LogEntry<'static> = LogEntry {
        method: b"GET",
        target: b"/",
        version: Some(LoggedVersion(1, 1)),
        status: 200,
        body_bytes_sent: 42,
        bytes_received: 80,
        host: b"example.test",
        ..LogEntry::new(IpAddr::V4(Ipv4Addr::LOCALHOST))
    };

    fn patience() -> Instant {
        Instant::now() + END_PATIENCE
    }

    /// Keeps the written bytes. If there are permits, each write first takes one.
    #[derive(Clone, Default)]
    pub(crate) struct QueuedLog {
        bytes: Arc<Mutex<Vec<u8>>>,
        permits: Option<Arc<Mutex<Receiver<()>>>>,
    }

    impl QueuedLog {
        /// Writes wait until the sender is dropped.
        pub(crate) fn gated() -> (Self, SyncSender<()>) {
            let (gate, permits) = sync_channel(0);
            (Self { permits: Some(Arc::new(Mutex::new(permits))), ..Self::default() }, gate)
        }

        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.bytes.lock().expect("not poisoned").clone()).expect("text")
        }
    }

    impl Write for QueuedLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(permits) = &self.permits {
                let _ = permits.lock().expect("not poisoned").recv();
            }
            self.bytes.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn open(target: &QueuedLog, complaints: &QueuedLog) -> AccessLogWriter {
        let target = LogDestination::Writer(Box::new(target.clone()));
        AccessLogWriter::open_with(
            target,
            LineWriter::new(LineFormat::Json, Masks::default()),
            Box::new(complaints.clone()),
        )
        .expect("a thread can be started")
    }

    #[test]
    fn every_worker_s_lines_arrive_whole_and_in_its_order() {
        const LINES: u64 = 1000; // 40 batches: they fit the queue, so nothing is dropped however late the writer is
        let (target, complaints) = (QueuedLog::default(), QueuedLog::default());
        let log = open(&target, &complaints);
        thread::scope(|scope| {
            for worker in 0..4 {
                let mut worker_log = log.for_worker();
                scope.spawn(move || {
                    for line in 0..LINES {
                        worker_log.record(
                            &LogEntry { body_bytes_sent: worker * LINES + line, ..ENTRY },
                            UNIX_EPOCH,
                        );
                        if line % 100 == 0 {
                            worker_log.flush();
                        }
                    }
                });
            }
        });
        let dropped = log.dropped();
        log.close_by(patience());
        assert_eq!((dropped, complaints.text().as_str()), (0, ""));

        let mut numbers: Vec<u64> = Vec::new();
        for line in target.text().lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("each line is an object");
            numbers.push(line["body_bytes_sent"].as_u64().expect("a number"));
        }
        numbers.sort_by_key(|number| number / LINES); // stable: keeps each worker's own order
        assert_eq!(numbers, (0..4 * LINES).collect::<Vec<_>>());
    }

    /// Accepts nothing while it is full.
    struct Disk(Arc<AtomicBool>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let is_full = self.0.load(Ordering::Relaxed);
            if is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_reports_the_trouble_of_its_target_while_it_lasts() {
        let is_full = Arc::new(AtomicBool::new(true));
        let lines = LineWriter::new(LineFormat::new("$status", &[]).expect("a format"), Masks::default());
        let target = LogDestination::Writer(Box::new(Disk(Arc::clone(&is_full))));
        let log = AccessLogWriter::open_with(target, lines, Box::new(QueuedLog::default())).expect("opens");
        assert_eq!(log.trouble(), None);
        let mut worker = log.for_worker();
        let mut writes_until = |is_so: &dyn Fn(Option<String>) -> bool| {
            while !is_so(log.trouble()) {
                worker.record(&ENTRY, UNIX_EPOCH);
                worker.flush();
            }
        };
        writes_until(&|trouble| trouble.is_some());
        assert_eq!(log.trouble().as_deref(), Some("the log's writer: no storage space"));
        is_full.store(false, Ordering::Relaxed);
        writes_until(&|trouble| trouble.is_none());
        assert!(log.dropped() > 0);
    }

    #[test]
    fn a_stalled_target_costs_counted_lines_but_never_the_worker() {
        let ((target, gate), complaints) = (QueuedLog::gated(), QueuedLog::default());
        let log = open(&target, &complaints);
        let mut worker = log.for_worker();
        let mut recorded = 0;
        while log.dropped() < 10 {
            worker.record(&ENTRY, UNIX_EPOCH);
            recorded += 1;
        }
        drop(gate);
        drop(worker);
        let state = Arc::clone(&log.state);
        log.close_by(patience());

        let dropped = state.dropped.load(Ordering::Relaxed);
        assert_eq!(dropped, 10);
        assert_eq!(target.text().lines().count() as u64, recorded - dropped);
        assert!(complaints.text().contains("10 log lines dropped"), "{}", complaints.text());
    }

    #[test]
    fn a_flush_that_finds_the_queue_full_keeps_its_lines() {
        let ((target, gate), complaints) = (QueuedLog::gated(), QueuedLog::default());
        let log = open(&target, &complaints);
        let mut worker = log.for_worker();
        // One batch is with the writer, the rest fill the queue, and the next one finds no room.
        for _ in 0..QUEUE_BATCHES + 2 {
            worker.record(&ENTRY, UNIX_EPOCH);
            worker.flush();
        }
        assert_eq!(log.dropped(), 0);
        drop(gate);
        drop(worker);
        log.close_by(patience());
        assert_eq!(target.text().lines().count(), QUEUE_BATCHES + 2);
    }

    #[test]
    fn buffers_come_back() {
        let (target, complaints) = (QueuedLog::default(), QueuedLog::default());
        let log = open(&target, &complaints);
        let mut worker = log.for_worker();
        let first = worker.batch.lines().as_ptr();
        worker.record(&ENTRY, UNIX_EPOCH);
        worker.flush();
        // A fast writer has returned it within the flush.
        let is_back = worker.batch.lines().as_ptr() == first;
        let returned =
            if is_back { &worker.batch } else { &worker.spares.recv().expect("the writer sends it back") };
        assert!(returned.is_empty());
        assert!(is_back || returned.lines().as_ptr() == first);
    }

    #[test]
    fn lines_after_the_end_are_counted() {
        let (target, complaints) = (QueuedLog::default(), QueuedLog::default());
        let log = open(&target, &complaints);
        let (mut worker, clone) = (log.for_worker(), log.clone());
        log.close_by(patience());
        worker.record(&ENTRY, UNIX_EPOCH);
        worker.flush();
        worker.record(&ENTRY, UNIX_EPOCH);
        drop(worker);
        assert_eq!((clone.dropped(), target.text().as_str()), (2, ""));
    }

    #[test]
    fn returned_lines_are_written_or_counted() {
        let ((target, gate), complaints) = (QueuedLog::gated(), QueuedLog::default());
        let log = open(&target, &complaints);
        let workers = [log.for_worker(), log.for_worker()].map(|mut worker| {
            worker.record(&ENTRY, UNIX_EPOCH);
            worker
        });
        let state = Arc::clone(&log.state);
        drop(gate);
        workers.into_iter().for_each(|worker| worker.end_by(patience()));
        log.close_by(patience());
        assert_eq!((target.text().lines().count(), state.dropped.load(Ordering::Relaxed)), (2, 0));

        let ((target, gate), complaints) = (QueuedLog::gated(), QueuedLog::default());
        let log = open(&target, &complaints);
        let mut worker = log.for_worker();
        // One batch may be with the writer, the rest fill the queue.
        for _ in 0..QUEUE_BATCHES + 2 {
            worker.record(&ENTRY, UNIX_EPOCH);
            worker.flush();
        }
        worker.end_by(Instant::now());
        let dropped = log.dropped();
        assert!((1..=2).contains(&dropped), "{dropped}");
        drop(gate);
        log.close_by(patience());
        assert_eq!(target.text().lines().count() as u64 + dropped, QUEUE_BATCHES as u64 + 2);
    }

    #[test]
    fn closing_does_not_wait_for_ever() {
        let ((target, gate), complaints) = (QueuedLog::gated(), QueuedLog::default());
        let log = open(&target, &complaints);
        let mut worker = log.for_worker();
        worker.record(&ENTRY, UNIX_EPOCH);
        worker.flush();
        log.close_by(Instant::now() + Duration::from_millis(1));
        drop(gate);
    }
}
