//! Requests and responses on the usual path.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::scene::{PLAIN, Scene};
use testkit::http3::frame::request;
use testkit::http3::{Got, H3TestClient};

/// The lines of a head without Date.
fn without_date(head: &str) -> String {
    head.lines().filter(|line| !line.starts_with("date: ")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_request_reaches_a_server_and_its_response_the_client() {
    let scene = Scene::new();
    let client = scene.client();
    let mut stream = client.asks("GET", "/a?b=c", "accept: */*\nx-own: 1\n");
    let mut server = scene.accept();
    let head = server.head();
    assert!(head.starts_with("GET /a?b=c HTTP/1.1\r\nhost: test\r\n"), "{head}");
    for line in [
        "accept: */*",
        "x-own: 1",
        "Via: 3.0 vanward",
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-Proto: https",
    ] {
        assert!(head.contains(&format!("{line}\r\n")), "{line} is missing: {head}");
    }
    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Server: yes\r\n\r\nhello");
    let (head, body, trailers) = stream.response();
    let alt_svc = format!("alt-svc: h3=\":{}\"; ma=86400\n", scene.address().port());
    let expected = format!(":status: 200\ncontent-length: 5\nx-server: yes\n{alt_svc}via: 1.1 vanward\n");
    assert_eq!(without_date(&head), expected);
    assert_eq!((&body[..], &trailers[..]), (&b"hello"[..], ""));
    let counters = scene.running.counters();
    assert_eq!((counters.http3_connections, counters.handshakes, counters.requests), (1, 1, 1));
}

/// Maps and values decide, and are in fields of both messages.
#[test]
fn values_and_maps_are_those_of_the_request() {
    let scene = Scene::with(
        r#"
[map.tenant]
key = "request.host"
kind = "suffix"
entries = { "test" = "shop" }

[values]
tenant = 'map.tenant ?? "none"'
app = 'request.query["app"] ?? "www"'

[[route]]
upstream = "app"
request_headers = { set = { X-Tenant = "${tenant} ${app}" } }
response_headers = { set = { X-App = "${app}" } }

[[route]]
path = "/fixed"
when = 'values.app == "x" && map.tenant == "shop"'
respond = { status = 200, body = "${tenant} ${app}" }
"#,
    );
    let client = scene.client();
    let mut stream = client.asks("GET", "/?app=a%0d%0ab", "");
    let mut server = scene.accept();
    let head = server.head();
    assert!(head.contains("X-Tenant: shop a  b\r\n"), "{head}");
    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let (head, ..) = stream.response();
    assert!(head.contains("x-app: a  b\n"), "{head}");
    let (head, body, _) = client.asks("GET", "/fixed?app=x", "").response();
    assert!(head.starts_with(":status: 200\n"), "{head}");
    assert_eq!(String::from_utf8_lossy(&body), "shop x");
}

/// RFC 6797 §8.1: the server's rule is the only one, and says nothing about Alt-Svc.
#[test]
fn a_rule_for_https_of_the_server_replaces_only_that_of_the_listener() {
    let scene = Scene::of(1, "http3 = true\nhsts = \"1d\"", PLAIN);
    let client = scene.client();
    for (own, expected) in [("", "max-age=86400"), ("Strict-Transport-Security: max-age=1\r\n", "max-age=1")]
    {
        let mut stream = client.asks("GET", "/", "");
        let mut server = scene.accept();
        server.head();
        server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{own}Connection: close\r\n\r\n"));
        let (head, ..) = stream.response();
        let rules: Vec<&str> =
            head.lines().filter_map(|line| line.strip_prefix("strict-transport-security: ")).collect();
        assert_eq!(rules, [expected], "{head}");
        assert!(head.contains("alt-svc: h3="), "{head}");
    }
}

#[test]
fn a_get_whose_end_never_comes_reaches_the_server_as_one_with_a_body() {
    let scene = Scene::new();
    let client = scene.client();
    let mut stream = client.open();
    stream.sends_head(&request("GET", "/", ""));
    let mut server = scene.accept();
    let head = server.head();
    assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n"), "{head}");
    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(stream.response().1, b"hello");
}

#[test]
fn a_connection_carries_many_requests_at_once_and_in_any_order() {
    let scene = Scene::new();
    let client = scene.client();
    let mut streams: Vec<_> = (0..50).map(|number| client.asks("GET", &format!("/{number}"), "")).collect();
    let mut servers: Vec<_> = (0..50).map(|_| scene.accept()).collect();
    let mut paths = Vec::new();
    for server in servers.iter_mut().rev() {
        let path = server.head().split(' ').nth(1).expect("has a path").to_owned();
        server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()));
        paths.push(path);
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        let (_, body, _) = stream.response();
        assert_eq!(String::from_utf8_lossy(&body), format!("/{number}"));
    }
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), 50);
}

