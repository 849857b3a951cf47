//! From an HTTP/2 client to an HTTP/1.1 server.

use std::time::Duration;

use config::Protocol;
use testkit::http1::Http1Peer;
use testkit::http2::H2End;
use testkit::http2::frame::{
    CANCEL, H2Frame, INTERNAL_ERROR, NO_ERROR, data, headers, last_data, last_headers, raw, reset,
};
use testkit::text::{ANY, added};
use testkit::wait::assert_soon;

use super::scene::Scene;

const GET: &str = ":method: GET\n:scheme: http\n:authority: test\n:path: /\n";
const OK: &str = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\n\r\nok";
const OK_GOT: &str = ":status: 200\ndate: D\ncontent-length: 2\nvia: vanward\n---\nok\n---\n";

/// `{ours}` are the fields that the proxy adds to a request for the host `test`.
fn expand(text: &str) -> Vec<u8> {
    let any = char::from(ANY);
    text.replace("{ours}", &added(&format!("{any}.{any}"), "test")).into_bytes()
}

/// Asserts what the server receives for these frames on stream 1.
fn passes(name: &str, frames: &[Vec<u8>], seen: &str) {
    let scene = Scene::to_http1();
    let mut client = scene.client().saying(frames.concat());
    let mut server = scene.accept1();
    server.gets(&expand(seen));
    server.sends(OK);
    assert_eq!(client.whole(1), OK_GOT, "{name}");
    server.has_nothing();
    scene.assert_no_more_connections();
}

#[test]
fn a_request_is_one_of_http_1_1() {
    passes("GET", &[last_headers(1, GET)], "GET / HTTP/1.1\r\nhost: test\r\n{ours}\r\n");
    let fields = format!("{GET}accept: a\naccept: b\nx-empty: \nuser-agent: mine\n");
    passes(
        "fields",
        &[last_headers(1, &fields)],
        "GET / HTTP/1.1\r\nhost: test\r\naccept: a\r\naccept: b\r\nx-empty: \r\nuser-agent: mine\r\n{ours}\r\n",
    );
    let query = ":method: PATCH\n:scheme: https\n:authority: test\n:path: /a/%20?b=c&d\n";
    passes("query", &[last_headers(1, query)], "PATCH /a/%20?b=c&d HTTP/1.1\r\nhost: test\r\n{ours}\r\n");
    let star = ":method: OPTIONS\n:scheme: http\n:authority: test\n:path: *\n";
    passes("a server as a whole", &[last_headers(1, star)], "OPTIONS * HTTP/1.1\r\nhost: test\r\n{ours}\r\n");
}

#[test]
fn the_authority_is_the_host() {
    let seen = "GET / HTTP/1.1\r\nhost: test\r\n{ours}\r\n";
    passes("both, alike", &[last_headers(1, &format!("{GET}host: test\n"))], seen);
    // RFC 9113 §8.3.1.
    let host = ":method: GET\n:scheme: http\n:path: /\nhost: test\n";
    passes("Host alone", &[last_headers(1, host)], seen);
}

#[test]
fn a_request_with_two_hosts_or_none_is_refused() {
    let cases = [
        ("differing", format!("{GET}host: other\n")),
        ("two", ":method: GET\n:scheme: http\n:path: /\nhost: test\nhost: test\n".to_owned()),
        ("none", ":method: GET\n:scheme: http\n:path: /\n".to_owned()),
        ("userinfo", ":method: GET\n:scheme: http\n:authority: me@test\n:path: /\n".to_owned()),
    ];
    let scene = Scene::to_http1();
    for (name, fields) in cases {
        let mut client = scene.client().saying(last_headers(1, &fields));
        assert!(client.is_refused(1), "{name}");
        // The connection continues.
        client.is_heard();
    }
    scene.assert_no_more_connections();
}

#[test]
fn a_scheme_is_a_scheme() {
    // RFC 9113 §8.3.1, RFC 3986 §3.1: other valid schemes are accepted, as from a translating gateway; invalid ones are
    // malformed.
    for scheme in ["http", "https", "HTTP", "coap+tcp", "a1.b-c"] {
        passes(
            scheme,
            &[last_headers(1, &GET.replace("scheme: http", &format!("scheme: {scheme}")))],
            "GET / HTTP/1.1\r\nhost: test\r\n{ours}\r\n",
        );
    }
    let scene = Scene::to_http1();
    let connect = ":method: CONNECT\n:protocol: websocket\n:scheme: ws:\n:authority: test\n:path: /\n";
    for scheme in ["https://evil/", "https:", "1http", "-", "", "ht tp", "http,https", "ht\u{e9}", "http/1"] {
        let mut client = scene.client();
        client.sends(last_headers(1, &GET.replace("scheme: http", &format!("scheme: {scheme}"))));
        assert_eq!(client.whole(1), "reset 1\n", "{scheme}");
        client.sends(headers(3, connect));
        assert_eq!(client.whole(3), "reset 1\n", "{scheme}");
        client.is_heard();
    }
    scene.assert_no_more_connections();
}

