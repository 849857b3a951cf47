//! Figures of each second, during a run. Each thread records its own; the watching thread merges them.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::outcome::Distribution;
use crate::record::TimeHistogram;
use crate::summary::distribution;

/// Figures of one second of the measured window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredSecond {
    /// Counts from 0.
    pub second: u64,
    /// Less than 1 at the end of a run.
    pub seconds: f64,
    /// Successful requests that ended in it.
    pub requests: u64,
    pub failed: u64,
    pub bytes_received: u64,
    /// Median latency of `requests`; 0 without any.
    pub p50_us: u64,
    pub p90_us: u64,
    pub p99_us: u64,
    pub p99_9_us: u64,
    pub max_us: u64,
    #[serde(skip)]
    times: Option<Box<TimesOf>>,
}

/// Times that comparisons ignore.
#[derive(Debug, Clone)]
struct TimesOf(TimeHistogram);

impl PartialEq for TimesOf {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl MeasuredSecond {
    pub fn requests_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.requests as f64 / self.seconds } else { 0.0 }
    }

    /// Several seconds as one. Percentiles are exact unless [`MeasuredSecond::forget_times`] was called.
    pub fn merged<'s>(seconds: impl IntoIterator<Item = &'s Self>) -> Self {
        let mut merged = Self::default();
        let mut times = TimeHistogram::growing();
        for (index, second) in seconds.into_iter().enumerate() {
            if index == 0 {
                merged.second = second.second;
            }
            merged.seconds += second.seconds;
            merged.requests += second.requests;
            merged.failed += second.failed;
            merged.bytes_received += second.bytes_received;
            if let Some(more) = &second.times {
                times.merge(&more.0);
            }
        }
        merged.with(times)
    }

    /// Drops the histogram, because a long run has many seconds.
    pub fn forget_times(&mut self) {
        self.times = None;
    }

    fn with(mut self, times: TimeHistogram) -> Self {
        let quantile = |quantile| times.histogram.value_at_quantile(quantile);
        if !times.histogram.is_empty() {
            self.p50_us = quantile(0.5);
            self.p90_us = quantile(0.9);
            self.p99_us = quantile(0.99);
            self.p99_9_us = quantile(0.999);
            self.max_us = times.histogram.max();
        }
        self.times = Some(Box::new(TimesOf(times)));
        self
    }
}

/// A second's record of one thread.
#[derive(Debug)]
pub(crate) struct SecondPart {
    second: u64,
    elapsed: Duration,
    counts: WindowCounts,
    times: TimeHistogram,
    is_last: bool,
}

/// Counters of a thread, from the start of the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WindowCounts {
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    pub(crate) bytes_received: u64,
}

#[derive(Debug)]
pub(crate) struct CurrentSecond {
    second: u64,
    times: TimeHistogram,
    /// Counters at its start.
    before: WindowCounts,
    /// Its start, from the start of the window.
    from: Duration,
    sender: Sender<SecondPart>,
}

