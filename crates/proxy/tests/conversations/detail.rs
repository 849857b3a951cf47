//! The log of rejected messages: it identifies their sender, and states what is wrong.

use std::time::Duration;

use config::{LogFormat, QueueSettings, Route};
use serde_json::Value;
use testkit::text::GET;

use super::log::{logged, logged_with};
use super::scene::Scene;

/// Returns the log lines of these requests, each on a separate connection, whatever the response is.
fn requests(sent: &[&str]) -> Vec<Value> {
    let lines = logged(LogFormat::Json, |scene| {
        for request in sent {
            let mut client = scene.client().saying(request);
            let (answer, _) = client.rest();
            assert!(answer.starts_with(b"HTTP/1.1 "), "{}", answer.escape_ascii());
        }
    });
    lines.iter().map(|line| serde_json::from_str(line).expect("is JSON")).collect()
}

/// Returns the log lines of requests whose server sends these answers.
fn answers(sent: &[&str]) -> Vec<Value> {
    let lines = logged(LogFormat::Json, |scene: &Scene| {
        for answer in sent {
            let mut client = scene.client();
            client.sends(GET.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1));
            let mut server = scene.accept(0).after_head();
            server.sends(answer);
            let (answer, _) = client.rest();
            assert!(answer.starts_with(b"HTTP/1.1 "), "{}", answer.escape_ascii());
        }
    });
    lines.iter().map(|line| serde_json::from_str(line).expect("is JSON")).collect()
}

fn assert_told(lines: &[Value], expected: &[(&str, &str)]) {
    let told: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| (line["cause"].as_str().unwrap_or("-"), line["detail"].as_str().unwrap_or("-")))
        .collect();
    assert_eq!(told, expected);
}

#[test]
fn a_request_that_is_refused_is_told_by_field_and_rule() {
    let many = format!("GET /many HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(300));
    let method = format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "M".repeat(65));
    let options = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: {}\r\n\r\n", "a,".repeat(600));
    let lines = requests(&[
        "GET /orders/17 HTTP/1.1\r\nHost: www\r\nX-Trace(id): 1\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: www\r\nAuthorization: Basic c2VjcmV0\x01\r\n\r\n",
        "GET /b c HTTP/1.1\r\nHost: www\r\n\r\n",
        "POST /c HTTP/1.1\r\nHost: www\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST /d HTTP/1.1\r\nHost: www\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n",
        "GET /e HTTP/1.1\r\nHost: a b\r\n\r\n",
        &many,
        &options,
        &method,
        "\x16\x03\x01\x02\x00\x01",
    ]);
    assert_told(
        &lines,
        &[
            ("bad-request", "the field 'X-Trace(id)' has '(' in its name (RFC 9110 §5.1)"),
            (
                "bad-request",
                "the field 'Authorization' contains the byte 0x01 at 29, which a value must not contain (RFC 9110 \
                 §5.5)",
            ),
            (
                "bad-request",
                "the request line that begins with 'GET' is not method, target and version with single spaces \
                 (RFC 9112 §3)",
            ),
            ("bad-framing", "there is more than one Content-Length: '1' and '2' (RFC 9112 §6.3)"),
            (
                "bad-body",
                "in the chunks, at 'xyz\\r\\n': a chunk size that is missing or not hexadecimal (RFC 9112 §7.1)",
            ),
            ("bad-host", "Host 'a b' is not host[:port] (RFC 3986 §3.2.2)"),
            ("head-too-large", "there are more header fields than limits.header_count, 256"),
            ("head-too-large", "the options of Connection are longer than 1024 bytes"),
            (
                "method-too-long",
                "the method 'MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMM...' is longer than 64 bytes",
            ),
            ("bad-request", "the client began a TLS handshake, but this port has no TLS"),
        ],
    );
    // Method, target and other parsed fields are logged, too.
    for (line, method, target, version, host) in [
        (&lines[0], "GET", "/orders/17", "1.1", "www"),
        (&lines[2], "GET", "/b c", "1.1", ""),
        (&lines[4], "POST", "/d", "1.1", "www"),
        (&lines[6], "GET", "/many", "1.1", ""),
    ] {
        let seen =
            ["method", "target", "version", "host"].map(|name| line[name].as_str().unwrap_or_default());
        assert_eq!(seen, [method, target, version, host], "{line}");
    }
    assert_eq!(lines[0]["bytes_received"], 54, "{}", lines[0]);
    assert_eq!(lines[8]["status"], 501, "{}", lines[8]);
    assert_eq!((&lines[9]["method"], &lines[9]["version"]), (&Value::Null, &Value::Null), "{}", lines[9]);
    assert!(!lines.iter().any(|line| line.to_string().contains("c2VjcmV0")), "secrets stay out of it");
}

