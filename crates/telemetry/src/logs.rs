//! The access logs together: each line goes to all of them, each with its own format, target and writer.

use std::io;
use std::thread;
use std::time::{Instant, SystemTime};

use logline::{LineWriter, LogEntry, Needs};

use crate::log::{AccessLogWriter, END_PATIENCE, LogDestination, LogOfWorker};

/// The access logs. Clones share their writers; `close` them last to be sure that every line is written.
#[derive(Clone)]
pub struct AccessLog {
    all: Box<[AccessLogWriter]>,
}

impl AccessLog {
    /// Opens the targets, and starts a writer thread for each.
    ///
    /// # Errors
    /// The index of the first target that cannot be opened, and why.
    pub fn open(targets: Vec<(LogDestination, LineWriter)>) -> Result<Self, (usize, io::Error)> {
        let open =
            |(place, (target, lines))| AccessLogWriter::open(target, lines).map_err(|error| (place, error));
        targets.into_iter().enumerate().map(open).collect::<Result<_, _>>().map(|all| Self { all })
    }

    #[must_use]
    pub fn for_worker(&self) -> WorkerLog {
        WorkerLog { all: self.all.iter().map(AccessLogWriter::for_worker).collect() }
    }

    /// Reopens files by their names, as after a rotation. If that fails, the old file is kept, and a message reports
    /// it.
    pub fn reopen(&self) {
        self.all.iter().for_each(AccessLogWriter::reopen);
    }

    /// The number of lines lost so far: a writer was too slow, a target failed, or a log was already closed.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.all.iter().map(AccessLogWriter::dropped).sum()
    }

    /// Why targets accept no lines now, each with its name.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        self.all.iter().filter_map(AccessLogWriter::trouble).collect()
    }

    /// Writes the lines that workers handed over, and ends the threads. Waits at most two seconds for targets that
    /// accept nothing. Workers drop their logs first; lines that they record later are counted as dropped.
    pub fn close(self) {
        self.close_after(Vec::new());
    }

    /// Closes logs that the workers have given back, while they continue to run. Waits at most two seconds, so that no
    /// worker has to.
    pub fn close_after(self, mut workers: Vec<WorkerLog>) {
        let deadline = Instant::now() + END_PATIENCE;
        let mut of_workers: Vec<_> = workers.iter_mut().map(WorkerLog::take).collect();
        // All at the same time, so that a slow target does not use up the time of the others.
        thread::scope(|scope| {
            for log in self.all {
                let own: Vec<_> = of_workers.iter_mut().filter_map(Iterator::next).collect();
                let close = move || {
                    own.into_iter().for_each(|lines| lines.end_by(deadline));
                    log.close_by(deadline);
                };
                // If no thread can be started, the writer ends without a wait.
                drop(thread::Builder::new().spawn_scoped(scope, close));
            }
        });
    }
}

/// The access logs of one worker. Dropping them hands over their lines. When a worker ends, that waits for slow
/// writers, at most two seconds in total. A worker that continues gives them to `AccessLog::close_after` instead.
pub struct WorkerLog {
    all: Box<[LogOfWorker]>,
}

impl WorkerLog {
    /// The values that the lines of all logs need.
    #[must_use]
    pub fn needs(&self) -> Needs {
        self.all.iter().fold(Needs::NONE, |needs, log| needs.and(log.needs()))
    }

    /// Appends the line of a request that ended at `now`.
    pub fn record(&mut self, entry: &LogEntry<'_>, now: SystemTime) {
        self.all.iter_mut().for_each(|log| log.record(entry, now));
    }

    /// Hands over the buffered lines. Called at the worker's tick, about ten times a second.
    pub fn flush(&mut self) {
        self.all.iter_mut().for_each(LogOfWorker::flush);
    }
    fn take(&mut self) -> impl Iterator<Item = LogOfWorker> + use<> {
        std::mem::take(&mut self.all).into_iter()
    }
}

impl Drop for WorkerLog {
    fn drop(&mut self) {
        // First tries without a wait.
        self.flush();
        let deadline = Instant::now() + END_PATIENCE;
        self.take().for_each(|log| log.end_by(deadline));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::UNIX_EPOCH;

    use logline::{LineFormat, Masks};

    use super::*;
    use crate::log::{QUEUE_BATCHES, tests::QueuedLog};

    #[test]
    fn a_target_that_takes_nothing_costs_the_others_no_line() {
        let ((stalled, gate), healthy) = (QueuedLog::gated(), QueuedLog::default());
        let target = |kept: &QueuedLog| {
            let lines = LineWriter::new(LineFormat::new("$status", &[]).expect("a format"), Masks::default());
            (LogDestination::Writer(Box::new(kept.clone())), lines)
        };
        let log = AccessLog::open(vec![target(&stalled), target(&healthy)]).expect("opens");
        let mut worker = log.for_worker();
        let entry = LogEntry { status: 200, ..LogEntry::new(IpAddr::V4(Ipv4Addr::LOCALHOST)) };
        // As many batches as the queue of the first one holds, and one more.
        for _ in 0..QUEUE_BATCHES + 2 {
            worker.record(&entry, UNIX_EPOCH);
            worker.flush();
        }
        log.close_after(vec![worker]);
        assert_eq!(healthy.text().lines().count(), QUEUE_BATCHES + 2);
        assert_eq!(stalled.text(), "");
        drop(gate);
    }
}
