//! A client's QUIC connection, and its HTTP/3 streams.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;
use lab_http3::{ConnectionSide, Frames, LabControl, LabH3Code, PeerViolation, StreamPart};
use quinn_proto::{Dir, Event, ReadError, StreamEvent, StreamId, VarInt};
use tokio::task::spawn_local;

use super::endpoint::EndpointShared;
use super::head::{self, RequestedFields};
use super::stream::{self, OriginH3Stream};
use crate::worker::OriginWorker;

pub(super) const SECTION_BYTES_MAX: usize = 128 * 1024;
const OWN_STREAMS: usize = 3;
/// Number of field sections that are remembered.
const KNOWN: usize = 8;

/// A connection, shared by the task that drives it and its requests.
pub(crate) struct OriginH3 {
    pub(super) worker: Rc<OriginWorker>,
    endpoint: Rc<EndpointShared>,
    at: usize,
    /// Addresses of the client and of this end.
    pub(super) addresses: [SocketAddr; 2],
    quic: RefCell<quinn_proto::Connection>,
    streams: RefCell<HashMap<StreamId, H3StreamState>>,
    control: RefCell<LabControl>,
    known: RefCell<[Option<KnownSection>; KNOWN]>,
    ours: Cell<Option<StreamId>>,
    /// The first stream ID without a request yet.
    next: Cell<u64>,
    is_leaving: Cell<bool>,
    is_over: Cell<bool>,
    pub(super) is_stirred: Cell<bool>,
    /// Due time of the connection in the driver's list of timers.
    pub(super) filed: Cell<Option<Instant>>,
}

enum H3StreamState {
    /// Its head has not arrived.
    Fresh(Box<Frames>),
    Held(StreamWaiter),
    /// The rest of a fixed page is being sent.
    Sending(VecDeque<Bytes>),
}

/// Tasks that wait for a stream.
#[derive(Default)]
struct StreamWaiter {
    reader: Option<Waker>,
    writer: Option<Waker>,
    is_stopped: bool,
}

/// A remembered field section of a request for a fixed page.
struct KnownSection {
    section: Vec<u8>,
    page: usize,
    is_head: bool,
}

/// The received part of a request.
pub(super) struct Begun {
    pub(super) frames: Frames,
    pub(super) section: Vec<u8>,
    pub(super) content: VecDeque<Bytes>,
    pub(super) is_ended: bool,
}

impl OriginH3 {
    pub(super) fn new(
        worker: Rc<OriginWorker>,
        endpoint: Rc<EndpointShared>,
        at: usize,
        quic: quinn_proto::Connection,
        addresses: [SocketAddr; 2],
    ) -> Rc<Self> {
        Rc::new(Self {
            worker,
            endpoint,
            at,
            addresses,
            quic: RefCell::new(quic),
            streams: RefCell::default(),
            control: RefCell::new(LabControl::new(ConnectionSide::Server)),
            known: RefCell::default(),
            ours: Cell::default(),
            next: Cell::default(),
            is_leaving: Cell::default(),
            is_over: Cell::default(),
            is_stirred: Cell::default(),
            filed: Cell::default(),
        })
    }

