//! Hostile clients: each is detected, counted and disconnected, without an effect on others.

use std::time::Duration;

use config::Protocol;
use testkit::http2::frame::{
    CANCEL, ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR, H2Frame, INITIAL_WINDOW_SIZE, PROTOCOL_ERROR,
    REFUSED_STREAM, block, data, headers, last_data, last_headers, ping, raw, reset, settings, window_update,
};
use testkit::http2::{H2End, H2Ended};

use super::scene::{Scene, fills};

const GET: &str = ":method: GET\n:scheme: http\n:authority: test\n:path: /\n";
const TRACE: &str = ":method: TRACE\n:scheme: http\n:authority: test\n:path: /\n";

/// Asserts that an attack ends its connection, is counted, and affects no other.
fn is_cut_off(name: &str, word: &str, attack: impl FnOnce(&mut H2End)) {
    let scene = Scene::to_http1();
    let mut friend = scene.client();
    friend.is_heard();
    let mut client = scene.client();
    client.is_heard();
    attack(&mut client);
    assert_eq!(client.ends(), H2Ended::Told(ENHANCE_YOUR_CALM), "{name}");
    scene.assert_failure(word, 1);
    friend.sends(last_headers(1, TRACE));
    assert!(friend.whole(1).starts_with(":status: 405\n"), "{name}");
}

/// Sends frames repeatedly, as long as that is possible.
fn floods(client: &mut H2End, times: u32, frames: impl Fn(u32) -> Vec<u8>) {
    for at in 0..times {
        if !client.can_send(&frames(at)) {
            return;
        }
    }
}

#[test]
fn floods_of_frames_that_cost_nothing_are_cut_off() {
    is_cut_off("SETTINGS", "http2-settings-flood", |client| {
        floods(client, 1000, |_| settings(&[(INITIAL_WINDOW_SIZE, 1)]));
    });
    is_cut_off("PING", "http2-ping-flood", |client| floods(client, 1000, |_| ping([0; 8])));
    is_cut_off("PRIORITY", "http2-priority-flood", |client| {
        floods(client, 5000, |at| raw(2, 0, 1 + 2 * at, &[0, 0, 0, 0, 1]));
    });
    is_cut_off("empty DATA", "http2-empty-frame-flood", |client| {
        client.sends(headers(1, &TRACE.replace("TRACE", "CONNECT")));
        client.sends(headers(3, GET));
        floods(client, 5000, |_| data(3, ""));
    });
}

#[test]
fn rapid_resets_are_cut_off() {
    // CVE-2023-44487, with requests that no server sees.
    is_cut_off("at once", "http2-reset-flood", |client| {
        floods(client, 2000, |at| [last_headers(1 + 2 * at, TRACE), reset(1 + 2 * at, CANCEL)].concat());
    });
}

#[test]
fn resets_that_are_provoked_are_cut_off() {
    // CVE-2025-8671: the client does not reset streams itself, but makes the proxy reset them.
    let zero = |stream| window_update(stream, 0);
    let overflow = |stream| window_update(stream, (1 << 31) - 1);
    let closed = |stream| data(stream, "x");
    for (name, word, provoke) in [
        ("windows of nothing", "http2-malformed", &zero as &dyn Fn(u32) -> Vec<u8>),
        ("windows that overflow", "http2-excess", &overflow),
        ("data on a closed half", "http2-malformed", &closed),
    ] {
        let scene = Scene::to_http1();
        let mut client = scene.client();
        client.is_heard();
        floods(&mut client, 2000, |at| [last_headers(1 + 2 * at, GET), provoke(1 + 2 * at)].concat());
        assert!(matches!(client.ends(), H2Ended::Told(_)), "{name}");
        scene.assert_failure(word, 1);
        let requests = scene.running.counters().requests;
        assert!(requests <= 200, "{name}: {requests} requests were served");
    }
}

#[test]
fn requests_that_are_malformed_again_and_again_are_cut_off() {
    is_cut_off("bad fields", "http2-excess", |client| {
        floods(client, 1000, |at| last_headers(1 + 2 * at, &format!("{GET}connection: x\n")));
    });
    is_cut_off("lengths that lie", "http2-excess", |client| {
        floods(client, 1000, |at| {
            let head = format!("{}content-length: 1\n", GET.replace("GET", "POST"));
            [headers(1 + 2 * at, &head), last_data(1 + 2 * at, "ab")].concat()
        });
    });
}

#[test]
fn a_head_without_end_is_cut_off() {
    // CVE-2024-27316 and similar.
    is_cut_off("CONTINUATION", "http2-excess", |client| {
        client.sends(raw(1, 1, 1, &block(GET)));
        floods(client, 1000, |at| raw(9, 0, 1, &block(&format!("x-{at}: {}\n", "y".repeat(10_000)))));
    });
    is_cut_off("empty CONTINUATION", "http2-excess", |client| {
        client.sends(raw(1, 1, 1, &block(GET)));
        floods(client, 5000, |_| raw(9, 0, 1, b""));
    });
}

