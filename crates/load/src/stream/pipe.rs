//! An open stream: bytes in both directions, over an HTTP/1.1 connection or an HTTP/2 stream.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::h2::client::ResponseFuture;
use ::h2::{RecvStream, SendStream};
use ::http::HeaderMap;
use bytes::Bytes;

use super::failure::StreamFailure;
use super::head::{Framing, Head};
use super::session::Session;
use crate::check::Cut;
use crate::chunked::{Chunked, Chunks};
use crate::failure::Failure;
use crate::transport::{Arrival, Fault, Transport};
use crate::worker::Worker;

/// Bytes that wait to be sent from which a stream sends no further messages.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// An open stream.
pub(super) struct Pipe {
    side: Side,
    /// Bytes to send; those before `sent_bytes` are sent.
    out: Vec<u8>,
    sent_bytes: usize,
    /// No more is sent after `out`.
    finishes: bool,
    /// Head of the response, once it is there.
    head: Option<Head>,
    /// What the head must be.
    check: Check,
    /// Fields after the body.
    pub(super) trailers: Option<HeaderMap>,
}

enum Side {
    Http1 {
        transport: Transport,
        body: Body,
        /// Bytes that came with the head.
        early: Vec<u8>,
    },
    Http2 {
        /// `None` after its end.
        send: Option<SendStream<Bytes>>,
        response: ResponseFuture,
        /// The body, behind the head.
        receive: Option<RecvStream>,
        session: Session,
    },
}

/// Framing of what an HTTP/1.1 connection receives.
enum Body {
    /// After an upgrade: no framing, and no end but that of the connection.
    Upgraded,
    Length(u64),
    Chunked(Chunked),
    Close,
    Ended,
}

/// Whether the head of a response begins what was asked for.
pub(super) type Check = fn(&Head) -> Result<(), StreamFailure>;

/// What a request begins: a body, or a connection for both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Body,
    Upgrade,
}

impl Pipe {
    fn new(side: Side, check: Check) -> Self {
        Self { side, out: Vec::new(), sent_bytes: 0, finishes: false, head: None, check, trailers: None }
    }

    /// Sends a request over an HTTP/1.1 connection, and receives the head of its response.
    pub(super) async fn over_http1(
        mut transport: Transport,
        request: &[u8],
        wanted: Wanted,
        check: Check,
        worker: &Worker,
    ) -> Result<Self, Failure> {
        let mut written = 0;
        while written < request.len() {
            let more = poll_fn(|context| transport.poll_write(context, &request[written..])).await;
            written += more.map_err(write_failure)?;
        }
        poll_fn(|context| transport.poll_flush(context)).await.map_err(write_failure)?;
        super::transferred(worker, request.len() as u64, 0);
        let mut early = Vec::new();
        let (head, length) = loop {
            if let Some(found) = Head::parse(&early).map_err(Failure::Malformed)? {
                break found;
            }
            let received_before = early.len();
            let received = poll_fn(|context| {
                let mut scratch = worker.scratch.borrow_mut();
                transport.poll_receive(context, &mut scratch.buffer, |bytes| early.extend_from_slice(bytes))
            });
            if received.await.map_err(read_failure)? != Arrival::Content {
                let cut = if early.is_empty() { Cut::Nothing } else { Cut::Head };
                return Err(Failure::Cut(cut));
            }
            super::transferred(worker, 0, (early.len() - received_before) as u64);
        };
        early.drain(..length);
        let body = match (wanted, head.status) {
            (Wanted::Upgrade, 101) => Body::Upgraded,
            // RFC 9112 §6.3: it has no body.
            (_, 204 | 304) => Body::Ended,
            _ => match head.framing().map_err(Failure::Malformed)? {
                Framing::Length(0) => Body::Ended,
                Framing::Length(length) => Body::Length(length),
                Framing::Chunked => Body::Chunked(Chunked::new()),
                Framing::Close => Body::Close,
            },
        };
        check(&head)?;
        let mut pipe = Self::new(Side::Http1 { transport, body, early }, check);
        pipe.head = Some(head);
        Ok(pipe)
    }

