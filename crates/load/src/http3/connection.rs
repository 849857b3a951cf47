//! State of an HTTP/3 connection (RFC 9114): requests become QUIC streams, and streams become responses.
//!
//! A sender has a place, and one stream at a time in it. Bodies of responses are counted, not kept.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use lab_http3::{
    ConnectionSide, Frames, LabControl, LabPeerSettings, LabQpackDecoder, PeerViolation, StreamPart,
    Undecodable,
};
use quinn_proto::{
    ConnectionError, Dir, Event, ReadError, StreamEvent, StreamId, TransportErrorCode, VarInt,
};

use crate::http2::{
    BlockFault, Decode, FIELDS_BYTES_MAX, H2Code, H2LoadRequest, H2StreamFailure, Heads, IncomingResponse,
    ReceivedResponse,
};

impl Decode for LabQpackDecoder {
    fn changes(&self) -> u64 {
        self.changes()
    }

    fn decode(&mut self, section: &[u8], field: impl FnMut(&[u8], &[u8])) -> Result<(), Undecodable> {
        self.decode(section, field)
    }
}

pub(crate) struct H3LoadConnection {
    pub(super) quic: quinn_proto::Connection,
    /// Places whose streams ended since the last call.
    pub(crate) ended: Vec<usize>,
    /// Content received and sent since the last call.
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// The reason why the connection has ended.
    pub(crate) lost: Option<ConnectionError>,
    heads: Heads<LabQpackDecoder>,
    control: LabControl,
    decoder_stream: Option<StreamId>,
    /// Streams for further requests, opened as far as the server allows.
    opened: VecDeque<StreamId>,
    /// Places that wait for one of them.
    waiting: VecDeque<usize>,
    streams: Vec<Option<StreamId>>,
    places: Vec<H3SenderPlace>,
    /// Place that was found last: responses often arrive in the order of their requests.
    found: usize,
    /// Maximum number of concurrent streams; 0 before the handshake.
    most: usize,
    has_begun: bool,
    /// The server accepts no further requests.
    is_over: bool,
}

#[derive(Default)]
struct H3SenderPlace {
    incoming: IncomingResponse,
    frames: Frames,
    has_trailers: bool,
    /// Unsent parts of the request: its head, and its body.
    head: Vec<u8>,
    body: Bytes,
    result: Option<Result<ReceivedResponse, H2StreamFailure>>,
}

/// An error of a stream or of the whole connection.
enum H3Violation {
    Stream(&'static str),
    Connection(PeerViolation),
}

impl From<PeerViolation> for H3Violation {
    fn from(broken: PeerViolation) -> Self {
        Self::Connection(broken)
    }
}

impl H3LoadConnection {
    /// A connection for this many places, during its handshake.
    pub(super) fn new(quic: quinn_proto::Connection, places: usize) -> Self {
        Self {
            quic,
            ended: Vec::new(),
            received_bytes: 0,
            sent_bytes: 0,
            lost: None,
            heads: Heads::default(),
            control: LabControl::new(ConnectionSide::Client),
            decoder_stream: None,
            opened: VecDeque::new(),
            waiting: VecDeque::new(),
            streams: vec![None; places],
            places: (0..places).map(|_| H3SenderPlace::default()).collect(),
            found: 0,
            most: 0,
            has_begun: false,
            is_over: false,
        }
    }

    /// Maximum number of concurrent streams; 0 before the handshake.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Whether the handshake is done.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether the server has ended the handshake because it has no HTTP/3 (RFC 7301 §3.2: no_application_protocol).
    pub(super) fn refuses_http3(&self) -> bool {
        const NO_APPLICATION_PROTOCOL: u8 = 120;
        let code = TransportErrorCode::crypto(NO_APPLICATION_PROTOCOL);
        matches!(&self.lost, Some(ConnectionError::ConnectionClosed(close)) if close.error_code == code)
    }

