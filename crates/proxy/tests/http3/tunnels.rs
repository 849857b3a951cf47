//! WebSockets by Extended CONNECT (RFC 9220).

use super::scene::Scene;
use testkit::http3::Got;
use testkit::http3::frame::request;

fn connect() -> String {
    request("CONNECT", "/ws", ":protocol: websocket\nsec-websocket-version: 13\n")
}

#[test]
fn a_websocket_is_a_tunnel() {
    let scene = Scene::new();
    let client = scene.client();
    let mut stream = client.open();
    stream.sends_head(&connect());
    let mut server = scene.accept();
    let head = server.head();
    assert!(head.starts_with("GET /ws HTTP/1.1\r\n") && head.contains("Upgrade: websocket\r\n"), "{head}");
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    let key =
        fields.filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key")).map(|(_, key)| key).next();
    let key = key.expect("there is a key");
    let accept = accept(key);
    server.sends(format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    ));
    assert!(stream.head().starts_with(":status: 200\n"));
    stream.sends_data(b"to the server");
    assert_eq!(server.exactly(13), b"to the server");
    server.sends("to the client");
    assert_eq!(stream.gets(), Got::Data(b"to the client".to_vec()));
    stream.ends();
    server.gets_the_end();
    drop(server);
    assert_eq!(stream.gets(), Got::End);
}

/// RFC 6455 §4.2.2.
fn accept(key: &str) -> String {
    use base64::Engine;
    use sha1::Digest;
    let digest = sha1::Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
    base64::prelude::BASE64_STANDARD.encode(digest)
}

#[test]
fn a_server_that_does_not_switch_is_not_believed() {
    let scene = Scene::new();
    let client = scene.client();
    let mut stream = client.open();
    stream.sends_head(&connect());
    let mut server = scene.accept().after_head();
    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno");
    assert!(stream.head().starts_with(":status: 502\n"));
}
