//! The time that the proxy held requests, and the timing of streams. Time in which the proxy waited for a server or a
//! client does not count; other waits do. Each test only asserts a lower or an upper bound.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use testkit::scene::{BOTH, BodylessRequest, Scene, Spoken, get};
use testkit::wait::assert_soon;

use super::scene::{exchange, series};

/// The length of a wait: far longer than anything else.
const WAIT: Duration = Duration::from_millis(400);

const ROUTES: &str = "metrics = \"127.0.0.1:0\"\n\
    [[route]]\nname = \"plain\"\nupstream = \"app\"\n\
    [[route]]\nname = \"delayed\"\npath = \"/delayed\"\nupstream = \"app\"\ndelay = \"400ms\"\n\
    [upstream.app]\nservers = [\"http://{0}\"]\n";

/// Returns the values of these series, once the first `written` of them are above zero. The proxy writes them one after
/// another, and a page can be read in between.
fn told(scene: &Scene, names: [&str; 3], written: usize) -> [f64; 3] {
    let address = scene.running().metrics_address().expect("metrics are on");
    let mut found = [0.0; 3];
    assert_soon("it is counted", || {
        let page = exchange(address, "GET /metrics HTTP/1.0\r\nHost: test\r\n\r\n");
        let series = series(page.split_once("\r\n\r\n").expect("a head has an end").1);
        found = names.map(|name| series.get(name).copied().unwrap_or(0.0));
        found[..written].iter().all(|value| *value > 0.0)
    });
    found
}

/// Returns number, duration and held time of a route's requests.
fn held(scene: &Scene, route: &str) -> [f64; 3] {
    let name = |family: &str| format!("vanward_request_{family}{{route=\"{route}\"}}");
    let names = ["duration_seconds_count", "duration_seconds_sum", "held_seconds_sum"].map(name);
    told(scene, [&names[0], &names[1], &names[2]], 3)
}

#[test]
fn a_server_that_is_slow_is_not_the_proxys_time() {
    for spoken in BOTH {
        let scene = Scene::new(ROUTES);
        let mut client = scene.client(spoken).asking(&get("/"));
        let mut server = scene.accept(0).after_head();
        std::thread::sleep(WAIT);
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab");
        std::thread::sleep(WAIT);
        server.sends("cd");
        assert_eq!(client.gets().body, "abcd");
        let [count, duration, held] = held(&scene, "plain");
        assert_eq!(count, 1.0);
        assert!(held > 0.0 && duration - held > 1.5 * WAIT.as_secs_f64(), "{held} of {duration} s");
    }
}

#[test]
fn a_client_that_is_slow_is_not_the_proxys_time() {
    let scene = Scene::new(ROUTES);
    let mut client = TcpStream::connect(scene.running().addresses()[0]).expect("it listens");
    client.write_all(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nab").expect("it reads");
    let mut server = scene.accept(0).after_head();
    std::thread::sleep(WAIT);
    client.write_all(b"cd").expect("it reads");
    assert_eq!(server.exactly(4), b"abcd");
    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let [count, duration, held] = held(&scene, "plain");
    assert_eq!(count, 1.0);
    assert!(held > 0.0 && duration - held > WAIT.as_secs_f64() / 2.0, "{held} of {duration} s");
}

#[test]
fn a_delay_is_the_proxys_time() {
    for spoken in BOTH {
        let scene = Scene::new(ROUTES);
        let mut client = scene.client(spoken).asking(&get("/delayed"));
        let mut server = scene.accept(0).after_head();
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        client.gets();
        let [_, duration, held] = held(&scene, "delayed");
        assert!(held >= WAIT.as_secs_f64() && held <= duration, "{held} of {duration} s");
    }
}

#[test]
fn the_first_byte_and_the_longest_gap_of_a_stream_are_told() {
    for (content_type, kind) in [
        ("text/event-stream", "events"),
        ("Text/Event-Stream; charset=utf-8", "events"),
        ("application/grpc+proto", "grpc"),
    ] {
        let scene = Scene::new(ROUTES);
        let mut client = scene.client(Spoken::Http1).asking(&get("/"));
        let mut server = scene.accept(0).after_head();
        server.sends(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
        ));
        std::thread::sleep(WAIT);
        server.sends("2\r\nab\r\n");
        let name = |family: &str| format!("vanward_stream_{family}{{route=\"plain\",kind=\"{kind}\"}}");
        let first =
            ["first_byte_seconds_count", "first_byte_seconds_sum", "longest_gap_seconds_count"].map(name);
        // The time of the first byte is reported before the end.
        let [count, first_byte, gaps] = told(&scene, [&first[0], &first[1], &first[2]], 2);
        assert!(count == 1.0 && gaps == 0.0 && first_byte >= WAIT.as_secs_f64() / 2.0, "{first_byte} s");
        std::thread::sleep(WAIT);
        server.sends("2\r\ncd\r\n0\r\n\r\n");
        assert_eq!(client.gets().body, "abcd");
        let gap =
            ["longest_gap_seconds_count", "longest_gap_seconds_sum", "first_byte_seconds_count"].map(name);
        let [count, longest, streams] = told(&scene, [&gap[0], &gap[1], &gap[2]], 3);
        assert!(count == 1.0 && streams == 1.0 && longest > WAIT.as_secs_f64() / 2.0, "{longest} s");
    }
}

#[test]
fn what_a_server_sends_over_a_websocket_is_a_stream() {
    let scene = Scene::new(ROUTES);
    let mut client = scene.client(Spoken::Http1);
    client.asks(&BodylessRequest { fields: "connection: upgrade\nupgrade: websocket\n", ..get("/") });
    let mut server = scene.accept(0).after_head();
    server.sends("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    std::thread::sleep(WAIT);
    server.sends("ab");
    let name = |family: &str| format!("vanward_stream_{family}{{route=\"plain\",kind=\"websocket\"}}");
    let names =
        ["first_byte_seconds_count", "longest_gap_seconds_count", "longest_gap_seconds_sum"].map(name);
    let [first, ended, _] = told(&scene, [&names[0], &names[1], &names[2]], 1);
    assert!(first == 1.0 && ended == 0.0, "the first byte is told before the end");
    std::thread::sleep(WAIT);
    server.sends("cd");
    drop((server, client));
    let [ended, longest, _] = told(&scene, [&names[1], &names[2], &names[0]], 3);
    assert!(ended == 1.0 && longest > WAIT.as_secs_f64() / 2.0, "{longest} s");
}

#[test]
fn other_responses_are_no_streams() {
    let scene = Scene::new(ROUTES);
    let mut client = scene.client(Spoken::Http1).asking(&get("/"));
    let mut server = scene.accept(0).after_head();
    server.sends(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    );
    client.gets();
    held(&scene, "plain");
    let address = scene.running().metrics_address().expect("metrics are on");
    let page = exchange(address, "GET /metrics HTTP/1.0\r\nHost: test\r\n\r\n");
    assert!(!page.contains("vanward_stream_first_byte_seconds_count"), "{page}");
}
