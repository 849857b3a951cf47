//! State of an HTTP/3 connection and its streams (RFC 9114): requests become streams of QUIC, and streams responses.
//!
//! A sender has a place, and one stream at a time in it. Bodies of responses are counted, not kept.

use std::collections::VecDeque;
use std::time::Instant;

use ::h3::{Broken, Control, Decoder, Frames, Part, Side, Told, Undecodable};
use bytes::Bytes;
use quinn_proto::{
    ConnectionError, Dir, Event, ReadError, StreamEvent, StreamId, TransportErrorCode, VarInt,
};

use crate::http2::{Asked, Code, Decode, Ended, FIELDS_BYTES_MAX, Fault, Heads, Incoming, Received};

impl Decode for Decoder {
    fn changes(&self) -> u64 {
        self.changes()
    }

    fn decode(&mut self, section: &[u8], field: impl FnMut(&[u8], &[u8])) -> Result<(), Undecodable> {
        self.decode(section, field)
    }
}

/// A connection, for a number of senders.
pub(crate) struct Connection {
    pub(super) quic: quinn_proto::Connection,
    /// Places whose streams have ended since they were last looked at.
    pub(crate) ended: Vec<usize>,
    /// Content that was received and sent since this was last looked at.
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// Why the connection has ended.
    pub(crate) lost: Option<ConnectionError>,
    heads: Heads<Decoder>,
    control: Control,
    /// Stream for what the decoder says.
    decoder_stream: Option<StreamId>,
    /// Streams that may be used for requests, opened as far as the server allows.
    opened: VecDeque<StreamId>,
    /// Places that wait for one of them.
    waiting: VecDeque<usize>,
    /// Stream of each place.
    streams: Vec<Option<StreamId>>,
    places: Vec<Place>,
    /// Place that was found last: responses often come in the order of their requests.
    found: usize,
    /// Number of concurrent streams that the server takes; 0 before the handshake.
    most: usize,
    has_begun: bool,
    /// It takes no more requests.
    is_over: bool,
}

/// The stream of a place.
#[derive(Default)]
struct Place {
    incoming: Incoming,
    frames: Frames,
    /// Whether trailers have come.
    has_trailers: bool,
    /// What is to be sent of the request: its head, and its body.
    head: Vec<u8>,
    body: Bytes,
    result: Option<Result<Received, Ended>>,
}

/// What is wrong with a stream or the whole connection.
enum Wrong {
    Stream(&'static str),
    Connection(Broken),
}

impl From<Broken> for Wrong {
    fn from(broken: Broken) -> Self {
        Self::Connection(broken)
    }
}

impl Connection {
    /// A connection for this many places, whose handshake is under way.
    pub(super) fn new(quic: quinn_proto::Connection, places: usize) -> Self {
        Self {
            quic,
            ended: Vec::new(),
            received_bytes: 0,
            sent_bytes: 0,
            lost: None,
            heads: Heads::default(),
            control: Control::new(Side::Client),
            decoder_stream: None,
            opened: VecDeque::new(),
            waiting: VecDeque::new(),
            streams: vec![None; places],
            places: (0..places).map(|_| Place::default()).collect(),
            found: 0,
            most: 0,
            has_begun: false,
            is_over: false,
        }
    }

    /// Number of concurrent streams that the server takes; 0 before the handshake.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Whether the handshake is done.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether the server has ended the handshake since it has no HTTP/3 (RFC 7301 §3.2: no_application_protocol).
    pub(super) fn refuses_http3(&self) -> bool {
        const NO_APPLICATION_PROTOCOL: u8 = 120;
        let code = TransportErrorCode::crypto(NO_APPLICATION_PROTOCOL);
        matches!(&self.lost, Some(ConnectionError::ConnectionClosed(close)) if close.error_code == code)
    }

    /// Whether it takes no more requests.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Sends the request of a place, as soon as the server allows another stream.
    #[inline]
    pub(crate) fn ask(&mut self, place: usize, asked: Asked<'_>) {
        debug_assert!(self.streams[place].is_none() && !self.is_over, "a sender has one stream at a time");
        let at = &mut self.places[place];
        at.incoming.begin(asked.is_head, asked.keeps_fields, asked.watch);
        at.frames.restart();
        (at.has_trailers, at.result) = (false, None);
        at.head.clear();
        at.head.extend_from_slice(asked.block.bytes());
        if !asked.body.is_empty() {
            ::h3::push_data_head(&mut at.head, asked.body.len() as u64);
        }
        at.body = asked.body;
        let opened = self.opened.pop_front();
        match opened.or_else(|| self.quic.streams().open(Dir::Bi)) {
            Some(stream) => self.begin(place, stream),
            None => self.waiting.push_back(place),
        }
    }

