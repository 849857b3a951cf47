//! Exchange: one request that is not for a fixed page, from the choice of the endpoint to the end of the response.
//!
//! Endpoints choose the content. Framing, HEAD, HTTP/1.0, keep-alive and the options of every page are handled here.

use std::fmt::Write as _;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;

use ::h2::Reason;
use bytes::Bytes;

use crate::body::{RequestBodyState, Trailers};
use crate::connection::{FROM_FILE_BYTES_MIN, OriginConnection, Stop};
use crate::content;
use crate::endpoint::{Endpoint, NotServed};
use crate::head::{Length, OriginHead};
use crate::http2::BodyPiece;
use crate::request::{OwnedRequest, RequestRefusal};
use crate::stream::OriginStream;
use crate::target::{PageOptions, ParsedTarget};
use crate::worker::{OriginWorker, kept};

/// The end of the connection after the response, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterResponse {
    KeepAlive,
    /// The connection is closed gracefully: all sent bytes arrive.
    Close,
    Abort,
}

pub(crate) enum Carrier<'c> {
    Http1(&'c mut OriginConnection),
    Stream(Box<OriginStream>),
}

/// A request that is being answered, with its response.
pub(crate) struct OriginExchange<'c> {
    carrier: Carrier<'c>,
    pub(crate) worker: Rc<OriginWorker>,
    /// Address of the client. `local` is the address that the client connected to.
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) scheme: &'static str,
    pub(crate) request: OwnedRequest,
    pub(crate) target: ParsedTarget,
    options: PageOptions,
    body: RequestBodyState,
    /// The client waits for 100 (Continue), and nothing of its body was received.
    continue_due: bool,
    response: OriginResponse,
    /// Rendered bytes that go out with the next piece.
    out: Vec<u8>,
    ending: AfterResponse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OriginResponse {
    NotBegun,
    /// The head is rendered; `body` says whether a body follows.
    Begun {
        length: Length,
        body: bool,
    },
}

pub(crate) async fn run(connection: &mut OriginConnection, request: OwnedRequest) -> AfterResponse {
    let target = match ParsedTarget::parse(&request.method, &request.target) {
        Ok(target) => target,
        Err(refusal) => return connection.refuse(refusal).await,
    };
    let (worker, peer) = (Rc::clone(&connection.worker), connection.peer);
    let Ok(local) = connection.stream.tcp().local_addr() else { return AfterResponse::Abort };
    let scheme = connection.stream.scheme();
    let carrier = Carrier::Http1(connection);
    let mut exchange = OriginExchange::new(carrier, worker, [peer, local], scheme, request, target);
    let answered = exchange.answer().await;
    let (response, ending) = (exchange.response, exchange.ending);
    match (answered, exchange.carrier) {
        (Ok(()), _) => ending,
        (Err(Stop::Refused(refusal)), Carrier::Http1(connection)) if response == OriginResponse::NotBegun => {
            connection.refuse(refusal).await
        }
        (Err(_), _) => AfterResponse::Abort,
    }
}

pub(crate) async fn run_stream(
    stream: OriginStream,
    worker: Rc<OriginWorker>,
    addresses: [SocketAddr; 2],
    scheme: &'static str,
    request: OwnedRequest,
    target: ParsedTarget,
) {
    let carrier = Carrier::Stream(Box::new(stream));
    let mut exchange = OriginExchange::new(carrier, worker, addresses, scheme, request, target);
    let answered = exchange.answer().await;
    let (response, ending) = (exchange.response, exchange.ending);
    let Carrier::Stream(mut stream) = exchange.carrier else { return };
    match (answered, ending) {
        // A stream that ends without all promised bytes shows that some are missing.
        (Ok(()), AfterResponse::KeepAlive | AfterResponse::Close) => stream.end().await,
        (Err(Stop::Refused(refusal)), _) if response == OriginResponse::NotBegun => {
            stream.refuse(refusal).await;
        }
        (Err(_), _) | (Ok(()), AfterResponse::Abort) => stream.reset(Reason::INTERNAL_ERROR),
    }
}

impl<'c> OriginExchange<'c> {
    fn new(
        carrier: Carrier<'c>,
        worker: Rc<OriginWorker>,
        [peer, local]: [SocketAddr; 2],
        scheme: &'static str,
        request: OwnedRequest,
        target: ParsedTarget,
    ) -> Self {
        Self {
            carrier,
            worker,
            peer,
            local,
            scheme,
            options: PageOptions::default(),
            body: RequestBodyState::new(request.facts.framing),
            continue_due: request.facts.expects_continue,
            response: OriginResponse::NotBegun,
            out: Vec::new(),
            ending: if request.facts.keep_alive { AfterResponse::KeepAlive } else { AfterResponse::Close },
            request,
            target,
        }
    }

