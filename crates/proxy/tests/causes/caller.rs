//! A client of any HTTP version.

use testkit::http1::Http1Peer;
use testkit::http2::H2End;
use testkit::http2::frame::{CANCEL, H2Frame, headers, last_data, last_headers, reset};
use testkit::http3::frame::{self, request};
use testkit::http3::{Got, H3TestClient, H3TestStream};

use super::scene::{Scene, Spoken};

/// H3_REQUEST_CANCELLED (RFC 9114 §8.1).
const REQUEST_CANCELLED: u64 = 0x10c;

pub(crate) struct Caller {
    pub(crate) wire: Wire,
    seen: Seen,
    /// Whether the request body is sent in chunks.
    is_chunked: bool,
    /// Received bytes of an HTTP/1.1 body.
    held: Vec<u8>,
}

pub(crate) enum Wire {
    One(Http1Peer),
    Two(H2End),
    /// With the connection, which ends when it is dropped.
    Three(H3TestStream, H3TestClient),
}

/// The received part of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// 0 if there is no response.
    pub(crate) status: u16,
    /// Lines of head and trailers.
    pub(crate) head: String,
    pub(crate) body: String,
    /// Whether the response has ended properly.
    pub(crate) is_whole: bool,
}

impl Caller {
    pub(crate) fn new(scene: &Scene, spoken: Spoken) -> Self {
        Self::over(match spoken {
            Spoken::Http1 => Wire::One(scene.client1()),
            Spoken::Http2 => Wire::Two(scene.client2()),
            Spoken::Http3 => {
                let client = scene.client3();
                Wire::Three(client.open(), client)
            }
        })
    }

    /// A client on a connection without earlier requests.
    pub(crate) fn over(wire: Wire) -> Self {
        Self { wire, seen: Seen::nothing(), is_chunked: false, held: Vec::new() }
    }

    /// Sends a request without a body. `lines` are of the form `name: value`.
    pub(crate) fn asks(&mut self, method: &str, path: &str, lines: &str) {
        match &mut self.wire {
            Wire::One(peer) => peer.sends(head1(method, path, lines)),
            Wire::Two(end) => end.sends(last_headers(1, &head2(method, path, lines))),
            Wire::Three(stream, _) => stream.asks(method, path, lines),
        }
    }

    /// Sends the head of a request with a body: over HTTP/1.1 in chunks, unless its length is among the lines.
    pub(crate) fn begins(&mut self, method: &str, path: &str, lines: &str) {
        match &mut self.wire {
            Wire::One(peer) => {
                self.is_chunked = !lines.contains("content-length");
                let framing = if self.is_chunked { "transfer-encoding: chunked\n" } else { "" };
                peer.sends(head1(method, path, &format!("{lines}{framing}")));
            }
            Wire::Two(end) => end.sends(headers(1, &head2(method, path, lines))),
            Wire::Three(stream, _) => stream.sends_head(&request(method, path, lines)),
        }
    }

    /// Asks for another protocol, by Upgrade or by extended CONNECT (RFC 8441, RFC 9220).
    pub(crate) fn upgrades(&mut self, protocol: &str) {
        let connect = format!(":method: CONNECT\n:protocol: {protocol}\n:authority: test\n:path: /\n");
        match &mut self.wire {
            Wire::One(peer) => {
                let lines = format!("connection: upgrade, close\nupgrade: {protocol}\n");
                peer.sends(head1("GET", "/", &lines));
            }
            Wire::Two(end) => end.sends(headers(1, &format!("{connect}:scheme: http\n"))),
            Wire::Three(stream, _) => stream.sends_head(&format!("{connect}:scheme: https\n")),
        }
    }

