//! The log of failed clients: each row in each version in which it can happen.

use testkit::http2::frame::{CANCEL, H2Frame, data, headers, last_headers, reset};
use testkit::http3::frame::{frame, request};
use testkit::http3::{Got, H3TestClient};
use testkit::tls::TestAuthority;

use super::scene::{ALL, Scene, Spoken};

/// SETTINGS_MAX_HEADER_LIST_SIZE (RFC 9113 §6.5.2).
const MAX_HEADER_LIST_SIZE: u16 = 6;
const VERSIONS: [&str; 3] = ["1.1", "2.0", "3.0"];

/// Sends a request with these lines, `name: value`. Returns the status of its response; 0 if there is none.
fn status_of(scene: &Scene, spoken: Spoken, lines: &str) -> u16 {
    match spoken {
        Spoken::Http1 => {
            let mut client = scene.client1();
            let lines = lines.replace('\n', "\r\n");
            client.sends(format!("GET /at HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{lines}\r\n"));
            let (answer, _) = client.rest();
            let text = String::from_utf8_lossy(&answer).into_owned();
            text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0)
        }
        Spoken::Http2 => {
            let mut client = scene.client2();
            client.sends(last_headers(
                1,
                &format!(":method: GET\n:scheme: http\n:authority: test\n:path: /at\n{lines}"),
            ));
            match client.next_on(1) {
                H2Frame::Headers { fields, .. } => status(&fields),
                _ => 0,
            }
        }
        Spoken::Http3 => {
            let client = scene.client3();
            let mut stream = client.asks("GET", "/at", lines);
            match stream.gets() {
                Got::Headers(fields) => status(&fields),
                _ => 0,
            }
        }
    }
}

fn status(fields: &str) -> u16 {
    let line = fields.lines().find_map(|line| line.strip_prefix(":status: "));
    line.and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[test]
fn each_head_that_is_refused_has_its_version_word_status_and_detail() {
    let long = format!("x-long: {}\n", "x".repeat(8_000));
    let many = "a: b\n".repeat(300);
    let small = "limits = { header_bytes = \"4KB\" }";
    type Row<'a> = (&'a str, &'a str, &'a str, [u16; 3], [&'a str; 3], [&'a str; 3]);
    let rows: [Row<'_>; 3] = [
        (
            "a head that is too large",
            small,
            &long,
            [431; 3],
            ["head-too-large"; 3],
            [
                "the head is larger than limits.header_bytes",
                "with the field 'x-long' the head is larger than limits.header_bytes",
                "a field section of",
            ],
        ),
        (
            "too many fields",
            "",
            &many,
            [431; 3],
            ["head-too-large"; 3],
            ["there are more header fields than limits.header_count"; 3],
        ),
        (
            "a field that is none",
            "",
            "x y: 1\n",
            [400, 0, 0],
            ["bad-request", "http2-malformed", "http3-malformed"],
            ["the field 'x y'", "reset with PROTOCOL_ERROR: ", "reset with H3_MESSAGE_ERROR: "],
        ),
    ];
    for (what, tables, lines, statuses, causes, details) in rows {
        for (place, spoken) in ALL.into_iter().enumerate() {
            let what = format!("{what}, {spoken:?}");
            let scene = Scene::to(Spoken::Http1, tables);
            assert_eq!(status_of(&scene, spoken, lines), statuses[place], "{what}");
            scene.tells(&what, VERSIONS[place], statuses[place], causes[place], details[place]);
        }
    }
}