/// The minimum rate only covers bytes that are due: an idle gRPC stream is not slow.
#[test]
fn a_stream_that_owes_nothing_is_not_too_slow() {
    let post = ":method: POST\n:scheme: http\n:authority: test\n:path: /\n";
    let window = std::time::Duration::from_secs(1);
    let quiet = Scene::with(config::Protocol::Http1, 1, |config| {
        config.timeouts.client_header = window * 13 / 10;
        config.limits.minimum_rate_bytes_per_second = 1_000_000;
        config.limits.rate_window = window;
    });
    let mut client = quiet.client().saying([headers(1, post), data(1, "sub")].concat());
    let mut server = quiet.accept1().after_head();
    server.gets(b"3\r\nsub\r\n");
    // Lets time pass.
    let mut clock = quiet.client1().saying("G");
    assert_eq!(clock.message().status(), 408);
    server.sends(OK);
    assert!(client.whole(1).starts_with(":status: 200\n"));
}

/// The rest of a frame that has begun is due, including its padding.
#[test]
fn a_frame_that_has_begun_is_due() {
    let slow = Scene::with(config::Protocol::Http1, 1, |config| {
        config.limits.minimum_rate_bytes_per_second = 1_000_000;
        config.limits.rate_window = std::time::Duration::from_secs(1);
    });
    let padded = raw(0, 8, 1, &[b"\x04".as_slice(), b"012345", &[0; 4]].concat());
    for begun in [&data(1, "0123456789")[..12], &padded[..13]] {
        let mut client = slow.client();
        // Otherwise the answer to the settings would become the rest of the frame.
        client.is_heard();
        client.sends(headers(1, ":method: POST\n:scheme: http\n:authority: test\n:path: /\n"));
        client.sends(begun);
        let mut server = slow.accept1().after_head();
        server.gets(b"3\r\n012\r\n");
        assert!(client.whole(1).starts_with(":status: 408\n"));
    }
    slow.assert_failure("client-too-slow", 2);
}

#[test]
fn cookies_are_joined() {
    // RFC 9113 §8.2.3.
    passes(
        "three crumbs",
        &[last_headers(1, &format!("{GET}cookie: a=b\nx: y\ncookie: c=d\ncookie: e=f; g=h\n"))],
        "GET / HTTP/1.1\r\nhost: test\r\ncookie: a=b; c=d; e=f; g=h\r\nx: y\r\n{ours}\r\n",
    );
}

#[test]
fn fields_of_a_connection_are_malformed() {
    // RFC 9113 §8.2.2.
    let scene = Scene::to_http1();
    for field in [
        "connection: x",
        "keep-alive: 1",
        "proxy-connection: x",
        "transfer-encoding: chunked",
        "upgrade: websocket",
        "te: gzip",
    ] {
        let mut client = scene.client().saying(last_headers(1, &format!("{GET}{field}\n")));
        assert_eq!(client.whole(1), "reset 1\n", "{field}");
        client.is_heard();
    }
    scene.assert_no_more_connections();
}

#[test]
fn te_trailers_is_passed_on() {
    passes(
        "te",
        &[last_headers(1, &format!("{GET}te: trailers\n"))],
        "GET / HTTP/1.1\r\nhost: test\r\nTE: trailers\r\nConnection: TE\r\n{ours}\r\n",
    );
}

