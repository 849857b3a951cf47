//! Pages of known size: lengths, validators, conditions, ranges.

use super::client::{Client, pattern, start};

const MODIFIED: &str = "Mon, 01 Jan 2024 00:00:00 GMT";

#[test]
fn pages_have_their_sizes_with_and_without_a_query() {
    let running = start();
    let mut client = Client::connect(&running);
    for (path, bytes) in [
        ("/tiny", 128),
        ("/small", 3269),
        ("/medium", 11_268),
        ("/large", 165_854),
        ("/blank/0", 0),
        ("/blank/5000", 5000),
        ("/blank/1MiB", 1 << 20),
        ("/varnish/gen/10", 10_240),
        ("/varnish/gen/40?as=20", 40_960),
    ] {
        let separator = if path.contains('?') { '&' } else { '?' };
        for target in [path.to_owned(), format!("{path}{separator}other=1")] {
            let response = client.get(&target);
            assert_eq!(response.status, 200, "{target}");
            assert!(response.body == pattern(0, bytes), "{target}");
            let head = client.request("HEAD", &target, "");
            let date = |head: &str| head.lines().filter(|line| !line.starts_with("Date")).collect::<String>();
            assert_eq!(date(&head.head), date(&response.head), "HEAD {target}");
        }
    }
    let hello = client.get("/hello.html");
    assert_eq!((hello.body.len(), hello.field("Content-Type")), (42, Some("text/html")));
    assert_eq!(client.get("/hello.html?x").body, hello.body);
}

