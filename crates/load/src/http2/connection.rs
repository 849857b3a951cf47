//! State of an HTTP/2 connection and its streams (RFC 9113): requests become bytes, and bytes become responses.
//!
//! A sender has a place, and one stream at a time in it. Bodies of responses are counted, not kept.

use std::time::Instant;

use bytes::{Buf, Bytes};
use lab_http3::prefixed::push_integer;

use super::encode::{self, CommonFields, EncoderTable, RequestBlock};
use super::frame::{self, H2Code, HEAD_BYTES, LoadFrameHead, NUMBER_MAX, PAYLOAD_BYTES};
use super::head::{BlockFault, FIELDS_BYTES_MAX, Heads};
use super::incoming::{IncomingResponse, ReceivedResponse};
use crate::watch::Observer;

/// Flow-control window of each response: allows 160 MB/s at a round-trip time of 50 ms.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// Flow-control window of a connection, for all its responses together.
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// RFC 9113 §6.9.2: initial windows.
const WINDOW_BYTES: i64 = 65_535;
/// If this many bytes wait to be sent, no more bytes of bodies are added.
const OUT_BYTES: usize = 128 * 1024;

pub(crate) struct H2LoadRequest<'a> {
    pub(crate) common: &'a CommonFields,
    pub(crate) block: &'a RequestBlock,
    pub(crate) body: Bytes,
    pub(crate) is_head: bool,
    /// Whether the fields of the response are kept.
    pub(crate) keeps_fields: bool,
    pub(crate) observer: Observer,
}

/// The reason why a stream ended without a complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum H2StreamFailure {
    Reset(H2Code),
    GoAway(H2Code),
    /// HTTP/3: the stream was reset.
    ResetOfHttp3(lab_http3::LabH3Code),
    Malformed(&'static str),
    /// The connection ended; `is_begun`: whether the response had begun.
    Lost {
        is_begun: bool,
    },
}

/// The server violated the protocol, so the connection cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ServerViolation(H2Code, &'static str);

#[derive(Debug)]
pub(crate) struct H2LoadConnection {
    pub(crate) out: Vec<u8>,
    /// Places whose streams ended since the last call.
    pub(crate) ended: Vec<usize>,
    heads: Heads,
    partial: Vec<u8>,
    /// A DATA frame that is read in part.
    data: Option<Data>,
    /// Header block that CONTINUATION frames continue.
    block: Vec<u8>,
    continued: Option<(u32, bool)>,
    /// Stream of each place; 0 for none.
    streams: Vec<u32>,
    places: Vec<H2SenderPlace>,
    /// Place that was found last: responses often arrive in the order of their requests.
    found: usize,
    next_stream: u32,
    table: EncoderTable,
    /// A table size update has to be sent, because the server wants a smaller table.
    resizes: bool,
    /// Maximum number of concurrent streams; 0 before the server's SETTINGS.
    most: usize,
    /// The server accepts no further requests.
    is_over: bool,
    /// Send window of the connection, and initial send window of each stream.
    window: i64,
    stream_window: i64,
    /// Received bytes without a WINDOW_UPDATE yet.
    received_bytes: u32,
    /// Number of places with an unsent body.
    uploads: usize,
    next_upload: usize,
}

#[derive(Debug, Default)]
struct H2SenderPlace {
    incoming: IncomingResponse,
    /// Received bytes without a WINDOW_UPDATE yet.
    received_bytes: u32,
    upload: Bytes,
    window: i64,
    result: Option<Result<ReceivedResponse, H2StreamFailure>>,
}

#[derive(Debug, Clone, Copy)]
struct Data {
    stream: u32,
    place: usize,
    left_bytes: usize,
    is_last: bool,
}

impl H2LoadConnection {
    /// Makes a connection for this many places, with its preface to send.
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
            places: (0..places).map(|_| H2SenderPlace::default()).collect(),
            found: 0,
            next_stream: 1,
            table: EncoderTable::Empty,
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

