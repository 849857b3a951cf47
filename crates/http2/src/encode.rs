//! HPACK encoder: fields to header blocks (RFC 7541). A field that was sent twice is put into the dynamic table, and
//! takes a byte or two from then on. Fields that change with each message are not, so that they evict nothing.

use fields::compose::{Common, Encode};
use fields::huffman;
use fields::lines::{hash_of, is_line_of};
use fields::table::Table;

use crate::table::{self, SIZE_DEFAULT, STATIC_LEN};

/// The number of hash rows for fields; each row has several places.
const ROWS: usize = 32;
const PLACES: usize = 4;
/// The longest value that is put into the dynamic table. Longer ones would evict all others.
const VALUE_MAX: usize = 256;

/// Encodes the header blocks of one connection.
pub struct Encoder {
    table: Table,
    /// Where fields are in the dynamic table, by the lowest bits of their hash. The latest is first in its row.
    rows: Box<[[Place; PLACES]; ROWS]>,
    /// Table size changes to send with the next block: the smallest size, and the last one.
    resized: Option<(usize, usize)>,
    /// Scratch memory for a name in lower case.
    lower: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    /// The hash of a field that was sent.
    hash: u32,
    /// The number of a field with this hash in the dynamic table.
    number: Option<u32>,
}

impl Default for Encoder {
    fn default() -> Self {
        let rows = Box::new([[Place::default(); PLACES]; ROWS]);
        Self { table: Table::new(SIZE_DEFAULT), rows, resized: None, lower: Vec::new() }
    }
}

impl Encoder {
    /// Applies the peer's table size (RFC 7541 §4.2). We never use more than the default size.
    pub fn resize(&mut self, size: usize) {
        let size = size.min(SIZE_DEFAULT);
        if size != self.resized.map_or(self.table.limit(), |(_, last)| last) {
            let smallest = self.resized.map_or(size, |(smallest, _)| smallest.min(size));
            self.resized = Some((smallest, size));
        }
    }

    /// Starts a header block.
    pub fn begin(&mut self, block: &mut Vec<u8>) {
        if let Some((smallest, last)) = self.resized.take() {
            for size in [smallest, last] {
                self.table.set_limit(size);
                integer(block, 0x20, 5, size);
            }
        }
    }

    /// Appends a field; the name must be in lower case.
    pub fn field(&mut self, block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let hash = hash_of([name, value]);
        if !self.again(block, hash, |known| known == (name, value)) {
            self.say(block, hash, name, value);
        }
    }

    /// Appends the field of an HTTP/1.1 line without CRLF, unless `is_wanted` rejects its lower-case name. A line that
    /// was sent before is not parsed again.
    pub(crate) fn line(&mut self, block: &mut Vec<u8>, line: &[u8], is_wanted: impl FnOnce(&[u8]) -> bool) {
        let hash = hash_of([line]);
        if self.again(block, hash, |known| is_line_of(line, known)) {
            return;
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return };
        let mut lower = std::mem::take(&mut self.lower);
        lower.clear();
        lower.extend_from_slice(&line[..colon]);
        lower.make_ascii_lowercase();
        if is_wanted(&lower) {
            // The path writes one space; what is passed on as it came may have none, or more.
            self.say(block, hash, &lower, line[colon + 1..].trim_ascii());
        }
        lower.shrink_to(VALUE_MAX);
        self.lower = lower;
    }

    /// Refers to the field with this hash that is in the table, if it is the one that is meant.
    fn again(&mut self, block: &mut Vec<u8>, hash: u32, is_it: impl FnOnce((&[u8], &[u8])) -> bool) -> bool {
        let row = &mut self.rows[hash as usize % ROWS];
        let Some(at) = row.iter().position(|place| place.hash == hash) else { return false };
        if at > 0 {
            row[..=at].rotate_right(1);
        }
        let Some(number) = row[0].number else { return false };
        let back = (self.table.inserted() as u32).wrapping_sub(number).wrapping_sub(1) as usize;
        let is_there = self.table.at(back).is_some_and(is_it);
        if is_there {
            integer(block, 0x80, 7, STATIC_LEN + 1 + back);
        }
        is_there
    }

