//! QPACK encoder: fields to field sections (RFC 9204). A field that was sent twice is put into the dynamic table, and
//! takes a byte or two from then on. Fields that change with each message are not, so that they evict nothing.
//!
//! Sections refer to what the peer has not acknowledged only while few enough streams may be blocked by that.

use std::collections::VecDeque;

use fields::compose::{Common, Encode};
use fields::lines::{hash_of, is_line_of};
use fields::table::Table;

use crate::connection::Broken;
use crate::rules;
use crate::strings::{Unread, integer, push_integer, push_string};
use crate::table::{self, Found};

/// The number of hash rows for fields; each row has several places.
const ROWS: usize = 16;
const PLACES: usize = 4;
/// The longest value that is put into the dynamic table. Longer ones would evict all others.
const VALUE_MAX: usize = 256;
/// The most bytes of the dynamic table that are used, whatever the peer allows.
const TABLE_MAX: usize = 4096;
/// The most streams that may be blocked by what the peer has not received, whatever it allows.
const BLOCKED_MAX: u64 = 16;
/// The most sections with references that the peer has not acknowledged. Further sections have none.
const SECTIONS_MAX: usize = 128;
/// The size that an entry counts beyond its bytes (RFC 9204 §3.2.1).
const ENTRY_OVERHEAD: usize = 32;

/// Encodes the field sections of one connection.
pub struct Encoder {
    table: Table,
    /// The number of fields that the largest table allowed by the peer has room for (RFC 9204 §4.5.1.1).
    entries_max: u64,
    /// How many streams the peer allows to be blocked.
    blocked_max: u64,
    /// Where fields are in the tables, by the lowest bits of their hash. The latest is first in its row.
    rows: Box<[[Place; PLACES]; ROWS]>,
    /// Scratch memory for a name in lower case.
    lower: Vec<u8>,
    /// Instructions for the encoder stream.
    instructions: Vec<u8>,
    /// How many insertions the peer has acknowledged.
    known: u64,
    /// Sections with references that the peer has not acknowledged, in order.
    sections: VecDeque<Section>,
    current: Current,
    /// The field lines of the current section.
    lines: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    /// The hash of a field that was sent.
    hash: u32,
    whereabouts: Whereabouts,
}

/// Where a field is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Whereabouts {
    /// In no table.
    #[default]
    Nowhere,
    /// In the static table, at this index.
    Static(u8),
    /// In the dynamic table, with these lowest bits of its number.
    Dynamic(u32),
}

/// A section with references.
#[derive(Debug, Clone, Copy)]
struct Section {
    stream: u64,
    /// How many insertions it requires.
    required: u64,
    /// The oldest field that it refers to.
    oldest: u64,
}

/// The section that is being encoded.
#[derive(Clone, Copy, Default)]
struct Current {
    stream: u64,
    /// How many fields were inserted before it.
    base: u64,
    required: u64,
    oldest: u64,
    /// Whether it may refer to the dynamic table, and insert.
    may_refer: bool,
    may_insert: bool,
    /// The size of its fields (RFC 9114 §4.2.2).
    size: usize,
}

/// What is known of a field.
enum Known {
    /// It was encoded by a reference.
    Done,
    /// It is in the dynamic table, but cannot be referred to now.
    Later,
    Nothing,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            table: Table::new(0),
            entries_max: 0,
            blocked_max: 0,
            rows: Box::new([[Place::default(); PLACES]; ROWS]),
            lower: Vec::new(),
            instructions: Vec::new(),
            known: 0,
            sections: VecDeque::new(),
            current: Current::default(),
            lines: Vec::new(),
        }
    }
}

impl Encoder {
    /// Applies the peer's settings (RFC 9204 §5), which come once.
    pub fn allow(&mut self, table_bytes: u64, blocked_streams: u64) {
        self.entries_max = table_bytes / ENTRY_OVERHEAD as u64;
        self.blocked_max = blocked_streams.min(BLOCKED_MAX);
        let capacity = table_bytes.min(TABLE_MAX as u64);
        if capacity > 0 {
            self.table.set_limit(capacity as usize);
            push_integer(&mut self.instructions, 0x20, 5, capacity);
        }
    }

