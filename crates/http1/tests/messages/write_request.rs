//! Requests written for servers, byte for byte.

use std::net::IpAddr;

use http1::{
    BodyFraming, Chain, ConnectionOptions, ForwardedSender, RequestRewrite, RequestTarget, Via,
    request_framing,
};

use crate::parse_request;

/// The request that the server gets from the proxy, for a request of this client.
pub(crate) fn written(bytes: &[u8], address: &str, is_trusted: bool, host: Option<&str>) -> String {
    written_with(bytes, address, is_trusted, host, b"")
}

/// `written` with additional lines.
fn written_with(bytes: &[u8], address: &str, is_trusted: bool, host: Option<&str>, added: &[u8]) -> String {
    let head = parse_request(bytes).unwrap();
    let target = RequestTarget::from_head(&head, bytes).unwrap();
    let connection = ConnectionOptions::from_head(&head, bytes).unwrap();
    let address: IpAddr = address.parse().unwrap();
    let is_ours = |address: IpAddr| address.to_string().starts_with("10.");
    let chain = is_trusted.then(|| Chain::new(&head, bytes, address, is_ours));
    let rewrite = RequestRewrite {
        path_and_query: None,
        trace: None,
        edits: None,
        added,
        target: &target,
        connection,
        framing: request_framing(&head, bytes).unwrap(),
        expects: true,
        wants_upgrade: http1::wants_upgrade(&head, bytes, connection),
        client: ForwardedSender { address, scheme: "http", chain },
        via: Via::Own,
        host: host.map(str::as_bytes),
    };
    let mut out = b"kept|".to_vec();
    http1::write_request(&mut out, &head, bytes, &rewrite);
    String::from_utf8(out).unwrap().strip_prefix("kept|").expect("output is appended").to_owned()
}

/// Checks the lines that the server gets. `{F}` in `seen` stands for the forwarding fields.
#[track_caller]
fn check(sent: &[&str], seen: &[&str], host: &str) {
    let bytes = format!("{}\r\n\r\n", sent.join("\r\n"));
    let mut expected = seen.join("\r\n");
    let forwarded_host = if host.is_empty() { "" } else { "\r\nX-Forwarded-Host: {H}" };
    let of_host = if host.is_empty() { "" } else { ";host=\"{H}\"" };
    let forwarded = format!(
        "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http{forwarded_host}\r\n\
         Forwarded: for=192.0.2.7;proto=http{of_host}"
    );
    expected = expected.replace("{F}", &forwarded).replace("{H}", host);
    assert_eq!(written(bytes.as_bytes(), "192.0.2.7", false, None), format!("{expected}\r\n\r\n"));
}

#[test]
fn a_plain_request() {
    check(
        &["GET /a?b HTTP/1.1", "Host: h:80", "Accept:  */* "],
        &["GET /a?b HTTP/1.1", "Host: h:80", "Accept:  */* ", "Via: 1.1 vanward", "{F}"],
        "h:80",
    );
}

/// RFC 9110 §8.6: `007` is a valid length, which some servers read as octal.
#[test]
fn a_length_is_passed_on_in_its_normal_form() {
    for (sent, seen) in [("5", "5"), ("0", "0"), ("50", "50")] {
        let line = format!("Content-Length: {sent}");
        let seen = format!("Content-Length: {seen}");
        check(
            &["POST / HTTP/1.1", &line, "Host: h"],
            &["POST / HTTP/1.1", &seen, "Host: h", "Via: 1.1 vanward", "{F}"],
            "h",
        );
    }
    for (sent, seen) in [("05", "5"), ("00", "0"), ("0000000000000000050", "50")] {
        let line = format!("Content-Length: {sent}");
        let seen = format!("Content-Length: {seen}");
        check(
            &["POST / HTTP/1.1", &line, "Host: h"],
            &["POST / HTTP/1.1", "Host: h", &seen, "Via: 1.1 vanward", "{F}"],
            "h",
        );
    }
}

#[test]
fn an_empty_line_before_a_request_is_not_sent_on() {
    check(&["", "GET / HTTP/1.1", "Host: h"], &["GET / HTTP/1.1", "Host: h", "Via: 1.1 vanward", "{F}"], "h");
}

