//! A `Connection` at one end, and the transfer of its output to the other end.

use std::cell::Cell;
use std::rc::Rc;

use http2::{
    FloodLimits, H2Broken, H2Event, H2Limits, H2Role, H2StateMachine, Key, Now, STREAM_WINDOW, WireScheme,
};

pub(crate) const NOW: Now = Now { tick: 0, second: 0 };
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) fn end(role: H2Role) -> H2StateMachine {
    end_within(role, &Rc::default())
}

pub(crate) fn end_within(role: H2Role, granted: &Rc<Cell<usize>>) -> H2StateMachine {
    let limits = H2Limits {
        streams: 10,
        connection_window: 4 * STREAM_WINDOW,
        head_bytes: 16 * 1024,
        short_head_bytes: 512,
        long_heads_bytes: 32 * 1024,
        floods: FloodLimits::DEFAULT,
    };
    H2StateMachine::new(role, limits, Rc::clone(granted))
}

/// A client with two requests in progress; the second one continues.
pub(crate) fn asking() -> H2StateMachine {
    let mut client = end(H2Role::Client);
    for (head, is_whole) in [
        (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], true),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", false),
    ] {
        let key = client.open();
        client.write_head(key, head, is_whole, WireScheme::Http).expect("it is a head");
    }
    client
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Receives these bytes in pieces of this size.
pub(crate) fn receive(
    connection: &mut H2StateMachine,
    bytes: &[u8],
    piece: usize,
) -> Result<Vec<H2Event>, H2Broken> {
    receive_at(connection, bytes, piece, NOW)
}

pub(crate) fn receive_at(
    connection: &mut H2StateMachine,
    bytes: &[u8],
    piece: usize,
    now: Now,
) -> Result<Vec<H2Event>, H2Broken> {
    let mut events = Vec::new();
    for mut rest in bytes.chunks(piece) {
        loop {
            let (count, event) = connection.receive(rest, now)?;
            rest = &rest[count..];
            match event {
                Some(event) => events.push(event),
                None => break,
            }
        }
        assert!(rest.is_empty());
    }
    Ok(events)
}

/// Delivers the output of one end to the other, in pieces of this size.
pub(crate) fn deliver(from: &mut H2StateMachine, to: &mut H2StateMachine, piece: usize) -> Vec<H2Event> {
    let bytes = from.unsent().to_vec();
    from.sent(bytes.len());
    receive(to, &bytes, piece).expect("both keep to the protocol")
}

pub(crate) fn read_all(connection: &mut H2StateMachine, key: Key, text: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 300];
    while let Some(count) = connection.read(key, &mut buffer, 0).expect("nothing breaks") {
        if count == 0 {
            return true;
        }
        text.extend_from_slice(&buffer[..count]);
    }
    false
}

/// Sends a message from one end to the other, in pieces of this size. Returns the text that arrives.
pub(crate) fn sends(
    (from, from_key): (&mut H2StateMachine, Key),
    to: &mut H2StateMachine,
    message: &[u8],
    piece: usize,
    mut to_key: Option<Key>,
) -> (Vec<u8>, Key) {
    let mut written = from.write_head(from_key, message, true, WireScheme::Http).expect("it is a head");
    let mut text = Vec::new();
    loop {
        let room = from.room(from_key).unwrap_or(0).min(from.room_of_connection());
        if written < message.len() {
            written += from.write(from_key, &message[written..], room, true);
        }
        for event in deliver(from, to, piece) {
            if let H2Event::Opened(key) = event {
                to_key = Some(key);
            }
        }
        let has_ended = to_key.is_some_and(|key| read_all(to, key, &mut text));
        deliver(to, from, piece);
        if has_ended {
            return (text, to_key.expect("it has begun"));
        }
    }
}
