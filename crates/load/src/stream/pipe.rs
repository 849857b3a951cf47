//! An open stream: bytes in both directions, over an HTTP/1.1 connection or an HTTP/2 stream.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::h2::client::ResponseFuture;
use ::h2::{RecvStream, SendStream};
use ::http::HeaderMap;
use bytes::Bytes;

use super::failure::StreamFailure;
use super::head::{StreamFraming, StreamHead};
use super::session::StreamSession;
use crate::check::Cut;
use crate::chunked::{Chunks, LoadChunked};
use crate::failure::LoadFailure;
use crate::transport::{ReceiveResult, Transport, TransportFault};
use crate::worker::LoadWorker;

/// A stream sends no further messages while more bytes than this wait to be sent.
const WAITING_BYTES_MAX: usize = 1 << 20;

pub(super) struct Pipe {
    side: PipeSide,
    /// Bytes to send; those before `sent_bytes` are sent.
    out: Vec<u8>,
    sent_bytes: usize,
    /// Nothing is sent after `out`.
    finishes: bool,
    /// Head of the response, once it has arrived.
    head: Option<StreamHead>,
    check: Check,
    pub(super) trailers: Option<HeaderMap>,
}

enum PipeSide {
    Http1 {
        transport: Transport,
        body: PipeFraming,
        /// Bytes that arrived with the head.
        early: Vec<u8>,
    },
    Http2 {
        /// `None` after its end.
        send: Option<SendStream<Bytes>>,
        response: ResponseFuture,
        /// The body, after the head.
        receive: Option<RecvStream>,
        session: StreamSession,
    },
}

/// Framing of the bytes received from an HTTP/1.1 connection.
enum PipeFraming {
    /// After an upgrade: no framing; the end of the connection is the only end.
    Upgraded,
    Length(u64),
    Chunked(LoadChunked),
    Close,
    Ended,
}

/// Checks that the head of a response begins the requested stream.
pub(super) type Check = fn(&StreamHead) -> Result<(), StreamFailure>;

/// The expected result of a request: a body, or a connection for both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PipeDemand {
    Body,
    Upgrade,
}

impl Pipe {
    fn new(side: PipeSide, check: Check) -> Self {
        Self { side, out: Vec::new(), sent_bytes: 0, finishes: false, head: None, check, trailers: None }
    }

    /// Sends a request over an HTTP/1.1 connection, and receives the head of its response.
    pub(super) async fn over_http1(
        mut transport: Transport,
        request: &[u8],
        wanted: PipeDemand,
        check: Check,
        worker: &LoadWorker,
    ) -> Result<Self, LoadFailure> {
        let mut written = 0;
        while written < request.len() {
            let more = poll_fn(|context| transport.poll_write(context, &request[written..])).await;
            written += more.map_err(write_failure)?;
        }
        poll_fn(|context| transport.poll_flush(context)).await.map_err(write_failure)?;
        super::transferred(worker, request.len() as u64, 0);
        let mut early = Vec::new();
        let (head, length) = loop {
            if let Some(found) = StreamHead::parse(&early).map_err(LoadFailure::Malformed)? {
                break found;
            }
            let received_before = early.len();
            let received = poll_fn(|context| {
                let mut scratch = worker.scratch.borrow_mut();
                transport.poll_receive(context, &mut scratch.buffer, |bytes| early.extend_from_slice(bytes))
            });
            if received.await.map_err(read_failure)? != ReceiveResult::Content {
                let cut = if early.is_empty() { Cut::Nothing } else { Cut::Head };
                return Err(LoadFailure::Cut(cut));
            }
            super::transferred(worker, 0, (early.len() - received_before) as u64);
        };
        early.drain(..length);
        let body = match (wanted, head.status) {
            (PipeDemand::Upgrade, 101) => PipeFraming::Upgraded,
            // RFC 9112 §6.3: it has no body.
            (_, 204 | 304) => PipeFraming::Ended,
            _ => match head.framing().map_err(LoadFailure::Malformed)? {
                StreamFraming::Length(0) => PipeFraming::Ended,
                StreamFraming::Length(length) => PipeFraming::Length(length),
                StreamFraming::Chunked => PipeFraming::Chunked(LoadChunked::new()),
                StreamFraming::Close => PipeFraming::Close,
            },
        };
        check(&head)?;
        let mut pipe = Self::new(PipeSide::Http1 { transport, body, early }, check);
        pipe.head = Some(head);
        Ok(pipe)
    }