/// RFC 9110 §2.5: a proxy sends its own version.
#[test]
fn versions() {
    check(
        &["M /x HTTP/1.7", "A: b", "Host: h"],
        &["M /x HTTP/1.1", "A: b", "Host: h", "Via: 1.1 vanward", "{F}"],
        "h",
    );
    check(
        &["GET / HTTP/1.0", "A: b", "Host: h", "Connection: keep-alive"],
        &["GET / HTTP/1.1", "A: b", "Host: h", "Via: 1.0 vanward", "{F}"],
        "h",
    );
    // RFC 9112 §3.2: an HTTP/1.1 request has a Host, possibly empty.
    check(&["GET / HTTP/1.0"], &["GET / HTTP/1.1", "Host: ", "Via: 1.0 vanward", "{F}"], "");
}

/// RFC 9112 §3.2.2 and §3.2.4.
#[test]
fn absolute_and_asterisk_forms() {
    let rest = ["Via: 1.1 vanward", "{F}"];
    for (method, target, seen, host) in [
        ("GET", "http://t/x?y", "/x?y", "t"),
        ("GET", "http://t:81", "/", "t:81"),
        ("GET", "http://t?y", "/?y", "t"),
        ("OPTIONS", "http://t", "*", "t"),
        ("OPTIONS", "http://t/", "/", "t"),
        ("OPTIONS", "http://t?y", "/?y", "t"),
    ] {
        let host_line = format!("Host: {host}");
        check(
            &[&format!("{method} {target} HTTP/1.1"), "A: b", "Host: other"],
            &[&format!("{method} {seen} HTTP/1.1"), &host_line, "A: b", rest[0], rest[1]],
            host,
        );
    }
    check(
        &["OPTIONS * HTTP/1.1", "Host: h"],
        &["OPTIONS * HTTP/1.1", "Host: h", "Via: 1.1 vanward", "{F}"],
        "h",
    );
}

/// RFC 9110 §7.6.1.
#[test]
fn fields_of_this_hop_end_here() {
    check(
        &[
            "GET / HTTP/1.1",
            "Connection: close, X-Gone ,x-also",
            "Host: h",
            "Keep-Alive: timeout=5",
            "Proxy-Connection: close",
            "A: b",
            "x-gone: 1",
            "X-Also: 2",
            "Proxy-Authorization: secret",
            "X-Gone-Not: 3",
            "TE: gzip",
            "Upgrade: websocket",
            "HTTP2-Settings: x",
            "X-Gone: 4",
            "C: d",
        ],
        &["GET / HTTP/1.1", "Host: h", "A: b", "X-Gone-Not: 3", "C: d", "Via: 1.1 vanward", "{F}"],
        "h",
    );
}

#[test]
fn bodies() {
    check(
        &["POST / HTTP/1.1", "Host: h", "Content-Length: 5", "Expect: 100-continue"],
        &[
            "POST / HTTP/1.1",
            "Host: h",
            "Content-Length: 5",
            "Expect: 100-continue",
            "Via: 1.1 vanward",
            "{F}",
        ],
        "h",
    );
    check(
        &["POST / HTTP/1.1", "transfer-encoding:  CHUNKED ", "Host: h", "Trailer: A"],
        &[
            "POST / HTTP/1.1",
            "Host: h",
            "Trailer: A",
            "Transfer-Encoding: chunked",
            "Via: 1.1 vanward",
            "{F}",
        ],
        "h",
    );
    // RFC 9110 §10.1.1: an expectation of an HTTP/1.0 client is ignored.
    check(
        &["POST / HTTP/1.0", "Host: h", "Content-Length: 5", "Expect: 100-continue"],
        &["POST / HTTP/1.1", "Host: h", "Content-Length: 5", "Via: 1.0 vanward", "{F}"],
        "h",
    );
}

