//! The thread that writes the access log: batches in, bytes out, and a message when lines were lost, at most once a
//! second. A target that fails is tried again with the next batch; it never ends the process.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::log::{Message, State, count_lines};

/// A buffer that long lines have grown beyond this is freed rather than used again.
const SPARE_BYTES_MAX: usize = 256 * 1024;
/// Between two complaints.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);

/// The writer thread's state.
pub(crate) struct Writer {
    queue: Receiver<Message>,
    output: Output,
    complaints: Complaints,
    state: Arc<State>,
}

impl Writer {
    pub(crate) fn new(
        queue: Receiver<Message>,
        output: Output,
        complaints: Box<dyn Write + Send>,
        state: Arc<State>,
    ) -> Self {
        let complaints = Complaints { sink: complaints, last: None, dropped_said: 0, trouble: None };
        Self { queue, output, complaints, state }
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
                Message::Lines(lines, home) => self.write(lines, &home),
                Message::Wake => {}
                Message::Close => break,
            }
            self.complaints.say(&self.output.name, self.dropped(), Instant::now());
        }
        while let Ok(message) = self.queue.try_recv() {
            if let Message::Lines(lines, home) = message {
                self.write(lines, &home);
            }
        }
        self.complaints.last = None;
        self.complaints.say(&self.output.name, self.dropped(), Instant::now());
    }

    /// The next message. A complaint that had to wait is made meanwhile.
    fn next(&mut self) -> Option<Message> {
        loop {
            if !self.complaints.are_due(self.dropped()) {
                return self.queue.recv().ok();
            }
            match self.queue.recv_timeout(COMPLAINT_INTERVAL) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    self.complaints.say(&self.output.name, self.dropped(), Instant::now());
                }
            }
        }
    }

    fn write(&mut self, mut lines: Vec<u8>, home: &SyncSender<Vec<u8>>) {
        if let Err((lost, error)) = self.output.write(&lines) {
            self.state.dropped.fetch_add(lost, Ordering::Relaxed);
            self.complaints.trouble = Some(error.to_string());
        }
        if lines.capacity() <= SPARE_BYTES_MAX {
            lines.clear();
            // A worker that has enough of them, or is gone, has no use for it.
            drop(home.try_send(lines));
        }
    }

    fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::Relaxed)
    }
}

/// The target that lines are written to.
pub(crate) struct Output {
    name: String,
    /// Set for a file that can be opened again.
    path: Option<PathBuf>,
    sink: Box<dyn Write + Send>,
    /// A failure cut a line short: the next one starts on a line of its own.
    torn: bool,
}

impl Output {
    pub(crate) fn file(path: PathBuf) -> io::Result<Self> {
        let sink = Box::new(open(&path)?);
        Ok(Self { name: path.display().to_string(), path: Some(path), sink, torn: false })
    }

    pub(crate) fn stream(name: &str, sink: impl Write + Send + 'static) -> Self {
        Self { name: name.to_owned(), path: None, sink: Box::new(sink), torn: false }
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let Some(path) = &self.path {
            self.sink = Box::new(open(path)?);
            self.torn = false;
        }
        Ok(())
    }

    /// Writes whole lines; a failure tells how many of them are lost.
    fn write(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        if self.torn {
            self.sink.write_all(b"\n").map_err(|error| (count_lines(lines), error))?;
            self.torn = false;
        }
        let mut written = 0;
        while written < lines.len() {
            let error = match self.sink.write(&lines[written..]) {
                Ok(0) => ErrorKind::WriteZero.into(),
                Ok(count) => {
                    written += count;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            self.torn = written > 0 && lines[written - 1] != b'\n';
            return Err((count_lines(&lines[written..]), error));
        }
        Ok(())
    }
}

/// A FIFO that nobody reads is an error rather than a wait without end; once there is a reader, writing waits for it.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(flags).open(path)?;
    fcntl_setfl(&file, fcntl_getfl(&file)?.difference(OFlags::NONBLOCK))?;
    Ok(file)
}

/// What the writer has to say, and when it last did.
struct Complaints {
    sink: Box<dyn Write + Send>,
    last: Option<Instant>,
    dropped_said: u64,
    trouble: Option<String>,
}

impl Complaints {
    fn are_due(&self, dropped: u64) -> bool {
        dropped > self.dropped_said || self.trouble.is_some()
    }

