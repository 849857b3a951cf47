//! Both ends of a connection, over streams in memory.

use std::collections::BTreeMap;

use fields::compose::Encode;
use http3::{
    FloodLimits, H3Broken, H3Code, H3Event, H3Limits, H3Role, H3StateMachine, Key, Now, QpackEncoder,
    StreamId, Transport,
};

pub(crate) const LIMITS: H3Limits = H3Limits {
    streams: 8,
    head_bytes: 2048,
    short_head_bytes: 64,
    long_heads_bytes: 4096,
    body_bytes: 1024,
    bodies_bytes: 4096,
    table_bytes: 512,
    blocked_streams: 2,
    floods: FloodLimits::DEFAULT,
};

pub(crate) const NOW: Now = Now { tick: 0, second: 0 };

/// A stream as the transport sees it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) bytes: Vec<u8>,
    pub(crate) has_ended: bool,
    pub(crate) reset: Option<H3Code>,
    pub(crate) stopped: Option<H3Code>,
}

/// A transport that accepts this many bytes.
pub(crate) struct Wire {
    pub(crate) room: usize,
    /// The number of calls of `write`.
    pub(crate) writes: usize,
    pub(crate) streams: BTreeMap<StreamId, Sent>,
}

impl Transport for Wire {
    fn write(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        let stream = self.streams.entry(id).or_default();
        assert!(!stream.has_ended && stream.reset.is_none(), "stream {id} is over");
        self.writes += 1;
        let count = bytes.len().min(self.room);
        stream.bytes.extend_from_slice(&bytes[..count]);
        self.room -= count;
        count
    }

    fn finish(&mut self, id: StreamId) {
        let stream = self.streams.entry(id).or_default();
        assert!(!stream.has_ended && stream.reset.is_none(), "stream {id} is over");
        stream.has_ended = true;
    }

    fn reset(&mut self, id: StreamId, code: H3Code) {
        self.streams.entry(id).or_default().reset = Some(code);
    }

    fn stop(&mut self, id: StreamId, code: H3Code) {
        self.streams.entry(id).or_default().stopped = Some(code);
    }
}

/// A connection with its output and events.
pub(crate) struct End {
    pub(crate) connection: H3StateMachine,
    pub(crate) wire: Wire,
    pub(crate) events: Vec<H3Event>,
    pub(crate) opened: Vec<Key>,
}

pub(crate) const CLIENT_STREAMS: [StreamId; 3] = [2, 6, 10];
pub(crate) const SERVER_STREAMS: [StreamId; 3] = [3, 7, 11];

impl End {
    pub(crate) fn new(role: H3Role, limits: H3Limits) -> Self {
        let streams = if role == H3Role::Server { SERVER_STREAMS } else { CLIENT_STREAMS };
        Self {
            connection: H3StateMachine::new(role, limits, streams),
            wire: Wire { room: usize::MAX, writes: 0, streams: BTreeMap::new() },
            events: Vec::new(),
            opened: Vec::new(),
        }
    }

    /// A server, after a client has opened its three streams and sent settings.
    pub(crate) fn server(limits: H3Limits) -> Self {
        let mut server = Self::new(H3Role::Server, limits);
        server.begin(CLIENT_STREAMS);
        server
    }

    /// A client, after a server has opened its three streams and sent settings.
    pub(crate) fn client(limits: H3Limits) -> Self {
        let mut client = Self::new(H3Role::Client, limits);
        client.begin(SERVER_STREAMS);
        client
    }

    fn begin(&mut self, streams: [StreamId; 3]) {
        for (id, bytes) in streams.into_iter().zip([&b"\x00\x04\x00"[..], b"\x02", b"\x03"]) {
            self.accept(id);
            self.receive(id, bytes, false).expect("it begins well");
        }
        assert_eq!(self.events, [H3Event::Begun]);
        self.events.clear();
    }

    pub(crate) fn accept(&mut self, id: StreamId) {
        self.connection.accept(id, NOW).expect("the peer may open it");
    }

    pub(crate) fn receive(&mut self, id: StreamId, bytes: &[u8], is_last: bool) -> Result<(), H3Broken> {
        let outcome = self.connection.receive(id, bytes, is_last, NOW);
        self.note();
        outcome
    }

    /// Receives bytes on a stream that the peer opens with them.
    pub(crate) fn hear(&mut self, id: StreamId, bytes: &[u8], is_last: bool) -> Result<(), H3Broken> {
        let outcome = self.connection.accept(id, NOW);
        outcome.and_then(|()| self.receive(id, bytes, is_last))
    }

    pub(crate) fn note(&mut self) {
        while let Some(event) = self.connection.next_event() {
            if let H3Event::Opened(key) = event {
                self.opened.push(key);
            }
            self.events.push(event);
        }
    }

    pub(crate) fn flush(&mut self) {
        self.connection.flush(&mut self.wire);
    }

    pub(crate) fn sent(&mut self, id: StreamId) -> Sent {
        self.flush();
        self.wire.streams.get(&id).cloned().unwrap_or_default()
    }