    /// Maximum number of concurrent streams; 0 before the server's SETTINGS.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Whether the server accepts no further requests.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    #[inline]
    pub(crate) fn ask(&mut self, place: usize, asked: H2LoadRequest<'_>) {
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
            let head = LoadFrameHead { bytes, kind: frame::HEADERS, flags: frame::END_HEADERS | end, stream };
            self.out[start..start + HEAD_BYTES].copy_from_slice(&head.write());
        } else {
            self.continue_head(start, stream, end);
        }
        self.streams[place] = stream;
        let at = &mut self.places[place];
        at.incoming.begin(asked.is_head, asked.keeps_fields, asked.observer);
        (at.received_bytes, at.result) = (0, None);
        if end == 0 {
            (at.upload, at.window) = (asked.body, self.stream_window);
            self.uploads += 1;
            self.upload();
        }
    }

    /// Splits a block that is too long for one frame.
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

    /// Adds bodies of requests to the bytes to send, as much as flow control allows.
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

    pub(crate) fn cancel(&mut self, place: usize) {
        if self.streams[place] != 0 {
            self.reset(place, H2Code::CANCEL);
            self.close(place);
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
        self.is_over = true;
        for place in 0..self.places.len() {
            if self.streams[place] != 0 {
                self.fail(place, H2StreamFailure::Lost { is_begun: self.places[place].incoming.has_head() });
            }
        }
    }

    /// Reads received bytes. Returns false if the connection is over: its streams have ended, and a GOAWAY is due.
    pub(crate) fn receive(&mut self, bytes: &[u8], now: Instant) -> bool {
        let Err(ServerViolation(code, what)) = self.read(bytes, now) else { return true };
        self.is_over = true;
        for place in 0..self.places.len() {
            if self.streams[place] != 0 {
                self.fail(place, H2StreamFailure::Malformed(what));
            }
        }
        self.go_away(code);
        false
    }

    pub(crate) fn go_away(&mut self, code: H2Code) {
        // RFC 9113 §6.8: no stream of the server was processed.
        let payload = [[0; 4], code.0.to_be_bytes()].concat();
        frame::push(&mut self.out, frame::GOAWAY, 0, 0, &payload);
    }

    fn read(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), ServerViolation> {
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
                let head = checked(LoadFrameHead::read(head))?;
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

    /// Completes a partial frame. Returns the bytes behind it.
    fn read_partial<'b>(&mut self, bytes: &'b [u8], now: Instant) -> Result<&'b [u8], ServerViolation> {
        let head = |partial: &[u8]| partial.first_chunk().map(LoadFrameHead::read);
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

    /// Whether the frame is DATA, which is read in pieces.
    fn begins_body(&self, head: LoadFrameHead) -> Result<bool, ServerViolation> {
        // RFC 9113 §6.10.
        if self.continued.is_some_and(|(stream, _)| head.kind != frame::CONTINUATION || head.stream != stream)
        {
            return Err(ServerViolation(H2Code::PROTOCOL_ERROR, "a header block is not continued"));
        }
        Ok(head.kind == frame::DATA && !head.has(frame::PADDED))
    }

    fn frame(&mut self, head: LoadFrameHead, payload: &[u8], now: Instant) -> Result<(), ServerViolation> {
        match head.kind {
            frame::DATA => self.padded_body(head, payload, now),
            frame::HEADERS => self.headers(head, payload, now),
            frame::CONTINUATION => self.continuation(head, payload, now),
            frame::RST_STREAM => {
                let code = number(payload)?;
                self.check_opened(head.stream)?;
                if let Some(place) = self.find(head.stream) {
                    self.fail(place, H2StreamFailure::Reset(H2Code(code)));
                }
                Ok(())
            }
            frame::SETTINGS => self.settings(head, payload),
            frame::PUSH_PROMISE => {
                Err(ServerViolation(H2Code::PROTOCOL_ERROR, "it sends a push, which was switched off"))
            }
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
            // RFC 9113 §4.1, §5.5: unknown frames are ignored, as is PRIORITY.
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

    /// RFC 9113 §5.1: no frame may arrive on a stream that no request opened.
    fn check_opened(&self, stream: u32) -> Result<(), ServerViolation> {
        if stream.is_multiple_of(2) || stream >= self.next_stream {
            return Err(ServerViolation(
                H2Code::PROTOCOL_ERROR,
                "a frame is on a stream that no request has opened",
            ));
        }
        Ok(())
    }

    fn headers(&mut self, head: LoadFrameHead, payload: &[u8], now: Instant) -> Result<(), ServerViolation> {
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

    fn continuation(
        &mut self,
        head: LoadFrameHead,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), ServerViolation> {
        let Some((stream, is_last)) = self.continued else {
            return Err(ServerViolation(H2Code::PROTOCOL_ERROR, "CONTINUATION continues nothing"));
        };
        self.block.extend_from_slice(payload);
        if self.block.len() > FIELDS_BYTES_MAX {
            return Err(ServerViolation(H2Code::PROTOCOL_ERROR, "a header block is larger than 64 KiB"));
        }
        if head.has(frame::END_HEADERS) {
            self.continued = None;
            let block = std::mem::take(&mut self.block);
            self.fields(stream, is_last, &block, now)?;
            self.block = block;
        }
        Ok(())
    }

    fn fields(
        &mut self,
        stream: u32,
        is_last: bool,
        block: &[u8],
        now: Instant,
    ) -> Result<(), ServerViolation> {
        let Some(place) = self.find(stream) else {
            // Decoded in any case, because later blocks depend on the table.
            return match self.heads.trailers(block) {
                Err(BlockFault::Undecodable) => Err(UNDECODABLE),
                _ => Ok(()),
            };
        };
        let at = &mut self.places[place];
        let read = if at.incoming.has_head() {
            // RFC 9113 §8.1: trailers end the stream.
            let ends =
                if is_last { Ok(()) } else { Err(BlockFault::Malformed("trailers do not end the stream")) };
            self.heads.trailers(block).and(ends)
        } else {
            at.incoming.head(&mut self.heads, is_last, block, now)
        };
        match read {
            Ok(()) if is_last => self.complete(place, now),
            Ok(()) => {}
            Err(BlockFault::Undecodable) => return Err(UNDECODABLE),
            Err(BlockFault::Malformed(what)) => self.violate(place, what),
        }
        Ok(())
    }

    fn padded_body(
        &mut self,
        head: LoadFrameHead,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), ServerViolation> {
        let content = unpadded(head, payload)?;
        self.begin_body(head, now)?;
        let Some(data) = self.data.take() else { return Ok(()) };
        self.body(Data { left_bytes: 0, ..data }, content, now);
        Ok(())
    }

    /// Accounts for a DATA frame, whose content follows.
    #[inline]
    fn begin_body(&mut self, head: LoadFrameHead, now: Instant) -> Result<(), ServerViolation> {
        let stream = head.stream;
        self.check_opened(stream)?;
        // RFC 9113 §6.9: padding counts, and so do frames on a stream that has ended.
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
                self.violate(place, "a DATA frame precedes the head");
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

    #[inline]
    fn body(&mut self, data: Data, piece: &[u8], now: Instant) {
        // The stream may have been reset, and the place reused.
        if self.streams[data.place] != data.stream {
            return;
        }
        self.places[data.place].incoming.body(piece);
        if data.is_last && data.left_bytes == 0 {
            self.complete(data.place, now);
        }
    }

    #[inline]
    fn complete(&mut self, place: usize, now: Instant) {
        let at = &mut self.places[place];
        match at.incoming.complete(now) {
            Ok(received) => at.result = Some(Ok(received)),
            Err(what) => return self.violate(place, what),
        }
        // RFC 9113 §8.1: the server needs no more of the request.
        if !at.upload.is_empty() {
            self.reset(place, H2Code::CANCEL);
        }
        self.close(place);
        self.ended.push(place);
    }

    /// Resets the stream of a malformed response.
    fn violate(&mut self, place: usize, what: &'static str) {
        self.reset(place, H2Code::PROTOCOL_ERROR);
        self.fail(place, H2StreamFailure::Malformed(what));
    }

    fn fail(&mut self, place: usize, ended: H2StreamFailure) {
        self.places[place].result = Some(Err(ended));
        self.close(place);
        self.ended.push(place);
    }

    fn reset(&mut self, place: usize, code: H2Code) {
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

    fn settings(&mut self, head: LoadFrameHead, payload: &[u8]) -> Result<(), ServerViolation> {
        if head.stream != 0 {
            return Err(ServerViolation(H2Code::PROTOCOL_ERROR, "SETTINGS are on a stream"));
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
                // RFC 7541 §4.2: a smaller size has to be announced.
                frame::SETTINGS_HEADER_TABLE_SIZE if (value as usize) < encode::TABLE_BYTES => {
                    self.resizes |= self.table != EncoderTable::Unused;
                    self.table = EncoderTable::Unused;
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
    fn resize_windows(&mut self, bytes: u32) -> Result<(), ServerViolation> {
        if bytes > NUMBER_MAX {
            return Err(WINDOW);
        }
        let more = i64::from(bytes) - self.stream_window;
        self.stream_window = i64::from(bytes);
        self.places.iter_mut().for_each(|place| place.window += more);
        Ok(())
    }

    fn window_update(&mut self, head: LoadFrameHead, payload: &[u8]) -> Result<(), ServerViolation> {
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
    fn goes_away(&mut self, payload: &[u8]) -> Result<(), ServerViolation> {
        let (last, code) = payload.get(..8).ok_or(FRAME_SIZE)?.split_at(4);
        let (last, code) = (number(last)? & NUMBER_MAX, number(code)?);
        self.is_over = true;
        for place in 0..self.places.len() {
            if self.streams[place] > last {
                self.fail(place, H2StreamFailure::GoAway(H2Code(code)));
            }
        }
        Ok(())
    }
}

const FRAME_SIZE: ServerViolation =
    ServerViolation(H2Code::FRAME_SIZE_ERROR, "a frame has an invalid length");
const UNDECODABLE: ServerViolation =
    ServerViolation(H2Code::COMPRESSION_ERROR, "a header block is not valid HPACK");
const WINDOW: ServerViolation =
    ServerViolation(H2Code::FLOW_CONTROL_ERROR, "a window is updated by 0, or beyond the maximum");

/// RFC 9113 §4.2: the maximum length.
fn checked(head: LoadFrameHead) -> Result<LoadFrameHead, ServerViolation> {
    if head.bytes > PAYLOAD_BYTES { Err(FRAME_SIZE) } else { Ok(head) }
}

/// RFC 9113 §6.1, §6.2: the payload without its padding.
fn unpadded(head: LoadFrameHead, payload: &[u8]) -> Result<&[u8], ServerViolation> {
    if !head.has(frame::PADDED) {
        return Ok(payload);
    }
    let (padding, content) = payload.split_first().ok_or(FRAME_SIZE)?;
    let bytes = content.len().checked_sub(usize::from(*padding));
    let bytes =
        bytes.ok_or(ServerViolation(H2Code::PROTOCOL_ERROR, "the padding is longer than its frame"))?;
    Ok(&content[..bytes])
}

fn number(mut payload: &[u8]) -> Result<u32, ServerViolation> {
    if payload.len() != 4 {
        return Err(FRAME_SIZE);
    }
    Ok(payload.get_u32())
}
