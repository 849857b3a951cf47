//! The end of connections: idle, with the proxy, and after a number of requests.

use std::time::{Duration, Instant};

use config::Protocol;
use testkit::http2::H2Ended;
use testkit::http2::frame::{H2Frame, NO_ERROR, last_headers};
use testkit::scene::valid;

use super::scene::Scene;

const GET: &str = ":method: GET\n:scheme: http\n:authority: test\n:path: /\n";
const OK: &str = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\n\r\nok";
const OK_GOT: &str = ":status: 200\ndate: D\ncontent-length: 2\nvia: vanward\n---\nok\n---\n";

#[test]
fn a_drain_lets_streams_finish_and_says_which() {
    // RFC 9113 §6.8.
    let scene = Scene::to_http1();
    let mut idle = scene.client();
    idle.is_heard();
    let mut client = scene.client().saying(last_headers(1, GET));
    let mut server = scene.accept1().after_head();
    scene.running.drain();
    assert_eq!(idle.ends(), H2Ended::Told(NO_ERROR));
    let told = client.find(|frame| matches!(frame, H2Frame::GoAway { .. }));
    assert!(matches!(told, H2Frame::GoAway { code: NO_ERROR, .. }), "{told:?}");
    // Requests sent before the client got the first GOAWAY are accepted; those after the last GOAWAY are not.
    let told = client.find(|frame| matches!(frame, H2Frame::GoAway { .. }));
    assert_eq!(told, H2Frame::GoAway { last: 1, code: NO_ERROR });
    server.sends(OK);
    assert_eq!(client.whole(1), OK_GOT);
    assert_eq!(client.ends(), H2Ended::Untold);
    scene.running.wait();
}

#[test]
fn an_idle_connection_is_closed_after_a_while() {
    let scene = Scene::with(Protocol::Http1, 1, |config| {
        config.timeouts.keep_alive = Duration::from_secs(1);
    });
    let mut unused = scene.client();
    assert_eq!(unused.ends(), H2Ended::Told(NO_ERROR));
    let mut client = scene.client().saying(last_headers(1, GET));
    let mut server = scene.accept1().after_head();
    // A connection is not idle while its server works.
    let mut other = scene.client();
    assert_eq!(other.ends(), H2Ended::Told(NO_ERROR));
    server.sends(OK);
    assert_eq!(client.whole(1), OK_GOT);
    assert_eq!(client.ends(), H2Ended::Told(NO_ERROR));
}

#[test]
fn idle_time_begins_with_the_end_of_the_last_request() {
    let keep_alive = Duration::from_secs(1);
    let scene = Scene::with(Protocol::Http1, 1, |config| config.timeouts.keep_alive = keep_alive);
    let mut client = scene.client().saying(last_headers(1, GET));
    let mut server = scene.accept1().after_head();
    std::thread::sleep(keep_alive * 7 / 10);
    server.sends(OK);
    assert_eq!(client.whole(1), OK_GOT);
    let idle_since = Instant::now();
    assert_eq!(client.ends(), H2Ended::Told(NO_ERROR));
    let idle = idle_since.elapsed();
    assert!(idle >= keep_alive * 9 / 10, "it was closed after {idle:?}");
}

#[test]
fn a_connection_serves_so_many_requests() {
    let scene = Scene::with(Protocol::Http1, 1, |config| config.limits.requests_per_connection = Some(2));
    let mut client = scene.client().saying(last_headers(1, GET));
    let mut server = scene.accept1().after_head();
    server.sends(OK);
    assert_eq!(client.whole(1), OK_GOT);
    client.is_heard();
    client.sends(last_headers(3, GET));
    server.head();
    server.sends(OK);
    assert_eq!(client.whole(3), OK_GOT);
    assert_eq!(client.ends(), H2Ended::Told(NO_ERROR));
}

#[test]
fn a_client_that_says_nothing_after_its_preface_is_let_go() {
    let scene = Scene::with(Protocol::Http1, 1, |config| {
        config.timeouts.keep_alive = Duration::from_millis(200);
        config.timeouts.client_header = Duration::from_millis(200);
    });
    use std::io::Write;
    let mut stream = scene.connect();
    stream.write_all(&testkit::http2::PREFACE[..20]).expect("is connected");
    let mut end = testkit::http1::Http1Peer::new("client", stream);
    let (rest, _) = end.rest();
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408 "), "{rest:?}");
}

#[test]
fn a_listener_that_a_reload_removes_lets_its_streams_finish() {
    let mut kept = None;
    let scene = Scene::with(Protocol::Http1, 1, |config| {
        kept = Some(config.clone());
    });
    let (mut idle, mut client) = (scene.client(), scene.client());
    idle.is_heard();
    client.sends(last_headers(1, GET));
    let mut server = scene.accept1().after_head();
    let mut config = kept.expect("it is made once");
    config.listeners[0] = config::Listener::plain(([127, 0, 0, 2], 0).into());
    scene.running.reload(valid(config)).expect("it is valid");
    assert_eq!(idle.ends(), H2Ended::Told(NO_ERROR));
    client.find(|frame| matches!(frame, H2Frame::GoAway { .. }));
    server.sends(OK);
    assert_eq!(client.whole(1), OK_GOT);
}

#[test]
fn a_client_that_does_not_hear_of_the_end_is_told_which_request_is_the_last() {
    // RFC 9113 §6.8: a ping's answer would confirm it, but is not required.
    let scene = Scene::with(Protocol::Http1, 1, |config| {
        config.limits.requests_per_connection = Some(1);
        config.timeouts.client_header = Duration::from_millis(500);
    });
    let mut client = scene.client();
    client.answers_pings = false;
    let mut servers = Vec::new();
    let goes_away = |frame: &H2Frame| matches!(frame, H2Frame::GoAway { .. });
    for stream in [1, 3] {
        client.sends(last_headers(stream, GET));
        let server = scene.accept1().after_head();
        servers.push(server);
        if stream == 1 {
            client.find(goes_away);
        }
    }
    assert_eq!(client.find(goes_away), H2Frame::GoAway { last: 3, code: NO_ERROR });
    client.sends(last_headers(5, GET));
    client.is_heard();
    servers.iter_mut().for_each(|server| server.sends(OK));
    assert_eq!([client.whole(1), client.whole(3)], [OK_GOT; 2]);
    assert_eq!(client.ends(), H2Ended::Untold);
    scene.assert_no_more_connections();
}
