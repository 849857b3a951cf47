//! Features of upstreams that are independent of the protocol, over HTTP/3: rates, faults, retries, ejection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use testkit::http3::{H3TestServer, H3TestStream};

use super::scene::{GET, Scene, is_answered};

/// RFC 9114 §8.1.
const INTERNAL_ERROR: u64 = 0x102;
const LONG: usize = 1 << 20;
/// The minimum time of the body at 2 MB/s.
const LEAST: Duration = Duration::from_millis(400);

/// Answers each request. Returns the number of requests so far.
fn serving(server: H3TestServer, answer: impl Fn(&mut H3TestStream) + Send + 'static) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        loop {
            let served = server.accept();
            while let Some(mut stream) = served.try_request() {
                counted.fetch_add(1, Relaxed);
                answer(&mut stream);
            }
        }
    });
    count
}

/// A proxy with two servers, which answer each request in these ways. Returns the statuses, and the requests of each
/// server.
fn two_servers(
    options: &str,
    answers: [fn(&mut H3TestStream); 2],
    method: &str,
    requests: usize,
) -> (Vec<u16>, [usize; 2]) {
    let servers = [(); 2].map(|()| H3TestServer::new());
    let addresses = servers.each_ref().map(H3TestServer::address);
    let options = format!("tls = {{ verify = false }}\nbalance = \"round-robin\"\n{options}");
    let scene = Scene::with_others(&addresses, Vec::new(), &options);
    let [first, second] = servers;
    let counts = [serving(first, answers[0]), serving(second, answers[1])];
    let mut client = scene.client();
    let statuses = (0..requests).map(|_| {
        client.sends(format!("{method} / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n"));
        client.message().status()
    });
    let statuses = statuses.collect();
    (statuses, counts.map(|count| count.load(Relaxed)))
}

fn works(stream: &mut H3TestStream) {
    stream.response();
    stream.answers("ok");
}

fn is_overloaded(stream: &mut H3TestStream) {
    stream.response();
    stream.sends_head(":status: 503\ncontent-length: 0\n");
    stream.ends();
}

fn fails(stream: &mut H3TestStream) {
    stream.resets(INTERNAL_ERROR);
}

#[test]
fn rates_hold_in_both_directions() {
    let scene = Scene::with("rate = \"2MB/s\"\nupload_rate = \"2MB/s\"", "");
    let body = "x".repeat(LONG);
    let mut client = scene.client();
    let began = Instant::now();
    client.sends(format!("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: {LONG}\r\n\r\n{body}"));
    let server = scene.accept();
    let mut stream = server.request();
    assert!(stream.response().1 == body.as_bytes(), "another body arrives");
    assert!(began.elapsed() >= LEAST, "up: {:?}", began.elapsed());
    let began = Instant::now();
    let answering = thread::spawn(move || {
        stream.answers(&"x".repeat(LONG));
        stream
    });
    is_answered(&mut client, 200, &body);
    assert!(began.elapsed() >= LEAST, "down: {:?}", began.elapsed());
    answering.join().expect("it runs");
}

#[test]
fn a_fault_of_a_request_leaves_its_connection_to_others() {
    let fault = |inject: &str| format!("[[fault]]\ninject = \"{inject}\"\npath = \"/broken\"\n");
    for inject in ["cut 10KB", "503"] {
        let scene = Scene::with("", &fault(inject));
        let mut others = scene.asks();
        let server = scene.accept();
        server.answers("one");
        is_answered(&mut others, 200, "one");
        let mut client = scene.client().saying("GET /broken HTTP/1.1\r\nHost: test\r\n\r\n");
        if inject == "503" {
            assert_eq!(client.message().status(), 503);
        } else {
            server.request().answers(&"x".repeat(100_000));
            let (rest, _) = client.rest();
            assert!((10_000..20_000).contains(&rest.len()), "{} bytes", rest.len());
        }
        others.sends(GET);
        server.answers("two");
        is_answered(&mut others, 200, "two");
        let counters = scene.running.counters();
        assert_eq!((counters.upstream_connects, counters.faults_injected), (1, 1), "{inject}");
    }
}

#[test]
fn a_status_is_retried_with_another_server() {
    let (statuses, [overloaded, working]) =
        two_servers("retry = { on = [\"503\"] }\neject = \"off\"", [is_overloaded, works], "GET", 10);
    assert_eq!(statuses, [200; 10]);
    assert!(overloaded > 0 && working == 10, "{overloaded} and {working}");
}

#[test]
fn a_server_that_fails_in_a_row_is_ejected() {
    let options = "eject = { failures_in_a_row = 2, base = \"5m\" }";
    // A request that may not be repeated is not retried: clients see each failure.
    let (statuses, [failing, working]) = two_servers(options, [fails, works], "POST", 20);
    assert_eq!((failing, working), (2, 18));
    assert_eq!(statuses.iter().filter(|status| **status == 502).count(), 2, "{statuses:?}");
}