#[test]
fn bodies_and_trailers_go_both_ways() {
    let scene = Scene::new();
    let client = scene.client();
    let mut stream = client.open();
    stream.sends_head(&request("POST", "/up", ""));
    stream.sends_data(b"one ");
    let mut server = scene.accept();
    let head = server.head();
    assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
    assert_eq!(server.exactly(9), b"4\r\none \r\n");
    stream.sends_data(b"two");
    stream.sends_head("x-sum: 7\n");
    stream.ends();
    let rest = b"3\r\ntwo\r\n0\r\nx-sum: 7\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&server.exactly(rest.len())), String::from_utf8_lossy(rest));
    server.sends("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\nX-End: 1\r\n\r\n");
    let (_, body, trailers) = stream.response();
    assert_eq!((&body[..], &trailers[..]), (&b"yes"[..], "x-end: 1\n"));
}

#[test]
fn a_body_with_a_length_keeps_it() {
    let scene = Scene::new();
    let client = scene.client();
    let mut stream = client.open();
    stream.sends_head(&request("PUT", "/up", "content-length: 5\n"));
    stream.sends_data(b"hello");
    stream.ends();
    let mut server = scene.accept();
    let head = server.head();
    assert!(head.contains("content-length: 5\r\n") && !head.contains("chunked"), "{head}");
    assert_eq!(server.exactly(5), b"hello");
    server.sends("HTTP/1.1 204 No Content\r\n\r\n");
    assert!(stream.response().0.starts_with(":status: 204\n"));
}

#[test]
fn interim_responses_come_first() {
    let scene = Scene::new();
    let client = scene.client();
    let mut stream = client.asks("GET", "/", "");
    let mut server = scene.accept().after_head();
    server.sends("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
    assert_eq!(stream.head().lines().take(2).collect::<Vec<_>>(), [":status: 103", "link: </a.css>"]);
    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(stream.response().0.starts_with(":status: 200\n"));
}

/// A body larger than all windows and buffers together, in distinguishable pieces.
fn long_body() -> Vec<u8> {
    (0..6 << 20_u32).map(|at: u32| ((at / 251) ^ at) as u8).collect()
}

#[test]
fn long_bodies_arrive_whole_both_ways() {
    let scene = Scene::new();
    let client = scene.client();
    let body = long_body();
    let mut stream = client.open();
    let mut server = thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut server = scene.accept().after_head();
            assert!(server.exactly(body.len()) == body, "the upload is another");
            server
        });
        stream.sends_head(&request("POST", "/up", &format!("content-length: {}\n", body.len())));
        body.chunks(100_000).for_each(|piece| stream.sends_data(piece));
        stream.ends();
        server.join().expect("it arrives")
    });
    let (_, received, _) = thread::scope(|scope| {
        scope.spawn(|| {
            server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
            server.sends(&body);
        });
        stream.response()
    });
    assert!(received == body, "the download is another");
}

#[test]
fn a_client_that_does_not_read_holds_up_its_server_and_nobody_else() {
    let scene = Scene::new();
    let client = H3TestClient::connect_with(scene.address(), |transport| {
        transport.stream_receive_window(100_000_u32.into());
    });
    let mut slow = client.asks("GET", "/slow", "");
    let mut server = scene.accept().after_head();
    server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 64 << 20));
    let sent = fills(server.stream());
    assert!(sent < 16 << 20, "{sent} bytes were taken that nobody reads");
    let mut other = client.asks("GET", "/other", "");
    let mut second = scene.accept().after_head();
    second.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(other.response().1, b"ok");
    assert!(slow.head().starts_with(":status: 200\n"));
}

