//! Connections: their number, sharing, and the requests under way when one ends.

use testkit::http3::frame::{frame, varint};
use testkit::http3::{Got, H3TestServer};

use super::scene::{GET, Scene, is_answered};

/// RFC 9114 §8.1.
const NO_ERROR: u64 = 0x100;
const INTERNAL_ERROR: u64 = 0x102;
const REQUEST_REJECTED: u64 = 0x10b;
const REQUEST_CANCELLED: u64 = 0x10c;

#[test]
fn clients_share_a_connection() {
    let scene = Scene::new();
    let mut first = scene.asks();
    let server = scene.accept();
    let mut stream = server.request();
    let mut others: Vec<_> = (0..20)
        .map(|_| {
            let client = scene.asks();
            (client, server.request())
        })
        .collect();
    // In any order of the responses.
    for (client, stream) in others.iter_mut().rev() {
        stream.answers("other");
        is_answered(client, 200, "other");
    }
    stream.answers("first");
    is_answered(&mut first, 200, "first");
    let counters = scene.running.counters();
    assert_eq!((counters.upstream_connects, counters.upstream_reuses), (1, 20));
}

#[test]
fn requests_wait_for_streams_that_the_server_permits() {
    let server = H3TestServer::with(|transport| {
        transport.max_concurrent_bidi_streams(2_u32.into());
    });
    let options = "tls = { verify = false }\npool = { connections = 1 }";
    let scene = Scene::of(vec![server], options, "");
    let mut clients: Vec<_> = (0..2).map(|_| scene.asks()).collect();
    let server = scene.accept();
    let mut streams: Vec<_> = (0..2).map(|_| server.request()).collect();
    streams.iter_mut().for_each(|stream| _ = stream.response());
    // No further connection is permitted, so requests are rejected.
    let mut refused = scene.asks();
    assert_eq!(refused.message().status(), 503);
    streams[0].answers("done");
    is_answered(&mut clients[0], 200, "done");
    // The server permits another connection once it has forgotten the old one.
    let answering = std::thread::spawn(move || {
        server.answers("next");
        server
    });
    let got = std::iter::repeat_with(|| scene.asks().message()).find(|message| message.status() != 503);
    assert_eq!(got.map(|message| message.body), Some(b"next".to_vec()));
    drop(answering.join().expect("it runs"));
    assert_eq!(scene.running.counters().upstream_connects, 1);
}

#[test]
fn where_streams_run_out_there_is_another_connection() {
    let server = H3TestServer::with(|transport| {
        transport.max_concurrent_bidi_streams(2_u32.into());
    });
    let scene = Scene::of(vec![server], "tls = { verify = false }", "");
    let mut clients = vec![scene.asks()];
    let server = scene.accept();
    let mut streams = vec![server.request()];
    clients.push(scene.asks());
    streams.push(server.request());
    clients.push(scene.asks());
    let other = scene.accept();
    streams.push(other.request());
    for (client, stream) in clients.iter_mut().zip(&mut streams) {
        stream.answers("a");
        is_answered(client, 200, "a");
    }
    assert_eq!(scene.running.counters().upstream_connects, 2);
}

#[test]
fn a_rejected_request_is_sent_once_more() {
    // RFC 9114 §4.1.1: the server has not processed it, so even a POST may be retried.
    let scene = Scene::new();
    let mut client = scene.client();
    client.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc");
    let server = scene.accept();
    let mut stream = server.request();
    stream.response();
    stream.resets(REQUEST_REJECTED);
    let mut again = server.request();
    assert_eq!(again.response().1, b"abc");
    again.answers("ok");
    is_answered(&mut client, 200, "ok");
    assert_eq!(scene.running.counters().upstream_connects, 1);
}

#[test]
fn what_a_goaway_leaves_out_is_sent_over_another_connection() {
    let scene = Scene::new();
    let mut first = scene.asks();
    let mut server = scene.accept();
    let mut stream = server.request();
    let mut second = scene.client();
    second.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc");
    let mut unseen = server.request();
    unseen.response();
    // RFC 9114 §5.2: the second request is not answered.
    server.control(&frame(7, &varint(4)));
    let next = scene.accept();
    let mut again = next.request();
    assert_eq!(again.response().1, b"abc");
    again.answers("second");
    is_answered(&mut second, 200, "second");
    // RFC 9114 §4.1.1: a client does not use H3_REQUEST_REJECTED.
    assert_eq!(unseen.stopped(), Some(REQUEST_CANCELLED));
    stream.answers("first");
    is_answered(&mut first, 200, "first");
    // The old connection ends with its last request.
    assert_eq!(server.closed(), (NO_ERROR, String::new()));
    let mut third = scene.asks();
    next.answers("third");
    is_answered(&mut third, 200, "third");
}