    #[inline]
    fn begin(&mut self, place: usize, stream: StreamId) {
        self.streams[place] = Some(stream);
        self.upload(place, stream);
    }

    /// Sends what there is to send of a request, as far as the server allows.
    fn upload(&mut self, place: usize, stream: StreamId) {
        let at = &mut self.places[place];
        let mut out = self.quic.send_stream(stream);
        while !at.head.is_empty() {
            // Errors are told by events.
            let Ok(written) = out.write(&at.head) else { return };
            self.sent_bytes += written as u64;
            at.head.drain(..written);
        }
        while !at.body.is_empty() {
            let mut pieces = [std::mem::take(&mut at.body)];
            let written = out.write_chunks(&mut pieces);
            let [rest] = pieces;
            at.body = rest;
            let Ok(written) = written else { return };
            self.sent_bytes += written.bytes as u64;
        }
        let _ = out.finish();
    }

    /// Gives up the stream of a place.
    pub(crate) fn cancel(&mut self, place: usize) {
        self.reset(place, ::h3::Code::REQUEST_CANCELLED);
        self.read_no_more(place);
        self.close(place);
    }

    /// RFC 9204 §2.2.2.2: the server waits for no acknowledgment of sections that are not read.
    fn read_no_more(&mut self, place: usize) {
        if let Some(stream) = self.streams[place] {
            self.heads.decoder().cancel(stream.into());
        }
    }

    /// What has become of the stream of a place, once it has ended.
    #[inline]
    pub(crate) fn take(&mut self, place: usize) -> Option<Result<Received, Ended>> {
        self.places[place].result.take()
    }

    /// The response of a place, if its stream has ended with one.
    #[inline]
    pub(crate) fn take_success(&mut self, place: usize) -> Option<Received> {
        let result = &mut self.places[place].result;
        result.take_if(|result| result.is_ok()).and_then(Result::ok)
    }

    /// Ends all streams: the connection is gone.
    pub(crate) fn lose(&mut self) {
        self.fail_all(|at| Ended::Lost { is_begun: at.incoming.has_head() });
    }

    fn fail_all(&mut self, ended: impl Fn(&Place) -> Ended) {
        self.is_over = true;
        for place in 0..self.places.len() {
            if self.is_active(place) {
                let ended = ended(&self.places[place]);
                self.fail(place, ended);
            }
        }
    }

    /// Whether a request of this place is under way.
    fn is_active(&self, place: usize) -> bool {
        self.streams[place].is_some() || self.waiting.contains(&place)
    }

    /// Says that the connection ends.
    pub(crate) fn go_away(&mut self, code: ::h3::Code, why: &'static str, now: Instant) {
        let code = VarInt::from_u64(code.0).unwrap_or_default();
        self.quic.close(now, code, Bytes::from_static(why.as_bytes()));
    }

    /// Does what follows from what was received. False if the connection is at its end.
    pub(super) fn proceed(&mut self, now: Instant) -> bool {
        while let Some(event) = self.quic.poll() {
            let done = match event {
                Event::Connected => {
                    self.start();
                    Ok(())
                }
                Event::ConnectionLost { reason } => {
                    self.lost = Some(reason);
                    self.lose();
                    return false;
                }
                Event::Stream(event) => self.stream_event(event, now),
                Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => Ok(()),
            };
            if let Err(Broken(code, what)) = done {
                self.fail_all(|_| Ended::Malformed(what));
                self.go_away(code, what, now);
                return false;
            }
        }
        self.acknowledge();
        true
    }

    /// Sends what the decoder of field sections has to say. It leaves with the next request, if there is one.
    fn acknowledge(&mut self) {
        let instructions = self.heads.decoder().instructions();
        if !instructions.is_empty()
            && let Some(stream) = self.decoder_stream
        {
            // Errors are told by events.
            let written = self.quic.send_stream(stream).write(instructions).unwrap_or(0);
            instructions.drain(..written);
        }
    }

    /// The handshake is done: our own streams begin.
    fn start(&mut self) {
        self.has_begun = true;
        for bytes in ::h3::opening(Side::Client, FIELDS_BYTES_MAX) {
            // RFC 9114 §6.2: a server allows at least three, with room for this.
            let Some(stream) = self.quic.streams().open(Dir::Uni) else { continue };
            let _ = self.quic.send_stream(stream).write(&bytes);
            self.decoder_stream = Some(stream);
        }
        self.open_more();
    }

