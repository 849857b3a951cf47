//! Graceful shutdown of connections (RFC 9114 §5.2).

use http3::{H3Code, H3Event, H3StreamGone, WireScheme, WriteError};

use crate::ends::{End, GET, LIMITS, Pair, frame, headers};

#[test]
fn a_server_finishes_received_requests() {
    let mut server = End::server(LIMITS);
    server.hear(0, &headers(GET), true).unwrap();
    server.connection.close();
    server.connection.close();
    // A request that the client sent before it saw GOAWAY is still served.
    server.hear(4, &headers(GET), true).unwrap();
    assert!(!server.connection.has_told_last());
    server.connection.tell_last();
    server.connection.tell_last();
    assert!(server.connection.has_told_last());
    server.hear(8, &headers(GET), true).unwrap();
    assert_eq!((server.opened.len(), server.sent(8).reset), (2, Some(H3Code::REQUEST_REJECTED)));
    let control = server.sent(3).bytes;
    let farewell = [frame(7, &(0xffff_ffff_ffff_fffc_u64).to_be_bytes()), frame(7, &[8])].concat();
    assert!(control.ends_with(&farewell), "{control:x?}");
    for key in server.opened.clone() {
        server.answer(key, "HTTP/1.1 200 OK\r\n\r\n", true);
        server.connection.release(key);
    }
    server.flush();
    assert_eq!(server.connection.held(), 0);
}

#[test]
fn a_client_knows_unseen_requests() {
    let mut pair = Pair::new(LIMITS, usize::MAX);
    let head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let keys = [0, 4].map(|id| pair.client.ask(id, head, true));
    pair.pass();
    pair.server.connection.close();
    pair.pass();
    assert!(pair.client.connection.is_going_away() && !pair.client.connection.takes_more());
    assert_eq!(pair.client.events.last(), Some(&H3Event::GoingAway));
    let late = pair.client.ask(8, head, true);
    pair.server.connection.tell_last();
    pair.pass();
    assert!(pair.client.events.contains(&H3Event::Reset(late)));
    assert_eq!(pair.client.connection.read(late, &mut [0; 9]), Err(H3StreamGone::Untouched));
    // RFC 9114 §4.1.1: only servers reject.
    assert_eq!(pair.client.sent(8).stopped, Some(H3Code::REQUEST_CANCELLED));
    let later = pair.client.connection.open(12);
    let outcome = pair.client.connection.write_head(later, head.as_bytes(), true, WireScheme::Https);
    assert_eq!(outcome, Err(WriteError::Gone(H3StreamGone::Untouched)));
    for server_key in pair.server.opened.clone() {
        pair.server.answer(server_key, "HTTP/1.1 200 OK\r\n\r\n", true);
    }
    pair.pass();
    for key in keys {
        assert_eq!(
            pair.client.read(key),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(), Some(true))
        );
    }
}

#[test]
fn a_client_says_farewell_as_well() {
    let mut pair = Pair::new(LIMITS, usize::MAX);
    pair.client.connection.close();
    pair.client.connection.tell_last();
    pair.pass();
    assert!(pair.server.connection.is_going_away());
    assert!(pair.client.sent(2).bytes.ends_with(&[7, 1, 0]));
}
