//! An HTTP/2 connection that receives any bytes after the preface, as a server and as a client with open requests.
//! The result does not depend on splits, nothing panics, and memory stays bounded.

#![no_main]

use std::rc::Rc;

use fuzz::cuts;
use http2::{FloodLimits, H2Broken, H2Event, H2Limits, H2Role, H2StateMachine, Key, Now, WireScheme};
use libfuzzer_sys::fuzz_target;

const LIMITS: H2Limits = H2Limits {
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

/// Creates a server's connection whose client has sent the preface, and its streams so far.
fn from_client() -> (H2StateMachine, Vec<Key>) {
    let mut connection = H2StateMachine::new(H2Role::Server, LIMITS, Rc::default());
    take(&mut connection, PREFACE, &mut Vec::new()).expect("the preface is right");
    (connection, Vec::new())
}

/// Creates a client's connection with two requests, one of them unfinished.
fn from_server() -> (H2StateMachine, Vec<Key>) {
    let mut connection = H2StateMachine::new(H2Role::Client, LIMITS, Rc::default());
    let heads: [(&[u8], bool); 2] = [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", false),
    ];
    let keys = heads.map(|(head, is_whole)| {
        let key = connection.open();
        connection.write_head(key, head, is_whole, WireScheme::Http).expect("it is a head");
        key
    });
    (connection, keys.to_vec())
}

fn receive(
    (mut connection, mut keys): (H2StateMachine, Vec<Key>),
    bytes: &[u8],
    cuts: impl Iterator<Item = usize>,
) -> (Result<Vec<H2Event>, H2Broken>, Vec<u8>) {
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
        H2Event::Opened(key) => Some(*key),
        _ => None,
    }));
    for key in keys {
        // Reading works up to where the body breaks off, whatever happened before.
        let mut buffer = [0; 100];
        while let Ok(Some(1..)) = connection.read(key, &mut buffer, 0) {}
    }
    // Open streams, reset streams that were not released yet, and the one above the limit.
    assert!(connection.held() <= 3 * LIMITS.streams as usize + 1);
    // Each piece of a body causes a `Readable`.
    events.retain(|event| !matches!(event, H2Event::Readable(_)));
    (outcome.map(|()| events), connection.unsent().to_vec())
}

fn take(connection: &mut H2StateMachine, mut rest: &[u8], events: &mut Vec<H2Event>) -> Result<(), H2Broken> {
    loop {
        let (count, event) = connection.receive(rest, Now { tick: 0, second: 0 })?;
        rest = &rest[count..];
        match event {
            Some(event) => events.push(event),
            None => return Ok(()),
        }
    }
}
