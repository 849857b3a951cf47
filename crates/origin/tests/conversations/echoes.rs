//! Endpoints that return the request.

use super::client::{Client, start};

#[test]
fn echo_is_the_request_byte_for_byte() {
    let running = start();
    let mut client = Client::connect(&running);
    let head = "POST /echo?a=%20b HTTP/1.1\r\nHOST: x\r\nX-B:  2 \r\nx-a: 1\r\nX-B: \u{e9}\r\nContent-Length: 5\r\n\r\n";
    client.send(format!("{head}hello"));
    assert_eq!(client.response("POST").text(), format!("{head}hello"));
    // Without its framing, because a proxy may change that.
    let head = "PUT /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"));
    assert_eq!(client.response("PUT").text(), format!("{head}abcde"));
}

#[test]
fn echo_as_json() {
    let running = start();
    let mut client = Client::connect(&running);
    client.send(
        b"PUT /echo?json HTTP/1.1\r\nHost: x\r\nX: \xe9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nT: v\r\n\r\n",
    );
    let json: serde_json::Value = serde_json::from_slice(&client.response("PUT").body).expect("is JSON");
    let expected = serde_json::json!({
        "method": "PUT",
        "target": "/echo?json",
        "version": "HTTP/1.1",
        "headers": [["Host", "x"], ["X", "\u{e9}"], ["Transfer-Encoding", "chunked"]],
        "trailers": [["T", "v"]],
        "body_bytes": 2,
        "body": "hi",
        "client": client.stream().local_addr().expect("has one").to_string(),
    });
    assert_eq!(json, expected);
    client.send(b"PUT /echo?json HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n\xff\x00");
    let json: serde_json::Value = serde_json::from_slice(&client.response("PUT").body).expect("is JSON");
    assert_eq!((&json["body"], json["body_base64"].as_str()), (&serde_json::Value::Null, Some("/wA=")));
}

#[test]
fn echo_takes_only_so_much() {
    let running = start();
    let mut client = Client::connect(&running);
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = [b"100000\r\n".to_vec(), vec![b'x'; 1 << 20], b"\r\n".to_vec()].concat();
    for _ in 0..17 {
        client.send(&chunk);
    }
    assert_eq!(client.response("POST").status, 413);
}

#[test]
fn echo_body_keeps_type_framing_and_trailers() {
    let running = start();
    let mut client = Client::connect(&running);
    client.send("POST /echo-body HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\nContent-Length: 5\r\n\r\nhello");
    let response = client.response("POST");
    assert_eq!((response.field("Content-Type"), response.text()), (Some("a/b"), "hello"));
    assert_eq!(response.field("Content-Length"), Some("5"));

    client.send("POST /echo-body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("5\r\nhello\r\n");
    let response = client.response_head();
    assert_eq!(response.field("Transfer-Encoding"), Some("chunked"));
    // The body streams: the first part returns before the rest is sent.
    assert_eq!(client.exactly(10), b"5\r\nhello\r\n");
    client.send("0\r\nX-T: v\r\n\r\n");
    assert_eq!(client.exactly(13), b"0\r\nX-T: v\r\n\r\n");
    assert_eq!(client.get("/echo-body").text(), "");
}

#[test]
fn cgi_prints_the_environment_as_the_script_does() {
    let running = start();
    let mut client = Client::connect(&running);
    let fields = "X-Thing: <b>\r\nx-thing: 2\r\nProxy: evil\r\nAuthorization: secret\r\n";
    let response = client.request("GET", "/cgi-bin/second.pl?a=1&b=2", fields);
    assert_eq!(response.field("Content-Type"), Some("text/html"));
    let page = response.text();
    for variable in [
        "GATEWAY_INTERFACE --> CGI/1.1<br>",
        "REQUEST_METHOD --> GET<br>",
        "QUERY_STRING --> a=1&b=2<br>",
        "REQUEST_URI --> /cgi-bin/second.pl?a=1&b=2<br>",
        "SERVER_PROTOCOL --> HTTP/1.1<br>",
        "SERVER_NAME --> origin.test<br>",
        "HTTP_HOST --> origin.test<br>",
        "HTTP_X_THING --> &lt;b&gt;, 2<br>",
        "REMOTE_ADDR --> 127.0.0.1<br>",
    ] {
        assert!(page.contains(variable), "{variable} is not in {page}");
    }
    assert!(!page.contains("evil") && !page.contains("secret"));
}