#[test]
fn bodies_with_a_length_are_passed_on_as_they_are() {
    let post = ":method: POST\n:scheme: http\n:authority: test\n:path: /\n";
    let with_length = format!("{post}content-length: 5\n");
    let seen = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n{ours}\r\nhello";
    passes("in one frame", &[headers(1, &with_length), last_data(1, "hello")], seen);
    // RFC 9110 §8.6: some parsers do not read `005` as a decimal number.
    passes(
        "with zeros before",
        &[headers(1, &format!("{post}content-length: 005\n")), last_data(1, "hello")],
        seen,
    );
    passes("in three", &[headers(1, &with_length), data(1, "he"), data(1, "llo"), last_data(1, "")], seen);
    passes(
        "of none",
        &[headers(1, &format!("{post}content-length: 0\n")), last_data(1, "")],
        "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n{ours}\r\n",
    );
    passes(
        "of none, told at once",
        &[last_headers(1, &format!("{post}content-length: 0\n"))],
        "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n{ours}\r\n",
    );
    passes("without a body", &[last_headers(1, post)], "POST / HTTP/1.1\r\nhost: test\r\n{ours}\r\n");
}

/// Asserts what the server receives of a request without Content-Length.
fn posts(trailers: &str, frames: &[Vec<u8>], expected: &str) {
    let scene = Scene::to_http1();
    let mut client = scene.client();
    client.sends(headers(1, ":method: POST\n:scheme: http\n:authority: test\n:path: /\n"));
    client.sends(frames.concat());
    let mut server = scene.accept1();
    server.gets(&expand("POST / HTTP/1.1\r\nhost: test\r\nTransfer-Encoding: chunked\r\n{ours}\r\n"));
    let mut got = String::new();
    loop {
        match usize::from_str_radix(&server.line(), 16).expect("is a size") {
            0 => break,
            size => {
                got.push_str(std::str::from_utf8(&server.exactly(size)).expect("is text"));
                server.gets(b"\r\n");
            }
        }
    }
    assert_eq!(got, expected);
    server.gets(format!("{trailers}\r\n").as_bytes());
    server.sends(OK);
    assert_eq!(client.whole(1), OK_GOT);
    server.has_nothing();
}

#[test]
fn bodies_without_a_length_leave_in_chunks() {
    posts("", &[data(1, "abc"), last_data(1, "def")], "abcdef");
    posts("", &[last_data(1, "")], "");
    posts("x-sum: 1\r\nx-two: 2\r\n", &[data(1, "abc"), last_headers(1, "x-sum: 1\nx-two: 2\n")], "abc");
    posts("x-sum: 1\r\n", &[last_headers(1, "x-sum: 1\n")], "");
    posts("", &[data(1, ""), data(1, "abc"), data(1, ""), last_data(1, "")], "abc");
}

#[test]
fn padding_is_taken_off() {
    use testkit::http2::frame::{END_HEADERS, END_STREAM, block, raw};
    const PADDED: u8 = 8;
    let post = ":method: POST\n:scheme: http\n:authority: test\n:path: /\ncontent-length: 3\n";
    let head = [vec![2], block(post), vec![0, 0]].concat();
    passes(
        "padded frames",
        &[raw(1, END_HEADERS | PADDED, 1, &head), raw(0, END_STREAM | PADDED, 1, b"\x04abc\0\0\0\0")],
        "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 3\r\n{ours}\r\nabc",
    );
}

#[test]
fn a_length_that_lies_resets_the_stream() {
    // RFC 9113 §8.1.1.
    let head = ":method: POST\n:scheme: http\n:authority: test\n:path: /\ncontent-length: 5\n";
    let scene = Scene::to_http1();
    for (name, frames) in [
        ("none", vec![last_headers(1, head)]),
        ("too little", vec![headers(1, head), last_data(1, "abc")]),
        ("too much", vec![headers(1, head), data(1, "abcdef")]),
        ("too little before trailers", vec![headers(1, head), data(1, "abc"), last_headers(1, "x: y\n")]),
    ] {
        let mut client = scene.client().saying(frames.concat());
        assert_eq!(client.whole(1), "reset 1\n", "{name}");
        // The connection continues.
        client.sends(last_headers(3, &GET.replace("GET", "TRACE")));
        assert!(client.whole(3).starts_with(":status: 405\n"), "{name}");
    }
}

#[test]
fn a_stream_that_is_reset_waits_for_no_server() {
    let scene = Scene::with(Protocol::Http1, 1, |config| {
        config.upstreams[0].servers[0].max_requests = 1.try_into().ok();
    });
    let mut client = scene.client().saying(last_headers(1, GET));
    let mut server = scene.accept1();
    let seen = expand("GET / HTTP/1.1\r\nhost: test\r\n{ours}\r\n");
    server.gets(&seen);
    client.sends(last_headers(3, &GET.replace("path: /", "path: /given-up")));
    assert_soon("the request is not queued", || scene.running.counters().requests_queued >= 1);
    client.sends(reset(3, CANCEL));
    scene.assert_failure("client-gone", 1);
    client.sends(last_headers(5, GET));
    assert_soon("the request is not queued", || scene.running.counters().requests_queued >= 2);
    for stream in [1, 5] {
        server.sends(OK);
        assert_eq!(client.whole(stream), OK_GOT);
        if stream == 1 {
            server.gets(&seen);
        }
    }
    scene.assert_no_more_connections();
}