    /// `None` for HTTP/1.
    pub(crate) fn stream(&mut self) -> Option<&mut OriginStream> {
        match &mut self.carrier {
            Carrier::Http1(_) => None,
            Carrier::Stream(stream) => Some(stream),
        }
    }

    async fn answer(&mut self) -> Result<(), Stop> {
        let endpoint = Endpoint::find(&self.request, &self.target)
            .and_then(|endpoint| Ok((endpoint, PageOptions::from_query(&self.target.query)?)));
        if !matches!(endpoint, Ok((Endpoint::Stats, _))) {
            self.worker.counters().request(&self.target.path);
        }
        let endpoint = match endpoint {
            Ok((endpoint, options)) => {
                self.options = options;
                endpoint
            }
            Err(not_served) => return self.decline(not_served).await,
        };
        if !endpoint.reads_body() {
            self.discard_body().await?;
        }
        if let Some(delay) = self.options.delay {
            self.worker.hub.work(delay).await;
        }
        endpoint.answer(self).await?;
        // An unread rest of the body would be parsed as the next request.
        if self.ending == AfterResponse::KeepAlive { self.discard_body().await } else { Ok(()) }
    }

    async fn decline(&mut self, not_served: NotServed) -> Result<(), Stop> {
        self.discard_body().await?;
        let (status, allow, text) = match not_served {
            NotServed::NotFound => {
                (404, false, "there is no page at this path; / lists the pages.".to_owned())
            }
            NotServed::Method => (405, true, "this method is not served.".to_owned()),
            NotServed::Wrong(wrong) => (400, false, wrong.message),
        };
        let text = format!("{text}\n");
        let mut head =
            OriginHead::new(status, Length::Known(text.len() as u64)).field("Content-Type", "text/plain");
        if allow {
            head = head.field("Allow", "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS");
        }
        self.respond(head, text.as_bytes()).await
    }

    /// Receives the next piece of the request body and passes it to `take`. Returns `false` at the end of the body.
    pub(crate) async fn body_piece(&mut self, mut take: impl FnMut(&[u8])) -> Result<bool, Stop> {
        while !self.body.is_done() {
            let length = match &mut self.carrier {
                Carrier::Http1(connection) => match connection.input() {
                    Some(buffer) => {
                        self.continue_due = false;
                        let step = self.body.step(buffer.filled())?;
                        let data = &buffer.filled()[step.data];
                        let length = data.len();
                        if length > 0 {
                            take(data);
                        }
                        buffer.consume(step.consumed);
                        Some(length)
                    }
                    None => None,
                },
                Carrier::Stream(_) if self.continue_due => None,
                Carrier::Stream(stream) => match stream.receive().await? {
                    BodyPiece::Data(data) => {
                        take(&data);
                        Some(data.len())
                    }
                    BodyPiece::End(trailers) => {
                        self.body = RequestBodyState::Done(trailers);
                        Some(0)
                    }
                },
            };
            match length {
                Some(0) => {}
                Some(length) => {
                    self.worker.counters().body(length);
                    return Ok(true);
                }
                None if std::mem::take(&mut self.continue_due) => {
                    self.interim(&OriginHead::new(100, Length::None)).await?;
                }
                None => self.receive().await?,
            }
        }
        Ok(false)
    }

    async fn receive(&mut self) -> Result<(), Stop> {
        match &mut self.carrier {
            Carrier::Http1(connection) => match connection.receive().await? {
                0 => Err(Stop::Gone),
                _ => Ok(()),
            },
            Carrier::Stream(_) => Ok(()),
        }
    }

    /// Receives the complete request body. Fails if it is longer than `most` bytes.
    pub(crate) async fn whole_body(&mut self, most: usize) -> Result<Vec<u8>, Stop> {
        let mut whole = Vec::new();
        while self.body_piece(|piece| whole.extend_from_slice(piece)).await? {
            if whole.len() > most {
                return Err(RequestRefusal::BodyTooLarge.into());
            }
        }
        Ok(whole)
    }

    async fn discard_body(&mut self) -> Result<(), Stop> {
        while self.body_piece(|_| {}).await? {}
        Ok(())
    }

