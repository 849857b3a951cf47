//! Receive buffer of a connection. A connection without unread bytes returns its buffer to the worker.

use crate::request::RequestRefusal;

/// Initial size of a buffer; a long head makes it grow.
const BUFFER_BYTES: usize = 64 * 1024;

/// Larger than a proxy's usual limit, so that tests show the limit of the proxy.
pub(crate) const HEAD_BYTES_MAX: usize = 128 * 1024;

/// Maximum number of spare buffers that a worker keeps.
const SPARE_BUFFERS_MAX: usize = 64;

/// The received bytes are `start..end` of `bytes`.
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// Number of received bytes already searched for the end of a head.
    scanned: usize,
}

impl Buffer {
    fn new() -> Self {
        Self { bytes: vec![0; BUFFER_BYTES].into_boxed_slice(), start: 0, end: 0, scanned: 0 }
    }

    /// The bytes that were received and not yet consumed.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn consume(&mut self, length: usize) {
        assert!(length <= self.end - self.start, "consumed more than was received");
        self.start += length;
        self.scanned = 0;
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Free space for received bytes, at least one byte. Empty if the buffer has its maximum size.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.end == self.bytes.len() {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            } else if self.bytes.len() < HEAD_BYTES_MAX {
                let mut larger = vec![0; (self.bytes.len() * 2).min(HEAD_BYTES_MAX)].into_boxed_slice();
                larger[..self.end].copy_from_slice(&self.bytes);
                self.bytes = larger;
            }
        }
        &mut self.bytes[self.end..]
    }

    /// Records that `length` bytes were received into [`Buffer::room`].
    pub(crate) fn received(&mut self, length: usize) {
        assert!(length <= self.bytes.len() - self.end, "received more than there was room for");
        self.end += length;
    }

    /// Length of the complete head at the start of the bytes, with its blank line. Searches each byte once.
    pub(crate) fn head_length(&mut self) -> Result<Option<usize>, RequestRefusal> {
        // RFC 9112 §2.2: an empty line before the request line is skipped.
        while self.filled().starts_with(b"\r\n") {
            self.consume(2);
        }
        let bytes = self.filled();
        match bytes {
            [] | [b'\r'] => return Ok(None),
            [first, ..] if !first.is_ascii_graphic() => return Err(RequestRefusal::Head),
            _ => {}
        }
        for position in memchr::memchr_iter(b'\n', &bytes[self.scanned..]) {
            let line_feed = self.scanned + position;
            if !bytes[..line_feed].ends_with(b"\r") {
                return Err(RequestRefusal::BareLineFeed);
            }
            if bytes[..line_feed].ends_with(b"\r\n\r") {
                return Ok(Some(line_feed + 1));
            }
        }
        self.scanned = self.end - self.start;
        if self.scanned >= HEAD_BYTES_MAX { Err(RequestRefusal::HeadTooLarge) } else { Ok(None) }
    }
}

/// Spare buffers of a worker. The one used last is taken first.
#[derive(Default)]
pub(crate) struct Spare {
    buffers: Vec<Buffer>,
}

impl Spare {
    pub(crate) fn take(&mut self) -> Buffer {
        self.buffers.pop().unwrap_or_else(Buffer::new)
    }

    /// Takes back an empty buffer. Frees it if it has grown, or if there are enough spare buffers.
    pub(crate) fn give_back(&mut self, buffer: Buffer) {
        assert!(buffer.is_empty(), "a spare buffer holds nobody's bytes");
        if buffer.bytes.len() == BUFFER_BYTES && self.buffers.len() < SPARE_BUFFERS_MAX {
            self.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(buffer: &mut Buffer, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = buffer.room();
            let length = room.len().min(bytes.len());
            assert!(length > 0, "no room");
            room[..length].copy_from_slice(&bytes[..length]);
            buffer.received(length);
            bytes = &bytes[length..];
        }
    }

    #[test]
    fn a_head_is_found_however_it_is_split() {
        let bytes = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
        for split in 0..bytes.len() {
            let mut buffer = Buffer::new();
            let mut found = None;
            for part in [&bytes[..split], &bytes[split..]] {
                fill(&mut buffer, part);
                found = buffer.head_length().expect("is well-formed");
            }
            assert_eq!(found, Some(27), "split at {split}");
        }
    }

    #[test]
    fn a_bare_line_feed_is_refused_at_once() {
        for bytes in
            [&b"GET / HTTP/1.1\n"[..], b"GET / HTTP/1.1\r\nHost: a\n\r\n", b"\n", b"GET / HTTP/1.1\r\n\n"]
        {
            let mut buffer = Buffer::new();
            fill(&mut buffer, bytes);
            assert!(buffer.head_length().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_head_has_a_limit() {
        let mut buffer = Buffer::new();
        fill(&mut buffer, b"GET / HTTP/1.1\r\na: ");
        loop {
            let room = buffer.room();
            assert!(!room.is_empty());
            room.fill(b'a');
            let length = room.len();
            buffer.received(length);
            match buffer.head_length() {
                Ok(found) => assert_eq!(found, None),
                Err(refusal) => break assert_eq!(refusal, RequestRefusal::HeadTooLarge),
            }
        }
        assert_eq!(buffer.filled().len(), HEAD_BYTES_MAX);
    }

    #[test]
    fn room_comes_back_with_what_was_consumed() {
        let mut buffer = Buffer::new();
        for round in 0..10 {
            fill(&mut buffer, &vec![round; 50_000]);
            assert_eq!(buffer.filled(), vec![round; 50_000]);
            buffer.consume(49_999);
            assert_eq!(buffer.filled(), [round]);
            buffer.consume(1);
        }
        assert_eq!(buffer.bytes.len(), BUFFER_BYTES);
    }
}
