//! QPACK decoder: instructions of the peer's encoder stream, and field sections to fields (RFC 9204).
//!
//! The caller keeps sections that refer to fields that have not arrived yet, and limits their number.

use fields::table::FieldTable;

use crate::connection::H3Broken;
use crate::rules;
use crate::strings::{Unread, integer, push_integer, string};
use crate::table;

/// An invalid field section. This is a connection error (RFC 9204 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidSection;

impl From<Unread> for InvalidSection {
    fn from(_: Unread) -> Self {
        // A section that ends within a field is invalid, too.
        Self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectionOutcome {
    /// All fields were passed on.
    Whole,
    /// The section refers to fields that have not arrived; no field was passed on. Decode it again once this many were
    /// inserted.
    Blocked(u64),
}

pub struct QpackDecoder {
    table: FieldTable,
    /// Capacity of the dynamic table that our settings allow the peer, in bytes.
    table_bytes: usize,
    /// An incomplete instruction of the encoder stream.
    held: Vec<u8>,
    name: Vec<u8>,
    value: Vec<u8>,
    /// The number of insertions that were acknowledged to the peer.
    told: u64,
    /// Unsent instructions for the decoder stream.
    instructions: Vec<u8>,
}

/// Memory that is kept for reuse with each name or value, in bytes.
const KEEP_MAX: usize = 1024;
/// Bytes that an entry counts in addition to its name and value (RFC 9204 §3.2.1).
const ENTRY_OVERHEAD: usize = 32;

/// RFC 9204 §4.5.1.
#[derive(Clone, Copy)]
struct Prefix {
    required: u64,
    base: u64,
}

/// The entry that a field line refers to.
#[derive(Clone, Copy)]
enum Reference {
    /// An index of the static table.
    Static(u64),
    /// Distance before the base (RFC 9204 §3.2.5).
    Before(u64),
    /// Distance behind the base (RFC 9204 §3.2.6).
    Behind(u64),
}

impl Reference {
    fn indexed(is_static: bool, index: u64) -> Self {
        if is_static { Self::Static(index) } else { Self::Before(index) }
    }
}

impl QpackDecoder {
    /// Creates a decoder that allows the peer a dynamic table of this size.
    pub fn new(table_bytes: usize) -> Self {
        Self {
            // RFC 9204 §3.2.3: its capacity is 0 until the encoder sets it.
            table: FieldTable::new(0),
            table_bytes,
            held: Vec::new(),
            name: Vec::new(),
            value: Vec::new(),
            told: 0,
            instructions: Vec::new(),
        }
    }

    /// The number of fields that were ever inserted into the dynamic table.
    pub fn inserted(&self) -> u64 {
        self.table.inserted()
    }

    /// Receives bytes of the peer's encoder stream (RFC 9204 §4.3).
    ///
    /// # Errors
    /// An instruction is invalid.
    pub fn instruct(&mut self, bytes: &[u8]) -> Result<(), H3Broken> {
        let mut rest = bytes;
        self.instruct_until(&mut rest, u64::MAX)
    }

    /// Receives bytes of the peer's encoder stream until this many fields were ever inserted. It stops there, because
    /// later insertions may evict fields that a blocked section needs.
    pub(crate) fn instruct_until(&mut self, rest: &mut &[u8], inserted: u64) -> Result<(), H3Broken> {
        // Only an instruction that was split between two reads is copied.
        if !self.held.is_empty() {
            let mut held = std::mem::take(&mut self.held);
            let before = held.len();
            held.extend_from_slice(rest);
            match self.next_instruction(&held)? {
                Some(len) => *rest = &rest[len - before..],
                None => {
                    *rest = &[];
                    self.held = held;
                    return self.check_held();
                }
            }
        }
        while self.inserted() < inserted && !rest.is_empty() {
            match self.next_instruction(rest)? {
                Some(len) => *rest = &rest[len..],
                None => self.held.extend_from_slice(std::mem::take(rest)),
            }
        }
        self.name.shrink_to(KEEP_MAX);
        self.value.shrink_to(KEEP_MAX);
        self.check_held()
    }

    /// Four bytes of a Huffman code are at least one byte of text, so a longer instruction cannot fit the table.
    fn check_held(&self) -> Result<(), H3Broken> {
        let is_too_long = self.held.len() > 4 * self.table_bytes + ENTRY_OVERHEAD;
        if is_too_long { Err(rules::BAD_INSERT) } else { Ok(()) }
    }

    /// Applies the instruction at the start of `bytes`, and returns its length; `None` if it is incomplete.
    fn next_instruction(&mut self, bytes: &[u8]) -> Result<Option<usize>, H3Broken> {
        let mut rest = bytes;
        match self.instruction(&mut rest) {
            Ok(()) => Ok(Some(bytes.len() - rest.len())),
            Err(Unread::Incomplete) => Ok(None),
            Err(Unread::Invalid) => Err(rules::BAD_INSERT),
        }
    }

    fn instruction(&mut self, rest: &mut &[u8]) -> Result<(), Unread> {
        let limit = 4 * self.table_bytes;
        self.name.clear();
        self.value.clear();
        match rest[0] {
            // RFC 9204 §4.3.2: insertion with a name reference.
            first @ 0x80.. => {
                let index = integer(rest, 6)?;
                let mut name = std::mem::take(&mut self.name);
                // RFC 9204 §3.2.2: copied, because the insertion may evict the entry that its name comes from.
                name.extend_from_slice(self.referred(first & 0x40 != 0, index)?.0);
                self.name = name;
                string(rest, 7, limit, &mut self.value)?;
            }
            // RFC 9204 §4.3.3: insertion with a literal name.
            0x40.. => {
                string(rest, 5, limit, &mut self.name)?;
                string(rest, 7, limit, &mut self.value)?;
            }
            // RFC 9204 §4.3.1: capacity.
            0x20.. => {
                let capacity = integer(rest, 5)?;
                // RFC 9204 §4.3.1: the encoder may use less than our settings allow, never more.
                if capacity > self.table_bytes as u64 {
                    return Err(Unread::Invalid);
                }
                self.table.set_limit(capacity as usize);
                return Ok(());
            }
            // RFC 9204 §4.3.4: duplicate.
            _ => {
                let index = integer(rest, 5)?;
                let (mut name, mut value) = (std::mem::take(&mut self.name), std::mem::take(&mut self.value));
                let (old_name, old_value) = self.referred(false, index)?;
                name.extend_from_slice(old_name);
                value.extend_from_slice(old_value);
                (self.name, self.value) = (name, value);
            }
        }
        // RFC 9204 §3.2.2: an entry larger than the table is an error.
        if self.name.len() + self.value.len() + ENTRY_OVERHEAD > self.table.limit() {
            return Err(Unread::Invalid);
        }
        self.table.insert(&self.name, &self.value);
        Ok(())
    }

    /// The field that an instruction refers to, relative to the latest one (RFC 9204 §3.2.5).
    fn referred(&self, is_static: bool, index: u64) -> Result<(&[u8], &[u8]), Unread> {
        if is_static {
            return table::fixed(index).ok_or(Unread::Invalid);
        }
        usize::try_from(index).ok().and_then(|back| self.table.at(back)).ok_or(Unread::Invalid)
    }

    /// Decodes the field section of a stream. Calls `field` with the name and value of each field, in order.
    ///
    /// # Errors
    /// The section is invalid.
    pub fn decode(
        &mut self,
        stream: u64,
        section: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<SectionOutcome, InvalidSection> {
        let mut rest = section;
        let prefix = self.prefix(&mut rest)?;
        // Before any field is passed on, so that the second attempt begins without leftovers.
        if prefix.required > self.inserted() {
            return Ok(SectionOutcome::Blocked(prefix.required));
        }
        while let Some(&first) = rest.first() {
            match first {
                // RFC 9204 §4.5.2: an indexed field.
                0x80.. => {
                    let index = integer(&mut rest, 6)?;
                    let reference = Reference::indexed(first & 0x40 != 0, index);
                    let (name, value) = self.field_of(prefix, reference)?;
                    field(name, value);
                    continue;
                }
                // RFC 9204 §4.5.4: a literal with an indexed name.
                0x40.. => {
                    let index = integer(&mut rest, 4)?;
                    self.put_name(prefix, Reference::indexed(first & 0x10 != 0, index))?;
                }
                // RFC 9204 §4.5.6: a literal name and value.
                0x20.. => {
                    self.name.clear();
                    string(&mut rest, 3, section.len(), &mut self.name)?;
                }
                // RFC 9204 §4.5.3: a field indexed behind the base.
                0x10.. => {
                    let index = integer(&mut rest, 4)?;
                    let (name, value) = self.field_of(prefix, Reference::Behind(index))?;
                    field(name, value);
                    continue;
                }
                // RFC 9204 §4.5.5: a literal with a name indexed behind the base.
                _ => {
                    let index = integer(&mut rest, 3)?;
                    self.put_name(prefix, Reference::Behind(index))?;
                }
            }
            self.value.clear();
            string(&mut rest, 7, section.len(), &mut self.value)?;
            field(&self.name, &self.value);
        }
        // A long value must not stay allocated until the connection ends.
        self.name.shrink_to(KEEP_MAX);
        self.value.shrink_to(KEEP_MAX);
        if prefix.required > 0 {
            // RFC 9204 §4.4.1: this acknowledges the insertions, too.
            push_integer(&mut self.instructions, 0x80, 7, stream);
            self.told = self.told.max(prefix.required);
        }
        Ok(SectionOutcome::Whole)
    }

    fn put_name(&mut self, prefix: Prefix, reference: Reference) -> Result<(), InvalidSection> {
        let mut name = std::mem::take(&mut self.name);
        name.clear();
        name.extend_from_slice(self.field_of(prefix, reference)?.0);
        self.name = name;
        Ok(())
    }

    /// RFC 9204 §4.5.1.
    fn prefix(&self, rest: &mut &[u8]) -> Result<Prefix, InvalidSection> {
        let encoded = integer(rest, 8)?;
        let is_negative = rest.first().ok_or(InvalidSection)? & 0x80 != 0;
        let delta = integer(rest, 7)?;
        let required = self.required(encoded)?;
        // RFC 9204 §4.5.1.2.
        let base = if is_negative {
            required.checked_sub(delta).and_then(|base| base.checked_sub(1)).ok_or(InvalidSection)?
        } else {
            required + delta
        };
        Ok(Prefix { required, base })
    }

    /// The number of insertions that a section requires. Sent modulo twice the table's entries (RFC 9204 §4.5.1.1).
    fn required(&self, encoded: u64) -> Result<u64, InvalidSection> {
        if encoded == 0 {
            return Ok(0);
        }
        let entries_max = (self.table_bytes / ENTRY_OVERHEAD) as u64;
        let full_range = 2 * entries_max;
        if encoded > full_range {
            return Err(InvalidSection);
        }
        let highest = self.inserted() + entries_max;
        let required = highest / full_range * full_range + encoded - 1;
        let required = if required <= highest {
            required
        } else {
            required.checked_sub(full_range).ok_or(InvalidSection)?
        };
        if required == 0 { Err(InvalidSection) } else { Ok(required) }
    }

    fn field_of(&self, prefix: Prefix, reference: Reference) -> Result<(&[u8], &[u8]), InvalidSection> {
        let at = match reference {
            Reference::Static(index) => return table::fixed(index).ok_or(InvalidSection),
            Reference::Before(index) => prefix.base.checked_sub(index).and_then(|at| at.checked_sub(1)),
            Reference::Behind(index) => prefix.base.checked_add(index),
        };
        // RFC 9204 §2.2.3: a reference beyond the required insertions is an error, as is one to an evicted field.
        let at = at.filter(|&at| at < prefix.required).ok_or(InvalidSection)?;
        let back = usize::try_from(self.inserted() - at - 1).map_err(|_| InvalidSection)?;
        self.table.at(back).ok_or(InvalidSection)
    }

    /// Announces that no section of this stream will be decoded (RFC 9204 §4.4.2).
    pub fn cancel(&mut self, stream: u64) {
        // RFC 9204 §2.2.2.2: without a table, there are no references to release.
        if self.table_bytes > 0 {
            push_integer(&mut self.instructions, 0x40, 6, stream);
        }
    }

    pub(crate) fn has_news(&self) -> bool {
        !self.instructions.is_empty() || self.told < self.inserted()
    }

    /// Appends the instructions for the decoder stream, and acknowledges new insertions.
    pub fn acknowledge(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.instructions);
        // The acknowledgment of a section covers the insertions that it needed: these are not counted again.
        let news = self.inserted() - self.told;
        if news > 0 {
            // RFC 9204 §4.4.3.
            push_integer(out, 0, 6, news);
            self.told = self.inserted();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(decoder: &mut QpackDecoder, stream: u64, section: &[u8]) -> Result<String, Option<u64>> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut said = String::new();
        let field = |name: &[u8], value: &[u8]| said += &format!("{}={}\n", text(name), text(value));
        match decoder.decode(stream, section, field) {
            Ok(SectionOutcome::Whole) => Ok(said),
            Ok(SectionOutcome::Blocked(required)) => Err(Some(required)),
            Err(InvalidSection) => Err(None),
        }
    }

    fn acknowledged(decoder: &mut QpackDecoder) -> Vec<u8> {
        let mut out = Vec::new();
        decoder.acknowledge(&mut out);
        out
    }

    #[test]
    fn the_examples_of_the_rfc() {
        let decoder = &mut QpackDecoder::new(220);
        // RFC 9204 §B.1: a literal with a name of the static table.
        let section = b"\x00\x00\x51\x0b/index.html";
        assert_eq!(said(decoder, 0, section).as_deref(), Ok(":path=/index.html\n"));
        assert_eq!(acknowledged(decoder), b"");

        // §B.2: insertions, and references behind the base. The section arrives first.
        let section = b"\x03\x81\x10\x11";
        assert_eq!(said(decoder, 4, section), Err(Some(2)));
        decoder.instruct(b"\x3f\xbd\x01\xc0\x0fwww.example.com\xc1\x0c/sample/path").unwrap();
        let expected = ":authority=www.example.com\n:path=/sample/path\n";
        assert_eq!(said(decoder, 4, section).as_deref(), Ok(expected));
        assert_eq!(acknowledged(decoder), b"\x84");

        // §B.3: an insertion without a section.
        decoder.instruct(b"\x4acustom-key\x0ccustom-value").unwrap();
        assert_eq!(acknowledged(decoder), b"\x01");

        // §B.4: a duplicate, and a section that waits for it and is cancelled.
        decoder.instruct(b"\x02").unwrap();
        let section = b"\x05\x00\x80\xc1\x81";
        let expected = ":authority=www.example.com\n:path=/\ncustom-key=custom-value\n";
        assert_eq!(said(&mut copy_of(decoder), 8, section).as_deref(), Ok(expected));
        decoder.cancel(8);
        assert_eq!(acknowledged(decoder), b"\x48\x01");

        // §B.5: an insertion that evicts.
        decoder.instruct(b"\x81\x0dcustom-value2").unwrap();
        assert_eq!(acknowledged(decoder), b"\x01");
        let entries: Vec<_> = (0..).map_while(|back| decoder.table.at(back)).collect();
        let expected: [(&[u8], &[u8]); 4] = [
            (b"custom-key", b"custom-value2"),
            (b":authority", b"www.example.com"),
            (b"custom-key", b"custom-value"),
            (b":path", b"/sample/path"),
        ];
        assert_eq!(entries, expected);
    }

    /// A decoder with the same state.
    fn copy_of(decoder: &QpackDecoder) -> QpackDecoder {
        let mut copy = QpackDecoder::new(decoder.table_bytes);
        copy.table.set_limit(decoder.table.limit());
        let mut entries: Vec<_> = (0..).map_while(|back| decoder.table.at(back)).collect();
        entries.reverse();
        entries.iter().for_each(|(name, value)| copy.table.insert(name, value));
        assert_eq!(copy.inserted(), decoder.inserted());
        copy
    }

    #[test]
    fn invalid_input_is_unreadable() {
        let inserted = || {
            let mut decoder = QpackDecoder::new(220);
            decoder.instruct(b"\x3f\xbd\x01\x41a\x01b\x41c\x01d").unwrap();
            decoder
        };
        for section in [
            &b""[..],
            b"\x00",                  // no base
            b"\x00\x80",              // a base before the first
            b"\x0d\x00",              // more than twice the entries
            b"\x0a\x00",              // what wraps to before the first
            b"\x00\x00\x80",          // a reference, and none is required
            b"\x02\x00\x10",          // one to what is not required
            b"\x02\x00\x81",          // one to before the first
            b"\x00\x00\xff\x24",      // one beyond the static table
            b"\x00\x00\x51\x0ba",     // less than it says
            b"\x00\x00\x23ab",        // no value
            b"\x00\x00\x5f",          // half an integer
            b"\x00\x00\x21a\x81\xff", // padding of a whole byte
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00",
        ] {
            assert_eq!(said(&mut inserted(), 0, section), Err(None), "{section:x?}");
        }
        assert_eq!(said(&mut inserted(), 0, b"\x03\x00\x80\x81").as_deref(), Ok("c=d\na=b\n"));
        assert_eq!(said(&mut inserted(), 0, b"\x03\x81\x11\x10").as_deref(), Ok("c=d\na=b\n"));
        assert_eq!(said(&mut inserted(), 0, b"\x03\x81\x01\x01z").as_deref(), Ok("c=z\n"));
        assert_eq!(said(&mut inserted(), 0, b"\x03\x00\x40\x01z").as_deref(), Ok("c=z\n"));
        // A required count may be too high; it only delays the section.
        assert_eq!(said(&mut inserted(), 0, b"\x04\x00"), Err(Some(3)));
    }

    #[test]
    fn instructions_that_no_table_allows_are_errors() {
        for bytes in [
            &b"\x3f\xbe\x01"[..],                        // a capacity of 221
            b"\x41a\x01b",                               // an insertion, and there is no table
            b"\x3f\x06\xc0\x10abcdefghijklmnop",         // larger than the table
            b"\x3f\xbd\x01\x80\x01a",                    // the name of nothing
            b"\x3f\xbd\x01\x00",                         // a duplicate of nothing
            b"\x3f\xbd\x01\xff\x24\x01a",                // beyond the static table
            b"\x3f\xbd\x01\x41a\xff\xff\x7f",            // a value of 16,000 bytes
            b"\x3f\xbd\x01\x41a\x81\xff",                // padding of a whole byte
            b"\x3f\xff\xff\xff\xff\xff\xff\xff\xff\xff", // too large for anything
        ] {
            assert_eq!(QpackDecoder::new(220).instruct(bytes), Err(rules::BAD_INSERT), "{bytes:x?}");
            let mut decoder = QpackDecoder::new(220);
            let in_pieces = bytes.iter().try_for_each(|&byte| decoder.instruct(&[byte]));
            assert_eq!(in_pieces, Err(rules::BAD_INSERT), "{bytes:x?}");
        }
        assert_eq!(QpackDecoder::new(0).instruct(b"\x20"), Ok(()));
    }
}
