//! From an HTTP/1 client to an HTTP/2 server.

use std::net::Shutdown;

use config::Protocol;
use testkit::http2::frame::{
    CANCEL, INTERNAL_ERROR, NO_ERROR, REFUSED_STREAM, data, headers, last_data, last_headers, reset,
};
use testkit::text::ANY;

use super::scene::Scene;

const GET: &str = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
const GET_SEEN: &str = ":method: GET\n:scheme: http\n:authority: test\n:path: /\n{ours}";
const OK: &str = ":status: 200\ndate: D\ncontent-length: 2\n";
const OK_GOT: &str = "HTTP/1.1 200 OK\r\ndate: D\r\ncontent-length: 2\r\n{via}\r\nok";

/// `{ours}` are the fields that the proxy adds to a request for the host `test`; `{ours10}` to an HTTP/1.0 request
/// without a host.
fn expand(text: &str) -> String {
    let start = "via: vanward\nx-forwarded-for: 127.0.0.1\nx-forwarded-proto: http\n";
    let forwarded = "forwarded: for=127.0.0.1;proto=http";
    text.replace("{ours}", &format!("{start}x-forwarded-host: test\n{forwarded};host=\"test\"\n"))
        .replace("{ours10}", &format!("{start}{forwarded}\n"))
}

/// `{via}` is the field that the proxy adds to a response.
fn expand1(text: &str) -> Vec<u8> {
    let any = char::from(ANY);
    text.replace("{via}", &format!("Via: {any}.{any} vanward\r\n")).into_bytes()
}

/// Asserts all that a server receives on the stream of a request.
fn passes(name: &str, request: &str, seen: &str) {
    let scene = Scene::to_http2();
    let mut client = scene.client1().saying(request);
    let mut server = scene.accept();
    assert_eq!(server.whole(1), expand(seen), "{name}");
    server.sends([headers(1, OK), last_data(1, "ok")].concat());
    client.gets(&expand1(OK_GOT));
    // Both connections continue.
    client.sends(GET);
    assert_eq!(server.whole(3), expand(GET_SEEN), "{name}");
    server.sends([headers(3, OK), last_data(3, "ok")].concat());
    client.gets(&expand1(OK_GOT));
    scene.assert_no_more_connections();
}

#[test]
fn a_request_is_one_of_http_2() {
    passes("GET", GET, GET_SEEN);
    passes(
        "fields",
        "GET /a?b=c HTTP/1.1\r\nAccept: a\r\nHOST: test\r\nX-Empty:\r\nCookie: a=b; c=d\r\nAccept:  b \r\n\r\n",
        ":method: GET\n:scheme: http\n:authority: test\n:path: /a?b=c\naccept: a\nx-empty: \n\
         cookie: a=b; c=d\naccept: b\n{ours}",
    );
    passes(
        "absolute form",
        "GET http://test/a?b HTTP/1.1\r\nHost: test\r\n\r\n",
        ":method: GET\n:scheme: http\n:authority: test\n:path: /a?b\n{ours}",
    );
    passes(
        "absolute form without a path",
        "GET http://test?b HTTP/1.1\r\nHost: test\r\n\r\n",
        ":method: GET\n:scheme: http\n:authority: test\n:path: /?b\n{ours}",
    );
    passes(
        "a server as a whole",
        "OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n",
        ":method: OPTIONS\n:scheme: http\n:authority: test\n:path: *\n{ours}",
    );
    passes(
        "many slashes",
        "GET //a//b/ HTTP/1.1\r\nHost: test\r\n\r\n",
        ":method: GET\n:scheme: http\n:authority: test\n:path: //a//b/\n{ours}",
    );
    passes(
        "odd bytes in a path",
        "GET /\"{}|^\\ HTTP/1.1\r\nHost: test\r\n\r\n",
        ":method: GET\n:scheme: http\n:authority: test\n:path: /\"{}|^\\\n{ours}",
    );
}

#[test]
fn targets_are_passed_on_as_they_came() {
    for target in ["/<", "/>", "/`", "/%20?a=b&c", "//x"] {
        passes(
            target,
            &GET.replace(" / ", &format!(" {target} ")),
            &format!(":method: GET\n:scheme: http\n:authority: test\n:path: {target}\n{{ours}}"),
        );
    }
}

#[test]
fn fields_of_the_connection_stay_behind() {
    passes(
        "connection",
        "GET / HTTP/1.1\r\nHost: test\r\nConnection: keep-alive, X-Hop\r\nX-Hop: a\r\nKeep-Alive: 5\r\n\
         Proxy-Connection: x\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nX: y\r\n\r\n",
        ":method: GET\n:scheme: http\n:authority: test\n:path: /\nx: y\n{ours}",
    );
    passes(
        "te",
        "GET / HTTP/1.1\r\nHost: test\r\nConnection: TE\r\nTE: trailers, deflate;q=0.5\r\n\r\n",
        ":method: GET\n:scheme: http\n:authority: test\n:path: /\nte: trailers\n{ours}",
    );
}

