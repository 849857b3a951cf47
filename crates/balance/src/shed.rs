//! Load shedding: the adaptive concurrency limit of one worker for one upstream. There is no limit while responses come
//! in time. Otherwise the limit is the response rate times the permitted latency (Little's law): enough to keep the
//! servers busy, without a queue. Clients that wait for each response may take longer: they slow down automatically,
//! and a refused one only comes back at once.

use std::time::Duration;

use crate::time::Time;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShedSettings {
    /// Latencies up to this are never too high, even if the usual one is lower.
    pub latency_floor: Duration,
    /// The latency that is permitted, in percent of the usual one; above 100.
    pub tolerance_percent: u32,
    /// At least 1.
    pub min: u32,
    /// The most requests in progress that count as a crowd: clients that each wait for a response. Up to it, requests
    /// are refused only while more arrive than are answered.
    pub crowd: u32,
    /// Up to `crowd` requests in progress, requests are refused only if the median latency also exceeds this.
    pub crowd_latency: Duration,
    /// The shortest time that responses are collected for one step.
    pub window: Duration,
    /// The fewest responses that are collected for one step; up to `SAMPLES_MAX`.
    pub samples_min: usize,
}

impl Default for ShedSettings {
    fn default() -> Self {
        Self {
            latency_floor: Duration::from_millis(200),
            // Clients that wait in turn raise the latency by their number alone, so a small ratio would shed them.
            tolerance_percent: 300,
            min: 16,
            // Experiments with 640 connections that wait in turn are no overload.
            crowd: 1024,
            crowd_latency: Duration::from_millis(400),
            window: Duration::from_millis(100),
            samples_min: 16,
        }
    }
}

/// The end of an admitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A response came, after this time if it was measured. Measured up to the head, because bodies have any length.
    Done(Option<Duration>),
    /// No response came in time.
    Overrun,
    /// The end says nothing about load: another failure, or the client left.
    Other,
}

/// The most samples of a window; the latest are kept.
pub const SAMPLES_MAX: usize = 256;
/// The share of the difference by which the usual latency rises per step; it falls at once.
const DRIFT: f64 = 1.0 / 64.0;
/// The share by which a step raises a limit that was reached while responses came in time.
const RAISE: f64 = 1.0 / 8.0;
/// Requests are growing if they exceed the responses by this share, in this many steps in a row. One step is not
/// enough: after a stall it counts all requests that arrived meanwhile.
const GROWTH: f64 = 1.0 / 4.0;
const GROWING_STEPS: u32 = 2;
/// Steps without a refusal after which there is no limit any more.
const CALM_STEPS: u32 = 5;

/// The adaptive concurrency limit of one worker.
#[derive(Debug)]
pub struct Shed {
    settings: ShedSettings,
    /// `None` while responses come in time.
    limit: Option<f64>,
    in_flight: u32,
    /// The usual median latency in microseconds, if it is known.
    usual_micros: Option<f64>,
    calm_steps: u32,
    /// The steps in a row in which more requests came than were answered.
    growing_steps: u32,
    /// Every `stride`th request is timed, so that a window gets as many samples as it keeps.
    stride: usize,
    window: ShedWindow,
}

/// Observations since the last step.
#[derive(Debug)]
struct ShedWindow {
    began_at: Time,
    /// The latencies that were measured, in microseconds.
    samples: Box<[u32; SAMPLES_MAX]>,
    /// The number of measured responses, whether or not their samples are kept.
    timed: usize,
    /// The number of responses, measured or not.
    seen: usize,
    overruns: usize,
    admitted: usize,
    /// Requests that ended in the window, even if they were admitted before.
    ended: usize,
    refused: usize,
}

impl Shed {
    /// Starts without a limit.
    pub fn new(settings: ShedSettings, now: Time) -> Self {
        let samples = Box::new([0; SAMPLES_MAX]);
        let window = ShedWindow {
            began_at: now,
            samples,
            timed: 0,
            seen: 0,
            overruns: 0,
            admitted: 0,
            ended: 0,
            refused: 0,
        };
        Self {
            settings,
            limit: None,
            in_flight: 0,
            usual_micros: None,
            calm_steps: 0,
            growing_steps: 0,
            stride: 1,
            window,
        }
    }

    /// Whether a request is admitted; otherwise shed it. Report the end of an admitted request with `end`.
    #[inline]
    #[must_use]
    pub fn admit(&mut self) -> bool {
        // Without a limit, admission costs a comparison.
        if self.limit.is_some_and(|limit| f64::from(self.in_flight) >= limit) {
            self.window.refused += 1;
            return false;
        }
        self.in_flight += 1;
        self.window.admitted += 1;
        true
    }

    /// Whether the last admitted request should be timed.
    #[inline]
    pub fn times(&self) -> bool {
        self.window.admitted.is_multiple_of(self.stride)
    }

