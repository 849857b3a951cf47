//! Statuses, fields, interim and early responses, options of every page.

use std::time::{Duration, Instant};

use super::client::{Client, start};

#[test]
fn the_index_names_every_page_and_each_exists() {
    let running = start();
    let index = Client::connect(&running).get("/");
    let paths: Vec<_> = index
        .text()
        .lines()
        .filter(|line| line.starts_with('/'))
        .flat_map(|line| line.split("  ").next().unwrap_or_default().split(' '))
        .map(|path| path.split(['?', '[']).next().unwrap_or_default())
        .map(|path| path.replace("DURATION", "1ms").replace("/N", "/200").replace("/K", "/1"))
        .collect();
    assert!(paths.len() > 25, "{paths:?}");
    for path in paths {
        let mut client = Client::connect(&running);
        match path.as_str() {
            // These do not send a valid response.
            "/reset" | "/truncate" | "/stall" | "/garbage" | "/raw" => {}
            // Without a count they do not end.
            "/events" | "/vanward.Origin/Events" => {
                assert_ne!(client.get(&format!("{path}?count=1")).status, 404, "{path}");
            }
            _ => assert_ne!(client.get(&path).status, 404, "{path}"),
        }
    }
    assert_eq!(Client::connect(&running).get("/nowhere").status, 404);
}

#[test]
fn statuses() {
    let running = start();
    let mut client = Client::connect(&running);
    for status in (200..=206).chain([300, 301, 304, 308, 400, 401, 404, 418, 429, 500, 503, 599]) {
        assert_eq!(client.get(&format!("/status/{status}")).status, status);
        assert_eq!(client.request("HEAD", &format!("/status/{status}"), "").status, status);
    }
    assert_eq!(client.get("/status/302").field("Location"), Some("/tiny"));
    assert!(client.get("/status/401").field("WWW-Authenticate").is_some());
    for wrong in ["/status/600", "/status/101", "/status/99", "/status/abc", "/status/0200"] {
        assert_eq!(client.get(wrong).status, 400, "{wrong}");
    }
}

#[test]
fn rfc9112_6_3_another_status_keeps_to_its_framing() {
    let running = start();
    let mut client = Client::connect(&running);
    let etag = client.get("/tiny").field("ETag").expect("it has one").to_owned();
    let fresh = format!("If-None-Match: {etag}\r\n");
    for (method, target, fields, length) in [
        ("GET", "/tiny?status=200", fresh.as_str(), 128),
        ("GET", "/tiny?status=299", fresh.as_str(), 128),
        ("GET", "/tiny?status=200", "Range: bytes=0-9\r\n", 128),
        ("GET", "/tiny?status=200", "Range: bytes=900-\r\n", 128),
        ("GET", "/tiny?status=500", fresh.as_str(), 128),
        ("OPTIONS", "*", "", 0),
        ("DELETE", "/stats?status=200", "", 0),
        ("DELETE", "/stats?status=500", "", 0),
    ] {
        // All requests use one connection, so that an error in the framing breaks the next response.
        let response = client.request(method, target, fields);
        assert_eq!(response.body.len(), length, "{target}, {fields}: {}", response.head);
        assert_eq!(response.field("Content-Range"), None, "{target}, {fields}");
        let bodiless = response.status == 204;
        assert_eq!(response.field("Content-Length").is_none(), bodiless, "{target}: {}", response.head);
    }
}

#[test]
fn rfc9110_15_2_interim_responses() {
    let running = start();
    let mut client = Client::connect(&running);
    for (target, status) in [("/early-hints", 103), ("/status/103", 103), ("/status/102", 102)] {
        assert_eq!(client.get(target).status, status, "{target}");
        assert_eq!(client.response("GET").status, 200, "{target}");
    }
    assert!(client.get("/early-hints").field("Link").is_some());
    client.response("GET");
    // HTTP/1.0 gets no interim response.
    client.send("GET /early-hints HTTP/1.0\r\n\r\n");
    assert_eq!(client.response("GET").status, 200);
    client.assert_closed();
}

#[test]
fn fields_that_are_asked_for() {
    let running = start();
    let mut client = Client::connect(&running);
    let response = client.get("/headers?Vary=Accept&X=1&X=2&content-type=a%2Fb&Date=now&delay=1ms&cache=5");
    assert_eq!(response.fields("X").collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(response.fields("Content-Type").collect::<Vec<_>>(), ["a/b"]);
    assert_eq!(response.fields("Date").collect::<Vec<_>>(), ["now"]);
    assert_eq!(
        (response.field("Vary"), response.field("Cache-Control")),
        (Some("Accept"), Some("max-age=5"))
    );
    assert_eq!((response.field("delay"), response.field("cache")), (None, None));
    for wrong in ["Content-Length=1", "transfer-encoding=chunked", "a%20b=c", "a=b%0d%0ac:d", "=x", "a=%20b"]
    {
        assert_eq!(client.get(&format!("/headers?{wrong}")).status, 400, "{wrong}");
    }
}

#[test]
fn options_of_every_page() {
    let running = start();
    let mut client = Client::connect(&running);
    for target in
        ["/tiny", "/blank/9", "/echo", "/chunked/9", "/status/200", "/varnish/gen/1?as=1", "/nowhere"]
    {
        let separator = if target.contains('?') { '&' } else { '?' };
        let response = client.get(&format!("{target}{separator}status=503&cache=60"));
        let expected = if target == "/nowhere" { (404, None) } else { (503, Some("max-age=60")) };
        assert_eq!((response.status, response.field("Cache-Control")), expected, "{target}");
        assert!(response.fields("Cache-Control").count() <= 1);
    }
    assert_eq!(client.get("/tiny?cache=private").field("Cache-Control"), Some("private"));
    assert_eq!(client.get("/tiny?status=204").body.len(), 0);
    let wrong = client.get("/tiny?delay=never");
    assert_eq!(
        (wrong.status, wrong.text()),
        (400, "delay=\"never\" is not a duration up to 10m (50ms, 1.5s, 2m)\n")
    );
}

#[test]
fn delays_are_no_shorter_than_asked_for() {
    let running = start();
    let mut client = Client::connect(&running);
    for target in ["/delay/50ms", "/tiny?delay=50ms", "/drip?bytes=100&over=50ms"] {
        let start = Instant::now();
        assert_eq!(client.get(target).status, 200);
        assert!(start.elapsed() >= Duration::from_millis(50), "{target}");
    }
    assert_eq!(client.get("/delay/601s").status, 400);
}

#[test]
fn early_answers_before_the_body_has_come() {
    let running = start();
    let mut client = Client::connect(&running);
    client.send("POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.response("POST").status, 200);
    client.send("hello");
    client.send("POST /early?close HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let response = client.response("POST");
    assert_eq!((response.status, response.field("Connection")), (200, Some("close")));
    // Bytes that the client still sends do not cause a reset.
    client.send("5\r\nhello\r\n0\r\n\r\n");
    client.assert_closed();
}

#[test]
fn rfc9110_10_1_1_early_without_100_closes() {
    let running = start();
    let mut client = Client::connect(&running);
    client.send("POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    let response = client.response("POST");
    assert_eq!((response.status, response.field("Connection")), (200, Some("close")));
    client.assert_closed();
}
