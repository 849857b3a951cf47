//! An HTTP/3 connection whose streams receive any bytes, as a server and as a client with open requests. The result
//! does not depend on splits, nothing panics, and memory stays bounded.
//!
//! An input is a sequence of arrivals: the stream and whether it ends, the number of bytes, and the bytes.

#![no_main]

use http3::{
    FloodLimits, H3Broken, H3Code, H3Event, H3Limits, H3Role, H3StateMachine, Key, Now, StreamId, Transport,
    WireScheme,
};
use libfuzzer_sys::fuzz_target;

const LIMITS: H3Limits = H3Limits {
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

/// Bytes sent on a stream, and its codes of RESET_STREAM and STOP_SENDING.
type Sent = (StreamId, Vec<u8>, Option<H3Code>, Option<H3Code>);

/// Output by stream.
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

    fn reset(&mut self, id: StreamId, code: H3Code) {
        self.at(id).2 = Some(code);
    }

    fn stop(&mut self, id: StreamId, code: H3Code) {
        self.at(id).3 = Some(code);
    }
}

fuzz_target!(|bytes: &[u8]| {
    for role in [H3Role::Server, H3Role::Client] {
        let whole = receive(role, bytes, usize::MAX);
        assert_eq!(receive(role, bytes, 1), whole);
        assert_eq!(receive(role, bytes, 5), whole);
    }
});

/// A connection whose peer has sent something, and the state of its streams.
struct End {
    connection: H3StateMachine,
    is_server: bool,
    known: Vec<StreamId>,
    over: Vec<StreamId>,
    keys: Vec<Key>,
}

impl End {
    /// Creates a server, or a client with two requests, one of them unfinished.
    fn new(role: H3Role) -> Self {
        let is_server = role == H3Role::Server;
        let (own, theirs) = if is_server { ([3, 7, 11], [2, 6, 10]) } else { ([2, 6, 10], [3, 7, 11]) };
        let mut connection = H3StateMachine::new(role, LIMITS, own);
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
        self.connection.write_head(key, head, is_whole, WireScheme::Https).expect("it is a head");
        self.keys.push(key);
        self.known.push(id);
    }

    /// Delivers bytes on a stream in pieces of `piece` bytes.
    fn arrive(&mut self, selector: u8, bytes: &[u8], piece: usize) -> Result<(), H3Broken> {
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
            return self.connection.reset_received(id, H3Code(bytes.len() as u64), NOW);
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

/// Returns the events and the output. Acknowledgments are left out, because they are batched.
fn receive(role: H3Role, bytes: &[u8], piece: usize) -> (Result<(), H3Broken>, Vec<H3Event>, Vec<Sent>) {
    let mut end = End::new(role);
    let (mut rest, mut outcome) = (bytes, Ok(()));
    while let ([selector, len, behind @ ..], Ok(())) = (rest, outcome) {
        let (arrived, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        outcome = end.arrive(*selector, arrived, piece);
    }
    let End { mut connection, mut keys, is_server, .. } = end;
    let mut events: Vec<H3Event> = std::iter::from_fn(|| connection.next_event()).collect();
    keys.extend(events.iter().filter_map(|event| match event {
        H3Event::Opened(key) => Some(*key),
        _ => None,
    }));
    let mut wire = Wire::default();
    connection.flush(&mut wire);
    assert!(connection.held() <= LIMITS.streams);
    for key in keys {
        // Reading works up to where the body breaks off, whatever happened before.
        let mut buffer = [0; 100];
        while let Ok(Some(1..)) = connection.read(key, &mut buffer) {}
        connection.release(key);
    }
    connection.flush(&mut wire);
    // Each piece of a body causes a `Readable`.
    events.retain(|event| !matches!(event, H3Event::Readable(_)));
    wire.0.retain(|(id, ..)| *id != if is_server { 11 } else { 10 });
    wire.0.sort_by_key(|(id, ..)| *id);
    (outcome, events, wire.0)
}
