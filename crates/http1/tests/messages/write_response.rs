//! Responses as clients see them, byte for byte.

use http1::{ClientConnection, ConnectionOptions, Framing, ResponseRewrite, Via};

use crate::parse_response;

/// What a client sees of this response.
#[track_caller]
fn check(sent: &[&str], framing: Framing, client_connection: ClientConnection, seen: &[&str]) {
    let bytes = format!("{}\r\n\r\n", sent.join("\r\n")).into_bytes();
    let head = parse_response(&bytes).unwrap();
    let connection = ConnectionOptions::of_response(&head, &bytes).unwrap();
    let rewrite = ResponseRewrite {
        connection,
        framing,
        client_connection,
        date: b"NOW",
        via: Via::Own,
        added: b"",
        edits: None,
    };
    let mut out = b"kept|".to_vec();
    http1::write_response(&mut out, &head, &bytes, &rewrite);
    assert_eq!(String::from_utf8(out).unwrap(), format!("kept|{}\r\n\r\n", seen.join("\r\n")));
}

const VIA: &str = "Via: 1.1 vanward";

#[test]
fn a_plain_response() {
    check(
        &["HTTP/1.1 200 OK", "Date: THEN", "Content-Length: 5", "Server: x"],
        Framing::Length(5),
        ClientConnection::Persist,
        &["HTTP/1.1 200 OK", "Date: THEN", "Content-Length: 5", "Server: x", VIA],
    );
}

/// RFC 9112 §4 and RFC 9110 §2.5.
#[test]
fn status_lines() {
    for (sent, seen, via) in [
        ("HTTP/1.1 404 Not  Found", "HTTP/1.1 404 Not  Found", VIA),
        ("HTTP/1.1 200", "HTTP/1.1 200 ", VIA),
        ("HTTP/1.1 200 ", "HTTP/1.1 200 ", VIA),
        ("HTTP/1.0 200 OK", "HTTP/1.1 200 OK", "Via: 1.0 vanward"),
        ("HTTP/1.0 200", "HTTP/1.1 200 ", "Via: 1.0 vanward"),
        ("HTTP/1.8 200 OK", "HTTP/1.1 200 OK", VIA),
    ] {
        check(&[sent], Framing::None, ClientConnection::Persist, &[seen, "Date: NOW", via]);
        check(&[sent, "date: x"], Framing::None, ClientConnection::Persist, &[seen, "date: x", via]);
    }
}

/// RFC 9110 §7.6.1.
#[test]
fn fields_of_this_hop_end_here() {
    check(
        &[
            "HTTP/1.1 200 OK",
            "Connection: keep-alive, X-Gone",
            "Date: x",
            "Keep-Alive: timeout=5",
            "Transfer-Encoding: chunked",
            "X-Gone: 1",
            "Proxy-Authenticate: Basic",
            "Trailer: A",
            "Upgrade: h2,h2c",
        ],
        Framing::Chunked,
        ClientConnection::Persist,
        &["HTTP/1.1 200 OK", "Date: x", "Trailer: A", "Transfer-Encoding: chunked", VIA],
    );
}

#[test]
fn what_the_client_is_told_of_its_connection() {
    let sent = ["HTTP/1.1 200 OK", "Connection: close", "Content-Length: 5", "Date: x"];
    let kept = ["HTTP/1.1 200 OK", "Content-Length: 5", "Date: x"];
    for (connection, lines) in [
        (ClientConnection::Persist, &[][..]),
        (ClientConnection::KeepAlive, &["Connection: keep-alive"][..]),
        (ClientConnection::Close, &["Connection: close"][..]),
    ] {
        check(&sent, Framing::Length(5), connection, &[&kept, lines, &[VIA]].concat());
    }
    check(
        &[
            "HTTP/1.1 101 Switching Protocols",
            "Connection: upgrade",
            "upgrade: websocket",
            "Sec-WebSocket-Accept: x",
        ],
        Framing::None,
        ClientConnection::Upgrade,
        &[
            "HTTP/1.1 101 Switching Protocols",
            "Sec-WebSocket-Accept: x",
            "Connection: upgrade",
            "Upgrade: websocket",
            VIA,
        ],
    );
}