#[test]
fn an_answer_that_is_refused_is_told_by_field_and_rule() {
    let long = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "x".repeat(70_000));
    let interims = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(40);
    let lines = answers(&[
        "HTTP/1.1 200 OK\r\nX Trace: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nSet-Cookie secret\r\n\r\n",
        &long,
        &interims,
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n",
    ]);
    assert_told(
        &lines,
        &[
            ("upstream-malformed", "the field 'X Trace' has a space in its name (RFC 9110 §5.1)"),
            (
                "upstream-framing",
                "there is more than one Transfer-Encoding: 'chunked' and 'chunked' (RFC 9112 §6.1)",
            ),
            (
                "upstream-framing",
                "in the chunks, at 'no\\r\\n': a chunk size that is missing or not hexadecimal (RFC 9112 §7.1)",
            ),
            (
                "upstream-framing",
                "in the chunks, at 'Set-Cookie': a trailer line that is not a field (RFC 9112 §7.1.2)",
            ),
            ("upstream-head-too-large", "the head is larger than limits.header_bytes, 65536 bytes"),
            ("upstream-interims", "more than 32 interim responses"),
            (
                "upstream-switch",
                "an invalid 101: not requested, to another protocol, with a wrong Sec-WebSocket-Accept, or before \
                 the end of the request (RFC 9110 §7.8, RFC 6455 §4.1)",
            ),
            (
                "upstream-malformed",
                "the status line 'SSH-2.0-OpenSSH_9.6' does not begin with HTTP/1 (RFC 9112 §4)",
            ),
        ],
    );
}

#[test]
fn a_wait_that_is_over_is_told_by_its_option() {
    const SHORT: Duration = Duration::from_millis(300);
    const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nConnection: close\r\n\r\nabc";
    let talk = |scene: &Scene| {
        let mut client = scene.client().saying(POST);
        let _server = scene.accept(0);
        assert_eq!(client.message().status(), 408);
        client.rest();
        // An answer that does not begin, and one that does not continue.
        for answer in ["", "HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\nabc"] {
            let mut client = scene.client();
            client.sends(GET.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1));
            let mut server = scene.accept(0).after_head();
            server.sends(answer);
            client.rest();
        }
    };
    let told = |of: &str| {
        [
            (
                "client-body-timeout",
                format!("the client sent no more of the body within timeouts.client_body{of}, 300ms"),
            ),
            (
                "upstream-timeout",
                format!("the server did not begin to answer within timeouts.upstream_first_byte{of}, 300ms"),
            ),
            (
                "upstream-stalled",
                format!("the server sent no more data within timeouts.upstream_body{of}, 300ms"),
            ),
        ]
    };
    let all = logged_with(
        LogFormat::Json,
        |config| {
            config.timeouts.client_body = SHORT;
            config.timeouts.upstream_first_byte = SHORT;
            config.timeouts.upstream_body = SHORT;
        },
        talk,
    );
    let own = logged_with(
        LogFormat::Json,
        |config| {
            let timeouts = &mut config.routes[0].policies.timeouts;
            timeouts.client_body = Some(SHORT);
            timeouts.upstream_first_byte = Some(SHORT);
            timeouts.upstream_body = Some(SHORT);
        },
        talk,
    );
    for (lines, of) in [(all, ""), (own, " of the route")] {
        let lines: Vec<Value> =
            lines.iter().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
        let told = told(of);
        assert_told(&lines, &told.each_ref().map(|(cause, detail)| (*cause, detail.as_str())));
    }
}

