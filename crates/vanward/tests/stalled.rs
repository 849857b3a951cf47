//! Percentiles of a proxy that stalls for a second in every ten, compared with calculated ones.

use std::time::Duration;

use load::{Arrival, LoadPlan, RunOutcome};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::process::{Patience, Process, get};

/// Ten seconds at 100 a second.
const REQUESTS: u64 = 1_000;
const REQUESTS_PER_SECOND: f64 = 100.0;
const STALL: Duration = Duration::from_secs(1);
/// The stall begins after this number of responses, and ends long before the last request is due.
const BEFORE_THE_STALL: u64 = 300;

/// Stops a process for a second, counted from when the kernel has stopped all its threads.
fn stall(process: &Process) {
    let id = Pid::from_raw(process.id() as i32).expect("a process has an id");
    kill_process(id, Signal::STOP).expect("it has not been waited for");
    let stopped = waitpid(Some(id), WaitOptions::UNTRACED).expect("it is a child of ours");
    assert!(stopped.is_some_and(|(_, status)| status.stopped()), "{stopped:?}");
    std::thread::sleep(STALL);
    kill_process(id, Signal::CONT).expect("it is stopped");
}

fn answered(origin: std::net::SocketAddr) -> u64 {
    let response = get(origin, "/stats");
    let (_, body) = response.split_once("\r\n\r\n").expect("it has a head");
    let stats: serde_json::Value = serde_json::from_str(body).expect("it is JSON");
    stats["paths"]["/tiny"].as_u64().unwrap_or(0)
}

/// Calculation: 100 of the 1,000 requests are due during the stall, one every 10 ms. They wait for its end:
/// the first for 1 s, each later one for 10 ms less. So 10 wait for longer than 0.9 s, which is the 99th percentile,
/// and 50 for longer than 0.5 s, the 95th. The others do not wait. A generator that measures from sending would see
/// one slow request per connection.
#[test]
fn percentiles_under_a_stall_of_a_second_in_ten_are_those_of_arithmetic() {
    let mut origin = Process::start(&["origin", "--listen", "127.0.0.1:0", "--workers", "1"]);
    let behind = origin.address();
    let url = format!("http://{behind}");
    let mut proxy = Process::start(&["proxy", "--from", "127.0.0.1:0", "--to", &url, "--workers", "1"]);
    let plan = LoadPlan {
        connections: 4,
        arrival: Arrival::Constant { requests_per_second: REQUESTS_PER_SECOND },
        requests: Some(REQUESTS),
        duration_seconds: None,
        ..LoadPlan::new(format!("http://{}/tiny", proxy.address()))
    };
    let loading = std::thread::spawn(move || load::run(&plan).expect("it can be reached"));
    let patience = Patience::new();
    while answered(behind) < BEFORE_THE_STALL {
        patience.wait_a_little("the origin is not asked");
    }
    stall(&proxy);
    let told: RunOutcome = loading.join().expect("the generator does not panic");

    assert_eq!((told.requests, told.errors.total(), told.latency.count), (REQUESTS, 0, REQUESTS), "{told:?}");
    // The stall begins somewhere between two requests, so the error is up to 10 ms. The histogram rounds to 3 digits.
    assert!(told.latency.p99_us >= 889_000, "{:?}", told.latency);
    assert!(told.latency.p95_us >= 489_000, "{:?}", told.latency);
    assert!(told.service.p99_us < told.latency.p99_us, "{:?} and {:?}", told.service, told.latency);
    // A busy machine may add a delay, but not of seconds.
    let histogram = told.latency.histogram().expect("it decodes");
    let long = histogram.count_between(500_000, u64::MAX >> 1);
    assert!((49..=250).contains(&long), "{long} waited for half a second: {:?}", told.latency);
    assert!(told.latency.p50_us < 500_000, "{:?}", told.latency);
}
