//! The adaptive concurrency limit in front of a simulated server, at loads that it can and cannot serve.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use balance::{Shed, ShedSettings, Time, Work};

/// A server that processes `at_once` requests for `micros` each; others wait, first come first served.
#[derive(Debug, Clone, Copy)]
struct Server {
    at_once: usize,
    micros: u64,
}

impl Server {
    fn capacity_per_second(self) -> f64 {
        self.at_once as f64 * 1e6 / self.micros as f64
    }
}

/// The results of one second.
#[derive(Debug, Clone, Copy, Default)]
struct Second {
    offered: u32,
    served: u32,
    latency_max_micros: u64,
}

/// Offers requests at these multiples of the capacity, a second each.
fn run(server: Server, loads: &[f64], shed: &mut Shed) -> Vec<Second> {
    let mut random = fastrand::Rng::with_seed(11);
    let mut seconds = vec![Second::default(); loads.len()];
    // When each of the server's places is free.
    let mut free: BinaryHeap<Reverse<u64>> = (0..server.at_once).map(|_| Reverse(0)).collect();
    let mut ends: BinaryHeap<Reverse<(u64, u64, bool)>> = BinaryHeap::new();
    let mut now = 0.0f64;
    loop {
        let second = (now / 1e6) as usize;
        let Some(&load) = loads.get(second) else { break };
        now += -(1.0 - random.f64()).ln() * 1e6 / (server.capacity_per_second() * load);
        let now_micros = now as u64;
        while let Some(&Reverse((end, began, is_timed))) = ends.peek()
            && end <= now_micros
        {
            ends.pop();
            let latency = Duration::from_micros(end - began);
            shed.end(Work::Done(is_timed.then_some(latency)), Time::from_micros(end));
            if let Some(second) = seconds.get_mut((end / 1_000_000) as usize) {
                second.served += 1;
                second.latency_max_micros = second.latency_max_micros.max(end - began);
            }
        }
        seconds[second].offered += 1;
        if shed.admit() {
            let Reverse(begin) = free.pop().expect("a server has places");
            // Some requests take half as long again, some half as long.
            let end = begin.max(now_micros) + server.micros / 2 + random.u64(..server.micros);
            free.push(Reverse(end));
            ends.push(Reverse((end, now_micros, shed.times())));
        }
    }
    seconds
}

const SERVERS: [Server; 5] = [
    // So many responses that not all of them are timed.
    Server { at_once: 32, micros: 4_000 },
    Server { at_once: 1, micros: 10_000 },
    Server { at_once: 1, micros: 500 },
    Server { at_once: 32, micros: 10_000 },
    Server { at_once: 200, micros: 40_000 },
];

#[test]
fn twenty_times_the_capacity_leaves_goodput_where_it_was_and_bounds_latency() {
    let settings = ShedSettings::default();
    for server in SERVERS {
        let mut shed = Shed::new(settings, Time::START);
        let loads: Vec<f64> = [0.5; 5].into_iter().chain([20.0; 30]).chain([0.5; 5]).collect();
        let seconds = run(server, &loads, &mut shed);
        let usual_micros = seconds[..5].iter().map(|second| second.latency_max_micros).max().unwrap_or(0);
        let served: f64 = seconds[5..35].iter().map(|second| f64::from(second.served)).sum();
        assert!(served / 30.0 > 0.95 * server.capacity_per_second(), "{server:?}: {served}");
        // The queue may grow to the permitted latency, or to the size of a crowd.
        let crowd_micros = (f64::from(settings.crowd) * 1e6 / server.capacity_per_second()) as u64;
        let waits_micros = crowd_micros.min(settings.crowd_latency.as_micros() as u64).max(200_000);
        // In its first moments, before any response is late, an overload looks like a crowd.
        for (number, second) in seconds.iter().enumerate().skip(5 + 12) {
            let is_overloaded = number < 35;
            let bound_micros = if is_overloaded { 2 * waits_micros } else { 2 * usual_micros.max(100_000) };
            // The rest of the overload is answered in the second after it.
            if number != 35 {
                assert!(second.latency_max_micros < bound_micros, "{server:?}, second {number}: {second:?}");
            }
        }
        assert_eq!(shed.limit(), None, "{server:?}");
    }
}

#[test]
fn servable_requests_are_never_shed() {
    for server in SERVERS {
        for load in [0.1, 0.5, 0.8] {
            let mut shed = Shed::new(ShedSettings::default(), Time::START);
            let seconds = run(server, &[load; 30], &mut shed);
            let offered: u32 = seconds.iter().map(|second| second.offered).sum();
            let served: u32 = seconds.iter().map(|second| second.served).sum();
            // Requests in progress at the end are not served yet.
            assert!(offered - served <= 200, "{server:?} at {load}: {served} of {offered}");
        }
    }
}

/// Clients that wait for each response slow down automatically, even if the process gets little CPU time and stalls now
/// and then.
#[test]
fn a_crowd_that_waits_its_turn_is_not_shed() {
    let steady = |micros: u64| move |_| micros;
    // Most responses take `micros`; now and then one takes three seconds.
    let halting =
        |micros: u64| move |answer: u64| if answer.is_multiple_of(997) { 3_000_000 } else { micros };
    // Suddenly twenty times as slow, and fast again.
    let starved = |answer: u64| if (answer / 3000).is_multiple_of(2) { 1000 } else { 20_000 };
    for clients in [64, 1000, 4000] {
        assert_eq!(refused(clients, steady(50)), 0, "{clients} clients, 20,000 answers a second");
    }
    for clients in [1, 64, 200, 400, 640, 1024] {
        for micros in [500, 2_000, 10_000, 100_000] {
            assert_eq!(refused(clients, steady(micros)), 0, "{clients} clients, {micros} us each");
            assert_eq!(refused(clients, halting(micros)), 0, "{clients} clients, {micros} us each, halting");
        }
        assert_eq!(refused(clients, starved), 0, "{clients} clients");
    }
}

