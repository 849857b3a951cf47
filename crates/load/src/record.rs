//! Measurements of one thread: histograms of successes, failures by class, lateness of the schedule. Merged at the end.
//!
//! Nothing here reads a clock. Only requests of the measured window are recorded.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustls::{CipherSuite, ProtocolVersion};

use crate::breakdown::Rows;
use crate::outcome::{ChecksMissed, ErrorClass, Errors};
use crate::page::PageFacts;
use crate::seconds::{CurrentSecond, WindowCounts};
use crate::secure::Agreed;
use crate::stream::Tally;
use crate::timeline::Timeline;
use crate::watch::ResponseVerdict;

/// Maximum time in a histogram: an hour. Longer times are recorded as an hour, and counted.
const LONGEST_US: u64 = 3_600_000_000;
/// Three significant digits: a relative error of at most 0.1%.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Number of possible status codes, which have three digits.
const STATUSES: usize = 1000;

/// Histogram of times in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TimeHistogram {
    pub(crate) histogram: Histogram<u64>,
    /// Number of times above the histogram's maximum.
    pub(crate) clamped: u64,
    /// Censored times: a request without an answer took at least this long.
    pub(crate) censored: Option<Box<Histogram<u64>>>,
}

impl TimeHistogram {
    pub(crate) fn new() -> Self {
        // The bounds are constants, and valid ones.
        let histogram = Histogram::new_with_bounds(1, LONGEST_US, SIGNIFICANT_DIGITS);
        #[allow(clippy::expect_used, reason = "constant bounds, checked by every test")]
        let histogram = histogram.expect("1 us to an hour with 3 digits is a histogram");
        Self { histogram, clamped: 0, censored: None }
    }

    /// A histogram that grows with its times, for cases in which most of many histograms stay small.
    pub(crate) fn growing() -> Self {
        Self::with_digits(SIGNIFICANT_DIGITS)
    }

    /// A small histogram that grows with its times, with a relative error of 1%.
    pub(crate) fn coarse() -> Self {
        Self::with_digits(2)
    }

    fn with_digits(digits: u8) -> Self {
        let histogram = Histogram::new(digits);
        #[allow(clippy::expect_used, reason = "constants, checked by every test")]
        let mut histogram = histogram.expect("2 and 3 digits are a histogram");
        histogram.auto(true);
        Self { histogram, clamped: 0, censored: None }
    }

    #[inline]
    pub(crate) fn record(&mut self, time: Duration) {
        let time_us = self.clamp(time);
        self.histogram.saturating_record(time_us);
    }

    /// Records the age of a request without an answer.
    pub(crate) fn record_censored(&mut self, age: Duration) {
        let age_us = self.clamp(age);
        // It grows up to an hour, which both can hold.
        let recorded = self.histogram.record(age_us);
        debug_assert!(recorded.is_ok());
        self.censored().saturating_record(age_us);
    }

    fn censored(&mut self) -> &mut Histogram<u64> {
        self.censored.get_or_insert_with(|| Box::new(Self::new().histogram))
    }

    /// Records in a histogram that may have to grow.
    #[inline]
    pub(crate) fn record_growing(&mut self, time: Duration) {
        let time_us = self.clamp(time);
        // It grows up to an hour, which it can hold.
        let recorded = self.histogram.record(time_us);
        debug_assert!(recorded.is_ok());
    }

    #[inline]
    fn clamp(&mut self, time: Duration) -> u64 {
        // In 64 bits: the standard library's conversion uses 128, and this runs several times per request.
        let time_us =
            time.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(time.subsec_micros()));
        if time_us > LONGEST_US {
            self.clamped += 1;
        }
        time_us.min(LONGEST_US)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.clamped += other.clamped;
        // Both histograms can hold an hour, their maximum.
        if let Some(ages) = &other.censored {
            let added = self.censored().add(&**ages);
            debug_assert!(added.is_ok());
        }
        let added = self.histogram.add(&other.histogram);
        debug_assert!(added.is_ok());
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Moments {
    /// When the request was due; in a closed loop, when it was sent.
    pub(crate) due: Instant,
    pub(crate) sent: Instant,
    pub(crate) first_byte: Instant,
    pub(crate) done: Instant,
}

#[derive(Debug)]
pub(crate) struct ThreadRecord {
    /// Whether requests follow a schedule. Otherwise `latency` and the schedule's times stay empty.
    open_model: bool,
    pub(crate) latency: TimeHistogram,
    pub(crate) service: TimeHistogram,
    pub(crate) first_byte: TimeHistogram,
    pub(crate) connect: TimeHistogram,
    /// Times of TLS handshakes, full and resumed.
    pub(crate) handshake: TimeHistogram,
    pub(crate) resumed: u64,
    /// Agreed TLS versions and cipher suites, also before the window.
    pub(crate) agreed: Vec<(ProtocolVersion, CipherSuite)>,
    pub(crate) lateness: TimeHistogram,
    pub(crate) own_lateness: TimeHistogram,
    pub(crate) statuses: Vec<u64>,
    /// Measurements for the tables of the run.
    pub(crate) rows: Rows,
    /// The current second, if seconds are recorded.
    pub(crate) second: Option<Box<CurrentSecond>>,
    /// Slots by when requests were due, if they are recorded.
    pub(crate) timeline: Option<Box<Timeline>>,
    /// Counts of streams, if the run has streams in place of requests.
    pub(crate) tally: Option<Box<Tally>>,
    pub(crate) requests: u64,
    pub(crate) errors: Errors,
    pub(crate) checks_missed: ChecksMissed,
    pub(crate) error_examples: BTreeMap<ErrorClass, String>,
    pub(crate) bytes_received: u64,
    pub(crate) body_bytes: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) connections_opened: u64,
    /// HTTP/2 streams that were refused and sent again.
    pub(crate) streams_refused: u64,
    pub(crate) redirects: u64,
    pub(crate) sent: u64,
    pub(crate) sent_in_window: u64,
    pub(crate) waited_for_connection: u64,
    /// When the last request was due, and when it was sent.
    pub(crate) last_sent: Option<(Instant, Instant)>,
    pub(crate) last_done: Option<Instant>,
}