    /// Whether the server accepts no further requests.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Sends the request of a place, as soon as the server allows another stream.
    #[inline]
    pub(crate) fn ask(&mut self, place: usize, asked: H2LoadRequest<'_>) {
        debug_assert!(self.streams[place].is_none() && !self.is_over, "a sender has one stream at a time");
        let at = &mut self.places[place];
        at.incoming.begin(asked.is_head, asked.keeps_fields, asked.observer);
        at.frames.restart();
        (at.has_trailers, at.result) = (false, None);
        at.head.clear();
        at.head.extend_from_slice(asked.block.bytes());
        if !asked.body.is_empty() {
            lab_http3::push_data_head(&mut at.head, asked.body.len() as u64);
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

    /// Sends the rest of a request, as much as flow control allows.
    fn upload(&mut self, place: usize, stream: StreamId) {
        let at = &mut self.places[place];
        let mut out = self.quic.send_stream(stream);
        while !at.head.is_empty() {
            // Events report the errors.
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

    pub(crate) fn cancel(&mut self, place: usize) {
        self.reset(place, lab_http3::LabH3Code::REQUEST_CANCELLED);
        self.read_no_more(place);
        self.close(place);
    }

    /// RFC 9204 §2.2.2.2: cancels the stream for the decoder, so that the server does not wait for acknowledgments.
    fn read_no_more(&mut self, place: usize) {
        if let Some(stream) = self.streams[place] {
            self.heads.decoder().cancel(stream.into());
        }
    }

    /// Takes the result of a place's stream, once it has ended.
    #[inline]
    pub(crate) fn take(&mut self, place: usize) -> Option<Result<ReceivedResponse, H2StreamFailure>> {
        self.places[place].result.take()
    }

    /// Takes the response of a place, if its stream has ended with one.
    #[inline]
    pub(crate) fn take_success(&mut self, place: usize) -> Option<ReceivedResponse> {
        let result = &mut self.places[place].result;
        result.take_if(|result| result.is_ok()).and_then(Result::ok)
    }

    /// Ends all streams after the connection was lost.
    pub(crate) fn lose(&mut self) {
        self.fail_all(|at| H2StreamFailure::Lost { is_begun: at.incoming.has_head() });
    }

    fn fail_all(&mut self, ended: impl Fn(&H3SenderPlace) -> H2StreamFailure) {
        self.is_over = true;
        for place in 0..self.places.len() {
            if self.is_active(place) {
                let ended = ended(&self.places[place]);
                self.fail(place, ended);
            }
        }
    }

    fn is_active(&self, place: usize) -> bool {
        self.streams[place].is_some() || self.waiting.contains(&place)
    }

    pub(crate) fn go_away(&mut self, code: lab_http3::LabH3Code, why: &'static str, now: Instant) {
        let code = VarInt::from_u64(code.0).unwrap_or_default();
        self.quic.close(now, code, Bytes::from_static(why.as_bytes()));
    }

    /// Acts on received packets. Returns false if the connection is at its end.
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
            if let Err(PeerViolation(code, what)) = done {
                self.fail_all(|_| H2StreamFailure::Malformed(what));
                self.go_away(code, what, now);
                return false;
            }
        }
        self.acknowledge();
        true
    }

    /// Sends the decoder's instructions. They leave with the next request, if there is one.
    fn acknowledge(&mut self) {
        let instructions = self.heads.decoder().instructions();
        if !instructions.is_empty()
            && let Some(stream) = self.decoder_stream
        {
            // Events report the errors.
            let written = self.quic.send_stream(stream).write(instructions).unwrap_or(0);
            instructions.drain(..written);
        }
    }

    /// Opens our streams after the handshake.
    fn start(&mut self) {
        self.has_begun = true;
        for bytes in lab_http3::opening(ConnectionSide::Client, FIELDS_BYTES_MAX) {
            // RFC 9114 §6.2: a server allows at least three, with enough credit.
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

    fn stream_event(&mut self, event: StreamEvent, now: Instant) -> Result<(), PeerViolation> {
        match event {
            StreamEvent::Opened { dir: Dir::Uni } => {
                while let Some(stream) = self.quic.streams().accept(Dir::Uni) {
                    self.hear(stream)?;
                }
                Ok(())
            }
            // RFC 9114 §6.1.
            StreamEvent::Opened { dir: Dir::Bi } => Err(PeerViolation(
                lab_http3::LabH3Code::STREAM_CREATION_ERROR,
                "the server opens a bidirectional stream",
            )),
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
                    Dir::Uni => Err(PeerViolation(
                        lab_http3::LabH3Code::CLOSED_CRITICAL_STREAM,
                        "our control stream is stopped",
                    )),
                    Dir::Bi => Ok(()),
                }
            }
            StreamEvent::Finished { .. } | StreamEvent::Available { dir: Dir::Uni } => Ok(()),
        }
    }

    /// Reads a unidirectional stream of the server.
    fn hear(&mut self, stream: StreamId) -> Result<(), PeerViolation> {
        let mut goaway = None;
        let mut receiving = self.quic.recv_stream(stream);
        let Ok(mut chunks) = receiving.read(true) else { return Ok(()) };
        let (decoder, mut inserted) = (self.heads.decoder(), Ok(()));
        let heard = loop {
            let mut tell = |told: LabPeerSettings<'_>| match told {
                LabPeerSettings::Settings => {}
                LabPeerSettings::GoAway(id) => goaway = Some(id),
                LabPeerSettings::Insertions(bytes) if inserted.is_ok() => inserted = decoder.insert(bytes),
                LabPeerSettings::Insertions(_) => {}
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
                    break Err(PeerViolation(
                        lab_http3::LabH3Code::CLOSED_CRITICAL_STREAM,
                        "a stream that must stay open is reset",
                    ));
                }
                Err(ReadError::Reset(_)) => break Ok(()),
            }
        };
        let _ = chunks.finalize();
        heard?;
        inserted?;
        // RFC 9114 §5.2: streams from this ID on were not processed.
        if let Some(id) = goaway {
            self.is_over = true;
            for place in 0..self.places.len() {
                let is_beyond = self.streams[place].is_some_and(|stream| u64::from(stream) >= id);
                if is_beyond || self.waiting.contains(&place) {
                    self.fail(place, H2StreamFailure::GoAway(H2Code::NO_ERROR));
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

    #[inline]
    fn read(&mut self, stream: StreamId, now: Instant) -> Result<(), PeerViolation> {
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
                    done =
                        Ok(Some(Err(H2StreamFailure::ResetOfHttp3(lab_http3::LabH3Code(code.into_inner())))));
                    break;
                }
            }
        }
        // Returned credit is sent with the next packets.
        let _ = chunks.finalize();
        match done {
            Ok(None) => {}
            Ok(Some(Ok(received))) => {
                self.places[place].result = Some(Ok(received));
                self.finish(place);
            }
            Ok(Some(Err(ended))) => self.fail(place, ended),
            Err(H3Violation::Stream(what)) => {
                self.reset(place, lab_http3::LabH3Code::MESSAGE_ERROR);
                self.fail(place, H2StreamFailure::Malformed(what));
            }
            Err(H3Violation::Connection(broken)) => return Err(broken),
        }
        Ok(())
    }

    #[inline]
    fn finish(&mut self, place: usize) {
        let at = &self.places[place];
        // RFC 9114 §4.1: the server needs no more of the request.
        if !(at.head.is_empty() && at.body.is_empty())
            && let Some(stream) = self.streams[place]
        {
            let _ = self.quic.send_stream(stream).reset(code(lab_http3::LabH3Code::NO_ERROR));
        }
        self.close(place);
        self.ended.push(place);
    }

    fn fail(&mut self, place: usize, ended: H2StreamFailure) {
        self.read_no_more(place);
        self.places[place].result = Some(Err(ended));
        self.close(place);
        self.ended.push(place);
    }

    fn reset(&mut self, place: usize, why: lab_http3::LabH3Code) {
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

fn code(code: lab_http3::LabH3Code) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or_default()
}

impl H3SenderPlace {
    #[inline]
    fn take(
        &mut self,
        heads: &mut Heads<LabQpackDecoder>,
        stream: StreamId,
        bytes: &[u8],
        now: Instant,
    ) -> Result<(), H3Violation> {
        let Self { frames, incoming, has_trailers, .. } = self;
        frames.read(bytes, FIELDS_BYTES_MAX, ConnectionSide::Client, |part| match part {
            // RFC 9114 §4.1: heads, content, and trailers at the end.
            _ if *has_trailers => {
                Err(PeerViolation(lab_http3::LabH3Code::FRAME_UNEXPECTED, "data follows the trailers").into())
            }
            StreamPart::Data(piece) if incoming.has_head() => {
                incoming.body(piece);
                Ok(())
            }
            StreamPart::Data(_) => {
                Err(PeerViolation(lab_http3::LabH3Code::FRAME_UNEXPECTED, "a DATA frame precedes the head")
                    .into())
            }
            StreamPart::Headers(section) => {
                let read = if incoming.has_head() {
                    *has_trailers = true;
                    heads.trailers(section)
                } else {
                    incoming.head(heads, false, section, now)
                };
                heads.decoder().acknowledge(stream.into(), section);
                read.map_err(|fault| match fault {
                    BlockFault::Undecodable => H3Violation::Connection(PeerViolation(
                        lab_http3::LabH3Code::QPACK_DECOMPRESSION_FAILED,
                        "a field section is not valid QPACK",
                    )),
                    BlockFault::Malformed(what) => H3Violation::Stream(what),
                })
            }
        })
    }

    #[inline]
    fn end(&mut self, now: Instant) -> Result<ReceivedResponse, H3Violation> {
        // RFC 9114 §7.1.
        if !self.frames.is_between() {
            return Err(
                PeerViolation(lab_http3::LabH3Code::FRAME_ERROR, "a stream ends within a frame").into()
            );
        }
        self.incoming.complete(now).map_err(H3Violation::Stream)
    }
}
