//! A server of four becomes fifty times slower. Five seconds later, requests are as fast as without it. A simulation
//! with fixed seeds, no clock, and default settings unless stated.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use balance::{
    Changes, EjectionSettings, Ejector, Fleet, FleetMember, FleetSettings, InFlight, Pick, PickInput, Picker,
    RequestOutcome, ServerHealth, ServerId, Time,
};

const SERVERS: u64 = 4;
/// Requests that a server processes at a time, with exponentially distributed times.
const AT_ONCE: usize = 8;
const TIMES_SLOWER: u64 = 50;
/// Mean response times in microseconds, and requests per second. In the first two fleets the slow server still manages
/// its share; in the last two it gets three times its capacity.
const FLEETS: [(f64, f64); 4] = [(100.0, 1_000.0), (500.0, 1_000.0), (2_000.0, 1_000.0), (20_000.0, 100.0)];
const SECOND_MICROS: u64 = 1_000_000;

/// A simulation of this length. The first server is slow from `slow_from_micros` on; the latencies count from then on.
#[derive(Clone, Copy)]
struct Run {
    usual_micros: f64,
    requests_per_second: f64,
    length_micros: u64,
    slow_from_micros: u64,
    judged_from_micros: u64,
}

impl Run {
    fn p99_micros(&self, policy: &str) -> u64 {
        let fleet = fleet(policy);
        let mut picker = Picker::new(Arc::clone(&fleet), 1);
        let mut random = fastrand::Rng::with_seed(3);
        let mut exponential = |mean: f64| -> u64 { (-(1.0 - random.f64()).ln() * mean).max(1.0) as u64 };
        let mut ejector = Ejector::default();
        // When each place of each server is free, and the requests in progress by their end.
        let place = || (0..AT_ONCE).map(|_| Reverse(0)).collect::<BinaryHeap<_>>();
        let mut free: Vec<BinaryHeap<Reverse<u64>>> = (0..SERVERS).map(|_| place()).collect();
        let mut under_way: BinaryHeap<Reverse<(u64, u64, usize)>> = BinaryHeap::new();
        let mut held: Vec<Vec<InFlight>> = (0..SERVERS).map(|_| Vec::new()).collect();
        let mut latencies_micros = Vec::new();
        let (mut now_micros, mut number) = (0, 0);
        while now_micros < self.length_micros {
            now_micros += exponential(1e6 / self.requests_per_second);
            while let Some(&Reverse((end, began, server))) = under_way.peek()
                && end <= now_micros
            {
                under_way.pop();
                held[server].pop();
                let outcome = RequestOutcome::Answered(Some(Duration::from_micros(end - began)));
                fleet.end(server, outcome, Time::from_micros(end));
            }
            let now = Time::from_micros(now_micros);
            if now >= ejector.due(&fleet) {
                ejector.judge(&fleet, now);
            }
            number += 1;
            let random = u64::wrapping_mul(number, 0x9e37_79b9_7f4a_7c15);
            let ask = PickInput { now, random, key: Some(random), tried: &[] };
            let Pick::Server(server) = picker.pick(&ask) else { panic!("no server") };
            held[server].push(fleet.begin(server).expect("there is no limit"));
            let is_slow = server == 0 && now_micros >= self.slow_from_micros;
            let takes = exponential(self.usual_micros) * if is_slow { TIMES_SLOWER } else { 1 };
            let Reverse(begin) = free[server].pop().expect("a server has places");
            let end = begin.max(now_micros) + takes;
            free[server].push(Reverse(end));
            under_way.push(Reverse((end, now_micros, server)));
            if now_micros >= self.judged_from_micros {
                latencies_micros.push(end - now_micros);
            }
        }
        latencies_micros.sort_unstable();
        latencies_micros[latencies_micros.len() * 99 / 100]
    }
}

fn fleet(policy: &str) -> Arc<Fleet> {
    let changes: Arc<Changes> = Arc::default();
    let member = |id| FleetMember::new(ServerId::from_u64(id), 1, &ServerHealth::new(&changes));
    let settings = FleetSettings {
        ejection: Some(EjectionSettings::default()),
        slow_start: Duration::from_secs(10),
        ..FleetSettings::default()
    };
    let policy = balance::policy(policy).expect("a policy");
    Arc::new(Fleet::new(policy, (0..SERVERS).map(member).collect(), settings))
}

#[test]
fn after_five_seconds_requests_fare_as_without_it() {
    for policy in [
        "round-robin",
        "least-connections",
        "two-choices",
        "response-time",
        "client-address",
        "consistent-hash",
    ] {
        for (usual_micros, requests_per_second) in FLEETS {
            let slow_from_micros = 10 * SECOND_MICROS;
            // So long that the server is tried again once, and is still slow.
            let slowed = Run {
                usual_micros,
                requests_per_second,
                length_micros: 55 * SECOND_MICROS,
                slow_from_micros,
                judged_from_micros: slow_from_micros + 5 * SECOND_MICROS,
            };
            let usual = Run { slow_from_micros: u64::MAX, ..slowed }.p99_micros(policy);
            let after = slowed.p99_micros(policy);
            assert!(after < 2 * usual, "{policy}, {usual_micros} us: p99 {after} us, {usual} us without");
            // The counterpart: before the slow server is noticed, requests are slow.
            if policy == "round-robin" {
                let length_micros = slow_from_micros + SECOND_MICROS;
                let at_first = Run { length_micros, judged_from_micros: slow_from_micros, ..slowed };
                let at_first = at_first.p99_micros(policy);
                assert!(at_first > 10 * usual, "{policy}: p99 {at_first} us at first, {usual} us without");
            }
        }
    }
}