impl ThreadRecord {
    pub(crate) fn new(open_model: bool) -> Self {
        Self {
            open_model,
            latency: TimeHistogram::new(),
            service: TimeHistogram::new(),
            first_byte: TimeHistogram::new(),
            connect: TimeHistogram::new(),
            handshake: TimeHistogram::new(),
            resumed: 0,
            agreed: Vec::new(),
            lateness: TimeHistogram::new(),
            own_lateness: TimeHistogram::new(),
            statuses: vec![0; STATUSES],
            rows: Rows::default(),
            second: None,
            timeline: None,
            tally: None,
            requests: 0,
            errors: Errors::default(),
            checks_missed: ChecksMissed::default(),
            error_examples: BTreeMap::new(),
            bytes_received: 0,
            body_bytes: 0,
            bytes_sent: 0,
            connections_opened: 0,
            streams_refused: 0,
            redirects: 0,
            sent: 0,
            sent_in_window: 0,
            waited_for_connection: 0,
            last_sent: None,
            last_done: None,
        }
    }

    /// Records that a request of a schedule is sent. `free` is when its connection became free.
    pub(crate) fn departure(&mut self, due: Instant, free: Instant, sent: Instant, end: Option<Instant>) {
        self.sent += 1;
        self.sent_in_window += u64::from(end.is_none_or(|end| sent < end));
        self.waited_for_connection += u64::from(free > due);
        self.lateness.record(sent.saturating_duration_since(due));
        self.own_lateness.record(sent.saturating_duration_since(due.max(free)));
        self.last_sent = Some((due, sent));
    }

    /// Records a TLS handshake. `time` is its duration, if it belongs to the window.
    pub(crate) fn handshake(&mut self, agreed: Agreed, time: Option<Duration>) {
        self.agree((agreed.version, agreed.suite));
        if let Some(time) = time {
            self.handshake.record(time);
            self.resumed += u64::from(agreed.is_resumed);
        }
    }

    fn agree(&mut self, agreed: (ProtocolVersion, CipherSuite)) {
        if !self.agreed.contains(&agreed) {
            self.agreed.push(agreed);
        }
    }

    /// Records the bytes that a request transferred, even if it failed.
    pub(crate) fn transferred(&mut self, sent_bytes: u64, received_bytes: u64) {
        self.bytes_sent += sent_bytes;
        self.bytes_received += received_bytes;
    }

    /// Records a complete response. `words` describes a missed check.
    pub(crate) fn response(
        &mut self,
        page: PageFacts,
        verdict: ResponseVerdict,
        moments: &Moments,
        words: impl FnOnce() -> String,
    ) {
        self.body_bytes += page.body_bytes;
        self.last_done = Some(moments.done);
        if let Some(count) = self.statuses.get_mut(usize::from(page.status)) {
            *count += 1;
        }
        match verdict {
            ResponseVerdict::Good => {}
            ResponseVerdict::Status => {
                self.fails(ErrorClass::Status, moments.due);
                self.example(ErrorClass::Status, || format!("status {}", page.status));
                return;
            }
            ResponseVerdict::Missed(missed) | ResponseVerdict::Unlike(missed) => {
                self.fails(ErrorClass::Check, moments.due);
                self.checks_missed.count(missed);
                self.example(ErrorClass::Check, words);
                return;
            }
        }
        self.requests += 1;
        self.first_byte.record(moments.first_byte - moments.sent);
        let headline = if self.open_model {
            self.service.record(moments.done - moments.sent);
            moments.done - moments.due
        } else {
            moments.done - moments.sent
        };
        // Recorded once: at its end, a second is added to the whole run.
        match (&mut self.second, self.open_model) {
            (Some(second), _) => second.record(headline),
            (None, true) => self.latency.record(headline),
            (None, false) => self.service.record(headline),
        }
        if let Some(timeline) = &mut self.timeline {
            let began = if self.open_model { moments.due } else { moments.sent };
            timeline.at(moments.due).succeeded(moments.done - began);
        }
    }