    /// Sends the head of a request over HTTP/2, then `first`, and with `is_all` the end of the request.
    pub(super) async fn over_http2(
        mut session: StreamSession,
        head: ::http::Request<()>,
        first: &[u8],
        is_all: bool,
        check: Check,
    ) -> Result<Self, LoadFailure> {
        session.ready().await?;
        let is_empty = is_all && first.is_empty();
        let (response, send) = session.requests.send_request(head, is_empty)?;
        let send = (!is_empty).then_some(send);
        let mut pipe = Self::new(PipeSide::Http2 { send, response, receive: None, session }, check);
        pipe.out.extend_from_slice(first);
        pipe.finishes = is_all;
        Ok(pipe)
    }

    /// Waits for the head of the response, and sends meanwhile.
    pub(super) async fn wait_for_head(&mut self, worker: &LoadWorker) -> Result<(), LoadFailure> {
        poll_fn(|context| {
            if let Poll::Ready(Err(failure)) = self.poll_flush(worker, context) {
                return Poll::Ready(Err(failure));
            }
            self.poll_head(context)
        })
        .await
    }

    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<(), LoadFailure>> {
        if let PipeSide::Http2 { response, receive, .. } = &mut self.side
            && receive.is_none()
        {
            let response = ready!(Pin::new(response).poll(context))?;
            let fields = response.headers().iter();
            let fields = fields.map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
            let head = StreamHead::new(response.status().as_u16(), fields);
            let checked = (self.check)(&head);
            self.head = Some(head);
            *receive = Some(response.into_body());
            checked?;
        }
        Poll::Ready(Ok(()))
    }

    /// Head of the response, once it has arrived.
    pub(super) fn head(&self) -> Option<&StreamHead> {
        self.head.as_ref()
    }

    /// The HTTP/2 connection of the stream.
    pub(super) fn session(&self) -> Option<&StreamSession> {
        match &self.side {
            PipeSide::Http1 { .. } => None,
            PipeSide::Http2 { session, .. } => Some(session),
        }
    }

    /// Buffer of bytes to send.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Ends the request after the bytes in the buffer.
    pub(super) fn finish(&mut self) {
        self.finishes = true;
    }

