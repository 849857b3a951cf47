//! A stream of HTTP/2 that reads and writes like a connection of HTTP/1.1: a head as text, then the body. So the path of
//! a request is the same for both versions.
//!
//! Its windows are end-to-end backpressure: what was received is given back as the path takes it, and nothing is queued
//! beyond what the peer has room for.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use config::Scheme;
use h2::client::ResponseFuture;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::request;

use crate::frames::{Frames, GATHER_MAX, Gate};
use crate::tcp::Follows;
use crate::translate::{self, Asked, Framed, Untold};
use crate::windows::Taken;

/// The most that is given to a stream at once.
const PIECE_MAX: usize = GATHER_MAX;
/// What a chunk's size line and its end take.
const CHUNK_ROOM: usize = 24;

/// A stream, as one side of an exchange.
pub(crate) struct Stream {
    sides: RefCell<Sides>,
    frames: Frames,
    /// Whether something waits to be sent.
    is_stalled: Cell<bool>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stall(false);
    }
}

struct Sides {
    incoming: Incoming,
    outgoing: Outgoing,
    /// Text that is to be read before anything else: a head, the end of a chunk, trailers.
    text: Vec<u8>,
    framed: Framed,
    /// Of the body, received and not yet read.
    rest: Bytes,
    taken: Taken,
}

/// What is still to come from the peer.
enum Incoming {
    /// The response to our request.
    Response(ResponseFuture, Asked),
    Body(RecvStream),
    /// The request is not yet sent.
    Nothing,
    Ended,
}

/// What may still be sent.
enum Outgoing {
    /// A request, over a connection that has room for it.
    Request(Box<Upward>),
    /// A response.
    Response(SendResponse<Bytes>),
    Body(SendStream<Bytes>),
    Ended(Option<SendStream<Bytes>>),
}

/// Where a request goes.
struct Upward {
    send: h2::client::SendRequest<Bytes>,
    scheme: Scheme,
}

impl Stream {
    /// A request that a client has sent.
    pub(crate) fn from_client(
        parts: &request::Parts,
        body: RecvStream,
        respond: SendResponse<Bytes>,
        frames: Frames,
    ) -> Result<Self, (SendResponse<Bytes>, Untold)> {
        let has_ended = body.is_end_stream();
        match translate::request_text(parts, has_ended) {
            Ok((text, framed)) => {
                let incoming = if has_ended { Incoming::Ended } else { Incoming::Body(body) };
                let outgoing = Outgoing::Response(respond);
                let sides =
                    Sides { incoming, outgoing, text, framed, rest: Bytes::new(), taken: Taken::default() };
                Ok(Self { sides: RefCell::new(sides), frames, is_stalled: Cell::default() })
            }
            Err(untold) => Err((respond, untold)),
        }
    }

    /// A stream for a request that is yet to be written. `send` is ready for it.
    pub(crate) fn to_server(send: h2::client::SendRequest<Bytes>, scheme: Scheme, frames: Frames) -> Self {
        let sides = Sides {
            incoming: Incoming::Nothing,
            outgoing: Outgoing::Request(Box::new(Upward { send, scheme })),
            text: Vec::new(),
            framed: Framed::Raw,
            rest: Bytes::new(),
            taken: Taken::default(),
        };
        Self { sides: RefCell::new(sides), frames, is_stalled: Cell::default() }
    }

    /// The length of the text that waits to be read: at first, that of the head.
    pub(crate) fn text_len(&self) -> usize {
        self.sides.borrow().text.len()
    }

    /// Ready when there is something to read, or the end.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sides = &mut *self.sides.borrow_mut();
        while sides.text.is_empty() && sides.rest.is_empty() && !matches!(sides.incoming, Incoming::Ended) {
            ready!(sides.poll_receive(context))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads into `buffer`; 0 is the end.
    pub(crate) fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let sides = &mut *self.sides.borrow_mut();
        loop {
            if !sides.text.is_empty() {
                let count = sides.text.len().min(buffer.len());
                buffer[..count].copy_from_slice(&sides.text[..count]);
                sides.text.drain(..count);
                if sides.text.is_empty() {
                    sides.text = Vec::new();
                }
                return Poll::Ready(Ok(count));
            }
            if !sides.rest.is_empty() {
                return Poll::Ready(sides.read_body(buffer, &self.frames));
            }
            ready!(sides.poll_receive(context))?;
            if matches!(sides.incoming, Incoming::Ended) && sides.text.is_empty() {
                return Poll::Ready(Ok(0));
            }
        }
    }

