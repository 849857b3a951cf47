//! Rejected messages, and their codes.

use super::scene::{PLAIN, Scene};
use testkit::http3::frame::{DATA, head, headers, request, varint};
use testkit::http3::{Got, H3TestClient};

/// RFC 9114 §8.1.
const STREAM_CREATION_ERROR: u64 = 0x103;
const CLOSED_CRITICAL_STREAM: u64 = 0x104;
const FRAME_UNEXPECTED: u64 = 0x105;
const SETTINGS_ERROR: u64 = 0x109;
const MISSING_SETTINGS: u64 = 0x10a;
const REQUEST_INCOMPLETE: u64 = 0x10d;
const MESSAGE_ERROR: u64 = 0x10e;

#[test]
fn a_malformed_request_is_reset_and_the_connection_goes_on() {
    let scene = Scene::with("[[route]]\nrespond = { status = 200 }");
    let client = scene.client();
    let requests = [
        ":method: GET\n:scheme: https\n:authority: test\n".to_owned(),
        request("GET", "/", "Upper: 1\n"),
        request("GET", "/", "connection: close\n"),
        request("GET", "/", "transfer-encoding: chunked\n"),
        request("GET", "/", ":path: /again\n"),
        request("POST", "/", "content-length: five\n"),
    ];
    for lines in &requests {
        let mut stream = client.open();
        stream.sends_head(lines);
        stream.ends();
        assert_eq!(stream.gets(), Got::Reset(MESSAGE_ERROR), "{lines}");
    }
    scene.assert_failure("http3-malformed", requests.len() as u64);
    assert!(client.asks("GET", "/", "").response().0.starts_with(":status: 200\n"));
}

#[test]
fn a_body_that_lies_about_its_length_is_reset() {
    let scene = Scene::new();
    let client = scene.client();
    for sent in [&b"long"[..], b"l", b""] {
        let mut stream = client.open();
        stream.sends_head(&request("POST", "/", "content-length: 2\n"));
        stream.sends_data(sent);
        stream.ends();
        let mut got = stream.gets();
        while matches!(got, Got::Data(_) | Got::Headers(_)) {
            got = stream.gets();
        }
        assert_eq!(got, Got::Reset(MESSAGE_ERROR));
    }
}

#[test]
fn an_end_before_a_head_is_incomplete() {
    let scene = Scene::new();
    let client = scene.client();
    let mut stream = client.open();
    stream.ends();
    assert_eq!(stream.gets(), Got::Reset(REQUEST_INCOMPLETE));
}

#[test]
fn a_head_that_is_too_large_gets_431() {
    let scene = Scene::with("limits = { header_bytes = \"4KB\" }\n[[route]]\nrespond = { status = 200 }");
    let client = scene.client();
    let mut stream = client.asks("GET", "/", &format!("x-long: {}\n", "x".repeat(8_000)));
    assert!(stream.head().starts_with(":status: 431\n"));
    assert!(client.asks("GET", "/", "").response().0.starts_with(":status: 200\n"));
    scene.assert_failure("head-too-large", 1);
}

#[test]
fn errors_of_the_connection_end_it_with_their_code() {
    let settings = |client: &mut H3TestClient| client.control(&[0x04, 0x00]);
    type Breach = Box<dyn Fn(&mut H3TestClient)>;
    let on_request = |bytes: Vec<u8>| -> Breach {
        Box::new(move |client| {
            settings(client);
            let mut stream = client.open();
            stream.sends(&bytes);
            std::mem::forget(stream);
        })
    };
    let on_control = |bytes: Vec<u8>| -> Breach { Box::new(move |client| client.control(&bytes)) };
    let breaches: Vec<(&str, Breach, u64)> = vec![
        ("DATA before HEADERS", on_request([&head(DATA, 1)[..], b"x"].concat()), FRAME_UNEXPECTED),
        ("SETTINGS on a request", on_request(vec![0x04, 0x00]), FRAME_UNEXPECTED),
        ("no SETTINGS", on_control([varint(0x7), vec![1, 0]].concat()), MISSING_SETTINGS),
        ("SETTINGS of HTTP/2", on_control(vec![0x04, 0x02, 0x02, 0x00]), SETTINGS_ERROR),
        ("SETTINGS twice", on_control(vec![0x04, 0x00, 0x04, 0x00]), FRAME_UNEXPECTED),
        (
            "HEADERS on control",
            on_control([&[0x04, 0x00][..], &headers("a: b\n")].concat()),
            FRAME_UNEXPECTED,
        ),
        (
            "a second control stream",
            Box::new(move |client| {
                settings(client);
                std::mem::forget(client.unidirectional(&[0x00, 0x04, 0x00]));
            }),
            STREAM_CREATION_ERROR,
        ),
        (
            "the end of the control stream",
            Box::new(move |client| {
                settings(client);
                client.ends_control();
            }),
            CLOSED_CRITICAL_STREAM,
        ),
    ];
    let scene = Scene::with(PLAIN);
    let count = breaches.len() as u64;
    for (what, breach, code) in breaches {
        let client = H3TestClient::try_connect(scene.address(), &[b"h3"], quinn::TransportConfig::default());
        let mut client = client.expect("it connects");
        breach(&mut client);
        let (closed, why) = client.closed();
        assert_eq!(closed, code, "{what}: {why}");
        assert!(why.contains("RFC 9114"), "{what}: {why}");
    }
    scene.assert_failure("http3-malformed", count);
}

#[test]
fn another_protocol_is_refused_in_the_handshake() {
    let scene = Scene::new();
    let refused =
        H3TestClient::try_connect(scene.address(), &[b"hq-interop"], quinn::TransportConfig::default());
    let error = refused.err().expect("it is refused").to_string();
    // RFC 9001 §8.1: no_application_protocol, 120.
    assert!(error.contains("120") || error.contains("application protocol"), "{error}");
    scene.assert_failure("tls-handshake", 1);
}
