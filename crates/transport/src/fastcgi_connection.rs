//! A connection to a FastCGI application that reads and writes like an HTTP/1.1 connection.
//!
//! A request begins with records that the caller has made of its head: they say more than a head does. Its body is cut
//! into records here, and the application's records are read as the text of a response. A body without Content-Length
//! ends with the response, like one until the close.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use fastcgi::{
    Body, EndRequest, Event, HEADER_BYTES, HeadOutline, ProtocolStatus, Response, ResponseError,
    ResponseLimits, STDIN_END, Stdin,
};
use telemetry::message;

use crate::buffer::BULK;
use crate::cold::poll_once;
use crate::connection::Connection;
use crate::h2_connection::H2Violation;
use crate::tcp::Follows;

/// The buffers that all FastCGI connections of a worker share.
pub struct FastcgiMemory {
    // Shared, because only one connection of a worker reads at a moment.
    received: RefCell<Box<[u8]>>,
    pieces: RefCell<ResponsePieces>,
}

/// The parts of a response that one read has brought, until they are copied to the reader.
#[derive(Default)]
struct ResponsePieces {
    /// The text of the head.
    head: Vec<u8>,
    /// The piece of the body behind it.
    body: Vec<u8>,
}

impl FastcgiMemory {
    pub fn new() -> Rc<Self> {
        Rc::new(Self { received: RefCell::new(vec![0; BULK].into_boxed_slice()), pieces: RefCell::default() })
    }
}

/// A request that begins on a connection.
#[derive(Debug, Clone, Copy)]
pub struct FastcgiRequest<'a> {
    /// How many bytes are records already: those of the head, and of the first piece of the body.
    pub record_bytes: usize,
    /// The rest of the body. If nothing is missing, its end is among the records.
    pub body: Stdin,
    /// Whether the method is HEAD.
    pub to_head: bool,
    /// The name of the request in messages about its error output, in parts.
    pub name: &'a [&'a [u8]],
}

/// A connection to an application. It carries one request at a time.
pub struct FastcgiConnection {
    connection: Connection,
    memory: Rc<FastcgiMemory>,
    exchange: RefCell<FastcgiExchange>,
}

impl FastcgiConnection {
    /// Uses a new connection. `label` names the application in messages.
    pub fn new(
        connection: Connection,
        label: Rc<str>,
        limits: ResponseLimits,
        memory: &Rc<FastcgiMemory>,
    ) -> Self {
        let exchange = FastcgiExchange {
            sending: Sending {
                record_bytes: 0,
                body: Stdin::new(0),
                record: STDIN_END,
                record_at: HEADER_BYTES,
                left: 0,
            },
            reading: Reading::Open,
            response: Response::new(limits, false),
            limits,
            pending: Vec::new(),
            errors: ErrorOutput { label, request: Vec::new(), text: Vec::new() },
        };
        Self { connection, memory: Rc::clone(memory), exchange: RefCell::new(exchange) }
    }

    /// Begins a request: first its records are written, then the rest of its body.
    pub fn begin(&self, request: &FastcgiRequest<'_>) {
        self.exchange.borrow_mut().begin(request);
    }

    /// Replaces the connection by the result of `step`.
    pub fn map_connection(self, step: impl FnOnce(Connection) -> Connection) -> Self {
        Self { connection: step(self.connection), ..self }
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Ready when there is something to read, or the end.
    #[inline]
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.exchange.borrow().has_news() {
            return Poll::Ready(Ok(()));
        }
        self.connection.poll_readable(context)
    }

    /// Reads the text of the response; 0 is its end.
    ///
    /// # Errors
    /// The connection broke, or ended early (`UnexpectedEof`). The application has refused the request
    /// (`ConnectionRefused`), or broken a rule (`InvalidData`).
    pub fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let exchange = &mut *self.exchange.borrow_mut();
        loop {
            if !exchange.pending.is_empty() {
                let count = exchange.pending.len().min(buffer.len());
                buffer[..count].copy_from_slice(&exchange.pending[..count]);
                exchange.pending.drain(..count);
                return Poll::Ready(Ok(count));
            }
            match &exchange.reading {
                Reading::Open => {}
                Reading::Ended { .. } => return Poll::Ready(Ok(0)),
                Reading::Refused(_) => return Poll::Ready(Err(ErrorKind::ConnectionRefused.into())),
                Reading::Broken(_) => return Poll::Ready(Err(ErrorKind::InvalidData.into())),
            }
            let received = &mut **self.memory.received.borrow_mut();
            // Records have more bytes than what is in them, so that the body always has room. Only a head may grow.
            let room = buffer.len().min(received.len());
            let count = ready!(self.connection.poll_read(context, &mut received[..room]))?;
            if count == 0 {
                exchange.errors.report();
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
            let pieces = &mut *self.memory.pieces.borrow_mut();
            let count = exchange.decode(&received[..count], pieces, buffer);
            if count > 0 {
                return Poll::Ready(Ok(count));
            }
        }
    }

