//! Client connection: reads request heads, and sends fixed pages. `exchange` answers all other requests.
//!
//! While it waits for a request, a connection holds no buffer. A fixed page is sent without an allocation.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::fs::sendfile;
use rustix::net::{SendFlags, send};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, timeout};

use crate::buffer::Buffer;
use crate::content;
use crate::exchange::{self, AfterResponse};
use crate::head::{Length, OriginHead, reason};
use crate::http2;
use crate::request::{self, FIELDS_MAX, OwnedRequest, RequestFraming, RequestRefusal};
use crate::socket::ClientSocket;
use crate::worker::{FastPage, OriginWorker};

/// A connection is closed after this time without a byte in either direction.
const IDLE_MAX: Duration = Duration::from_secs(900);

/// Time for which a connection is still read after the last response. Closing earlier could reset it (RFC 9112 §9.6).
const LINGER_MAX: Duration = Duration::from_secs(2);

/// Pieces of the pattern of at least this size are sent from its file.
pub(crate) const FROM_FILE_BYTES_MIN: u64 = 64 * 1024;

#[derive(Debug)]
pub(crate) enum Stop {
    /// The client closed the connection, or the network failed.
    Gone,
    /// The client violated the protocol.
    Refused(RequestRefusal),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl From<RequestRefusal> for Stop {
    fn from(refusal: RequestRefusal) -> Self {
        Self::Refused(refusal)
    }
}

pub(crate) struct OriginConnection {
    pub(crate) stream: ClientSocket,
    pub(crate) peer: SocketAddr,
    pub(crate) worker: Rc<OriginWorker>,
    input: Option<Buffer>,
    /// Idle timer. It is set once and checked when it fires, because a timer for each wait would cost more.
    idle: Pin<Box<Sleep>>,
    active_second: u64,
    /// No request was received yet.
    is_fresh: bool,
}

#[derive(Clone, Copy)]
enum PagePart {
    Head,
    All,
}

/// The next step after a request head was read.
enum AfterHead {
    Page(FastPage, PagePart),
    Exchange(OwnedRequest),
    /// The connection continues as HTTP/2 with prior knowledge.
    Http2,
}

impl OriginConnection {
    pub(crate) fn new(worker: Rc<OriginWorker>, stream: ClientSocket, peer: SocketAddr) -> Self {
        let active_second = worker.second.get();
        Self {
            stream,
            peer,
            worker,
            input: None,
            idle: Box::pin(tokio::time::sleep(IDLE_MAX)),
            active_second,
            is_fresh: true,
        }
    }

    /// Answers requests until the connection ends.
    pub(crate) async fn serve(mut self) {
        if self.stream.has_agreed_to_http2() {
            return Box::pin(http2::serve(&mut self)).await;
        }
        loop {
            let ending = match self.next().await {
                Ok(AfterHead::Page(page, part)) => match self.write_page(&page, part).await {
                    Ok(()) => AfterResponse::KeepAlive,
                    Err(_) => AfterResponse::Abort,
                },
                // Boxed, so that an idle connection does not carry the state of every endpoint.
                Ok(AfterHead::Exchange(request)) => Box::pin(exchange::run(&mut self, request)).await,
                Ok(AfterHead::Http2) => return Box::pin(http2::serve(&mut self)).await,
                Err(Stop::Refused(refusal)) => self.refuse(refusal).await,
                Err(Stop::Gone) => AfterResponse::Abort,
            };
            match ending {
                AfterResponse::KeepAlive => {}
                AfterResponse::Close => return self.close().await,
                AfterResponse::Abort => return,
            }
        }
    }

    async fn next(&mut self) -> Result<AfterHead, Stop> {
        loop {
            if let Some(buffer) = &mut self.input
                && let Some(length) = buffer.head_length()?
            {
                return Ok(self.take_head(length)?);
            }
            if self.receive().await? == 0 {
                return Err(Stop::Gone);
            }
        }
    }