#[test]
fn a_client_that_leaves_cancels_its_request() {
    let scene = Scene::new();
    let client = scene.client3();
    let mut asking = client.asks("GET", "/", "");
    let server = scene.accept();
    let mut stream = server.request();
    stream.response();
    asking.stops(REQUEST_CANCELLED);
    assert_eq!(stream.stopped(), Some(REQUEST_CANCELLED));
    // Also during an upload.
    let mut asking = client.open();
    asking.sends_head(&testkit::http3::frame::request("POST", "/", ""));
    asking.sends_data(b"a");
    let mut stream = server.request();
    assert!(matches!(stream.gets(), Got::Headers(_)));
    assert_eq!(stream.gets(), Got::Data(b"a".to_vec()));
    asking.resets(REQUEST_CANCELLED);
    assert_eq!(stream.gets(), Got::Reset(REQUEST_CANCELLED));
    // The connection serves other requests.
    let mut other = scene.asks();
    server.answers("ok");
    is_answered(&mut other, 200, "ok");
}

#[test]
fn a_server_that_needs_no_more_of_a_request_may_say_so() {
    // RFC 9114 §4.1.
    let scene = Scene::new();
    let client = scene.client3();
    let mut asking = client.open();
    asking.sends_head(&testkit::http3::frame::request("POST", "/", ""));
    let server = scene.accept();
    let mut stream = server.request();
    stream.head();
    stream.answers("enough");
    stream.stops(NO_ERROR);
    let (head, body, _) = asking.response();
    assert!(head.starts_with(":status: 200"), "{head}");
    assert_eq!(body, b"enough");
}

#[test]
fn a_reset_before_the_response_is_a_failure_of_that_request() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc");
    let server = scene.accept();
    let mut stream = server.request();
    stream.response();
    stream.resets(INTERNAL_ERROR);
    assert_eq!(client.message().status(), 502);
    scene.assert_failure("upstream-reset");
    // The error only affects one stream.
    let mut other = scene.asks();
    server.answers("ok");
    is_answered(&mut other, 200, "ok");
}

#[test]
fn a_response_that_is_cut_off_never_looks_whole() {
    let scene = Scene::new();
    let mut client = scene.asks();
    let server = scene.accept();
    let mut stream = server.request();
    stream.response();
    stream.sends_head(":status: 200\n");
    stream.sends_data(b"part");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    client.gets(b"4\r\npart\r\n");
    stream.resets(INTERNAL_ERROR);
    let (rest, _) = client.rest();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
}

#[test]
fn a_connection_that_is_closed_is_replaced_and_its_request_retried() {
    let scene = Scene::new();
    let mut client = scene.asks();
    let server = scene.accept();
    server.answers("one");
    is_answered(&mut client, 200, "one");
    // The next request reaches a server that is leaving.
    client.sends(GET);
    let _under_way = server.request();
    server.closes(NO_ERROR as u32);
    let server = scene.accept();
    server.answers("two");
    is_answered(&mut client, 200, "two");
    assert_eq!(scene.running.counters().upstream_connects, 2);
}

#[test]
fn an_idle_connection_ends_and_says_so() {
    let scene = Scene::with("pool = { idle_timeout = \"1s\" }", "");
    let mut client = scene.asks();
    let server = scene.accept();
    server.answers("ok");
    is_answered(&mut client, 200, "ok");
    assert_eq!(server.closed(), (NO_ERROR, String::new()));
}

#[test]
fn a_reload_keeps_connections_and_an_end_tells_of_itself() {
    let scene = Scene::new();
    let mut client = scene.asks();
    let server = scene.accept();
    let mut stream = server.request();
    scene.reload("tls = { verify = false }\nqueue = { length = 5 }", "");
    stream.answers("ok");
    is_answered(&mut client, 200, "ok");
    client.sends(GET);
    server.answers("same");
    is_answered(&mut client, 200, "same");
    assert_eq!(scene.running.counters().upstream_connects, 1);
    drop(client);
    drop(scene.running);
    assert_eq!(server.closed(), (NO_ERROR, String::new()));
}

#[test]
fn a_server_that_is_gone_is_known_from_the_kernel() {
    let (scene, relay) = Scene::behind_a_relay("", "");
    let mut client = scene.asks();
    let server = scene.accept();
    server.answers("ok");
    is_answered(&mut client, 200, "ok");
    drop(relay);
    // No program listens there: this request fails, and later ones do not wait as long.
    client.sends(GET);
    assert_eq!(client.message().status(), 502);
    let mut other = scene.asks();
    assert_eq!(other.message().status(), 502);
    scene.assert_failure("upstream-refused");
}

#[test]
fn a_server_that_falls_silent_is_left_for_another_connection() {
    let (scene, relay) = Scene::behind_a_relay("", "");
    let mut client = scene.asks();
    let server = scene.accept();
    server.answers("ok");
    is_answered(&mut client, 200, "ok");
    // Another server listens there now, which does not know the connection.
    let other = H3TestServer::new();
    relay.switches_to(other.address());
    let mut lost = Vec::new();
    let (served, mut client) = loop {
        let asking = scene.asks();
        match other.accept_soon() {
            Some(served) => break (served, asking),
            None => lost.push(asking),
        }
    };
    served.answers("new");
    is_answered(&mut client, 200, "new");
    assert!(!lost.is_empty(), "the first request goes over the old connection");
}
