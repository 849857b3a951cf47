//! HTTP/2 connection of a client. Each request is a task, answered by the same endpoints as an HTTP/1 request.
//!
//! The crate `h2` handles frames and header compression. This module converts heads to `Request`.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::h2::server::{self, SendResponse};
use ::h2::{Reason, RecvStream, SendStream};
use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::body::Trailers;
use crate::connection::{OriginConnection, Stop};
use crate::exchange;
use crate::head::{Length, OriginHead, SERVER};
use crate::request::{FIELDS_MAX, OwnedRequest, RequestRefusal};
use crate::target::ParsedTarget;
use crate::worker::OriginWorker;

/// Start of the client connection preface, which looks like an HTTP/1 head (RFC 9113 §3.4).
pub(crate) const PREFACE_HEAD: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// A connection without active requests is closed after this time.
const IDLE_MAX: Duration = Duration::from_secs(900);
/// SETTINGS_MAX_CONCURRENT_STREAMS.
const STREAMS_MAX: u32 = 256;
/// SETTINGS_MAX_HEADER_LIST_SIZE. Larger than a proxy's usual limit, so that tests show the limit of the proxy.
const FIELDS_BYTES_MAX: u32 = 128 * 1024;
/// Receive window of each stream and of the connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// Maximum bytes of a response that wait to be sent.
const SEND_BUFFER_BYTES: usize = 256 * 1024;

/// The kind of GOAWAY that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// The connection closes after all active requests are answered.
    Graceful,
    /// The connection closes at once, with active requests.
    Abrupt,
}

/// State that the requests of a connection share with it.
#[derive(Debug, Default)]
struct Wishes {
    farewell: Cell<Option<Farewell>>,
    wished: Notify,
    running: Cell<usize>,
}

/// Answers requests until the connection ends. The received bytes begin with the client connection preface.
pub(crate) async fn serve(connection: &mut OriginConnection) {
    let (worker, peer) = (Rc::clone(&connection.worker), connection.peer);
    let Ok(local) = connection.stream.tcp().local_addr() else { return };
    let scheme = connection.stream.scheme();
    let mut builder = server::Builder::new();
    builder
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(FIELDS_BYTES_MAX)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .enable_connect_protocol();
    let Ok(Ok(mut requests)) = timeout(IDLE_MAX, builder.handshake(H2Bytes(connection))).await else {
        return;
    };
    let wishes = Rc::new(Wishes::default());
    loop {
        tokio::select! {
            // Waiting for a request drives the whole connection.
            accepted = timeout(IDLE_MAX, requests.accept()) => match accepted {
                Ok(Some(Ok((head, response)))) => {
                    let running = ActiveRequest::new(&wishes);
                    let addresses = [peer, local];
                    let answering = answer(head, response, Rc::clone(&worker), addresses, scheme, running);
                    spawn_local(answering);
                }
                Ok(Some(Err(_)) | None) => return,
                Err(_) if wishes.running.get() == 0 => requests.graceful_shutdown(),
                Err(_) => {}
            },
            () = wishes.wished.notified() => match wishes.farewell.take() {
                Some(Farewell::Graceful) => requests.graceful_shutdown(),
                Some(Farewell::Abrupt) => requests.abrupt_shutdown(Reason::INTERNAL_ERROR),
                None => {}
            },
        }
    }
}

/// Guard that counts an active request until it is dropped.
struct ActiveRequest(Rc<Wishes>);

impl ActiveRequest {
    fn new(wishes: &Rc<Wishes>) -> Self {
        wishes.running.set(wishes.running.get() + 1);
        Self(Rc::clone(wishes))
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
    }
}

async fn answer(
    head: http::Request<RecvStream>,
    response: SendResponse<Bytes>,
    worker: Rc<OriginWorker>,
    addresses: [SocketAddr; 2],
    scheme: &'static str,
    running: ActiveRequest,
) {
    let parsed = parse(&head);
    let body = head.into_body();
    let mut stream = OriginH2Stream {
        body,
        response,
        head: None,
        left: None,
        out: None,
        worker: Rc::clone(&worker),
        running,
    };
    match parsed {
        Ok((request, target)) => {
            exchange::run_stream(
                crate::stream::OriginStream::Http2(stream),
                worker,
                addresses,
                scheme,
                request,
                target,
            )
            .await;
        }
        Err(refusal) => stream.refuse(refusal).await,
    }
}