#[test]
fn a_client_of_http_1_0_is_served() {
    let scene = Scene::to_http2();
    let mut client = scene.client1().saying("GET / HTTP/1.0\r\n\r\n");
    let mut server = scene.accept();
    let host = scene.server_address();
    let seen = format!(":method: GET\n:scheme: http\n:authority: {host}\n:path: /\n{{ours10}}");
    assert_eq!(server.whole(1), expand(&seen));
    server.sends([headers(1, ":status: 103\nlink: a\n"), headers(1, ":status: 200\ndate: D\n")].concat());
    server.sends([data(1, "ab"), last_headers(1, "x-sum: 1\n")].concat());
    client.gets(&expand1("HTTP/1.1 200 OK\r\ndate: D\r\nConnection: close\r\n{via}\r\nab"));
    client.gets_the_end();
}

#[test]
fn bodies_are_passed_on_with_the_length_that_was_told() {
    let post = ":method: POST\n:scheme: http\n:authority: test\n:path: /\n";
    passes(
        "length",
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello",
        &format!("{post}content-length: 5\n{{ours}}---\nhello\n---\n"),
    );
    passes(
        "none",
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n",
        &format!("{post}content-length: 0\n{{ours}}"),
    );
    passes(
        "chunks",
        "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        &format!("{post}{{ours}}---\nabc\n---\n"),
    );
    passes(
        "chunks of nothing",
        "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        &format!("{post}{{ours}}"),
    );
    passes(
        "trailers",
        "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
         1\r\na\r\n0\r\nX-Sum: 1\r\nConnection: x\r\nX-Two:2\r\n\r\n",
        &format!("{post}trailer: X-Sum\n{{ours}}---\na\n---\nx-sum: 1\nx-two: 2\n"),
    );
}

