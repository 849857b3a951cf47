//! Access log lines of HTTP/2 requests, on both sides.

use config::{AccessLog, LogFormat, LogTarget, Protocol};
use serde_json::Value;
use testkit::http2::frame::{
    H2Frame, INITIAL_WINDOW_SIZE, block, data, headers, last_data, last_headers, raw, reset,
};

use super::scene::Scene;

/// Returns the log of a conversation; `protocol` is the server's version.
pub(crate) fn logged(protocol: Protocol, talk: impl FnOnce(&Scene)) -> Vec<Value> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("access.log");
    let scene = Scene::with(protocol, 1, |config| {
        config.access_logs = vec![AccessLog::new(LogTarget::File(path.clone()), LogFormat::Json)];
    });
    talk(&scene);
    let Scene { running, .. } = scene;
    running.drain();
    running.wait();
    let text = std::fs::read_to_string(&path).expect("the log is there");
    text.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect()
}

const GET: &str = ":method: GET\n:scheme: http\n:authority: test\n:path: /\n";

#[test]
fn bytes_that_never_left_are_not_counted() {
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n{}", "b".repeat(50_000));
    for (window, gives_up) in [(0, true), (0, false), (700, true), (700, false)] {
        let lines = logged(Protocol::Http1, |scene| {
            let mut client = scene.client_with(&[(INITIAL_WINDOW_SIZE, window)]);
            client.takes_all = false;
            client.sends(last_headers(1, GET));
            let mut server = scene.accept1().after_head();
            server.sends(&answer);
            client.next_on(1);
            let mut got = 0;
            while got < window {
                let H2Frame::Data { bytes, .. } = client.next_on(1) else { panic!("no data") };
                got += bytes.len() as u32;
            }
            if gives_up {
                client.sends(reset(1, 8));
                client.is_heard();
            }
            drop((client, server));
        });
        let sent = &lines[0]["body_bytes_sent"];
        assert_eq!((&lines[0]["status"], sent), (&200.into(), &window.into()), "{}", lines[0]);
        assert_eq!(lines[0]["cause"], "client-gone", "{}", lines[0]);
    }
}

#[test]
fn an_upgraded_stream_is_logged_as_its_client_sees_it() {
    let connect = ":method: CONNECT\n:protocol: chat\n:scheme: http\n:authority: test\n:path: /chat\n";
    let lines = logged(Protocol::Http1, |scene| {
        let mut client = scene.client().saying(headers(1, connect));
        let mut server = scene.accept1().after_head();
        server.sends("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n");
        client.next_on(1);
        client.sends(last_data(1, ""));
        server.gets_the_end();
        drop(server);
        client.whole(1);
        // A protocol that the server rejects.
        client.sends(headers(3, connect));
        let mut server = scene.accept1().after_head();
        server.sends("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
        client.next_on(3);
    });
    let told: Vec<_> = lines.iter().map(|line| (&line["method"], &line["target"], &line["status"])).collect();
    let (method, target) = (Value::from("CONNECT"), Value::from("/chat"));
    assert_eq!(told, [(&method, &target, &200.into()), (&method, &target, &403.into())]);
}

#[test]
fn a_call_that_no_server_answers_gets_a_head_with_the_status_of_grpc_and_no_more() {
    let scene = Scene::with(Protocol::Http2, 1, |config| {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
        let address = gone.local_addr().expect("it listens");
        config.upstreams[0].servers = vec![format!("http://{address}").parse().expect("is a URL")];
    });
    let mut client = scene.client();
    let call = format!("{}content-type: application/grpc\nte: trailers\n", GET.replace("GET", "POST"));
    client.sends([headers(1, &call), last_data(1, "\0\0\0\0\0")].concat());
    let H2Frame::Headers { fields, ends, .. } = client.next_on(1) else { panic!("no head") };
    assert!(ends, "trailers alone");
    for line in [
        ":status: 200",
        "content-type: application/grpc",
        "grpc-status: 14",
        "grpc-message: The server could not be reached.",
    ] {
        assert!(fields.lines().any(|found| found == line), "{line} in {fields}");
    }
}

const FIELDS: &str = ":method: POST\n:scheme: http\n:authority: test\n:path: /a?b\nreferer: http://from/\n\
                      user-agent: me\n";

#[test]
fn a_stream_is_logged_like_any_request() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("access.log");
    let scene = Scene::with(Protocol::Http2, 1, |config| {
        let target = LogTarget::File(path.clone());
        config.access_logs = vec![AccessLog::new(target, LogFormat::Json)];
    });
    let mut client = scene.client().saying([headers(1, FIELDS), last_data(1, "hello")].concat());
    let mut server = scene.accept();
    server.whole(1);
    server.sends([headers(1, ":status: 200\ndate: D\n"), last_data(1, "ok")].concat());
    client.whole(1);
    client.sends(last_headers(3, &FIELDS.replace("POST", "GET")));
    server.whole(3);
    server.sends(last_headers(3, ":status: 204\ndate: D\n"));
    client.whole(3);
    drop((client, server));
    let Scene { running, .. } = scene;
    running.drain();
    running.wait();

    let text = std::fs::read_to_string(&path).expect("the log is there");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    for (line, method, status) in [(&lines[0], "POST", 200), (&lines[1], "GET", 204)] {
        for (name, value) in [
            ("method", method),
            ("target", "/a?b"),
            ("version", "2.0"),
            ("host", "test"),
            ("referer", "http://from/"),
            ("user_agent", "me"),
            ("upstream", "default"),
        ] {
            assert_eq!(line[name], value, "{name} in {line}");
        }
        assert_eq!(line["status"], status, "{line}");
        assert_eq!(line["cause"], Value::Null, "{line}");
    }
    assert_eq!(
        (&lines[0]["body_bytes_sent"], &lines[1]["body_bytes_sent"]),
        (&2.into(), &0.into()),
        "{text}"
    );
}

