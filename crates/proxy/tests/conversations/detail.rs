//! Messages that are refused: what the log tells of them is enough to find who sends them, and what is wrong with them.

use config::LogFormat;
use serde_json::Value;

use crate::log::logged;
use crate::scene::Scene;
use crate::text::GET;

/// What the log says of each of these requests, each on a connection of its own, whatever it is answered.
fn requests(sent: &[&str]) -> Vec<Value> {
    let lines = logged(LogFormat::Json, |scene| {
        for request in sent {
            let mut client = scene.client();
            client.sends(request);
            let (answer, _) = client.rest();
            assert!(answer.starts_with(b"HTTP/1.1 "), "{}", answer.escape_ascii());
        }
    });
    lines.iter().map(|line| serde_json::from_str(line).expect("is JSON")).collect()
}

/// What the log says of a request whose server gives this answer.
fn answers(sent: &[&str]) -> Vec<Value> {
    let lines = logged(LogFormat::Json, |scene: &Scene| {
        for answer in sent {
            let mut client = scene.client();
            client.sends(GET.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1));
            let mut server = scene.accept(0);
            server.gets_head();
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
                "the field 'Authorization' holds the byte 0x01 at 29, which no value does (RFC 9110 §5.5)",
            ),
            (
                "bad-request",
                "the request line, that begins with 'GET', is not method, target and version with one space between \
                 (RFC 9112 §3)",
            ),
            ("bad-framing", "there is more than one Content-Length: '1' and '2' (RFC 9112 §6.3)"),
            (
                "bad-body",
                "in the chunks, at 'xyz\\r\\n': no chunk size, which is hexadecimal (RFC 9112 §7.1)",
            ),
            ("bad-host", "Host 'a b' is not host[:port] (RFC 3986 §3.2.2)"),
            ("head-too-large", "there are more header fields than limits.header_count, 256"),
            ("head-too-large", "the options of Connection are longer than 1024 bytes"),
            (
                "method-too-long",
                "the method 'MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMM...' is longer than 64 bytes",
            ),
            ("bad-request", "it begins as TLS does, and this port is spoken to in the clear"),
        ],
    );
    // Method, target and what else was read are there as well.
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
                "in the chunks, at 'no\\r\\n': no chunk size, which is hexadecimal (RFC 9112 §7.1)",
            ),
            (
                "upstream-framing",
                "in the chunks, at 'Set-Cookie': a trailer line that is no field (RFC 9112 §7.1.2)",
            ),
            ("upstream-head-too-large", "the head is larger than limits.header_bytes, 65536 bytes"),
            ("upstream-interims", "more than 32 interim responses"),
            (
                "upstream-switch",
                "a 101 that was not asked for, to another protocol, with a Sec-WebSocket-Accept that is not of the \
                 key, or before the end of the request (RFC 9110 §7.8, RFC 6455 §4.1)",
            ),
            (
                "upstream-malformed",
                "the status line 'SSH-2.0-OpenSSH_9.6' does not begin with HTTP/1 (RFC 9112 §4)",
            ),
        ],
    );
}
