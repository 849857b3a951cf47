//! HTTP/1.1 client for health checks, keys, certificate authorities, telemetry collectors, etcd and Kubernetes.
//!
//! Heads, interim responses and bodies have limits. The caller sets the time limit, and names the server in messages.

#![forbid(unsafe_code)]

/// Connects to a server by name, with TLS if required.
mod dial;

use std::io;
use std::pin::Pin;
use std::task::Poll;

use http1::{BodyFraming, ChunkLimits, ChunkedDecoder, HeadLimits, Parsed, ResponseHead};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

pub use dial::{DialedStream, connect, server, tls};

/// The maximum size of a response's head, and of its trailers, in bytes.
const HEAD_MAX: usize = 16 * 1024;
const LIMITS: HeadLimits = HeadLimits { bytes: HEAD_MAX, fields: 256, target: HEAD_MAX };
/// The maximum number of interim responses before the final one.
const INTERIM_MAX: usize = 8;
/// The number of bytes per read.
const PIECE: usize = 16 * 1024;

#[derive(Debug, Default)]
pub struct ClientResponseHead {
    pub status: u16,
    /// Names are in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// Formats a request. Content-Length is added for methods other than GET and HEAD.
///
/// # Errors
/// If a value has a control character, which could start another line.
pub fn request(method: &str, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Result<Vec<u8>, String> {
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    for (name, value) in fields {
        if value.contains(|letter: char| letter.is_ascii_control()) {
            return Err(format!("the value of {name} has a control character"));
        }
        text += &format!("{name}: {value}\r\n");
    }
    if !matches!(method, "GET" | "HEAD") {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    Ok([text.as_bytes(), b"\r\n", body].concat())
}

/// A connection for successive exchanges.
pub struct ClientStream<S> {
    stream: S,
    reason: fn(&io::Error) -> String,
    received: Vec<u8>,
    body: BodyReader,
    /// Whether the server keeps the connection open after this response.
    is_kept: bool,
}

/// The rest of a body.
enum BodyReader {
    Left(u64),
    UntilClose,
    Chunked(ChunkedDecoder),
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientStream<S> {
    /// `reason` describes errors of the stream.
    pub fn new(stream: S, reason: fn(&io::Error) -> String) -> Self {
        Self { stream, reason, received: Vec::new(), body: BodyReader::Left(0), is_kept: false }
    }

    /// Sends a request, and receives the head of its response.
    ///
    /// # Errors
    /// The reason, for messages.
    pub async fn ask(&mut self, request: &[u8]) -> Result<ClientResponseHead, String> {
        self.stream.write_all(request).await.map_err(|error| (self.reason)(&error))?;
        self.stream.flush().await.map_err(|error| (self.reason)(&error))?;
        let mut head = ResponseHead::default();
        for _ in 0..=INTERIM_MAX {
            self.receive_head(&mut head).await?;
            if head.start.status >= 200 {
                return self.begin_body(&head, request.starts_with(b"HEAD "));
            }
            self.received.drain(..head.len);
            head.clear();
        }
        Err("its answer does not begin".to_owned())
    }

    async fn receive_head(&mut self, head: &mut ResponseHead) -> Result<(), String> {
        loop {
            match head.parse(&self.received, &LIMITS) {
                Ok(Parsed::Complete) => return Ok(()),
                Ok(Parsed::Partial) => {}
                Err(_) => return Err("its answer is no HTTP".to_owned()),
            }
            if self.receive().await? == 0 {
                return Err("it closed the connection".to_owned());
            }
        }
    }

    fn begin_body(&mut self, head: &ResponseHead, is_head: bool) -> Result<ClientResponseHead, String> {
        let framing = http1::response_framing(head, &self.received, is_head)
            .map_err(|_| "its answer has no clear end")?;
        self.body = match framing {
            BodyFraming::None => BodyReader::Left(0),
            BodyFraming::Length(length) => BodyReader::Left(length),
            BodyFraming::UntilClose => BodyReader::UntilClose,
            BodyFraming::Chunked => BodyReader::Chunked(ChunkedDecoder::default()),
        };
        let text = |span: http1::ByteSpan| {
            String::from_utf8_lossy(span.for_bytes(&self.received)).to_ascii_lowercase()
        };
        let value = |field: &http1::FieldLine| field.value.for_bytes(&self.received).to_vec();
        let headers: Vec<_> = head.fields.iter().map(|field| (text(field.name), value(field))).collect();
        self.is_kept = head.start.version == http1::HttpVersion::Http11
            && !headers.iter().any(|(name, _)| name == "connection");
        self.received.drain(..head.len);
        Ok(ClientResponseHead { status: head.start.status, headers })
    }

    /// Receives the next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// If the body is incomplete: the reason, for messages.
    pub async fn piece(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            match &mut self.body {
                BodyReader::Left(0) => return Ok(None),
                BodyReader::Left(left) if !self.received.is_empty() => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(self.received.len());
                    *left -= count as u64;
                    return Ok(Some(self.received.drain(..count).collect()));
                }
                BodyReader::UntilClose if !self.received.is_empty() => {
                    return Ok(Some(std::mem::take(&mut self.received)));
                }
                BodyReader::Chunked(chunked) => {
                    let decoded = chunked.decode(&mut self.received, &ChunkLimits::default());
                    let decoded = decoded.map_err(|_| "its answer is no HTTP")?;
                    let piece = self.received[..decoded.data].to_vec();
                    self.received.drain(..decoded.consumed);
                    if !piece.is_empty() {
                        return Ok(Some(piece));
                    }
                    if decoded.done {
                        return Ok(None);
                    }
                }
                BodyReader::Left(_) | BodyReader::UntilClose => {}
            }
            if self.receive().await? == 0 {
                return match self.body {
                    BodyReader::UntilClose => {
                        self.body = BodyReader::Left(0);
                        Ok(None)
                    }
                    _ => Err("its answer is cut".to_owned()),
                };
            }
        }
    }

    /// Receives up to `bytes_max` bytes of the body. The connection is kept only if the body is shorter.
    ///
    /// # Errors
    /// If the body is incomplete: the reason, for messages.
    pub async fn body(&mut self, bytes_max: usize) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        while body.len() < bytes_max {
            let Some(piece) = self.piece().await? else { return Ok(body) };
            body.extend_from_slice(&piece);
        }
        body.truncate(bytes_max);
        self.is_kept = false;
        Ok(body)
    }

    /// The trailer lines after a chunked body.
    pub fn trailers(&self) -> &[u8] {
        match &self.body {
            BodyReader::Chunked(chunked) => chunked.trailers(),
            _ => &[],
        }
    }

    /// Whether another request can be sent: the response is complete, and the server has not closed the connection.
    pub async fn is_open(&mut self) -> bool {
        if !self.is_kept || !self.received.is_empty() {
            return false;
        }
        let mut byte = [0];
        std::future::poll_fn(|context| {
            let stream = Pin::new(&mut self.stream);
            Poll::Ready(stream.poll_read(context, &mut ReadBuf::new(&mut byte)).is_pending())
        })
        .await
    }

    /// Appends what arrives. A call that is dropped changes nothing, so a watch can be waited for beside other events.
    async fn receive(&mut self) -> Result<usize, String> {
        self.received.reserve(PIECE);
        self.stream.read_buf(&mut self.received).await.map_err(|error| (self.reason)(&error))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    fn request_line(method: &str) -> Vec<u8> {
        request(method, "/", &[("Host", "a")], b"").expect("it can be written")
    }

    /// A connection to a server that has sent these bytes and sends no more.
    async fn connection(sent: &[u8]) -> (ClientStream<DuplexStream>, DuplexStream) {
        let (client, mut server) = tokio::io::duplex(1 << 20);
        server.write_all(sent).await.expect("there is room");
        server.shutdown().await.expect("it is open");
        (ClientStream::new(client, ToString::to_string), server)
    }

    #[test]
    fn a_body_ends_by_its_framing() {
        for (sent, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd", Ok("abc")),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nabcd", Ok("abcd")),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
                Ok("abc"),
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n", Ok("")),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", Err("its answer is cut")),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na", Err("its answer is cut")),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx", Err("its answer is no HTTP")),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                Err("its answer has no clear end"),
            ),
            ("HTTP/1.1 200", Err("it closed the connection")),
            ("SSH-2.0\r\n\r\n", Err("its answer is no HTTP")),
        ] {
            let got = block_on(async {
                let (mut connection, _server) = connection(sent.as_bytes()).await;
                connection.ask(&request_line("GET")).await?;
                connection.body(100).await
            });
            let expected = expected.map(|body| body.as_bytes().to_vec()).map_err(str::to_owned);
            assert_eq!(got, expected, "{sent:?}");
        }
    }

    #[test]
    fn responses_have_limits() {
        let long = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(HEAD_MAX));
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(INTERIM_MAX + 1);
        for (sent, expected) in [(long, "its answer is no HTTP"), (interim, "its answer does not begin")] {
            let failure = block_on(async {
                let (mut connection, _server) = connection(sent.as_bytes()).await;
                connection.ask(&request_line("GET")).await
            });
            assert_eq!(failure.err().as_deref(), Some(expected));
        }
        let large = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".iter().chain(&[b'x'; 1000]);
        let sent: Vec<u8> = large.copied().collect();
        let (body, is_open) = block_on(async {
            let (mut connection, _server) = connection(&sent).await;
            connection.ask(&request_line("GET")).await.expect("a head");
            (connection.body(10).await, connection.is_open().await)
        });
        assert_eq!((body, is_open), (Ok(b"xxxxxxxxxx".to_vec()), false));
    }

    #[test]
    fn a_wait_that_is_dropped_loses_nothing() {
        block_on(async {
            let (client, mut server) = tokio::io::duplex(1000);
            let sent = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n";
            server.write_all(sent.as_bytes()).await.expect("there is room");
            let mut connection = ClientStream::new(client, ToString::to_string);
            connection.ask(&request_line("POST")).await.expect("a head");
            assert_eq!(connection.piece().await, Ok(Some(b"ab".to_vec())));
            tokio::select! {
                biased;
                piece = connection.piece() => panic!("nothing was sent: {piece:?}"),
                () = std::future::ready(()) => {}
            }
            server.write_all(b"1\r\nc\r\n0\r\n\r\n").await.expect("there is room");
            assert_eq!(connection.piece().await, Ok(Some(b"c".to_vec())));
            assert_eq!(connection.piece().await, Ok(None));
        });
    }

    #[test]
    fn a_connection_is_used_again_while_the_server_keeps_it() {
        for (fields, is_kept) in [("", true), ("Connection: close\r\n", false)] {
            block_on(async {
                let (client, mut server) = tokio::io::duplex(1000);
                let sent = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n{fields}\r\na");
                server.write_all(sent.as_bytes()).await.expect("there is room");
                let mut connection = ClientStream::new(client, ToString::to_string);
                connection.ask(&request_line("POST")).await.expect("a head");
                assert_eq!(connection.body(10).await, Ok(b"a".to_vec()));
                assert_eq!(connection.is_open().await, is_kept);
                drop(server);
                assert!(!connection.is_open().await, "it was closed");
            });
        }
    }

    #[test]
    fn a_request_has_its_lines_and_no_others() {
        let written = |fields: &[(&str, &str)]| request("POST", "/a?b", fields, b"body");
        let expected = b"POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody".to_vec();
        assert_eq!(written(&[("Host", "a")]), Ok(expected));
        assert!(written(&[("Authorization", "a\r\nX: b")]).is_err());
        assert_eq!(request_line("GET"), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
}
