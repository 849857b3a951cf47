//! A connection of HTTP/3 on whose streams any bytes arrive, from a client and from a server that was asked something:
//! what comes of them does not depend on how they were split, nothing panics, and what is held stays bounded.
//!
//! An input is a row of arrivals: which stream and whether it ends, how many bytes, and the bytes.

#![no_main]

use http3::{
    Broken, Code, Connection, Event, FloodLimits, Key, Limits, Now, Role, Scheme, StreamId, Transport,
};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    streams: 4,
    head_bytes: 1024,
    short_head_bytes: 64,
    long_heads_bytes: 1024,
    body_bytes: 512,
    bodies_bytes: 1024,
    table_bytes: 256,
    blocked_streams: 2,
    floods: FloodLimits::DEFAULT,
};
const NOW: Now = Now { tick: 0, second: 0 };

/// What was sent on a stream, and with which codes it was reset and stopped.
type Sent = (StreamId, Vec<u8>, Option<Code>, Option<Code>);

/// What was sent on each stream.
#[derive(Default)]
struct Wire(Vec<Sent>);

impl Wire {
    fn at(&mut self, id: StreamId) -> &mut Sent {
        let at = self.0.iter().position(|(other, ..)| *other == id).unwrap_or_else(|| {
            self.0.push((id, Vec::new(), None, None));
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}

impl Transport for Wire {
    fn write(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        self.at(id).1.extend_from_slice(bytes);
        bytes.len()
    }

    fn finish(&mut self, id: StreamId) {
        self.at(id).1.push(0);
    }

    fn reset(&mut self, id: StreamId, code: Code) {
        self.at(id).2 = Some(code);
    }

    fn stop(&mut self, id: StreamId, code: Code) {
        self.at(id).3 = Some(code);
    }
}

fuzz_target!(|bytes: &[u8]| {
    for role in [Role::Server, Role::Client] {
        let whole = receive(role, bytes, usize::MAX);
        assert_eq!(receive(role, bytes, 1), whole);
        assert_eq!(receive(role, bytes, 5), whole);
    }
});

/// An end that its peer has begun to talk to, and what is known of its streams.
struct End {
    connection: Connection,
    is_server: bool,
    known: Vec<StreamId>,
    over: Vec<StreamId>,
    keys: Vec<Key>,
}

impl End {
    /// A server, or a client that has asked twice; one of the requests goes on.
    fn new(role: Role) -> Self {
        let is_server = role == Role::Server;
        let (own, theirs) = if is_server { ([3, 7, 11], [2, 6, 10]) } else { ([2, 6, 10], [3, 7, 11]) };
        let mut connection = Connection::new(role, LIMITS, own);
        for (id, bytes) in
            theirs.into_iter().zip([&b"\x00\x04\x05\x01\x41\x00\x07\x02"[..], b"\x02", b"\x03"])
        {
            connection.accept(id, NOW).expect("it may be opened");
            connection.receive(id, bytes, false, NOW).expect("it begins well");
        }
        let mut end =
            Self { connection, is_server, known: theirs.to_vec(), over: Vec::new(), keys: Vec::new() };
        if !is_server {
            end.ask(0, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true);
            end.ask(4, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", false);
        }
        end
    }

    fn ask(&mut self, id: StreamId, head: &[u8], is_whole: bool) {
        let key = self.connection.open(id);
        self.connection.write_head(key, head, is_whole, Scheme::Https).expect("it is a head");
        self.keys.push(key);
        self.known.push(id);
    }

    /// Bytes arrive on a stream, in pieces of so many.
    fn arrive(&mut self, selector: u8, bytes: &[u8], piece: usize) -> Result<(), Broken> {
        let id = u64::from(selector & 0x1f);
        let is_own = id & 1 == u64::from(self.is_server);
        if (is_own && !self.known.contains(&id)) || self.over.contains(&id) {
            return Ok(());
        }
        if !self.known.contains(&id) {
            self.known.push(id);
            self.connection.accept(id, NOW)?;
        }
        if selector & 0x60 == 0x60 {
            self.over.push(id);
            return self.connection.reset_received(id, Code(bytes.len() as u64), NOW);
        }
        let is_last = selector & 0x80 != 0;
        if is_last {
            self.over.push(id);
        }
        let mut rest = &bytes[..bytes.len().min(self.connection.wanted(id))];
        while rest.len() > piece {
            let (first, behind) = rest.split_at(piece);
            self.connection.receive(id, first, false, NOW)?;
            rest = behind;
        }
        self.connection.receive(id, rest, is_last, NOW)
    }
}

/// What has happened, and what is sent, acknowledgments apart: those are gathered.
fn receive(role: Role, bytes: &[u8], piece: usize) -> (Result<(), Broken>, Vec<Event>, Vec<Sent>) {
    let mut end = End::new(role);
    let (mut rest, mut outcome) = (bytes, Ok(()));
    while let ([selector, len, behind @ ..], Ok(())) = (rest, outcome) {
        let (arrived, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        outcome = end.arrive(*selector, arrived, piece);
    }
    let End { mut connection, mut keys, is_server, .. } = end;
    let mut events: Vec<Event> = std::iter::from_fn(|| connection.next_event()).collect();
    keys.extend(events.iter().filter_map(|event| match event {
        Event::Opened(key) => Some(*key),
        _ => None,
    }));
    let mut wire = Wire::default();
    connection.flush(&mut wire);
    assert!(connection.held() <= LIMITS.streams);
    for key in keys {
        // Whatever became of it, it is read to where it breaks off.
        let mut buffer = [0; 100];
        while let Ok(Some(1..)) = connection.read(key, &mut buffer) {}
        connection.release(key);
    }
    connection.flush(&mut wire);
    // A body is told of once for each piece of it.
    events.retain(|event| !matches!(event, Event::Readable(_)));
    wire.0.retain(|(id, ..)| *id != if is_server { 11 } else { 10 });
    wire.0.sort_by_key(|(id, ..)| *id);
    (outcome, events, wire.0)
}