    /// Writes the start of `bytes`: first the records of the request, then its body.
    ///
    /// # Errors
    /// Those of the connection, and `InvalidData` for a body that is longer than announced.
    pub fn poll_write(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        let sending = &mut self.exchange.borrow_mut().sending;
        if sending.record_bytes > 0 {
            let len = bytes.len().min(sending.record_bytes);
            let count = ready!(self.connection.poll_write(context, &bytes[..len], follows))?;
            sending.record_bytes -= count;
            return Poll::Ready(Ok(count));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        sending.poll_body(&self.connection, context, bytes, follows)
    }

    /// Whether the response has ended as it should, and the whole request was sent: the connection can carry a further
    /// one. The end may have arrived behind the last byte of the body, unread.
    pub fn has_ended_well(&self) -> bool {
        if matches!(self.exchange.borrow().reading, Reading::Open) {
            // A body of a known length is read without what follows it.
            let end = poll_once(|context| self.poll_read(context, &mut [0; 2 * HEADER_BYTES]));
            if !matches!(end, Some(Ok(0))) {
                return false;
            }
        }
        self.exchange.borrow().may_go_on()
    }

    /// Whether the application has ended the response: the connection is not to blame for a failure.
    pub fn has_response_ended(&self) -> bool {
        matches!(self.exchange.borrow().reading, Reading::Ended { .. } | Reading::Refused(_))
    }

    /// Why the application has refused the request, in the words of FastCGI.
    pub fn refusal(&self) -> Option<&'static str> {
        match self.exchange.borrow().reading {
            Reading::Refused(why) => Some(why),
            Reading::Open | Reading::Ended { .. } | Reading::Broken(_) => None,
        }
    }

    /// The rule that the application has broken.
    pub fn wrong(&self) -> Option<H2Violation> {
        match &self.exchange.borrow().reading {
            Reading::Broken(error) => Some(H2Violation {
                is_of_stream: false,
                is_too_large: matches!(
                    error,
                    ResponseError::Head(
                        fastcgi::CgiHeadError::TooLarge(_) | fastcgi::CgiHeadError::TooManyFields(_)
                    )
                ),
                text: error.to_string(),
            }),
            Reading::Open | Reading::Ended { .. } | Reading::Refused(_) => None,
        }
    }
}

/// The state of a connection, with its current request and response.
struct FastcgiExchange {
    sending: Sending,
    reading: Reading,
    response: Response,
    limits: ResponseLimits,
    /// Text of the response that was longer than the reader's buffer: rare, and no longer than a head.
    pending: Vec<u8>,
    errors: ErrorOutput,
}

/// How far the response was received.
enum Reading {
    Open,
    /// Complete. `is_last`: bytes have followed the end, so that no further response can.
    Ended {
        is_last: bool,
    },
    /// The application has not handled the request.
    Refused(&'static str),
    Broken(ResponseError),
}

/// Progress of the request.
struct Sending {
    /// How many bytes of the caller are records already.
    record_bytes: usize,
    body: Stdin,
    /// The header of the current record, and how much of it was sent. A complete one begins before the next piece.
    record: [u8; HEADER_BYTES],
    record_at: usize,
    /// The content that the header announces, as far as it was not sent.
    left: usize,
}

impl Sending {
    fn is_done(&self) -> bool {
        self.record_bytes == 0 && self.body.left() == 0 && self.left == 0 && self.record_at == HEADER_BYTES
    }

