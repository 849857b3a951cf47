//! Limits on the memory and work that a peer can cause.

use http3::{Flood, FloodLimits, H3Broken, H3Code, H3ErrorCause, H3Limits, Now};

use crate::ends::{End, GET, LIMITS, NOW, POST, frame, headers};

fn flood_of(outcome: Result<(), H3Broken>) -> Option<Flood> {
    match outcome.err()? {
        H3Broken { code: H3Code::EXCESSIVE_LOAD, cause: H3ErrorCause::Flood(flood) } => Some(flood),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_flood_ends_the_connection() {
    let limits = H3Limits {
        streams: 1000,
        floods: FloodLimits {
            resets: 10,
            errors: 10,
            priorities: 10,
            empty_frames: 10,
            insertions: 10,
            overhead: 10,
        },
        ..LIMITS
    };
    type Step = fn(&mut End, u64) -> Result<(), H3Broken>;
    let rows: [(Flood, Step); 12] = [
        (Flood::Resets, |end, at| {
            end.hear(4 * at, &headers(GET), true)?;
            end.connection.stop_received(4 * at, H3Code::REQUEST_CANCELLED, NOW)
        }),
        (Flood::Resets, |end, at| {
            end.hear(4 * at, b"\x01", false)?;
            end.connection.reset_received(4 * at, H3Code::REQUEST_CANCELLED, NOW)
        }),
        (Flood::Errors, |end, at| end.hear(4 * at, &headers("x: y"), true)),
        (Flood::Errors, |end, at| end.hear(4 * at, b"", true)),
        (Flood::Errors, |end, at| {
            end.hear(
                4 * at,
                &[headers(&format!("{POST}\ncontent-length: 1")), frame(0, b"ab")].concat(),
                true,
            )
        }),
        (Flood::Priorities, |end, _| end.receive(2, &frame(0xf0700, b"\0u=1"), false)),
        (Flood::EmptyFrames, |end, at| match at {
            0 => end.hear(0, &headers(POST), false),
            _ => end.receive(0, &frame(0, b""), false),
        }),
        (Flood::Insertions, |end, at| match at {
            0 => end.receive(6, b"\x3f\xe1\x01\x41a\x01b", false),
            _ => end.receive(6, b"\x00", false),
        }),
        (Flood::Overhead, |end, at| end.hear(14 + 4 * at, b"\x21", false)),
        (Flood::Overhead, |end, _| end.receive(2, &frame(0x21, b""), false)),
        (Flood::Overhead, |end, _| end.receive(2, &frame(7, b"\0"), false)),
        (Flood::Overhead, |end, at| match at {
            0 => end.hear(0, &headers(POST), false),
            _ => end.receive(0, &frame(0x21, b""), false),
        }),
    ];
    for (flood, step) in rows {
        let mut server = End::server(limits);
        let outcomes: Vec<_> = (0..13).map(|at| step(&mut server, at)).collect();
        let first = outcomes.iter().position(Result::is_err).expect("it has a limit");
        assert!((10..=11).contains(&first), "{flood:?} at {first}");
        assert_eq!(flood_of(outcomes[first]), Some(flood));
        assert!(server.connection.offence().is_some());
    }
}

#[test]
fn a_server_that_cancels_is_no_flood() {
    let floods = FloodLimits { resets: 1, errors: 1, ..FloodLimits::DEFAULT };
    let mut client = End::client(H3Limits { floods, ..LIMITS });
    for id in [0, 4, 8, 12] {
        let key = client.ask(id, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true);
        client.receive(id, &headers("x: y"), true).unwrap();
        client.connection.release(key);
    }
}

#[test]
fn requests_too_many_are_rejected() {
    let mut server = End::server(LIMITS);
    for at in 0..LIMITS.streams as u64 {
        server.hear(4 * at, &headers(GET), true).unwrap();
    }
    server.hear(100, &headers(GET), true).unwrap();
    let sent = server.sent(100);
    assert_eq!((sent.reset, sent.stopped), (Some(H3Code::REQUEST_REJECTED), Some(H3Code::REQUEST_REJECTED)));
    assert_eq!((server.opened.len(), server.connection.take_refused().len()), (LIMITS.streams, 1));
    server.connection.release(server.opened[0]);
    server.hear(104, &headers(GET), true).unwrap();
    assert_eq!(server.opened.len(), LIMITS.streams + 1);
}

#[test]
fn long_heads_are_bounded_together() {
    let head = headers(&format!("{GET}\nx: {}", "x".repeat(1500)));
    let mut server = End::server(LIMITS);
    for id in [0, 4, 8] {
        server.hear(id, &head, true).unwrap();
    }
    assert_eq!((server.opened.len(), server.sent(8).reset), (2, Some(H3Code::REQUEST_REJECTED)));
    server.connection.release(server.opened[0]);
    server.hear(12, &head, true).unwrap();
    assert_eq!(server.opened.len(), 3);
    // Trailers count as well.
    let mut server = End::server(LIMITS);
    for id in [0, 4, 8] {
        let trailers = headers(&format!("x: {}", "x".repeat(1500)));
        server.hear(id, &[headers(POST), frame(0, b"a"), trailers].concat(), true).unwrap();
    }
    assert_eq!([0, 4, 8].map(|id| server.sent(id).reset), [None, None, Some(H3Code::EXCESSIVE_LOAD)]);
}

#[test]
fn heads_that_do_not_come_are_bounded_together() {
    let head = headers(&format!("{GET}\nx: {}", "\u{1}".repeat(1500)));
    let mut server = End::server(LIMITS);
    for id in [0, 4, 8] {
        server.hear(id, &head[..5], false).unwrap();
    }
    assert_eq!([0, 4, 8].map(|id| server.sent(id).reset), [None, None, Some(H3Code::REQUEST_REJECTED)]);
    server.receive(0, &head[5..], true).unwrap();
    server.hear(12, &head[..5], false).unwrap();
    assert_eq!(server.sent(12).reset, None);
    // Sections that wait for insertions are limited as well.
    let blocked = frame(1, &[b"\x02\x00\x80", &[0xd1; 1500][..]].concat());
    let mut server = End::server(LIMITS);
    for id in [0, 4, 8] {
        server.hear(id, &[&blocked[..], &frame(0, b"behind")].concat(), false).unwrap();
    }
    assert_eq!((server.connection.wanted(0), server.connection.wanted(4)), (0, 0));
    assert_eq!([0, 4, 8].map(|id| server.sent(id).reset), [None, None, Some(H3Code::REQUEST_REJECTED)]);
}

#[test]
fn heads_that_are_late_are_reset() {
    let mut server = End::server(LIMITS);
    for (id, tick) in [(0, 5), (4, 6), (8, 7)] {
        let now = Now { tick, second: 0 };
        server.connection.accept(id, now).unwrap();
        server.connection.receive(id, &headers(GET)[..4], false, now).unwrap();
    }
    server.receive(0, &headers(GET)[4..], true).unwrap();
    assert_eq!(server.connection.head_since(), Some(6));
    server.connection.heads_are_late(6);
    assert_eq!(
        (server.sent(4).reset, server.connection.head_since()),
        (Some(H3Code::REQUEST_CANCELLED), Some(7))
    );
    assert_eq!(server.connection.take_refused().len(), 1);
    assert_eq!(server.connection.held(), 2);
}

#[test]
fn unread_interim_responses_are_bounded() {
    let mut client = End::client(LIMITS);
    let key = client.ask(0, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true);
    for _ in 0..200 {
        client.receive(0, &headers(":status: 103\nlink: x"), false).unwrap();
    }
    assert_eq!(client.sent(0).stopped, Some(H3Code::EXCESSIVE_LOAD));
    assert!(client.connection.wrong(key).is_some_and(|wrong| wrong.contains("interim")));
}

#[test]
fn a_bomb_of_references_stops_at_the_limit() {
    let mut server = End::server(H3Limits { table_bytes: 4096, ..LIMITS });
    let value = [&b"\x3f\xe1\x1f\x41a\x7f\x81\x1e"[..], &[b'x'; 4000]].concat();
    server.receive(6, &value, false).unwrap();
    // RFC 9204 §7.3: 1,000 references to a field of 4,000 bytes.
    let section = [&b"\x02\x00\xd1\xd7\xc1"[..], &[0x80; 1000]].concat();
    server.hear(0, &frame(1, &section), true).unwrap();
    assert_eq!(server.connection.take_refused()[0].status, 431);
}
