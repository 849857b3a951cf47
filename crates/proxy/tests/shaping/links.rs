//! Emulated links with latency: each piece is late, and all pieces arrive.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::scene::{Options, ask, client, echo, in_pieces, origin, read_head, read_response};

const MS: Duration = Duration::from_millis(1);

/// Returns the time from a request to its response on this connection.
fn time_of_request(client: &mut TcpStream) -> Duration {
    let began = Instant::now();
    ask(client);
    read_response(client);
    began.elapsed()
}

#[test]
fn each_way_of_a_connection_is_late() {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(trace.path(), "10ms\n30ms\n").expect("is written");
    let of_trace = format!("latency = \"40ms trace {}\"", trace.path().display());
    for (options, least) in [
        (Options { listen: "latency = \"60ms\"", ..Options::default() }, 120 * MS),
        (Options { upstream: "latency = \"60ms\"", ..Options::default() }, 120 * MS),
        (Options { listen: "latency = \"60ms±10ms\"", ..Options::default() }, 100 * MS),
        (Options { listen: "latency = \"60ms±10ms pareto\"", ..Options::default() }, 120 * MS),
        (Options { listen: &of_trace, ..Options::default() }, 100 * MS),
        (Options { listen: "loss = \"100% 80ms\"", ..Options::default() }, 160 * MS),
        (Options { listen: "profile = \"slow-3g\"", ..Options::default() }, 320 * MS),
        (Options { route: "delay = \"50ms\"\nresponse_delay = \"70ms\"", ..Options::default() }, 120 * MS),
        (
            Options {
                listen: "latency = \"30ms\"",
                upstream: "latency = \"30ms\"\nconnect_delay = \"0ms\"",
                ..Options::default()
            },
            120 * MS,
        ),
    ] {
        let proxy = options.start(origin(100));
        let mut client = client(&proxy);
        for request in 0..3 {
            let took = time_of_request(&mut client);
            assert!(took >= least, "request {request} of {options:?}: {took:?}");
        }
    }
}

#[test]
fn connections_are_late_as_well() {
    for options in [
        Options { listen: "connect_delay = \"150ms\"", ..Options::default() },
        Options { upstream: "connect_delay = \"150ms\"", ..Options::default() },
    ] {
        let proxy = options.start(origin(100));
        let mut client = client(&proxy);
        let first = time_of_request(&mut client);
        assert!(first >= 150 * MS, "{options:?}: {first:?}");
    }
}

#[test]
fn long_bodies_arrive_whole_both_ways() {
    const BODY_BYTES: usize = 3_000_000;
    for options in [
        Options { listen: "latency = \"20ms±15ms\"", ..Options::default() },
        Options { upstream: "latency = \"20ms±15ms normal\"", ..Options::default() },
        Options { route: "response_delay = \"20ms\"", ..Options::default() },
    ] {
        let proxy = options.start(origin(BODY_BYTES));
        let mut client = client(&proxy);
        for _ in 0..2 {
            let head = format!("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
            client.write_all(head.as_bytes()).expect("the proxy takes it");
            client.write_all(&vec![b'y'; BODY_BYTES]).expect("the proxy takes it");
            let length = read_head(&mut client).expect("a head");
            let mut body = vec![0; length];
            client.read_exact(&mut body).expect("a body");
            assert!(length == BODY_BYTES && body.iter().all(|byte| *byte == b'x'), "{options:?}");
        }
    }
}

#[test]
fn what_is_on_its_way_arrives_before_the_end() {
    let options = Options { listen: "latency = \"100ms\"", ..Options::default() };
    let proxy = options.start(origin(50_000));
    let mut client = client(&proxy);
    client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").expect("is taken");
    assert_eq!(read_response(&mut client), 50_000);
    assert_eq!(client.read(&mut [0]).expect("an end"), 0);
}

#[test]
fn a_drain_waits_for_what_is_on_its_way() {
    let (origin, pieces) = in_pieces(50_000);
    let proxy = Options { listen: "latency = \"300ms\"", ..Options::default() }.start(origin);
    let mut client = client(&proxy);
    ask(&mut client);
    let length = read_head(&mut client).expect("a head");
    proxy.drain();
    pieces.send(length).expect("a server");
    client.read_exact(&mut vec![0; length]).expect("the rest");
    assert_eq!(client.read(&mut [0]).expect("an end"), 0);
}

#[test]
fn what_is_passed_on_is_late() {
    let config = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\ntcp = \"app\"\nlatency = \"50ms\"\n\
         [upstream.app]\nservers = [\"tcp://{}\"]\n",
        echo()
    );
    let config = config::parse(&config, "test").expect("is right");
    let proxy = control::start(config).expect("it starts");
    let mut client = client(&proxy);
    let began = Instant::now();
    client.write_all(b"there and back").expect("is taken");
    client.shutdown(Shutdown::Write).expect("ends");
    let mut back = String::new();
    client.read_to_string(&mut back).expect("comes back");
    assert_eq!(back, "there and back");
    assert!(began.elapsed() >= 100 * MS, "{:?}", began.elapsed());
}

#[test]
fn a_connection_that_is_there_already_meets_a_change() {
    let origin = origin(100);
    let none = Options::default();
    let late = Options { listen: "latency = \"80ms\"", ..Options::default() };
    let later = Options { listen: "latency = \"160ms\"", ..Options::default() };
    let proxy = none.start(origin);
    let mut client = client(&proxy);
    time_of_request(&mut client);
    for (options, least) in [(late, 160 * MS), (later, 320 * MS), (none, Duration::ZERO), (late, 160 * MS)] {
        proxy.reload(options.config(origin)).expect("another link");
        let took = time_of_request(&mut client);
        assert!(took >= least, "{options:?}: {took:?}");
    }
}
