//! Upgraded connections over streams (RFC 8441).

use testkit::http2::frame::{
    CANCEL, ENABLE_CONNECT_PROTOCOL, INTERNAL_ERROR, data, headers, last_data, last_headers, reset,
};

use super::scene::Scene;

const CONNECT: &str = ":method: CONNECT\n:protocol: websocket\n:scheme: http\n:authority: test\n:path: /chat\n\
                       sec-websocket-version: 13\nsec-websocket-protocol: a, b\n";
const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// RFC 6455 §1.3.
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const CONNECTS: (u16, u32) = (ENABLE_CONNECT_PROTOCOL, 1);

fn field(head: &str, name: &str) -> Option<String> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
}

/// Returns the response of a server that switches as requested, with more fields and the tunnel's first bytes.
fn switch(head: &str, fields: &str, behind: &str) -> String {
    let key = field(head, "Sec-WebSocket-Key").expect("there is a key");
    let accept = http2::accept_of(key.as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n{fields}\r\n{behind}"
    )
}

type Answer<'a> = &'a dyn Fn(&str) -> String;

#[test]
fn a_switch_that_does_not_answer_the_key_is_502() {
    // RFC 6455 §4.1: the proxy has made the key, so only the proxy can check the answer.
    let right = |head: &str| switch(head, "", "");
    let accept = |head: &str| field(&switch(head, "", ""), "Sec-WebSocket-Accept").expect("it is there");
    let rows: [(&str, Answer<'_>); 9] = [
        ("of another key", &|head| right(head).replace(&accept(head), ACCEPT)),
        ("in other letters", &|head| right(head).replace(&accept(head), &accept(head).to_lowercase())),
        ("empty", &|head| right(head).replace(&accept(head), "")),
        ("none", &|head| right(head).replace("Sec-WebSocket-Accept", "X")),
        ("one too many", &|head| switch(head, "Sec-WebSocket-Accept: x\r\n", "")),
        ("no Upgrade", &|head| right(head).replace("Upgrade: websocket\r\n", "")),
        ("to another protocol", &|head| right(head).replace("Upgrade: websocket", "Upgrade: other")),
        ("no Connection", &|head| right(head).replace("Connection: Upgrade\r\n", "")),
        ("nothing", &|_| "HTTP/1.1 101 Switching Protocols\r\n\r\n".to_owned()),
    ];
    for (name, wrong) in rows {
        let scene = Scene::to_http1();
        let mut client = scene.client().saying(headers(1, CONNECT));
        let mut server = scene.accept1();
        let head = server.head();
        server.sends(wrong(&head));
        server.is_closed();
        let got = client.whole(1);
        assert!(got.starts_with(":status: 502\n"), "{name}: {got}");
        client.is_heard();
        assert_eq!(scene.failures(), [("upstream-switch", 1)], "{name}");
    }
}

#[test]
fn a_websocket_over_a_stream_is_one_of_http_1_1() {
    let scene = Scene::to_http1();
    let mut client = scene.client();
    assert_eq!(client.setting(ENABLE_CONNECT_PROTOCOL), Some(1));
    client.sends(headers(1, CONNECT));
    let mut server = scene.accept1();
    let head = server.head();
    assert!(head.starts_with("GET /chat HTTP/1.1\r\nhost: test\r\n"), "{head}");
    assert_eq!(field(&head, "Upgrade").as_deref(), Some("websocket"), "{head}");
    assert_eq!(field(&head, "Connection").map(|value| value.to_lowercase()).as_deref(), Some("upgrade"));
    assert_eq!(field(&head, "Sec-WebSocket-Protocol").as_deref(), Some("a, b"));
    assert_eq!(field(&head, "Sec-WebSocket-Key").map(|key| key.len()), Some(24), "{head}");
    assert_eq!(field(&head, "Content-Length").or(field(&head, "Transfer-Encoding")), None, "{head}");
    server.sends(switch(&head, "Sec-WebSocket-Protocol: b\r\n", "hello"));
    client.gets_headers(1, ":status: 200\nsec-websocket-protocol: b\nvia: vanward\n");
    client.gets_data(1, "hello");
    client.sends(data(1, "ping"));
    server.gets(b"ping");
    // Each direction ends separately.
    client.sends(last_data(1, "bye"));
    server.gets(b"bye");
    server.gets_the_end();
    server.sends("late");
    client.gets_data(1, "late");
    drop(server);
    assert_eq!(client.whole(1), "---\n\n---\n");
    client.is_heard();
    assert_eq!(scene.running.counters().tunnels, 1);
    assert_eq!(scene.failures(), []);
}

#[test]
fn a_server_may_end_its_way_first() {
    let scene = Scene::to_http1();
    let mut client = scene.client().saying(headers(1, CONNECT));
    let mut server = scene.accept1();
    let head = server.head();
    server.sends(switch(&head, "", ""));
    client.next_on(1);
    server.half_closes();
    assert_eq!(client.whole(1), "---\n\n---\n");
    client.sends(data(1, "late"));
    server.gets(b"late");
    client.sends(last_data(1, ""));
    server.gets_the_end();
}

#[test]
fn a_stream_that_is_reset_ends_its_tunnel() {
    let scene = Scene::to_http1();
    let mut client = scene.client().saying(headers(1, CONNECT));
    let mut server = scene.accept1();
    let head = server.head();
    server.sends(switch(&head, "", ""));
    client.next_on(1);
    client.sends(reset(1, CANCEL));
    server.is_closed();
    client.is_heard();
}

#[test]
fn a_server_that_does_not_switch_answers() {
    let scene = Scene::to_http1();
    let mut client = scene.client().saying(headers(1, CONNECT));
    let mut server = scene.accept1().after_head();
    server.sends("HTTP/1.1 403 Forbidden\r\nDate: D\r\nContent-Length: 2\r\n\r\nno");
    let got = client.whole(1);
    assert!(
        got.starts_with(":status: 403\ndate: D\ncontent-length: 2\nvia: vanward\n---\nno\n---\n"),
        "{got}"
    );
    client.is_heard();
}

#[test]
fn a_connect_of_another_protocol_is_passed_on_as_well() {
    let scene = Scene::to_http1();
    let mut client = scene.client().saying(headers(1, &CONNECT.replace("websocket\n", "other\n")));
    let mut server = scene.accept1();
    let head = server.head();
    assert_eq!(field(&head, "Upgrade").as_deref(), Some("other"), "{head}");
    assert_eq!(field(&head, "Sec-WebSocket-Key"), None);
    server.sends("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n");
    client.gets_headers(1, ":status: 200\nvia: vanward\n");
}

#[test]
fn a_websocket_of_http_1_1_is_a_stream() {
    let scene = Scene::to_http2();
    let mut client = scene.client1().saying(UPGRADE);
    let mut server = scene.accept_with(&[CONNECTS]);
    server.gets_headers(
        1,
        ":method: CONNECT\n:scheme: http\n:authority: test\n:path: /chat\n:protocol: websocket\n\
         sec-websocket-version: 13\nvia: vanward\nx-forwarded-for: 127.0.0.1\nx-forwarded-proto: http\n\
         x-forwarded-host: test\nforwarded: for=127.0.0.1;proto=http;host=\"test\"\n",
    );
    server.sends([headers(1, ":status: 200\nsec-websocket-protocol: b\n"), data(1, "hello")].concat());
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert_eq!(field(&head, "Upgrade").as_deref(), Some("websocket"), "{head}");
    assert_eq!(field(&head, "Connection").map(|value| value.to_lowercase()).as_deref(), Some("upgrade"));
    assert_eq!(field(&head, "Sec-WebSocket-Accept").as_deref(), Some(ACCEPT), "{head}");
    assert_eq!(field(&head, "Sec-WebSocket-Protocol").as_deref(), Some("b"), "{head}");
    client.gets(b"hello");
    client.sends("ping");
    server.gets_data(1, "ping");
    client.half_closes();
    assert_eq!(server.whole(1), "---\n\n---\n");
    server.sends(data(1, "late"));
    client.gets(b"late");
    server.sends(last_data(1, ""));
    client.gets_the_end();
    server.is_heard();
    assert_eq!(scene.failures(), []);
}

#[test]
fn a_server_of_http_2_that_refuses_a_websocket_is_heard() {
    let scene = Scene::to_http2();
    let mut client = scene.client1().saying(UPGRADE);
    let mut server = scene.accept_with(&[CONNECTS]);
    server.next_on(1);
    server.sends([headers(1, ":status: 403\ncontent-length: 2\n"), last_data(1, "no")].concat());
    let message = client.message();
    assert_eq!((message.status(), message.body), (403, b"no".to_vec()));
}

#[test]
fn a_server_that_allows_no_websocket_is_asked_for_the_page() {
    // RFC 8441 §3, RFC 9110 §7.8: an offer to switch may be declined.
    let scene = Scene::to_http2();
    let mut client = scene.client1().saying(UPGRADE);
    let mut server = scene.accept();
    let seen = server.whole(1);
    assert!(seen.starts_with(":method: GET\n:scheme: http\n:authority: test\n:path: /chat\n"), "{seen}");
    assert!(!seen.contains("upgrade"), "{seen}");
    server.sends([headers(1, ":status: 426\ncontent-length: 2\n"), last_data(1, "no")].concat());
    let message = client.message();
    assert_eq!((message.status(), message.body), (426, b"no".to_vec()));
}

#[test]
fn a_tunnel_through_two_streams() {
    let scene = Scene::to_http2();
    let mut client = scene.client().saying(headers(1, CONNECT));
    let mut server = scene.accept_with(&[CONNECTS]);
    server.next_on(1);
    server.sends(headers(1, ":status: 200\n"));
    client.gets_headers(1, ":status: 200\nvia: vanward\n");
    client.sends(data(1, "a"));
    server.gets_data(1, "a");
    server.sends(data(1, "b"));
    client.gets_data(1, "b");
    server.sends(reset(1, INTERNAL_ERROR));
    assert!(client.whole(1).contains("reset "));
    client.sends(last_headers(3, ":method: GET\n:scheme: http\n:authority: test\n:path: /\n"));
    server.whole(3);
}

#[test]
fn a_page_is_not_passed_off_as_a_tunnel() {
    // RFC 9110 §9.3.6, RFC 8441 §5: any success to a CONNECT means that its protocol is spoken from here on.
    let page = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let scene = Scene::to_http1();
    let mut client = scene.client().saying(headers(1, CONNECT));
    let mut server = scene.accept1().after_head();
    server.sends(page);
    let got = client.whole(1);
    assert!(got.starts_with(":status: 502\n") && !got.contains("hello"), "{got}");
    scene.assert_failure("not-upgraded", 1);
    // A server without extended CONNECT gets no such request.
    let scene = Scene::to_http2();
    let mut client = scene.client().saying(headers(1, CONNECT));
    let mut server = scene.accept();
    assert!(server.whole(1).starts_with(":method: GET\n"));
    server.sends([headers(1, ":status: 200\ncontent-length: 5\n"), last_data(1, "hello")].concat());
    let got = client.whole(1);
    assert!(got.starts_with(":status: 502\n") && !got.contains("hello"), "{got}");
    scene.assert_failure("not-upgraded", 1);
}

#[test]
fn a_protocol_in_which_requests_would_go_on_is_refused() {
    let scene = Scene::to_http1();
    let mut client = scene.client();
    for (stream, protocol) in [(1, "h2c"), (3, "HTTP")] {
        client.sends(headers(stream, &CONNECT.replace("websocket\n", &format!("{protocol}\n"))));
        assert!(client.whole(stream).starts_with(":status: 501\n"), "{protocol}");
    }
    scene.assert_failure("protocol-refused", 2);
    scene.assert_no_more_connections();
}
