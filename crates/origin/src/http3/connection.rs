//! A QUIC connection of a client, and the streams of HTTP/3 on it.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;
use h3::{Broken, Code, Control, Frames, Part, Side};
use quinn_proto::{Dir, Event, ReadError, StreamEvent, StreamId, VarInt};
use tokio::task::spawn_local;

use super::endpoint::Shared;
use super::head::{self, Asked};
use super::stream::{self, Stream};
use crate::worker::Worker;

/// Maximum size of a request's field section.
pub(super) const SECTION_BYTES_MAX: usize = 128 * 1024;
/// Our own streams.
const OWN_STREAMS: usize = 3;
/// Number of field sections that are remembered.
const KNOWN: usize = 8;

/// A connection, shared by the task that drives it and its requests.
pub(crate) struct Connection {
    pub(super) worker: Rc<Worker>,
    endpoint: Rc<Shared>,
    at: usize,
    /// Addresses of the client and of this end.
    pub(super) addresses: [SocketAddr; 2],
    quic: RefCell<quinn_proto::Connection>,
    streams: RefCell<HashMap<StreamId, State>>,
    control: RefCell<Control>,
    known: RefCell<[Option<Known>; KNOWN]>,
    /// Our control stream.
    ours: Cell<Option<StreamId>>,
    /// Requests from this number on have not come.
    next: Cell<u64>,
    is_leaving: Cell<bool>,
    is_over: Cell<bool>,
    pub(super) is_stirred: Cell<bool>,
    /// When it is to be driven, as the driver has noted.
    pub(super) filed: Cell<Option<Instant>>,
}

/// A request's stream.
enum State {
    /// Its head has not come.
    Fresh(Box<Frames>),
    /// A task answers it.
    Held(Waits),
    /// The rest of a fixed page is sent.
    Sending(VecDeque<Bytes>),
}

/// Who waits for a stream.
#[derive(Default)]
struct Waits {
    reader: Option<Waker>,
    writer: Option<Waker>,
    is_stopped: bool,
}

/// A field section of a request for a fixed page.
struct Known {
    section: Vec<u8>,
    page: usize,
    is_head: bool,
}

/// What has come of a request so far.
pub(super) struct Begun {
    pub(super) frames: Frames,
    pub(super) section: Vec<u8>,
    pub(super) content: VecDeque<Bytes>,
    pub(super) is_ended: bool,
}