    /// Opens streams as far as the server allows and they can be used.
    fn open_more(&mut self) {
        while self.opened.len() < self.places.len() + self.waiting.len()
            && let Some(stream) = self.quic.streams().open(Dir::Bi)
        {
            self.opened.push_back(stream);
        }
        let active = self.streams.iter().flatten().count();
        self.most = self.most.max(active + self.opened.len());
        while !self.is_over
            && !self.waiting.is_empty()
            && let Some(stream) = self.opened.pop_front()
        {
            let Some(place) = self.waiting.pop_front() else { break };
            self.begin(place, stream);
        }
    }

    fn stream_event(&mut self, event: StreamEvent, now: Instant) -> Result<(), Broken> {
        match event {
            StreamEvent::Opened { dir: Dir::Uni } => {
                while let Some(stream) = self.quic.streams().accept(Dir::Uni) {
                    self.hear(stream)?;
                }
                Ok(())
            }
            // RFC 9114 §6.1.
            StreamEvent::Opened { dir: Dir::Bi } => {
                Err(Broken(::h3::Code::STREAM_CREATION_ERROR, "the server opens a bidirectional stream"))
            }
            StreamEvent::Readable { id } if id.dir() == Dir::Uni => self.hear(id),
            StreamEvent::Readable { id } => self.read(id, now),
            StreamEvent::Writable { id } => {
                if let Some(place) = self.find(id) {
                    self.upload(place, id);
                }
                Ok(())
            }
            StreamEvent::Available { dir: Dir::Bi } => {
                self.open_more();
                Ok(())
            }
            StreamEvent::Stopped { id, .. } => {
                // RFC 9114 §4.1: the server needs no more of the request. Its response is awaited.
                if let Some(place) = self.find(id) {
                    self.places[place].body = Bytes::new();
                    self.places[place].head.clear();
                }
                // RFC 9114 §6.2.1.
                match id.dir() {
                    Dir::Uni => {
                        Err(Broken(::h3::Code::CLOSED_CRITICAL_STREAM, "our control stream is stopped"))
                    }
                    Dir::Bi => Ok(()),
                }
            }
            StreamEvent::Finished { .. } | StreamEvent::Available { dir: Dir::Uni } => Ok(()),
        }
    }