    /// Starts the field section of a stream. `may_insert` says whether the encoder stream has taken all instructions:
    /// others must not wait behind it for flow control, while sections need them (RFC 9204 §2.1.3).
    pub fn begin(&mut self, stream: u64, may_insert: bool) {
        self.lines.clear();
        self.current = Current {
            stream,
            base: self.table.inserted(),
            required: 0,
            oldest: u64::MAX,
            may_refer: self.sections.len() < SECTIONS_MAX,
            may_insert: may_insert && self.table.limit() > 0,
            size: 0,
        };
    }

    /// The size of the current section's fields (RFC 9114 §4.2.2).
    pub fn size(&self) -> usize {
        self.current.size
    }

    /// Appends the current section, and notes what it refers to.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        let Current { stream, base, required, oldest, .. } = self.current;
        // RFC 9204 §4.5.1.
        let encoded = if required == 0 { 0 } else { required % (2 * self.entries_max) + 1 };
        push_integer(out, 0, 8, encoded);
        if required == 0 {
            out.push(0);
        } else if base >= required {
            push_integer(out, 0, 7, base - required);
        } else {
            push_integer(out, 0x80, 7, required - base - 1);
        }
        out.extend_from_slice(&self.lines);
        if required > 0 {
            self.sections.push_back(Section { stream, required, oldest });
        }
    }

    /// Takes the instructions for the encoder stream.
    pub fn take_instructions(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.instructions);
    }

    /// Takes bytes of the peer's decoder stream (RFC 9204 §4.4); returns how many were whole instructions.
    ///
    /// # Errors
    /// If an instruction acknowledges what was not sent.
    pub fn acknowledged(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            let bits = if first & 0x80 != 0 { 7 } else { 6 };
            let number = match integer(&mut rest, bits) {
                Ok(number) => number,
                Err(Unread::Incomplete) => break,
                Err(Unread::Invalid) => return Err(rules::BAD_ACKNOWLEDGMENT),
            };
            match first {
                // RFC 9204 §4.4.1: the oldest section of this stream.
                0x80.. => {
                    let at = self.sections.iter().position(|section| section.stream == number);
                    let section = at.and_then(|at| self.sections.remove(at));
                    let section = section.ok_or(rules::BAD_ACKNOWLEDGMENT)?;
                    self.known = self.known.max(section.required);
                }
                // RFC 9204 §4.4.2.
                0x40.. => self.sections.retain(|section| section.stream != number),
                // RFC 9204 §4.4.3.
                _ => {
                    self.known = self.known.checked_add(number).ok_or(rules::BAD_ACKNOWLEDGMENT)?;
                    if number == 0 || self.known > self.table.inserted() {
                        return Err(rules::BAD_ACKNOWLEDGMENT);
                    }
                }
            }
        }
        Ok(bytes.len() - rest.len())
    }

    /// Refers to the field with this hash that is in a table, if it is the one that is meant.
    fn again(&mut self, hash: u32, is_it: impl FnOnce((&[u8], &[u8])) -> bool) -> Known {
        let row = &mut self.rows[hash as usize % ROWS];
        let Some(at) = row.iter().position(|place| place.hash == hash) else { return Known::Nothing };
        if at > 0 {
            row[..=at].rotate_right(1);
        }
        match row[0].whereabouts {
            Whereabouts::Nowhere => Known::Nothing,
            Whereabouts::Static(index) => {
                let Some(field) = table::fixed(u64::from(index)).filter(|&field| is_it(field)) else {
                    return Known::Nothing;
                };
                self.count(field.0.len() + field.1.len());
                push_integer(&mut self.lines, 0xc0, 6, u64::from(index));
                Known::Done
            }
            Whereabouts::Dynamic(number) => {
                let back = (self.table.inserted() as u32).wrapping_sub(number).wrapping_sub(1);
                let Some((name, value)) = self.table.at(back as usize).filter(|&field| is_it(field)) else {
                    return Known::Nothing;
                };
                let len = name.len() + value.len();
                let number = self.table.inserted() - u64::from(back) - 1;
                if !self.may_refer_to(number) {
                    return Known::Later;
                }
                self.count(len);
                self.refer(number);
                Known::Done
            }
        }
    }

    /// Whether the current section may refer to a field of the dynamic table.
    fn may_refer_to(&self, number: u64) -> bool {
        let Current { stream, required, may_refer, .. } = self.current;
        if !may_refer || number < self.known || required > self.known {
            return may_refer;
        }
        // RFC 9204 §2.1.2: streams with sections that may be blocked, each once; this one among them or not.
        let mut streams: Vec<u64> = Vec::new();
        for section in self.sections.iter().filter(|section| section.required > self.known) {
            if section.stream == stream {
                return true;
            }
            if !streams.contains(&section.stream) {
                streams.push(section.stream);
            }
        }
        (streams.len() as u64) < self.blocked_max
    }

    /// Adds a reference to a field of the dynamic table.
    fn refer(&mut self, number: u64) {
        let current = &mut self.current;
        current.required = current.required.max(number + 1);
        current.oldest = current.oldest.min(number);
        match current.base.checked_sub(number + 1) {
            Some(index) => push_integer(&mut self.lines, 0x80, 6, index),
            None => push_integer(&mut self.lines, 0x10, 4, number - current.base),
        }
    }

    /// Writes a field out, and remembers it when it is said for the second time.
    fn say(&mut self, hash: u32, name: &[u8], value: &[u8], is_in_table: bool) {
        self.count(name.len() + value.len());
        let found = table::find(name, value);
        // RFC 9204 §7.1.3: what is secret is kept out of every table, here and further on.
        let is_secret = matches!(name, b"authorization" | b"cookie" | b"proxy-authorization" | b"set-cookie");
        if !is_secret && !is_in_table {
            let row = &mut self.rows[hash as usize % ROWS];
            let is_second = row[0].hash == hash;
            if let Found::Field(index) = found {
                if !is_second {
                    row.rotate_right(1);
                }
                row[0] = Place { hash, whereabouts: Whereabouts::Static(index) };
                return push_integer(&mut self.lines, 0xc0, 6, u64::from(index));
            }
            if value.len() <= VALUE_MAX && self.table.limit() > 0 {
                if !is_second {
                    row.rotate_right(1);
                    row[0] = Place { hash, whereabouts: Whereabouts::Nowhere };
                } else if self.insert(found, name, value) {
                    let number = self.table.inserted() - 1;
                    self.rows[hash as usize % ROWS][0].whereabouts = Whereabouts::Dynamic(number as u32);
                    if self.may_refer_to(number) {
                        return self.refer(number);
                    }
                }
            }
        }
        let lines = &mut self.lines;
        let never = u8::from(is_secret);
        match found {
            // RFC 9204 §4.5.4, §4.5.6.
            Found::Field(index) | Found::Name(index) => {
                push_integer(lines, 0x50 | never << 5, 4, u64::from(index));
            }
            Found::Nothing => push_string(lines, 0x20 | never << 4, 3, name),
        }
        push_string(lines, 0, 7, value);
    }

    /// Inserts a field into the dynamic table, unless it would evict what is still needed.
    fn insert(&mut self, found: Found, name: &[u8], value: &[u8]) -> bool {
        if !self.current.may_insert {
            return false;
        }
        let Some(evicted) = self.table.evicted_by(name, value) else { return false };
        if evicted > 0 {
            // RFC 9204 §2.1.1: what is evicted is acknowledged, and no section refers to it.
            let first = self.table.inserted() - self.table.len() as u64;
            let sections = self.sections.iter().map(|section| section.oldest);
            let needed = sections.chain([self.current.oldest]).min().unwrap_or(u64::MAX);
            if first + evicted as u64 > self.known.min(needed) {
                return false;
            }
        }
        match found {
            // RFC 9204 §4.3.2, §4.3.3.
            Found::Field(index) | Found::Name(index) => {
                push_integer(&mut self.instructions, 0xc0, 6, u64::from(index));
            }
            Found::Nothing => push_string(&mut self.instructions, 0x40, 5, name),
        }
        push_string(&mut self.instructions, 0, 7, value);
        self.table.insert(name, value);
        true
    }

    fn count(&mut self, len: usize) {
        self.current.size += len + ENTRY_OVERHEAD;
    }
}

