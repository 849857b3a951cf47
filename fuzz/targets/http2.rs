//! A connection of HTTP/2 that any bytes arrive on, behind a preface: what comes of them does not depend on how they were
//! split, nothing panics, and what is held stays bounded.

#![no_main]

use std::rc::Rc;

use fuzz::cuts;
use http2::{Broken, Connection, Event, Limits, Now, Role};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    streams: 4,
    connection_window: 256 * 1024,
    head_bytes: 2048,
    short_head_bytes: 64,
    long_heads_bytes: 1024,
};
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fuzz_target!(|bytes: &[u8]| {
    let whole = receive(bytes, [bytes.len()].into_iter());
    assert_eq!(receive(bytes, cuts(bytes)), whole);
});

/// What has happened and what is answered.
fn receive(
    bytes: &[u8],
    cuts: impl Iterator<Item = usize>,
) -> (Result<Vec<Event>, Broken>, Vec<u8>) {
    let mut connection = Connection::new(Role::Server, LIMITS, Rc::default());
    let mut events = Vec::new();
    let mut outcome = take(&mut connection, PREFACE, &mut events);
    let mut arrived = 0;
    for cut in cuts {
        if outcome.is_ok() {
            outcome = take(&mut connection, &bytes[arrived..cut], &mut events);
        }
        arrived = cut;
    }
    for event in &events {
        if let Event::Opened(key) = event {
            // Whatever became of it, it is read to where it breaks off.
            let mut buffer = [0; 100];
            while let Ok(Some(1..)) = connection.read(*key, &mut buffer, 0) {}
        }
    }
    assert!(connection.held() <= 4 + 65);
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