    pub(crate) fn sends(&mut self, bytes: &[u8]) {
        match &mut self.wire {
            Wire::One(peer) if self.is_chunked => {
                peer.sends([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat());
            }
            Wire::One(peer) => peer.sends(bytes),
            Wire::Two(end) => end.sends_body(1, bytes, false),
            Wire::Three(stream, _) => {
                // The proxy may have stopped reading.
                stream.can_send(&[&frame::head(frame::DATA, bytes.len())[..], bytes].concat());
            }
        }
    }

    pub(crate) fn ends(&mut self) {
        match &mut self.wire {
            Wire::One(peer) if self.is_chunked => peer.sends("0\r\n\r\n"),
            Wire::One(_) => {}
            Wire::Two(end) => end.sends(last_data(1, "")),
            Wire::Three(stream, _) => stream.ends(),
        }
    }

    /// Cancels the request: resets its stream, or closes the connection.
    pub(crate) fn cancels(&mut self) {
        match &mut self.wire {
            Wire::One(peer) => peer.stream().shutdown(std::net::Shutdown::Both).expect("it is connected"),
            Wire::Two(end) => end.sends(reset(1, CANCEL)),
            Wire::Three(stream, client) => {
                assert!(client.quic.close_reason().is_none());
                stream.stops(REQUEST_CANCELLED);
            }
        }
    }

    /// Receives the head of the final response, and what comes with it.
    pub(crate) fn gets_head(&mut self) {
        while self.seen.status == 0 && self.receives() {}
    }

    /// Receives this many bytes of a body with a length.
    pub(crate) fn gets_body(&mut self, count: usize) {
        self.gets_head();
        if let Wire::One(peer) = &mut self.wire {
            self.held = peer.exactly(count);
            return;
        }
        while self.seen.body.len() < count && self.receives() {}
    }

    /// Receives the final response to its end.
    pub(crate) fn gets(mut self) -> Seen {
        while !self.seen.is_whole && self.receives() {}
        self.seen
    }

    /// Receives the next bytes. Returns whether more may follow.
    fn receives(&mut self) -> bool {
        let seen = &mut self.seen;
        match &mut self.wire {
            Wire::One(peer) if seen.status == 0 => match peer.try_head() {
                Some(head) => seen.takes_head1(&head),
                None => return false,
            },
            Wire::One(peer) => {
                self.held.extend(peer.rest().0);
                seen.takes_rest(&self.held);
                return false;
            }
            Wire::Two(end) => match end.next_or_end(1) {
                Some(H2Frame::Headers { fields, ends, .. }) => seen.takes_head(fields, ends),
                Some(H2Frame::Data { bytes, ends, .. }) => seen.takes(&bytes, ends),
                Some(_) | None => return false,
            },
            Wire::Three(stream, _) => match stream.gets() {
                Got::Headers(fields) => seen.takes_head(fields, false),
                Got::Data(bytes) => seen.takes(&bytes, false),
                Got::End => seen.is_whole = true,
                Got::Reset(_) | Got::Gone => return false,
            },
        }
        true
    }
}

impl Seen {
    pub(crate) fn nothing() -> Self {
        Self { status: 0, head: String::new(), body: String::new(), is_whole: false }
    }

    /// Receives an HTTP/1.1 response, after which the connection ends.
    pub(crate) fn of(peer: Http1Peer) -> Self {
        Caller::over(Wire::One(peer)).gets()
    }

    /// Takes a head, or trailers.
    fn takes_head(&mut self, fields: String, ends: bool) {
        let status = fields.lines().find_map(|line| line.strip_prefix(":status: "));
        match status.and_then(|status| status.parse().ok()) {
            Some(100..200) => {}
            Some(status) => (self.status, self.head) = (status, fields),
            None => self.head.push_str(&fields),
        }
        self.is_whole = ends;
    }

    fn takes(&mut self, bytes: &[u8], ends: bool) {
        self.body.push_str(&String::from_utf8_lossy(bytes));
        self.is_whole = ends;
    }

    fn takes_head1(&mut self, head: &str) {
        let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        if status == 101 || status >= 200 {
            (self.status, self.head) = (status, head.replace("\r\n", "\n"));
        }
    }

    /// Takes everything after an HTTP/1.1 head.
    fn takes_rest(&mut self, bytes: &[u8]) {
        let field = |name: &str| {
            let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
            fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        let length = field("content-length").and_then(|length| length.parse::<usize>().ok());
        let (body, is_whole) = match (length, field("transfer-encoding")) {
            (Some(length), _) => (bytes.to_vec(), bytes.len() == length),
            (None, Some(_)) => chunks(bytes),
            (None, None) => (bytes.to_vec(), true),
        };
        self.takes(&body, is_whole);
    }
}

fn head1(method: &str, path: &str, lines: &str) -> String {
    let lines = lines.replace('\n', "\r\n");
    let close = if lines.contains("connection: ") { "" } else { "Connection: close\r\n" };
    format!("{method} {path} HTTP/1.1\r\nHost: test\r\n{close}{lines}\r\n")
}

fn head2(method: &str, path: &str, lines: &str) -> String {
    format!(":method: {method}\n:scheme: http\n:authority: test\n:path: {path}\n{lines}")
}

/// Decodes chunks. Returns the data, and whether the last chunk was there.
fn chunks(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size =
            std::str::from_utf8(&bytes[..end]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let Some(size) = size else { break };
        if size == 0 {
            return (body, bytes.ends_with(b"\r\n\r\n"));
        }
        let data = &bytes[end + 2..];
        body.extend_from_slice(&data[..size.min(data.len())]);
        bytes = data.get(size + 2..).unwrap_or_default();
    }
    (body, false)
}