impl Encode for Encoder {
    #[inline]
    fn common(&mut self, field: Common) {
        // RFC 9204 Appendix A.
        let index: u8 = match field {
            Common::Root => 1,
            Common::Get => 17,
            Common::Post => 20,
            Common::Http => 22,
            Common::Https => 23,
            Common::Ok => 25,
            Common::NotModified => 26,
            Common::NotFound => 27,
        };
        let len = table::fixed(u64::from(index)).map_or(0, |(name, value)| name.len() + value.len());
        self.count(len);
        self.lines.push(0xc0 | index);
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        let hash = hash_of([name, value]);
        match self.again(hash, |known| known == (name, value)) {
            Known::Done => {}
            known => self.say(hash, name, value, matches!(known, Known::Later)),
        }
    }

    fn line(&mut self, line: &[u8], is_wanted: impl FnOnce(&[u8]) -> bool) {
        let hash = hash_of([line]);
        let known = self.again(hash, |known| is_line_of(line, known));
        if matches!(known, Known::Done) {
            return;
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return };
        let mut lower = std::mem::take(&mut self.lower);
        lower.clear();
        lower.extend_from_slice(&line[..colon]);
        lower.make_ascii_lowercase();
        if is_wanted(&lower) {
            // The path writes one space; what is passed on as it came may have none, or more.
            self.say(hash, &lower, line[colon + 1..].trim_ascii(), matches!(known, Known::Later));
        }
        lower.shrink_to(VALUE_MAX);
        self.lower = lower;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoded, Decoder};

