//! HTTP/2 client or server, played by a test, which may also violate the protocol.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::frame::{self, FrameReader, H2Frame};
use crate::wait::PATIENCE;

/// Client connection preface (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// HTTP/2 client or server that the test plays. It acknowledges SETTINGS and PING, and updates windows.
pub struct H2End {
    stream: TcpStream,
    received: Vec<u8>,
    reader: FrameReader,
    /// Received frames that the test has not asked for yet.
    passed: Vec<H2Frame>,
    settings: HashMap<u16, u32>,
    /// Send window of the connection.
    window: i64,
    /// Send window of each stream, relative to the initial window of the settings.
    windows: HashMap<u32, i64>,
    /// Whether received DATA is answered with WINDOW_UPDATE at once.
    pub takes_all: bool,
    pub answers_pings: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum H2Ended {
    /// The connection ended with GOAWAY and this error code.
    Told(u32),
    /// The connection ended without GOAWAY.
    Untold,
}

impl H2End {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("is a socket");
        stream.set_nodelay(true).expect("is a socket");
        Self {
            stream,
            received: Vec::new(),
            reader: FrameReader::default(),
            passed: Vec::new(),
            settings: HashMap::new(),
            window: i64::from(frame::WINDOW),
            windows: HashMap::new(),
            takes_all: true,
            answers_pings: true,
        }
    }

    /// Sends the preface and these settings.
    pub fn client(stream: TcpStream, settings: &[(u16, u32)]) -> Self {
        let mut end = Self::new(stream);
        end.sends([PREFACE.to_vec(), frame::settings(settings)].concat());
        end
    }

    /// Receives the preface and sends these settings.
    pub fn server(stream: TcpStream, settings: &[(u16, u32)]) -> Self {
        let mut end = Self::silent_server(stream);
        end.sends(frame::settings(settings));
        end
    }

    /// Plays a server that has received the preface and sent nothing yet.
    pub fn silent_server(stream: TcpStream) -> Self {
        let mut end = Self::new(stream);
        while end.received.len() < PREFACE.len() {
            end.receive().unwrap_or_else(|ended| panic!("no preface: {ended}"));
        }
        let preface: Vec<u8> = end.received.drain(..PREFACE.len()).collect();
        assert_eq!(preface, PREFACE);
        end
    }

    pub fn sends(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap_or_else(|error| panic!("cannot send: {error}"));
    }

    /// Sends bytes, and returns itself for chaining.
    pub fn saying(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.sends(bytes);
        self
    }

    /// Returns false if the proxy has closed the connection.
    pub fn can_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Waits until the proxy has processed all sent bytes: sends PING and receives the acknowledgement.
    pub fn is_heard(&mut self) {
        let token = fastrand::u64(..).to_be_bytes();
        self.sends(frame::ping(token));
        self.find(|frame| *frame == H2Frame::PingAck(token));
    }

    /// Sends DATA within the windows, and waits for them to open. `ends` sets END_STREAM on the last frame.
    pub fn sends_body(&mut self, stream: u32, mut bytes: &[u8], ends: bool) {
        while !bytes.is_empty() {
            let room = self.room(stream);
            if room == 0 {
                let frame = self.frame();
                self.passed.push(frame);
                continue;
            }
            let count = bytes.len().min(room).min(16_384);
            let is_last = ends && count == bytes.len();
            let flags = if is_last { frame::END_STREAM } else { 0 };
            self.sends(frame::raw(0, flags, stream, &bytes[..count]));
            self.has_sent(stream, count);
            bytes = &bytes[count..];
        }
    }

    /// Sends DATA until the windows are used up and the proxy no longer opens them. Returns the number of bytes.
    pub fn sends_what_it_may(&mut self, stream: u32) -> usize {
        let mut sent = 0;
        loop {
            let room = self.room(stream).min(16_384);
            if room == 0 {
                self.is_heard();
                if self.room(stream) == 0 {
                    return sent;
                }
                continue;
            }
            self.sends(frame::data(stream, vec![b'x'; room]));
            self.has_sent(stream, room);
            sent += room;
        }
    }

