//! Memory of routes, in a separate program. Each route has a host and an upstream, as in a file with 100,000 routes.

/// Counts the memory of the proxy's threads.
mod counting;

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;

use counting::{HELD, MOST, show};

/// Limits in bytes for a route in force, and for one with a unique header edit.
const ROUTE_BYTES_MAX: [isize; 2] = [1_200, 2_000];
/// Limits in bytes per route while the file is read.
const READING_BYTES_MAX: [isize; 2] = [2_600, 3_800];
const ROUTES: usize = 2_000;

fn file(routes: usize, has_edits: bool) -> String {
    let mut text = "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n".to_owned();
    for number in 0..routes {
        let _ = write!(text, "[[route]]\nhost = \"h{number}.example\"\nupstream = \"u{}\"\n", number % 10);
        if has_edits {
            let _ = writeln!(text, "request_headers = {{ set = {{ X-Route = \"r{number}\" }} }}");
        }
    }
    for number in 0..10 {
        let _ = write!(text, "[upstream.u{number}]\nservers = [\"http://127.0.0.1:{}\"]\n", 9000 + number);
    }
    text
}

/// Returns the bytes held: maximum while the file is read, after that, and with the routes in force.
fn held(routes: usize, has_edits: bool) -> [isize; 3] {
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let config = config::parse(&file(routes, has_edits), "routes.toml").expect("is a configuration");
    let reading = MOST.load(Relaxed) - before;
    let read = HELD.load(Relaxed) - before;
    let running = control::start(config).expect("it starts");
    // A worker's own memory is allocated once it has answered.
    let mut client = TcpStream::connect(running.addresses()[0]).expect("the proxy listens");
    client.write_all(b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the proxy reads");
    let mut answer = [0; 12];
    client.read_exact(&mut answer).expect("the proxy answers");
    assert_eq!(&answer, b"HTTP/1.1 405");
    let in_force = HELD.load(Relaxed) - before;
    drop(client);
    // What this run frees must not be counted in the next one.
    running.stop();
    running.wait();
    [reading, read, in_force]
}

#[test]
fn a_route_takes_little_memory() {
    for (index, has_edits) in [false, true].into_iter().enumerate() {
        // Excludes one-time allocations.
        held(1, has_edits);
        let (few, many) = (held(ROUTES, has_edits), held(2 * ROUTES, has_edits));
        let [reading, read, in_force] = [0, 1, 2].map(|state| (many[state] - few[state]) / ROUTES as isize);
        show(&format!(
            "a route: {reading} bytes while it is read, {read} bytes read, {in_force} bytes in force"
        ));
        assert!(in_force <= ROUTE_BYTES_MAX[index], "{in_force} bytes");
        assert!(reading <= READING_BYTES_MAX[index], "{reading} bytes while the file is read");
    }
}