    pub(super) fn quic(&self) -> RefMut<'_, quinn_proto::Connection> {
        self.quic.borrow_mut()
    }

    pub(super) fn stir(&self) {
        if !self.is_stirred.replace(true) {
            self.endpoint.stir(self.at);
        }
    }

    pub(super) fn proceed(self: &Rc<Self>, now: Instant) {
        loop {
            let event = self.quic().poll();
            let Some(event) = event else { return };
            let done = match event {
                Event::Connected => {
                    self.start();
                    Ok(())
                }
                Event::ConnectionLost { .. } => {
                    self.end();
                    return;
                }
                Event::Stream(event) => self.stream_event(event),
                Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => Ok(()),
            };
            if let Err(PeerViolation(code, why)) = done {
                self.close(code, why, now);
            }
        }
    }

    pub(super) fn close(&self, code: LabH3Code, why: &'static str, now: Instant) {
        self.quic().close(now, varint(code), Bytes::from_static(why.as_bytes()));
        self.end();
        self.stir();
    }

    /// Wakes the requests after the connection has ended.
    pub(super) fn end(&self) {
        self.is_over.set(true);
        for (_, state) in self.streams.borrow_mut().drain() {
            if let H3StreamState::Held(waits) = state {
                waits.reader.into_iter().chain(waits.writer).for_each(Waker::wake);
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Opens our streams after the handshake.
    fn start(&self) {
        let mut quic = self.quic();
        for (place, bytes) in lab_http3::opening(ConnectionSide::Server, SECTION_BYTES_MAX).iter().enumerate()
        {
            let Some(stream) = quic.streams().open(Dir::Uni) else { continue };
            let _ = quic.send_stream(stream).write(bytes);
            if place == 0 {
                self.ours.set(Some(stream));
            }
        }
    }

    fn stream_event(self: &Rc<Self>, event: StreamEvent) -> Result<(), PeerViolation> {
        match event {
            StreamEvent::Opened { dir } => loop {
                let stream = self.quic().streams().accept(dir);
                let Some(stream) = stream else { return Ok(()) };
                match dir {
                    Dir::Uni => self.hear(stream)?,
                    Dir::Bi => {
                        self.next.set(self.next.get().max(u64::from(stream) + 4));
                        if self.is_leaving.get() {
                            self.reject(stream, LabH3Code::REQUEST_REJECTED);
                            continue;
                        }
                        self.streams.borrow_mut().insert(stream, H3StreamState::Fresh(Box::default()));
                        self.read_head(stream)?;
                    }
                }
            },
            StreamEvent::Readable { id } if id.dir() == Dir::Uni => self.hear(id),
            StreamEvent::Readable { id } => {
                if let Some(H3StreamState::Held(waits)) = self.streams.borrow_mut().get_mut(&id) {
                    waits.reader.take().into_iter().for_each(Waker::wake);
                    return Ok(());
                }
                self.read_head(id)
            }
            StreamEvent::Writable { id } => {
                self.write_on(id);
                Ok(())
            }
            StreamEvent::Stopped { id, .. } if id.dir() == Dir::Uni => {
                Err(PeerViolation(LabH3Code::CLOSED_CRITICAL_STREAM, "one of our own streams is stopped"))
            }
            StreamEvent::Stopped { id, .. } => {
                let _ = self.quic().send_stream(id).reset(varint(LabH3Code::REQUEST_CANCELLED));
                let mut streams = self.streams.borrow_mut();
                if let Some(H3StreamState::Held(waits)) = streams.get_mut(&id) {
                    waits.is_stopped = true;
                    waits.writer.take().into_iter().chain(waits.reader.take()).for_each(Waker::wake);
                } else {
                    streams.remove(&id);
                }
                Ok(())
            }
            StreamEvent::Finished { .. } | StreamEvent::Available { .. } => Ok(()),
        }
    }

    /// Reads a unidirectional stream of the client.
    fn hear(&self, stream: StreamId) -> Result<(), PeerViolation> {
        let (mut quic, mut control) = (self.quic(), self.control.borrow_mut());
        let mut receiving = quic.recv_stream(stream);
        let Ok(mut chunks) = receiving.read(true) else { return Ok(()) };
        let heard = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    if let Err(broken) = control.read(stream.into(), &chunk.bytes, false, |_| {}) {
                        break Err(broken);
                    }
                }
                Ok(None) => break control.read(stream.into(), &[], true, |_| {}),
                Err(ReadError::Reset(_)) if control.is_critical(stream.into()) => {
                    break Err(PeerViolation(
                        LabH3Code::CLOSED_CRITICAL_STREAM,
                        "a stream that must stay open is reset",
                    ));
                }
                Err(ReadError::Blocked | ReadError::Reset(_)) => break Ok(()),
            }
        };
        let _ = chunks.finalize();
        heard
    }

    /// Reads the received bytes of a request whose head is incomplete.
    fn read_head(self: &Rc<Self>, stream: StreamId) -> Result<(), PeerViolation> {
        let Some(H3StreamState::Fresh(frames)) = self.streams.borrow_mut().remove(&stream) else {
            return Ok(());
        };
        let mut begun =
            Begun { frames: *frames, section: Vec::new(), content: VecDeque::new(), is_ended: false };
        let mut has_head = false;
        let is_reset = {
            let mut quic = self.quic();
            let mut receiving = quic.recv_stream(stream);
            let Ok(mut chunks) = receiving.read(true) else { return Ok(()) };
            let mut done = Ok(false);
            loop {
                match chunks.next(usize::MAX) {
                    Ok(Some(chunk)) => {
                        let Begun { frames, section, content, .. } = &mut begun;
                        done = frames
                            .read(&chunk.bytes, SECTION_BYTES_MAX, ConnectionSide::Server, |part| {
                                match part {
                                    StreamPart::Headers(bytes) if !has_head => {
                                        section.extend_from_slice(bytes);
                                        has_head = true;
                                        Ok(())
                                    }
                                    // Trailers are ignored.
                                    StreamPart::Headers(_) => Ok(()),
                                    StreamPart::Data(_) if !has_head => Err(PeerViolation(
                                        LabH3Code::FRAME_UNEXPECTED,
                                        "a DATA frame precedes the head",
                                    )),
                                    StreamPart::Data(bytes) => {
                                        content.push_back(Bytes::copy_from_slice(bytes));
                                        Ok(())
                                    }
                                }
                            })
                            .map(|()| false);
                        // The task that answers the request reads the rest.
                        if done.is_err() || has_head && !begun.frames.is_between() {
                            break;
                        }
                    }
                    Ok(None) => {
                        begun.is_ended = true;
                        break;
                    }
                    Err(ReadError::Blocked) => break,
                    Err(ReadError::Reset(_)) => {
                        done = Ok(true);
                        break;
                    }
                }
            }
            let _ = chunks.finalize();
            done?
        };
        if is_reset {
            self.reject(stream, LabH3Code::REQUEST_CANCELLED);
        } else if has_head {
            self.answer(stream, begun);
        } else if begun.is_ended {
            self.worker.counters().refused();
            self.reject(stream, LabH3Code(0x10d));
        } else {
            self.streams.borrow_mut().insert(stream, H3StreamState::Fresh(Box::new(begun.frames)));
        }
        Ok(())
    }

    pub(super) fn reject(&self, stream: StreamId, code: LabH3Code) {
        let mut quic = self.quic();
        let _ = quic.send_stream(stream).reset(varint(code));
        let _ = quic.recv_stream(stream).stop(varint(code));
    }

    /// Answers a request for a fixed page at once, any other by a task.
    fn answer(self: &Rc<Self>, stream: StreamId, begun: Begun) {
        if begun.is_ended && begun.content.is_empty() && begun.frames.is_between() {
            let place =
                (usize::from(begun.section.last().copied().unwrap_or(0)) + begun.section.len()) % KNOWN;
            let known = self.known.borrow();
            if let Some(known) = &known[place]
                && known.section == begun.section
            {
                let (page, is_head) = (known.page, known.is_head);
                return self.send_page(stream, page, is_head);
            }
            drop(known);
            if let Some((page, is_head)) = head::fixed_page(&begun.section) {
                self.known.borrow_mut()[place] = Some(KnownSection { section: begun.section, page, is_head });
                return self.send_page(stream, page, is_head);
            }
        }
        match head::parse(&begun.section, !begun.is_ended || !begun.content.is_empty()) {
            RequestedFields::Malformed => {
                self.worker.counters().refused();
                self.reject(stream, LabH3Code::MESSAGE_ERROR);
            }
            RequestedFields::Undecodable => {
                let why = "a field section is not valid QPACK";
                self.close(LabH3Code::QPACK_DECOMPRESSION_FAILED, why, Instant::now());
            }
            RequestedFields::Request(request) => {
                self.streams.borrow_mut().insert(stream, H3StreamState::Held(StreamWaiter::default()));
                spawn_local(stream::answer(OriginH3Stream::new(Rc::clone(self), stream, begun), request));
            }
        }
    }

    fn send_page(&self, stream: StreamId, page: usize, is_head: bool) {
        self.worker.counters().fast_page(page);
        let page = self.worker.http3_page(page);
        let pieces = if is_head { vec![page.head] } else { vec![page.front, page.content] };
        self.streams.borrow_mut().insert(stream, H3StreamState::Sending(pieces.into()));
        self.write_on(stream);
    }

    /// Sends the rest of a fixed page on a stream, or wakes its task.
    fn write_on(&self, stream: StreamId) {
        let mut streams = self.streams.borrow_mut();
        match streams.get_mut(&stream) {
            Some(H3StreamState::Held(waits)) => waits.writer.take().into_iter().for_each(Waker::wake),
            Some(H3StreamState::Sending(rest)) => {
                let mut quic = self.quic();
                let mut sending = quic.send_stream(stream);
                // The stream is reported as writable only after a write has found no room.
                while !rest.is_empty() {
                    match sending.write_chunks(rest.make_contiguous()) {
                        Ok(written) => drop(rest.drain(..written.chunks)),
                        Err(quinn_proto::WriteError::Blocked) => return,
                        Err(_) => break,
                    }
                }
                if rest.is_empty() {
                    let _ = sending.finish();
                }
                streams.remove(&stream);
            }
            Some(H3StreamState::Fresh(_)) | None => {}
        }
    }

    /// Registers a task that waits to read from a stream, or to write to it.
    pub(super) fn wait(&self, stream: StreamId, to_read: bool, waker: &Waker) {
        if let Some(H3StreamState::Held(waits)) = self.streams.borrow_mut().get_mut(&stream) {
            let place = if to_read { &mut waits.reader } else { &mut waits.writer };
            *place = Some(waker.clone());
        }
    }

    /// Whether the client has stopped the response, or the connection has ended.
    pub(super) fn is_stopped(&self, stream: StreamId) -> bool {
        match self.streams.borrow().get(&stream) {
            Some(H3StreamState::Held(waits)) => waits.is_stopped,
            _ => true,
        }
    }

    pub(super) fn release(&self, stream: StreamId) {
        self.streams.borrow_mut().remove(&stream);
        self.stir();
    }

    /// Rejects further requests (RFC 9114 §5.2), and ends the connection once the active ones are answered.
    pub(super) fn leave(&self) {
        self.is_leaving.set(true);
        if let Some(ours) = self.ours.get() {
            let mut frame = Vec::new();
            lab_http3::push_goaway(&mut frame, self.next.get());
            let _ = self.quic().send_stream(ours).write(&frame);
        }
        self.stir();
    }

    /// Ends a leaving connection, once all requests are answered and the client has the responses.
    pub(super) fn end_if_left(&self, now: Instant) {
        if self.is_leaving.get() && !self.is_over() && self.streams.borrow().is_empty() {
            let unacknowledged = self.quic().streams().send_streams();
            if unacknowledged <= OWN_STREAMS {
                self.close(LabH3Code::NO_ERROR, "", now);
            }
        }
    }
}

pub(super) fn varint(code: LabH3Code) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or_default()
}