    /// Sends the head of a request over an HTTP/2 connection, and begins with `first`. `is_all` ends the request with it.
    pub(super) async fn over_http2(
        mut session: Session,
        head: ::http::Request<()>,
        first: &[u8],
        is_all: bool,
        check: Check,
    ) -> Result<Self, Failure> {
        session.ready().await?;
        let is_empty = is_all && first.is_empty();
        let (response, send) = session.requests.send_request(head, is_empty)?;
        let send = (!is_empty).then_some(send);
        let mut pipe = Self::new(Side::Http2 { send, response, receive: None, session }, check);
        pipe.out.extend_from_slice(first);
        pipe.finishes = is_all;
        Ok(pipe)
    }

    /// Waits for the head of the response, and sends meanwhile.
    pub(super) async fn wait_for_head(&mut self, worker: &Worker) -> Result<(), Failure> {
        poll_fn(|context| {
            if let Poll::Ready(Err(failure)) = self.poll_flush(worker, context) {
                return Poll::Ready(Err(failure));
            }
            self.poll_head(context)
        })
        .await
    }

    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if let Side::Http2 { response, receive, .. } = &mut self.side
            && receive.is_none()
        {
            let response = ready!(Pin::new(response).poll(context))?;
            let fields = response.headers().iter();
            let fields = fields.map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
            let head = Head::new(response.status().as_u16(), fields);
            let checked = (self.check)(&head);
            self.head = Some(head);
            *receive = Some(response.into_body());
            checked?;
        }
        Poll::Ready(Ok(()))
    }

    /// Head of the response, once it is there.
    pub(super) fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// The HTTP/2 connection of the stream.
    pub(super) fn session(&self) -> Option<&Session> {
        match &self.side {
            Side::Http1 { .. } => None,
            Side::Http2 { session, .. } => Some(session),
        }
    }

    /// Buffer of bytes to send.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Ends what is sent.
    pub(super) fn finish(&mut self) {
        self.finishes = true;
    }

    /// Whether so much waits to be sent that messages wait as well.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() - self.sent_bytes > WAITING_BYTES_MAX
    }

    /// Sends what waits.
    pub(super) fn poll_flush(
        &mut self,
        worker: &Worker,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        match &mut self.side {
            Side::Http1 { transport, .. } => {
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
            Side::Http2 { send, .. } => {
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

    /// Receives bytes of the stream, and passes them to `take`. False at its end.
    pub(super) fn poll_receive(
        &mut self,
        worker: &Worker,
        context: &mut Context<'_>,
        mut take: impl FnMut(&[u8]),
    ) -> Poll<Result<bool, Failure>> {
        ready!(self.poll_head(context))?;
        match &mut self.side {
            Side::Http1 { body: Body::Ended, .. } => Poll::Ready(Ok(false)),
            Side::Http1 { body, early, .. } if !early.is_empty() => {
                let taken = body.take(&std::mem::take(early), &mut take);
                Poll::Ready(taken.map(|()| true))
            }
            Side::Http1 { transport, body, .. } => {
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
                    (Arrival::Content, _) => Ok(true),
                    (Arrival::End, Body::Close) => Ok(false),
                    (Arrival::Torn, Body::Close) => Err(Failure::Cut(Cut::Torn)),
                    (Arrival::End | Arrival::Torn, _) => Err(Failure::Cut(Cut::Body)),
                })
            }
            Side::Http2 { receive: None, .. } => Poll::Pending,
            Side::Http2 { receive: Some(receive), .. } => match ready!(receive.poll_data(context)) {
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

impl Body {
    fn take(&mut self, bytes: &[u8], take: &mut impl FnMut(&[u8])) -> Result<(), Failure> {
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
                if let Chunks::Ended { .. } = chunked.read_to(bytes, take).map_err(Failure::Malformed)? {
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
) -> Poll<Result<(), Failure>> {
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
                // The stream is over: what is received says why.
                None => return Poll::Pending,
            }
            continue;
        }
        let piece = rest.split_to(capacity.min(rest.len()));
        stream.send_data(piece, finishes && rest.is_empty())?;
    }
    Poll::Ready(Ok(()))
}

fn write_failure(fault: Fault) -> Failure {
    match fault {
        Fault::Io(error) => Failure::Write(error),
        Fault::Tls(error) => Failure::Tls { error },
    }
}

fn read_failure(fault: Fault) -> Failure {
    match fault {
        Fault::Io(error) => Failure::Read(error),
        Fault::Tls(error) => Failure::Tls { error },
    }
}