/// RFC 9110 §8.6, §6.6.1.
#[test]
fn lengths_and_dates() {
    for (status, length_stays, date_is_added) in [
        ("100 Continue", false, false),
        ("103 Early Hints", false, false),
        ("204 No Content", false, true),
        ("200 OK", true, true),
        ("304 Not Modified", true, true),
        ("500 Oh", true, true),
    ] {
        let line = format!("HTTP/1.1 {status}");
        let mut seen = vec![line.as_str()];
        seen.extend(length_stays.then_some("Content-Length: 5"));
        seen.push("Link: x");
        seen.extend(date_is_added.then_some("Date: NOW"));
        seen.push(VIA);
        check(&[&line, "Content-Length: 5", "Link: x"], Framing::None, ClientConnection::Persist, &seen);
    }
}

/// A body that went on until the server closed is chunked for a client that stays.
#[test]
fn a_framing_of_the_proxys_own() {
    check(
        &["HTTP/1.0 200 OK", "Date: x"],
        Framing::Chunked,
        ClientConnection::Persist,
        &["HTTP/1.1 200 OK", "Date: x", "Transfer-Encoding: chunked", "Via: 1.0 vanward"],
    );
    check(
        &["HTTP/1.1 200 OK", "Date: x", "Transfer-Encoding: chunked"],
        Framing::UntilClose,
        ClientConnection::Close,
        &["HTTP/1.1 200 OK", "Date: x", "Connection: close", VIA],
    );
}

/// RFC 9110 §15.5.22 and §7.8: what a 426 asks for reaches the client, named in Connection.
#[test]
fn upgrade_required() {
    let line = "HTTP/1.1 426 Upgrade Required";
    for (client_connection, connection) in [
        (ClientConnection::Persist, "Connection: upgrade"),
        (ClientConnection::KeepAlive, "Connection: keep-alive, upgrade"),
        (ClientConnection::Close, "Connection: close, upgrade"),
    ] {
        check(
            &[line, "Upgrade: HTTP/3.0, h2c", "Date: x", "connection: Upgrade", "upgrade: IRC/6.9"],
            Framing::Length(5),
            client_connection,
            &[line, "Date: x", "Upgrade: HTTP/3.0, h2c", "Upgrade: IRC/6.9", connection, VIA],
        );
    }
    // Without one, and in any other response, nothing is said of it.
    let close = ClientConnection::Close;
    check(&[line, "Date: x"], Framing::None, close, &[line, "Date: x", "Connection: close", VIA]);
    let line = "HTTP/1.1 400 Bad Request";
    check(
        &[line, "Date: x", "Upgrade: x"],
        Framing::None,
        close,
        &[line, "Date: x", "Connection: close", VIA],
    );
}

#[test]
fn edits_are_made_in_place_and_reach_what_the_proxy_adds() {
    let bytes = b"HTTP/1.1 200 OK\r\nX-Drop: 1\r\nX-Twice: 2\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n";
    let head = parse_response(bytes).unwrap();
    let rewrite = ResponseRewrite {
        connection: ConnectionOptions::of(&head, bytes).unwrap(),
        framing: Framing::Chunked,
        client_connection: ClientConnection::Close,
        date: b"NOW",
        via: Via::Own,
        added: b"X-Mine: 1\r\n",
        edits: Some(&crate::write_request::Wishes(&["X-Drop", "X-Twice", "Date", "X-Mine", "Via"])),
    };
    let mut out = Vec::new();
    http1::write_response(&mut out, &head, bytes, &rewrite);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "HTTP/1.1 200 OK\r\nX-Twice: <2>\r\nX-Twice: <2>\r\nA: b\r\nTransfer-Encoding: chunked\r\n\
         Connection: close\r\nX-New: 1\r\n\r\n"
    );
}
