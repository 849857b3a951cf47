//! Bodies in every framing, also slow ones; the URL list.

use super::client::{Client, pattern, start};

#[test]
fn rfc9112_7_1_chunked() {
    let running = start();
    let mut client = Client::connect(&running);
    let response = client.get("/chunked/25?size=10");
    assert_eq!((response.chunks, response.body), (vec![10, 10, 5], pattern(0, 25)));
    assert_eq!(client.get("/chunked/0").body, b"");
    let response = client.get("/chunked/1MB?size=128KiB");
    assert!(response.chunks[..7].iter().all(|size| *size == 131_072));
    assert!(response.body == pattern(0, 1_000_000));
    let head = client.request("HEAD", "/chunked/10", "");
    assert_eq!((head.field("Transfer-Encoding"), head.field("Content-Length")), (Some("chunked"), None));
}

#[test]
fn rfc9112_7_1_2_trailers() {
    let running = start();
    let mut client = Client::connect(&running);
    let response = client.get("/chunked/25?size=10&trailers");
    assert_eq!(response.trailers, ["X-Body-Bytes: 25", "X-Body-Chunks: 3"]);
    assert_eq!(response.field("Trailer"), Some("X-Body-Bytes, X-Body-Chunks"));
    assert!(client.get("/chunked/25").trailers.is_empty());
}

#[test]
fn rfc9112_6_1_no_chunks_for_http_1_0() {
    let running = start();
    let mut client = Client::connect(&running);
    client.send("GET /chunked/25?size=10&trailers HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let response = client.response("GET");
    assert_eq!((response.field("Transfer-Encoding"), response.field("Connection")), (None, Some("close")));
    assert_eq!(response.body, pattern(0, 25));
}

#[test]
fn rfc9112_6_3_close_delimited() {
    let running = start();
    let mut client = Client::connect(&running);
    let response = client.get("/close/300000");
    assert_eq!((response.field("Content-Length"), response.field("Connection")), (None, Some("close")));
    assert!(response.body == pattern(0, 300_000));
}

#[test]
fn drip_is_whole() {
    let running = start();
    let mut client = Client::connect(&running);
    for (query, bytes) in [
        ("bytes=1000&over=20ms", 1000),
        ("bytes=3&over=0", 3),
        ("bytes=0&over=1ms", 0),
        ("bytes=1&over=5ms", 1),
        ("bytes=300000&over=1ms", 300_000),
    ] {
        assert!(client.get(&format!("/drip?{query}")).body == pattern(0, bytes), "{query}");
    }
    assert_eq!(client.request("HEAD", "/drip?bytes=7&over=10m", "").field("Content-Length"), Some("7"));
}

#[test]
fn makelist_is_the_scripts_list() {
    let running = start();
    let mut client = Client::connect(&running);
    let response = client.get("/varnish/makelist?total=5000&host=h.test:8080&seed=3");
    let lines: Vec<_> = response.text().split('\n').collect();
    // The script prints its last URL once more, without a line end.
    assert_eq!(lines.len(), 5001);
    assert_eq!(lines[4999], lines[5000]);
    assert!(lines.iter().all(|line| line.starts_with("http://h.test:8080/varnish/gen/")));
    let again = client.get("/varnish/makelist.php?total=5000&host=h.test:8080&seed=3");
    assert_eq!(again.body, response.body);
    assert_ne!(client.get("/varnish/makelist?total=5000&host=h.test:8080&seed=4").body, response.body);
    // The origin serves any URL of the list.
    let path = lines[0].strip_prefix("http://h.test:8080").expect("was looked at");
    assert_eq!(client.get(path).status, 200);
}

#[test]
fn makelist_uses_the_host_of_the_request() {
    let running = start();
    let mut client = Client::connect(&running);
    assert!(client.get("/varnish/makelist?total=1").text().starts_with("http://origin.test/"));
    assert_eq!(client.get("/varnish/makelist?total=0").text(), "");
    for wrong in ["total=x", "total=10000001", "seed=x", "host=a%20b", "host=a%0ab"] {
        assert_eq!(client.get(&format!("/varnish/makelist?{wrong}")).status, 400, "{wrong}");
    }
}