    fn say(&mut self, name: &str, dropped: u64, now: Instant) {
        let too_soon = self.last.is_some_and(|last| now.duration_since(last) < COMPLAINT_INTERVAL);
        if !self.are_due(dropped) || too_soon {
            return;
        }
        let lost = dropped - self.dropped_said;
        let reason = self.trouble.take();
        let reason = reason.as_deref().unwrap_or("lines come faster than it takes them");
        let loss = match lost {
            0 => String::new(),
            1 => "1 log line dropped: ".to_owned(),
            lost => format!("{lost} log lines dropped: "),
        };
        // Where standard error takes nothing either, there is nobody left to tell.
        drop(self.sink.write_all(format!("access log {name}: {loss}{reason}\n").as_bytes()));
        self.last = Some(now);
        self.dropped_said = dropped;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A target that takes as many bytes as the script says, or fails where it says 0; beyond the script it takes all.
    struct Scripted {
        script: VecDeque<usize>,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = match self.script.pop_front() {
                Some(0) => return Err(ErrorKind::StorageFull.into()),
                Some(count) => count.min(bytes.len()),
                None => bytes.len(),
            };
            self.taken.lock().expect("no test panics with it").extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_cut_by_a_failure_does_not_spoil_the_next() {
        for (script, lost, expected) in [
            (&[4, 4][..], 0, "first\nsecond\nthird\n"),
            (&[0], 2, "third\n"),
            (&[3, 0], 2, "fir\nthird\n"),
            (&[6, 0], 1, "first\nthird\n"),
            (&[8, 0], 1, "first\nse\nthird\n"),
        ] {
            let taken = Arc::new(Mutex::new(Vec::new()));
            let sink = Scripted { script: script.iter().copied().collect(), taken: Arc::clone(&taken) };
            let mut output = Output::stream("test", sink);
            let counted = output.write(b"first\nsecond\n").err().map_or(0, |(lost, _)| lost);
            output.write(b"third\n").expect("the script is over");
            let taken = String::from_utf8(taken.lock().expect("written").clone()).expect("text");
            assert_eq!((counted, taken.as_str()), (lost, expected), "script {script:?}");
        }
    }

    #[test]
    fn a_fifo_is_waited_for_only_once_somebody_reads_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600))
            .expect("the folder takes it");
        let error = open(&path).expect_err("nobody reads it");
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NXIO.raw_os_error()));
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let _reader = OpenOptions::new().read(true).custom_flags(flags).open(&path).expect("it is there");
        let file = open(&path).expect("somebody reads it");
        assert!(!fcntl_getfl(&file).expect("it is open").contains(OFlags::NONBLOCK));
    }

    #[test]
    fn complaints_come_once_a_second_and_add_up() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let sink = Scripted { script: VecDeque::new(), taken: Arc::clone(&said) };
        let mut complaints = Complaints { sink: Box::new(sink), last: None, dropped_said: 0, trouble: None };
        let start = Instant::now();
        for (milliseconds, dropped, trouble) in [
            (0, 0, None),
            (1, 5, None),
            (500, 7, Some("disk full")),
            (900, 9, None),
            (1001, 9, None),
            (3000, 9, None),
            (4000, 10, None),
            (5000, 10, Some("cannot be opened again")),
        ] {
            if let Some(trouble) = trouble {
                complaints.trouble = Some(trouble.to_owned());
            }
            complaints.say("a.log", dropped, start + Duration::from_millis(milliseconds));
        }
        let said = String::from_utf8(said.lock().expect("written").clone()).expect("text");
        assert_eq!(
            said,
            "access log a.log: 5 log lines dropped: lines come faster than it takes them\n\
             access log a.log: 4 log lines dropped: disk full\n\
             access log a.log: 1 log line dropped: lines come faster than it takes them\n\
             access log a.log: cannot be opened again\n"
        );
    }
}
