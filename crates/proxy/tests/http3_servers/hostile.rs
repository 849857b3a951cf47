//! Hostile servers: the code that ends a connection, and the client's response.

use testkit::http3::frame::{DATA, frame, head, headers};
use testkit::http3::{H3TestStream, Served};

use super::scene::{Scene, is_answered};

/// Codes (RFC 9114 §8.1).
const CLOSED_CRITICAL_STREAM: u64 = 0x104;
const FRAME_UNEXPECTED: u64 = 0x105;
const EXCESSIVE_LOAD: u64 = 0x107;
const ID_ERROR: u64 = 0x108;
const SETTINGS_ERROR: u64 = 0x109;
const MISSING_SETTINGS: u64 = 0x10a;
const MESSAGE_ERROR: u64 = 0x10e;
const QPACK_DECOMPRESSION_FAILED: u64 = 0x200;

/// The server's reaction to a request.
type Act = fn(&mut Served, &mut H3TestStream);

#[test]
fn a_server_that_breaks_the_rules_is_disconnected() {
    let rows: [(&str, u64, Act); 10] = [
        ("a push", ID_ERROR, |_, stream| stream.sends(&frame(5, b"\0\0\0"))),
        ("a push stream", ID_ERROR, |served, _| drop(served.unidirectional(&[1, 0]))),
        ("settings twice", FRAME_UNEXPECTED, |served, _| served.control(&frame(4, b""))),
        ("a GOAWAY that rises", ID_ERROR, |served, _| {
            served.control(&[frame(7, &[4]), frame(7, &[8])].concat());
        }),
        ("a GOAWAY of no request", ID_ERROR, |served, _| served.control(&frame(7, &[2]))),
        ("MAX_PUSH_ID", FRAME_UNEXPECTED, |served, _| served.control(&frame(13, &[1]))),
        ("DATA before HEADERS", FRAME_UNEXPECTED, |_, stream| stream.sends_data(b"x")),
        ("a section that refers to nothing", QPACK_DECOMPRESSION_FAILED, |_, stream| {
            stream.sends(&frame(1, b"\0\0\x80"));
        }),
        ("frames without meaning", EXCESSIVE_LOAD, |_, stream| {
            let frames = frame(0x21, b"").repeat(20_000);
            let _ = stream.can_send(&frames);
        }),
        ("the end of the control stream", CLOSED_CRITICAL_STREAM, |served, _| served.ends_control()),
    ];
    for (name, code, act) in rows {
        let scene = Scene::new();
        let mut client = scene.asks();
        let mut server = scene.accept();
        let mut stream = server.request();
        stream.response();
        act(&mut server, &mut stream);
        let (found, why) = server.closed();
        assert_eq!(found, code, "{name}: {why}");
        assert_eq!(client.message().status(), 502, "{name}");
        scene.assert_failure("upstream-malformed");
        // Other requests are served over another connection.
        let mut other = scene.asks();
        let server = scene.accept();
        server.answers("ok");
        is_answered(&mut other, 200, "ok");
    }
}

#[test]
fn a_server_begins_with_settings() {
    for (bytes, code) in [
        (frame(7, &[0]), MISSING_SETTINGS),
        (frame(4, &[0x02, 0x00]), SETTINGS_ERROR),
        (frame(4, &[0x06, 0x40]), 0x106),
    ] {
        let scene = Scene::new();
        let mut client = scene.asks();
        let mut server = scene.servers[0].accept_silently();
        server.control(&bytes);
        assert_eq!(server.closed().0, code);
        assert_eq!(client.message().status(), 502);
        scene.assert_failure("upstream-protocol");
    }
}

#[test]
fn a_response_that_cannot_be_is_of_its_request_alone() {
    let long = format!(":status: 200\nx: {}\n", "x".repeat(200_000));
    for (answer, code, word) in [
        (headers(":status: 200\nUpper: x\n"), MESSAGE_ERROR, "upstream-malformed"),
        (headers(":status: 99\n"), MESSAGE_ERROR, "upstream-malformed"),
        (headers(":status: 101\n"), MESSAGE_ERROR, "upstream-malformed"),
        (headers(":status: 200\nconnection: close\n"), MESSAGE_ERROR, "upstream-malformed"),
        (
            headers(":status: 200\ncontent-length: 1\ncontent-length: 2\n"),
            MESSAGE_ERROR,
            "upstream-malformed",
        ),
        (headers(&long), EXCESSIVE_LOAD, "upstream-head-too-large"),
    ] {
        let scene = Scene::new();
        let mut client = scene.asks();
        let server = scene.accept();
        let mut stream = server.request();
        stream.response();
        let _ = stream.can_send(&answer);
        assert_eq!(client.message().status(), 502);
        assert_eq!(stream.stopped(), Some(code), "{word}");
        scene.assert_failure(word);
        let mut other = scene.asks();
        server.answers("ok");
        is_answered(&mut other, 200, "ok");
    }
}

#[test]
fn bodies_keep_to_their_length() {
    for (sent, ends) in [(&b"abcd"[..], false), (b"ab", true)] {
        let scene = Scene::new();
        let mut client = scene.client();
        client.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let server = scene.accept();
        let mut stream = server.request();
        stream.response();
        stream.sends_head(":status: 200\ncontent-length: 3\n");
        stream.sends_data(sent);
        if ends {
            stream.ends();
        }
        // The client may or may not have a head by then, but the response never looks complete.
        let (rest, _) = client.rest();
        assert!(!rest.ends_with(b"abc"), "{}", String::from_utf8_lossy(&rest));
        let mut other = scene.asks();
        server.answers("ok");
        is_answered(&mut other, 200, "ok");
    }
}

#[test]
fn interim_responses_have_an_end() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.sends("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    let server = scene.accept();
    let mut stream = server.request();
    stream.response();
    let hint = headers(":status: 103\nlink: </x>\n");
    let _ = stream.can_send(&hint.repeat(5_000));
    let (got, _) = client.rest();
    let got = String::from_utf8_lossy(&got);
    assert!(got.contains("HTTP/1.1 502 "), "{}", got.len());
    assert!(stream.stopped().is_some());
    let mut other = scene.asks();
    server.answers("ok");
    is_answered(&mut other, 200, "ok");
}

#[test]
fn a_server_cannot_have_more_held_than_windows_permit() {
    // An unread body in frames of one byte each.
    let scene = Scene::new();
    let client = scene.client3();
    let mut asking = client.asks("GET", "/", "");
    let server = scene.accept();
    let mut stream = server.request();
    stream.response();
    stream.sends_head(":status: 200\n");
    let piece = [head(DATA, 1), b"x".to_vec()].concat().repeat(10_000);
    let sending = std::thread::spawn(move || {
        let mut count = 0;
        while count < 1000 && stream.can_send(&piece) {
            count += 1;
        }
        stream
    });
    // Other requests continue.
    for _ in 0..5 {
        let mut other = scene.asks();
        server.answers("ok");
        is_answered(&mut other, 200, "ok");
    }
    assert!(!sending.is_finished());
    asking.stops(0x10c);
    let mut stream = sending.join().expect("it runs");
    assert_eq!(stream.stopped(), Some(0x10c));
}
