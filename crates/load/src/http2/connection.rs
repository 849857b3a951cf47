//! State of an HTTP/2 connection and its streams (RFC 9113): requests become bytes, and bytes responses.
//!
//! A sender has a place, and one stream at a time in it. Bodies of responses are counted, not kept.

use std::time::Instant;

use ::h3::prefixed::push_integer;
use bytes::{Buf, Bytes};

use super::encode::{self, Block, Common, Table};
use super::frame::{self, Code, HEAD_BYTES, Head, NUMBER_MAX, PAYLOAD_BYTES};
use super::head::{FIELDS_BYTES_MAX, Fault, Heads};
use super::incoming::{Incoming, Received};
use crate::watch::Watch;

/// Flow-control window of each response: allows 160 MB/s at a round-trip time of 50 ms.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// Flow-control window of a connection, for all its responses together.
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// RFC 9113 §6.9.2: windows until something else is said.
const WINDOW_BYTES: i64 = 65_535;
/// Bytes to send beyond which no more of bodies is added.
const OUT_BYTES: usize = 128 * 1024;

/// A request.
pub(crate) struct Asked<'a> {
    pub(crate) common: &'a Common,
    pub(crate) block: &'a Block,
    pub(crate) body: Bytes,
    /// Whether the method is HEAD.
    pub(crate) is_head: bool,
    /// Whether the fields of the response are kept.
    pub(crate) keeps_fields: bool,
    /// Observes the response.
    pub(crate) watch: Option<Box<Watch>>,
}

/// Why a stream ended without a complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Reset(Code),
    GoAway(Code),
    /// HTTP/3: the stream was reset.
    ResetOfHttp3(::h3::Code),
    Malformed(&'static str),
    /// With its connection; whether the response had begun.
    Lost {
        is_begun: bool,
    },
}

/// The server violated the protocol: the connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Broken(Code, &'static str);

/// A connection, for a number of senders.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Bytes to send.
    pub(crate) out: Vec<u8>,
    /// Places whose streams have ended since they were last looked at.
    pub(crate) ended: Vec<usize>,
    heads: Heads,
    /// An incomplete frame.
    partial: Vec<u8>,
    /// A DATA frame that is not read to its end.
    data: Option<Data>,
    /// Header block that CONTINUATION frames continue.
    block: Vec<u8>,
    continued: Option<(u32, bool)>,
    /// Stream of each place; 0 for none.
    streams: Vec<u32>,
    places: Vec<Place>,
    /// Place that was found last: responses often come in the order of their requests.
    found: usize,
    next_stream: u32,
    table: Table,
    /// A smaller table has to be announced.
    resizes: bool,
    /// Number of streams that the server takes; 0 before it has said so.
    most: usize,
    /// It takes no more requests.
    is_over: bool,
    /// Bytes that may be sent on the connection, and at first on each stream.
    window: i64,
    stream_window: i64,
    /// Received bytes that the server was not told of.
    received_bytes: u32,
    /// Number of places with an unsent body.
    uploads: usize,
    next_upload: usize,
}

/// The stream of a place.
#[derive(Debug, Default)]
struct Place {
    incoming: Incoming,
    /// Received bytes that the server was not told of.
    received_bytes: u32,
    upload: Bytes,
    window: i64,
    result: Option<Result<Received, Ended>>,
}

/// Rest of a DATA frame.
#[derive(Debug, Clone, Copy)]
struct Data {
    stream: u32,
    place: usize,
    left_bytes: usize,
    is_last: bool,
}

