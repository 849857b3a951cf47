//! A connection of HTTP/2 that any bytes arrive on, behind a preface, from a client and from a server that was asked
//! something: what comes of them does not depend on how they were split, nothing panics, and what is held stays bounded.

#![no_main]

use std::rc::Rc;

use fuzz::cuts;
use http2::{Broken, Connection, Event, FloodLimits, Key, Limits, Now, Role, Scheme};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    streams: 4,
    connection_window: 256 * 1024,
    head_bytes: 2048,
    short_head_bytes: 64,
    long_heads_bytes: 1024,
    floods: FloodLimits::DEFAULT,
};
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

fuzz_target!(|bytes: &[u8]| {
    for begin in [from_client, from_server] {
        let whole = receive(begin(), bytes, [bytes.len()].into_iter());
        assert_eq!(receive(begin(), bytes, cuts(bytes)), whole);
    }
});

/// An end that a client has begun to talk to, and its streams so far.
fn from_client() -> (Connection, Vec<Key>) {
    let mut connection = Connection::new(Role::Server, LIMITS, Rc::default());
    take(&mut connection, PREFACE, &mut Vec::new()).expect("the preface is right");
    (connection, Vec::new())
}

/// An end that has asked a server twice; one of the requests goes on.
fn from_server() -> (Connection, Vec<Key>) {
    let mut connection = Connection::new(Role::Client, LIMITS, Rc::default());
    let heads: [(&[u8], bool); 2] = [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", false),
    ];
    let keys = heads.map(|(head, is_whole)| {
        let key = connection.open();
        connection.write_head(key, head, is_whole, Scheme::Http).expect("it is a head");
        key
    });
    (connection, keys.to_vec())
}

/// What has happened and what is answered.
fn receive(
    (mut connection, mut keys): (Connection, Vec<Key>),
    bytes: &[u8],
    cuts: impl Iterator<Item = usize>,
) -> (Result<Vec<Event>, Broken>, Vec<u8>) {
    let mut events = Vec::new();
    let mut outcome = take(&mut connection, SETTINGS, &mut events);
    let mut arrived = 0;
    for cut in cuts {
        if outcome.is_ok() {
            outcome = take(&mut connection, &bytes[arrived..cut], &mut events);
        }
        arrived = cut;
    }
    keys.extend(events.iter().filter_map(|event| match event {
        Event::Opened(key) => Some(*key),
        _ => None,
    }));
    for key in keys {
        // Whatever became of it, it is read to where it breaks off.
        let mut buffer = [0; 100];
        while let Ok(Some(1..)) = connection.read(key, &mut buffer, 0) {}
    }
    // Those that are open, those that were reset and that nobody has let go of, and the one that is too many.
    assert!(connection.held() <= 3 * LIMITS.streams as usize + 1);
    // A body is told of once for each piece of it.
    events.retain(|event| !matches!(event, Event::Readable(_)));
    (outcome.map(|()| events), connection.unsent().to_vec())
}

fn take(connection: &mut Connection, mut rest: &[u8], events: &mut Vec<Event>) -> Result<(), Broken> {
    loop {
        let (count, event) = connection.receive(rest, Now { tick: 0, second: 0 })?;
        rest = &rest[count..];
        match event {
            Some(event) => events.push(event),
            None => return Ok(()),
        }
    }
}
