//! QPACK encoder: fields to field sections (RFC 9204). A field that occurs for the second time enters the dynamic
//! table, and takes a byte or two from then on. Fields that change with each message stay out, so that they evict
//! nothing.
//!
//! Sections refer to unacknowledged entries only while few enough streams may be blocked by that.

use std::collections::VecDeque;

use fields::compose::{CommonField, Encode};
use fields::lines::{hash_of, is_line_of};
use fields::table::FieldTable;

use crate::connection::H3Broken;
use crate::rules;
use crate::strings::{Unread, integer, push_integer, push_string};
use crate::table::{self, StaticMatch};

/// Rows of the hash table of fields; each row has several places.
// Half as many as for HTTP/2: the memory counts for each idle connection.
const ROWS: usize = 16;
const PLACES: usize = 4;
/// Longest value that enters the dynamic table. Longer ones would evict all others.
const VALUE_MAX: usize = 256;
/// Bytes of the dynamic table that are used at most, even if the peer allows more.
const TABLE_MAX: usize = 4096;
/// Streams that may be blocked by missing insertions, even if the peer allows more.
const BLOCKED_MAX: u64 = 16;
/// Sections with references that the peer has not acknowledged. Further sections have no references.
const SECTIONS_MAX: usize = 128;
/// Bytes that an entry counts in addition to its name and value (RFC 9204 §3.2.1).
const ENTRY_OVERHEAD: usize = 32;

pub struct QpackEncoder {
    table: FieldTable,
    /// The number of fields that the largest table allowed by the peer has room for (RFC 9204 §4.5.1.1).
    entries_max: u64,
    /// The number of streams that may be blocked.
    blocked_max: u64,
    /// Positions of fields in the tables, by the lowest bits of their hash. The latest is first in its row.
    rows: Box<[[QpackPlace; PLACES]; ROWS]>,
    /// Scratch memory for a name in lower case.
    lower: Vec<u8>,
    /// Unsent instructions for the encoder stream.
    instructions: Vec<u8>,
    /// The number of insertions that the peer has acknowledged.
    known: u64,
    /// Sections with references that the peer has not acknowledged, in order.
    sections: VecDeque<FieldSection>,
    current: CurrentSection,
    /// The field lines of the current section.
    lines: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct QpackPlace {
    hash: u32,
    whereabouts: Whereabouts,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Whereabouts {
    #[default]
    Nowhere,
    /// Index in the static table.
    Static(u8),
    /// Lowest bits of its number in the dynamic table.
    Dynamic(u32),
}

#[derive(Debug, Clone, Copy)]
struct FieldSection {
    stream: u64,
    /// The number of insertions that the section requires.
    required: u64,
    /// The oldest field that the section refers to.
    oldest: u64,
}

#[derive(Clone, Copy, Default)]
struct CurrentSection {
    stream: u64,
    /// The number of fields that were inserted before the section.
    base: u64,
    required: u64,
    oldest: u64,
    /// Whether the section may refer to the dynamic table, and insert.
    may_refer: bool,
    may_insert: bool,
    /// Size of the fields (RFC 9114 §4.2.2).
    size: usize,
}

/// The result of looking up a field.
enum FieldTraits {
    /// The field was encoded as a reference.
    Done,
    /// The field is in the dynamic table, but the section must not refer to it now.
    Later,
    Nothing,
}

impl Default for QpackEncoder {
    fn default() -> Self {
        Self {
            table: FieldTable::new(0),
            entries_max: 0,
            blocked_max: 0,
            rows: Box::new([[QpackPlace::default(); PLACES]; ROWS]),
            lower: Vec::new(),
            instructions: Vec::new(),
            known: 0,
            sections: VecDeque::new(),
            current: CurrentSection::default(),
            lines: Vec::new(),
        }
    }
}

impl QpackEncoder {
    /// Applies the peer's settings (RFC 9204 §5). Called once.
    pub fn allow(&mut self, table_bytes: u64, blocked_streams: u64) {
        self.entries_max = table_bytes / ENTRY_OVERHEAD as u64;
        self.blocked_max = blocked_streams.min(BLOCKED_MAX);
        let capacity = table_bytes.min(TABLE_MAX as u64);
        // RFC 9204 §3.2.3: the capacity is 0 until this instruction sets it.
        if capacity > 0 {
            self.table.set_limit(capacity as usize);
            push_integer(&mut self.instructions, 0x20, 5, capacity);
        }
    }

    /// Starts the field section of a stream. `may_insert` says whether the encoder stream has accepted all
    /// instructions. If flow control holds instructions back, sections must not need new ones (RFC 9204 §2.1.3).
    pub fn begin(&mut self, stream: u64, may_insert: bool) {
        self.lines.clear();
        self.current = CurrentSection {
            stream,
            base: self.table.inserted(),
            required: 0,
            oldest: u64::MAX,
            may_refer: self.sections.len() < SECTIONS_MAX,
            may_insert: may_insert && self.table.limit() > 0,
            size: 0,
        };
    }

    /// Size of the current section's fields (RFC 9114 §4.2.2).
    pub fn size(&self) -> usize {
        self.current.size
    }

    /// Appends the current section, and remembers its references.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        let CurrentSection { stream, base, required, oldest, .. } = self.current;
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
            self.sections.push_back(FieldSection { stream, required, oldest });
        }
    }

