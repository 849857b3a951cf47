//! A request over HTTP/3 that a task answers, and its response.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use lab_http3::{ConnectionSide, Frames, LabH3Code, PeerViolation, StreamPart};
use quinn_proto::{ReadError, StreamId, WriteError};

use super::connection::{Begun, OriginH3, SECTION_BYTES_MAX, varint};
use crate::body::Trailers;
use crate::connection::Stop;
use crate::exchange;
use crate::head::{Length, OriginHead, SERVER};
use crate::http2::{BodyPiece, Farewell};
use crate::request::{OwnedRequest, RequestRefusal};
use crate::stream;
use crate::target::ParsedTarget;

/// Maximum content of a DATA frame.
const FRAME_BYTES: usize = 64 * 1024;

pub(super) async fn answer(
    mut stream: OriginH3Stream,
    request: Box<Result<(OwnedRequest, ParsedTarget), RequestRefusal>>,
) {
    let (worker, addresses) = (Rc::clone(&stream.connection.worker), stream.connection.addresses);
    match *request {
        Ok((request, target)) => {
            let stream = stream::OriginStream::Http3(stream);
            exchange::run_stream(stream, worker, addresses, "https", request, target).await;
        }
        Err(refusal) => stream.refuse(refusal).await,
    }
}

/// A single request and its response.
pub(crate) struct OriginH3Stream {
    connection: Rc<OriginH3>,
    id: StreamId,
    frames: Frames,
    content: VecDeque<Bytes>,
    trailers: Option<Trailers>,
    is_ended: bool,
    /// Rendered head that is not sent yet.
    head: Option<Vec<u8>>,
    /// Remaining bytes of a body with a known length.
    left: Option<u64>,
    /// Whether the response has ended, or was reset.
    is_done: bool,
}

impl OriginH3Stream {
    pub(super) fn new(connection: Rc<OriginH3>, id: StreamId, begun: Begun) -> Self {
        let Begun { frames, content, is_ended, .. } = begun;
        Self {
            connection,
            id,
            frames,
            content,
            trailers: None,
            is_ended,
            head: None,
            left: None,
            is_done: false,
        }
    }

    pub(crate) async fn receive(&mut self) -> Result<BodyPiece, Stop> {
        poll_fn(|context| {
            loop {
                if let Some(piece) = self.content.pop_front() {
                    return Poll::Ready(Ok(BodyPiece::Data(piece)));
                }
                if self.is_ended {
                    return Poll::Ready(Ok(BodyPiece::End(self.trailers.take().unwrap_or_default())));
                }
                if self.connection.is_over() {
                    return Poll::Ready(Err(Stop::Gone));
                }
                match self.read() {
                    Ok(true) => {}
                    Ok(false) => {
                        self.connection.wait(self.id, true, context.waker());
                        return Poll::Pending;
                    }
                    Err(stop) => return Poll::Ready(Err(stop)),
                }
            }
        })
        .await
    }