impl CurrentSecond {
    pub(crate) fn new(sender: Sender<SecondPart>) -> Self {
        Self {
            second: 0,
            times: TimeHistogram::growing(),
            before: WindowCounts::default(),
            from: Duration::ZERO,
            sender,
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, time: Duration) {
        self.times.record_growing(time);
    }

    pub(crate) fn times(&self) -> &TimeHistogram {
        &self.times
    }

    /// Passes the second on, and begins the next. `at` is from the start of the window.
    pub(crate) fn end(&mut self, counts: WindowCounts, at: Duration, is_last: bool) {
        let WindowCounts { requests, failed, bytes_received } = self.before;
        let part = SecondPart {
            second: self.second,
            elapsed: at.saturating_sub(self.from),
            counts: WindowCounts {
                requests: counts.requests - requests,
                failed: counts.failed - failed,
                bytes_received: counts.bytes_received - bytes_received,
            },
            times: std::mem::replace(&mut self.times, TimeHistogram::growing()),
            is_last,
        };
        // An error means that the receiver is gone.
        let _ = self.sender.send(part);
        self.second += 1;
        self.before = counts;
        self.from = at;
    }
}

/// Merges the seconds of all threads.
#[derive(Debug)]
pub struct Seconds {
    receiver: Receiver<SecondPart>,
    threads: usize,
    ended: usize,
    /// Seconds that some threads have not ended.
    open: BTreeMap<u64, OpenSecond>,
    next: u64,
}

#[derive(Debug, Default)]
struct OpenSecond {
    parts: usize,
    /// Threads for which it was the last second.
    last: usize,
    merged: MeasuredSecond,
    times: Option<TimeHistogram>,
}

/// A second with its times, as a generator reports it to a merger of several generators.
#[derive(Debug, Serialize, Deserialize)]
pub struct ToldSecond {
    figures: MeasuredSecond,
    times: Distribution,
}

impl MeasuredSecond {
    /// Converts for a merger of several generators.
    pub fn told(&self) -> ToldSecond {
        let times = self.times.as_ref().map_or_else(Distribution::default, |times| distribution(&times.0));
        ToldSecond { figures: Self { times: None, ..self.clone() }, times }
    }
}

/// The seconds of one of several generators.
#[derive(Debug)]
pub struct SecondsOf {
    next: u64,
    sender: Sender<SecondPart>,
}

/// Merges the seconds of several generators, which begin together, by their numbers.
pub fn seconds_together(generators: usize) -> (Vec<SecondsOf>, Seconds) {
    let (sender, seconds) = watching(generators);
    let of = (0..generators).map(|_| SecondsOf { next: 0, sender: sender.clone() });
    (of.collect(), seconds)
}

impl SecondsOf {
    /// Adds the next second.
    ///
    /// # Errors
    /// If it is not the next one, or its histogram does not decode.
    pub fn add(&mut self, told: &ToldSecond) -> Result<(), Error> {
        let ToldSecond { figures, times } = told;
        if figures.second != self.next || !(0.0..=2.0).contains(&figures.seconds) {
            return Err(Error::Second { told: figures.second, expected: self.next });
        }
        self.next += 1;
        // The new histogram can hold everything that a valid one contains.
        let mut all = TimeHistogram::growing();
        all.merge(&times.times()?);
        // An error means that the receiver is gone.
        let _ = self.sender.send(SecondPart {
            second: figures.second,
            elapsed: Duration::from_secs_f64(figures.seconds),
            counts: WindowCounts {
                requests: figures.requests,
                failed: figures.failed,
                bytes_received: figures.bytes_received,
            },
            times: all,
            is_last: false,
        });
        Ok(())
    }

    pub fn end(self) {
        let times = TimeHistogram::growing();
        let (second, elapsed, counts) = (self.next, Duration::ZERO, WindowCounts::default());
        let _ = self.sender.send(SecondPart { second, elapsed, counts, times, is_last: true });
    }
}

/// A sender for each thread, and the receiver that merges their seconds.
pub(crate) fn watching(threads: usize) -> (Sender<SecondPart>, Seconds) {
    let (sender, receiver) = channel();
    (sender, Seconds { receiver, threads, ended: 0, open: BTreeMap::new(), next: 0 })
}

impl Seconds {
    /// The seconds that have ended since the last call. Does not wait.
    pub fn take(&mut self) -> Vec<MeasuredSecond> {
        while let Ok(part) = self.receiver.try_recv() {
            self.add(part);
        }
        let mut taken = Vec::new();
        while let Some(open) = self.open.get(&self.next) {
            if open.parts + self.ended < self.threads {
                break;
            }
            taken.extend(self.hand_out());
        }
        taken
    }

    /// All remaining seconds, after the end of the run.
    pub fn finish(mut self) -> Vec<MeasuredSecond> {
        let mut taken = self.take();
        while !self.open.is_empty() {
            taken.extend(self.hand_out());
        }
        taken
    }

    fn hand_out(&mut self) -> Option<MeasuredSecond> {
        let (second, open) = self.open.pop_first()?;
        self.next = second + 1;
        self.ended += open.last;
        // The window may end with a second, which leaves an empty rest.
        let is_nothing = open.merged.seconds < 0.001 && open.merged.requests + open.merged.failed == 0;
        (!is_nothing).then(|| open.merged.with(open.times.unwrap_or_else(TimeHistogram::growing)))
    }