/// RFC 9110 §10.1.4 and §7.8.
#[test]
fn trailers_and_upgrades() {
    let via = "Via: 1.1 vanward";
    check(
        &["GET / HTTP/1.1", "Host: h", "TE: gzip, Trailers", "Connection: TE"],
        &["GET / HTTP/1.1", "Host: h", "TE: trailers", "Connection: TE", via, "{F}"],
        "h",
    );
    check(
        &["GET / HTTP/1.1", "Host: h", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: x"],
        &[
            "GET / HTTP/1.1",
            "Host: h",
            "Sec-WebSocket-Key: x",
            "Upgrade: websocket",
            "Connection: upgrade",
            via,
            "{F}",
        ],
        "h",
    );
    check(
        &["GET / HTTP/1.1", "Host: h", "Upgrade: h2c, a/1,b", "Connection: Upgrade, TE", "TE: trailers"],
        &[
            "GET / HTTP/1.1",
            "Host: h",
            "TE: trailers",
            "Upgrade: a/1",
            "Upgrade: b",
            "Connection: TE, upgrade",
            via,
            "{F}",
        ],
        "h",
    );
    check(
        &[
            "GET / HTTP/1.1",
            "Host: h",
            "Upgrade: h2c",
            "Connection: Upgrade, HTTP2-Settings",
            "HTTP2-Settings: x",
        ],
        &["GET / HTTP/1.1", "Host: h", via, "{F}"],
        "h",
    );
}

/// RFC 9110 §7.6.2.
#[test]
fn max_forwards() {
    for (method, value, seen) in [
        ("OPTIONS", "10", Some("9")),
        ("TRACE", "1", Some("0")),
        ("OPTIONS", "0", Some("0")),
        ("OPTIONS", "99999999999999999999999", Some("18446744073709551614")),
        ("OPTIONS", "+5", None),
        ("OPTIONS", "x", None),
        ("OPTIONS", "", None),
    ] {
        let bytes = format!("{method} / HTTP/1.1\r\nHost: h\r\nmax-forwards: {value}\r\n\r\n");
        let out = written(bytes.as_bytes(), "192.0.2.7", false, None);
        let line = out.lines().find_map(|line| line.strip_prefix("Max-Forwards: "));
        assert_eq!(line, seen, "{method} {value}");
        assert!(!out.contains("max-forwards"));
    }
    let get = written(b"GET / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 5\r\n\r\n", "192.0.2.7", false, None);
    assert!(get.contains("\r\nMax-Forwards: 5\r\n"));
}

#[test]
fn a_host_of_the_proxys_own() {
    for bytes in
        ["GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n", "GET http://h/ HTTP/1.1\r\nA: b\r\nHost: x\r\n\r\n"]
    {
        assert_eq!(
            written(bytes.as_bytes(), "192.0.2.7", false, Some("app:9000")),
            "GET / HTTP/1.1\r\nHost: app:9000\r\nA: b\r\nVia: 1.1 vanward\r\nX-Forwarded-For: 192.0.2.7\r\n\
             X-Forwarded-Proto: http\r\nX-Forwarded-Host: h\r\nForwarded: for=192.0.2.7;proto=http;host=\"h\"\r\n\r\n"
        );
    }
}

/// RFC 7239, and the older `X-Forwarded-` fields.
#[test]
fn forwarding_fields_of_clients() {
    const SENT: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 10.0.0.1\r\nx-forwarded-for: 10.0.0.2\r\n\
        X-Forwarded-Proto: https\r\nX-Forwarded-Host: public\r\nForwarded: for=10.0.0.1\r\nX-Forwarded-Port: 1\r\n\
        X_Forwarded_For: 10.0.0.9\r\nVia: 1.0 edge\r\nX-Forwarded: y\r\n\r\n";
    assert_eq!(
        written(SENT, "192.0.2.255", false, None),
        "GET / HTTP/1.1\r\nHost: h\r\nVia: 1.0 edge\r\nX-Forwarded: y\r\nVia: 1.1 vanward\r\n\
         X-Forwarded-For: 192.0.2.255\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: h\r\n\
         Forwarded: for=192.0.2.255;proto=http;host=\"h\"\r\n\r\n",
        "from anyone: replaced"
    );
    assert_eq!(
        written(SENT, "192.0.2.255", true, None),
        "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Port: 1\r\nVia: 1.0 edge\r\nX-Forwarded: y\r\nVia: 1.1 vanward\r\n\
         X-Forwarded-For: 10.0.0.1, 10.0.0.2, 192.0.2.255\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: public\r\n\
         Forwarded: for=10.0.0.1;proto=https;host=\"public\", for=10.0.0.2, for=192.0.2.255\r\n\r\n",
        "from a trusted proxy: appended to, and Forwarded says the same as the others"
    );
    assert_eq!(
        written(
            b"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For:\r\nForwarded: \r\n\r\n",
            "192.0.2.7",
            true,
            None
        ),
        "GET / HTTP/1.1\r\nHost: h\r\nVia: 1.1 vanward\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\n\
         X-Forwarded-Host: h\r\nForwarded: for=192.0.2.7;proto=http;host=\"h\"\r\n\r\n",
        "an empty list has no members"
    );
}

/// RFC 7239 §7.4: servers read the same in both kinds of fields, whichever one a trusted proxy sends.
#[test]
fn forwarded_and_x_forwarded_agree() {
    for (sent, x_for, proto, host, forwarded) in [
        // The form that cloud load balancers send.
        (
            &["X-Forwarded-For: 203.0.113.7", "X-Forwarded-Proto: https"][..],
            "203.0.113.7, 10.0.0.1",
            "https",
            "h",
            "for=203.0.113.7;proto=https;host=\"h\", for=10.0.0.1",
        ),
        (&["X-Forwarded-Proto: wss"], "10.0.0.1", "https", "h", "for=10.0.0.1;proto=https;host=\"h\""),
        (
            &["X-Forwarded-For: 2001:db8::7, unknown", "X-Forwarded-Host: public:8443"],
            "2001:db8::7, unknown, 10.0.0.1",
            "http",
            "public:8443",
            "for=\"[2001:db8::7]\", for=unknown;proto=http;host=\"public:8443\", for=10.0.0.1",
        ),
        // A list: each proxy appends its peer.
        (
            &["X-Forwarded-For: 203.0.113.7, 10.0.0.2", "X-Forwarded-Proto: https, http"],
            "203.0.113.7, 10.0.0.2, 10.0.0.1",
            "https",
            "h",
            "for=203.0.113.7;proto=https;host=\"h\", for=10.0.0.2, for=10.0.0.1",
        ),
        // Elements that the client forged are ignored.
        (
            &["X-Forwarded-For: 6.6.6.6, 203.0.113.7", "X-Forwarded-Proto: http, https"],
            "6.6.6.6, 203.0.113.7, 10.0.0.1",
            "https",
            "h",
            "for=6.6.6.6, for=203.0.113.7;proto=https;host=\"h\", for=10.0.0.1",
        ),
        (
            &["Forwarded: for=203.0.113.7;proto=https"],
            "203.0.113.7, 10.0.0.1",
            "https",
            "h",
            "for=203.0.113.7;proto=https, for=10.0.0.1;host=\"h\"",
        ),
        (
            &["Forwarded: for=_hidden;host=public;Proto=HTTPS, for=\"[2001:db8::7]:4711\""],
            "unknown, 2001:db8::7, 10.0.0.1",
            "http",
            "h",
            "for=_hidden;host=public;Proto=HTTPS, for=\"[2001:db8::7]:4711\", for=10.0.0.1;proto=http;host=\"h\"",
        ),
        // Both kinds, and they agree: Forwarded keeps its additional parameters.
        (
            &[
                "X-Forwarded-For: 203.0.113.7",
                "X-Forwarded-Proto: https",
                "X-Forwarded-Host: public",
                "Forwarded: for=203.0.113.7;proto=https;host=public;by=_edge",
            ],
            "203.0.113.7, 10.0.0.1",
            "https",
            "public",
            "for=203.0.113.7;proto=https;host=public;by=_edge, for=10.0.0.1",
        ),
        // Both kinds, and they differ: a balancer that knows only one of them forwards the other as its client wrote
        // it.
        (
            &[
                "X-Forwarded-For: 203.0.113.7",
                "X-Forwarded-Proto: https",
                "Forwarded: for=6.6.6.6;proto=http",
            ],
            "203.0.113.7, 10.0.0.1",
            "https",
            "h",
            "for=203.0.113.7;proto=https;host=\"h\", for=10.0.0.1",
        ),
        // An invalid scheme and an invalid host are not forwarded.
        (
            &["X-Forwarded-For: 203.0.113.7", "X-Forwarded-Proto: gopher", "X-Forwarded-Host: a b"],
            "203.0.113.7, 10.0.0.1",
            "http",
            "h",
            "for=203.0.113.7;proto=http;host=\"h\", for=10.0.0.1",
        ),
    ] {
        let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n\r\n", sent.join("\r\n"));
        assert_eq!(
            written(bytes.as_bytes(), "10.0.0.1", true, None),
            format!(
                "GET / HTTP/1.1\r\nHost: h\r\nVia: 1.1 vanward\r\nX-Forwarded-For: {x_for}\r\n\
                 X-Forwarded-Proto: {proto}\r\nX-Forwarded-Host: {host}\r\nForwarded: {forwarded}\r\n\r\n"
            ),
            "{sent:?}"
        );
    }
}

/// RFC 7239 §6 and RFC 5952.
#[test]
fn addresses_of_clients() {
    for (address, plain, forwarded) in [
        ("1.20.255.0", "1.20.255.0", "1.20.255.0"),
        ("2001:DB8:0::1", "2001:db8::1", "\"[2001:db8::1]\""),
        ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.7"),
        (
            "1111:2222:3333:4444:5555:6666:7777:8888",
            "1111:2222:3333:4444:5555:6666:7777:8888",
            "\"[1111:2222:3333:4444:5555:6666:7777:8888]\"",
        ),
    ] {
        let out = written(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", address, false, None);
        assert!(out.contains(&format!("\r\nX-Forwarded-For: {plain}\r\n")), "{out}");
        assert!(out.contains(&format!("\r\nForwarded: for={forwarded};proto=http;host=\"h\"\r\n")), "{out}");
    }
}

#[test]
fn only_a_trusted_proxy_reports_client_certificates() {
    let claims = "GET / HTTP/1.1\r\nHost: h\r\nX-Client-Cert-Subject: CN=root\r\nx_client_cert-fingerprint: 00\r\n\r\n";
    let ours = b"X-Client-Cert-Subject: CN=a\r\n".as_slice();
    let seen = |is_trusted, added| {
        let seen = written_with(claims.as_bytes(), "192.0.2.7", is_trusted, None, added);
        let lines = seen.lines().map(str::to_ascii_lowercase).filter(|line| line.contains("cert"));
        lines.collect::<Vec<_>>()
    };
    assert!(seen(false, b"").is_empty());
    assert_eq!(seen(true, b""), ["x-client-cert-subject: cn=root", "x_client_cert-fingerprint: 00"]);
    for is_trusted in [false, true] {
        assert_eq!(seen(is_trusted, ours), ["x-client-cert-subject: cn=a"]);
    }
}

/// Drops `X-Drop`, doubles `X-Twice`, and adds a line.
pub(crate) struct Wishes(pub(crate) &'static [&'static str]);

impl http1::Edits for Wishes {
    fn touches(&self, name: &[u8]) -> bool {
        self.0.iter().any(|touched| touched.as_bytes().eq_ignore_ascii_case(name))
    }

    fn removes(&self, name: &[u8]) -> bool {
        self.touches(name) && !name.eq_ignore_ascii_case(b"x-twice")
    }

    fn replace(&self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        if name.eq_ignore_ascii_case(b"x-twice") {
            for _ in 0..2 {
                out.extend_from_slice(&[name, b": <", value, b">\r\n"].concat());
            }
        }
    }

    fn add(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"X-New: 1\r\n");
    }
}