/// Asserts what the client receives for a server's answer to a plain request.
fn answers(name: &str, method: &str, response: &str, got: &str) {
    let scene = Scene::to_http1();
    let mut client = scene.client().saying(last_headers(1, &GET.replace("GET", method)));
    let mut server = scene.accept1();
    server.gets(&expand(&format!("{method} / HTTP/1.1\r\nhost: test\r\n{{ours}}\r\n")));
    server.sends(response);
    // A response until close.
    let _ = server.stream().shutdown(std::net::Shutdown::Write);
    assert_eq!(client.whole(1), got, "{name}");
    client.is_heard();
}

#[test]
fn responses_of_every_framing_arrive_whole() {
    answers("length", "GET", OK, OK_GOT);
    answers(
        "chunks",
        "GET",
        "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2;x=y\r\nbc\r\n0\r\n\r\n",
        ":status: 200\ndate: D\nvia: vanward\n---\nabc\n---\n",
    );
    answers(
        "chunks and trailers",
        "GET",
        "HTTP/1.1 200 OK\r\nDate: D\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
         1\r\na\r\n0\r\nX-Sum: 1\r\nConnection: close\r\nContent-Length: 7\r\n\r\n",
        ":status: 200\ndate: D\ntrailer: X-Sum\nvia: vanward\n---\na\n---\nx-sum: 1\n",
    );
    answers(
        "trailers without a body",
        "GET",
        "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\n\r\n",
        ":status: 200\ndate: D\nvia: vanward\nx-sum: 1\n",
    );
    answers(
        "until the end",
        "GET",
        "HTTP/1.1 200 OK\r\nDate: D\r\n\r\nabc",
        ":status: 200\ndate: D\nvia: vanward\n---\nabc\n---\n",
    );
    answers(
        "HTTP/1.0",
        "GET",
        "HTTP/1.0 200 OK\r\nDate: D\r\n\r\nabc",
        ":status: 200\ndate: D\nvia: vanward\n---\nabc\n---\n",
    );
    answers(
        "empty",
        "GET",
        "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 0\r\n\r\n",
        ":status: 200\ndate: D\ncontent-length: 0\nvia: vanward\n",
    );
    answers(
        "fields of the connection",
        "GET",
        "HTTP/1.1 200 OK\r\nDate: D\r\nConnection: keep-alive, X-Hop\r\nX-Hop: y\r\nKeep-Alive: timeout=5\r\n\
         Upgrade: h2c\r\nProxy-Connection: x\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 0\r\n\r\n",
        ":status: 200\ndate: D\nset-cookie: a\nset-cookie: b\ncontent-length: 0\nvia: vanward\n",
    );
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    let head = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 5\r\n\r\n";
    answers("HEAD", "HEAD", head, ":status: 200\ndate: D\ncontent-length: 5\nvia: vanward\n");
    answers(
        "HEAD of chunks",
        "HEAD",
        "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n",
        ":status: 200\ndate: D\nvia: vanward\n",
    );
    answers(
        "204",
        "GET",
        "HTTP/1.1 204 No Content\r\nDate: D\r\n\r\n",
        ":status: 204\ndate: D\nvia: vanward\n",
    );
    answers(
        "304",
        "GET",
        "HTTP/1.1 304 Not Modified\r\nDate: D\r\nContent-Length: 5\r\nETag: \"x\"\r\n\r\n",
        ":status: 304\ndate: D\ncontent-length: 5\netag: \"x\"\nvia: vanward\n",
    );
}

#[test]
fn interim_responses_come_before_the_final_one() {
    answers(
        "103 twice",
        "GET",
        &format!(
            "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <b>\r\n\r\n{OK}"
        ),
        &format!(":status: 103\nlink: <a>\nvia: vanward\n:status: 103\nlink: <b>\nvia: vanward\n{OK_GOT}"),
    );
}