impl Connection {
    pub(super) fn new(
        worker: Rc<Worker>,
        endpoint: Rc<Shared>,
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
            control: RefCell::new(Control::new(Side::Server)),
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

    /// Has the connection driven.
    pub(super) fn stir(&self) {
        if !self.is_stirred.replace(true) {
            self.endpoint.stir(self.at);
        }
    }

    /// Does what follows from what was received.
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
            if let Err(Broken(code, why)) = done {
                self.close(code, why, now);
            }
        }
    }

    /// Ends the connection.
    pub(super) fn close(&self, code: Code, why: &'static str, now: Instant) {
        self.quic().close(now, varint(code), Bytes::from_static(why.as_bytes()));
        self.end();
        self.stir();
    }

    /// The connection is over: its requests hear of it.
    pub(super) fn end(&self) {
        self.is_over.set(true);
        for (_, state) in self.streams.borrow_mut().drain() {
            if let State::Held(waits) = state {
                waits.reader.into_iter().chain(waits.writer).for_each(Waker::wake);
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// The handshake is done: our own streams begin.
    fn start(&self) {
        let mut quic = self.quic();
        for (place, bytes) in h3::opening(Side::Server, SECTION_BYTES_MAX).iter().enumerate() {
            let Some(stream) = quic.streams().open(Dir::Uni) else { continue };
            let _ = quic.send_stream(stream).write(bytes);
            if place == 0 {
                self.ours.set(Some(stream));
            }
        }
    }

    fn stream_event(self: &Rc<Self>, event: StreamEvent) -> Result<(), Broken> {
        match event {
            StreamEvent::Opened { dir } => loop {
                let stream = self.quic().streams().accept(dir);
                let Some(stream) = stream else { return Ok(()) };
                match dir {
                    Dir::Uni => self.hear(stream)?,
                    Dir::Bi => {
                        self.next.set(self.next.get().max(u64::from(stream) + 4));
                        if self.is_leaving.get() {
                            self.reject(stream, Code::REQUEST_REJECTED);
                            continue;
                        }
                        self.streams.borrow_mut().insert(stream, State::Fresh(Box::default()));
                        self.read_head(stream)?;
                    }
                }
            },
            StreamEvent::Readable { id } if id.dir() == Dir::Uni => self.hear(id),
            StreamEvent::Readable { id } => {
                if let Some(State::Held(waits)) = self.streams.borrow_mut().get_mut(&id) {
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
                Err(Broken(Code::CLOSED_CRITICAL_STREAM, "one of our own streams is stopped"))
            }
            StreamEvent::Stopped { id, .. } => {
                let _ = self.quic().send_stream(id).reset(varint(Code::REQUEST_CANCELLED));
                let mut streams = self.streams.borrow_mut();
                if let Some(State::Held(waits)) = streams.get_mut(&id) {
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

    /// Reads one of the client's own streams.
    fn hear(&self, stream: StreamId) -> Result<(), Broken> {
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
                    break Err(Broken(
                        Code::CLOSED_CRITICAL_STREAM,
                        "a stream that has to stay open is reset",
                    ));
                }
                Err(ReadError::Blocked | ReadError::Reset(_)) => break Ok(()),
            }
        };
        let _ = chunks.finalize();
        heard
    }

    /// Reads what has come of a request whose head has not.
    fn read_head(self: &Rc<Self>, stream: StreamId) -> Result<(), Broken> {
        let Some(State::Fresh(frames)) = self.streams.borrow_mut().remove(&stream) else { return Ok(()) };
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
                            .read(&chunk.bytes, SECTION_BYTES_MAX, Side::Server, |part| match part {
                                Part::Headers(bytes) if !has_head => {
                                    section.extend_from_slice(bytes);
                                    has_head = true;
                                    Ok(())
                                }
                                // Trailers mean nothing here.
                                Part::Headers(_) => Ok(()),
                                Part::Data(_) if !has_head => {
                                    Err(Broken(Code::FRAME_UNEXPECTED, "content comes before the head"))
                                }
                                Part::Data(bytes) => {
                                    content.push_back(Bytes::copy_from_slice(bytes));
                                    Ok(())
                                }
                            })
                            .map(|()| false);
                        // The rest is for whoever answers the request.
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
            self.reject(stream, Code::REQUEST_CANCELLED);
        } else if has_head {
            self.answer(stream, begun);
        } else if begun.is_ended {
            self.worker.counters().refused();
            self.reject(stream, Code(0x10d));
        } else {
            self.streams.borrow_mut().insert(stream, State::Fresh(Box::new(begun.frames)));
        }
        Ok(())
    }

    /// Ends a stream without an answer.
    pub(super) fn reject(&self, stream: StreamId, code: Code) {
        let mut quic = self.quic();
        let _ = quic.send_stream(stream).reset(varint(code));
        let _ = quic.recv_stream(stream).stop(varint(code));
    }

    /// Answers a request: one for a fixed page at once, any other by a task.
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
                self.known.borrow_mut()[place] = Some(Known { section: begun.section, page, is_head });
                return self.send_page(stream, page, is_head);
            }
        }
        match head::parse(&begun.section, !begun.is_ended || !begun.content.is_empty()) {
            Asked::Malformed => {
                self.worker.counters().refused();
                self.reject(stream, Code::MESSAGE_ERROR);
            }
            Asked::Undecodable => {
                let why = "a field section is not valid QPACK";
                self.close(Code::QPACK_DECOMPRESSION_FAILED, why, Instant::now());
            }
            Asked::Request(request) => {
                self.streams.borrow_mut().insert(stream, State::Held(Waits::default()));
                spawn_local(stream::answer(Stream::new(Rc::clone(self), stream, begun), request));
            }
        }
    }

    fn send_page(&self, stream: StreamId, page: usize, is_head: bool) {
        self.worker.counters().fast_page(page);
        let page = self.worker.http3_page(page);
        let pieces = if is_head { vec![page.head] } else { vec![page.front, page.content] };
        self.streams.borrow_mut().insert(stream, State::Sending(pieces.into()));
        self.write_on(stream);
    }

    /// Sends what there is to send on a stream, or wakes who does.
    fn write_on(&self, stream: StreamId) {
        let mut streams = self.streams.borrow_mut();
        match streams.get_mut(&stream) {
            Some(State::Held(waits)) => waits.writer.take().into_iter().for_each(Waker::wake),
            Some(State::Sending(rest)) => {
                let mut quic = self.quic();
                let mut sending = quic.send_stream(stream);
                // Only a write that finds no room has the stream told of when there is some.
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
            Some(State::Fresh(_)) | None => {}
        }
    }

    /// Registers who waits to read from a stream that is answered by a task, or to write to it.
    pub(super) fn wait(&self, stream: StreamId, to_read: bool, waker: &Waker) {
        if let Some(State::Held(waits)) = self.streams.borrow_mut().get_mut(&stream) {
            let place = if to_read { &mut waits.reader } else { &mut waits.writer };
            *place = Some(waker.clone());
        }
    }

    /// Whether the client wants no more of a response, or the connection is over.
    pub(super) fn is_stopped(&self, stream: StreamId) -> bool {
        match self.streams.borrow().get(&stream) {
            Some(State::Held(waits)) => waits.is_stopped,
            _ => true,
        }
    }

    /// A task has answered its request.
    pub(super) fn release(&self, stream: StreamId) {
        self.streams.borrow_mut().remove(&stream);
        self.stir();
    }

    /// Takes no more requests (RFC 9114 §5.2), and ends once those under way are answered.
    pub(super) fn leave(&self) {
        self.is_leaving.set(true);
        if let Some(ours) = self.ours.get() {
            let mut frame = Vec::new();
            h3::push_goaway(&mut frame, self.next.get());
            let _ = self.quic().send_stream(ours).write(&frame);
        }
        self.stir();
    }

    /// Ends a connection that takes no more requests, once all of them are answered and the client has the answers.
    pub(super) fn end_if_left(&self, now: Instant) {
        if self.is_leaving.get() && !self.is_over() && self.streams.borrow().is_empty() {
            let unacknowledged = self.quic().streams().send_streams();
            if unacknowledged <= OWN_STREAMS {
                self.close(Code::NO_ERROR, "", now);
            }
        }
    }
}

pub(super) fn varint(code: Code) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or_default()
}