    /// Number of bytes that the windows of stream and connection allow now.
    pub fn room(&mut self, stream: u32) -> usize {
        let initial = i64::from(self.setting(frame::INITIAL_WINDOW_SIZE).unwrap_or(frame::WINDOW));
        let of_stream = initial + self.windows.get(&stream).copied().unwrap_or(0);
        of_stream.min(self.window).max(0) as usize
    }

    /// Returns a setting of the proxy. Waits for its first SETTINGS.
    pub fn setting(&mut self, setting: u16) -> Option<u32> {
        while self.settings.is_empty() {
            let frame = self.frame();
            self.passed.push(frame);
        }
        self.settings.get(&setting).copied()
    }

    fn has_sent(&mut self, stream: u32, count: usize) {
        self.window -= count as i64;
        *self.windows.entry(stream).or_default() -= count as i64;
    }

    /// Receives the next frame. Handles SETTINGS, PING and WINDOW_UPDATE itself.
    fn frame(&mut self) -> H2Frame {
        self.try_frame().unwrap_or_else(|ended| panic!("{ended}; before that {:?}", self.passed))
    }

    fn try_frame(&mut self) -> Result<H2Frame, String> {
        loop {
            let Some(frame) = self.reader.take(&mut self.received) else {
                self.receive()?;
                continue;
            };
            match &frame {
                H2Frame::Settings(values) => {
                    self.settings.extend(values.iter().copied());
                    // Entry 0, which is not a setting, marks that SETTINGS have arrived.
                    self.settings.entry(0).or_default();
                    let _ = self.can_send(&frame::raw(4, frame::ACK, 0, b""));
                }
                H2Frame::SettingsAck => continue,
                H2Frame::Ping(_) if !self.answers_pings => continue,
                H2Frame::Ping(payload) => {
                    let _ = self.can_send(&frame::raw(6, frame::ACK, 0, payload));
                    continue;
                }
                &H2Frame::WindowUpdate { stream: 0, increment } => self.window += i64::from(increment),
                &H2Frame::WindowUpdate { stream, increment } => {
                    *self.windows.entry(stream).or_default() += i64::from(increment);
                }
                H2Frame::Data { stream, bytes, ends } if self.takes_all && !bytes.is_empty() => {
                    let (stream, ends, len) = (*stream, *ends, bytes.len() as u32);
                    let mut updates = frame::window_update(0, len);
                    if !ends {
                        updates.extend(frame::window_update(stream, len));
                    }
                    let _ = self.can_send(&updates);
                }
                _ => {}
            }
            return Ok(frame);
        }
    }