    /// Both ends of a connection, and what is on its way between them.
    struct Ends {
        encoder: Encoder,
        decoder: Decoder,
        instructions: Vec<u8>,
        acknowledgments: Vec<u8>,
    }

    type Field = (Vec<u8>, Vec<u8>);

    impl Ends {
        fn new(table_bytes: usize, blocked_streams: u64) -> Self {
            let mut encoder = Encoder::default();
            encoder.allow(table_bytes as u64, blocked_streams);
            let decoder = Decoder::new(table_bytes);
            Self { encoder, decoder, instructions: Vec::new(), acknowledgments: Vec::new() }
        }

        fn encode(&mut self, stream: u64, fields: &[(&str, &str)]) -> Vec<u8> {
            self.encoder.begin(stream, true);
            for (name, value) in fields {
                self.encoder.field(name.as_bytes(), value.as_bytes());
            }
            let mut section = Vec::new();
            self.encoder.end(&mut section);
            self.encoder.take_instructions(&mut self.instructions);
            section
        }

        fn deliver(&mut self) {
            self.decoder.instruct(&std::mem::take(&mut self.instructions)).expect("they are valid");
        }

        fn decode(&mut self, stream: u64, section: &[u8]) -> Option<Vec<Field>> {
            let mut got = Vec::new();
            let field = |name: &[u8], value: &[u8]| got.push((name.to_vec(), value.to_vec()));
            match self.decoder.decode(stream, section, field).expect("it is readable") {
                Decoded::Whole => Some(got),
                Decoded::Blocked(_) => None,
            }
        }

        fn acknowledge(&mut self) {
            self.decoder.acknowledge(&mut self.acknowledgments);
            let bytes = std::mem::take(&mut self.acknowledgments);
            assert_eq!(self.encoder.acknowledged(&bytes), Ok(bytes.len()));
        }

        /// The length of a section that arrives at once.
        fn len(&mut self, stream: u64, fields: &[(&str, &str)]) -> usize {
            let section = self.encode(stream, fields);
            self.deliver();
            assert_eq!(self.decode(stream, &section).map(|got| got.len()), Some(fields.len()));
            self.acknowledge();
            section.len()
        }
    }