    /// Parses and consumes a head of `length` bytes at the start of the input.
    fn take_head(&mut self, length: usize) -> Result<AfterHead, RequestRefusal> {
        let buffer = self.input.as_mut().expect("a head was found in it");
        let head = &buffer.filled()[..length];
        let mut slots = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let parsed = match request::parse(head, &mut slots) {
            // RFC 9113 §3.3: the preface of a client with prior knowledge. HTTP/2 consumes it.
            Err(_) if self.is_fresh && head == http2::PREFACE_HEAD => return Ok(AfterHead::Http2),
            parsed => parsed?,
        };
        self.is_fresh = false;

        let facts = parsed.facts;
        let plain =
            facts.framing == RequestFraming::None && facts.keep_alive && facts.http11 && !facts.selective;
        let page = match parsed.method {
            "GET" | "HEAD" if plain => self.worker.fast_page(parsed.target),
            _ => None,
        };
        let next = match page {
            Some((index, page)) => {
                self.worker.counters().fast_page(index);
                AfterHead::Page(page, if parsed.method == "HEAD" { PagePart::Head } else { PagePart::All })
            }
            None => AfterHead::Exchange(OwnedRequest::new(head, &parsed)),
        };
        buffer.consume(length);
        self.release_input();
        Ok(next)
    }

    /// Buffer with received bytes that are not consumed yet, if there are any.
    pub(crate) fn input(&mut self) -> Option<&mut Buffer> {
        self.input.as_mut().filter(|buffer| !buffer.is_empty())
    }

    /// Receives more bytes. Returns their number; 0 means that the client has closed its side.
    pub(crate) async fn receive(&mut self) -> io::Result<usize> {
        poll_fn(|context| self.poll_receive(context)).await
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let buffer = self.input.get_or_insert_with(|| self.worker.spare.borrow_mut().take());
        let mut room = ReadBuf::new(buffer.room());
        // Unlike `try_read`, this remembers a short read, so that the next wait starts without a useless system call.
        let polled = Pin::new(&mut self.stream).poll_read(context, &mut room);
        let length = room.filled().len();
        buffer.received(length);
        self.release_input();
        match polled {
            Poll::Ready(result) => {
                self.active_second = self.worker.second.get();
                Poll::Ready(result.map(|()| length))
            }
            Poll::Pending => self.poll_idle(context).map(Err),
        }
    }

    fn release_input(&mut self) {
        if let Some(buffer) = self.input.take_if(|buffer| buffer.is_empty()) {
            self.worker.spare.borrow_mut().give_back(buffer);
        }
    }

