//! The thread that writes the access log: batches in, bytes out, and a message when lines were lost, at most once a
//! minute. A target that fails is tried again with the next batch; it never ends the process.

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use logline::LineBatch;

use crate::log::{LogMessage, LogState};

pub(crate) trait LogSink: Send {
    fn name(&self) -> &str;
    fn write(&mut self, lines: &[u8], now: SystemTime) -> Result<(), Lost>;
    /// Opens a file again by its name.
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lines that could not be written, and why.
pub(crate) struct Lost {
    /// 0 if something else failed.
    pub(crate) lines: u64,
    pub(crate) error: io::Error,
}

/// A buffer that long lines have grown beyond this is freed rather than used again.
const SPARE_BYTES_MAX: usize = 256 * 1024;
/// The least time between two complaints.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) struct LogWriter {
    queue: Receiver<LogMessage>,
    output: Box<dyn LogSink>,
    complaints: Complaints,
    state: Arc<LogState>,
    /// Whether the shared state reports trouble.
    is_told: bool,
}

impl LogWriter {
    pub(crate) fn new(
        queue: Receiver<LogMessage>,
        output: Box<dyn LogSink>,
        complaints: Box<dyn Write + Send>,
        state: Arc<LogState>,
    ) -> Self {
        let complaints = Complaints::new(complaints);
        Self { queue, output, complaints, state, is_told: false }
    }

    /// Writes until the log is closed, or until no sender is left.
    pub(crate) fn run(mut self) {
        while let Some(message) = self.next() {
            if self.state.reopen.swap(false, Ordering::Acquire)
                && let Err(error) = self.output.reopen()
            {
                self.complaints.trouble =
                    Some(format!("cannot be opened again, the old file is kept: {error}"));
            }
            match message {
                LogMessage::Lines(batch, home) => self.write(batch, &home),
                LogMessage::Wake => {}
                LogMessage::Close => break,
            }
            self.complaints.say(self.output.name(), self.dropped(), Instant::now());
        }
        while let Ok(message) = self.queue.try_recv() {
            if let LogMessage::Lines(batch, home) = message {
                self.write(batch, &home);
            }
        }
        self.complaints.last = None;
        self.complaints.say(self.output.name(), self.dropped(), Instant::now());
    }

    /// The next message. Writes a postponed complaint while it waits.
    fn next(&mut self) -> Option<LogMessage> {
        loop {
            if !self.complaints.are_due(self.dropped()) {
                return self.queue.recv().ok();
            }
            match self.queue.recv_timeout(self.complaints.pause(Instant::now())) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    self.complaints.say(self.output.name(), self.dropped(), Instant::now());
                }
            }
        }
    }

    fn write(&mut self, mut batch: LineBatch, home: &SyncSender<LineBatch>) {
        match self.output.write(batch.lines(), SystemTime::now()) {
            Ok(()) => {
                self.complaints.is_over = self.complaints.has_lost;
                self.tell(None);
            }
            Err(Lost { lines: lost, error }) => {
                self.state.dropped.fetch_add(lost, Ordering::Relaxed);
                self.tell(Some(format!("{}: {error}", self.output.name())));
                self.complaints.trouble = Some(error.to_string());
                self.complaints.has_lost |= lost > 0;
                self.complaints.is_over = false;
            }
        }
        if batch.capacity() <= SPARE_BYTES_MAX {
            batch.clear();
            // Fails if the worker has enough buffers, or has ended; the buffer is then freed.
            drop(home.try_send(batch));
        }
    }

    /// Reports in the status why lines cannot be written.
    fn tell(&mut self, trouble: Option<String>) {
        let is_told = trouble.is_some();
        if is_told || self.is_told {
            *self.state.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
            self.is_told = is_told;
        }
    }

    fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::Relaxed)
    }
}

/// The writer's complaints, and when the last one was written.
struct Complaints {
    sink: Box<dyn Write + Send>,
    last: Option<Instant>,
    dropped_said: u64,
    trouble: Option<String>,
    /// Whether the target rejected lines at the last complaint.
    has_lost: bool,
    /// Whether the target accepts lines again.
    is_over: bool,
}

impl Complaints {
    fn new(sink: Box<dyn Write + Send>) -> Self {
        Self { sink, last: None, dropped_said: 0, trouble: None, has_lost: false, is_over: false }
    }

    fn are_due(&self, dropped: u64) -> bool {
        dropped > self.dropped_said || self.trouble.is_some() || self.is_over
    }

    /// The time until the next complaint may be written.
    fn pause(&self, now: Instant) -> Duration {
        self.last.map_or(Duration::ZERO, |last| (last + COMPLAINT_INTERVAL).saturating_duration_since(now))
    }

    fn say(&mut self, name: &str, dropped: u64, now: Instant) {
        if !self.are_due(dropped) || !self.pause(now).is_zero() {
            return;
        }
        let lost = dropped - self.dropped_said;
        let reason = self.trouble.take();
        let reason = match reason.as_deref() {
            Some(reason) => reason,
            None if self.is_over => "lines are written again",
            None => "lines arrive faster than they can be written",
        };
        let again = if self.is_over && reason != "lines are written again" {
            "; lines are written again"
        } else {
            ""
        };
        let loss = match lost {
            0 => String::new(),
            1 => "1 log line dropped: ".to_owned(),
            lost => format!("{lost} log lines dropped: "),
        };
        // If standard error fails as well, there is no way to report it.
        drop(self.sink.write_all(format!("access log {name}: {loss}{reason}{again}\n").as_bytes()));
        self.last = Some(now);
        self.dropped_said = dropped;
        if self.is_over {
            (self.has_lost, self.is_over) = (false, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Keeps the written messages.
    struct Said(Arc<Mutex<Vec<u8>>>);

    impl Write for Said {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no test panics with it").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn complaints_come_once_a_minute_and_add_up() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let mut complaints = Complaints::new(Box::new(Said(Arc::clone(&said))));
        let start = Instant::now();
        for (seconds, dropped, trouble, is_over) in [
            (0, 0, None, false),
            (1, 5, None, false),
            (30, 7, Some("disk full"), false),
            (55, 9, None, false),
            (61, 9, None, false),
            (130, 9, None, false),
            (240, 10, None, false),
            (300, 10, Some("cannot be opened again"), false),
            (310, 12, Some("disk full"), true),
            (360, 12, None, true),
            (420, 12, None, true),
            (500, 12, None, false),
        ] {
            if let Some(trouble) = trouble {
                complaints.trouble = Some(trouble.to_owned());
            }
            complaints.is_over = is_over;
            complaints.say("a.log", dropped, start + Duration::from_secs(seconds));
        }
        let said = String::from_utf8(said.lock().expect("written").clone()).expect("text");
        assert_eq!(
            said,
            "access log a.log: 5 log lines dropped: lines arrive faster than they can be written\n\
             access log a.log: 4 log lines dropped: disk full\n\
             access log a.log: 1 log line dropped: lines arrive faster than they can be written\n\
             access log a.log: cannot be opened again\n\
             access log a.log: 2 log lines dropped: disk full; lines are written again\n\
             access log a.log: lines are written again\n"
        );
    }
}