#[test]
fn a_request_that_is_refused_is_told_by_field_and_rule() {
    let lines = logged(Protocol::Http1, |scene| {
        let mut client = scene.client();
        for (stream, fields) in [
            (1, "X-Upper: a\n"),
            (3, "connection: close\n"),
            (5, "te: gzip\n"),
            (7, "authorization: secret \n"),
        ] {
            client.sends(last_headers(stream, &format!("{}{fields}", GET.replace(": /", ": /orders"))));
            client.gets_reset(stream, 1);
        }
        client.sends(last_headers(9, &GET.replace(":path: /\n", "")));
        client.gets_reset(9, 1);
        client.sends(last_headers(11, &format!("{GET}host: other\n")));
        client.next_on(11);
        let method = "M".repeat(65);
        client.sends(last_headers(15, &GET.replace("GET", &method)));
        let H2Frame::Headers { fields, .. } = client.next_on(15) else { panic!("no head") };
        assert!(fields.starts_with(":status: 501\n"), "{fields}");
        client.sends(
            [headers(17, &format!("{}content-length: 2\n", GET.replace("GET", "PUT"))), last_data(17, "abc")]
                .concat(),
        );
        client.gets_reset(17, 1);
        client.is_heard();
        // A connection error is logged, too: a window update of zero.
        client.sends([0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        client.ends();
    });
    let told: Vec<_> = lines
        .iter()
        .filter(|line| line["detail"].as_str().is_some_and(|detail| !detail.contains("content-length")))
        .map(|line| (line["cause"].as_str().unwrap_or("-"), line["detail"].as_str().unwrap_or("-")))
        .collect();
    let expected = [
        (
            "http2-malformed",
            "reset with PROTOCOL_ERROR: 'X-Upper' is no field name in lower case (RFC 9113 §8.2.1)",
        ),
        (
            "http2-malformed",
            "reset with PROTOCOL_ERROR: the field 'connection' belongs to a connection of HTTP/1.1 (RFC 9113 §8.2.2)",
        ),
        (
            "http2-malformed",
            "reset with PROTOCOL_ERROR: te is 'gzip', and may be 'trailers' alone (RFC 9113 §8.2.2)",
        ),
        (
            "http2-malformed",
            "reset with PROTOCOL_ERROR: the value of 'authorization' holds a byte that no value has, or begins or ends with white space (RFC 9113 §8.2.1)",
        ),
        (
            "http2-malformed",
            "reset with PROTOCOL_ERROR: the pseudo-header fields make no message (RFC 9113 §8.3): :method 'GET', :scheme 'http', :path none, :status none",
        ),
        ("bad-request", "host is 'other', and :authority 'test' (RFC 9113 §8.3.1)"),
        (
            "method-too-long",
            "the method 'MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMM...' is longer than 64 bytes",
        ),
        (
            "http2-malformed",
            "ended with PROTOCOL_ERROR for WINDOW_UPDATE of 4 bytes on stream 0 with flags 0x00: a window increment is not 0 (RFC 9113 §6.9)",
        ),
    ];
    assert_eq!(told, expected);
    assert_eq!(
        (&lines[0]["method"], &lines[0]["target"], &lines[0]["host"]),
        (&"GET".into(), &"/orders".into(), &"test".into())
    );
    let lying =
        |line: &&Value| line["detail"].as_str().is_some_and(|detail| detail.contains("content-length"));
    assert_eq!(
        lines.iter().filter(lying).map(|line| line["cause"].clone()).collect::<Vec<_>>(),
        ["http2-malformed"]
    );
}

#[test]
fn an_answer_that_is_refused_is_told_by_field_and_rule() {
    let lines = logged(Protocol::Http2, |scene| {
        let mut client = scene.client().saying(last_headers(1, GET));
        let mut server = scene.accept();
        server.whole(1);
        server.sends(last_headers(1, ":status: 200\nX Trace: 1\n"));
        client.whole(1);
        client.sends(last_headers(3, GET));
        server.whole(3);
        server.sends([0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        client.whole(3);
    });
    let told: Vec<_> = lines.iter().map(|line| (&line["status"], &line["cause"], &line["detail"])).collect();
    let malformed = Value::from("upstream-malformed");
    let details = [
        "'X Trace' is no field name in lower case (RFC 9113 §8.2.1)",
        "the connection ended for WINDOW_UPDATE of 4 bytes on stream 0 with flags 0x00: a window increment is not 0 (RFC 9113 §6.9)",
    ]
    .map(Value::from);
    let status = Value::from(502);
    assert_eq!(told, [(&status, &malformed, &details[0]), (&status, &malformed, &details[1])]);
}

#[test]
fn an_answer_that_ends_early_is_told_with_how_much_came() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let lines = logged(protocol, |scene| {
            let mut client = scene.client().saying(last_headers(1, GET));
            if protocol == Protocol::Http1 {
                let mut server = scene.accept1().after_head();
                server.sends("HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\nabc");
                client.next_on(1);
            } else {
                let mut server = scene.accept();
                server.whole(1);
                server.sends(headers(1, ":status: 200\ncontent-length: 50000\n"));
                server.sends(data(1, "abc"));
                client.next_on(1);
                server.sends(reset(1, 2));
                client.next_on(1);
            }
            client.next_on(1);
        });
        assert_eq!(lines[0]["cause"], "upstream-truncated", "{}", lines[0]);
        let code = if protocol == Protocol::Http2 { "; it reset the stream with INTERNAL_ERROR" } else { "" };
        let detail = format!("3 of 50000 bytes (Content-Length) arrived{code}");
        assert_eq!(lines[0]["detail"], detail, "{protocol:?}");
    }
}

#[test]
fn what_is_wrong_with_the_trailers_of_an_answer_is_told() {
    let lines = logged(Protocol::Http2, |scene| {
        let mut client = scene.client();
        let mut server = None;
        let too_large = raw(1, 5, 1, &bomb());
        let malformed = last_headers(3, ":path: /\n");
        for (stream, trailers) in [(1, too_large), (3, malformed)] {
            client.sends(last_headers(stream, GET));
            let server = server.get_or_insert_with(|| scene.accept());
            server.whole(stream);
            server.sends(headers(stream, ":status: 200\n"));
            server.sends(data(stream, "abc"));
            client.next_on(stream);
            client.next_on(stream);
            server.sends(trailers);
            client.next_on(stream);
        }
    });
    let told: Vec<_> = lines.iter().map(|line| (&line["cause"], &line["detail"])).collect();
    let too_large =
        "in the trailers: with the field 'x' the head is larger than limits.header_bytes, 65536 bytes";
    let malformed = "in the trailers: the pseudo-header fields make no message (RFC 9113 §8.3): :method none, \
                     :scheme none, :path one of 1 bytes, :status none";
    let expected = [("upstream-head-too-large", too_large), ("upstream-truncated", malformed)]
        .map(|(cause, detail)| (Value::from(cause), Value::from(detail)));
    assert_eq!(told, expected.each_ref().map(|(cause, detail)| (cause, detail)));
}

/// A field of 4,000 bytes, referenced 60 times: small on the wire, large when decoded.
fn bomb() -> Vec<u8> {
    let mut bomb = vec![0x40, 1, b'x', 127, 0xa1, 0x1e];
    bomb.extend([b'y'; 4000]);
    bomb.extend([0x80 | 62; 60]);
    bomb
}

#[test]
fn an_answer_with_too_large_a_head_is_told_as_such_with_the_limit() {
    let head = |fields: &str| [block(fields), bomb()].concat();
    let lines = logged(Protocol::Http2, |scene| {
        let mut client = scene.client().saying(last_headers(1, GET));
        let mut server = scene.accept();
        server.whole(1);
        server.sends(raw(1, 4, 1, &head(":status: 200\n")));
        assert!(client.whole(1).starts_with(":status: 502\n"));
        // Each interim response fits, but not all unread ones together.
        client.sends(last_headers(3, GET));
        server.whole(3);
        let interim = [block(":status: 103\n"), vec![0x80 | 62; 12]].concat();
        server.sends(raw(1, 4, 3, &interim).repeat(3));
        let answer = client.whole(3);
        assert!(answer.contains(":status: 502\n"), "{answer:.300}");
    });
    let told: Vec<_> = lines.iter().map(|line| (&line["cause"], &line["detail"])).collect();
    let cause = Value::from("upstream-head-too-large");
    let details = [
        "with the field 'x' the head is larger than limits.header_bytes, 65536 bytes",
        "interim responses are larger than limits.header_bytes, 65536 bytes",
    ]
    .map(Value::from);
    assert_eq!(told, [(&cause, &details[0]), (&cause, &details[1])]);
}

#[test]
fn a_call_that_is_refused_for_its_head_gets_a_status_of_grpc() {
    const CALL: &str = "content-type: application/grpc+proto\n";
    let post = GET.replace("GET", "POST");
    let head = |parts: &[&[u8]]| parts.concat();
    // The content type counts even behind the field that is too large.
    let too_large =
        [head(&[&block(&format!("{post}{CALL}")), &bomb()]), head(&[&block(&post), &bomb(), &block(CALL)])];
    let twice =
        [format!("{post}{CALL}host: test\nhost: test\n"), format!("{post}host: test\nhost: test\n{CALL}")];
    let untold = twice.map(|fields| block(&fields));
    let lines = logged(Protocol::Http1, |scene| {
        let mut client = scene.client();
        let mut stream = 1;
        for (blocks, status, message) in [
            (&too_large, 2, "The request header fields are too large."),
            (&untold, 13, "The request is not valid HTTP."),
        ] {
            for block in blocks {
                client.sends(raw(1, 5, stream, block));
                let H2Frame::Headers { fields, ends, .. } = client.next_on(stream) else { panic!("no head") };
                let expected = format!(
                    ":status: 200\ncontent-type: application/grpc+proto\ngrpc-status: {status}\ngrpc-message: {message}\n"
                );
                assert_eq!((fields, ends), (expected, true));
                stream += 2;
            }
        }
        // A request that merely resembles gRPC gets a plain error.
        client.sends(raw(
            1,
            5,
            stream,
            &head(&[&block(&post), &bomb(), &block("content-type: application/grpcs\n")]),
        ));
        assert!(client.whole(stream).starts_with(":status: 431\n"));
    });
    let told: Vec<_> = lines.iter().map(|line| (&line["status"], line["cause"].as_str())).collect();
    let (large, bad) = (Some("head-too-large"), Some("bad-request"));
    let (ok, too_large) = (Value::from(200), Value::from(431));
    assert_eq!(told, [(&ok, large), (&ok, large), (&ok, bad), (&ok, bad), (&too_large, large)]);
}