    /// Reads one of the server's own streams.
    fn hear(&mut self, stream: StreamId) -> Result<(), Broken> {
        let mut goaway = None;
        let mut receiving = self.quic.recv_stream(stream);
        let Ok(mut chunks) = receiving.read(true) else { return Ok(()) };
        let (decoder, mut inserted) = (self.heads.decoder(), Ok(()));
        let heard = loop {
            let mut tell = |told: Told<'_>| match told {
                Told::Settings => {}
                Told::GoAway(id) => goaway = Some(id),
                Told::Insertions(bytes) if inserted.is_ok() => inserted = decoder.insert(bytes),
                Told::Insertions(_) => {}
            };
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    if let Err(broken) = self.control.read(stream.into(), &chunk.bytes, false, &mut tell) {
                        break Err(broken);
                    }
                }
                Ok(None) => break self.control.read(stream.into(), &[], true, &mut tell),
                Err(ReadError::Blocked) => break Ok(()),
                Err(ReadError::Reset(_)) if self.control.is_critical(stream.into()) => {
                    break Err(Broken(
                        ::h3::Code::CLOSED_CRITICAL_STREAM,
                        "a stream that has to stay open is reset",
                    ));
                }
                Err(ReadError::Reset(_)) => break Ok(()),
            }
        };
        let _ = chunks.finalize();
        heard?;
        inserted?;
        // RFC 9114 §5.2: streams from this on were not processed.
        if let Some(id) = goaway {
            self.is_over = true;
            for place in 0..self.places.len() {
                let is_beyond = self.streams[place].is_some_and(|stream| u64::from(stream) >= id);
                if is_beyond || self.waiting.contains(&place) {
                    self.fail(place, Ended::GoAway(Code::NO_ERROR));
                }
            }
        }
        Ok(())
    }

    /// Place of a stream; `None` if it has ended.
    #[inline]
    fn find(&mut self, stream: StreamId) -> Option<usize> {
        let next = if self.found + 1 == self.streams.len() { 0 } else { self.found + 1 };
        let place = [next, self.found].into_iter().find(|place| self.streams[*place] == Some(stream));
        let place = place.or_else(|| self.streams.iter().position(|other| *other == Some(stream)))?;
        self.found = place;
        Some(place)
    }

    /// Reads what has come of a response.
    #[inline]
    fn read(&mut self, stream: StreamId, now: Instant) -> Result<(), Broken> {
        let Some(place) = self.find(stream) else { return Ok(()) };
        let mut receiving = self.quic.recv_stream(stream);
        let Ok(mut chunks) = receiving.read(true) else { return Ok(()) };
        let (at, heads) = (&mut self.places[place], &mut self.heads);
        let mut done = Ok(None);
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    self.received_bytes += chunk.bytes.len() as u64;
                    if let Err(wrong) = at.take(heads, stream, &chunk.bytes, now) {
                        done = Err(wrong);
                        break;
                    }
                }
                Ok(None) => {
                    done = at.end(now).map(|received| Some(Ok(received)));
                    break;
                }
                Err(ReadError::Blocked) => break,
                Err(ReadError::Reset(code)) => {
                    done = Ok(Some(Err(Ended::ResetOfHttp3(::h3::Code(code.into_inner())))));
                    break;
                }
            }
        }
        // Credit that it gives back leaves with what is sent next.
        let _ = chunks.finalize();
        match done {
            Ok(None) => {}
            Ok(Some(Ok(received))) => {
                self.places[place].result = Some(Ok(received));
                self.finish(place);
            }
            Ok(Some(Err(ended))) => self.fail(place, ended),
            Err(Wrong::Stream(what)) => {
                self.reset(place, ::h3::Code::MESSAGE_ERROR);
                self.fail(place, Ended::Malformed(what));
            }
            Err(Wrong::Connection(broken)) => return Err(broken),
        }
        Ok(())
    }

    /// The response of a place is complete.
    #[inline]
    fn finish(&mut self, place: usize) {
        let at = &self.places[place];
        // RFC 9114 §4.1: the server needs no more of the request.
        if !(at.head.is_empty() && at.body.is_empty())
            && let Some(stream) = self.streams[place]
        {
            let _ = self.quic.send_stream(stream).reset(code(::h3::Code::NO_ERROR));
        }
        self.close(place);
        self.ended.push(place);
    }

    fn fail(&mut self, place: usize, ended: Ended) {
        self.read_no_more(place);
        self.places[place].result = Some(Err(ended));
        self.close(place);
        self.ended.push(place);
    }

    fn reset(&mut self, place: usize, why: ::h3::Code) {
        if let Some(stream) = self.streams[place] {
            let _ = self.quic.send_stream(stream).reset(code(why));
            let _ = self.quic.recv_stream(stream).stop(code(why));
        }
    }

    #[inline]
    fn close(&mut self, place: usize) {
        self.streams[place] = None;
        let at = &mut self.places[place];
        if !at.body.is_empty() {
            at.body = Bytes::new();
        }
        at.head.clear();
        if !self.waiting.is_empty() {
            self.waiting.retain(|waiting| *waiting != place);
        }
    }
}

fn code(code: ::h3::Code) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or_default()
}

impl Place {
    /// Reads a piece of the stream.
    #[inline]
    fn take(
        &mut self,
        heads: &mut Heads<Decoder>,
        stream: StreamId,
        bytes: &[u8],
        now: Instant,
    ) -> Result<(), Wrong> {
        let Self { frames, incoming, has_trailers, .. } = self;
        frames.read(bytes, FIELDS_BYTES_MAX, Side::Client, |part| match part {
            // RFC 9114 §4.1: heads, content, and trailers at the end.
            _ if *has_trailers => {
                Err(Broken(::h3::Code::FRAME_UNEXPECTED, "something comes behind the trailers").into())
            }
            Part::Data(piece) if incoming.has_head() => {
                incoming.body(piece);
                Ok(())
            }
            Part::Data(_) => {
                Err(Broken(::h3::Code::FRAME_UNEXPECTED, "content comes before the head").into())
            }
            Part::Headers(section) => {
                let read = if incoming.has_head() {
                    *has_trailers = true;
                    heads.trailers(section)
                } else {
                    incoming.head(heads, false, section, now)
                };
                heads.decoder().acknowledge(stream.into(), section);
                read.map_err(|fault| match fault {
                    Fault::Undecodable => Wrong::Connection(Broken(
                        ::h3::Code::QPACK_DECOMPRESSION_FAILED,
                        "a field section is not valid QPACK",
                    )),
                    Fault::Malformed(what) => Wrong::Stream(what),
                })
            }
        })
    }

    /// The stream has ended.
    #[inline]
    fn end(&mut self, now: Instant) -> Result<Received, Wrong> {
        // RFC 9114 §7.1.
        if !self.frames.is_between() {
            return Err(Broken(::h3::Code::FRAME_ERROR, "a stream ends within a frame").into());
        }
        self.incoming.complete(now).map_err(Wrong::Stream)
    }
}