    /// Reads received bytes. Returns whether there were any.
    fn read(&mut self) -> Result<bool, Stop> {
        let mut has_read = false;
        let mut done = Ok(());
        {
            let mut quic = self.connection.quic();
            let mut receiving = quic.recv_stream(self.id);
            let Ok(mut chunks) = receiving.read(true) else { return Err(Stop::Gone) };
            match chunks.next(FRAME_BYTES) {
                Ok(Some(chunk)) => {
                    has_read = true;
                    let (content, trailers) = (&mut self.content, &mut self.trailers);
                    let take = |part: StreamPart<'_>| match part {
                        _ if trailers.is_some() => {
                            Err(PeerViolation(LabH3Code::FRAME_UNEXPECTED, "data follows the trailers"))
                        }
                        StreamPart::Data(piece) => {
                            content.push_back(Bytes::copy_from_slice(piece));
                            Ok(())
                        }
                        StreamPart::Headers(section) => {
                            let mut fields = Trailers::new();
                            let decoded = lab_http3::decode(section, |name, value| {
                                fields.push((String::from_utf8_lossy(name).into_owned(), value.to_vec()));
                            });
                            *trailers = Some(fields);
                            decoded.map_err(|_| {
                                PeerViolation(
                                    LabH3Code::QPACK_DECOMPRESSION_FAILED,
                                    "a field section is not valid QPACK",
                                )
                            })
                        }
                    };
                    done = self.frames.read(&chunk.bytes, SECTION_BYTES_MAX, ConnectionSide::Server, take);
                }
                Ok(None) => {
                    (self.is_ended, has_read) = (true, true);
                    if !self.frames.is_between() {
                        done = Err(PeerViolation(LabH3Code::FRAME_ERROR, "a stream ends within a frame"));
                    }
                }
                Err(ReadError::Blocked) => {}
                Err(ReadError::Reset(_)) => return Err(Stop::Gone),
            }
            let _ = chunks.finalize();
        }
        if let Err(PeerViolation(code, why)) = done {
            self.connection.close(code, why, std::time::Instant::now());
            return Err(Stop::Gone);
        }
        if has_read {
            // Reading has opened the client's window.
            self.connection.stir();
        }
        Ok(has_read)
    }

    pub(crate) async fn interim(&mut self, head: &OriginHead) -> Result<(), Stop> {
        let mut frame = Vec::new();
        lab_http3::push_headers(&mut frame, &rendered(head, None));
        self.write(vec![frame.into()]).await
    }

    /// Begins the response. The head is sent with the first piece, or alone.
    pub(crate) fn begin(&mut self, head: &OriginHead, date: &[u8]) {
        self.left = match head.length {
            Length::Known(length) => Some(length),
            Length::Chunked | Length::Close | Length::None => None,
        };
        let mut frame = Vec::new();
        lab_http3::push_headers(&mut frame, &rendered(head, Some(date)));
        self.head = Some(frame);
    }

    pub(crate) async fn send_head(&mut self) -> Result<(), Stop> {
        match self.head.take() {
            Some(head) => self.write(vec![head.into()]).await,
            None => Ok(()),
        }
    }

    /// Sends a piece of the body, as fast as the client's flow control allows.
    pub(crate) async fn send(&mut self, mut bytes: Bytes) -> Result<(), Stop> {
        while !bytes.is_empty() && !self.is_done {
            let piece = bytes.split_to(bytes.len().min(FRAME_BYTES));
            let mut front = self.head.take().unwrap_or_default();
            lab_http3::push_data_head(&mut front, piece.len() as u64);
            self.left = self.left.map(|left| left.saturating_sub(piece.len() as u64));
            self.write(vec![front.into(), piece]).await?;
        }
        if self.left == Some(0) {
            self.finish_stream();
        }
        Ok(())
    }

    async fn write(&mut self, mut pieces: Vec<Bytes>) -> Result<(), Stop> {
        if self.is_done {
            return Ok(());
        }
        let mut from = 0;
        poll_fn(|context| {
            if self.connection.is_stopped(self.id) {
                return Poll::Ready(Err(Stop::Gone));
            }
            self.connection.stir();
            let mut quic = self.connection.quic();
            let mut sending = quic.send_stream(self.id);
            // The stream is reported as writable only after a write has found no room.
            while from < pieces.len() {
                match sending.write_chunks(&mut pieces[from..]) {
                    Ok(written) => from += written.chunks,
                    Err(WriteError::Blocked) => {
                        self.connection.wait(self.id, false, context.waker());
                        return Poll::Pending;
                    }
                    Err(_) => return Poll::Ready(Err(Stop::Gone)),
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    pub(crate) async fn finish(&mut self, trailers: &[(&str, &[u8])]) -> Result<(), Stop> {
        self.send_head().await?;
        if !trailers.is_empty() && !self.is_done {
            let mut section = Vec::new();
            lab_http3::push_prefix(&mut section);
            for (name, value) in trailers {
                lab_http3::push_field(&mut section, name.to_ascii_lowercase().as_bytes(), value);
            }
            let mut frame = Vec::new();
            lab_http3::push_headers(&mut frame, &section);
            self.write(vec![frame.into()]).await?;
        }
        self.finish_stream();
        Ok(())
    }

    /// Ends the response after the bytes sent so far, if it has not ended.
    pub(crate) async fn end(&mut self) {
        // An error means that the client has gone.
        let _ = self.send_head().await;
        self.finish_stream();
    }

    fn finish_stream(&mut self) {
        if !std::mem::replace(&mut self.is_done, true) {
            let _ = self.connection.quic().send_stream(self.id).finish();
            self.connection.stir();
        }
    }

    /// Resets the stream, in both directions, with this error code.
    pub(crate) fn reset(&mut self, code: LabH3Code) {
        self.head = None;
        self.is_done = true;
        self.connection.reject(self.id, code);
        self.connection.stir();
    }

    /// Rejects the request: sends an error response with the reason.
    pub(crate) async fn refuse(&mut self, refusal: RequestRefusal) {
        let worker = Rc::clone(&self.connection.worker);
        worker.counters().refused();
        let body = format!("{}.\n", refusal.reason());
        let head = OriginHead::new(refusal.status(), Length::Known(body.len() as u64));
        self.begin(&head.field("Content-Type", "text/plain"), &worker.date.get());
        // An error means that the client has gone.
        let _ = self.send(Bytes::from(body)).await;
    }

    /// Waits until the client stops the stream, or the connection ends.
    pub(crate) async fn wait_for_reset(&mut self) -> Result<(), Stop> {
        poll_fn(|context| {
            if self.connection.is_over() || self.connection.is_stopped(self.id) {
                return Poll::Ready(());
            }
            self.connection.wait(self.id, false, context.waker());
            Poll::Pending
        })
        .await;
        Ok(())
    }

    pub(crate) fn say_farewell(&self, farewell: Farewell) {
        match farewell {
            Farewell::Graceful => self.connection.leave(),
            Farewell::Abrupt => {
                self.connection.close(
                    LabH3Code::INTERNAL_ERROR,
                    "as was asked for",
                    std::time::Instant::now(),
                );
            }
        }
    }
}

impl Drop for OriginH3Stream {
    fn drop(&mut self) {
        if !self.connection.is_over() {
            if !self.is_done {
                self.reset(LabH3Code::INTERNAL_ERROR);
            } else if !self.is_ended {
                // RFC 9114 §4.1: the rest of the request is not needed.
                let _ = self.connection.quic().recv_stream(self.id).stop(varint(LabH3Code::NO_ERROR));
            }
        }
        self.connection.release(self.id);
    }
}

/// Encodes the field section of a response. 1xx responses have no date.
pub(crate) fn rendered(head: &OriginHead, date: Option<&[u8]>) -> Vec<u8> {
    let mut section = Vec::new();
    lab_http3::push_prefix(&mut section);
    let status = format!("{:03}", head.status);
    lab_http3::push_field(&mut section, b":status", status.as_bytes());
    if let Some(date) = date {
        if !head.has("server") {
            lab_http3::push_field(&mut section, b"server", SERVER.as_bytes());
        }
        if !head.has("date") {
            lab_http3::push_field(&mut section, b"date", date);
        }
    }
    for (name, value) in head.fields() {
        // RFC 9114 §4.2: HTTP/3 has no connection-specific fields.
        if !["connection", "upgrade"].iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
            lab_http3::push_field(&mut section, name.to_ascii_lowercase().as_bytes(), value.as_bytes());
        }
    }
    if let Length::Known(length) = head.length {
        lab_http3::push_field(&mut section, b"content-length", length.to_string().as_bytes());
    }
    section
}

/// The frames before a fixed page's content: HEADERS alone, and HEADERS with the head of DATA.
pub(crate) fn page_front(head: &OriginHead, date: &[u8], length: u64) -> (Bytes, Bytes) {
    let mut front = Vec::new();
    lab_http3::push_headers(&mut front, &rendered(head, Some(date)));
    let alone = Bytes::copy_from_slice(&front);
    lab_http3::push_data_head(&mut front, length);
    (BytesMut::from(&front[..]).freeze(), alone)
}
