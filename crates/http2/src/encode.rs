//! HPACK encoder: fields to header blocks (RFC 7541).
//!
//! A field that occurs for the second time enters the dynamic table, and takes a byte or two from then on. Fields that
//! change with each message stay out, so that they evict nothing.

use fields::compose::{CommonField, Encode};
use fields::huffman;
use fields::lines::{hash_of, is_line_of};
use fields::table::FieldTable;

use crate::table::{self, SIZE_DEFAULT, STATIC_LEN};

/// Rows of the hash table of fields; each row has several places.
// As many places as the table has room for: 4096 bytes hold at most 128 fields, which count 32 bytes or more each.
const ROWS: usize = 32;
const PLACES: usize = 4;
/// Longest value that enters the dynamic table. Longer ones would evict all others.
const VALUE_MAX: usize = 256;

pub struct HpackEncoder {
    table: FieldTable,
    /// Positions of fields in the dynamic table, by the lowest bits of their hash. The latest is first in its row.
    rows: Box<[[HpackPlace; PLACES]; ROWS]>,
    /// Table size changes to send with the next block: the smallest size, and the last one.
    resized: Option<(usize, usize)>,
    /// Scratch memory for a name in lower case.
    lower: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct HpackPlace {
    hash: u32,
    /// The number of a field with this hash in the dynamic table.
    number: Option<u32>,
}

impl Default for HpackEncoder {
    fn default() -> Self {
        let rows = Box::new([[HpackPlace::default(); PLACES]; ROWS]);
        Self { table: FieldTable::new(SIZE_DEFAULT), rows, resized: None, lower: Vec::new() }
    }
}

impl HpackEncoder {
    /// Applies the peer's table size (RFC 7541 §4.2). We never use more than the default size.
    pub fn resize(&mut self, size: usize) {
        let size = size.min(SIZE_DEFAULT);
        if size != self.resized.map_or(self.table.limit(), |(_, last)| last) {
            // RFC 7541 §4.2: the smallest size in between is sent as well, because it evicts fields.
            let smallest = self.resized.map_or(size, |(smallest, _)| smallest.min(size));
            self.resized = Some((smallest, size));
        }
    }

    pub fn begin(&mut self, block: &mut Vec<u8>) {
        if let Some((smallest, last)) = self.resized.take() {
            for size in [smallest, last] {
                self.table.set_limit(size);
                integer(block, 0x20, 5, size);
            }
        }
    }

    /// Appends a field. The name must be in lower case.
    pub fn field(&mut self, block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let hash = hash_of([name, value]);
        if !self.again(block, hash, |known| known == (name, value)) {
            self.say(block, hash, name, value);
        }
    }

    /// Appends the field of an HTTP/1.1 line without CRLF, unless `is_wanted` rejects its lower-case name. A repeated
    /// line is not parsed again.
    pub(crate) fn line(&mut self, block: &mut Vec<u8>, line: &[u8], is_wanted: impl FnOnce(&[u8]) -> bool) {
        let hash = hash_of([line]);
        // Most lines of a connection repeat. Composing each was a fifth of the instructions of a small request.
        if self.again(block, hash, |known| is_line_of(line, known)) {
            return;
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return };
        let mut lower = std::mem::take(&mut self.lower);
        lower.clear();
        lower.extend_from_slice(&line[..colon]);
        lower.make_ascii_lowercase();
        if is_wanted(&lower) {
            // The path writes one space after the colon; forwarded lines may have none, or more.
            self.say(block, hash, &lower, line[colon + 1..].trim_ascii());
        }
        lower.shrink_to(VALUE_MAX);
        self.lower = lower;
    }

    /// Appends the index of a field with this hash if the dynamic table has it and `is_it` confirms it.
    fn again(&mut self, block: &mut Vec<u8>, hash: u32, is_it: impl FnOnce((&[u8], &[u8])) -> bool) -> bool {
        let row = &mut self.rows[hash as usize % ROWS];
        let Some(at) = row.iter().position(|place| place.hash == hash) else { return false };
        if at > 0 {
            // The last place of a row is replaced next, so a hit moves to the front.
            row[..=at].rotate_right(1);
        }
        let Some(number) = row[0].number else { return false };
        // Numbers wrap around. A distance beyond the table means that the field was evicted.
        let back = (self.table.inserted() as u32).wrapping_sub(number).wrapping_sub(1) as usize;
        // Hashes may collide, so the text decides.
        let is_there = self.table.at(back).is_some_and(is_it);
        if is_there {
            integer(block, 0x80, 7, STATIC_LEN + 1 + back);
        }
        is_there
    }