#[test]
fn edits_are_made_in_place_and_reach_what_the_proxy_adds() {
    let bytes = b"GET /a?b HTTP/1.1\r\nHost: h\r\nConnection: X-Hop\r\nX-Drop: 1\r\nX-Twice: 2\r\nX-Hop: 3\r\nA: b\r\n\r\n";
    let head = parse_request(bytes).unwrap();
    let target = RequestTarget::from_head(&head, bytes).unwrap();
    let rewrite = RequestRewrite {
        path_and_query: Some(b"/v1/a?c"),
        trace: None,
        edits: Some(&Wishes(&[
            "X-Drop",
            "X-Twice",
            "X-Hop",
            "x-forwarded-for",
            "Forwarded",
            "Via",
            "X-Mine",
        ])),
        added: b"X-Mine: 1\r\nX-Mine-Too: 2\r\n",
        target: &target,
        connection: ConnectionOptions::from_head(&head, bytes).unwrap(),
        framing: request_framing(&head, bytes).unwrap(),
        expects: true,
        wants_upgrade: false,
        client: ForwardedSender { address: [192, 0, 2, 7].into(), scheme: "http", chain: None },
        via: Via::Named("edge"),
        host: Some(b"inside"),
    };
    let mut out = Vec::new();
    http1::write_request(&mut out, &head, bytes, &rewrite);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "GET /v1/a?c HTTP/1.1\r\nHost: inside\r\nX-Twice: <2>\r\nX-Twice: <2>\r\nA: b\r\nX-Mine-Too: 2\r\n\
         X-Forwarded-Proto: http\r\nX-Forwarded-Host: h\r\nX-New: 1\r\n\r\n"
    );
}

#[test]
fn a_body_that_is_here_as_a_whole_has_a_length_and_meets_the_expectation() {
    let bytes =
        b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n";
    let head = parse_request(bytes).unwrap();
    let target = RequestTarget::from_head(&head, bytes).unwrap();
    let rewrite = RequestRewrite {
        path_and_query: None,
        trace: None,
        edits: None,
        added: b"",
        target: &target,
        connection: ConnectionOptions::from_head(&head, bytes).unwrap(),
        framing: BodyFraming::Length(7),
        expects: false,
        wants_upgrade: false,
        client: ForwardedSender { address: [192, 0, 2, 7].into(), scheme: "http", chain: None },
        via: Via::Off,
        host: None,
    };
    let mut out = Vec::new();
    http1::write_request(&mut out, &head, bytes, &rewrite);
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("POST / HTTP/1.1\r\nHost: h\r\nA: b\r\nContent-Length: 7\r\n"), "{text}");
    assert!(!text.contains("Expect") && !text.contains("Transfer-Encoding"), "{text}");
}