    pub fn take_instructions(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.instructions);
    }

    /// Receives bytes of the peer's decoder stream (RFC 9204 §4.4). Returns how many bytes were complete instructions.
    ///
    /// # Errors
    /// An instruction acknowledges something that was not sent.
    pub fn acknowledged(&mut self, bytes: &[u8]) -> Result<usize, H3Broken> {
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            let bits = if first & 0x80 != 0 { 7 } else { 6 };
            let number = match integer(&mut rest, bits) {
                Ok(number) => number,
                // The caller keeps the rest until more has arrived.
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

    /// Encodes a reference to the field with this hash, if a table has it and `is_it` confirms it.
    fn again(&mut self, hash: u32, is_it: impl FnOnce((&[u8], &[u8])) -> bool) -> FieldTraits {
        let row = &mut self.rows[hash as usize % ROWS];
        let Some(at) = row.iter().position(|place| place.hash == hash) else { return FieldTraits::Nothing };
        if at > 0 {
            // The last place of a row is replaced next, so a hit moves to the front.
            row[..=at].rotate_right(1);
        }
        match row[0].whereabouts {
            Whereabouts::Nowhere => FieldTraits::Nothing,
            Whereabouts::Static(index) => {
                let Some(field) = table::fixed(u64::from(index)).filter(|&field| is_it(field)) else {
                    return FieldTraits::Nothing;
                };
                self.count(field.0.len() + field.1.len());
                push_integer(&mut self.lines, 0xc0, 6, u64::from(index));
                FieldTraits::Done
            }
            Whereabouts::Dynamic(number) => {
                // Numbers wrap around. A distance beyond the table means that the field was evicted. Hashes may
                // collide, so the text decides.
                let back = (self.table.inserted() as u32).wrapping_sub(number).wrapping_sub(1);
                let Some((name, value)) = self.table.at(back as usize).filter(|&field| is_it(field)) else {
                    return FieldTraits::Nothing;
                };
                let len = name.len() + value.len();
                let number = self.table.inserted() - u64::from(back) - 1;
                if !self.may_refer_to(number) {
                    // The peer may not have the entry yet, and a reference could block the stream.
                    return FieldTraits::Later;
                }
                self.count(len);
                self.refer(number);
                FieldTraits::Done
            }
        }
    }

    /// Whether the current section may refer to a field of the dynamic table.
    fn may_refer_to(&self, number: u64) -> bool {
        let CurrentSection { stream, required, may_refer, .. } = self.current;
        if !may_refer || number < self.known || required > self.known {
            return may_refer;
        }
        // RFC 9204 §2.1.2: counts each stream with blocked sections once, including this one.
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
            // RFC 9204 §4.5.3: the entry was inserted within this section, behind its base.
            None => push_integer(&mut self.lines, 0x10, 4, number - current.base),
        }
    }

    /// Encodes a literal field. Inserts it into the dynamic table when it occurs for the second time.
    fn say(&mut self, hash: u32, name: &[u8], value: &[u8], is_in_table: bool) {
        self.count(name.len() + value.len());
        let found = table::find(name, value);
        // RFC 9204 §7.1.3: secrets stay out of every table, here and at later hops.
        let is_secret = matches!(name, b"authorization" | b"cookie" | b"proxy-authorization" | b"set-cookie");
        if !is_secret && !is_in_table {
            let row = &mut self.rows[hash as usize % ROWS];
            let is_second = row[0].hash == hash;
            // A field of the static table is never blocked, and needs no acknowledgment.
            if let StaticMatch::Field(index) = found {
                if !is_second {
                    row.rotate_right(1);
                }
                row[0] = QpackPlace { hash, whereabouts: Whereabouts::Static(index) };
                return push_integer(&mut self.lines, 0xc0, 6, u64::from(index));
            }
            if value.len() <= VALUE_MAX && self.table.limit() > 0 {
                if !is_second {
                    row.rotate_right(1);
                    row[0] = QpackPlace { hash, whereabouts: Whereabouts::Nowhere };
                } else if self.insert(found, name, value) {
                    let number = self.table.inserted() - 1;
                    self.rows[hash as usize % ROWS][0].whereabouts = Whereabouts::Dynamic(number as u32);
                    // Otherwise this section repeats the literal, and later ones refer to the entry.
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
            StaticMatch::Field(index) | StaticMatch::Name(index) => {
                push_integer(lines, 0x50 | never << 5, 4, u64::from(index));
            }
            StaticMatch::Nothing => push_string(lines, 0x20 | never << 4, 3, name),
        }
        push_string(lines, 0, 7, value);
    }

    /// Inserts a field into the dynamic table, unless it would evict a field that is still needed.
    fn insert(&mut self, found: StaticMatch, name: &[u8], value: &[u8]) -> bool {
        // Flow control still holds earlier instructions back.
        if !self.current.may_insert {
            return false;
        }
        let Some(evicted) = self.table.evicted_by(name, value) else { return false };
        if evicted > 0 {
            // RFC 9204 §2.1.1: evicted entries must be acknowledged, and no section may refer to them.
            let first = self.table.inserted() - self.table.len() as u64;
            let sections = self.sections.iter().map(|section| section.oldest);
            let needed = sections.chain([self.current.oldest]).min().unwrap_or(u64::MAX);
            if first + evicted as u64 > self.known.min(needed) {
                return false;
            }
        }
        match found {
            // RFC 9204 §4.3.2, §4.3.3.
            StaticMatch::Field(index) | StaticMatch::Name(index) => {
                push_integer(&mut self.instructions, 0xc0, 6, u64::from(index));
            }
            StaticMatch::Nothing => push_string(&mut self.instructions, 0x40, 5, name),
        }
        push_string(&mut self.instructions, 0, 7, value);
        self.table.insert(name, value);
        true
    }

    fn count(&mut self, len: usize) {
        self.current.size += len + ENTRY_OVERHEAD;
    }
}

impl Encode for QpackEncoder {
    #[inline]
    fn common(&mut self, field: CommonField) {
        // RFC 9204 Appendix A.
        let index: u8 = match field {
            CommonField::Root => 1,
            CommonField::Get => 17,
            CommonField::Post => 20,
            CommonField::Http => 22,
            CommonField::Https => 23,
            CommonField::Ok => 25,
            CommonField::NotModified => 26,
            CommonField::NotFound => 27,
        };
        let len = table::fixed(u64::from(index)).map_or(0, |(name, value)| name.len() + value.len());
        self.count(len);
        self.lines.push(0xc0 | index);
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        let hash = hash_of([name, value]);
        match self.again(hash, |known| known == (name, value)) {
            FieldTraits::Done => {}
            known => self.say(hash, name, value, matches!(known, FieldTraits::Later)),
        }
    }

    fn line(&mut self, line: &[u8], is_wanted: impl FnOnce(&[u8]) -> bool) {
        let hash = hash_of([line]);
        // A line that occurred before is not taken apart.
        let known = self.again(hash, |known| is_line_of(line, known));
        if matches!(known, FieldTraits::Done) {
            return;
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return };
        let mut lower = std::mem::take(&mut self.lower);
        lower.clear();
        lower.extend_from_slice(&line[..colon]);
        lower.make_ascii_lowercase();
        if is_wanted(&lower) {
            // The path writes one space after the colon; forwarded lines may have none, or more.
            self.say(hash, &lower, line[colon + 1..].trim_ascii(), matches!(known, FieldTraits::Later));
        }
        lower.shrink_to(VALUE_MAX);
        self.lower = lower;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{QpackDecoder, SectionOutcome};

    /// Both ends of a connection, and the bytes in transit between them.
    struct Ends {
        encoder: QpackEncoder,
        decoder: QpackDecoder,
        instructions: Vec<u8>,
        acknowledgments: Vec<u8>,
    }

    type Field = (Vec<u8>, Vec<u8>);

    impl Ends {
        fn new(table_bytes: usize, blocked_streams: u64) -> Self {
            let mut encoder = QpackEncoder::default();
            encoder.allow(table_bytes as u64, blocked_streams);
            let decoder = QpackDecoder::new(table_bytes);
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
                SectionOutcome::Whole => Some(got),
                SectionOutcome::Blocked(_) => None,
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
    fn a_repeated_field_takes_a_byte() {
        let fields = [("server", "vanward"), ("x-one", "1")];
        for blocked_streams in [0, 1] {
            let mut ends = Ends::new(4096, blocked_streams);
            let lens: Vec<usize> = (0..4).map(|at| ends.len(4 * at, &fields)).collect();
            assert!(lens[0] > 10 && lens[2..] == [4, 4], "{lens:?}");
            assert_eq!(lens[1] > 10, blocked_streams == 0, "{lens:?}");
        }
    }

    #[test]
    fn static_fields_take_a_byte_at_once() {
        let mut ends = Ends::new(0, 0);
        let fields = [(":status", "103"), ("vary", "origin"), ("accept", "*/*"), ("x-frame-options", "deny")];
        for _ in 0..2 {
            // The last index does not fit six bits.
            assert_eq!(ends.len(0, &fields), 2 + 5);
        }
    }

    #[test]
    fn secret_and_changing_fields_are_not_remembered() {
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
    fn referenced_fields_are_not_evicted() {
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
        // A field without references is not evicted either, until its insertion is acknowledged.
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
    fn unacknowledged_sections_are_bounded() {
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
    fn only_sent_sections_are_acknowledged() {
        for bytes in [&b"\x80"[..], b"\x00", b"\x01", b"\x3f\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
            let outcome = Ends::new(4096, 16).encoder.acknowledged(bytes);
            assert_eq!(outcome, Err(rules::BAD_ACKNOWLEDGMENT), "{bytes:x?}");
        }
        // RFC 9204 §4.4.2: a cancellation without a section is no error. An incomplete instruction waits for its rest.
        assert_eq!(Ends::new(4096, 16).encoder.acknowledged(b"\x44\x7f"), Ok(1));
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]

        #[test]
        fn sections_decode_to_their_fields(
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
            let mut decoder = QpackDecoder::new(400);
            let mut encoder = QpackEncoder::default();
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