    /// Sends a piece of the body in a record. Behind the last one it sends the record that ends the body: until that has
    /// left, the last byte counts as unsent, so that the caller calls again.
    fn poll_body(
        &mut self,
        connection: &Connection,
        context: &mut Context<'_>,
        bytes: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        if self.left == 0 && self.body.left() == 0 {
            if self.record_at == HEADER_BYTES {
                return Poll::Ready(Err(ErrorKind::InvalidData.into()));
            }
            ready!(self.poll_header(connection, context))?;
            return Poll::Ready(Ok(1));
        }
        if self.left == 0 {
            let record = self.body.record(bytes.len());
            let (header, taken) = record.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            (self.record, self.record_at, self.left) = (header, 0, taken);
        }
        let len = bytes.len().min(self.left);
        let is_last = self.body.left() == 0 && len == self.left;
        let follows = if is_last { Follows::More } else { follows };
        let mut sent = 0;
        while sent == 0 {
            let header = &self.record[self.record_at..];
            let count = ready!(connection.poll_write_both(context, header, &bytes[..len], follows))?;
            let of_header = count.min(header.len());
            self.record_at += of_header;
            sent = count - of_header;
        }
        self.left -= sent;
        if self.left > 0 || self.body.left() > 0 {
            return Poll::Ready(Ok(sent));
        }
        (self.record, self.record_at) = (STDIN_END, 0);
        match self.poll_header(connection, context) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(sent)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending if sent > 1 => Poll::Ready(Ok(sent - 1)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Sends the rest of a header without content.
    fn poll_header(&mut self, connection: &Connection, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.record_at < HEADER_BYTES {
            let rest = &self.record[self.record_at..];
            self.record_at += ready!(connection.poll_write(context, rest, Follows::End))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl FastcgiExchange {
    fn begin(&mut self, request: &FastcgiRequest<'_>) {
        let FastcgiRequest { record_bytes, body, to_head, name } = *request;
        self.sending = Sending { record_bytes, body, record: STDIN_END, record_at: HEADER_BYTES, left: 0 };
        self.reading = Reading::Open;
        self.pending.clear();
        if self.response.has_ended() {
            self.response.begin(to_head);
        } else {
            self.response = Response::new(self.limits, to_head);
        }
        self.errors.begin(name);
    }

    /// Whether a read would return at once.
    fn has_news(&self) -> bool {
        !self.pending.is_empty() || !matches!(self.reading, Reading::Open)
    }

    fn may_go_on(&self) -> bool {
        matches!(self.reading, Reading::Ended { is_last: false })
            && self.pending.is_empty()
            && self.sending.is_done()
    }

    /// Decodes what was received, and writes text to `buffer`, which has room for as many bytes. Returns how many.
    fn decode(&mut self, mut bytes: &[u8], pieces: &mut ResponsePieces, buffer: &mut [u8]) -> usize {
        let (mut filled, mut outline) = (0, None::<HeadOutline>);
        pieces.head.clear();
        pieces.body.clear();
        loop {
            let (taken, event) = match self.response.read(bytes, &mut pieces.head) {
                Ok(read) => read,
                Err(error) => {
                    self.reading = Reading::Broken(error);
                    self.errors.report();
                    break;
                }
            };
            bytes = &bytes[taken..];
            match event {
                Event::More => break,
                Event::Stderr(output) => self.errors.text.extend_from_slice(output),
                Event::Head { outline: head, body } => {
                    self.errors.report();
                    outline = Some(head);
                    pieces.body.extend_from_slice(body);
                }
                // The head comes first, and its length is not known yet.
                Event::Body(body) if outline.is_some() => pieces.body.extend_from_slice(body),
                Event::Body(body) => {
                    self.errors.report();
                    buffer[filled..filled + body.len()].copy_from_slice(body);
                    filled += body.len();
                }
                Event::End(end) => {
                    self.end(end, !bytes.is_empty());
                    break;
                }
            }
        }
        match outline {
            Some(outline) => self.begin_text(outline, pieces, buffer),
            None => filled,
        }
    }

    /// The response has ended; `is_last` if further bytes have arrived.
    fn end(&mut self, end: EndRequest, is_last: bool) {
        self.errors.report_with_dropped(self.response.stderr_dropped());
        self.reading = match end.protocol_status {
            ProtocolStatus::Complete => Reading::Ended { is_last },
            ProtocolStatus::CannotMultiplex => Reading::Refused("FCGI_CANT_MPX_CONN"),
            ProtocolStatus::Overloaded => Reading::Refused("FCGI_OVERLOADED"),
            ProtocolStatus::UnknownRole => Reading::Refused("FCGI_UNKNOWN_ROLE"),
        };
    }

    /// Writes the head and the piece of the body behind it. What does not fit is pending.
    fn begin_text(&mut self, outline: HeadOutline, pieces: &mut ResponsePieces, buffer: &mut [u8]) -> usize {
        let ResponsePieces { head, body } = pieces;
        // A whole response has a known length: with it, the client gets one write, and no chunks.
        if outline.body == Body::UntilEnd && matches!(self.reading, Reading::Ended { .. }) {
            fastcgi::add_length(body.len() as u64, head);
        }
        let mut filled = 0;
        for part in [head, body] {
            let count = part.len().min(buffer.len() - filled);
            buffer[filled..filled + count].copy_from_slice(&part[..count]);
            self.pending.extend_from_slice(&part[count..]);
            filled += count;
        }
        filled
    }
}

/// The error output of an application, which becomes messages for the operator.
struct ErrorOutput {
    label: Rc<str>,
    /// The name of the current request.
    request: Vec<u8>,
    text: Vec<u8>,
}

/// The most memory that is kept for the text of the next request.
const KEEP_MAX: usize = 256;

impl ErrorOutput {
    #[inline]
    fn begin(&mut self, request: &[&[u8]]) {
        self.request.clear();
        for part in request {
            self.request.extend_from_slice(part);
        }
    }

    /// Writes the output as a message, if there is any.
    #[inline]
    fn report(&mut self) {
        if !self.text.is_empty() {
            self.say(0);
        }
    }

    fn report_with_dropped(&mut self, dropped: u64) {
        if dropped > 0 || !self.text.is_empty() {
            self.say(dropped);
        }
    }

    #[cold]
    fn say(&mut self, dropped: u64) {
        let request = String::from_utf8_lossy(&self.request);
        let text = String::from_utf8_lossy(&self.text);
        let more = if dropped > 0 { format!(" (and {dropped} bytes more)") } else { String::new() };
        message::warn(&format!("{}: error output of {request}: {}{more}", self.label, text.trim()));
        self.text.clear();
        self.text.shrink_to(KEEP_MAX);
    }
}

impl Drop for ErrorOutput {
    fn drop(&mut self) {
        self.report();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Read;
    use std::net::TcpStream;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use fastcgi::{CgiHeadLimits, Header, RecordLimits, RecordType};
    use socket2::SockRef;

    use super::*;
    use crate::tcp::Tcp;

    const LIMITS: ResponseLimits = ResponseLimits {
        records: RecordLimits { empty_records: 16 },
        head: CgiHeadLimits { bytes: 4096, fields: 64 },
        stderr_bytes: 1024,
    };

    fn connection(ours: UnixStream) -> FastcgiConnection {
        ours.set_nonblocking(true).unwrap();
        let tcp = Tcp::new(TcpStream::from(OwnedFd::from(ours)));
        FastcgiConnection::new(tcp.into(), "server a".into(), LIMITS, &FastcgiMemory::new())
    }

    fn run<T>(steps: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(steps)
    }

    #[test]
    fn a_body_is_cut_into_records_however_little_the_socket_takes() {
        for (length, piece) in [(1, 1), (2, 1), (200_000, 10_007), (150_000, 150_000), (70_000, 1000)] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            // The least that the kernel permits.
            SockRef::from(&ours).set_send_buffer_size(1).unwrap();
            let body: Vec<u8> = (0..length).map(|number: u32| number as u8).collect();
            let reader = std::thread::spawn(move || {
                let mut received = Vec::new();
                theirs.read_to_end(&mut received).map(|_| received)
            });
            run(async {
                let connection = connection(ours);
                let body_left = Stdin::new(body.len() as u64);
                connection.begin(&FastcgiRequest {
                    record_bytes: 5,
                    body: body_left,
                    to_head: false,
                    name: &[],
                });
                let whole = [b"first", body.as_slice()].concat();
                let mut rest = whole.as_slice();
                while !rest.is_empty() {
                    let bytes = &rest[..rest.len().min(piece)];
                    let write =
                        poll_fn(|context| connection.poll_write(context, bytes, Follows::Nothing)).await;
                    rest = &rest[write.unwrap()..];
                }
                let beyond = poll_fn(|context| connection.poll_write(context, b"x", Follows::End)).await;
                assert_eq!(beyond.unwrap_err().kind(), ErrorKind::InvalidData);
            });
            let received = reader.join().unwrap().unwrap();
            let mut rest = received.strip_prefix(b"first").unwrap();
            let (mut content, mut is_ended) = (Vec::new(), false);
            while let Some((header, behind)) = rest.split_first_chunk() {
                let header = Header::decode(*header);
                assert_eq!((header.kind, is_ended), (RecordType::Stdin as u8, false));
                let (record, behind) = behind.split_at(header.content.into());
                content.extend_from_slice(record);
                (is_ended, rest) = (record.is_empty(), behind);
            }
            assert!(is_ended && content == body, "{length} in pieces of {piece}");
        }
    }

    #[test]
    fn a_head_that_is_longer_than_the_buffer_arrives_in_pieces() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let text = "A: b\n\nbody of the response";
        let record = Header::new(RecordType::Stdout, text.len() as u16).encode();
        let end = Header::new(RecordType::EndRequest, 8).encode();
        std::io::Write::write_all(&mut theirs, &[&record, text.as_bytes(), &end, &[0; 8]].concat()).unwrap();
        run(async {
            let connection = connection(ours);
            let body = Stdin::new(0);
            connection.begin(&FastcgiRequest { record_bytes: 0, body, to_head: false, name: &[] });
            let mut read = Vec::new();
            loop {
                let mut buffer = [0; 60];
                match poll_fn(|context| connection.poll_read(context, &mut buffer)).await.unwrap() {
                    0 => break,
                    count => read.extend_from_slice(&buffer[..count]),
                }
            }
            let expected = "HTTP/1.1 200 OK\r\nA: b\r\ncontent-length: 20\r\n\r\nbody of the response";
            assert_eq!(String::from_utf8(read).unwrap(), expected);
            assert!(connection.has_ended_well());
        });
    }
}
