//! The Connection field, persistence, and forwarded upgrades.

use http1::{ConnectionError, ConnectionOptions, HttpVersion, is_switch_asked_for, wants_upgrade};

use crate::{parse_request, parse_response, request_with};

fn options(fields: &str) -> Result<ConnectionOptions, ConnectionError> {
    let bytes = request_with(fields);
    ConnectionOptions::from_head(&parse_request(&bytes).unwrap(), &bytes)
}

/// RFC 9110 §7.6.1.
#[test]
fn connection_options() {
    let none = ConnectionOptions::default();
    let close = ConnectionOptions { close: true, ..none };
    let keep_alive = ConnectionOptions { keep_alive: true, ..none };
    for (fields, expected) in [
        ("", none),
        ("Connection:\r\n", none),
        ("Connection: ,, ,\r\n", none),
        ("Connection: close\r\n", close),
        ("connection: CLOSE\r\n", close),
        ("Connection: keep-alive\r\n", keep_alive),
        ("Connection: keep-alive, close\r\n", ConnectionOptions { keep_alive: true, ..close }),
        ("Connection: keep-alive\r\nConnection: close\r\n", ConnectionOptions { keep_alive: true, ..close }),
        ("Connection: ,\tUpgrade ,x\r\n", ConnectionOptions { upgrade: true, names_fields: true, ..none }),
        // These end at this hop anyway.
        ("Connection: TE, Keep-Alive, Upgrade\r\n", ConnectionOptions { upgrade: true, ..keep_alive }),
        ("Connection: closed\r\n", ConnectionOptions { names_fields: true, ..none }),
        ("Proxy-Connection: close\r\n", none),
    ] {
        assert_eq!(options(fields), Ok(expected), "{fields}");
    }
}

/// Connection must not remove fields that define the message or the proxies that it passed.
#[test]
fn options_that_are_refused() {
    for name in [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "Via",
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "x-forwarded-host",
    ] {
        assert_eq!(options(&format!("Connection: close, {name}\r\n")), Err(ConnectionError), "{name}");
    }
    let of_len =
        |len: usize| options(&format!("Connection: {}\r\nConnection: close\r\n", "x".repeat(len - 5)));
    assert!(of_len(1024).is_ok());
    assert_eq!(of_len(1025), Err(ConnectionError));
}

/// An invalid option does not make a server's response useless.
#[test]
fn options_of_responses_that_are_ignored() {
    let none = ConnectionOptions::default();
    for (fields, expected) in [
        ("Connection: Content-Length\r\n", none),
        ("Connection: transfer-encoding, close\r\n", ConnectionOptions { close: true, ..none }),
        ("Connection: via, X-Hop\r\n", ConnectionOptions { names_fields: true, ..none }),
        ("Connection: keep-alive\r\n", ConnectionOptions { keep_alive: true, ..none }),
        ("", none),
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\n").into_bytes();
        let head = parse_response(&bytes).unwrap();
        assert_eq!(ConnectionOptions::of_response(&head, &bytes), Ok(expected), "{fields}");
    }
    let bytes = format!("HTTP/1.1 200 OK\r\nConnection: {}\r\n\r\n", "x".repeat(1025)).into_bytes();
    assert_eq!(
        ConnectionOptions::of_response(&parse_response(&bytes).unwrap(), &bytes),
        Err(ConnectionError)
    );
}

/// RFC 9112 §9.3.
#[test]
fn persistence() {
    for (fields, in_11, in_10) in [
        ("", true, false),
        ("Connection: keep-alive\r\n", true, true),
        ("Connection: close\r\n", false, false),
        ("Connection: keep-alive, close\r\n", false, false),
    ] {
        let options = options(fields).unwrap();
        assert_eq!(
            (options.persists(HttpVersion::Http11), options.persists(HttpVersion::Http10)),
            (in_11, in_10),
            "{fields}"
        );
    }
}

/// RFC 9110 §7.8. Requests in another protocol would bypass the proxy's rules.
#[test]
fn upgrades_that_are_passed_on() {
    for (line, fields, wants) in [
        ("GET / HTTP/1.1", "Connection: upgrade\r\nUpgrade: websocket\r\n", true),
        ("GET / HTTP/1.1", "Connection: keep-alive, Upgrade\r\nUpgrade: x/1, y\r\n", true),
        ("GET / HTTP/1.1", "Connection: upgrade\r\nUpgrade: h2c, websocket\r\n", true),
        ("GET / HTTP/1.1", "Upgrade: websocket\r\n", false),
        ("GET / HTTP/1.1", "Connection: upgrade\r\n", false),
        ("GET / HTTP/1.1", "Connection: upgrade\r\nUpgrade:\r\n", false),
        ("GET / HTTP/1.1", "Connection: upgrade\r\nUpgrade: h2c\r\n", false),
        ("GET / HTTP/1.1", "Connection: upgrade\r\nUpgrade: H2C,h2\r\n", false),
        ("GET / HTTP/1.1", "Connection: upgrade\r\nUpgrade: HTTP/2.0\r\n", false),
        ("GET / HTTP/1.1", "Connection: upgrade\r\nUpgrade: TLS/1.0, HTTP/1.1\r\n", false),
        ("GET / HTTP/1.0", "Connection: upgrade\r\nUpgrade: websocket\r\n", false),
    ] {
        let bytes = format!("{line}\r\nHost: a\r\n{fields}\r\n").into_bytes();
        let head = parse_request(&bytes).unwrap();
        let options = ConnectionOptions::from_head(&head, &bytes).unwrap();
        assert_eq!(wants_upgrade(&head, &bytes, options), wants, "{line} {fields}");
    }
}

/// RFC 9110 §7.8.
#[test]
fn switches_that_were_asked_for() {
    for (offered, fields, expected) in [
        ("websocket", "Connection: upgrade\r\nUpgrade: websocket\r\n", true),
        ("WebSocket", "Connection: keep-alive, Upgrade\r\nUpgrade: webSocket\r\n", true),
        ("a, b", "Connection: upgrade\r\nUpgrade: b\r\n", true),
        ("a, b", "Connection: upgrade\r\nUpgrade: b, a\r\n", true),
        ("spdy/3.1", "Connection: upgrade\r\nUpgrade: SPDY/3.1\r\n", true),
        ("websocket", "Connection: upgrade\r\nUpgrade: other\r\n", false),
        ("websocket", "Connection: upgrade\r\nUpgrade: websocket, other\r\n", false),
        ("websocket", "Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n", false),
        ("websocket", "Connection: upgrade\r\nUpgrade: websocket/13\r\n", false),
        ("websocket", "Connection: upgrade\r\nUpgrade:\r\n", false),
        ("websocket", "Connection: upgrade\r\n", false),
        ("websocket", "Upgrade: websocket\r\n", false),
        ("websocket", "Connection: close\r\nUpgrade: websocket\r\n", false),
        // A protocol that is not forwarded was not offered.
        ("h2c, websocket", "Connection: upgrade\r\nUpgrade: h2c\r\n", false),
    ] {
        let request = request_with(&format!("Connection: upgrade\r\nUpgrade: {offered}\r\n"));
        let response = format!("HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n").into_bytes();
        let (asked, answered) = (parse_request(&request).unwrap(), parse_response(&response).unwrap());
        let options = ConnectionOptions::from_head(&answered, &response).unwrap();
        let found = is_switch_asked_for((&asked, &request), (&answered, &response), options);
        assert_eq!(found, expected, "{offered}: {fields}");
    }
}