#[test]
fn a_head_that_does_not_end_in_time_ends_its_connection() {
    let whole = last_headers(3, GET);
    let beginnings: [(&str, Vec<u8>); 5] = [
        ("a block", raw(1, 1, 3, &block(GET))),
        ("a part of a frame", whole[..20].to_vec()),
        ("a part of its head", whole[..3].to_vec()),
        ("a block that goes on", [raw(1, 1, 3, &block(GET)), raw(9, 0, 3, b"")].concat()),
        ("trailers", [raw(1, 1, 1, &block("x: y\n")), raw(9, 4, 1, b"")[..9 - 1].to_vec()].concat()),
    ];
    let scene = Scene::with(Protocol::Http1, 1, |config| {
        config.timeouts.client_header = Duration::from_millis(300);
    });
    for ((name, beginning), count) in beginnings.into_iter().zip(1..) {
        let mut client = scene.client();
        // Meanwhile a request keeps the connection from being idle.
        client.sends(headers(1, &GET.replace("GET", "POST")));
        let _server = scene.accept1().after_head();
        client.is_heard();
        client.sends(beginning);
        assert_eq!(client.ends(), H2Ended::Told(ENHANCE_YOUR_CALM), "{name}");
        scene.assert_failure("client-header-timeout", count);
    }
    // A body frame is judged by the rules for bodies.
    let mut client = scene.client().saying(headers(1, &GET.replace("GET", "POST")));
    let mut server = scene.accept1().after_head();
    client.is_heard();
    let body = last_data(1, "late");
    client.sends(&body[..5]);
    let mut clock = scene.client1().saying("G");
    assert_eq!(clock.message().status(), 408);
    client.sends(&body[5..]);
    server.gets(b"4\r\nlate\r\n0\r\n\r\n");
}

#[test]
fn a_head_that_is_too_large_is_431() {
    let scene = Scene::to_http1();
    let mut client = scene.client();
    // Small on the wire, large when decoded: a field of 4,000 bytes, referenced 60 times.
    let mut bomb = block(GET);
    bomb.extend([0x40, 1, b'x', 127, 0xa1, 0x1e]);
    bomb.extend([b'y'; 4000]);
    bomb.extend([0x80 | 62; 60]);
    client.sends(raw(1, 5, 1, &bomb));
    assert!(client.whole(1).starts_with(":status: 431\n"));
    client.is_heard();
    // More fields than permitted, however short.
    let many: String = (0..300).map(|at| format!("x-{at}: y\n")).collect();
    client.sends(last_headers(3, &format!("{GET}{many}")));
    assert!(client.whole(3).starts_with(":status: 431\n"));
    client.sends(last_headers(5, TRACE));
    assert!(client.whole(5).starts_with(":status: 405\n"));
    scene.assert_no_more_connections();
}

#[test]
fn one_stream_too_many_is_refused() {
    let scene = Scene::to_http1();
    let mut client = scene.client();
    assert_eq!(client.setting(testkit::http2::frame::MAX_CONCURRENT_STREAMS), Some(100));
    for at in 0..101 {
        client.sends(headers(1 + 2 * at, &GET.replace("GET", "POST")));
    }
    assert_eq!(client.next_on(201), H2Frame::Reset { stream: 201, code: REFUSED_STREAM });
    // The other streams are under way.
    let mut servers: Vec<_> = (0..100).map(|_| scene.accept1()).collect();
    servers.iter_mut().for_each(|server| assert!(server.head().starts_with("POST / ")));
    scene.assert_no_more_connections();
}

#[test]
fn breaches_of_the_protocol_end_the_connection() {
    for (name, frames, code) in [
        ("data on no stream", data(0, "x"), PROTOCOL_ERROR),
        ("a window that overflows", window_update(0, (1 << 31) - 1), FLOW_CONTROL_ERROR),
        ("an even stream", last_headers(2, GET), PROTOCOL_ERROR),
        ("a push", raw(5, 4, 1, &[0, 0, 0, 2]), PROTOCOL_ERROR),
    ] {
        let scene = Scene::to_http1();
        let mut client = scene.client();
        client.is_heard();
        client.sends(frames);
        assert_eq!(client.ends(), H2Ended::Told(code), "{name}");
    }
}

#[test]
fn a_download_that_is_given_up_leaves_its_connection_as_it_was() {
    let scene = Scene::to_http1();
    let mut client = scene.client_with(&[(INITIAL_WINDOW_SIZE, 1 << 30)]);
    client.sends(window_update(0, 1 << 30));
    for at in 0..4 {
        client.sends(last_headers(1 + 2 * at, GET));
        let mut server = scene.accept1().after_head();
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
        // More than all buffers hold, while the client does not read.
        fills(server.stream());
        client.sends(reset(1 + 2 * at, CANCEL));
        client.is_heard();
        client.forgets();
    }
    client.sends(last_headers(101, GET));
    let mut server = scene.accept1().after_head();
    server.sends(format!(
        "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 1000000\r\n\r\n{}",
        "y".repeat(1_000_000)
    ));
    assert_eq!(
        client.whole(101).len(),
        1_000_000 + ":status: 200\ndate: D\ncontent-length: 1000000\nvia: vanward\n---\n\n---\n".len()
    );
}

#[test]
fn a_client_may_give_up_all_that_it_has_asked_for_at_once() {
    let scene = Scene::to_http2();
    let mut client = scene.client().saying(last_headers(1, GET));
    let mut server = scene.accept();
    server.whole(1);
    let ids = || (1..100).map(|at| 1 + 2 * at);
    client.sends(ids().flat_map(|id| last_headers(id, GET)).collect::<Vec<u8>>());
    ids().for_each(|id| drop(server.whole(id)));
    client.sends([reset(1, CANCEL), ids().flat_map(|id| reset(id, CANCEL)).collect::<Vec<u8>>()].concat());
    server.gets_reset(1, CANCEL);
    ids().for_each(|id| server.gets_reset(id, CANCEL));
    client.sends(last_headers(201, TRACE));
    assert!(client.whole(201).starts_with(":status: 405\n"));
}
