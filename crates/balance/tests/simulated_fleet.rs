//! Quick and slow servers behind four workers that pick independently: loads are even over all workers, because they
//! share the counts of requests in progress. An event simulation with fixed seeds and no clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use balance::{
    Changes, Fleet, FleetMember, FleetSettings, InFlight, Pick, PickInput, Picker, RequestOutcome,
    ServerHealth, ServerId, Time,
};

const WORKERS: usize = 4;
/// A quick server serves 1000 requests a second, a slow one 100: one after the other, with exponentially distributed
/// times.
const QUICK_MICROS: f64 = 1_000.0;
const SLOW_MICROS: f64 = 10_000.0;
/// Requested share of the fleet's capacity.
const LOAD: f64 = 0.8;
const REQUESTS: usize = 60_000;

/// Whether workers know the requests in progress of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loads {
    Shared,
    /// Each knows only its own, like a balancer without shared state.
    Own,
}

struct Run {
    /// The first servers are quick, and as many are slow.
    quick: usize,
    latencies_micros: Vec<u64>,
    /// By server.
    requests: Vec<u64>,
    /// Mean requests in progress on each server, as arriving requests found it.
    under_way: Vec<f64>,
}

impl Run {
    fn p99_millis(&self) -> f64 {
        self.latencies_micros[self.latencies_micros.len() * 99 / 100] as f64 / 1e3
    }

    /// The slow servers' share of the requests. Their share of the capacity is 1/11.
    fn slow_share(&self) -> f64 {
        let slow: u64 = self.requests[self.quick..].iter().sum();
        slow as f64 / self.requests.iter().sum::<u64>() as f64
    }

    /// Requests in progress on the busiest server, relative to the least busy one of the same speed.
    fn unevenness(&self) -> f64 {
        let of = |servers: &[f64]| {
            let most = servers.iter().copied().fold(0.0, f64::max);
            most / servers.iter().copied().fold(f64::MAX, f64::min)
        };
        of(&self.under_way[..self.quick]).max(of(&self.under_way[self.quick..]))
    }
}

/// The fleet of each worker.
fn fleets(policy: &str, servers: usize, loads: Loads) -> Vec<Arc<Fleet>> {
    let fleet = || {
        let changes: Arc<Changes> = Arc::default();
        let member = |id| FleetMember::new(ServerId::from_u64(id), 1, &ServerHealth::new(&changes));
        let members = (0..servers as u64).map(member).collect();
        Arc::new(Fleet::new(balance::policy(policy).expect("a policy"), members, FleetSettings::default()))
    };
    let shared = fleet();
    let of_worker = |_| if loads == Loads::Shared { Arc::clone(&shared) } else { fleet() };
    (0..WORKERS).map(of_worker).collect()
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request arrives.
    Arrival,
    /// The request at the head of a server's queue is answered.
    Answer { server: usize },
}

/// A server's request: the worker that sent it, since when, and its count.
type UnderWay = (usize, u64, Option<InFlight>);

fn exponential(random: &mut fastrand::Rng, mean: f64) -> u64 {
    (-(1.0 - random.f64()).ln() * mean).max(1.0) as u64
}

/// Simulates this many quick servers, and as many slow ones.
fn run(policy: &str, quick: usize, loads: Loads) -> Run {
    let servers = 2 * quick;
    let fleets = fleets(policy, servers, loads);
    let mut pickers: Vec<Picker> =
        fleets.iter().zip(1..).map(|(fleet, seed)| Picker::new(Arc::clone(fleet), seed)).collect();
    let mut random = fastrand::Rng::with_seed(7);
    let mut queues: Vec<VecDeque<UnderWay>> = Vec::new();
    queues.resize_with(servers, VecDeque::new);
    let (requests, under_way) = (vec![0; servers], vec![0.0; servers]);
    let mut run = Run { quick, latencies_micros: Vec::new(), requests, under_way };
    let gap_micros = 1.0 / (quick as f64 * (1.0 / QUICK_MICROS + 1.0 / SLOW_MICROS) * LOAD);
    let mut events = BinaryHeap::from([Reverse((0, Event::Arrival))]);
    let mut arrived = 0;
    while let Some(Reverse((now_micros, event))) = events.pop() {
        let now = Time::from_micros(now_micros);
        let (server, is_next) = match event {
            Event::Arrival => {
                arrived += 1;
                if arrived < REQUESTS {
                    let next = now_micros + exponential(&mut random, gap_micros);
                    events.push(Reverse((next, Event::Arrival)));
                }
                // The kernel does not spread connections evenly: the first worker gets more than half.
                let worker = random.usize(..2 * WORKERS).saturating_sub(WORKERS);
                let ask = PickInput { now, random: random.u64(..), key: None, tried: &[] };
                let Pick::Server(server) = pickers[worker].pick(&ask) else { panic!("no server") };
                for (sum, queue) in run.under_way.iter_mut().zip(&queues) {
                    *sum += queue.len() as f64 / REQUESTS as f64;
                }
                run.requests[server] += 1;
                queues[server].push_back((worker, now_micros, fleets[worker].begin(server)));
                (server, queues[server].len() == 1)
            }
            Event::Answer { server } => {
                let (worker, since, _) = queues[server].pop_front().expect("a request is under way");
                let outcome = RequestOutcome::Answered(Some(Duration::from_micros(now_micros - since)));
                fleets[worker].end(server, outcome, now);
                run.latencies_micros.push(now_micros - since);
                (server, !queues[server].is_empty())
            }
        };
        if is_next {
            let mean = if server < quick { QUICK_MICROS } else { SLOW_MICROS };
            events.push(Reverse((now_micros + exponential(&mut random, mean), Event::Answer { server })));
        }
    }
    run.latencies_micros.sort_unstable();
    run
}

#[test]
fn loads_are_even_over_all_workers() {
    // The least factor by which loads are less even if each worker knows only its own requests.
    for (policy, unevenness_max, gain_min) in
        [("least-connections", 1.1, 1.5), ("two-choices", 1.2, 1.4), ("response-time", 3.0, 1.1)]
    {
        let shared = run(policy, 8, Loads::Shared);
        let own = run(policy, 8, Loads::Own);
        assert!(shared.unevenness() < unevenness_max, "{policy}: {:?}", shared.under_way);
        assert!((0.04..0.125).contains(&shared.slow_share()), "{policy}: {}", shared.slow_share());
        let (p99, own_p99) = (shared.p99_millis(), own.p99_millis());
        assert!(p99 * gain_min < own_p99, "{policy}: p99 {p99} ms shared, {own_p99} ms own");
        assert!(p99 < 100.0, "{policy}: p99 {p99} ms");
    }
}

#[test]
fn turns_alone_drown_slow_servers() {
    // For comparison: the slow servers get four times the requests that they can serve.
    let turns = run("round-robin", 8, Loads::Own);
    assert!(turns.p99_millis() > 10_000.0, "p99 {} ms", turns.p99_millis());
    assert!((turns.slow_share() - 0.5).abs() < 0.001, "{}", turns.slow_share());
}

#[test]
fn a_fleet_that_is_not_looked_at_whole_is_even_too() {
    for policy in ["least-connections", "two-choices", "response-time"] {
        let shared = run(policy, 100, Loads::Shared);
        assert!((0.04..0.125).contains(&shared.slow_share()), "{policy}: {}", shared.slow_share());
        assert!(shared.p99_millis() < 100.0, "{policy}: p99 {} ms", shared.p99_millis());
    }
}