impl Connection {
    /// A connection for this many places. Its preface is to be sent.
    pub(crate) fn new(places: usize) -> Self {
        let mut out = frame::PREFACE.to_vec();
        let mut settings = Vec::new();
        for (name, value) in [
            (frame::SETTINGS_ENABLE_PUSH, 0),
            (frame::SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES),
            (frame::SETTINGS_MAX_HEADER_LIST_SIZE, FIELDS_BYTES_MAX as u32),
        ] {
            settings.extend_from_slice(&name.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        frame::push(&mut out, frame::SETTINGS, 0, 0, &settings);
        let more_bytes = CONNECTION_WINDOW_BYTES - WINDOW_BYTES as u32;
        frame::push(&mut out, frame::WINDOW_UPDATE, 0, 0, &more_bytes.to_be_bytes());
        Self {
            out,
            ended: Vec::new(),
            heads: Heads::default(),
            partial: Vec::new(),
            data: None,
            block: Vec::new(),
            continued: None,
            streams: vec![0; places],
            places: (0..places).map(|_| Place::default()).collect(),
            found: 0,
            next_stream: 1,
            table: Table::Empty,
            resizes: false,
            most: 0,
            is_over: false,
            window: WINDOW_BYTES,
            stream_window: WINDOW_BYTES,
            received_bytes: 0,
            uploads: 0,
            next_upload: 0,
        }
    }

    /// Number of concurrent streams that the server takes; 0 before its SETTINGS.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Whether it takes no more requests.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Sends the request of a place.
    #[inline]
    pub(crate) fn ask(&mut self, place: usize, asked: Asked<'_>) {
        debug_assert!(self.streams[place] == 0 && !self.is_over, "a sender has one stream at a time");
        let stream = self.next_stream;
        self.next_stream += 2;
        // RFC 9113 §5.1.1: then a new connection is needed.
        self.is_over |= self.next_stream > NUMBER_MAX;
        let start = self.out.len();
        self.out.extend_from_slice(&[0; HEAD_BYTES]);
        if std::mem::take(&mut self.resizes) {
            push_integer(&mut self.out, 0, 5, 0x20);
        }
        asked.common.write(asked.block, &mut self.table, &mut self.out);
        let bytes = self.out.len() - start - HEAD_BYTES;
        let end = if asked.body.is_empty() { frame::END_STREAM } else { 0 };
        if bytes <= PAYLOAD_BYTES {
            let head = Head { bytes, kind: frame::HEADERS, flags: frame::END_HEADERS | end, stream };
            self.out[start..start + HEAD_BYTES].copy_from_slice(&head.write());
        } else {
            self.continue_head(start, stream, end);
        }
        self.streams[place] = stream;
        let at = &mut self.places[place];
        at.incoming.begin(asked.is_head, asked.keeps_fields, asked.watch);
        (at.received_bytes, at.result) = (0, None);
        if end == 0 {
            (at.upload, at.window) = (asked.body, self.stream_window);
            self.uploads += 1;
            self.upload();
        }
    }

    /// Frames a block that is too long for one frame.
    #[cold]
    fn continue_head(&mut self, start: usize, stream: u32, end: u8) {
        let block = self.out.split_off(start).split_off(HEAD_BYTES);
        let mut parts = block.chunks(PAYLOAD_BYTES).peekable();
        let (mut kind, mut flags) = (frame::HEADERS, end);
        while let Some(part) = parts.next() {
            flags |= if parts.peek().is_none() { frame::END_HEADERS } else { 0 };
            frame::push(&mut self.out, kind, flags, stream, part);
            (kind, flags) = (frame::CONTINUATION, 0);
        }
    }

    /// Adds bodies of requests to the bytes to send, as far as the server allows.
    pub(crate) fn upload(&mut self) {
        let mut blocked = 0;
        while self.uploads > 0 && blocked < self.places.len() && self.out.len() < OUT_BYTES && self.window > 0
        {
            let number = self.next_upload % self.places.len();
            self.next_upload = number + 1;
            let place = &mut self.places[number];
            let bytes =
                place.upload.len().min(self.window.min(place.window).max(0) as usize).min(PAYLOAD_BYTES);
            if bytes == 0 {
                blocked += 1;
                continue;
            }
            blocked = 0;
            let piece = place.upload.split_to(bytes);
            let flags = if place.upload.is_empty() { frame::END_STREAM } else { 0 };
            frame::push(&mut self.out, frame::DATA, flags, self.streams[number], &piece);
            self.window -= bytes as i64;
            place.window -= bytes as i64;
            self.uploads -= usize::from(place.upload.is_empty());
        }
    }

    /// Gives up the stream of a place.
    pub(crate) fn cancel(&mut self, place: usize) {
        if self.streams[place] != 0 {
            self.reset(place, Code::CANCEL);
            self.close(place);
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
        self.is_over = true;
        for place in 0..self.places.len() {
            if self.streams[place] != 0 {
                self.fail(place, Ended::Lost { is_begun: self.places[place].incoming.has_head() });
            }
        }
    }

    /// Reads what was received. False if the connection cannot go on: its streams have ended, and a GOAWAY is to be sent.
    pub(crate) fn receive(&mut self, bytes: &[u8], now: Instant) -> bool {
        let Err(Broken(code, what)) = self.read(bytes, now) else { return true };
        self.is_over = true;
        for place in 0..self.places.len() {
            if self.streams[place] != 0 {
                self.fail(place, Ended::Malformed(what));
            }
        }
        self.go_away(code);
        false
    }

    /// Says that the connection ends.
    pub(crate) fn go_away(&mut self, code: Code) {
        // RFC 9113 §6.8: no stream of the server's was processed.
        let payload = [[0; 4], code.0.to_be_bytes()].concat();
        frame::push(&mut self.out, frame::GOAWAY, 0, 0, &payload);
    }

    fn read(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), Broken> {
        while !bytes.is_empty() {
            if let Some(data) = &mut self.data {
                let (piece, rest) = bytes.split_at(bytes.len().min(data.left_bytes));
                bytes = rest;
                data.left_bytes -= piece.len();
                let data = *data;
                if data.left_bytes == 0 {
                    self.data = None;
                }
                self.body(data, piece, now);
            } else if !self.partial.is_empty() {
                bytes = self.read_partial(bytes, now)?;
            } else if let Some(head) = bytes.first_chunk() {
                let head = checked(Head::read(head))?;
                if self.begins_body(head)? {
                    self.begin_body(head, now)?;
                    bytes = &bytes[HEAD_BYTES..];
                } else if let Some(payload) = bytes.get(HEAD_BYTES..HEAD_BYTES + head.bytes) {
                    self.frame(head, payload, now)?;
                    bytes = &bytes[HEAD_BYTES + head.bytes..];
                } else {
                    self.partial.extend_from_slice(bytes);
                    break;
                }
            } else {
                self.partial.extend_from_slice(bytes);
                break;
            }
        }
        Ok(())
    }

    /// Completes a frame of which some bytes were received before. Returns the bytes behind it.
    fn read_partial<'b>(&mut self, bytes: &'b [u8], now: Instant) -> Result<&'b [u8], Broken> {
        let head = |partial: &[u8]| partial.first_chunk().map(Head::read);
        let wanted = head(&self.partial).map_or(HEAD_BYTES, |head| HEAD_BYTES + head.bytes);
        let (more, rest) = bytes.split_at(bytes.len().min(wanted - self.partial.len()));
        self.partial.extend_from_slice(more);
        let Some(head) = head(&self.partial) else { return Ok(rest) };
        let head = checked(head)?;
        if self.partial.len() == HEAD_BYTES && self.begins_body(head)? {
            self.partial.clear();
            self.begin_body(head, now)?;
        } else if self.partial.len() == HEAD_BYTES + head.bytes {
            let mut frame = std::mem::take(&mut self.partial);
            self.frame(head, &frame[HEAD_BYTES..], now)?;
            frame.clear();
            self.partial = frame;
        }
        Ok(rest)
    }

    /// Whether the frame is DATA that is read as it comes.
    fn begins_body(&self, head: Head) -> Result<bool, Broken> {
        // RFC 9113 §6.10.
        if self.continued.is_some_and(|(stream, _)| head.kind != frame::CONTINUATION || head.stream != stream)
        {
            return Err(Broken(Code::PROTOCOL_ERROR, "a header block is not continued"));
        }
        Ok(head.kind == frame::DATA && !head.has(frame::PADDED))
    }

    fn frame(&mut self, head: Head, payload: &[u8], now: Instant) -> Result<(), Broken> {
        match head.kind {
            frame::DATA => self.padded_body(head, payload, now),
            frame::HEADERS => self.headers(head, payload, now),
            frame::CONTINUATION => self.continuation(head, payload, now),
            frame::RST_STREAM => {
                let code = number(payload)?;
                self.check_opened(head.stream)?;
                if let Some(place) = self.find(head.stream) {
                    self.fail(place, Ended::Reset(Code(code)));
                }
                Ok(())
            }
            frame::SETTINGS => self.settings(head, payload),
            frame::PUSH_PROMISE => Err(Broken(Code::PROTOCOL_ERROR, "it pushes, which was switched off")),
            frame::PING => {
                if payload.len() != 8 {
                    return Err(FRAME_SIZE);
                }
                if !head.has(frame::ACK) {
                    frame::push(&mut self.out, frame::PING, frame::ACK, 0, payload);
                }
                Ok(())
            }
            frame::GOAWAY => self.goes_away(payload),
            frame::WINDOW_UPDATE => self.window_update(head, payload),
            // RFC 9113 §4.1, §5.5: what is not known is ignored, as is PRIORITY.
            _ => Ok(()),
        }
    }

    /// Place of a stream; `None` if it has ended.
    #[inline]
    fn find(&mut self, stream: u32) -> Option<usize> {
        let next = if self.found + 1 == self.streams.len() { 0 } else { self.found + 1 };
        let place = [next, self.found].into_iter().find(|place| self.streams[*place] == stream);
        let place = place.or_else(|| self.streams.iter().position(|other| *other == stream))?;
        self.found = place;
        Some(place)
    }

    /// RFC 9113 §5.1: nothing may come on a stream that no request opened.
    fn check_opened(&self, stream: u32) -> Result<(), Broken> {
        if stream.is_multiple_of(2) || stream >= self.next_stream {
            return Err(Broken(Code::PROTOCOL_ERROR, "a frame is on a stream that no request has opened"));
        }
        Ok(())
    }

    fn headers(&mut self, head: Head, payload: &[u8], now: Instant) -> Result<(), Broken> {
        self.check_opened(head.stream)?;
        let mut block = unpadded(head, payload)?;
        if head.has(frame::PRIORITY) {
            block = block.get(5..).ok_or(FRAME_SIZE)?;
        }
        let is_last = head.has(frame::END_STREAM);
        if head.has(frame::END_HEADERS) {
            return self.fields(head.stream, is_last, block, now);
        }
        self.block.clear();
        self.block.extend_from_slice(block);
        self.continued = Some((head.stream, is_last));
        Ok(())
    }

    fn continuation(&mut self, head: Head, payload: &[u8], now: Instant) -> Result<(), Broken> {
        let Some((stream, is_last)) = self.continued else {
            return Err(Broken(Code::PROTOCOL_ERROR, "CONTINUATION continues nothing"));
        };
        self.block.extend_from_slice(payload);
        if self.block.len() > FIELDS_BYTES_MAX {
            return Err(Broken(Code::PROTOCOL_ERROR, "a header block is larger than 64 KiB"));
        }
        if head.has(frame::END_HEADERS) {
            self.continued = None;
            let block = std::mem::take(&mut self.block);
            self.fields(stream, is_last, &block, now)?;
            self.block = block;
        }
        Ok(())
    }

    /// Reads a head or trailers.
    fn fields(&mut self, stream: u32, is_last: bool, block: &[u8], now: Instant) -> Result<(), Broken> {
        let Some(place) = self.find(stream) else {
            // Later blocks depend on it all the same.
            return match self.heads.trailers(block) {
                Err(Fault::Undecodable) => Err(UNDECODABLE),
                _ => Ok(()),
            };
        };
        let at = &mut self.places[place];
        let read = if at.incoming.has_head() {
            // RFC 9113 §8.1: trailers end the stream.
            let ends = if is_last { Ok(()) } else { Err(Fault::Malformed("trailers do not end the stream")) };
            self.heads.trailers(block).and(ends)
        } else {
            at.incoming.head(&mut self.heads, is_last, block, now)
        };
        match read {
            Ok(()) if is_last => self.complete(place, now),
            Ok(()) => {}
            Err(Fault::Undecodable) => return Err(UNDECODABLE),
            Err(Fault::Malformed(what)) => self.violate(place, what),
        }
        Ok(())
    }

    fn padded_body(&mut self, head: Head, payload: &[u8], now: Instant) -> Result<(), Broken> {
        let content = unpadded(head, payload)?;
        self.begin_body(head, now)?;
        let Some(data) = self.data.take() else { return Ok(()) };
        self.body(Data { left_bytes: 0, ..data }, content, now);
        Ok(())
    }

    /// Accounts for a DATA frame, whose content follows.
    #[inline]
    fn begin_body(&mut self, head: Head, now: Instant) -> Result<(), Broken> {
        let stream = head.stream;
        self.check_opened(stream)?;
        // RFC 9113 §6.9: padding counts, and so does what comes on a stream that has ended.
        self.received_bytes += head.bytes as u32;
        if self.received_bytes >= CONNECTION_WINDOW_BYTES / 2 {
            let told = std::mem::take(&mut self.received_bytes);
            frame::push(&mut self.out, frame::WINDOW_UPDATE, 0, 0, &told.to_be_bytes());
        }
        let is_last = head.has(frame::END_STREAM);
        let mut data = Data { stream, place: 0, left_bytes: head.bytes, is_last };
        if let Some(place) = self.find(stream) {
            data.place = place;
            let at = &mut self.places[place];
            if !at.incoming.has_head() {
                self.violate(place, "content comes before the head");
            } else if !is_last {
                at.received_bytes += head.bytes as u32;
                if at.received_bytes >= STREAM_WINDOW_BYTES / 2 {
                    let told = std::mem::take(&mut at.received_bytes);
                    frame::push(&mut self.out, frame::WINDOW_UPDATE, 0, stream, &told.to_be_bytes());
                }
            }
        }
        if head.bytes == 0 {
            self.body(data, &[], now);
        } else {
            self.data = Some(data);
        }
        Ok(())
    }

    /// Reads content of a DATA frame.
    #[inline]
    fn body(&mut self, data: Data, piece: &[u8], now: Instant) {
        // It may have been given up, and another be in its place.
        if self.streams[data.place] != data.stream {
            return;
        }
        self.places[data.place].incoming.body(piece);
        if data.is_last && data.left_bytes == 0 {
            self.complete(data.place, now);
        }
    }

    /// A response has come to its end.
    #[inline]
    fn complete(&mut self, place: usize, now: Instant) {
        let at = &mut self.places[place];
        match at.incoming.complete(now) {
            Ok(received) => at.result = Some(Ok(received)),
            Err(what) => return self.violate(place, what),
        }
        // RFC 9113 §8.1: the server needs no more of the request.
        if !at.upload.is_empty() {
            self.reset(place, Code::CANCEL);
        }
        self.close(place);
        self.ended.push(place);
    }

    /// A response is malformed: an error of its stream.
    fn violate(&mut self, place: usize, what: &'static str) {
        self.reset(place, Code::PROTOCOL_ERROR);
        self.fail(place, Ended::Malformed(what));
    }

    fn fail(&mut self, place: usize, ended: Ended) {
        self.places[place].result = Some(Err(ended));
        self.close(place);
        self.ended.push(place);
    }

    fn reset(&mut self, place: usize, code: Code) {
        frame::push(&mut self.out, frame::RST_STREAM, 0, self.streams[place], &code.0.to_be_bytes());
    }

    #[inline]
    fn close(&mut self, place: usize) {
        self.streams[place] = 0;
        let at = &mut self.places[place];
        if !at.upload.is_empty() {
            at.upload = Bytes::new();
            self.uploads -= 1;
        }
    }

    fn settings(&mut self, head: Head, payload: &[u8]) -> Result<(), Broken> {
        if head.stream != 0 {
            return Err(Broken(Code::PROTOCOL_ERROR, "SETTINGS are on a stream"));
        }
        if !payload.len().is_multiple_of(6) || head.has(frame::ACK) && !payload.is_empty() {
            return Err(FRAME_SIZE);
        }
        if head.has(frame::ACK) {
            return Ok(());
        }
        if self.most == 0 {
            self.most = usize::MAX;
        }
        for setting in payload.chunks_exact(6) {
            let (name, value) = setting.split_at(2);
            let value = number(value)?;
            match u16::from_be_bytes([name[0], name[1]]) {
                // RFC 7541 §4.2: what is smaller has to be announced.
                frame::SETTINGS_HEADER_TABLE_SIZE if (value as usize) < encode::TABLE_BYTES => {
                    self.resizes |= self.table != Table::Unused;
                    self.table = Table::Unused;
                }
                frame::SETTINGS_MAX_CONCURRENT_STREAMS => self.most = value as usize,
                frame::SETTINGS_INITIAL_WINDOW_SIZE => self.resize_windows(value)?,
                _ => {}
            }
        }
        frame::push(&mut self.out, frame::SETTINGS, frame::ACK, 0, &[]);
        self.upload();
        Ok(())
    }

    /// RFC 9113 §6.9.2: the windows of all streams change with it.
    fn resize_windows(&mut self, bytes: u32) -> Result<(), Broken> {
        if bytes > NUMBER_MAX {
            return Err(WINDOW);
        }
        let more = i64::from(bytes) - self.stream_window;
        self.stream_window = i64::from(bytes);
        self.places.iter_mut().for_each(|place| place.window += more);
        Ok(())
    }

    fn window_update(&mut self, head: Head, payload: &[u8]) -> Result<(), Broken> {
        let more = i64::from(number(payload)? & NUMBER_MAX);
        if head.stream == 0 {
            self.window += more;
            if more == 0 || self.window > i64::from(NUMBER_MAX) {
                return Err(WINDOW);
            }
        } else {
            self.check_opened(head.stream)?;
            if let Some(place) = self.find(head.stream) {
                self.places[place].window += more;
                if more == 0 || self.places[place].window > i64::from(NUMBER_MAX) {
                    self.violate(place, "its window is updated by 0, or beyond the maximum");
                }
            }
        }
        self.upload();
        Ok(())
    }

    /// RFC 9113 §6.8: streams beyond the last that it names were not processed.
    fn goes_away(&mut self, payload: &[u8]) -> Result<(), Broken> {
        let (last, code) = payload.get(..8).ok_or(FRAME_SIZE)?.split_at(4);
        let (last, code) = (number(last)? & NUMBER_MAX, number(code)?);
        self.is_over = true;
        for place in 0..self.places.len() {
            if self.streams[place] > last {
                self.fail(place, Ended::GoAway(Code(code)));
            }
        }
        Ok(())
    }
}

const FRAME_SIZE: Broken = Broken(Code::FRAME_SIZE_ERROR, "a frame has a length that it may not have");
const UNDECODABLE: Broken = Broken(Code::COMPRESSION_ERROR, "a header block is not valid HPACK");
const WINDOW: Broken = Broken(Code::FLOW_CONTROL_ERROR, "a window is updated by 0, or beyond the maximum");

/// RFC 9113 §4.2: the maximum length.
fn checked(head: Head) -> Result<Head, Broken> {
    if head.bytes > PAYLOAD_BYTES { Err(FRAME_SIZE) } else { Ok(head) }
}

/// RFC 9113 §6.1, §6.2: the payload without its padding.
fn unpadded(head: Head, payload: &[u8]) -> Result<&[u8], Broken> {
    if !head.has(frame::PADDED) {
        return Ok(payload);
    }
    let (padding, content) = payload.split_first().ok_or(FRAME_SIZE)?;
    let bytes = content.len().checked_sub(usize::from(*padding));
    let bytes = bytes.ok_or(Broken(Code::PROTOCOL_ERROR, "the padding is longer than its frame"))?;
    Ok(&content[..bytes])
}

/// A payload that is one number.
fn number(mut payload: &[u8]) -> Result<u32, Broken> {
    if payload.len() != 4 {
        return Err(FRAME_SIZE);
    }
    Ok(payload.get_u32())
}