    /// Whether so many bytes wait that no more messages should be added.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() - self.sent_bytes > WAITING_BYTES_MAX
    }

    pub(super) fn poll_flush(
        &mut self,
        worker: &LoadWorker,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), LoadFailure>> {
        match &mut self.side {
            PipeSide::Http1 { transport, .. } => {
                while self.sent_bytes < self.out.len() {
                    let written = ready!(transport.poll_write(context, &self.out[self.sent_bytes..]));
                    let written = written.map_err(write_failure)?;
                    self.sent_bytes += written;
                    super::transferred(worker, written as u64, 0);
                }
                self.out.clear();
                self.sent_bytes = 0;
                transport.poll_flush(context).map_err(write_failure)
            }
            PipeSide::Http2 { send, .. } => {
                let Some(stream) = send else { return Poll::Ready(Ok(())) };
                if self.out.is_empty() && !self.finishes {
                    return Poll::Ready(Ok(()));
                }
                let mut rest = Bytes::copy_from_slice(&self.out);
                let polled = poll_send(stream, &mut rest, self.finishes, context);
                self.out.drain(..self.out.len() - rest.len());
                ready!(polled)?;
                if self.finishes {
                    *send = None;
                }
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Receives bytes of the stream, and passes them to `take`. Returns false at its end.
    pub(super) fn poll_receive(
        &mut self,
        worker: &LoadWorker,
        context: &mut Context<'_>,
        mut take: impl FnMut(&[u8]),
    ) -> Poll<Result<bool, LoadFailure>> {
        ready!(self.poll_head(context))?;
        match &mut self.side {
            PipeSide::Http1 { body: PipeFraming::Ended, .. } => Poll::Ready(Ok(false)),
            PipeSide::Http1 { body, early, .. } if !early.is_empty() => {
                let taken = body.take(&std::mem::take(early), &mut take);
                Poll::Ready(taken.map(|()| true))
            }
            PipeSide::Http1 { transport, body, .. } => {
                let (mut taken, mut received_bytes) = (Ok(()), 0);
                let mut scratch = worker.scratch.borrow_mut();
                let received = transport.poll_receive(context, &mut scratch.buffer, |bytes| {
                    received_bytes += bytes.len() as u64;
                    if taken.is_ok() {
                        taken = body.take(bytes, &mut take);
                    }
                });
                let arrival = ready!(received).map_err(read_failure)?;
                super::transferred(worker, 0, received_bytes);
                taken?;
                Poll::Ready(match (arrival, body) {
                    (ReceiveResult::Content, _) => Ok(true),
                    (ReceiveResult::End, PipeFraming::Close) => Ok(false),
                    (ReceiveResult::Torn, PipeFraming::Close) => Err(LoadFailure::Cut(Cut::Torn)),
                    (ReceiveResult::End | ReceiveResult::Torn, _) => Err(LoadFailure::Cut(Cut::Body)),
                })
            }
            PipeSide::Http2 { receive: None, .. } => Poll::Pending,
            PipeSide::Http2 { receive: Some(receive), .. } => match ready!(receive.poll_data(context)) {
                Some(data) => {
                    let data = data?;
                    receive.flow_control().release_capacity(data.len())?;
                    take(&data);
                    Poll::Ready(Ok(true))
                }
                None => {
                    self.trailers = ready!(receive.poll_trailers(context))?;
                    Poll::Ready(Ok(false))
                }
            },
        }
    }
}

impl PipeFraming {
    fn take(&mut self, bytes: &[u8], take: &mut impl FnMut(&[u8])) -> Result<(), LoadFailure> {
        match self {
            Self::Upgraded | Self::Close => take(bytes),
            Self::Length(left) => {
                let now = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                take(&bytes[..now]);
                *left -= now as u64;
                if *left == 0 {
                    *self = Self::Ended;
                }
            }
            Self::Chunked(chunked) => {
                if let Chunks::Ended { .. } = chunked.read_to(bytes, take).map_err(LoadFailure::Malformed)? {
                    *self = Self::Ended;
                }
            }
            Self::Ended => {}
        }
        Ok(())
    }
}

/// Sends bytes on an HTTP/2 stream, as its flow control allows, and then its end.
fn poll_send(
    stream: &mut SendStream<Bytes>,
    rest: &mut Bytes,
    finishes: bool,
    context: &mut Context<'_>,
) -> Poll<Result<(), LoadFailure>> {
    if rest.is_empty() {
        if finishes {
            stream.send_data(Bytes::new(), true)?;
        }
        return Poll::Ready(Ok(()));
    }
    stream.reserve_capacity(rest.len());
    while !rest.is_empty() {
        let capacity = stream.capacity();
        if capacity == 0 {
            match ready!(stream.poll_capacity(context)) {
                Some(capacity) => drop(capacity?),
                // The stream is over; the receiving side gets the reason.
                None => return Poll::Pending,
            }
            continue;
        }
        let piece = rest.split_to(capacity.min(rest.len()));
        stream.send_data(piece, finishes && rest.is_empty())?;
    }
    Poll::Ready(Ok(()))
}

fn write_failure(fault: TransportFault) -> LoadFailure {
    match fault {
        TransportFault::Io(error) => LoadFailure::Write(error),
        TransportFault::Tls(error) => LoadFailure::Tls { error },
    }
}

fn read_failure(fault: TransportFault) -> LoadFailure {
    match fault {
        TransportFault::Io(error) => LoadFailure::Read(error),
        TransportFault::Tls(error) => LoadFailure::Tls { error },
    }
}
