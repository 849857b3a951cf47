//! Totals shared by the streams of several workers, in simulated time.

use std::num::NonZeroU64;
use std::sync::Arc;

use shape::{Grant, Limit, Model, SharedLine, StreamId, Total};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Workers whose streams always have bytes to send, unless they pause.
struct Scene {
    lines: Vec<SharedLine>,
    /// For each worker its streams: whether each sends, and how much it has sent.
    streams: Vec<Vec<(StreamId, bool, u64)>>,
    wakes: Vec<Option<u64>>,
    lateness_ns: u64,
    now: u64,
}

impl Scene {
    fn new(limit: Limit, weights: &[&[u32]], lateness_ns: u64) -> Self {
        let total = Arc::new(Total::new(limit));
        let mut lines: Vec<SharedLine> =
            (0..weights.len()).map(|at| SharedLine::new(Arc::clone(&total), at)).collect();
        let mut streams: Vec<Vec<(StreamId, bool, u64)>> = Vec::new();
        for (line, weights) in lines.iter_mut().zip(weights) {
            streams.push(weights.iter().map(|&weight| (line.join(weight), true, 0)).collect());
        }
        let wakes = vec![Some(0); lines.len()];
        Self { lines, streams, wakes, lateness_ns, now: 0 }
    }

    fn total(&self) -> u64 {
        self.streams.iter().flatten().map(|(.., sent)| sent).sum()
    }

    fn each(&self) -> Vec<u64> {
        self.streams.iter().flatten().map(|(.., sent)| *sent).collect()
    }

    /// Runs for this long. Returns how much was sent in each span.
    fn run(&mut self, until: u64, span: u64) -> Vec<u64> {
        let mut spans = Vec::new();
        let mut before = self.total();
        let mut grants: Vec<Grant> = Vec::new();
        let mut next_span = self.now + span;
        while let Some((at, worker)) =
            self.wakes.iter().enumerate().filter_map(|(worker, at)| Some(((*at)?, worker))).min()
        {
            while next_span <= at.min(until) {
                spans.push(self.total() - before);
                before = self.total();
                next_span += span;
            }
            if at > until {
                break;
            }
            self.now = at;
            let (line, streams) = (&mut self.lines[worker], &mut self.streams[worker]);
            for (id, sends, _) in streams.iter() {
                if *sends {
                    line.ask(*id, u64::MAX, at);
                }
            }
            let due = line.serve(at, &mut grants);
            for grant in grants.drain(..) {
                let stream = streams.iter_mut().find(|(id, ..)| *id == grant.stream);
                let Some(stream) = stream else { panic!("a grant for nobody") };
                stream.2 += grant.bytes;
            }
            // Served streams ask again at once.
            self.wakes[worker] = match due {
                Some(due) => Some(due + self.lateness_ns),
                None if streams.iter().any(|(_, sends, _)| *sends) => Some(at + 20_000),
                None => None,
            };
        }
        self.now = until;
        spans
    }
}

fn link(rate: u64) -> Limit {
    Limit::link(NonZeroU64::new(rate).unwrap())
}

fn jain(values: &[u64]) -> f64 {
    let sum: f64 = values.iter().map(|&value| value as f64).sum();
    let squares: f64 = values.iter().map(|&value| (value as f64).powi(2)).sum();
    sum * sum / (values.len() as f64 * squares)
}

#[test]
fn a_total_is_kept_over_ten_seconds_from_5_kb_to_1_gb() {
    for rate in [5_000, 20_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000] {
        for lateness in [0, 100_000, MS] {
            let mut scene = Scene::new(link(rate), &[&[1, 1, 1], &[1, 1]], lateness);
            scene.run(10 * SECOND, SECOND);
            let error = scene.total() as f64 / (rate as f64 * 10.0) - 1.0;
            assert!(error.abs() <= 0.005, "{rate} bytes/s, timers late by {lateness} ns: off by {error}");
        }
    }
}