#[test]
fn an_upload_that_its_server_does_not_read_holds_up_no_other_request() {
    // It times out later than the test waits.
    let scene =
        Scene::with(&format!("timeouts = {{ client_body = \"10m\", upstream_send = \"10m\" }}\n{PLAIN}"));
    let client = scene.client();
    let mut stuck = client.open();
    stuck.sends_head(&request("POST", "/stuck", ""));
    let mut server = scene.accept();
    server.head();
    stuck.fills();
    let mut other = client.open();
    other.sends_head(&request("POST", "/other", ""));
    other.sends_data(b"hello");
    other.ends();
    let mut second = scene.accept();
    assert!(second.head().starts_with("POST /other "));
    let body = b"5\r\nhello\r\n0\r\n\r\n";
    assert_eq!(second.exactly(body.len()), body);
    second.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(other.response().1, b"ok");
}

/// Writes until the peer takes no more. Returns the number of bytes.
pub(crate) fn fills(stream: &TcpStream) -> usize {
    stream.set_nonblocking(true).expect("is a socket");
    let mut sent = 0;
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(500) {
        match (&*stream).write(&[b'x'; 65_536]) {
            Ok(count) => {
                sent += count;
                last = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(5)),
            Err(error) => panic!("the connection has ended: {error}"),
        }
    }
    sent
}

#[test]
fn a_cancelled_request_is_cancelled_at_the_server() {
    let scene = Scene::new();
    let client = scene.client();
    let mut stream = client.asks("GET", "/long", "");
    let mut server = scene.accept().after_head();
    // H3_REQUEST_CANCELLED.
    stream.receive.stop(0x10c_u32.into()).expect("it is open");
    server.gets_the_end();
    // The connection continues.
    let mut next = client.asks("GET", "/next", "");
    let mut server = scene.accept().after_head();
    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(next.response().0.starts_with(":status: 200\n"));
}

#[test]
fn a_response_that_is_cut_off_ends_in_a_reset() {
    let scene = Scene::new();
    let client = scene.client();
    let mut stream = client.asks("GET", "/", "");
    let mut server = scene.accept().after_head();
    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    server.sends([b'x'; 200_000]);
    stream.head();
    drop(server);
    let mut got = stream.gets();
    while matches!(got, Got::Data(_)) {
        got = stream.gets();
    }
    // RFC 9114 §8.1: H3_INTERNAL_ERROR.
    assert_eq!(got, Got::Reset(0x102));
    scene.assert_failure("upstream-truncated", 1);
}

#[test]
fn a_stored_response_is_a_hit() {
    let scene = Scene::with("cache = { memory = \"16MB\" }\n[[route]]\nupstream = \"app\"\ncache = {}");
    let client = scene.client();
    let mut first = client.asks("GET", "/kept", "");
    let mut server = scene.accept().after_head();
    server.sends("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\n\r\nkept");
    assert_eq!(first.response().1, b"kept");
    let (head, body, _) = client.asks("GET", "/kept", "").response();
    assert!(head.contains("\nage: "), "{head}");
    assert_eq!(body, b"kept");
}

#[test]
fn files_and_errors_are_answered() {
    let scene = Scene::with("[[route]]\nfiles = { root = \"{dir}\" }");
    let body = long_body();
    fs::write(scene.file("long.bin"), &body).expect("it can be written");
    fs::write(scene.file("small.txt"), "small").expect("it can be written");
    let client = scene.client();
    let (head, small, _) = client.asks("GET", "/small.txt", "").response();
    assert!(head.starts_with(":status: 200\n") && small == b"small", "{head}");
    assert!(client.asks("GET", "/long.bin", "").response().1 == body, "the file is another");
    let (head, part, _) = client.asks("GET", "/long.bin", "range: bytes=1000000-1000009\n").response();
    assert!(head.starts_with(":status: 206\n") && part == body[1_000_000..1_000_010], "{head}");
    let (head, none, _) = client.asks("HEAD", "/long.bin", "").response();
    assert!(head.contains(&format!("content-length: {}\n", body.len())) && none.is_empty(), "{head}");
    let (head, text, _) = client.asks("GET", "/none", "").response();
    assert!(head.starts_with(":status: 404\n") && !text.is_empty(), "{head}");
}

