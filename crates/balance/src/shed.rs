//! The adaptive concurrency limit: how many requests may be under way before more of them only wait for each other.
//!
//! A gradient on latency, as Envoy's adaptive concurrency and Netflix's concurrency-limits have it, after TCP Vegas
//! (Brakmo and Peterson, 1995): the limit follows the ratio of latency without a queue to latency now. One worker's;
//! each finds its part. What is refused is told to come again elsewhere.

use std::time::Duration;

use crate::time::Time;

/// How the limit is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShedSettings {
    /// Where it begins.
    pub initial: u32,
    /// Never fewer than this; at least 1.
    pub min: u32,
    /// Never more than this.
    pub max: u32,
    /// Latency may grow to so much of what it is without a queue, in percent, before the limit falls; above 100.
    pub tolerance_percent: u32,
    /// How long answers are gathered for one step of the limit, at least.
    pub window: Duration,
    /// How many answers are gathered for one step, at least; up to `SAMPLES_MAX`.
    pub samples_min: usize,
    /// How often latency without a queue is measured anew: a part of the limit is held back for two windows.
    pub baseline_age: Duration,
}

impl Default for ShedSettings {
    fn default() -> Self {
        Self {
            initial: 256,
            min: 16,
            max: 16_384,
            tolerance_percent: 200,
            window: Duration::from_millis(100),
            samples_min: 16,
            baseline_age: Duration::from_secs(10),
        }
    }
}

/// How an admitted request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Answered, after this long: to the head of the response, which bodies of any length follow.
    Done(Duration),
    /// Not answered in time, or refused for want of room: a sign of too much.
    Overrun,
    /// Says nothing about load: failed for another reason, or left by its client.
    Other,
}

/// Answers of a window that are kept, the latest.
pub const SAMPLES_MAX: usize = 256;
/// A window with requests that were overrun takes this off the limit.
const OVERRUN_FACTOR: f64 = 0.9;
/// No step takes more than half.
const GRADIENT_MIN: f64 = 0.5;

/// The limit that one worker has found.
#[derive(Debug)]
pub struct Shed {
    settings: ShedSettings,
    limit: f64,
    in_flight: u32,
    phase: Phase,
    /// The median latency without a queue, in microseconds, as far as is known.
    baseline: Option<u32>,
    baseline_at: Time,
    window: Window,
}

/// What the present window is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// To follow latency.
    Follow,
    /// To let the queue run dry.
    Drain,
    /// To measure latency without it.
    Measure,
}

/// What was seen since the last step.
#[derive(Debug)]
struct Window {
    began_at: Time,
    /// In microseconds.
    samples: Box<[u32; SAMPLES_MAX]>,
    /// Those that were seen, kept or not.
    seen: usize,
    overruns: u32,
    in_flight_max: u32,
}

impl Shed {
    /// A limit that has seen nothing.
    pub fn new(settings: ShedSettings, now: Time) -> Self {
        let samples = Box::new([0; SAMPLES_MAX]);
        Self {
            settings,
            limit: f64::from(settings.initial.clamp(settings.min.max(1), settings.max.max(1))),
            in_flight: 0,
            phase: Phase::Follow,
            baseline: None,
            baseline_at: now,
            window: Window { began_at: now, samples, seen: 0, overruns: 0, in_flight_max: 0 },
        }
    }

    /// Admits a request, or says that it is to be shed. One that is admitted ends with `end`. What stays for long by its
    /// nature, as a tunnel does, is not to be counted.
    #[inline]
    #[must_use]
    pub fn admit(&mut self) -> bool {
        if self.in_flight >= self.allowed() {
            // Full is full, whatever the limit was cut to for a while.
            self.window.in_flight_max = self.window.in_flight_max.max(self.limit());
            return false;
        }
        self.in_flight += 1;
        self.window.in_flight_max = self.window.in_flight_max.max(self.in_flight);
        true
    }

    /// An admitted request has ended.
    #[inline]
    pub fn end(&mut self, work: Work, now: Time) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match work {
            Work::Done(latency) => {
                let micros = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX).max(1);
                self.window.samples[self.window.seen % SAMPLES_MAX] = micros;
                self.window.seen += 1;
            }
            Work::Overrun => self.window.overruns += 1,
            Work::Other => return,
        }
        let seen = self.window.seen + self.window.overruns as usize;
        if seen >= self.settings.samples_min.clamp(1, SAMPLES_MAX)
            && now.since(self.window.began_at) >= self.settings.window
        {
            self.step(now);
        }
    }

    /// Requests that may be under way.
    pub fn limit(&self) -> u32 {
        self.limit as u32
    }

    /// Requests under way.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The median latency without a queue, as far as is known.
    pub fn baseline(&self) -> Option<Duration> {
        self.baseline.map(|micros| Duration::from_micros(u64::from(micros)))
    }

    /// While the baseline is measured, as much of the limit as would be under way without a queue.
    #[inline]
    fn allowed(&self) -> u32 {
        match self.phase {
            Phase::Follow => self.limit(),
            Phase::Drain | Phase::Measure => {
                ((self.limit / self.tolerance()) as u32).max(self.settings.min.max(1))
            }
        }
    }

    fn tolerance(&self) -> f64 {
        f64::from(self.settings.tolerance_percent.max(101)) / 100.0
    }

    #[cold]
    fn step(&mut self, now: Time) {
        let median = self.window.median();
        match (self.phase, median) {
            (Phase::Follow, median) => {
                if let Some(median) = median {
                    self.learn(median, now);
                }
                self.follow(median);
                if now.since(self.baseline_at) >= self.settings.baseline_age {
                    self.phase = Phase::Drain;
                }
            }
            (Phase::Drain, _) => self.phase = Phase::Measure,
            (Phase::Measure, Some(median)) => {
                self.baseline = Some(median);
                self.baseline_at = now;
                self.phase = Phase::Follow;
            }
            // Only overruns: there is nothing to measure yet.
            (Phase::Measure, None) => {}
        }
        self.window.clear(now);
        self.window.in_flight_max = self.in_flight;
    }

    fn learn(&mut self, median: u32, now: Time) {
        if self.baseline.is_none_or(|baseline| median <= baseline) {
            self.baseline = Some(median);
            self.baseline_at = now;
        }
    }

    /// One step of the limit: times how much latency has grown beyond what is tolerated, and some room to find out
    /// whether more is possible, where there was need of it.
    fn follow(&mut self, median: Option<u32>) {
        let mut limit = self.limit;
        if let (Some(median), Some(baseline)) = (median, self.baseline) {
            let gradient = self.tolerance() * f64::from(baseline) / f64::from(median);
            let stepped = limit * gradient.clamp(GRADIENT_MIN, 1.0) + limit.sqrt();
            let was_needed = f64::from(self.window.in_flight_max) * 2.0 >= limit;
            if was_needed || stepped < limit {
                limit = stepped;
            }
        }
        if self.window.overruns > 0 {
            limit = limit.min(self.limit * OVERRUN_FACTOR);
        }
        let min = self.settings.min.max(1);
        self.limit = limit.clamp(f64::from(min), f64::from(self.settings.max.max(min)));
    }
}

impl Window {
    /// The middle one of the samples, which this puts out of order.
    fn median(&mut self) -> Option<u32> {
        let samples = &mut self.samples[..self.seen.min(SAMPLES_MAX)];
        let middle = samples.len().checked_sub(1)? / 2;
        Some(*samples.select_nth_unstable(middle).1)
    }

    fn clear(&mut self, now: Time) {
        self.began_at = now;
        self.seen = 0;
        self.overruns = 0;
    }
}