/// The number of refused requests per response, from this many clients, with a server that answers one request at a
/// time.
fn refused(clients: usize, micros_of: impl Fn(u64) -> u64) -> usize {
    let mut shed = Shed::new(ShedSettings::default(), Time::START);
    let mut random = fastrand::Rng::with_seed(5);
    let mut waiting: std::collections::VecDeque<(u64, bool)> = std::collections::VecDeque::new();
    // When each client sends its next request.
    let mut coming: BinaryHeap<Reverse<u64>> = (0..clients).map(|client| Reverse(client as u64)).collect();
    let (mut now_micros, mut refused) = (0, 0);
    for answer in 1..20_000 {
        now_micros += micros_of(answer);
        while let Some(&Reverse(at_micros)) = coming.peek()
            && (at_micros <= now_micros || waiting.is_empty())
        {
            coming.pop();
            now_micros = now_micros.max(at_micros);
            match shed.admit() {
                true => waiting.push_back((at_micros, shed.times())),
                false => (refused, _) = (refused + 1, coming.push(Reverse(now_micros + 1000))),
            }
        }
        let (began_micros, is_timed) = waiting.pop_front().expect("somebody waits");
        let latency = Duration::from_micros(now_micros - began_micros);
        shed.end(Work::Done(is_timed.then_some(latency)), Time::from_micros(now_micros));
        // At once, or after a short think time.
        coming.push(Reverse(now_micros + random.u64(..2000)));
    }
    refused
}

#[test]
fn a_process_that_starts_into_an_overload_finds_its_limit() {
    for (at_once, limits) in [(2, 60..250), (8, 240..400), (32, 900..1_300), (320, 5_000..10_000)] {
        for load in [1.5, 20.0] {
            let mut shed = Shed::new(ShedSettings::default(), Time::START);
            let server = Server { at_once, micros: 10_000 };
            let seconds = run(server, &[load; 30], &mut shed);
            // 200 ms of its capacity, or the size of a crowd.
            assert!(
                shed.limit().is_some_and(|limit| limits.contains(&limit)),
                "{server:?}: {:?}",
                shed.limit()
            );
            let slow = seconds[15..].iter().find(|second| second.latency_max_micros > 1_200_000);
            assert!(slow.is_none(), "{server:?} at {load}: {slow:?}");
        }
    }
}

#[test]
fn a_server_that_gets_slower_for_good_is_a_new_measure() {
    let mut shed = Shed::new(ShedSettings::default(), Time::START);
    let mut now = Time::START;
    let mut refused = 0;
    for step in 0..2000 {
        let latency = if step < 100 { Duration::from_millis(100) } else { Duration::from_millis(250) };
        let admitted = (0..400).filter(|_| shed.admit()).count();
        refused += 400 - admitted;
        now = now + latency;
        (0..admitted).for_each(|_| shed.end(Work::Done(Some(latency)), now));
    }
    assert_eq!(
        (refused, shed.limit()),
        (0, None),
        "two and a half times as long is tolerated, and gets usual"
    );
}

/// Answers a window's requests one after the other. Returns how many of them were timed.
fn window(shed: &mut Shed, answers: u64, latency: Duration, began: &mut Time) -> u64 {
    let mut timed = 0;
    for answer in 1..=answers {
        assert!(shed.admit());
        timed += u64::from(shed.times());
        let now = *began + Duration::from_micros(100_000 * answer / answers);
        shed.end(Work::Done(shed.times().then_some(latency)), now);
    }
    *began = *began + Duration::from_micros(100_000);
    timed
}

#[test]
fn no_more_requests_are_timed_than_a_window_keeps() {
    const MILLI: Duration = Duration::from_millis(1);
    let (mut shed, mut now) = (Shed::new(ShedSettings::default(), Time::START), Time::START);
    assert_eq!(window(&mut shed, 8_000, MILLI, &mut now), 8_000, "nobody knows how many will come");
    for _ in 0..5 {
        assert_eq!(window(&mut shed, 8_000, MILLI, &mut now), 258);
    }
    // After a drop of the response rate, which may be due to an overload, each response is timed.
    assert!(window(&mut shed, 20, MILLI, &mut now) <= 1);
    assert_eq!(window(&mut shed, 20, MILLI, &mut now), 20);
}

#[test]
fn requests_that_are_not_answered_in_time_make_a_limit() {
    let mut shed = Shed::new(ShedSettings::default(), Time::START);
    for millis in 0..2000 {
        let _ = shed.admit();
        shed.end(Work::Overrun, Time::from_millis(millis));
    }
    assert_eq!(shed.limit(), Some(16));
    for millis in 2000..4000 {
        let _ = shed.admit();
        shed.end(Work::Other, Time::from_millis(millis));
    }
    assert_eq!((shed.limit(), shed.in_flight()), (Some(16), 0), "what says nothing changes nothing");
}