    /// Sends a request on the next stream.
    pub(crate) fn ask(&mut self, id: StreamId, head: &str, is_last: bool) -> Key {
        let key = self.connection.open(id);
        let len = self.connection.write_head(key, head.as_bytes(), is_last, http3::WireScheme::Https);
        assert_eq!(len, Ok(head.len()));
        key
    }

    pub(crate) fn answer(&mut self, key: Key, head: &str, is_last: bool) {
        let len = self.connection.write_head(key, head.as_bytes(), is_last, http3::WireScheme::Https);
        assert_eq!(len, Ok(head.len()));
    }

    pub(crate) fn write(&mut self, key: Key, bytes: &[u8], is_last: bool) -> usize {
        self.connection.write(key, bytes, is_last, &mut self.wire)
    }

    /// Reads everything. `None` as the end means that more may come.
    pub(crate) fn read(&mut self, key: Key) -> (String, Option<bool>) {
        let (mut text, mut buffer) = (Vec::new(), [0; 100]);
        let end = loop {
            match self.connection.read(key, &mut buffer) {
                Ok(Some(0)) => break Some(true),
                Ok(Some(count)) => text.extend_from_slice(&buffer[..count]),
                Ok(None) => break None,
                Err(_) => break Some(false),
            }
        };
        self.note();
        (String::from_utf8_lossy(&text).into_owned(), end)
    }
}

/// Both ends, and the part of their output that has arrived.
pub(crate) struct Pair {
    pub(crate) client: End,
    pub(crate) server: End,
    up: BTreeMap<StreamId, Arrived>,
    down: BTreeMap<StreamId, Arrived>,
    /// The most bytes that arrive at once.
    piece: usize,
}

#[derive(Default)]
struct Arrived {
    len: usize,
    has_ended: bool,
    was_reset: bool,
    was_stopped: bool,
}

impl Pair {
    pub(crate) fn new(limits: H3Limits, piece: usize) -> Self {
        let (client, server) = (End::new(H3Role::Client, limits), End::new(H3Role::Server, limits));
        Self { client, server, up: BTreeMap::new(), down: BTreeMap::new(), piece }
    }

    /// Delivers all output that the other end accepts, in both directions.
    pub(crate) fn pass(&mut self) {
        while pass(&mut self.client, &mut self.server, &mut self.up, self.piece)
            | pass(&mut self.server, &mut self.client, &mut self.down, self.piece)
        {}
    }
}

/// Delivers the output of one end. Returns whether there was any.
fn pass(from: &mut End, to: &mut End, arrived: &mut BTreeMap<StreamId, Arrived>, piece: usize) -> bool {
    from.flush();
    let mut has_moved = false;
    for (&id, sent) in &from.wire.streams {
        let begins = arrived.is_empty() || !arrived.contains_key(&id);
        let is_from_server = from.wire.streams.contains_key(&SERVER_STREAMS[0]);
        let arrived = arrived.entry(id).or_default();
        if begins && (id & 1 == 1) == is_from_server {
            to.accept(id);
        }
        while !arrived.has_ended {
            let rest = &sent.bytes[arrived.len..];
            let wanted = to.connection.wanted(id);
            let count = rest.len().min(wanted).min(piece);
            let ends = sent.has_ended && count == rest.len();
            if count == 0 && (!ends || wanted == 0) {
                break;
            }
            to.receive(id, &rest[..count], ends).expect("the peer keeps to the rules");
            arrived.len += count;
            arrived.has_ended = ends;
            has_moved = true;
        }
        if let Some(code) = sent.reset.filter(|_| !std::mem::replace(&mut arrived.was_reset, true)) {
            to.connection.reset_received(id, code, NOW).expect("it may be reset");
            has_moved = true;
        }
        if let Some(code) = sent.stopped.filter(|_| !std::mem::replace(&mut arrived.was_stopped, true)) {
            to.connection.stop_received(id, code, NOW).expect("it may be stopped");
            has_moved = true;
        }
    }
    to.note();
    has_moved
}

pub(crate) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [kind, payload.len() as u64] {
        match number {
            0..64 => bytes.push(number as u8),
            64..16_384 => bytes.extend_from_slice(&(number as u16 | 0x4000).to_be_bytes()),
            _ => bytes.extend_from_slice(&(number as u32 | 0x8000_0000).to_be_bytes()),
        }
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// A HEADERS frame with these fields, in lines of `name: value`.
pub(crate) fn headers(fields: &str) -> Vec<u8> {
    let mut encoder = QpackEncoder::default();
    encoder.begin(0, false);
    for line in fields.lines() {
        let (name, value) = line.trim_start().rsplit_once(": ").expect("it is a field");
        encoder.field(name.as_bytes(), value.as_bytes());
    }
    let mut section = Vec::new();
    encoder.end(&mut section);
    frame(1, &section)
}

pub(crate) const GET: &str = ":method: GET\n:scheme: https\n:authority: a\n:path: /";
pub(crate) const POST: &str = ":method: POST\n:scheme: https\n:authority: a\n:path: /";