#[test]
fn an_answer_that_ends_early_is_told_with_how_much_came() {
    let lines = logged(LogFormat::Json, |scene: &Scene| {
        // The first body is awaited completely, and not retried.
        for (answer, begins) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "HTTP/1.1 502"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\nhello", "HTTP/1.1 200"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "HTTP/1.1 200"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "HTTP/1.1 200"),
        ] {
            let mut client = scene.client();
            client.sends(GET.replacen("GET", "POST", 1).replacen(
                "\r\n\r\n",
                "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                1,
            ));
            let mut server = scene.accept(0).after_head();
            server.sends(answer);
            if begins.ends_with("200") {
                client.head();
            }
            drop(server);
            client.rest();
        }
    });
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
    assert_told(
        &lines,
        &[
            ("upstream-truncated", "4 of 5 bytes (Content-Length) arrived"),
            ("upstream-truncated", "5 of 50000 bytes (Content-Length) arrived"),
            ("upstream-truncated", "the body broke off after 5 bytes, before its end"),
            ("upstream-truncated", "the body broke off after 3 bytes, before its end"),
        ],
    );
}

#[test]
fn a_path_that_is_read_in_two_ways_is_told_by_what_is_in_it() {
    let lines = logged_with(
        LogFormat::Json,
        |config| config.routes.push(Route::to(None, "/api", 0).into()),
        |scene| {
            for path in ["/x/../api", "/api%5Cx", "/x/..%5Capi;v=1?a=..;"] {
                let mut client = scene.client();
                client.sends(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
                client.rest();
            }
        },
    );
    let told = [
        "dot segments, which some servers resolve",
        "a backslash, which some take for a slash",
        "dot segments, which some servers resolve and a backslash, which some take for a slash and a parameter (;), which \
         some cut off",
    ]
    .map(|doubts| format!("the path contains {doubts}: a server might read it as another path"));
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
    assert_told(&lines, &told.each_ref().map(|detail| ("ambiguous-path", detail.as_str())));
}

#[test]
fn a_wait_for_a_server_with_room_is_told_by_its_option() {
    let lines = logged_with(
        LogFormat::Json,
        |config| {
            config.upstreams[0].name = "app".to_owned();
            config.upstreams[0].servers[0].max_requests = 1.try_into().ok();
            config.upstreams[0].queue = QueueSettings { length: 1, timeout: Duration::from_millis(100) };
        },
        |scene| {
            let [mut first, mut second] = [scene.client(), scene.client()];
            first.sends(GET);
            let mut server = scene.accept(0).after_head();
            second.sends(GET);
            assert_eq!(second.message().status(), 503);
            server.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(first.message().status(), 200);
        },
    );
    let line: Value = serde_json::from_str(&lines[0]).expect("is JSON");
    assert_told(&[line], &[("queue-timeout", "no server had room within queue.timeout of 'app', 100ms")]);
}

#[test]
fn a_request_without_room_is_told_by_the_limit_that_it_meets() {
    type Change = fn(&mut config::Settings);
    let limits: [(Change, &str); 2] = [
        (
            |config| {
                config.upstreams[0].name = "app".to_owned();
                config.upstreams[0].servers[0].max_requests = 1.try_into().ok();
                config.upstreams[0].queue.length = 0;
            },
            "no server has room, and the queue of 'app' is full: queue.length, 0",
        ),
        (
            |config| config.upstreams[0].pool.connections = 1,
            "all connections that the server may have are in use: pool.connections, 1",
        ),
    ];
    for (change, detail) in limits {
        let lines = logged_with(LogFormat::Json, change, |scene| {
            let [mut first, mut second] = [scene.client(), scene.client()];
            first.sends(GET);
            let mut server = scene.accept(0).after_head();
            second.sends(GET);
            assert_eq!(second.message().status(), 503);
            server.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(first.message().status(), 200);
        });
        let line: Value = serde_json::from_str(&lines[0]).expect("is JSON");
        assert_told(&[line], &[("upstream-full", detail)]);
    }
}