#[test]
fn the_log_and_variables_name_the_version() {
    let scene = Scene::with(
        "[[route]]\nrespond = { status = 200 }\nresponse_headers = { set = { x-tls = \"$tls.version $tls.cipher $tls.alpn\" } }\n\
         capture = { file = \"{dir}/capture\" }\n[log]\ntarget = \"{dir}/log\"\nformat = \"json\"",
    );
    let client = scene.client();
    let (head, ..) = client.asks("GET", "/logged", "").response();
    assert!(head.contains("x-tls: TLSv1.3 TLS_") && head.contains(" h3\n"), "{head}");
    let logged = testkit::wait::holds_soon(|| {
        fs::read_to_string(scene.file("log")).is_ok_and(|log| log.contains("\"version\":\"3.0\""))
    });
    assert!(logged, "{:?}", fs::read_to_string(scene.file("log")));
    let captured = testkit::wait::holds_soon(|| {
        fs::read_to_string(scene.file("capture"))
            .is_ok_and(|text| text.contains("\"scheme\":\"https\"") && text.contains("\"version\":\"3\""))
    });
    assert!(captured, "{:?}", fs::read_to_string(scene.file("capture")));
}

#[test]
fn one_listener_takes_both_families_and_several_workers() {
    let scene = Scene::of(2, "address = \"*:0\"\nhttp3 = true", "[[route]]\nrespond = { status = 200 }");
    let port = scene.address().port();
    for address in [format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
        for _ in 0..4 {
            let client = H3TestClient::connect(address.parse().expect("is an address"));
            let (head, ..) = client.asks("GET", "/", "").response();
            assert!(head.starts_with(":status: 200\n"), "{head}");
        }
    }
}

#[test]
fn a_client_that_moves_goes_on() {
    let scene = Scene::of(4, "http3 = true", PLAIN);
    let client = scene.client();
    // Each socket has another port, so the kernel probably assigns it to another worker.
    for number in 0..12 {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        client.moves_to(socket);
        let mut stream = client.asks("GET", &format!("/{number}"), "");
        let mut server = scene.accept().after_head();
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        assert!(stream.response().0.starts_with(":status: 200\n"));
    }
    assert!(scene.running.counters().quic_passed_on > 0);
    assert_eq!(scene.running.counters().http3_connections, 1);
}

/// Conditions of options see the response to a request of HTTP/3.
#[test]
fn options_with_conditions_apply() {
    let scene = Scene::with(
        "[[route]]\nupstream = \"app\"\ndeny = { when = 'request.version == \"3\" && request.path == \"/no\"', status = 404 }\n\
         request_headers = { when = 'request.version == \"3\"', set = { X-Version = \"3\" } }\n\
         response_headers = { when = 'response.status == 201', set = { X-Made = \"yes\" } }\n\
         compress = { min_size = 0, when = 'response.headers[\"x-code\"] == \"yes\"' }\n",
    );
    let client = scene.client();
    assert!(client.asks("GET", "/no", "").response().0.starts_with(":status: 404\n"));
    for (status, code, made, coded) in [("200 OK", "no", false, false), ("201 Created", "yes", true, true)] {
        let mut stream = client.asks("GET", "/", "accept-encoding: gzip\n");
        let mut server = scene.accept();
        assert!(server.head().to_lowercase().contains("\r\nx-version: 3\r\n"));
        server.sends(format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: text/plain\r\nX-Code: {code}\r\nContent-Length: 2\r\n\r\nok"
        ));
        let (head, ..) = stream.response();
        assert_eq!(head.contains("x-made: yes\n"), made, "{head}");
        assert_eq!(head.contains("content-encoding: gzip\n"), coded, "{head}");
    }
}

/// Facts of the connection reach the conditions of routes.
#[test]
fn a_condition_sees_version_and_tls_session() {
    let route = |name: &str, when: &str| {
        format!(
            "[[route]]\nname = {name:?}\nwhen = '{when}'\nrespond = {{ status = 200, body = {name:?} }}\n"
        )
    };
    let scene = Scene::with(
        &[
            route("other", "request.version == \"1.1\" || client.tls.version == \"TLSv1.2\""),
            route(
                "third",
                "request.version == \"3\" && client.tls.version == \"TLSv1.3\" && !has(client.tls.subject)",
            ),
        ]
        .concat(),
    );
    assert_eq!(scene.client().asks("GET", "/", "").response().1, b"third");
}
