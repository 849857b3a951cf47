//! Requests: persistence, pipelining, bodies, rejections.

use std::io::Write;
use std::net::Shutdown;

use super::client::{Client, pattern, start};

#[test]
fn rfc9112_9_3_a_connection_serves_many_requests_and_closes_when_asked() {
    let running = start();
    let mut client = Client::connect(&running);
    for _ in 0..3 {
        assert_eq!(client.get("/tiny").body, pattern(0, 128));
        assert_eq!(client.get("/blank/5").body, pattern(0, 5));
    }
    let last = client.request("GET", "/tiny", "Connection: close\r\n");
    assert_eq!((last.status, last.field("Connection")), (200, Some("close")));
    client.assert_closed();
    assert_eq!(running.stats().connections, 1);
}

#[test]
fn rfc9112_9_3_http_1_0_closes_unless_asked_to_stay() {
    let running = start();
    let mut client = Client::connect(&running);
    client.send("GET /tiny HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.response("GET").field("Connection"), Some("keep-alive"));
    client.send("GET /tiny HTTP/1.0\r\n\r\n");
    let last = client.response("GET");
    assert_eq!((last.field("Connection"), last.body.len()), (Some("close"), 128));
    client.assert_closed();
}

#[test]
fn rfc9112_9_3_2_pipelined_requests_are_answered_in_order() {
    let running = start();
    let mut client = Client::connect(&running);
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
    let post = "POST /echo-body HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    client.send([&get("/tiny"), &get("/blank/7"), post, &get("/delay/20ms"), &get("/hello.html")].concat());
    let lengths: Vec<_> = (0..5).map(|_| client.response("GET").body.len()).collect();
    assert_eq!(lengths, [128, 7, 4, "after 20ms\n".len(), 42]);
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let running = start();
    let mut client = Client::connect(&running);
    let request =
        b"\r\nPOST /echo-body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for byte in request {
        client.send([*byte]);
    }
    assert_eq!(client.response("POST").body, b"abc");
    assert_eq!(client.get("/tiny").status, 200);
}

#[test]
fn a_body_that_a_page_does_not_need_is_read_over() {
    let running = start();
    let mut client = Client::connect(&running);
    for body in [
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n",
    ] {
        for target in ["/tiny", "/nowhere", "/status/200", "/blank/x"] {
            client.send(format!("POST {target} HTTP/1.1\r\nHost: a\r\n{body}"));
            assert!(client.response("POST").status != 0);
        }
    }
    assert_eq!(client.get("/tiny").status, 200);
    assert_eq!((running.stats().connections, running.stats().body_bytes), (1, 40));
}

#[test]
fn rfc9110_10_1_1_expect_100_continue() {
    let running = start();
    let mut client = Client::connect(&running);
    for target in ["/echo-body", "/tiny"] {
        client.send(format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        ));
        assert_eq!(client.response("POST").head, "HTTP/1.1 100 Continue\r\n\r\n");
        client.send("hello");
        assert_eq!(client.response("POST").status, 200);
    }
    // The body was sent already, so there is no 100.
    client.send("POST /echo-body HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nhi");
    assert_eq!(client.response("POST").status, 200);
    // Without a body there is no 100.
    assert_eq!(client.request("GET", "/tiny", "Expect: 100-continue\r\n").status, 200);
}

#[test]
fn rfc9112_3_2_2_the_absolute_form_is_served() {
    let running = start();
    assert_eq!(Client::connect(&running).get("http://elsewhere.test/blank/3").body.len(), 3);
}

#[test]
fn rfc9110_9_methods() {
    let running = start();
    let mut client = Client::connect(&running);
    assert_eq!(client.request("OPTIONS", "*", "").status, 204);
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        assert_eq!(client.request(method, "/tiny", "").status, 200, "{method}");
    }
    let trace = client.request("TRACE", "/tiny", "");
    assert_eq!(trace.status, 405);
    assert!(trace.field("Allow").is_some());
    assert_eq!(client.request("CONNECT", "a.test:443", "").status, 405);
}

#[test]
fn what_is_malformed_is_refused_and_the_connection_closed() {
    let running = start();
    let cases: &[(&str, u16)] = &[
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n folded\r\n\r\n", 400),
        ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET tiny HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /tiny HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
        (
            "POST /tiny HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("POST /tiny HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        ("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", 400),
        ("POST /tiny HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("\x16\x03\x01", 400),
    ];
    for (request, status) in cases {
        let mut client = Client::connect(&running);
        client.send(request);
        let response = client.response("GET");
        assert_eq!((response.status, response.field("Connection")), (*status, Some("close")), "{request:?}");
        client.assert_closed();
    }
    assert_eq!(running.stats().requests_refused, cases.len() as u64);
    let mut client = Client::connect(&running);
    assert_eq!(client.request("GET", "/", &"X: y\r\n".repeat(600)).status, 431);
}

#[test]
fn a_head_beyond_the_limit_is_refused_and_one_within_is_served() {
    let running = start();
    let mut client = Client::connect(&running);
    let long = format!("X: {}\r\n", "y".repeat(120 * 1024));
    assert_eq!(client.request("GET", "/tiny", &long).status, 200);
    let longer = format!("X: {}\r\n", "y".repeat(200 * 1024));
    assert_eq!(client.request("GET", "/tiny", &longer).status, 431);
}

#[test]
fn a_client_that_goes_within_a_request_is_no_error() {
    let running = start();
    for part in ["", "GET /ti", "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe"] {
        let mut client = Client::connect(&running);
        client.send(part);
        client.stream().shutdown(Shutdown::Write).expect("is connected");
        client.assert_closed();
    }
    assert_eq!(running.stats().requests_refused, 0);
}

#[test]
fn a_large_body_goes_through_a_bounded_buffer() {
    let running = start();
    let mut client = Client::connect(&running);
    let piece = pattern(0, 1 << 20);
    client.send(format!("POST /tiny HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", piece.len() * 64));
    let mut stream = client.stream();
    for _ in 0..64 {
        stream.write_all(&piece).expect("the origin takes it");
    }
    assert_eq!(client.response("POST").status, 200);
    assert_eq!(running.stats().body_bytes, 64 << 20);
}