    fn receive(&mut self) -> Result<(), String> {
        let mut bytes = [0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Ok(0) => Err("the end".to_owned()),
            Ok(count) => {
                self.received.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(format!("nothing for {PATIENCE:?}")),
            Err(error) => Err(format!("an error: {error}")),
        }
    }

    /// Receives the first frame for which `is_it` holds. Earlier frames are kept for later calls.
    pub fn find(&mut self, is_it: impl Fn(&H2Frame) -> bool) -> H2Frame {
        if let Some(at) = self.passed.iter().position(&is_it) {
            return self.passed.remove(at);
        }
        loop {
            let frame = self.frame();
            if is_it(&frame) {
                return frame;
            }
            self.passed.push(frame);
        }
    }

    /// Receives the next HEADERS, DATA or RST_STREAM of a stream.
    pub fn next_on(&mut self, stream: u32) -> H2Frame {
        let is_it =
            |frame: &H2Frame| frame.stream() == stream && !matches!(frame, H2Frame::WindowUpdate { .. });
        self.find(is_it)
    }

    /// As [`next_on`](Self::next_on); `None` if the connection ends.
    pub fn next_or_end(&mut self, stream: u32) -> Option<H2Frame> {
        let is_it =
            |frame: &H2Frame| frame.stream() == stream && !matches!(frame, H2Frame::WindowUpdate { .. });
        if let Some(at) = self.passed.iter().position(is_it) {
            return Some(self.passed.remove(at));
        }
        loop {
            match self.try_frame() {
                Ok(frame) if is_it(&frame) => return Some(frame),
                Ok(frame) => self.passed.push(frame),
                Err(ended) if ended.starts_with("nothing") => panic!("the stream goes on: {ended}"),
                Err(_) => return None,
            }
        }
    }

    /// Expects HEADERS without END_STREAM with exactly these fields, in this order.
    #[track_caller]
    pub fn gets_headers(&mut self, stream: u32, expected: &str) {
        match self.next_on(stream) {
            H2Frame::Headers { fields, ends: false, .. } => {
                assert_eq!(plain(&fields), expected, "on stream {stream}");
            }
            other => panic!("no head on stream {stream} but {other:?}"),
        }
    }

    /// Expects DATA with exactly these bytes, in any number of frames.
    pub fn gets_data(&mut self, stream: u32, expected: &str) {
        let mut got = Vec::new();
        while got.len() < expected.len() {
            match self.next_on(stream) {
                H2Frame::Data { bytes, .. } => got.extend(bytes),
                other => panic!("no data on stream {stream} but {other:?}"),
            }
        }
        assert_eq!(String::from_utf8_lossy(&got), expected);
    }

    /// Expects RST_STREAM with this code as the next frame of the stream.
    #[track_caller]
    pub fn gets_reset(&mut self, stream: u32, code: u32) {
        assert_eq!(self.next_on(stream), H2Frame::Reset { stream, code });
    }

    pub fn forgets(&mut self) {
        self.passed.clear();
    }

    /// Whether the proxy rejects the request on this stream as malformed: by RST_STREAM, GOAWAY or status 400.
    pub fn is_refused(&mut self, stream: u32) -> bool {
        let is_told = |frame: &H2Frame| frame.stream() == stream || matches!(frame, H2Frame::GoAway { .. });
        match self.find(is_told) {
            H2Frame::Headers { fields, .. } => fields.starts_with(":status: 400\n"),
            H2Frame::Reset { code, .. } | H2Frame::GoAway { code, .. } => code == frame::PROTOCOL_ERROR,
            _ => false,
        }
    }

    /// Receives a whole stream as text: fields, a body between lines of dashes, trailers; or `reset N`.
    pub fn whole(&mut self, stream: u32) -> String {
        let mut text = String::new();
        let mut body = Vec::new();
        loop {
            let frame = self.next_on(stream);
            if !body.is_empty() && !matches!(frame, H2Frame::Data { .. }) {
                text.push_str(&shown(&std::mem::take(&mut body)));
            }
            match frame {
                H2Frame::Headers { fields, ends, .. } => {
                    text.push_str(&plain(&fields));
                    if ends {
                        return text;
                    }
                }
                H2Frame::Data { bytes, ends, .. } => {
                    body.extend(bytes);
                    if ends {
                        text.push_str(&shown(&body));
                        return text;
                    }
                }
                H2Frame::Reset { code, .. } => return format!("{text}reset {code}\n"),
                other => panic!("{other:?} is on no stream"),
            }
        }
    }

    /// Receives the end of the connection. Frames before it are skipped.
    pub fn ends(&mut self) -> H2Ended {
        let mut told = H2Ended::Untold;
        loop {
            let passed = (!self.passed.is_empty()).then(|| Ok(self.passed.remove(0)));
            match passed.unwrap_or_else(|| self.try_frame()) {
                Ok(H2Frame::GoAway { code, .. }) => told = H2Ended::Told(code),
                Ok(_) => {}
                Err(ended) if ended.starts_with("nothing") => panic!("the connection goes on: {ended}"),
                Err(_) => return told,
            }
        }
    }
}

fn shown(body: &[u8]) -> String {
    format!("---\n{}\n---\n", String::from_utf8_lossy(body))
}

/// Replaces the version in Via and the time in Date, which differ between runs.
fn plain(fields: &str) -> String {
    let line = |line: &str| match line.split_once(": ") {
        Some(("via", name)) if name.ends_with(" vanward") => "via: vanward\n".to_owned(),
        Some(("date", date)) if date.ends_with(" GMT") => "date: now\n".to_owned(),
        _ => format!("{line}\n"),
    };
    fields.lines().map(line).collect()
}