    pub(crate) fn trailers(&self) -> &[(String, Vec<u8>)] {
        static NONE: Trailers = Trailers::new();
        if let RequestBodyState::Done(trailers) = &self.body { trailers } else { &NONE }
    }

    pub(crate) async fn interim(&mut self, head: &OriginHead) -> Result<(), Stop> {
        match &mut self.carrier {
            Carrier::Http1(connection) => {
                let mut out = Vec::new();
                head.render(&[], None, &mut out);
                Ok(connection.write_all(&out).await?)
            }
            Carrier::Stream(stream) => stream.interim(head).await,
        }
    }

    /// Begins the response. The head is sent with the first piece, or by `flush`.
    pub(crate) fn begin(&mut self, mut head: OriginHead) {
        assert!(self.response == OriginResponse::NotBegun, "a request has one response");
        let has_no_length = matches!(head.status, 204 | 304);
        head.status = self.options.status.unwrap_or(head.status);
        if let Some(cache) = self.options.cache.take() {
            head = head.replace("Cache-Control", cache);
        }
        // RFC 9110 §8.6, §15.4.5: 204 and 304 have no body, and need no length.
        let bodiless = matches!(head.status, 204 | 304);
        head.length = match head.length {
            _ if bodiless => Length::None,
            // RFC 9112 §6.3: without a framing field any other response would last until the connection closes.
            Length::None if has_no_length => Length::Known(0),
            // RFC 9112 §6.1: HTTP/1.0 has no transfer codings.
            Length::Chunked if !self.request.facts.http11 => Length::Close,
            length => length,
        };
        // If the body is unread and no 100 was sent, the client may or may not send the body.
        if head.length == Length::Close || self.continue_due {
            self.close_afterwards();
        }
        let connection = match self.ending {
            AfterResponse::KeepAlive if !self.request.facts.http11 => Some("keep-alive"),
            AfterResponse::KeepAlive => kept(self.worker.says_keep_alive),
            AfterResponse::Close | AfterResponse::Abort => Some("close"),
        };
        let date = self.worker.date.get();
        match &mut self.carrier {
            Carrier::Http1(_) => head.render(&date, connection, &mut self.out),
            Carrier::Stream(stream) => stream.begin(&head, &date),
        }
        self.response =
            OriginResponse::Begun { length: head.length, body: !bodiless && !self.request.is_head() };
    }

    /// Whether a body is sent; false for HEAD, so that endpoints need not produce it.
    pub(crate) fn sends_body(&self) -> bool {
        matches!(self.response, OriginResponse::Begun { body: true, .. })
    }

    /// Sends a piece of the body, in the framing of the head.
    pub(crate) async fn piece(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let OriginResponse::Begun { length, body: true } = self.response else { return Ok(()) };
        if bytes.is_empty() {
            return Ok(());
        }
        let connection = match &mut self.carrier {
            Carrier::Http1(connection) => connection,
            Carrier::Stream(stream) => return stream.send(Bytes::copy_from_slice(bytes)).await,
        };
        let line_end: &[u8] = match length {
            Length::Chunked => {
                let mut size = String::new();
                let _ = write!(size, "{:x}\r\n", bytes.len());
                self.out.extend_from_slice(size.as_bytes());
                b"\r\n"
            }
            _ => b"",
        };
        let mut parts = [IoSlice::new(&self.out), IoSlice::new(bytes), IoSlice::new(line_end)];
        connection.write_parts(&mut parts).await?;
        self.out.clear();
        Ok(())
    }

    pub(crate) async fn pattern(&mut self, offset: u64, length: u64) -> Result<(), Stop> {
        if let OriginResponse::Begun { length: Length::Known(_) | Length::Close, body: true } = self.response
            && length >= FROM_FILE_BYTES_MIN
            && let Carrier::Http1(connection) = &mut self.carrier
        {
            connection.write_pattern(&self.out, offset, length).await?;
            self.out.clear();
            return Ok(());
        }
        let mut sent = 0;
        while sent < length && self.sends_body() {
            let piece = content::pattern(offset + sent, length - sent);
            match &mut self.carrier {
                Carrier::Http1(_) => self.piece(piece).await?,
                Carrier::Stream(stream) => stream.send(Bytes::from_static(piece)).await?,
            }
            sent += piece.len() as u64;
        }
        Ok(())
    }