    /// Writes the start of `bytes`: a whole head first, then what follows it.
    pub(crate) fn poll_write(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        let sides = &mut *self.sides.borrow_mut();
        match &mut sides.outgoing {
            Outgoing::Body(send) => {
                if bytes.is_empty() {
                    return Poll::Ready(Ok(0));
                }
                let wanted = bytes.len().min(PIECE_MAX);
                let room = ready!(self.poll_room(send, wanted, context))?;
                let count = wanted.min(room);
                self.frames.gate().queue(count);
                let is_last = count == bytes.len() && follows.is_end();
                send.send_data(Bytes::copy_from_slice(&bytes[..count]), is_last).map_err(broken)?;
                if is_last {
                    sides.end();
                }
                Poll::Ready(Ok(count))
            }
            Outgoing::Ended(_) => Poll::Ready(Err(ErrorKind::BrokenPipe.into())),
            Outgoing::Request(_) | Outgoing::Response(_) => {
                let len = translate::head_len(bytes).ok_or(ErrorKind::InvalidInput)?;
                let is_last = len == bytes.len() && follows.is_end();
                Poll::Ready(sides.send_head(&bytes[..len], is_last).map(|()| len))
            }
        }
    }

    /// Ready when something can be written: until then nothing should be read for it.
    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.sides.borrow_mut().outgoing {
            // What went wrong is told by the write.
            Outgoing::Body(send) => self.poll_room(send, PIECE_MAX, context).map(|_| ()),
            _ => Poll::Ready(()),
        }
    }

    /// Whether some stream of the connection, this or another, has something to send and cannot: then little should be
    /// held for any of them.
    pub(crate) fn is_crowded(&self) -> bool {
        self.frames.gate().has_stalled()
    }

    fn poll_room(
        &self,
        send: &mut SendStream<Bytes>,
        wanted: usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let room = poll_room(send, self.frames.gate(), wanted, context);
        self.stall(room.is_pending());
        room
    }

    fn stall(&self, is_stalled: bool) {
        if self.is_stalled.replace(is_stalled) != is_stalled {
            self.frames.gate().stall(is_stalled);
        }
    }

    /// How much is taken at once now.
    pub(crate) fn room(&self) -> usize {
        match &self.sides.borrow().outgoing {
            Outgoing::Body(send) => send.capacity(),
            _ => usize::MAX,
        }
    }

    /// Ends what is sent, with trailers as lines, if it has not ended yet.
    pub(crate) fn end(&self, trailers: &[u8]) -> io::Result<()> {
        let sides = &mut *self.sides.borrow_mut();
        let Outgoing::Body(send) = &mut sides.outgoing else { return Ok(()) };
        if trailers.is_empty() {
            send.send_data(Bytes::new(), true).map_err(broken)?;
        } else {
            let trailers = translate::trailers_of(trailers).map_err(|_| ErrorKind::InvalidData)?;
            send.send_trailers(trailers).map_err(broken)?;
        }
        sides.end();
        Ok(())
    }

    /// Tells the peer that the message is not whole.
    pub(crate) fn reset(&self) {
        self.reset_with(Reason::INTERNAL_ERROR);
    }

    /// Tells the client that nothing was done for its request (RFC 9113 §8.7).
    pub(crate) fn refuse(&self) {
        self.reset_with(Reason::REFUSED_STREAM);
    }

    fn reset_with(&self, reason: Reason) {
        let sides = &mut *self.sides.borrow_mut();
        match &mut sides.outgoing {
            Outgoing::Response(respond) => respond.send_reset(reason),
            Outgoing::Body(send) => send.send_reset(reason),
            Outgoing::Request(_) | Outgoing::Ended(_) => {}
        }
        sides.outgoing = Outgoing::Ended(None);
    }

    /// Ready once the peer has given the stream up.
    pub(crate) fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()> {
        let sides = &mut *self.sides.borrow_mut();
        match &mut sides.outgoing {
            Outgoing::Response(respond) => respond.poll_reset(context).map(|_| ()),
            Outgoing::Body(send) | Outgoing::Ended(Some(send)) => send.poll_reset(context).map(|_| ()),
            Outgoing::Request(_) | Outgoing::Ended(None) => Poll::Pending,
        }
    }
}