#[test]
fn ten_gibibytes_are_promised_and_begin() {
    let running = start();
    let mut client = Client::connect(&running);
    client.send("GET /blank/10GiB HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_head().field("Content-Length"), Some("10737418240"));
    assert!(client.exactly(1 << 20) == pattern(0, 1 << 20));
    assert_eq!(Client::connect(&running).get("/blank/11GiB").status, 400);
    let mut client = Client::connect(&running);
    let end = client.request("GET", "/blank/10GiB", "Range: bytes=-100\r\n");
    assert_eq!(end.body, pattern((10 << 30) - 100, 100));
}

#[test]
fn generated_pages_are_cacheable_only_with_as() {
    let running = start();
    let mut client = Client::connect(&running);
    assert_eq!(client.get("/varnish/gen/10?as=7").field("Cache-Control"), Some("public, max-age=3600"));
    assert_eq!(client.get("/varnish/gen/10").field("Cache-Control"), Some("no-store"));
    assert_eq!(client.get("/varnish/gen/70000").status, 400);
}

#[test]
fn rfc9110_8_8_validators() {
    let running = start();
    let mut client = Client::connect(&running);
    for path in ["/tiny", "/large", "/hello.html", "/blank/77"] {
        let response = client.get(path);
        assert_eq!(response.field("Last-Modified"), Some(MODIFIED));
        assert_eq!(response.field("Accept-Ranges"), Some("bytes"));
        assert!(response.field("ETag").is_some_and(|tag| tag.starts_with('"')), "{path}");
    }
    assert_ne!(client.get("/tiny").field("ETag"), client.get("/small").field("ETag"));
}

#[test]
fn rfc9110_13_1_1_if_match() {
    let running = start();
    let mut client = Client::connect(&running);
    let tag = client.get("/tiny").field("ETag").expect("has one").to_owned();
    assert_eq!(client.request("GET", "/tiny", &format!("If-Match: {tag}\r\n")).status, 200);
    assert_eq!(client.request("GET", "/tiny", "If-Match: \"other\"\r\n").status, 412);
    assert_eq!(client.request("PUT", "/tiny", "If-Match: \"other\"\r\n").status, 412);
}

#[test]
fn rfc9110_13_1_2_if_none_match() {
    let running = start();
    let mut client = Client::connect(&running);
    let tag = client.get("/tiny").field("ETag").expect("has one").to_owned();
    for method in ["GET", "HEAD"] {
        let response = client.request(method, "/tiny", &format!("If-None-Match: \"a\", W/{tag}\r\n"));
        assert_eq!((response.status, response.field("ETag")), (304, Some(tag.as_str())), "{method}");
        // RFC 9110 §15.4.5: a 304 has no body, and the next response follows at once.
        assert_eq!(response.field("Content-Length"), None);
    }
    assert_eq!(client.request("GET", "/tiny", "If-None-Match: \"a\"\r\n").status, 200);
    assert_eq!(client.request("POST", "/tiny", "If-None-Match: *\r\n").status, 412);
}

#[test]
fn rfc9110_13_1_3_if_modified_since() {
    let running = start();
    let mut client = Client::connect(&running);
    assert_eq!(client.request("GET", "/large", &format!("If-Modified-Since: {MODIFIED}\r\n")).status, 304);
    let before = "If-Modified-Since: Sun, 31 Dec 2023 23:59:59 GMT\r\n";
    assert_eq!(client.request("GET", "/large", before).body.len(), 165_854);
}

#[test]
fn rfc9110_13_1_4_if_unmodified_since() {
    let running = start();
    let mut client = Client::connect(&running);
    assert_eq!(client.request("GET", "/tiny", &format!("If-Unmodified-Since: {MODIFIED}\r\n")).status, 200);
    let before = "If-Unmodified-Since: Sun, 31 Dec 2023 23:59:59 GMT\r\n";
    assert_eq!(client.request("GET", "/tiny", before).status, 412);
}

#[test]
fn rfc9110_13_1_5_if_range() {
    let running = start();
    let mut client = Client::connect(&running);
    let tag = client.get("/tiny").field("ETag").expect("has one").to_owned();
    for (value, status) in [(tag.as_str(), 206), (MODIFIED, 206), ("\"other\"", 200), ("W/\"a\"", 200)] {
        let fields = format!("Range: bytes=1-2\r\nIf-Range: {value}\r\n");
        assert_eq!(client.request("GET", "/tiny", &fields).status, status, "{value}");
    }
}

#[test]
fn rfc9110_14_2_one_range() {
    let running = start();
    let mut client = Client::connect(&running);
    for (range, first, length, content_range) in [
        ("0-0", 0, 1, "bytes 0-0/165854"),
        ("65000-165000", 65_000, 100_001, "bytes 65000-165000/165854"),
        ("-54", 165_800, 54, "bytes 165800-165853/165854"),
        ("165853-", 165_853, 1, "bytes 165853-165853/165854"),
    ] {
        let response = client.request("GET", "/large", &format!("Range: bytes={range}\r\n"));
        assert_eq!((response.status, response.field("Content-Range")), (206, Some(content_range)), "{range}");
        assert!(response.body == pattern(first, length), "{range}");
    }
    let hello = client.get("/hello.html").body;
    assert_eq!(client.request("GET", "/hello.html", "Range: bytes=40-\r\n").body, hello[40..]);
    // RFC 9110 §14.2: Range is defined for GET alone.
    assert_eq!(client.request("HEAD", "/large", "Range: bytes=0-0\r\n").status, 200);
    assert_eq!(client.request("POST", "/large", "Range: bytes=0-0\r\n").status, 200);
}

#[test]
fn rfc9110_14_6_several_ranges() {
    let running = start();
    let mut client = Client::connect(&running);
    let response = client.request("GET", "/small", "Range: bytes=0-9,-5,100-199\r\n");
    assert_eq!(response.status, 206);
    assert_eq!(response.field("Content-Range"), None);
    let content_type = response.field("Content-Type").expect("has one");
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").expect("is that type");
    let mut expected = Vec::new();
    for (first, length) in [(0, 10), (3264, 5), (100, 100)] {
        let last = first + length - 1;
        let opening = format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes {first}-{last}/3269\r\n\r\n"
        );
        expected.extend_from_slice(opening.as_bytes());
        expected.extend(pattern(first, length));
    }
    expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    assert_eq!(response.text(), String::from_utf8_lossy(&expected));
}

#[test]
fn rfc9110_15_5_17_range_not_satisfiable() {
    let running = start();
    let response = Client::connect(&running).request("GET", "/tiny", "Range: bytes=128-\r\n");
    assert_eq!((response.status, response.field("Content-Range")), (416, Some("bytes */128")));
}

#[test]
fn rfc9110_13_2_1_preconditions_count_only_for_a_success() {
    let running = start();
    let mut client = Client::connect(&running);
    for fields in ["If-None-Match: *\r\n", "If-Match: \"other\"\r\n", "Range: bytes=0-0\r\n"] {
        assert_eq!(client.request("GET", "/tiny?status=503", fields).status, 503, "{fields}");
    }
}