    #[test]
    fn what_is_said_again_takes_a_byte() {
        let fields = [("server", "vanward"), ("x-one", "1")];
        for blocked_streams in [0, 1] {
            let mut ends = Ends::new(4096, blocked_streams);
            let lens: Vec<usize> = (0..4).map(|at| ends.len(4 * at, &fields)).collect();
            assert!(lens[0] > 10 && lens[2..] == [4, 4], "{lens:?}");
            assert_eq!(lens[1] > 10, blocked_streams == 0, "{lens:?}");
        }
    }

    #[test]
    fn what_is_in_the_static_table_takes_a_byte_at_once() {
        let mut ends = Ends::new(0, 0);
        let fields = [(":status", "103"), ("vary", "origin"), ("accept", "*/*"), ("x-frame-options", "deny")];
        for _ in 0..2 {
            // The last index does not fit six bits.
            assert_eq!(ends.len(0, &fields), 2 + 5);
        }
    }

    #[test]
    fn what_is_secret_or_changes_is_not_remembered() {
        let mut ends = Ends::new(4096, 16);
        for at in 0..300 {
            ends.len(0, &[("set-cookie", "a=b"), ("cookie", "c"), ("etag", &format!("{at}"))]);
        }
        assert_eq!(ends.encoder.table.len(), 0);
        // RFC 9204 §4.5.4: never indexed.
        assert_eq!(ends.encode(0, &[("authorization", "x")])[2] & 0x20, 0x20);
        assert_eq!(ends.encode(0, &[("proxy-authorization", "x")])[2] & 0x10, 0x10);
    }

    #[test]
    fn no_more_streams_are_blocked_than_the_peer_allows() {
        let mut ends = Ends::new(4096, 2);
        let fields = [("server", "vanward")];
        let first = ends.encode(0, &fields);
        assert!(ends.decode(0, &first).is_some());
        let sections: Vec<_> = (1..5).map(|at| ends.encode(4 * at, &fields)).collect();
        let blocked: Vec<_> =
            (1..5).zip(&sections).map(|(at, section)| ends.decode(4 * at, section).is_none()).collect();
        assert_eq!(blocked, [true, true, false, false]);
        ends.deliver();
        for (at, section) in (1..3).zip(&sections) {
            assert!(ends.decode(4 * at, section).is_some());
        }
        ends.acknowledge();
        assert_eq!(ends.encode(20, &fields).len(), 3);
    }

    #[test]
    fn what_sections_refer_to_is_not_evicted() {
        let mut ends = Ends::new(100, 16);
        let lens = |ends: &mut Ends, name| [0, 4, 8].map(|stream| ends.encode(stream, &[(name, "1")]).len());
        assert_eq!(lens(&mut ends, "x-a")[1..], [3, 3]);
        assert_eq!(lens(&mut ends, "x-b")[1..], [3, 3]);
        // There is room for two, and both are needed until they are acknowledged.
        assert!(lens(&mut ends, "x-c").iter().all(|&len| len > 3));
        ends.encoder.acknowledged(b"\x84").expect("it was sent");
        assert!(lens(&mut ends, "x-d").iter().all(|&len| len > 3), "the other stream refers to the first");
        ends.encoder.acknowledged(b"\x88").expect("it was sent");
        assert_eq!(lens(&mut ends, "x-e")[1..], [3, 3]);
        // What nobody refers to is not evicted either, until its insertion is acknowledged.
        ends.encoder.acknowledged(b"\x44\x48").expect("it may be");
        assert!(lens(&mut ends, "x-f").iter().all(|&len| len > 3));
        ends.encoder.acknowledged(b"\x02").expect("three were inserted, and one is known");
        assert_eq!(lens(&mut ends, "x-f")[1..], [3, 3]);
        ends.encoder.acknowledged(b"\x02").expect_err("four were inserted");
    }