impl Sides {
    /// Takes in what comes next: a head, a piece of the body, the end.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.incoming {
            Incoming::Nothing => return Poll::Ready(Err(ErrorKind::NotConnected.into())),
            Incoming::Ended => {}
            Incoming::Response(response, asked) => {
                if let Poll::Ready(Some(interim)) = response.poll_informational(context) {
                    let (parts, ()) = interim.map_err(broken)?.into_parts();
                    self.text = translate::response_text(&parts, false, &Asked::Other).0;
                    return Poll::Ready(Ok(()));
                }
                let (parts, body) =
                    ready!(std::pin::Pin::new(response).poll(context)).map_err(broken)?.into_parts();
                let has_ended = body.is_end_stream();
                (self.text, self.framed) = translate::response_text(&parts, has_ended, asked);
                self.incoming = if has_ended { Incoming::Ended } else { Incoming::Body(body) };
            }
            Incoming::Body(body) => match ready!(body.poll_data(context)) {
                Some(data) => self.rest = data.map_err(broken)?,
                None => {
                    let trailers = ready!(body.poll_trailers(context)).map_err(broken)?;
                    if self.framed == Framed::Chunked {
                        self.text = translate::trailers_text(trailers.as_ref());
                    }
                    self.incoming = Incoming::Ended;
                }
            },
        }
        Poll::Ready(Ok(()))
    }

    /// Hands on what was received of the body, and opens the window by as much.
    fn read_body(&mut self, buffer: &mut [u8], frames: &Frames) -> io::Result<usize> {
        let room = match self.framed {
            Framed::Raw => buffer.len(),
            Framed::Chunked => buffer.len().saturating_sub(CHUNK_ROOM),
        };
        if room == 0 {
            // The path reads bodies into empty buffers.
            return Err(ErrorKind::InvalidInput.into());
        }
        let count = self.rest.len().min(room);
        let mut len = 0;
        let mut put = |bytes: &[u8]| {
            buffer[len..len + bytes.len()].copy_from_slice(bytes);
            len += bytes.len();
        };
        match self.framed {
            Framed::Raw => put(&self.rest[..count]),
            Framed::Chunked => {
                let (text, start) = wire::chunk_prefix(count);
                put(&text[start..]);
                put(&self.rest[..count]);
                put(b"\r\n");
            }
        }
        self.rest.advance(count);
        if let Incoming::Body(body) = &mut self.incoming {
            frames.take(&mut self.taken, count);
            body.flow_control().release_capacity(count).map_err(broken)?;
        }
        Ok(len)
    }

    fn send_head(&mut self, head: &[u8], is_last: bool) -> io::Result<()> {
        let untold = |_: Untold| ErrorKind::InvalidData;
        match &mut self.outgoing {
            Outgoing::Request(upward) => {
                let may_upgrade = upward.send.is_extended_connect_protocol_enabled();
                let (request, asked) =
                    translate::request_of(head, upward.scheme, may_upgrade).map_err(untold)?;
                let is_last = is_last && !matches!(asked, Asked::Upgrade { .. });
                let (response, send) = upward.send.send_request(request, is_last).map_err(broken)?;
                self.incoming = Incoming::Response(response, asked);
                self.outgoing = if is_last { Outgoing::Ended(Some(send)) } else { Outgoing::Body(send) };
            }
            Outgoing::Response(respond) => {
                let response = translate::response_of(head).map_err(untold)?;
                if response.status().is_informational() {
                    return respond.send_informational(response).map_err(broken);
                }
                let send = respond.send_response(response, is_last).map_err(broken)?;
                self.outgoing = if is_last { Outgoing::Ended(Some(send)) } else { Outgoing::Body(send) };
            }
            Outgoing::Body(_) | Outgoing::Ended(_) => {}
        }
        Ok(())
    }

    fn end(&mut self) {
        let outgoing = std::mem::replace(&mut self.outgoing, Outgoing::Ended(None));
        if let Outgoing::Body(send) = outgoing {
            self.outgoing = Outgoing::Ended(Some(send));
        }
    }
}

/// How much the peer and the connection take now, of what is wanted.
fn poll_room(
    send: &mut SendStream<Bytes>,
    gate: &Gate,
    wanted: usize,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    ready!(gate.poll_open(context));
    let mut room = send.capacity();
    if room < wanted {
        send.reserve_capacity(wanted);
        room = send.capacity();
    }
    match room {
        0 => match ready!(send.poll_capacity(context)) {
            Some(room) => Poll::Ready(room.map_err(broken)),
            None => Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
        },
        room => Poll::Ready(Ok(room)),
    }
}

/// What the peer did not take up may be sent elsewhere (RFC 9113 §8.7); everything else broke a message.
#[allow(clippy::needless_pass_by_value, reason = "made for map_err")]
fn broken(error: h2::Error) -> io::Error {
    let is_untouched = error.reason() == Some(Reason::REFUSED_STREAM)
        || (error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR));
    io::Error::from(if is_untouched { ErrorKind::ConnectionRefused } else { ErrorKind::ConnectionReset })
}