    pub(crate) fn drop_input(&mut self) {
        if let Some(buffer) = &mut self.input {
            buffer.consume(buffer.filled().len());
        }
        self.release_input();
    }

    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            ready!(self.idle.as_mut().poll(context));
            let quiet = Duration::from_secs(self.worker.second.get() - self.active_second);
            if quiet >= IDLE_MAX {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            self.idle.as_mut().reset(Instant::now() + (IDLE_MAX - quiet));
        }
    }

    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = poll_fn(|context| {
                let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
                self.poll_written(polled, context)
            });
            bytes = &bytes[written.await?..];
        }
        self.flush().await
    }

    async fn flush(&mut self) -> io::Result<()> {
        if let ClientSocket::Tls(stream) = &mut self.stream {
            poll_fn(|context| Pin::new(&mut **stream).poll_flush(context)).await?;
        }
        Ok(())
    }

    /// Sends all of `parts`, with one system call if the socket accepts it.
    pub(crate) async fn write_parts(&mut self, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let unsent = &*parts;
            let written = poll_fn(|context| {
                let polled = Pin::new(&mut self.stream).poll_write_vectored(context, unsent);
                self.poll_written(polled, context)
            });
            let length = written.await?;
            IoSlice::advance_slices(&mut parts, length);
        }
        self.flush().await
    }

    async fn write_page(&mut self, page: &FastPage, part: PagePart) -> io::Result<()> {
        match part {
            PagePart::Head => self.write_all(&page.bytes[..page.head_length]).await,
            PagePart::All if page.from_file_bytes == 0 => self.write_all(&page.bytes).await,
            PagePart::All => self.write_pattern(&page.bytes, 0, page.from_file_bytes).await,
        }
    }

    /// Sends all of `head`, then `length` bytes of the pattern from `offset`. A large body goes out with sendfile(2):
    /// for 166 kB that cost 0.97 of nginx's CPU time for a file; a copy cost 1.13.
    pub(crate) async fn write_pattern(
        &mut self,
        mut head: &[u8],
        offset: u64,
        length: u64,
    ) -> io::Result<()> {
        if let ClientSocket::Tls(_) = self.stream {
            // Encryption has to read the bytes, so sendfile(2) does not help.
            self.write_all(head).await?;
            let mut sent = 0;
            while sent < length {
                let piece = content::pattern(offset + sent, length - sent);
                self.write_all(piece).await?;
                sent += piece.len() as u64;
            }
            return self.flush().await;
        }
        while !head.is_empty() {
            let sent = self.write_by(|stream| Ok(send(stream, head, SendFlags::MORE | SendFlags::NOSIGNAL)?));
            head = &head[sent.await?..];
        }
        let mut sent = 0;
        while sent < length {
            sent += match content::pattern_file(offset + sent, length - sent) {
                Some((file, mut place, most)) => {
                    let count = self.write_by(|stream| Ok(sendfile(stream, file, Some(&mut place), most)?));
                    count.await? as u64
                }
                None => {
                    let piece = content::pattern(offset + sent, length - sent);
                    self.write_all(piece).await?;
                    piece.len() as u64
                }
            };
        }
        Ok(())
    }

    /// Sends with a system call that tokio does not offer.
    async fn write_by(&mut self, mut call: impl FnMut(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        poll_fn(|context| {
            loop {
                let tcp = self.stream.tcp();
                let polled = match tcp.poll_write_ready(context) {
                    Poll::Ready(Ok(())) => match tcp.try_io(Interest::WRITABLE, || call(tcp)) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                        result => Poll::Ready(result),
                    },
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    Poll::Pending => Poll::Pending,
                };
                return self.poll_written(polled, context);
            }
        })
        .await
    }

    fn poll_written(
        &mut self,
        polled: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match polled {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(result) => {
                self.active_second = self.worker.second.get();
                Poll::Ready(result)
            }
            Poll::Pending => self.poll_idle(context).map(Err),
        }
    }

    /// Rejects a request with an error response, and ends the connection: the next request's start is unknown.
    pub(crate) async fn refuse(&mut self, refusal: RequestRefusal) -> AfterResponse {
        self.worker.counters().refused();
        let (status, body) = (refusal.status(), format!("{}.\n", refusal.reason()));
        let head =
            OriginHead::new(status, Length::Known(body.len() as u64)).field("Content-Type", "text/plain");
        let mut out = Vec::new();
        debug_assert!(!reason(status).is_empty(), "a refusal has a name");
        head.render(&self.worker.date.get(), Some("close"), &mut out);
        out.extend_from_slice(body.as_bytes());
        match self.write_all(&out).await {
            Ok(()) => AfterResponse::Close,
            Err(_) => AfterResponse::Abort,
        }
    }

    /// Closes the sending side, then reads the rest of the client's bytes. With unread bytes, an immediate close would
    /// reset the connection, and the client might lose the response (RFC 9112 §9.6).
    async fn close(mut self) {
        if self.finish_sending().await.is_err() {
            return;
        }
        self.drop_input();
        let drain = async {
            while matches!(self.receive().await, Ok(1..)) {
                self.drop_input();
            }
        };
        let _ = timeout(LINGER_MAX, drain).await;
    }

    /// Half-closes the connection: the client sees the end, and can still send.
    async fn finish_sending(&mut self) -> io::Result<()> {
        poll_fn(|context| Pin::new(&mut self.stream).poll_shutdown(context)).await
    }

    pub(crate) fn reset_on_close(&self) -> io::Result<()> {
        SockRef::from(self.stream.tcp()).set_linger(Some(Duration::ZERO))
    }
}

impl Drop for OriginConnection {
    fn drop(&mut self) {
        self.drop_input();
        self.worker.dismiss();
    }
}