#[test]
fn a_total_is_kept_over_100_ms_from_1_mb() {
    for rate in [1_000_000, 10_000_000, 100_000_000, 1_000_000_000] {
        let mut scene = Scene::new(link(rate), &[&[1; 8], &[1; 8]], 100_000);
        scene.run(SECOND, SECOND);
        for sent in scene.run(3 * SECOND, 100 * MS) {
            let error = sent as f64 / (rate as f64 / 10.0) - 1.0;
            assert!(error.abs() <= 0.02, "{rate} bytes/s: off by {error}");
        }
    }
}

#[test]
fn a_thousand_streams_on_two_workers_get_the_same() {
    for (rate, seconds) in [(1_000_000, 20), (10_000_000, 10), (1_000_000_000, 2)] {
        // With any distribution of the streams over the workers.
        let mut scene = Scene::new(link(rate), &[&[1; 700], &[1; 300]], 50_000);
        scene.run(seconds * SECOND, SECOND);
        let index = jain(&scene.each());
        assert!(index >= 0.99, "{rate} bytes/s: Jain's index is {index}");
    }
}

#[test]
fn a_hundred_streams_at_5_kb_begin_within_a_second_and_stay_even() {
    let mut scene = Scene::new(link(5_000), &[&[1; 60], &[1; 40]], 100_000);
    scene.run(SECOND + 100 * MS, SECOND);
    assert!(scene.each().iter().all(|&sent| sent > 0), "every stream has sent something");
    let before = scene.each();
    scene.run(11 * SECOND + 100 * MS, SECOND);
    let sent: Vec<u64> = scene.each().iter().zip(&before).map(|(after, before)| after - before).collect();
    assert!(jain(&sent) >= 0.99, "{sent:?}");
}

#[test]
fn weights_are_shares() {
    let mut scene = Scene::new(link(10_000_000), &[&[1, 3], &[2, 2]], 50_000);
    scene.run(5 * SECOND, SECOND);
    let each = scene.each();
    for (sent, weight) in each.iter().zip([1.0, 3.0, 2.0, 2.0]) {
        let share = *sent as f64 / scene.total() as f64;
        assert!((share - weight / 8.0).abs() < 0.005, "{each:?}");
    }
}

/// A turn of this many pieces exceeds the credit at any time.
#[test]
fn a_large_weight_at_a_low_rate_is_a_share_as_well() {
    for rate in [5_000, 100_000, 1_000_000] {
        for (weight, of_workers) in [
            (4, [&[4, 1][..], &[]]),
            (1000, [&[1000][..], &[]]),
            (1000, [&[1000, 1][..], &[]]),
            (1000, [&[1000][..], &[1][..]]),
        ] {
            let what = format!("{of_workers:?} at {rate} bytes/s");
            let mut scene = Scene::new(link(rate), &of_workers, 50_000);
            // Ten of the longest rounds.
            let spans = scene.run(101 * SECOND, SECOND);
            let error = scene.total() as f64 / (rate as f64 * 101.0) - 1.0;
            assert!(error.abs() <= 0.005, "{what}: off by {error}");
            assert!(spans.iter().all(|&sent| sent > 0), "{what}: {spans:?}");
            if let [heavy, light] = scene.each()[..] {
                let ratio = heavy as f64 / light as f64 / f64::from(weight);
                // The last round may be incomplete.
                assert!((0.9..1.1).contains(&ratio), "{what}: {heavy} to {light}");
            }
        }
    }
}

#[test]
fn what_some_leave_others_get() {
    let mut scene = Scene::new(link(1_000_000), &[&[1; 5], &[1; 5]], 50_000);
    scene.run(SECOND, SECOND);
    // All streams of one worker pause, and some of the other's.
    for stream in &mut scene.streams[0] {
        stream.1 = false;
    }
    scene.streams[1][0].1 = false;
    let before = scene.total();
    scene.run(3 * SECOND, SECOND);
    let sent = (scene.total() - before) as f64;
    assert!((sent / 2_000_000.0 - 1.0).abs() < 0.01, "{sent} bytes in two seconds");
}