    /// Appends a literal field. Adds it to the dynamic table when it occurs for the second time.
    fn say(&mut self, block: &mut Vec<u8>, hash: u32, name: &[u8], value: &[u8]) {
        let index = table::index_of(name);
        // RFC 7541 §7.1.3: secrets stay out of every table, here and at later hops.
        // These are authorization, cookie, proxy-authorization and set-cookie.
        let is_secret = matches!(index, 23 | 32 | 49 | 55);
        if !is_secret && value.len() <= VALUE_MAX && self.table.limit() > 0 {
            let row = &mut self.rows[hash as usize % ROWS];
            // `again` has moved a known hash to the front.
            if row[0].hash == hash {
                row[0].number = Some(self.table.inserted() as u32);
                literal(block, 0x40, 6, index, name, value);
                self.table.insert(name, value);
                return;
            }
            row.rotate_right(1);
            row[0] = HpackPlace { hash, number: None };
        }
        literal(block, if is_secret { 0x10 } else { 0 }, 4, index, name, value);
    }

    pub fn fixed(&mut self, block: &mut Vec<u8>, index: u8) {
        block.push(0x80 | index);
    }
}

pub(crate) struct EncodingBlock<'a> {
    pub(crate) encoder: &'a mut HpackEncoder,
    pub(crate) block: &'a mut Vec<u8>,
}

impl Encode for EncodingBlock<'_> {
    #[inline]
    fn common(&mut self, field: CommonField) {
        // RFC 7541 Appendix A.
        let index = match field {
            CommonField::Get => 2,
            CommonField::Post => 3,
            CommonField::Root => 4,
            CommonField::Http => 6,
            CommonField::Https => 7,
            CommonField::Ok => 8,
            CommonField::NotModified => 11,
            CommonField::NotFound => 13,
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

/// RFC 7541 §6.2: a literal field. Its name is an index, if it has one.
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
    use fields::compose::ComposedResponse;

    use super::*;
    use crate::decode::HpackDecoder;

    fn block_of(encoder: &mut HpackEncoder, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value) in fields {
            encoder.field(&mut block, name.as_bytes(), value.as_bytes());
        }
        block
    }

    #[test]
    fn a_repeated_field_takes_a_byte() {
        let mut encoder = HpackEncoder::default();
        let fields = [("server", "vanward"), ("x-one", "1")];
        let lens: Vec<usize> = (0..4).map(|_| block_of(&mut encoder, &fields).len()).collect();
        assert!(lens[1] > 10 && lens[2..] == [2, 2], "{lens:?}");
    }

    #[test]
    fn secret_and_changing_fields_are_not_remembered() {
        let mut encoder = HpackEncoder::default();
        for at in 0..1000 {
            block_of(&mut encoder, &[("set-cookie", "a=b"), ("etag", &format!("{at}"))]);
        }
        assert_eq!(encoder.table.len(), 0);
        assert_eq!(block_of(&mut encoder, &[("authorization", "x")])[0], 0x1f);
    }

    #[test]
    fn a_table_of_nothing_is_kept_to() {
        let mut encoder = HpackEncoder::default();
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
    fn lines_are_encoded_like_their_fields() {
        let mut encoder = HpackEncoder::default();
        let mut decoder = HpackDecoder::default();
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
    fn fields_of_a_handshake_are_left_out_even_if_known() {
        let (mut encoder, mut block) = (HpackEncoder::default(), Vec::new());
        let mut decoder = HpackDecoder::default();
        for (status, expected) in
            [("200 OK", 2), ("200 OK", 2), ("200 OK", 2), ("101 Switching Protocols", 1)]
        {
            let text = format!("HTTP/1.1 {status}\r\nSec-WebSocket-Accept: k\r\n\r\n");
            block.clear();
            let response = ComposedResponse::new(text.as_bytes()).expect("is a head");
            response.compose(&mut EncodingBlock { encoder: &mut encoder, block: &mut block });
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
                (HpackEncoder::default(), HpackDecoder::default(), loona_hpack::Decoder::new());
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
