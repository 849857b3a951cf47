//! What routes take of memory, alone in its process: a route of a host and an upstream, as a file of 100,000 has them.

/// What the proxy's threads hold.
mod counting;

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use counting::{HELD, MOST, show};

/// What a route may take: 10,000 of them are 30 MB, and twice that while a reload is under way.
const ROUTE_BYTES_MAX: isize = 3_000;
/// What it may take while the file is read, with what is read of it by then.
const READING_BYTES_MAX: isize = 4_000;
const ROUTES: usize = 2_000;

fn file(routes: usize) -> String {
    let mut text = "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n".to_owned();
    for number in 0..routes {
        let _ = write!(text, "[[route]]\nhost = \"h{number}.example\"\nupstream = \"u{}\"\n", number % 10);
    }
    for number in 0..10 {
        let _ = write!(text, "[upstream.u{number}]\nservers = [\"http://127.0.0.1:{}\"]\n", 9000 + number);
    }
    text
}

/// Bytes that are held at most while the file is read, after that, and once it is in force.
fn held(routes: usize) -> [isize; 3] {
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let config = config::parse(&file(routes), "routes.toml").expect("is a configuration");
    let reading = MOST.load(Relaxed) - before;
    let read = HELD.load(Relaxed) - before;
    let running = control::start(config).expect("it starts");
    let in_force = HELD.load(Relaxed) - before;
    running.drain();
    [reading, read, in_force]
}

#[test]
fn a_route_takes_little_memory() {
    // What is made once is made.
    held(1);
    let (few, many) = (held(ROUTES), held(2 * ROUTES));
    let [reading, read, in_force] = [0, 1, 2].map(|state| (many[state] - few[state]) / ROUTES as isize);
    show(&format!("a route: {reading} bytes while it is read, {read} bytes read, {in_force} bytes in force"));
    assert!(in_force <= ROUTE_BYTES_MAX, "{in_force} bytes");
    assert!(reading <= READING_BYTES_MAX, "{reading} bytes while the file is read");
}
