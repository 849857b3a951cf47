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
    /// Never fewer than this, but for half of it while latency is measured; at least 1.
    pub min: u32,
    /// Never more than this.
    pub max: u32,
    /// Latency may grow to so much of what it is without a queue, in percent, before the limit falls; above 100.
    pub tolerance_percent: u32,
    /// How long answers are gathered for one step of the limit, at least.
    pub window: Duration,
    /// How many answers are gathered for one step, at least; up to `SAMPLES_MAX`.
    pub samples_min: usize,
    /// While requests are shed, latency without a queue is measured anew this often: for some windows fewer are admitted.
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
/// To measure latency without a queue, the limit is first cut to so much of what should do without, as what is measured
/// would otherwise grow each time by what was left of the queue; and by so much more for as long as that shortens it.
const MEASURE_SHARE: f64 = 0.9;
const MEASURE_STEP: f64 = 0.7;
/// Latency that falls to less than this, when the limit is cut by a step, was that of a queue.
const QUEUE_SHARE: f64 = 0.85;
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
    /// When it was measured; `None` while it is only the least that was seen.
    measured_at: Option<Time>,
    window: Window,
}

/// What the present window is for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// To follow latency.
    Follow,
    /// To wait until no more are under way than a probe allows.
    Drain(Probe),
    /// To measure latency with a probe, of requests that began since.
    Measure(Probe),
}

/// A limit for a while.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Probe {
    limit: f64,
    /// The median latency at the step before, if there was one: latency while the limit is followed is no measure, as a
    /// queue may just be growing.
    median_before: Option<u32>,
}

/// What was seen since the last step.
#[derive(Debug)]
struct Window {
    began_at: Time,
    /// How long it is, at least.
    length: Duration,
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
            measured_at: None,
            window: Window {
                began_at: now,
                length: settings.window,
                samples,
                seen: 0,
                overruns: 0,
                in_flight_max: 0,
            },
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
        match (self.phase, work) {
            (_, Work::Other) => return,
            (Phase::Drain(probe), _) => {
                if f64::from(self.in_flight) <= probe.limit {
                    self.phase = Phase::Measure(probe);
                    let before = probe.median_before.or(self.baseline).unwrap_or(0);
                    let length = Duration::from_micros(u64::from(before));
                    self.window.clear(now, length.max(self.settings.window));
                }
                return;
            }
            (Phase::Measure(_), Work::Done(latency)) if latency > now.since(self.window.began_at) => return,
            (_, Work::Done(latency)) => self.window.add(latency),
            (_, Work::Overrun) => self.window.overruns += 1,
        }
        let seen = self.window.seen + self.window.overruns as usize;
        if seen >= self.settings.samples_min.clamp(1, SAMPLES_MAX)
            && now.since(self.window.began_at) >= self.window.length
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

    #[inline]
    fn allowed(&self) -> u32 {
        match self.phase {
            Phase::Follow => self.limit(),
            Phase::Drain(probe) | Phase::Measure(probe) => probe.limit as u32,
        }
    }

    fn tolerance(&self) -> f64 {
        f64::from(self.settings.tolerance_percent.max(101)) / 100.0
    }

    fn min(&self) -> f64 {
        f64::from(self.settings.min.max(1))
    }

    #[cold]
    fn step(&mut self, now: Time) {
        let median = self.window.median();
        self.phase = match (self.phase, median) {
            (Phase::Follow, Some(median)) => {
                let baseline = self.baseline.map_or(median, |baseline| baseline.min(median));
                self.baseline = Some(baseline);
                let is_due = self.measured_at.is_none_or(|at| now.since(at) >= self.settings.baseline_age);
                // Where nothing is shed the baseline does not matter, and nothing is to be shed for its sake.
                let is_shedding = self.window.in_flight_max >= self.limit();
                self.follow(Some(median));
                if is_due && is_shedding { Phase::Drain(self.first_probe()) } else { Phase::Follow }
            }
            (Phase::Follow, None) => {
                self.follow(None);
                Phase::Follow
            }
            (Phase::Measure(Probe { limit, median_before }), Some(median)) => {
                let is_queue = |before| f64::from(median) < f64::from(before) * QUEUE_SHARE;
                let was_queue = median_before.is_none_or(is_queue);
                if was_queue && limit > self.probe_min() {
                    Phase::Drain(Probe {
                        limit: (limit * MEASURE_STEP).max(self.probe_min()),
                        median_before: Some(median),
                    })
                } else {
                    // There may be a queue still where the limit cannot be cut any more.
                    let known = self.baseline.filter(|_| was_queue).unwrap_or(median);
                    self.baseline = Some(median.min(known));
                    self.measured_at = Some(now);
                    self.return_from(limit / MEASURE_STEP, median_before.unwrap_or(median));
                    Phase::Follow
                }
            }
            // Only overruns: there is nothing to measure yet.
            (phase @ (Phase::Drain(_) | Phase::Measure(_)), _) => phase,
        };
        self.window.clear(now, self.settings.window);
        self.window.in_flight_max = self.in_flight;
    }

    fn first_probe(&self) -> Probe {
        let without_queue = (self.limit - self.limit.sqrt()) / self.tolerance() * MEASURE_SHARE;
        Probe { limit: without_queue.max(self.probe_min() / MEASURE_STEP), median_before: None }
    }

    /// What was answered each moment while a probe had so many under way tells how many are enough (Little's law): a
    /// limit that was far above is not returned to.
    fn return_from(&mut self, under_way: f64, median: u32) {
        let without_queue = under_way * f64::from(self.baseline.unwrap_or(median)) / f64::from(median);
        let enough = self.tolerance() * without_queue;
        self.limit = self.limit.min(enough + enough.sqrt()).max(self.min());
    }

    fn probe_min(&self) -> f64 {
        (self.min() / 2.0).max(1.0)
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
        self.limit = limit.clamp(self.min(), f64::from(self.settings.max).max(self.min()));
    }
}

impl Window {
    #[inline]
    fn add(&mut self, latency: Duration) {
        self.samples[self.seen % SAMPLES_MAX] = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX).max(1);
        self.seen += 1;
    }

    /// The middle one of the samples, which this puts out of order.
    fn median(&mut self) -> Option<u32> {
        let samples = &mut self.samples[..self.seen.min(SAMPLES_MAX)];
        let middle = samples.len().checked_sub(1)? / 2;
        Some(*samples.select_nth_unstable(middle).1)
    }

    fn clear(&mut self, now: Time, length: Duration) {
        (self.began_at, self.length) = (now, length);
        self.seen = 0;
        self.overruns = 0;
    }
}