/// Parses the head of a request (RFC 9113 §8.3.1). The crate `h2` has already rejected some malformed heads.
fn parse(head: &http::Request<RecvStream>) -> Result<(OwnedRequest, ParsedTarget), RequestRefusal> {
    let protocol = head.extensions().get::<::h2::ext::Protocol>().map(::h2::ext::Protocol::as_str);
    let (method, uri) = (head.method().as_str(), head.uri());
    let authority = uri.authority().map(http::uri::Authority::as_str);
    let path = uri.path_and_query().map(http::uri::PathAndQuery::as_str);
    if head.headers().len() > FIELDS_MAX {
        return Err(RequestRefusal::TooManyFields);
    }
    let pseudo = [
        (":method", Some(method)),
        (":scheme", uri.scheme_str()),
        (":authority", authority),
        (":path", path),
        (":protocol", protocol),
    ];
    let pseudo = pseudo.into_iter().filter_map(|(name, value)| Some((name, value?.as_bytes())));
    let fields = head.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let named: Vec<(&str, &[u8])> = pseudo.chain(fields).collect();
    let has_body = !head.body().is_end_stream();
    let text = path.or(authority).unwrap_or_default();
    let request = OwnedRequest::of_stream("HTTP/2", method, text, protocol, &named, has_body)?;
    // The path of an extended CONNECT has the same form as in other requests.
    let mut target = ParsedTarget::parse(if protocol.is_some() { "GET" } else { method }, text)?;
    target.authority = authority.map(str::to_owned).or(target.authority);
    Ok((request, target))
}

/// A single HTTP/2 request and its response.
pub(crate) struct OriginH2Stream {
    body: RecvStream,
    response: SendResponse<Bytes>,
    /// Rendered head that is not sent yet.
    head: Option<Response<()>>,
    /// Remaining bytes of a body with a known length.
    left: Option<u64>,
    out: Option<SendStream<Bytes>>,
    worker: Rc<OriginWorker>,
    running: ActiveRequest,
}

/// A piece of a request body: data, or the end with the trailers.
pub(crate) enum BodyPiece {
    Data(Bytes),
    End(Trailers),
}

impl OriginH2Stream {
    pub(crate) async fn receive(&mut self) -> Result<BodyPiece, Stop> {
        match poll_fn(|context| self.body.poll_data(context)).await {
            Some(data) => {
                let data = data.map_err(gone)?;
                self.body.flow_control().release_capacity(data.len()).map_err(gone)?;
                Ok(BodyPiece::Data(data))
            }
            None => {
                let trailers = poll_fn(|context| self.body.poll_trailers(context)).await.map_err(gone)?;
                let trailers = trailers.iter().flatten();
                Ok(BodyPiece::End(
                    trailers
                        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
                        .collect(),
                ))
            }
        }
    }

    pub(crate) fn interim(&mut self, head: &OriginHead) -> Result<(), Stop> {
        self.response.send_informational(rendered(head, None)).map_err(gone)
    }

    /// Begins the response. The head is sent with the first piece, or alone.
    pub(crate) fn begin(&mut self, head: &OriginHead, date: &[u8]) {
        self.left = match head.length {
            Length::Known(length) => Some(length),
            Length::Chunked | Length::Close | Length::None => None,
        };
        self.head = Some(rendered(head, Some(date)));
    }

    /// Sends the head, if it is not sent yet. `is_all` ends the stream with it.
    pub(crate) fn send_head(&mut self, is_all: bool) -> Result<(), Stop> {
        if let Some(head) = self.head.take() {
            let out = self.response.send_response(head, is_all).map_err(gone)?;
            self.out = (!is_all).then_some(out);
        }
        Ok(())
    }