#[test]
fn a_client_that_cancels_is_told_from_one_that_was_reset() {
    const HEAD: &str = ":method: GET\n:scheme: http\n:authority: test\n:path: /\n";
    // The client cancels while its server is silent.
    let scene = Scene::to(Spoken::Http1, "");
    let mut client = scene.client2();
    client.sends(last_headers(1, HEAD));
    let mut server = scene.accept1();
    server.head();
    client.sends(reset(1, CANCEL));
    server.gets_the_end();
    scene.tells("cancelled, Http2", "2.0", 0, "client-gone", "it reset the stream with CANCEL");
    let scene = Scene::to(Spoken::Http1, "");
    let client = scene.client3();
    let mut stream = client.asks("GET", "/", "");
    let mut server = scene.accept1();
    server.head();
    stream.stops(0x10c);
    server.gets_the_end();
    scene.tells("cancelled, Http3", "3.0", 0, "client-gone", "it reset the stream with H3_REQUEST_CANCELLED");
    // The client violates the protocol during its response, so the proxy resets the stream.
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n";
    let scene = Scene::to(Spoken::Http1, "");
    let mut client = scene.client2();
    client.sends(headers(1, &HEAD.replace("GET", "POST")));
    let mut server = scene.accept1();
    server.head();
    server.sends(answer);
    client.next_on(1);
    client.sends(last_headers(1, "x y: 1\n"));
    client.find(|frame| matches!(frame, H2Frame::Reset { .. }));
    scene.tells("reset, Http2", "2.0", 200, "http2-malformed", "in the trailers: ");
    let scene = Scene::to(Spoken::Http1, "");
    let client = scene.client3();
    let mut stream = client.open();
    stream.sends_head(&request("POST", "/", ""));
    let mut server = scene.accept1();
    server.head();
    server.sends(answer);
    stream.gets();
    stream.sends_head("x y: 1\n");
    while !matches!(stream.gets(), Got::Reset(_) | Got::Gone) {}
    scene.tells("reset, Http3", "3.0", 200, "http3-malformed", "in the trailers: ");
    // Trailers that are too large are not a protocol error, as over HTTP/1.1.
    let scene = Scene::to(Spoken::Http1, "limits = { header_bytes = \"4KB\" }");
    let mut client = scene.client2();
    client.sends(headers(1, &HEAD.replace("GET", "POST")));
    let mut server = scene.accept1();
    server.head();
    client.sends(data(1, "x"));
    client.sends(last_headers(1, &format!("x-long: {}\n", "x".repeat(8_000))));
    client.find(|frame| matches!(frame, H2Frame::Reset { .. }));
    scene.tells("trailers, Http2", "2.0", 0, "head-too-large", "in the trailers: ");
}

#[test]
fn a_client_without_a_certificate_is_told_alike_over_tcp_and_quic() {
    let authority = TestAuthority::new();
    let tables = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\nhttp3 = true\n\
         tls = {{ self_signed = true, client_certificates = {{ mode = \"required\", ca = {:?} }} }}",
        authority.file
    );
    let detail = "it has no certificate, and one is required";
    let scene = Scene::to(Spoken::Http1, &tables);
    // The client's side of the handshake completes before the proxy's.
    let client = H3TestClient::try_connect(scene.address(0), &[b"h3"], quinn::TransportConfig::default());
    scene.tells("QUIC", "3.0", 0, "client-certificate", detail);
    drop(client);
    let scene = Scene::to(Spoken::Http1, &tables);
    let tcp = std::net::TcpStream::connect(scene.address(0)).expect("the proxy listens");
    let config = std::sync::Arc::new(testkit::http3::trusting(&[b"http/1.1"]));
    let mut client = testkit::tls::TlsEnd::client(tcp, &config, "localhost");
    let _ = client.shakes_hands();
    scene.tells("TCP", "", 0, "client-certificate", detail);
}

/// RFC 9114 §4.2.2: an HTTP/3 client limits the length of heads.
#[test]
fn a_response_longer_than_its_client_accepts_is_answered_with_502() {
    let limited = |scene: &Scene| {
        let client = H3TestClient::try_connect(scene.address(1), &[b"h3"], quinn::TransportConfig::default());
        let mut client = client.unwrap_or_else(|error| panic!("no connection: {error}"));
        // SETTINGS_MAX_FIELD_SECTION_SIZE: 2000.
        client.control(&frame(0x04, &[0x06, 0x47, 0xd0]));
        client
    };
    for body in ["", "hello"] {
        let scene = Scene::to(Spoken::Http1, "");
        let client = limited(&scene);
        let mut stream = client.asks("GET", "/", "");
        let mut server = scene.accept1();
        server.head();
        let (long, length) = ("x".repeat(3_000), body.len());
        server.sends(format!("HTTP/1.1 200 OK\r\nX-Long: {long}\r\nContent-Length: {length}\r\n\r\n{body}"));
        let (head, body, _) = stream.response();
        assert!(head.starts_with(":status: 502\n"), "{head}");
        assert_eq!(body, b"The response header fields are larger than the client accepts.\n");
        // The connection continues.
        let mut stream = client.asks("GET", "/", "");
        let mut server = scene.accept1();
        server.head();
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(stream.response().1, b"ok");
        let detail = "the response head is larger than the client's SETTINGS_MAX_FIELD_SECTION_SIZE";
        scene.tells("Http3", "3.0", 502, "client-head-limit", detail);
    }
    // RFC 9113 §6.5.2: over HTTP/2 the limit is only advisory.
    let scene = Scene::to(Spoken::Http1, "");
    let mut client = testkit::http2::H2End::client(
        std::net::TcpStream::connect(scene.address(0)).expect("the proxy listens"),
        &[(MAX_HEADER_LIST_SIZE, 2000)],
    );
    client.sends(last_headers(1, ":method: GET\n:scheme: http\n:authority: test\n:path: /\n"));
    let mut server = scene.accept1();
    server.head();
    server.sends(format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(3_000)));
    assert!(matches!(client.next_on(1), H2Frame::Headers { fields, .. } if status(&fields) == 200));
}