    /// Writes a field out, and remembers it when it is said for the second time.
    fn say(&mut self, block: &mut Vec<u8>, hash: u32, name: &[u8], value: &[u8]) {
        let index = table::index_of(name);
        // RFC 7541 §7.1.3: what is secret is kept out of every table, here and further on.
        let is_secret = matches!(index, 23 | 32 | 49 | 55);
        if !is_secret && value.len() <= VALUE_MAX && self.table.limit() > 0 {
            let row = &mut self.rows[hash as usize % ROWS];
            if row[0].hash == hash {
                row[0].number = Some(self.table.inserted() as u32);
                literal(block, 0x40, 6, index, name, value);
                self.table.insert(name, value);
                return;
            }
            row.rotate_right(1);
            row[0] = Place { hash, number: None };
        }
        literal(block, if is_secret { 0x10 } else { 0 }, 4, index, name, value);
    }

    /// Appends the field with this index of the static table.
    pub fn fixed(&mut self, block: &mut Vec<u8>, index: u8) {
        block.push(0x80 | index);
    }
}

/// A header block that is being encoded.
pub(crate) struct Block<'a> {
    pub(crate) encoder: &'a mut Encoder,
    pub(crate) block: &'a mut Vec<u8>,
}

impl Encode for Block<'_> {
    #[inline]
    fn common(&mut self, field: Common) {
        // RFC 7541 Appendix A.
        let index = match field {
            Common::Get => 2,
            Common::Post => 3,
            Common::Root => 4,
            Common::Http => 6,
            Common::Https => 7,
            Common::Ok => 8,
            Common::NotModified => 11,
            Common::NotFound => 13,
        };
        self.encoder.fixed(self.block, index);
    }

    #[inline]
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.encoder.field(self.block, name, value);
    }

    #[inline]
    fn line(&mut self, line: &[u8], is_wanted: impl FnOnce(&[u8]) -> bool) {
        self.encoder.line(self.block, line, is_wanted);
    }
}

/// RFC 7541 §6.2: a field that is written out, its name by the index where it has one.
fn literal(block: &mut Vec<u8>, kind: u8, bits: u32, index: u8, name: &[u8], value: &[u8]) {
    integer(block, kind, bits, usize::from(index));
    if index == 0 {
        string(block, name);
    }
    string(block, value);
}

