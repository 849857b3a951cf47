//! Server-sent events, parsed like a browser (WHATWG HTML §9.2.6). Bytes in, events out. No I/O.

use memchr::memchr2;

/// Maximum size of a line or of the data of an event.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// An empty `name` means `message`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SseEvent<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) data: &'a [u8],
    /// The last event ID: of this event, or of an earlier one.
    pub(crate) id: &'a [u8],
    /// Whether this event has set the ID.
    pub(crate) has_own_id: bool,
}

/// A line or the data of an event is larger than 16 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge;

#[derive(Debug, Default)]
pub(crate) struct SseReader {
    line: Vec<u8>,
    data: Vec<u8>,
    name: Vec<u8>,
    next_id: Vec<u8>,
    has_own_id: bool,
    id: Vec<u8>,
    retry_ms: Option<u64>,
    has_begun: bool,
    /// The last line ended in CR, so an LF belongs to it.
    is_after_cr: bool,
}

impl SseReader {
    /// Reads the next bytes, and passes complete events to `take`. The stream's end drops an event without empty line.
    pub(crate) fn read(
        &mut self,
        mut input: &[u8],
        mut take: impl FnMut(SseEvent<'_>),
    ) -> Result<(), TooLarge> {
        while !input.is_empty() {
            if std::mem::take(&mut self.is_after_cr) && input[0] == b'\n' {
                input = &input[1..];
                continue;
            }
            let Some(end) = memchr2(b'\r', b'\n', input) else {
                self.line.extend_from_slice(input);
                return if self.line.len() > BYTES_MAX { Err(TooLarge) } else { Ok(()) };
            };
            self.is_after_cr = input[end] == b'\r';
            if self.line.is_empty() {
                self.end_line(&input[..end], &mut take)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&input[..end]);
                self.end_line(&line, &mut take)?;
                line.clear();
                self.line = line;
            }
            input = &input[end + 1..];
        }
        Ok(())
    }

    /// The server's time to wait before a reconnect.
    pub(crate) fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// ID of the last event, for `Last-Event-ID`.
    pub(crate) fn last_id(&self) -> &[u8] {
        &self.id
    }

    /// Prepares for another connection: keeps only the ID and the time to wait.
    pub(crate) fn restart(&mut self) {
        *self = Self {
            next_id: self.id.clone(),
            id: std::mem::take(&mut self.id),
            retry_ms: self.retry_ms,
            ..Self::default()
        };
    }

    fn end_line(&mut self, line: &[u8], take: &mut impl FnMut(SseEvent<'_>)) -> Result<(), TooLarge> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        // §9.2.5: one leading byte order mark is not part of the stream.
        let line = if is_first { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        if line.is_empty() {
            self.dispatch(take);
            return Ok(());
        }
        let (field, value) = match memchr::memchr(b':', line) {
            None => (line, &[][..]),
            Some(at) => (&line[..at], line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..])),
        };
        match field {
            b"data" => {
                if self.data.len() + value.len() > BYTES_MAX {
                    return Err(TooLarge);
                }
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"event" => replace(&mut self.name, value),
            b"id" if !value.contains(&0) => {
                replace(&mut self.next_id, value);
                self.has_own_id = true;
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let digits =
                    |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
                self.retry_ms = Some(value.iter().fold(0, digits));
            }
            // A comment, or an unknown field.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, take: &mut impl FnMut(SseEvent<'_>)) {
        replace(&mut self.id, &self.next_id);
        // Without a data field nothing is dispatched; with an empty one there is a line end.
        if let [data @ .., _] = self.data.as_slice() {
            take(SseEvent { name: &self.name, data, id: &self.id, has_own_id: self.has_own_id });
        }
        self.has_own_id = false;
        self.data.clear();
        self.name.clear();
    }
}

fn replace(text: &mut Vec<u8>, value: &[u8]) {
    text.clear();
    text.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Name, data and ID of each event, read in pieces of this size.
    fn read(input: &[u8], size: usize) -> Vec<[String; 3]> {
        let (mut events, mut found) = (SseReader::default(), Vec::new());
        for piece in input.chunks(size) {
            let take = |event: SseEvent<'_>| {
                found.push(
                    [event.name, event.data, event.id].map(|text| String::from_utf8_lossy(text).into_owned()),
                );
            };
            events.read(piece, take).expect("short lines");
        }
        found
    }

    #[test]
    fn whatwg_9_2_6_streams_are_read_as_the_examples_say() {
        type Expected<'a> = &'a [[&'a str; 3]];
        let cases: [(&str, Expected<'_>); 13] = [
            ("data: YHOO\ndata: +2\ndata: 10\n\n", &[["", "YHOO\n+2\n10", ""]]),
            (
                ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n",
                &[["", "first event", "1"], ["", "second event", ""]],
            ),
            ("data\n\ndata\ndata\n\ndata:", &[["", "", ""], ["", "\n", ""]]),
            ("data:test\n\ndata: test\n\n", &[["", "test", ""], ["", "test", ""]]),
            ("event: add\ndata: 7\n\ndata: 8\n\n", &[["add", "7", ""], ["", "8", ""]]),
            ("id: a\n\ndata: x\n\nid: b\0c\ndata: y\n\n", &[["", "x", "a"], ["", "y", "a"]]),
            ("data: a\r\ndata: b\rdata: c\n\r\ndata: d\r\r", &[["", "a\nb\nc", ""], ["", "d", ""]]),
            ("\u{feff}data: a\n\n\u{feff}data: b\n\n", &[["", "a", ""]]),
            (" data: a\n\nDATA: a\n\nother: a\n\n:data: a\n\n", &[]),
            ("data: a:b: c\n\n", &[["", "a:b: c", ""]]),
            ("event: x\n\ndata: a\n\n", &[["", "a", ""]]),
            ("data: a", &[]),
            ("data: a\n", &[]),
        ];
        for (input, expected) in cases {
            for size in 1..=input.len() {
                assert_eq!(read(input.as_bytes(), size), expected, "{input:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_wait_is_of_digits_and_an_id_outlives_the_connection() {
        let mut events = SseReader::default();
        let input = b"retry: 1500\nretry: x\nretry:\nretry: -1\nid: 7\ndata: a\n\nid: 8\ndata: lost";
        events.read(input, |_| {}).expect("short lines");
        assert_eq!((events.retry_ms(), events.last_id()), (Some(1500), &b"7"[..]));
        events.restart();
        let take = |event: SseEvent<'_>| {
            assert_eq!((event.data, event.id, event.has_own_id), (&b"b"[..], &b"7"[..], false));
        };
        events.read(b"data: b\n\n", take).expect("short lines");
        assert_eq!((events.retry_ms(), events.last_id()), (Some(1500), &b"7"[..]));
    }

    #[test]
    fn endless_lines_and_data_are_refused() {
        let piece = vec![b'a'; 1 << 20];
        let mut events = SseReader::default();
        assert!((0..17).any(|_| events.read(&piece, |_| {}).is_err()));
        let line = [b"data: ", &piece[..], b"\n"].concat();
        let mut events = SseReader::default();
        assert!((0..17).any(|_| events.read(&line, |_| {}).is_err()));
    }

    proptest! {
        #[test]
        fn any_split_reads_alike(input in "((data|id|event|retry)?:? ?[a:0]{0,3}(\r|\n|\r\n|\n\n)){0,12}", size in 1usize..9) {
            prop_assert_eq!(read(input.as_bytes(), size), read(input.as_bytes(), input.len().max(1)));
        }
    }
}
