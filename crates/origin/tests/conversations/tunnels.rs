//! Upgrades: an echo of bytes, and a WebSocket.

use std::net::Shutdown;

use super::client::{Client, start};

const WEBSOCKET: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[test]
fn rfc9110_7_8_upgrade_echoes_until_the_client_half_closes() {
    let running = start();
    let mut client = Client::connect(&running);
    // The first bytes of the tunnel arrive with the request.
    client.send("GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nfirst");
    let response = client.response("GET");
    assert_eq!((response.status, response.field("Upgrade")), (101, Some("echo")));
    assert_eq!(client.exactly(5), b"first");
    client.send(vec![b'x'; 200_000]);
    assert!(client.exactly(200_000) == vec![b'x'; 200_000]);
    client.send("last");
    client.stream().shutdown(Shutdown::Write).expect("is connected");
    let (bytes, ending) = client.rest();
    ending.expect("closes in an orderly way");
    assert_eq!(bytes, b"last");
}

#[test]
fn rfc9110_15_5_22_upgrade_required() {
    let running = start();
    let mut client = Client::connect(&running);
    for fields in ["", "Upgrade: echo\r\n", "Connection: upgrade\r\n"] {
        let response = client.request("GET", "/upgrade", fields);
        assert_eq!((response.status, response.field("Upgrade")), (426, Some("echo")), "{fields}");
    }
    for fields in [
        String::new(),
        WEBSOCKET.replace("13", "8"),
        WEBSOCKET.replace("==", ""),
        WEBSOCKET.replace("websocket", "echo"),
    ] {
        assert_eq!(client.request("GET", "/websocket", &fields).status, 426, "{fields}");
    }
    assert_eq!(client.request("POST", "/websocket", WEBSOCKET).status, 426);
}

#[test]
fn rfc6455_a_websocket_echoes_and_closes() {
    let running = start();
    let mut client = Client::connect(&running);
    let response = client.request("GET", "/websocket", WEBSOCKET);
    assert_eq!(response.status, 101);
    assert_eq!(response.field("Sec-WebSocket-Accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    // "Hello" masked, as in RFC 6455 §5.7.
    client.send([0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]);
    assert_eq!(client.exactly(7), b"\x81\x05Hello");
    // A close with 1000, masked with zeros.
    client.send([0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8]);
    assert_eq!(client.exactly(4), [0x88, 0x02, 0x03, 0xe8]);
    client.assert_closed();
}