    /// Records a due request without an answer, by its age since it was due and, if it was sent, since then.
    pub(crate) fn unanswered(&mut self, since_due: Duration, since_sent: Option<Duration>) {
        if self.open_model {
            self.latency.record_censored(since_due);
        }
        if let Some(since_sent) = since_sent {
            self.service.record_censored(since_sent);
        }
    }

    /// Records a message of a stream. `delay` is from when it was due or sent, `service` from when it was sent.
    pub(crate) fn message(&mut self, delay: Option<Duration>, service: Option<Duration>, now: Instant) {
        self.requests += 1;
        self.last_done = Some(now);
        // At its end, a second is added to the main figure.
        if let Some(service) = service.filter(|_| self.open_model || self.second.is_none()) {
            self.service.record(service);
        }
        let Some(delay) = delay else { return };
        match &mut self.second {
            Some(second) => second.record(delay),
            None if self.open_model => self.latency.record(delay),
            None => {}
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.at(now.checked_sub(delay).unwrap_or(now)).succeeded(delay);
        }
    }

    /// Ends the current second, if seconds are recorded. `at` is from the start of the window.
    pub(crate) fn end_second(&mut self, at: Duration, is_last: bool) {
        let counts = WindowCounts {
            requests: self.requests,
            failed: self.errors.total(),
            bytes_received: self.bytes_received,
        };
        if let Some(second) = &mut self.second {
            let headline = if self.open_model { &mut self.latency } else { &mut self.service };
            headline.merge(second.times());
            second.end(counts, at, is_last);
        }
    }

    /// Counts a failure of a request that was due then.
    fn fails(&mut self, class: ErrorClass, due: Instant) {
        self.errors.count(class);
        if let Some(timeline) = &mut self.timeline {
            timeline.at(due).failed(class);
        }
    }

    /// Records a failed request. `due` is when it was due; for a connect without a request, now.
    pub(crate) fn failure(
        &mut self,
        class: ErrorClass,
        due: Instant,
        now: Instant,
        words: impl FnOnce() -> String,
    ) {
        self.fails(class, due);
        self.last_done = Some(now);
        self.example(class, words);
    }

    fn example(&mut self, class: ErrorClass, words: impl FnOnce() -> String) {
        self.error_examples.entry(class).or_insert_with(words);
    }

    /// Number of complete responses with any status, and number of other failed requests.
    pub(crate) fn answered_and_failed(&self) -> (u64, u64) {
        let Errors { status, check, .. } = self.errors;
        (self.requests + status + check, self.errors.total() - status - check)
    }