    /// Sends a piece of the body, as fast as the client's flow control allows.
    pub(crate) async fn send(&mut self, mut bytes: Bytes) -> Result<(), Stop> {
        self.send_head(false)?;
        while let Some(out) = self.out.as_mut().filter(|_| bytes.has_remaining()) {
            out.reserve_capacity(bytes.len());
            let capacity = poll_fn(|context| out.poll_capacity(context)).await.ok_or(Stop::Gone)?;
            let piece = bytes.split_to(capacity.map_err(gone)?.min(bytes.len()));
            self.left = self.left.map(|left| left.saturating_sub(piece.len() as u64));
            let is_last = self.left == Some(0);
            out.send_data(piece, is_last).map_err(gone)?;
            if is_last {
                self.out = None;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self, trailers: &[(&str, &[u8])]) -> Result<(), Stop> {
        if trailers.is_empty() {
            self.end();
            return Ok(());
        }
        self.send_head(false)?;
        let mut fields = HeaderMap::new();
        for (name, value) in trailers {
            append(&mut fields, name, value);
        }
        match self.out.take() {
            Some(mut out) => out.send_trailers(fields).map_err(gone),
            None => Ok(()),
        }
    }

    /// Ends the response after the bytes sent so far, if it has not ended.
    pub(crate) fn end(&mut self) {
        // An error means that the client has gone.
        let _ = self.send_head(true);
        if let Some(mut out) = self.out.take() {
            let _ = out.send_data(Bytes::new(), true);
        }
    }

    /// Resets the stream, in both directions, with this error code.
    pub(crate) fn reset(&mut self, reason: Reason) {
        self.head = None;
        match self.out.take() {
            Some(mut out) => out.send_reset(reason),
            None => self.response.send_reset(reason),
        }
    }

    /// Rejects the request: sends an error response with the reason.
    pub(crate) async fn refuse(&mut self, refusal: RequestRefusal) {
        self.worker.counters().refused();
        let body = format!("{}.\n", refusal.reason());
        let head = OriginHead::new(refusal.status(), Length::Known(body.len() as u64));
        self.begin(&head.field("Content-Type", "text/plain"), &self.worker.date.get());
        // An error means that the client has gone.
        let _ = self.send(Bytes::from(body)).await;
    }

    /// Waits until the client resets the stream, or the connection ends.
    pub(crate) async fn wait_for_reset(&mut self) -> Result<(), Stop> {
        // Ok and Err both end the wait.
        let _ = match &mut self.out {
            Some(out) => poll_fn(|context| out.poll_reset(context)).await,
            None => poll_fn(|context| self.response.poll_reset(context)).await,
        };
        Ok(())
    }

    pub(crate) fn say_farewell(&self, farewell: Farewell) {
        let wishes = &self.running.0;
        wishes.farewell.set(Some(farewell));
        wishes.wished.notify_one();
    }
}

/// Converts a response head for `h2`. 1xx responses have no date.
fn rendered(head: &OriginHead, date: Option<&[u8]>) -> Response<()> {
    let mut response = Response::new(());
    // The status was checked when it was parsed.
    *response.status_mut() = http::StatusCode::from_u16(head.status).unwrap_or(http::StatusCode::OK);
    let fields = response.headers_mut();
    if let Some(date) = date {
        if !head.has("server") {
            append(fields, "server", SERVER.as_bytes());
        }
        if !head.has("date") {
            append(fields, "date", date);
        }
    }
    for (name, value) in head.fields() {
        // RFC 9113 §8.2.2: HTTP/2 has no connection-specific fields.
        if !["connection", "upgrade"].iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
            append(fields, name, value.as_bytes());
        }
    }
    if let Length::Known(length) = head.length {
        fields.insert(http::header::CONTENT_LENGTH, length.into());
    }
    response
}

/// Adds a field. The caller has checked its name and value.
fn append(fields: &mut HeaderMap, name: &str, value: &[u8]) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
        fields.append(name, value);
    }
}

fn gone(_: ::h2::Error) -> Stop {
    Stop::Gone
}

/// Byte stream for the crate `h2`: first the bytes already received, then the connection.
struct H2Bytes<'c>(&'c mut OriginConnection);

impl AsyncRead for H2Bytes<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let connection = &mut *self.get_mut().0;
        if let Some(buffer) = connection.input() {
            let known = &buffer.filled()[..buffer.filled().len().min(room.remaining())];
            room.put_slice(known);
            let length = known.len();
            buffer.consume(length);
            return Poll::Ready(Ok(()));
        }
        connection.drop_input();
        Pin::new(&mut connection.stream).poll_read(context, room)
    }
}

impl AsyncWrite for H2Bytes<'_> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0.stream).poll_shutdown(context)
    }
}
