//! Requests that are rejected before a server sees them: invalid syntax, and ambiguous messages (request smuggling).
//! The connection is closed after each.

use testkit::text::{GET, expand, failure_and_close};

use super::scene::Scene;
use super::scene::Step::*;

/// A request that a lenient parser would find after the rejected one.
const FOLLOWER: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: test\r\n\r\n";

const NOT_HTTP: &str = "The request is not valid HTTP.";
const NO_HOST: &str = "The request has no valid Host.";
const UNCLEAR: &str = "The length of the request body is ambiguous.";
const BAD_CHUNKS: &str = "The chunked request body is not valid.";

/// Asserts that each request gets this status and reason, and that no server gets a connection.
fn refused(status: &str, reason: &str, requests: &[&[u8]]) {
    let scene = Scene::new();
    let answer = expand(&failure_and_close(status, reason), "");
    for request in requests {
        let shown = request.escape_ascii().to_string();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut client = scene.client().saying([*request, FOLLOWER].concat());
            client.gets(&answer);
            client.gets_the_end();
            scene.assert_no_more_connections();
        }));
        if let Err(panic) = outcome {
            let text = panic.downcast_ref::<String>().map_or("", String::as_str);
            panic!("{shown}:\n{text}");
        }
    }
    // A later request proves that nothing was forwarded.
    let _client = scene.client().saying(GET);
    // Stays open, because a connection that ends without a response causes a retry.
    let mut server = scene.accept(0);
    assert!(server.head().starts_with("GET / HTTP/1.1\r\n"));
    scene.assert_no_more_connections();
}

#[test]
fn wrong_request_lines() {
    refused(
        "400 Bad Request",
        NOT_HTTP,
        &[
            b"GET  / HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET\t/ HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET /\tHTTP/1.1\r\nHost: test\r\n\r\n",
            b" GET / HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET /\r\nHost: test\r\n\r\n",
            b"GET\r\nHost: test\r\n\r\n",
            b"G@T / HTTP/1.1\r\nHost: test\r\n\r\n",
            b"G\x00T / HTTP/1.1\r\nHost: test\r\n\r\n",
            b"G\xc3\x8bT / HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET /\x00 HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET /\x7f HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET /\xc3\xbc HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET /a#b HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET /\r HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET / HTTP/1.1\nHost: test\r\n\r\n",
            b"\nGET / HTTP/1.1\r\nHost: test\r\n\r\n",
            b"\r\n\r\nGET / HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET nowhere HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET * HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET ftp://test/ HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET http:/// HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET http://me@test/ HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET http://te%73t/ HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET http:/test HTTP/1.1\r\nHost: test\r\n\r\n",
            b"CONNECT test HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET / HTTP/1.\r\nHost: test\r\n\r\n",
            b"GET / HTTP/1.10\r\nHost: test\r\n\r\n",
            b"GET / HTTP/01.1\r\nHost: test\r\n\r\n",
            b"GET / http/1.1\r\nHost: test\r\n\r\n",
            b"GET /  HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET / HTTP/1.1 \r\nHost: test\r\n\r\n",
            b"GET / and more HTTP/1.1\r\nHost: test\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00",
        ],
    );
}

#[test]
fn other_versions() {
    refused(
        "505 HTTP Version Not Supported",
        "Only HTTP/1.0 and HTTP/1.1 are supported here.",
        &[b"GET / HTTP/2.0\r\nHost: test\r\n\r\n", b"GET / HTTP/0.9\r\nHost: test\r\n\r\n"],
    );
}

#[test]
fn wrong_fields() {
    refused(
        "400 Bad Request",
        NOT_HTTP,
        &[
            // obs-fold in every position.
            b"GET / HTTP/1.1\r\nHost: test\r\nA: b\r\n c\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nA: b\r\n\tc\r\n\r\n",
            b"GET / HTTP/1.1\r\n Host: test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding:\r\n chunked\r\n\r\n",
            // Bare CR and LF.
            b"GET / HTTP/1.1\r\nHost: test\r\nA: b\rC: d\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nA: b\nC: d\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nA: b\r\n\n",
            b"GET / HTTP/1.1\r\nHost: test\n\n",
            b"GET / HTTP/1.1\r\nHost: test\r\n\r\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nA: b\r\r\n\r\n",
            // White space and control characters in names.
            b"GET / HTTP/1.1\r\nHost : test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nContent-Length : 5\r\n\r\nhello",
            b"GET / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nA B: c\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nA\x00: c\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\n\x0bA: c\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nA\xff: c\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\n\xef\xbb\xbfTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\n: c\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nno colon\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nA\r\n\r\n",
            // Control characters in values.
            b"GET / HTTP/1.1\r\nHost: test\r\nA: b\x00c\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nA: b\x08c\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nA: b\x7fc\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\x00\r\n\r\n0\r\n\r\n",
        ],
    );
}

#[test]
fn wrong_hosts() {
    refused(
        "400 Bad Request",
        NO_HOST,
        &[
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nX-Host: test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
            b"GET / HTTP/1.0\r\nHost:\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test\r\nHost: test\r\n\r\n",
            b"GET / HTTP/1.0\r\nHost: test\r\nhost: other\r\n\r\n",
            b"GET http://test/ HTTP/1.1\r\n\r\n",
            b"GET http://test/ HTTP/1.1\r\nHost: te st\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test, other\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test other\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test/path\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: me@test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test:port\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test:65536\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: test:80:80\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: te%73t\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: ::1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: te\"st\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: te\xffst\r\n\r\n",
        ],
    );
}

