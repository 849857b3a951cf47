//! A client that sends bytes and parses responses independently, as strictly as a test needs.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use origin::RunningOrigin;

/// A read that waits this long fails its test instead of hanging it.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn start() -> RunningOrigin {
    origin::start(origin::OriginOptions::default()).expect("a port on loopback is free")
}

pub(crate) struct Client {
    reader: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) chunks: Vec<usize>,
    pub(crate) trailers: Vec<String>,
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields(name).next()
    }

    pub(crate) fn fields<'r, 'n>(&'r self, name: &'n str) -> impl Iterator<Item = &'r str> + use<'r, 'n> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.filter(move |(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("is text")
    }
}

impl Client {
    pub(crate) fn connect(running: &RunningOrigin) -> Self {
        let stream = TcpStream::connect(running.addresses()[0]).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
        stream.set_nodelay(true).expect("is a socket");
        Self { reader: BufReader::new(stream) }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.reader.get_mut().write_all(bytes.as_ref()).expect("the origin takes it");
    }

    /// Sends an HTTP/1.1 request without a body, and returns its response. `fields` are whole lines.
    pub(crate) fn request(&mut self, method: &str, target: &str, fields: &str) -> Response {
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: origin.test\r\n{fields}\r\n"));
        self.response(method)
    }

    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, "")
    }

    pub(crate) fn response(&mut self, method: &str) -> Response {
        let mut response = self.response_head();
        let status = response.status;
        if method == "HEAD" || status < 200 || status == 204 || status == 304 {
            return response;
        }
        if response.field("Transfer-Encoding") == Some("chunked") {
            self.read_chunks(&mut response);
        } else if let Some(length) = response.field("Content-Length") {
            response.body = self.exactly(length.parse().expect("is a number"));
        } else {
            self.reader.read_to_end(&mut response.body).expect("ends in an orderly way");
        }
        response
    }

    /// Reads the next response without its body.
    pub(crate) fn response_head(&mut self) -> Response {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let length = self.reader.read_line(&mut head).expect("a head arrives");
            assert!(length > 0, "the connection ended within a head: {head:?}");
        }
        let line = head.strip_prefix("HTTP/1.1 ").unwrap_or_else(|| panic!("no status line: {head:?}"));
        let status = line[..3].parse().expect("is a status");
        assert!(!head.replace("\r\n", "").contains(['\r', '\n']), "line ends: {head:?}");
        Response { status, head, body: Vec::new(), chunks: Vec::new(), trailers: Vec::new() }
    }

    fn read_chunks(&mut self, response: &mut Response) {
        loop {
            let size = usize::from_str_radix(&self.line(), 16).expect("is a chunk size");
            if size == 0 {
                break;
            }
            response.chunks.push(size);
            response.body.extend(self.exactly(size));
            assert_eq!(self.line(), "", "a chunk ends with a line end");
        }
        loop {
            match self.line() {
                line if line.is_empty() => return,
                line => response.trailers.push(line),
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line arrives");
        line.strip_suffix("\r\n").unwrap_or_else(|| panic!("no line: {line:?}")).to_owned()
    }

    pub(crate) fn exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.reader.read_exact(&mut bytes).expect("as many bytes as promised");
        bytes
    }

    /// Reads everything up to the end, and returns how the connection ended.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, io::Result<()>) {
        let mut bytes = Vec::new();
        let ending = self.reader.read_to_end(&mut bytes).map(drop);
        (bytes, ending)
    }

    /// Expects the end of the connection, and nothing before it.
    #[track_caller]
    pub(crate) fn assert_closed(&mut self) {
        let (bytes, ending) = self.rest();
        assert_eq!(String::from_utf8_lossy(&bytes), "", "bytes after the end");
        ending.expect("closes in an orderly way");
    }
}

/// Returns bytes of the origin's generated bodies.
pub(crate) fn pattern(first: u64, length: u64) -> Vec<u8> {
    (first..first + length).map(origin::body_byte).collect()
}