    #[test]
    fn nothing_is_inserted_while_instructions_wait() {
        let mut ends = Ends::new(4096, 16);
        for _ in 0..4 {
            ends.encoder.begin(0, false);
            ends.encoder.field(b"server", b"vanward");
            ends.encoder.end(&mut Vec::new());
        }
        assert_eq!((ends.encoder.table.len(), ends.encoder.sections.len()), (0, 0));
    }

    #[test]
    fn sections_that_nobody_acknowledges_are_bounded() {
        let mut ends = Ends::new(4096, 16);
        for at in 0..1000 {
            ends.encode(4 * at, &[("server", "vanward")]);
            let instructions = std::mem::take(&mut ends.instructions);
            ends.decoder.instruct(&instructions).unwrap();
            // Insertions are acknowledged, sections never.
            if at == 1 {
                ends.encoder.acknowledged(b"\x01").unwrap();
            }
        }
        assert_eq!(ends.encoder.sections.len(), SECTIONS_MAX);
    }

    #[test]
    fn only_what_was_sent_is_acknowledged() {
        for bytes in [&b"\x80"[..], b"\x00", b"\x01", b"\x3f\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
            let outcome = Ends::new(4096, 16).encoder.acknowledged(bytes);
            assert_eq!(outcome, Err(rules::BAD_ACKNOWLEDGMENT), "{bytes:x?}");
        }
        // RFC 9204 §4.4.2: a cancellation of nothing is none; half an instruction waits for its rest.
        assert_eq!(Ends::new(4096, 16).encoder.acknowledged(b"\x44\x7f"), Ok(1));
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]

        #[test]
        fn sections_say_what_was_encoded(
            lists in proptest::collection::vec(proptest::collection::vec(("[a-c]{1,3}", "[x-z]{0,2}"), 1..8), 0..60),
            table_bytes in 0usize..400,
            blocked_streams in 0u64..4,
            chances: Vec<u8>,
        ) {
            let mut ends = Ends::new(table_bytes, blocked_streams);
            let mut waiting: Vec<(u64, Vec<u8>, Vec<Field>)> = Vec::new();
            let mut chances = chances.into_iter().cycle();
            for (at, list) in (0..).zip(lists) {
                let fields: Vec<_> = list.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                let section = ends.encode(4 * at, &fields);
                let expected: Vec<Field> =
                    list.iter().map(|(name, value)| (name.clone().into(), value.clone().into())).collect();
                waiting.push((4 * at, section, expected));
                let chance = chances.next().unwrap_or(0);
                if chance & 1 != 0 {
                    // A part of the instructions arrives.
                    let part = ends.instructions.len() * usize::from(chance >> 4) / 15;
                    let part: Vec<u8> = ends.instructions.drain(..part).collect();
                    ends.decoder.instruct(&part).expect("they are valid");
                }
                if chance & 2 != 0 {
                    waiting.retain(|(stream, section, expected)| match ends.decode(*stream, section) {
                        Some(got) => { assert_eq!(&got, expected); false }
                        None => true,
                    });
                    assert!(waiting.len() as u64 <= blocked_streams);
                }
                if chance & 4 != 0 {
                    ends.acknowledge();
                }
            }
            ends.deliver();
            for (stream, section, expected) in &waiting {
                assert_eq!(ends.decode(*stream, section).as_ref(), Some(expected));
            }
            ends.acknowledge();
            assert_eq!((ends.encoder.sections.len(), ends.encoder.known), (0, ends.encoder.table.inserted()));
        }

        #[test]
        fn anything_is_read_or_unreadable(pieces: Vec<(bool, Vec<u8>)>) {
            let mut decoder = Decoder::new(400);
            let mut encoder = Encoder::default();
            let _ = decoder.instruct(b"\x3f\xe1\x01");
            for (is_section, bytes) in pieces {
                let _ = encoder.acknowledged(&bytes);
                if is_section {
                    let _ = decoder.decode(0, &bytes, |_, _| {});
                } else if decoder.instruct(&bytes).is_err() {
                    break;
                }
            }
        }
    }
}