#[test]
fn a_client_that_waits_for_100_gets_it() {
    let scene = Scene::to_http1();
    let mut client = scene.client();
    client.sends(headers(
        1,
        ":method: PUT\n:scheme: http\n:authority: test\n:path: /\nexpect: 100-continue\ncontent-length: 3\n",
    ));
    let mut server = scene.accept1();
    server.gets(&expand(
        "PUT / HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 3\r\n{ours}\r\n",
    ));
    server.sends("HTTP/1.1 100 Continue\r\n\r\n");
    client.gets_headers(1, ":status: 100\nvia: vanward\n");
    client.sends(last_data(1, "abc"));
    server.gets(b"abc");
    server.sends(OK);
    assert_eq!(client.whole(1), OK_GOT);
}

#[test]
fn a_client_that_waits_for_100_is_not_late() {
    let scene = Scene::with(Protocol::Http1, 1, |config| {
        config.timeouts.client_body = Duration::from_millis(200);
        config.timeouts.upstream_first_byte = Duration::from_millis(600);
    });
    let mut client = scene.client();
    client.sends(headers(
        1,
        ":method: PUT\n:scheme: http\n:authority: test\n:path: /\nexpect: 100-continue\ncontent-length: 3\n",
    ));
    let mut server = scene.accept1().after_head();
    // The server is late.
    assert!(client.whole(1).starts_with(":status: 504\n"));
    server.is_closed();
}

#[test]
fn what_comes_before_its_request_has_ended_asks_for_no_more() {
    // RFC 9113 §8.1: a complete response, then NO_ERROR.
    let scene = Scene::to_http1();
    let mut client = scene.client();
    client.sends(headers(1, ":method: PUT\n:scheme: http\n:authority: test\n:path: /\n"));
    client.sends(data(1, "abc"));
    let mut server = scene.accept1().after_head();
    server.gets(b"3\r\nabc\r\n");
    server.sends("HTTP/1.1 413 Content Too Large\r\nDate: D\r\nContent-Length: 2\r\n\r\nno");
    let got = client.whole(1);
    assert_eq!(got, ":status: 413\ndate: D\ncontent-length: 2\nvia: vanward\n---\nno\n---\n");
    client.gets_reset(1, NO_ERROR);
    server.is_closed();
    client.is_heard();
    assert_eq!(scene.failures(), []);
}