    /// Times of the main figure: `latency` with a schedule, otherwise `service`.
    pub(crate) fn headline(&self) -> &TimeHistogram {
        if self.open_model { &self.latency } else { &self.service }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.latency.merge(&other.latency);
        self.service.merge(&other.service);
        self.first_byte.merge(&other.first_byte);
        self.connect.merge(&other.connect);
        self.handshake.merge(&other.handshake);
        self.resumed += other.resumed;
        other.agreed.into_iter().for_each(|agreed| self.agree(agreed));
        self.lateness.merge(&other.lateness);
        self.own_lateness.merge(&other.own_lateness);
        for (count, more) in self.statuses.iter_mut().zip(other.statuses) {
            *count += more;
        }
        self.rows.merge(other.rows);
        match (&mut self.timeline, other.timeline) {
            (Some(timeline), Some(more)) => timeline.merge(&more),
            (timeline @ None, more) => *timeline = more,
            (Some(_), None) => {}
        }
        match (&mut self.tally, other.tally) {
            (Some(tally), Some(more)) => tally.merge(&more),
            (tally @ None, more) => *tally = more,
            (Some(_), None) => {}
        }
        self.requests += other.requests;
        self.errors.add(&other.errors);
        self.checks_missed.add(other.checks_missed);
        for (class, words) in other.error_examples {
            self.error_examples.entry(class).or_insert(words);
        }
        self.bytes_received += other.bytes_received;
        self.body_bytes += other.body_bytes;
        self.bytes_sent += other.bytes_sent;
        self.connections_opened += other.connections_opened;
        self.streams_refused += other.streams_refused;
        self.redirects += other.redirects;
        self.sent += other.sent;
        self.sent_in_window += other.sent_in_window;
        self.waited_for_connection += other.waited_for_connection;
        // The thread with the latest request decides whether the schedule was kept.
        let late = |moments: &(Instant, Instant)| moments.1.saturating_duration_since(moments.0);
        self.last_sent = self.last_sent.into_iter().chain(other.last_sent).max_by_key(late);
        self.last_done = self.last_done.max(other.last_done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, time_us: u64) -> Instant {
        start + Duration::from_micros(time_us)
    }

    fn page(status: u16, body_bytes: u64) -> PageFacts {
        PageFacts { status, kind: 0, body_bytes, digest: None }
    }

    fn moments(start: Instant, due_us: u64, sent_us: u64, done_us: u64) -> Moments {
        let sent = after(start, sent_us);
        Moments { due: after(start, due_us), sent, first_byte: sent, done: after(start, done_us) }
    }

    #[test]
    fn only_successes_are_timed() {
        let (start, mut record) = (Instant::now(), ThreadRecord::new(false));
        for status in [200, 204, 301, 399, 400, 500, 999] {
            let verdict = ResponseVerdict::from_status(status);
            record.response(page(status, 10), verdict, &moments(start, 0, 0, 100), String::new);
        }
        record.failure(ErrorClass::Read, start, start, || "first".to_owned());
        record.failure(ErrorClass::Read, start, start, || "second".to_owned());
        assert_eq!((record.requests, record.service.histogram.len()), (4, 4));
        assert_eq!((record.errors.status, record.errors.read, record.errors.total()), (3, 2, 5));
        assert_eq!((record.statuses[204], record.statuses[500], record.body_bytes), (1, 1, 70));
        assert_eq!(record.error_examples[&ErrorClass::Read], "first");
        assert_eq!(record.error_examples[&ErrorClass::Status], "status 400");
    }

    #[test]
    fn a_stall_is_in_the_headline_and_not_in_the_generators_own_lateness() {
        let (start, mut record) = (Instant::now(), ThreadRecord::new(true));
        // Due at 0, but the only connection was busy until 5,000; sent 3 later, answered in 100.
        record.departure(start, after(start, 5_000), after(start, 5_003), None);
        record.response(page(200, 0), ResponseVerdict::Good, &moments(start, 0, 5_003, 5_103), String::new);
        assert_eq!(record.headline().histogram.max() / 10, 510);
        assert_eq!(record.service.histogram.max(), 100);
        assert_eq!(record.lateness.histogram.max(), record.lateness.histogram.highest_equivalent(5_003));
        assert_eq!((record.own_lateness.histogram.max(), record.waited_for_connection), (3, 1));
        // Due at 6,000 with a connection free: the 40 are the generator's.
        record.departure(after(start, 6_000), after(start, 5_103), after(start, 6_040), Some(start));
        assert_eq!((record.own_lateness.histogram.max(), record.waited_for_connection), (40, 1));
        assert_eq!((record.sent, record.sent_in_window), (2, 1));
    }

    #[test]
    fn times_too_long_are_clamped_and_told() {
        let mut times = TimeHistogram::new();
        times.record(Duration::from_secs(3601));
        times.record(Duration::MAX);
        times.record(Duration::ZERO);
        assert_eq!((times.clamped, times.histogram.len(), times.histogram.min()), (2, 3, 0));
        assert_eq!(times.histogram.max(), times.histogram.highest_equivalent(LONGEST_US));
        let mut growing = TimeHistogram::growing();
        for seconds in [0, 1, 10_000] {
            growing.record_growing(Duration::from_secs(seconds));
        }
        assert_eq!((growing.clamped, growing.histogram.len()), (1, 3));
        assert_eq!(growing.histogram.max(), growing.histogram.highest_equivalent(LONGEST_US));
    }

    #[test]
    fn merging_adds_everything() {
        let start = Instant::now();
        let one = |lateness_us| {
            let mut record = ThreadRecord::new(true);
            record.departure(start, start, after(start, lateness_us), None);
            record.response(
                page(200, 3),
                ResponseVerdict::Good,
                &moments(start, 0, lateness_us, 100),
                String::new,
            );
            record.failure(ErrorClass::Connect, start, after(start, 200), || "refused".to_owned());
            record
        };
        let mut merged = one(7);
        merged.merge(one(70));
        merged.merge(one(30));
        assert_eq!((merged.requests, merged.headline().histogram.len(), merged.body_bytes), (3, 3, 9));
        assert_eq!((merged.errors.connect, merged.statuses[200], merged.sent), (3, 3, 3));
        assert_eq!(merged.last_sent, Some((start, after(start, 70))));
        assert_eq!(merged.last_done, Some(after(start, 200)));
    }
}