#[test]
fn what_is_given_back_is_not_lost_and_not_doubled() {
    let total = Arc::new(Total::new(link(1_000_000)));
    let mut line = SharedLine::new(Arc::clone(&total), 0);
    let (stubborn, eager) = (line.join(1), line.join(1));
    let mut sent = 0;
    let mut grants = Vec::new();
    let mut now = 0;
    while now < 10 * SECOND {
        line.ask(stubborn, 10_000, now);
        line.ask(eager, u64::MAX, now);
        let due = line.serve(now, &mut grants);
        for grant in grants.drain(..) {
            if grant.stream == stubborn {
                // Its client reads nothing.
                line.give_back(grant.stream, grant.bytes);
            } else {
                sent += grant.bytes;
            }
        }
        // Credit that was given back may be available before the due time.
        now = due.unwrap_or(now).min(now + 100_000);
    }
    let error = sent as f64 / 10_000_000.0 - 1.0;
    assert!(error.abs() < 0.005, "off by {error}");
}

#[test]
fn a_worker_that_stands_still_holds_up_nobody() {
    let total = Arc::new(Total::new(link(1_000_000)));
    let mut stuck = SharedLine::new(Arc::clone(&total), 0);
    let id = stuck.join(1);
    stuck.ask(id, u64::MAX, 0);
    let mut line = SharedLine::new(total, 1);
    let id = line.join(1);
    let (mut now, mut sent, mut grants) = (0, 0, Vec::new());
    while now < 10 * SECOND {
        line.ask(id, u64::MAX, now);
        let due = line.serve(now, &mut grants);
        sent += grants.drain(..).map(|grant| grant.bytes).sum::<u64>();
        now = due.unwrap_or(now + 100_000);
    }
    assert!(sent >= 9_900_000, "{sent} bytes");
}

#[test]
fn a_burst_comes_first_and_the_rate_behind_it() {
    let model = Model::TokenBucket { burst_bytes: 500_000 };
    let limit = Limit { rate_bytes_per_second: NonZeroU64::new(1_000_000).unwrap(), model };
    let mut scene = Scene::new(limit, &[&[1]], 50_000);
    scene.run(2 * SECOND, SECOND);
    assert!((2_480_000..=2_510_000).contains(&scene.total()), "{} bytes", scene.total());
}

#[test]
fn another_limit_holds_for_those_who_wait() {
    let mut scene = Scene::new(link(100_000), &[&[1, 1], &[1]], 50_000);
    scene.run(SECOND, SECOND);
    scene.lines[0].total().set_limit(link(1_000_000), SECOND);
    let before = scene.total();
    scene.run(2 * SECOND, SECOND);
    let sent = (scene.total() - before) as f64;
    assert!((sent / 1_000_000.0 - 1.0).abs() < 0.02, "{sent} bytes in a second");
}

/// A single stream, whose worker is later than a link compensates for after a pause.
#[test]
fn late_timers_take_nothing_from_a_stream_that_is_alone() {
    for lateness in [MS, 3 * MS, 9 * MS] {
        let mut scene = Scene::new(link(5_000), &[&[1]], lateness);
        scene.run(20 * SECOND, SECOND);
        let error = scene.total() as f64 / 100_000.0 - 1.0;
        assert!(error.abs() <= 0.005, "timers late by {lateness} ns: off by {error}");
    }
}

#[test]
fn a_line_says_whether_it_is_short() {
    let rate = 1_000_000;
    let limit = Limit::link(NonZeroU64::new(rate).expect("is a rate"));
    let mut line = SharedLine::new(Arc::new(Total::new(limit)), 0);
    assert!(line.is_served_within(0));
    for waiting in 1..=10 {
        let stream = line.join(1);
        line.ask(stream, u64::MAX, 0);
        let due_ms = waiting * limit.piece_bytes() * 1000 / rate;
        assert!(line.is_served_within((due_ms + 1) * MS), "{waiting}");
        assert!(!line.is_served_within((due_ms - 1) * MS), "{waiting}");
    }
}