/// RFC 7541 §5.1.
fn integer(block: &mut Vec<u8>, kind: u8, bits: u32, value: usize) {
    let mask = (1 << bits) - 1;
    if value < mask {
        return block.push(kind | value as u8);
    }
    block.push(kind | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// RFC 7541 §5.2.
fn string(block: &mut Vec<u8>, text: &[u8]) {
    let len = huffman::coded_len(text);
    if len < text.len() {
        integer(block, 0x80, 7, len);
        huffman::encode(text, block);
    } else {
        integer(block, 0, 7, text.len());
        block.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use fields::compose::Response;

    use super::*;
    use crate::decode::Decoder;

    fn block_of(encoder: &mut Encoder, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value) in fields {
            encoder.field(&mut block, name.as_bytes(), value.as_bytes());
        }
        block
    }

    #[test]
    fn what_is_said_again_takes_a_byte() {
        let mut encoder = Encoder::default();
        let fields = [("server", "vanward"), ("x-one", "1")];
        let lens: Vec<usize> = (0..4).map(|_| block_of(&mut encoder, &fields).len()).collect();
        assert!(lens[1] > 10 && lens[2..] == [2, 2], "{lens:?}");
    }

    #[test]
    fn what_is_secret_or_changes_is_not_remembered() {
        let mut encoder = Encoder::default();
        for at in 0..1000 {
            block_of(&mut encoder, &[("set-cookie", "a=b"), ("etag", &format!("{at}"))]);
        }
        assert_eq!(encoder.table.len(), 0);
        assert_eq!(block_of(&mut encoder, &[("authorization", "x")])[0], 0x1f);
    }

    #[test]
    fn a_table_of_nothing_is_kept_to() {
        let mut encoder = Encoder::default();
        let fields = [("server", "vanward")];
        block_of(&mut encoder, &fields);
        block_of(&mut encoder, &fields);
        encoder.resize(0);
        encoder.resize(1 << 20);
        assert_eq!(block_of(&mut encoder, &fields)[..4], [0x20, 0x3f, 0xe1, 0x1f]);
        encoder.resize(0);
        assert_eq!(block_of(&mut encoder, &fields)[..2], [0x20, 0x20]);
        for _ in 0..3 {
            assert!(block_of(&mut encoder, &fields).len() > 2);
        }
    }

    #[test]
    fn lines_say_what_they_were_taken_apart_to() {
        let mut encoder = Encoder::default();
        let mut decoder = Decoder::default();
        let mut said = |line: &str| {
            let (mut block, mut said) = (Vec::new(), String::new());
            encoder.line(&mut block, line.as_bytes(), |name| name != b"te");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            decoder.decode(&block, |name, value| said += &format!("{}={}", text(name), text(value))).unwrap();
            (said, block.len())
        };
        for (line, expected) in [
            ("Server: a", "server=a"),
            ("server: a", "server=a"),
            ("Server:a", "server=a"),
            ("Server:  a ", "server=a"),
            ("Server: ", "server="),
            ("X: y: z", "x=y: z"),
            ("Set-Cookie: a=b", "set-cookie=a=b"),
            ("TE: trailers", ""),
        ] {
            let lens: Vec<_> = (0..4)
                .map(|_| said(line))
                .inspect(|(said, _)| assert_eq!(said, expected, "{line}"))
                .map(|(_, len)| len)
                .collect();
            let is_forgotten = line.contains("Cookie");
            assert_eq!(lens[3] > 1, is_forgotten, "{line} {lens:?}");
        }
    }

    #[test]
    fn what_belongs_to_a_handshake_is_left_out_even_if_it_was_said_before() {
        let (mut encoder, mut block) = (Encoder::default(), Vec::new());
        let mut decoder = Decoder::default();
        for (status, expected) in
            [("200 OK", 2), ("200 OK", 2), ("200 OK", 2), ("101 Switching Protocols", 1)]
        {
            let text = format!("HTTP/1.1 {status}\r\nSec-WebSocket-Accept: k\r\n\r\n");
            block.clear();
            let response = Response::of(text.as_bytes()).expect("is a head");
            response.compose(&mut Block { encoder: &mut encoder, block: &mut block });
            let mut count = 0;
            decoder.decode(&block, |_, _| count += 1).expect("is a block");
            assert_eq!(count, expected, "{text}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]

        #[test]
        fn two_decoders_understand(
            lists in proptest::collection::vec(proptest::collection::vec(("[a-c]{1,3}", "[x-z]{0,2}"), 1..8), 0..40),
            sizes: Vec<u16>,
        ) {
            let (mut encoder, mut ours, mut theirs) =
                (Encoder::default(), Decoder::default(), loona_hpack::Decoder::new());
            let mut sizes = sizes.into_iter();
            for list in lists {
                let fields: Vec<_> = list.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                let block = block_of(&mut encoder, &fields);
                let expected: Vec<(Vec<u8>, Vec<u8>)> =
                    list.iter().map(|(name, value)| (name.clone().into(), value.clone().into())).collect();
                let mut got = Vec::new();
                let outcome = ours.decode(&block, |name, value| got.push((name.to_vec(), value.to_vec())));
                assert_eq!((outcome, &got), (Ok(()), &expected));
                assert_eq!(theirs.decode(&block).ok(), Some(expected));
                if let Some(size) = sizes.next() {
                    encoder.resize(usize::from(size));
                }
            }
        }
    }
}
