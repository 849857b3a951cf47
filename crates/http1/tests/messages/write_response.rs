//! Responses written for clients, byte for byte.

use http1::{BodyFraming, ClientConnection, ConnectionOptions, ResponseRewrite, Via};

use crate::parse_response;

/// Checks the response that the client gets.
#[track_caller]
fn check(sent: &[&str], framing: BodyFraming, client_connection: ClientConnection, seen: &[&str]) {
    let bytes = format!("{}\r\n\r\n", sent.join("\r\n")).into_bytes();
    let head = parse_response(&bytes).unwrap();
    let connection = ConnectionOptions::of_response(&head, &bytes).unwrap();
    let rewrite = ResponseRewrite {
        passes_alt_svc: false,
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
        BodyFraming::Length(5),
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
        check(&[sent], BodyFraming::None, ClientConnection::Persist, &[seen, "Date: NOW", via]);
        check(&[sent, "date: x"], BodyFraming::None, ClientConnection::Persist, &[seen, "date: x", via]);
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
            "Proxy-Authentication-Info: x",
            "Trailer: A",
            "Upgrade: h2,h2c",
        ],
        BodyFraming::Chunked,
        ClientConnection::Persist,
        &["HTTP/1.1 200 OK", "Date: x", "Trailer: A", "Transfer-Encoding: chunked", VIA],
    );
}

/// RFC 7838 §3: the ports of Alt-Svc are the server's, unless the operator states that they are the proxy's.
#[test]
fn ports_of_the_server_reach_clients_only_where_that_is_wanted() {
    for head in ["HTTP/1.1 200 OK", "HTTP/1.1 103 Early Hints"] {
        let bytes = format!(
            "{head}\r\nDate: x\r\nALT-SVC: h3=\":9443\"\r\nA: b\r\nAlt-Svc: clear\r\nAlt-Used: y\r\n\r\n"
        );
        let parsed = parse_response(bytes.as_bytes()).unwrap();
        for (passes_alt_svc, lines) in [
            (false, "Date: x\r\nA: b\r\nAlt-Used: y"),
            (true, "Date: x\r\nALT-SVC: h3=\":9443\"\r\nA: b\r\nAlt-Svc: clear\r\nAlt-Used: y"),
        ] {
            let rewrite = ResponseRewrite {
                passes_alt_svc,
                connection: ConnectionOptions::default(),
                framing: BodyFraming::None,
                client_connection: ClientConnection::Persist,
                date: b"NOW",
                via: Via::Own,
                added: b"",
                edits: None,
            };
            let mut out = Vec::new();
            http1::write_response(&mut out, &parsed, bytes.as_bytes(), &rewrite);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{head}\r\n{lines}\r\n{VIA}\r\n\r\n"));
        }
    }
}

#[test]
fn connection_fields_for_clients() {
    let sent = ["HTTP/1.1 200 OK", "Connection: close", "Content-Length: 5", "Date: x"];
    let kept = ["HTTP/1.1 200 OK", "Content-Length: 5", "Date: x"];
    for (connection, lines) in [
        (ClientConnection::Persist, &[][..]),
        (ClientConnection::KeepAlive, &["Connection: keep-alive"][..]),
        (ClientConnection::Close, &["Connection: close"][..]),
    ] {
        check(&sent, BodyFraming::Length(5), connection, &[&kept, lines, &[VIA]].concat());
    }
    check(
        &[
            "HTTP/1.1 101 Switching Protocols",
            "Connection: upgrade",
            "upgrade: websocket",
            "Sec-WebSocket-Accept: x",
        ],
        BodyFraming::None,
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
        check(&[&line, "Content-Length: 5", "Link: x"], BodyFraming::None, ClientConnection::Persist, &seen);
    }
}

/// A body that ends with the server's connection is chunked for a client whose connection persists.
#[test]
fn a_framing_of_the_proxys_own() {
    check(
        &["HTTP/1.0 200 OK", "Date: x"],
        BodyFraming::Chunked,
        ClientConnection::Persist,
        &["HTTP/1.1 200 OK", "Date: x", "Transfer-Encoding: chunked", "Via: 1.0 vanward"],
    );
    check(
        &["HTTP/1.1 200 OK", "Date: x", "Transfer-Encoding: chunked"],
        BodyFraming::UntilClose,
        ClientConnection::Close,
        &["HTTP/1.1 200 OK", "Date: x", "Connection: close", VIA],
    );
}

/// RFC 9110 §15.5.22 and §7.8: the Upgrade field of a 426 reaches the client, and Connection names it.
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
            BodyFraming::Length(5),
            client_connection,
            &[line, "Date: x", "Upgrade: HTTP/3.0, h2c", "Upgrade: IRC/6.9", connection, VIA],
        );
    }
    // Without the field, and in any other response, Connection does not name it.
    let close = ClientConnection::Close;
    check(&[line, "Date: x"], BodyFraming::None, close, &[line, "Date: x", "Connection: close", VIA]);
    let line = "HTTP/1.1 400 Bad Request";
    check(
        &[line, "Date: x", "Upgrade: x"],
        BodyFraming::None,
        close,
        &[line, "Date: x", "Connection: close", VIA],
    );
}

#[test]
fn edits_are_made_in_place_and_reach_what_the_proxy_adds() {
    let bytes = b"HTTP/1.1 200 OK\r\nX-Drop: 1\r\nX-Twice: 2\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n";
    let head = parse_response(bytes).unwrap();
    let rewrite = ResponseRewrite {
        passes_alt_svc: false,
        connection: ConnectionOptions::from_head(&head, bytes).unwrap(),
        framing: BodyFraming::Chunked,
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