    fn add(&mut self, part: SecondPart) {
        let open = self.open.entry(part.second).or_default();
        open.parts += 1;
        open.last += usize::from(part.is_last);
        open.merged.second = part.second;
        open.merged.seconds = open.merged.seconds.max(part.elapsed.as_secs_f64());
        open.merged.requests += part.counts.requests;
        open.merged.failed += part.counts.failed;
        open.merged.bytes_received += part.counts.bytes_received;
        match &mut open.times {
            Some(times) => times.merge(&part.times),
            None => open.times = Some(part.times),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(requests: u64) -> WindowCounts {
        WindowCounts { requests, failed: requests / 10, bytes_received: requests * 100 }
    }

    fn told(second: u64, times_ms: &[u64]) -> ToldSecond {
        let (sender, mut seconds) = watching(1);
        let mut current = CurrentSecond { second, ..CurrentSecond::new(sender) };
        times_ms.iter().for_each(|time| current.record(Duration::from_millis(*time)));
        let counts = WindowCounts { requests: times_ms.len() as u64, ..WindowCounts::default() };
        current.end(counts, Duration::from_secs(1), true);
        seconds.next = second;
        let line = serde_json::to_string(&seconds.take()[0].told()).expect("it is JSON");
        serde_json::from_str(&line).expect("it reads what it wrote")
    }

    #[test]
    fn seconds_of_generators_are_merged_by_their_numbers() {
        let (of, mut seconds) = seconds_together(2);
        let Ok([mut one, mut other]) = <[SecondsOf; 2]>::try_from(of) else { panic!("there are two") };
        one.add(&told(0, &[1; 9])).expect("the first");
        one.add(&told(1, &[2])).expect("the next");
        assert_eq!(seconds.take(), [], "the other one has told nothing");
        other.add(&told(0, &[9_000; 11])).expect("the first");
        let taken = seconds.take();
        let [first] = &taken[..] else { panic!("{taken:?}") };
        // The average of both medians would differ.
        assert_eq!((first.second, first.requests, first.p50_us / 1_000_000, first.seconds), (0, 20, 9, 1.0));
        assert!(other.add(&told(2, &[])).is_err() && other.add(&told(0, &[])).is_err(), "it is another one");
        // One generator is lost: from then on, the other's seconds are complete.
        other.end();
        one.add(&told(2, &[3, 3])).expect("the next");
        let counts = |seconds: Vec<MeasuredSecond>| -> Vec<(u64, u64)> {
            seconds.iter().map(|second| (second.second, second.requests)).collect()
        };
        assert_eq!(counts(seconds.take()), [(1, 1), (2, 2)]);
        one.end();
        assert_eq!(seconds.finish(), []);
    }

    #[test]
    fn seconds_of_threads_are_merged_once_all_have_ended_them() {
        let (sender, mut seconds) = watching(2);
        let (mut one, mut other) = (CurrentSecond::new(sender.clone()), CurrentSecond::new(sender));
        let second = Duration::from_secs(1);
        one.record(Duration::from_millis(1));
        one.end(counts(10), second, false);
        assert_eq!(seconds.take(), []);
        other.record(Duration::from_millis(9));
        other.end(counts(20), second, false);
        let taken = seconds.take();
        let [first] = &taken[..] else { panic!("{taken:?}") };
        assert_eq!((first.second, first.requests, first.failed, first.bytes_received), (0, 30, 3, 3_000));
        assert_eq!((first.seconds, first.p50_us / 10, first.max_us / 1_000), (1.0, 100, 9));
        // One thread ends within the next second, the other goes on for two more.
        one.end(counts(15), Duration::from_millis(1_500), true);
        other.end(counts(25), 2 * second, false);
        other.end(counts(30), 3 * second, false);
        let taken = seconds.take();
        assert_eq!(taken.iter().map(|second| second.requests).collect::<Vec<_>>(), [10, 5]);
        let both = MeasuredSecond::merged(&taken);
        assert_eq!((both.second, both.seconds, both.requests), (1, 2.0, 15));
        // After a whole second there is no empty rest.
        other.end(counts(30), 3 * second, true);
        assert_eq!(seconds.finish(), []);
    }
}