    /// Reports the end of the server's work on an admitted request: a tunnel's ends when the tunnel starts.
    #[inline]
    pub fn end(&mut self, work: Work, now: Time) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.window.ended += 1;
        match work {
            Work::Done(latency) => self.window.add(latency),
            Work::Overrun => self.window.overruns += 1,
            // Neither time nor failure of such a request says anything about the load.
            Work::Other => return,
        }
        // A window needs both its time and its samples: a few quick responses or a quiet second prove nothing.
        if now.since(self.window.began_at) < self.settings.window {
            return;
        }
        if self.window.timed + self.window.overruns >= self.settings.samples_min.clamp(1, SAMPLES_MAX) {
            self.step(now);
        } else {
            // Far fewer responses than in the last window, perhaps because they are slow: times each one.
            self.stride = 1;
        }
    }

    /// The current limit on requests in progress, if there is one.
    pub fn limit(&self) -> Option<u32> {
        self.limit.map(|limit| limit as u32)
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    #[cold]
    fn step(&mut self, now: Time) {
        let ShedSettings { min, crowd, crowd_latency, .. } = self.settings;
        let elapsed = now.since(self.window.began_at);
        let median_micros = self.window.median_micros();
        let allowed_micros = self.allowed_micros(median_micros);
        // Clients that wait for each response send less when responses are slow, so they get more time.
        let crowd_micros = allowed_micros.max(crowd_latency.as_micros() as f64);
        let per_micro = self.window.seen as f64 / elapsed.as_micros().max(1) as f64;
        self.calm_steps = if self.window.refused > 0 { 0 } else { self.calm_steps + 1 };
        self.growing_steps = if self.window.is_growing() { self.growing_steps + 1 } else { 0 };
        // Requests that time out give no sample, so the median would not show them.
        let is_overrun = self.window.overruns > self.window.seen;
        let is_growing = self.growing_steps >= GROWING_STEPS;
        let is_late = match self.in_flight > crowd {
            true => median_micros > allowed_micros,
            // Slow responses alone are no overload: with 400 clients and little CPU, half were refused and came back
            // at once.
            false => median_micros > crowd_micros && (self.limit.is_some() || is_growing),
        };
        let of_a_crowd = (per_micro * crowd_micros).min(f64::from(crowd));
        // Little's law: the requests in progress are the rate of responses times their latency.
        let enough = (per_micro * allowed_micros).max(of_a_crowd).max(f64::from(min.max(1)));
        self.limit = match self.limit {
            // The limit follows the finished requests, because requests from before the limit may still be in progress.
            _ if is_overrun || is_late => Some(enough),
            // A limit that refuses no request any more only costs comparisons.
            Some(_) if self.calm_steps >= CALM_STEPS => None,
            // Raises the limit at most to `enough`: if the requests admitted now are too slow, that shows only later.
            Some(limit) if self.window.refused > 0 => {
                Some((limit * (1.0 + RAISE) + 1.0).min(enough.max(limit)))
            }
            limit => limit,
        };
        // Reading the clock for more requests than a window keeps would be wasted.
        self.stride = (self.window.seen / SAMPLES_MAX).max(1);
        self.window.clear(now);
    }

    /// The permitted latency, given the current median.
    fn allowed_micros(&mut self, median_micros: f64) -> f64 {
        let usual = self.usual_micros.unwrap_or(median_micros);
        let is_limited = self.limit.is_some();
        let next = match () {
            () if median_micros <= usual => median_micros,
            // Latencies measured under a limit result from the limit, so they do not change the usual one.
            () if is_limited => usual,
            () => usual + (median_micros - usual) * DRIFT,
        };
        if self.window.timed > 0 {
            self.usual_micros = Some(next);
        }
        // At least 101 percent, or ordinary noise would count as late.
        let tolerated = usual * f64::from(self.settings.tolerance_percent.max(101)) / 100.0;
        tolerated.max(self.settings.latency_floor.as_micros() as f64)
    }
}

impl ShedWindow {
    #[inline]
    fn add(&mut self, latency: Option<Duration>) {
        self.seen += 1;
        if let Some(latency) = latency {
            // A ring, because the latest samples matter when there are too many.
            self.samples[self.timed % SAMPLES_MAX] = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
            self.timed += 1;
        }
    }

    /// Whether requests in progress are growing. Clients that wait for each response send as many as were answered,
    /// even if responses are slow.
    fn is_growing(&self) -> bool {
        self.admitted as f64 > self.ended as f64 * (1.0 + GROWTH)
    }

    /// The median of the samples, which it reorders; 0 without any.
    fn median_micros(&mut self) -> f64 {
        let samples = &mut self.samples[..self.timed.min(SAMPLES_MAX)];
        let Some(last) = samples.len().checked_sub(1) else { return 0.0 };
        f64::from(*samples.select_nth_unstable(last / 2).1)
    }

    fn clear(&mut self, now: Time) {
        self.began_at = now;
        (self.timed, self.seen, self.overruns) = (0, 0, 0);
        (self.admitted, self.ended, self.refused) = (0, 0, 0);
    }
}