#[test]
fn lengths_that_are_not_clear() {
    refused(
        "400 Bad Request",
        UNCLEAR,
        &[
            // Both framings, in either order.
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
            // Several lengths, equal or not.
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\ncontent-length: 0\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5, 5\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5,0\r\n\r\nhello",
            // Malformed lengths.
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length:\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: +5\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: -5\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0x5\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5 5\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5;\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5.0\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: \"5\"\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: five\r\n\r\nhello",
            // Overflowing lengths: 2^63, 2^64, 2^64 + 5, and more digits than any.
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9223372036854775808\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 18446744073709551616\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 18446744073709551621\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 00000000000000000000005\r\n\r\nhello",
            // Obfuscated Transfer-Encoding.
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: identity\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunk\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\xc2\xa0\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\ntransfer-encoding: x\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: x\r\nContent-Length: 5\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer_Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nContent_Length: 5\r\n\r\nhello",
            b"POST / HTTP/1.0\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            // Hop-by-hop fields whose removal would change the message for the next hop.
            b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\nConnection: Content-Length\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: test\r\nConnection: close, host\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: test\r\nConnection: X-Forwarded-For\r\n\r\n",
        ],
    );
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Invalid chunked bodies. They are also tested behind a valid part that may already have been forwarded.
const CHUNKS: &[&[u8]] = &[
    // Sizes.
    b"\r\nhello\r\n0\r\n\r\n",
    b"g\r\nhello\r\n0\r\n\r\n",
    b"0x5\r\nhello\r\n0\r\n\r\n",
    b"+5\r\nhello\r\n0\r\n\r\n",
    b"-5\r\nhello\r\n0\r\n\r\n",
    b" 5\r\nhello\r\n0\r\n\r\n",
    b"5 \r\nhello\r\n0\r\n\r\n",
    b"5 ;a=b\r\nhello\r\n0\r\n\r\n",
    b"5\t\r\nhello\r\n0\r\n\r\n",
    b"5_0\r\nhello\r\n0\r\n\r\n",
    b";a\r\nhello\r\n0\r\n\r\n",
    // Overflowing sizes: 2^64 + 5 and 2^60.
    b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    b"1000000000000000\r\nhello\r\n0\r\n\r\n",
    b"ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    // Terminators.
    b"5\nhello\r\n0\r\n\r\n",
    b"5\r\rhello\r\n0\r\n\r\n",
    b"5\rhello\r\n0\r\n\r\n",
    b"5\r\nhello\n0\r\n\r\n",
    b"5\r\nhello0\r\n\r\n",
    b"5\r\nhelloo\r\n0\r\n\r\n",
    b"5\r\nhello\r0\r\n\r\n",
    b"5\r\nhello\r\n0\n\r\n",
    b"5\r\nhello\r\n0\r\n\n",
    // Extensions.
    b"5;a\nb\r\nhello\r\n0\r\n\r\n",
    b"5;\x00\r\nhello\r\n0\r\n\r\n",
    b"5;\x7f\r\nhello\r\n0\r\n\r\n",
    b"0;\n\r\n",
    // Trailers.
    b"0\r\nA: b\n\r\n",
    b"0\r\nA : b\r\n\r\n",
    b"0\r\nA\r\n\r\n",
    b"0\r\n A: b\r\n\r\n",
    b"0\r\nA: b\r\n c\r\n\r\n",
    b"0\r\nA: b\x00\r\n\r\n",
];

#[test]
fn chunks_that_are_not_valid() {
    let requests: Vec<Vec<u8>> = CHUNKS.iter().map(|body| [CHUNKED.as_bytes(), *body].concat()).collect();
    let requests: Vec<&[u8]> = requests.iter().map(Vec::as_slice).collect();
    refused("400 Bad Request", BAD_CHUNKS, &requests);
}

#[test]
fn an_invalid_chunk_behind_what_has_gone_on_is_never_passed_on() {
    let seen = "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n{ours}\r\n3\r\nabc\r\n";
    let answer = failure_and_close("400 Bad Request", BAD_CHUNKS);
    let scene = Scene::new();
    for body in CHUNKS {
        let mut client = scene.client().saying(format!("{CHUNKED}3\r\nabc\r\n"));
        let mut server = scene.accept(0);
        server.gets(&expand(seen, ""));
        client.sends([*body, FOLLOWER].concat());
        client.gets(&expand(&answer, ""));
        client.gets_the_end();
        // A valid beginning may have been forwarded, but never the end of the body, or bytes after it.
        let (rest, _) = server.rest();
        let rest = String::from_utf8_lossy(&rest);
        let shown = body.escape_ascii();
        assert!(
            !rest.contains("0\r\n\r\n") && !rest.contains("smuggled"),
            "{shown}: the server got {rest:?}"
        );
    }
    scene.assert_no_more_connections();
}

#[test]
fn what_follows_a_valid_request_is_refused_by_itself() {
    let answer = failure_and_close("400 Bad Request", NOT_HTTP);
    Scene::new().play(
        "more body than was promised",
        &[
            ClientSends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc\x01def"),
            ServerAccepts,
            ServerGets("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n{ours}\r\nabc"),
            ServerSends(testkit::text::OK),
            ClientGets(testkit::text::OK_GOT),
            ClientGets(&answer),
            ClientGetsEnd,
        ],
    );
}

#[test]
fn an_upgrade_to_what_is_not_looked_into_is_not_passed_on() {
    Scene::new().play(
        "h2c",
        &[
            ClientSends(
                "GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
                 HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
            ),
            ServerAccepts,
            ServerGets(testkit::text::GET_SEEN),
            ServerSends(testkit::text::OK),
            ClientGets(testkit::text::OK_GOT),
        ],
    );
}
