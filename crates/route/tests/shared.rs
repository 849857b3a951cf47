//! A limit over several instances: the sum that they admit, compared with one limiter that gets all requests.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use route::{Alone, NoFields, Rate, RateKey, RateLimiter, RateVerdict, RequestParts, ShareStanding, Spent};

const MS: u64 = 1_000_000;
/// How often an instance reports the requests that it has admitted.
const PERIOD_MS: u64 = 10;

fn request() -> RequestParts<'static, NoFields> {
    let client = [10, 0, 0, 1].into();
    RequestParts {
        listener: 0,
        host: b"a",
        path: b"/",
        query: None,
        method: b"GET",
        client,
        fields: &NoFields,
        conditions: &route::NoConditions,
    }
}

/// An instance, and its reports that were not answered yet.
struct Instance {
    limiter: RateLimiter,
    is_called: Arc<AtomicBool>,
    under_way: Option<(u64, Vec<(Spent, u64)>)>,
}

/// Keeps the count of all instances.
#[derive(Default)]
struct Engine {
    due_ns: u64,
}

impl Engine {
    /// Returns how far ahead of time the key is then.
    fn tell(&mut self, cost_ns: u64, now_ns: u64) -> u64 {
        self.due_ns = self.due_ns.max(now_ns) + cost_ns;
        self.due_ns - now_ns
    }
}

#[derive(Debug, Clone)]
struct Case {
    requests: u32,
    burst: u32,
    /// Requests per second that each instance gets.
    loads: Vec<u64>,
    delay_ms: u64,
}

/// The number of requests that all instances admit up to the end of each second, and that a single one would admit.
fn run(case: &Case, seconds: u64) -> Vec<(u64, u64)> {
    let Case { requests, burst, loads, delay_ms } = case;
    let number = |number| NonZeroU32::new(number).unwrap();
    let rate = Rate::new(number(*requests), Duration::from_secs(1), number(*burst)).unwrap();
    let count = loads.len() as u32;
    let alone = RateLimiter::new(rate, RateKey::default(), 8, [1, 2]);
    let mut instances: Vec<Instance> = (0..count)
        .map(|_| {
            let limiter = RateLimiter::shared(rate, RateKey::default(), 8, [1, 2], (Alone::Local, count));
            limiter.stand(ShareStanding::Together(count));
            let is_called = Arc::new(AtomicBool::new(false));
            let called = Arc::clone(&is_called);
            limiter.call_with(move || called.store(true, Ordering::Relaxed));
            Instance { limiter, is_called, under_way: None }
        })
        .collect();
    let (mut engine, mut together, mut single, mut seen) = (Engine::default(), 0, 0, Vec::new());
    // The clocks of instances differ from the engine's.
    let start_ns = 1 << 40;
    for ms in 0..seconds * 1000 {
        let now_ns = start_ns + ms * MS;
        for (index, instance) in instances.iter_mut().enumerate() {
            if let Some((_, answers)) = instance.under_way.take_if(|(at, _)| *at <= ms) {
                answers.iter().for_each(|(spent, ahead)| instance.limiter.learn(*spent, *ahead, now_ns));
            }
            let is_due = (ms + index as u64 * 3).is_multiple_of(PERIOD_MS)
                || instance.is_called.load(Ordering::Relaxed);
            if instance.under_way.is_none() && is_due {
                instance.is_called.store(false, Ordering::Relaxed);
                let mut spent = Vec::new();
                instance.limiter.take_spent(&mut spent);
                let answers = spent.into_iter().map(|spent| {
                    let cost_ns = rate.interval_ns() * u64::from(spent.requests);
                    (spent, engine.tell(cost_ns, now_ns))
                });
                let answers: Vec<_> = answers.collect();
                if !answers.is_empty() {
                    instance.under_way = Some((ms + delay_ms, answers));
                }
            }
            let load = loads[index];
            for _ in 0..(ms + 1) * load / 1000 - ms * load / 1000 {
                together +=
                    u64::from(instance.limiter.admit(&request(), "", now_ns) == RateVerdict::Admitted);
                single += u64::from(alone.admit(&request(), "", now_ns) == RateVerdict::Admitted);
            }
        }
        if (ms + 1) % 1000 == 0 {
            seen.push((together, single));
        }
    }
    seen
}

/// The difference between the two in percent.
fn off((together, single): (u64, u64)) -> f64 {
    (together as f64 - single as f64).abs() / single.max(1) as f64 * 100.0
}

#[test]
fn three_instances_admit_as_many_as_one() {
    for loads in [[500, 500, 500], [2900, 80, 20], [1000, 1000, 0], [60, 20, 5], [99, 1, 0]] {
        for (requests, burst) in [(100, 100), (100, 10), (1000, 1000), (1000, 30), (20, 20)] {
            let case = Case { requests, burst, loads: loads.to_vec(), delay_ms: 1 };
            let seen = run(&case, 20);
            for second in [9, 19] {
                assert!(off(seen[second]) <= 5.0, "{case:?}: {:?} after {} s", seen[second], second + 1);
            }
        }
    }
}

#[test]
fn the_sum_of_leases_is_a_burst() {
    let case = Case { requests: 1, burst: 30, loads: vec![1_000_000; 3], delay_ms: 1000 };
    let (together, single) = run(&case, 1)[0];
    assert_eq!((together, single), (30, 30));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For any distribution of the load: after a while the total is within 5%. It never exceeds the limit by more than
    /// all instances admit before they receive each other's counts.
    ///
    /// Below the limit a single instance may admit less than several do: with a burst of one it rejects one of two
    /// simultaneous requests. So the total may be as high as the limit itself.
    #[test]
    fn the_total_is_within_five_hundredths(
        requests in 10..2000_u32,
        burst_percent in 1..200_u32,
        overload_percent in 10..1000_u64,
        shares in prop::collection::vec(1..100_u64, 2..6),
        delay_ms in 0..5_u64,
    ) {
        let burst = (requests * burst_percent / 100).max(1);
        let all: u64 = shares.iter().sum();
        let offered = u64::from(requests) * overload_percent / 100;
        let loads = shares.iter().map(|share| offered * share / all).collect();
        let case = Case { requests, burst, loads, delay_ms };
        let seen = run(&case, 20);
        let permitted = |seconds: u64| u64::from(requests) * seconds + u64::from(burst);
        let (together, single) = seen[19];
        prop_assert!(together as f64 >= single as f64 * 0.95, "{case:?}: {together} for {single}");
        let highest = single.max(permitted(20));
        prop_assert!(together as f64 <= highest as f64 * 1.05, "{case:?}: {together} for {single}, at most {highest}");
        let instances = case.loads.len() as u64;
        let unheard = u64::from(requests) * (PERIOD_MS + delay_ms + 1) * instances / 1000 + instances;
        for (second, (together, single)) in seen.iter().enumerate() {
            let highest = (*single).max(permitted(second as u64 + 1));
            prop_assert!(*together <= highest + unheard, "{case:?}: {together} for {single} after {second} s");
        }
    }
}