#[test]
fn a_body_is_passed_on_as_it_comes() {
    let scene = Scene::to_http2();
    let mut client = scene.client1();
    client.sends("PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut server = scene.accept();
    server.gets_headers(1, &expand(&GET_SEEN.replace("GET", "PUT")));
    client.sends("2\r\nab\r\n");
    server.gets_data(1, "ab");
    server.sends([headers(1, ":status: 200\ndate: D\n"), data(1, "x")].concat());
    // A response before the end of its request ends the HTTP/1 connection.
    client.gets(&expand1(
        "HTTP/1.1 200 OK\r\ndate: D\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n{via}\r\n1\r\nx\r\n",
    ));
    client.sends("2\r\ncd\r\n0\r\n\r\n");
    assert_eq!(server.whole(1), "---\ncd\n---\n");
    server.sends(last_data(1, "y"));
    client.gets(b"1\r\ny\r\n0\r\n\r\n");
    client.gets_the_end();
}

#[test]
fn pieces_of_a_long_body_do_not_wait_for_what_does_not_come() {
    let scene = Scene::to_http2();
    let mut client = scene.client1().saying(GET);
    let mut server = scene.accept();
    server.whole(1);
    server.sends(headers(1, ":status: 200\ndate: D\ncontent-length: 100000\n"));
    let mut expected = expand1("HTTP/1.1 200 OK\r\ndate: D\r\ncontent-length: 100000\r\n{via}\r\n");
    for piece in ["first", "second", "third"] {
        server.sends_body(1, piece.as_bytes(), false);
        expected.extend(piece.as_bytes());
        client.gets(&std::mem::take(&mut expected));
    }
    let rest = vec![b'x'; 100_000 - "firstsecondthird".len()];
    server.sends_body(1, &rest, true);
    client.gets(&rest);
}

#[test]
fn a_body_that_fits_its_window_opens_no_other() {
    let scene = Scene::to_http2();
    let mut client = scene.client1().saying(GET);
    let mut server = scene.accept();
    server.whole(1);
    const LONG: usize = 60_000;
    server.sends(headers(1, &format!(":status: 200\ndate: D\ncontent-length: {LONG}\n")));
    let room = server.room(1);
    assert!(room >= LONG, "{room}");
    server.sends_body(1, &vec![b'x'; LONG - 1], false);
    let head = format!("HTTP/1.1 200 OK\r\ndate: D\r\ncontent-length: {LONG}\r\n{{via}}\r\n");
    client.gets(&[expand1(&head), vec![b'x'; LONG - 1]].concat());
    server.is_heard();
    assert_eq!(server.room(1), room - (LONG - 1));
    server.sends(last_data(1, "x"));
    client.gets(b"x");
}

/// Asserts what the client receives for these frames on the stream of a plain request.
fn answers(name: &str, method: &str, frames: &[Vec<u8>], got: &str) {
    let scene = Scene::to_http2();
    let mut client = scene.client1().saying(GET.replace("GET", method));
    let mut server = scene.accept();
    assert_eq!(server.whole(1), expand(&GET_SEEN.replace("GET", method)), "{name}");
    server.sends(frames.concat());
    client.gets(&expand1(got));
    client.sends(GET);
    server.whole(3);
    server.sends([headers(3, OK), last_data(3, "ok")].concat());
    client.gets(&expand1(OK_GOT));
}

#[test]
fn responses_arrive_with_the_framing_that_they_need() {
    answers("length", "GET", &[headers(1, OK), data(1, "o"), last_data(1, "k")], OK_GOT);
    let bare = ":status: 200\ndate: D\n";
    let chunked = "HTTP/1.1 200 OK\r\ndate: D\r\nTransfer-Encoding: chunked\r\n{via}\r\n";
    answers(
        "no length",
        "GET",
        &[headers(1, bare), last_data(1, "abc")],
        &format!("{chunked}3\r\nabc\r\n0\r\n\r\n"),
    );
    answers(
        "trailers",
        "GET",
        &[headers(1, bare), data(1, "abc"), last_headers(1, "x-sum: 1\nx-two: 2\n")],
        &format!("{chunked}3\r\nabc\r\n0\r\nx-sum: 1\r\nx-two: 2\r\n\r\n"),
    );
    answers(
        "trailers behind a length",
        "GET",
        &[
            headers(1, &format!("{bare}trailer: x-sum\ncontent-length: 3\n")),
            data(1, "abc"),
            last_headers(1, "x-sum: 1\n"),
        ],
        "HTTP/1.1 200 OK\r\ndate: D\r\ntrailer: x-sum\r\nTransfer-Encoding: chunked\r\n{via}\r\n\
         3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n",
    );
    answers(
        "a length that is told twice",
        "GET",
        &[headers(1, &format!("{OK}content-length: 2\n")), last_data(1, "ok")],
        OK_GOT,
    );
    answers(
        "trailers alone",
        "GET",
        &[headers(1, bare), last_headers(1, "x-sum: 1\n")],
        &format!("{chunked}0\r\nx-sum: 1\r\n\r\n"),
    );
    answers("empty, told late", "GET", &[headers(1, bare), last_data(1, "")], &format!("{chunked}0\r\n\r\n"));
    answers(
        "empty, told at once",
        "GET",
        &[last_headers(1, bare)],
        "HTTP/1.1 200 OK\r\ndate: D\r\ncontent-length: 0\r\n{via}\r\n",
    );
    answers(
        "a status of no known name",
        "GET",
        &[headers(1, &OK.replace("200", "299")), last_data(1, "ok")],
        &OK_GOT.replace("200 OK", "299 "),
    );
    answers(
        "fields",
        "GET",
        &[headers(1, &format!("{OK}set-cookie: a\nset-cookie: b\nx-empty: \n")), last_data(1, "ok")],
        "HTTP/1.1 200 OK\r\ndate: D\r\ncontent-length: 2\r\nset-cookie: a\r\nset-cookie: b\r\nx-empty: \r\n{via}\r\nok",
    );
}

#[test]
fn responses_without_a_body_have_none() {
    let head = "HTTP/1.1 200 OK\r\ndate: D\r\ncontent-length: 5\r\n{via}\r\n";
    answers("HEAD", "HEAD", &[last_headers(1, ":status: 200\ndate: D\ncontent-length: 5\n")], head);
    answers(
        "HEAD without a length",
        "HEAD",
        &[last_headers(1, ":status: 200\ndate: D\n")],
        "HTTP/1.1 200 OK\r\ndate: D\r\n{via}\r\n",
    );
    answers(
        "HEAD that ends late",
        "HEAD",
        &[headers(1, ":status: 200\ndate: D\ncontent-length: 5\n"), last_data(1, "")],
        head,
    );
    answers(
        "204",
        "GET",
        &[last_headers(1, ":status: 204\ndate: D\n")],
        "HTTP/1.1 204 No Content\r\ndate: D\r\n{via}\r\n",
    );
    answers(
        "304",
        "GET",
        &[last_headers(1, ":status: 304\ndate: D\ncontent-length: 5\n")],
        "HTTP/1.1 304 Not Modified\r\ndate: D\r\ncontent-length: 5\r\n{via}\r\n",
    );
}

#[test]
fn interim_responses_come_before_the_final_one() {
    let hint = ":status: 103\nlink: <a>\n";
    let got = "HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n{via}\r\n";
    answers(
        "103 twice, in one segment",
        "GET",
        &[headers(1, hint), headers(1, hint), headers(1, OK), last_data(1, "ok")],
        &format!("{got}{got}{OK_GOT}"),
    );
    let scene = Scene::to_http2();
    let mut client = scene.client1();
    client.sends("PUT / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    let mut server = scene.accept();
    server.gets_headers(
        1,
        &expand(
            ":method: PUT\n:scheme: http\n:authority: test\n:path: /\nexpect: 100-continue\ncontent-length: 3\n{ours}",
        ),
    );
    server.sends(headers(1, ":status: 100\n"));
    client.gets(&expand1("HTTP/1.1 100 Continue\r\n{via}\r\n"));
    client.sends("abc");
    assert_eq!(server.whole(1), "---\nabc\n---\n");
    server.sends([headers(1, OK), last_data(1, "ok")].concat());
    client.gets(&expand1(OK_GOT));
}

/// A short response is awaited, so nothing of it was passed on.
#[test]
fn a_short_response_that_breaks_off_is_told_as_such() {
    for (name, frames) in [
        ("reset within a length", vec![headers(1, OK), data(1, "o"), reset(1, CANCEL)]),
        ("a length that lies", vec![headers(1, OK), last_data(1, "o")]),
        ("a length that lies the other way", vec![headers(1, OK), data(1, "ok?")]),
    ] {
        let scene = Scene::with(Protocol::Http2, 1, |config| config.upstreams[0].retry.attempts = 1);
        let mut client = scene.client1();
        client.sends("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        let mut server = scene.accept();
        server.whole(1);
        server.sends(frames.concat());
        let (rest, _) = client.rest();
        let got = String::from_utf8_lossy(&rest);
        assert!(got.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{name}: {got}");
        assert!(got.ends_with("\r\n\r\nThe server's response ended early.\n"), "{name}: {got}");
    }
}

#[test]
fn a_response_that_breaks_off_is_cut() {
    let scene = Scene::to_http2();
    let mut client = scene.client1().saying(GET);
    let mut server = scene.accept();
    server.whole(1);
    let bare = ":status: 200\ndate: D\n";
    server.sends([headers(1, bare), data(1, "abc"), reset(1, INTERNAL_ERROR)].concat());
    let (rest, _) = client.rest();
    let rest = String::from_utf8(rest).expect("is text");
    let whole = "HTTP/1.1 200 OK\r\ndate: D\r\nTransfer-Encoding: chunked\r\n{via}\r\n3\r\nabc\r\n";
    let whole = String::from_utf8(expand1(whole)).expect("is text");
    assert!(is_start_of(&rest, &whole) || rest.starts_with("HTTP/1.1 502 "), "{rest}");
    // The other streams of the server's connection continue.
    let mut client = scene.client1().saying(GET);
    server.whole(3);
    server.sends([headers(3, OK), last_data(3, "ok")].concat());
    client.gets(&expand1(OK_GOT));
    assert_eq!(scene.running.counters().requests, 2);
}

fn is_start_of(text: &str, whole: &str) -> bool {
    let pairs = text.bytes().zip(whole.bytes());
    text.len() <= whole.len() && pairs.into_iter().all(|(got, expected)| expected == ANY || got == expected)
}

#[test]
fn a_server_that_refuses_everything_is_answered_for() {
    let scene = Scene::to_http2();
    let mut client = scene.client1().saying(GET);
    let mut server = scene.accept();
    // The number of attempts in total.
    for stream in [1, 3, 5] {
        server.whole(stream);
        server.sends(reset(stream, REFUSED_STREAM));
    }
    assert_eq!(client.message().status(), 502);
    scene.assert_failure("upstream-reset", 1);
}

#[test]
fn a_server_that_has_heard_enough_says_so() {
    // RFC 9113 §8.1: a complete response, then NO_ERROR for the rest of the request.
    let scene = Scene::to_http2();
    let mut client = scene.client1();
    client.sends("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\nabc");
    let mut server = scene.accept();
    server.next_on(1);
    server.gets_data(1, "abc");
    server.sends([headers(1, &OK.replace("200", "413")), last_data(1, "ok"), reset(1, NO_ERROR)].concat());
    let message = client.message();
    assert_eq!((message.status(), message.body), (413, b"ok".to_vec()));
    client.half_closes();
    client.gets_the_end();
}

#[test]
fn a_client_that_leaves_takes_its_stream_along() {
    let scene = Scene::to_http2();
    let mut client = scene.client1();
    client.sends("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nabc");
    let mut server = scene.accept();
    server.next_on(1);
    server.gets_data(1, "abc");
    client.stream().shutdown(Shutdown::Both).expect("is connected");
    // Never END_STREAM, which would look complete.
    server.gets_reset(1, CANCEL);
    server.is_heard();
    scene.assert_failure("client-gone", 1);
}
