//! HTTP/1 client or server, played by a test: sends bytes and expects bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use socket2::SockRef;

use crate::text::{ANY, show};
use crate::wait::PATIENCE;

pub struct Http1Peer {
    /// Name in failure messages: `client` or `server`.
    name: &'static str,
    stream: TcpStream,
    /// Received bytes that the test has not expected yet.
    received: Vec<u8>,
}

/// The end of a connection, as its reader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderEnding {
    End,
    Reset,
}

#[derive(Debug)]
pub struct Http1Message {
    /// Start line and fields, with the empty line.
    pub head: String,
    pub body: Vec<u8>,
}

impl Http1Message {
    pub fn status(&self) -> u16 {
        let status = self.head.get(9..12).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no response: {}", self.head))
    }
}

impl Http1Peer {
    /// `name` is used in failure messages: `client` or `server`.
    pub fn new(name: &'static str, stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("is a socket");
        // A Unix socket has no TCP_NODELAY.
        let _ = stream.set_nodelay(true);
        Self { name, stream, received: Vec::new() }
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub fn sends(&mut self, bytes: impl AsRef<[u8]>) {
        let name = self.name;
        self.stream
            .write_all(bytes.as_ref())
            .unwrap_or_else(|error| panic!("the {name} cannot send: {error}"));
    }

    /// Sends bytes, and returns itself for chaining.
    pub fn saying(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.sends(bytes);
        self
    }

    /// Returns false if the proxy has closed the connection.
    pub fn can_send(&mut self, bytes: &[u8]) -> bool {
        match self.stream.write_all(bytes) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!("the {} can neither send for {PATIENCE:?} nor is it let go", self.name)
            }
            Err(_) => false,
        }
    }

    /// Whether bytes, or the end of the connection, have arrived. Does not wait.
    pub fn has_something(&self) -> bool {
        self.stream.set_nonblocking(true).expect("is a socket");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("is a socket");
        !self.received.is_empty() || peeked.is_ok()
    }

    /// Shuts down the sending side; receiving is still possible.
    pub fn half_closes(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("is connected");
    }

    pub fn resets(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("is a socket");
    }

    /// Expects exactly these bytes next; [`ANY`] matches any byte.
    pub fn gets(&mut self, expected: &[u8]) {
        loop {
            let count = self.received.len().min(expected.len());
            let pairs = expected.iter().zip(&self.received);
            let is_alike = pairs.take(count).all(|(&expected, got)| expected == ANY || expected == *got);
            if is_alike && count == expected.len() {
                self.received.drain(..count);
                return;
            }
            let ending = if is_alike { self.receive() } else { Some("something else".to_owned()) };
            if let Some(ending) = ending {
                panic!(
                    "the {} got {ending}.\nexpected:\n  {}\ngot:\n  {}",
                    self.name,
                    show(expected),
                    show(&self.received)
                );
            }
        }
    }

    /// Waits for more bytes. Returns how the connection ended if there are none.
    fn receive(&mut self) -> Option<String> {
        let mut bytes = [0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Some("the end".to_owned()),
            Ok(count) => {
                self.received.extend_from_slice(&bytes[..count]);
                None
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => None,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(format!("nothing for {PATIENCE:?}")),
            Err(error) => Some(format!("an error: {error}")),
        }
    }

    pub fn rest(&mut self) -> (Vec<u8>, ReaderEnding) {
        loop {
            match self.receive() {
                None => {}
                Some(end) if end == "the end" => {
                    return (std::mem::take(&mut self.received), ReaderEnding::End);
                }
                Some(error) if error.starts_with("an error") => {
                    return (std::mem::take(&mut self.received), ReaderEnding::Reset);
                }
                Some(nothing) => panic!("the {} waits for the end and gets {nothing}", self.name),
            }
        }
    }

    /// Expects the end of the stream, and nothing before it.
    pub fn gets_the_end(&mut self) {
        self.closed(&[ReaderEnding::End]);
    }

    /// Expects the end of the stream or a reset, and nothing before it.
    pub fn is_closed(&mut self) {
        self.closed(&[ReaderEnding::End, ReaderEnding::Reset]);
    }

    /// Expects a reset, and nothing before it.
    pub fn gets_a_reset(&mut self) {
        self.closed(&[ReaderEnding::Reset]);
    }

    fn closed(&mut self, allowed: &[ReaderEnding]) {
        let (rest, ending) = self.rest();
        assert!(rest.is_empty(), "the {} got more than was expected:\n  {}", self.name, show(&rest));
        assert!(allowed.contains(&ending), "the {} got {ending:?}, not {allowed:?}", self.name);
    }

    /// Asserts that no unexpected bytes have arrived.
    pub fn has_nothing(&mut self) {
        self.stream.set_nonblocking(true).expect("is a socket");
        let _ = self.receive();
        self.stream.set_nonblocking(false).expect("is a socket");
        assert!(
            self.received.is_empty(),
            "the {} got more than expected: {}",
            self.name,
            show(&self.received)
        );
    }

    pub fn head(&mut self) -> String {
        loop {
            if let Some(at) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                let head: Vec<u8> = self.received.drain(..at + 4).collect();
                return String::from_utf8(head).expect("is text");
            }
            if let Some(ending) = self.receive() {
                panic!("the {} got {ending} within a head: {}", self.name, show(&self.received));
            }
        }
    }

    /// Receives any head, and returns itself for chaining.
    pub fn after_head(mut self) -> Self {
        self.head();
        self
    }

    /// Receives a head; `None` if the connection ends before.
    pub fn try_head(&mut self) -> Option<String> {
        while !self.received.windows(4).any(|window| window == b"\r\n\r\n") {
            if let Some(ending) = self.receive() {
                assert!(
                    !ending.starts_with("nothing"),
                    "the {} waits for a head and gets {ending}",
                    self.name
                );
                return None;
            }
        }
        Some(self.head())
    }

    pub fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.received.len() < count {
            if let Some(ending) = self.receive() {
                panic!("the {} got {ending} after {} of {count} bytes", self.name, self.received.len());
            }
        }
        self.received.drain(..count).collect()
    }

    /// Receives a line; returns it without its line end.
    pub fn line(&mut self) -> String {
        loop {
            if let Some(at) = self.received.windows(2).position(|window| window == b"\r\n") {
                let line: Vec<u8> = self.received.drain(..at + 2).take(at).collect();
                return String::from_utf8(line).expect("is text");
            }
            if let Some(ending) = self.receive() {
                panic!("the {} got {ending} within a line: {}", self.name, show(&self.received));
            }
        }
    }

    pub fn message(&mut self) -> Http1Message {
        let head = self.head();
        let field = |name: &str| {
            let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(": "));
            fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        let is_without_body =
            ["HTTP/1.1 1", "HTTP/1.1 204", "HTTP/1.1 304"].iter().any(|start| head.starts_with(start));
        let body = match (field("Transfer-Encoding"), field("Content-Length")) {
            _ if is_without_body => Vec::new(),
            (Some(_), Some(_)) => panic!("two framings: {head}"),
            (Some(coding), None) => {
                assert_eq!(coding, "chunked");
                self.chunks()
            }
            (None, Some(length)) => self.exactly(length.parse().expect("is a number")),
            (None, None) => Vec::new(),
        };
        Http1Message { head, body }
    }

    /// Receives and decodes a chunked body. Trailers are skipped.
    pub fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            let size = usize::from_str_radix(&line, 16).unwrap_or_else(|_| panic!("no chunk size: {line:?}"));
            if size == 0 {
                break;
            }
            body.extend(self.exactly(size));
            assert_eq!(self.line(), "", "a chunk ends with a line end");
        }
        while !self.line().is_empty() {}
        body
    }
}