    pub(crate) async fn flush(&mut self) -> Result<(), Stop> {
        match &mut self.carrier {
            Carrier::Http1(connection) => connection.write_all(&self.out).await?,
            Carrier::Stream(stream) => stream.send_head().await?,
        }
        self.out.clear();
        Ok(())
    }

    /// Ends the response, with trailers if it is chunked.
    pub(crate) async fn finish(&mut self, trailers: &[(&str, &[u8])]) -> Result<(), Stop> {
        if let Carrier::Stream(stream) = &mut self.carrier {
            return stream.finish(trailers).await;
        }
        if let OriginResponse::Begun { length: Length::Chunked, body: true } = self.response {
            self.out.extend_from_slice(b"0\r\n");
            for (name, value) in trailers {
                for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                    self.out.extend_from_slice(part);
                }
            }
            self.out.extend_from_slice(b"\r\n");
        }
        self.flush().await
    }

    pub(crate) async fn respond(&mut self, head: OriginHead, body: &[u8]) -> Result<(), Stop> {
        self.begin(head);
        self.piece(body).await?;
        self.finish(&[]).await
    }

    pub(crate) async fn respond_text(&mut self, text: &str) -> Result<(), Stop> {
        let head = OriginHead::new(200, Length::Known(text.len() as u64));
        self.respond(head.field("Content-Type", "text/plain; charset=utf-8"), text.as_bytes()).await
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        match &mut self.carrier {
            Carrier::Http1(connection) => Ok(connection.write_all(bytes).await?),
            Carrier::Stream(stream) => stream.send(Bytes::copy_from_slice(bytes)).await,
        }
    }

    /// Upgrades the connection, or the HTTP/2 stream, to this protocol.
    pub(crate) async fn switch(&mut self, protocol: &str, accept: Option<String>) -> Result<(), Stop> {
        let with_accept = |head: OriginHead| match accept {
            Some(accept) => head.field("Sec-WebSocket-Accept", accept),
            None => head,
        };
        self.close_afterwards();
        if let Carrier::Http1(_) = self.carrier {
            let head = OriginHead::new(101, Length::None).field("Connection", "Upgrade");
            return self.interim(&with_accept(head.field("Upgrade", protocol.to_owned()))).await;
        }
        // RFC 8441 §5: any 2xx status, without Sec-WebSocket-Accept.
        self.begin(OriginHead::new(200, Length::None));
        self.flush().await
    }

    /// Whether the endpoint's own status is sent, without a `status` option. It may be a status without a body.
    pub(crate) fn has_its_own_status(&self) -> bool {
        self.options.status.is_none()
    }

    /// Receives the next bytes of an upgraded connection into `piece`, replacing its content. Returns `false` when the
    /// client has closed its side.
    pub(crate) async fn tunnel_piece(&mut self, piece: &mut Vec<u8>) -> Result<bool, Stop> {
        piece.clear();
        let Carrier::Http1(connection) = &mut self.carrier else {
            return self.body_piece(|bytes| piece.extend_from_slice(bytes)).await;
        };
        if connection.input().is_none() && connection.receive().await? == 0 {
            return Ok(false);
        }
        if let Some(buffer) = connection.input() {
            piece.extend_from_slice(buffer.filled());
            buffer.consume(piece.len());
        }
        Ok(true)
    }

    /// Closes the connection after this response. If called before `begin`, the head announces it.
    pub(crate) fn close_afterwards(&mut self) {
        self.ending = AfterResponse::Close;
    }

    /// Resets the connection, even if parts of the response have not arrived. With HTTP/2, resets only the stream.
    pub(crate) async fn reset(&mut self) -> Result<(), Stop> {
        self.ending = AfterResponse::Abort;
        match &mut self.carrier {
            Carrier::Http1(connection) => Ok(connection.reset_on_close()?),
            // A reset discards unsent bytes, so the connection's task runs first.
            Carrier::Stream(_) => {
                tokio::task::yield_now().await;
                Ok(())
            }
        }
    }

    /// Waits until the client closes the connection or resets the stream. Discards everything that it sends before.
    pub(crate) async fn wait_for_close(&mut self) -> Result<(), Stop> {
        self.ending = AfterResponse::Abort;
        let connection = match &mut self.carrier {
            Carrier::Http1(connection) => connection,
            Carrier::Stream(stream) => return stream.wait_for_reset().await,
        };
        loop {
            connection.drop_input();
            if connection.receive().await? == 0 {
                return Ok(());
            }
        }
    }
}