#[test]
fn a_response_that_is_cut_never_looks_whole() {
    for (name, response) in [
        ("a length", "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 99999\r\n\r\nabc"),
        ("chunks", "HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
    ] {
        let scene = Scene::to_http1();
        let mut client = scene.client().saying(last_headers(1, GET));
        let mut server = scene.accept1().after_head();
        server.sends(response);
        drop(server);
        let got = client.whole(1);
        assert!(got.ends_with(&format!("reset {INTERNAL_ERROR}\n")), "{name}: {got}");
        client.is_heard();
        scene.assert_failure("upstream-truncated", 1);
    }
}

#[test]
fn methods_that_are_not_served_are_told_so() {
    let scene = Scene::to_http1();
    let mut client = scene.client();
    // RFC 9113 §8.5.
    client.sends(last_headers(1, ":method: CONNECT\n:authority: test:443\n"));
    let got = client.whole(1);
    assert!(got.starts_with(":status: 405\n"), "{got}");
    assert!(got.contains("\nallow: GET, HEAD"), "{got}");
    client.sends(last_headers(3, &GET.replace("GET", "TRACE")));
    assert!(client.whole(3).starts_with(":status: 405\n"));
    scene.assert_failure("method-refused", 2);
    scene.assert_no_more_connections();
}

#[test]
fn a_path_that_is_none_is_refused() {
    let scene = Scene::to_http1();
    for path in ["", "a", "http://test/", "/a b", "/\u{7f}", "*x", "/a#b"] {
        let mut client = scene.client();
        client.sends(last_headers(1, &GET.replace(":path: /\n", &format!(":path: {path}\n"))));
        assert!(client.is_refused(1), "{path}");
    }
    // RFC 9113 §8.3.1: `*` is for OPTIONS.
    let mut client = scene.client();
    client.sends(last_headers(1, &GET.replace(":path: /\n", ":path: *\n")));
    assert!(client.whole(1).starts_with(":status: 400\n"));
    scene.assert_no_more_connections();
}

#[test]
fn fields_that_no_text_could_hold_are_refused() {
    let scene = Scene::to_http1();
    for field in ["X-Upper: case", "x: a\rb", "x: a\0b", "x y: z", "x\u{e9}: z", ":other: z"] {
        let mut client = scene.client();
        let block = testkit::http2::frame::block(&format!("{GET}x: y\n"));
        let mut odd = block[..block.len() - 5].to_vec();
        let (name, value) = field[1..].split_once(": ").expect("has a colon");
        let name = format!("{}{name}", &field[..1]);
        odd.extend(
            [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat(),
        );
        client.sends(testkit::http2::frame::raw(
            1,
            testkit::http2::frame::END_HEADERS | testkit::http2::frame::END_STREAM,
            1,
            &odd,
        ));
        assert!(client.is_refused(1), "{field}");
    }
    scene.assert_no_more_connections();
}

#[test]
fn a_request_that_its_client_takes_back_takes_the_servers_connection_along() {
    let scene = Scene::to_http1();
    let mut client = scene.client().saying(last_headers(1, GET));
    let mut server = scene.accept1().after_head();
    client.sends(reset(1, testkit::http2::frame::CANCEL));
    server.is_closed();
    scene.assert_failure("client-gone", 1);
    // Within its body the request is cut, and never looks complete.
    client.sends(headers(3, ":method: PUT\n:scheme: http\n:authority: test\n:path: /\n"));
    client.sends(data(3, "abc"));
    let mut server = scene.accept1().after_head();
    server.gets(b"3\r\nabc\r\n");
    client.sends(reset(3, testkit::http2::frame::CANCEL));
    server.is_closed();
    scene.assert_failure("client-gone", 2);
    client.is_heard();
}

#[test]
fn streams_are_answered_as_their_servers_do() {
    let scene = Scene::to_http1();
    let mut client = scene.client();
    client.sends(last_headers(1, &GET.replace(":path: /", ":path: /slow")));
    let mut slow = scene.accept1().after_head();
    client.sends(last_headers(3, GET));
    let mut quick = scene.accept1().after_head();
    quick.sends(OK);
    assert_eq!(client.whole(3), OK_GOT);
    // The fast server's connection is free again.
    client.sends(last_headers(5, GET));
    quick.head();
    quick.sends(OK);
    assert_eq!(client.whole(5), OK_GOT);
    slow.sends(OK);
    assert_eq!(client.whole(1), OK_GOT);
}

#[test]
fn a_large_response_and_a_large_request_arrive_whole() {
    let body: String = (0..40_000).map(|number| format!("{number:>7}\n")).collect();
    let scene = Scene::to_http1();
    let mut client = scene.client().saying(last_headers(1, GET));
    let mut server = scene.accept1().after_head();
    let response = format!("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let sending = std::thread::spawn(move || {
        server.sends(response);
        server
    });
    let got = client.whole(1);
    let head = format!(":status: 200\ndate: D\ncontent-length: {}\nvia: vanward\n", body.len());
    assert!(got == format!("{head}---\n{body}\n---\n"), "{} bytes", got.len());
    let mut server = sending.join().expect("no panic");
    let post =
        format!(":method: PUT\n:scheme: http\n:authority: test\n:path: /\ncontent-length: {}\n", body.len());
    client.sends(headers(3, &post));
    let expected = body.clone();
    let receiving = std::thread::spawn(move || {
        server.head();
        assert!(server.exactly(expected.len()) == expected.as_bytes());
        server.sends(OK);
        server
    });
    client.sends_body(3, body.as_bytes(), true);
    assert_eq!(client.whole(3), OK_GOT);
    receiving.join().expect("no panic");
}

#[test]
fn data_is_passed_on_as_it_comes() {
    let scene = Scene::to_http1();
    let mut client = scene.client();
    client.sends(headers(1, ":method: POST\n:scheme: http\n:authority: test\n:path: /\n"));
    let mut server = scene.accept1().after_head();
    talk(&mut client, &mut server);
    client.sends(last_data(1, ""));
    server.gets(b"0\r\n\r\n");
    server.sends("0\r\n\r\n");
    assert_eq!(client.next_on(1), H2Frame::Data { stream: 1, bytes: Vec::new(), ends: true });
}

fn talk(client: &mut H2End, server: &mut Http1Peer) {
    client.sends(data(1, "a"));
    server.gets(b"1\r\na\r\n");
    server.sends("HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nA\r\n");
    client.gets_headers(1, ":status: 200\ndate: D\nvia: vanward\n");
    client.gets_data(1, "A");
    client.sends(data(1, "b"));
    server.gets(b"1\r\nb\r\n");
    server.sends("1\r\nB\r\n");
    client.gets_data(1, "B");
}
