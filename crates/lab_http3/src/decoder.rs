//! QPACK decoder of the lab (RFC 9204): received field sections, and the dynamic table that the peer fills.
//!
//! No stream may be blocked (§2.1.2): a section refers only to acknowledged insertions, so it can be decoded at once.

use crate::code::{LabH3Code, PeerViolation};
use crate::dynamic::DynamicTable;
use crate::prefixed::{Undecodable, push_integer, read_integer, read_string};
use crate::qpack::fixed;

/// Size of the dynamic table that a client allows the server: the initial size of HTTP/2.
pub(crate) const TABLE_BYTES: usize = 4096;
/// RFC 9204 §4.5.1.1: the minimum size of an entry.
const ENTRY_BYTES: usize = 32;
/// Maximum length of an incomplete insertion: four bytes of Huffman code are at least one byte of text.
const CUT_OFF_BYTES_MAX: usize = 4 * TABLE_BYTES;

/// Decodes the field sections of a connection.
#[derive(Debug)]
pub struct LabQpackDecoder {
    /// The peer sets its capacity.
    table: DynamicTable,
    /// Upper limit of the capacity.
    limit_bytes_max: usize,
    inserted: u64,
    /// An incomplete instruction.
    partial: Vec<u8>,
    instructions: Vec<u8>,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Default for LabQpackDecoder {
    fn default() -> Self {
        Self::new(TABLE_BYTES)
    }
}

/// Passes the fields of a section to `field`, in order, where no dynamic table is allowed.
///
/// # Errors
/// If the section is not valid, or refers to a dynamic table.
pub fn decode(section: &[u8], field: impl FnMut(&[u8], &[u8])) -> Result<(), Undecodable> {
    LabQpackDecoder::new(0).decode(section, field)
}

impl LabQpackDecoder {
    fn new(limit_bytes_max: usize) -> Self {
        Self {
            // RFC 9204 §3.2.3: the capacity is 0 until the encoder sets it.
            table: DynamicTable::new(0),
            limit_bytes_max,
            inserted: 0,
            partial: Vec::new(),
            instructions: Vec::new(),
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Number of changes of the table: while it is the same, equal sections have equal fields.
    pub fn changes(&self) -> u64 {
        self.table.changes()
    }

    /// Instructions for the decoder stream. The caller removes the bytes that it has sent.
    pub fn instructions(&mut self) -> &mut Vec<u8> {
        &mut self.instructions
    }

    /// Reads the next bytes of the peer's encoder stream (RFC 9204 §4.3), and acknowledges the insertions in them.
    ///
    /// # Errors
    /// If an instruction is invalid.
    pub fn insert(&mut self, bytes: &[u8]) -> Result<(), PeerViolation> {
        let before = self.inserted;
        self.partial.extend_from_slice(bytes);
        let partial = std::mem::take(&mut self.partial);
        let mut rest = partial.as_slice();
        while !rest.is_empty() {
            let mut behind = rest;
            match self.instruction(&mut behind) {
                Ok(()) => rest = behind,
                Err(Undecodable::CutOff) if rest.len() <= CUT_OFF_BYTES_MAX => break,
                Err(_) => {
                    const WHAT: &str = "an insertion into the dynamic table is not valid";
                    return Err(PeerViolation(LabH3Code::QPACK_ENCODER_STREAM_ERROR, WHAT));
                }
            }
        }
        self.partial.extend_from_slice(rest);
        if self.inserted > before {
            // RFC 9204 §4.4.3.
            push_integer(&mut self.instructions, (self.inserted - before) as usize, 6, 0);
        }
        Ok(())
    }

    fn instruction(&mut self, rest: &mut &[u8]) -> Result<(), Undecodable> {
        self.name.clear();
        self.value.clear();
        match rest[0] {
            // RFC 9204 §4.3.2: with the name of another entry.
            first @ 0x80.. => {
                let index = read_integer(rest, 6)?;
                let mut name = std::mem::take(&mut self.name);
                name.extend_from_slice(if first & 0x40 == 0 {
                    self.recent(index)?.0
                } else {
                    fixed(index)?.0
                });
                self.name = name;
                read_string(rest, 7, &mut self.value)?;
            }
            // RFC 9204 §4.3.3: with a literal name.
            0x40.. => {
                read_string(rest, 5, &mut self.name)?;
                read_string(rest, 7, &mut self.value)?;
            }
            // RFC 9204 §4.3.1.
            0x20.. => {
                let limit_bytes = read_integer(rest, 5)?;
                if limit_bytes > self.limit_bytes_max {
                    return Err(Undecodable::Invalid);
                }
                self.table.set_limit(limit_bytes);
                return Ok(());
            }
            // RFC 9204 §4.3.4: duplicates an entry.
            _ => {
                let index = read_integer(rest, 5)?;
                let (mut name, mut value) = (std::mem::take(&mut self.name), std::mem::take(&mut self.value));
                let (again_name, again_value) = self.recent(index)?;
                name.extend_from_slice(again_name);
                value.extend_from_slice(again_value);
                (self.name, self.value) = (name, value);
            }
        }
        // RFC 9204 §3.2.2: an entry larger than the table is an error here.
        if !self.table.insert(&self.name, &self.value) {
            return Err(Undecodable::Invalid);
        }
        self.inserted += 1;
        Ok(())
    }

    /// The entry this many insertions before the latest.
    fn recent(&self, before: usize) -> Result<(&[u8], &[u8]), Undecodable> {
        self.table.recent(before).ok_or(Undecodable::Invalid)
    }

    /// The entry with this number, if the section may refer to it.
    fn numbered(&self, number: Option<u64>, required: u64) -> Result<(&[u8], &[u8]), Undecodable> {
        // RFC 9204 §2.2.3: a reference beyond the section's required insert count is an error.
        let number = number.filter(|number| *number < required).ok_or(Undecodable::Invalid)?;
        self.recent(usize::try_from(self.inserted - number - 1).map_err(|_| Undecodable::Invalid)?)
    }

    /// Passes the fields of a section to `field`, in order.
    ///
    /// # Errors
    /// If the section is not valid, or refers to missing entries.
    pub fn decode(
        &mut self,
        mut section: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Undecodable> {
        let rest = &mut section;
        let (required, base) = self.prefix(rest)?;
        let (mut name, mut value) = (std::mem::take(&mut self.name), std::mem::take(&mut self.value));
        while let Some(&first) = rest.first() {
            name.clear();
            value.clear();
            // Entry numbers count down from the base, or up from it (RFC 9204 §3.2.5, §3.2.6).
            let below = |index: usize| base.checked_sub(index as u64 + 1);
            let above = |index: usize| base.checked_add(index as u64);
            let (known_name, known_value) = match first {
                // RFC 9204 §4.5.2: a field of either table.
                0xc0.. => fixed(read_integer(rest, 6)?)?,
                0x80.. => self.numbered(below(read_integer(rest, 6)?), required)?,
                // RFC 9204 §4.5.4: a name of either table.
                0x50..0x60 | 0x70..0x80 => (fixed(read_integer(rest, 4)?)?.0, read(rest, &mut value)?),
                0x40.. => {
                    (self.numbered(below(read_integer(rest, 4)?), required)?.0, read(rest, &mut value)?)
                }
                // RFC 9204 §4.5.6: a literal name.
                0x20.. => {
                    read_string(rest, 3, &mut name)?;
                    (name.as_slice(), read(rest, &mut value)?)
                }
                // RFC 9204 §4.5.3, §4.5.5.
                0x10.. => self.numbered(above(read_integer(rest, 4)?), required)?,
                _ => (self.numbered(above(read_integer(rest, 3)?), required)?.0, read(rest, &mut value)?),
            };
            field(known_name, known_value);
        }
        (self.name, self.value) = (name, value);
        Ok(())
    }

    /// Reads the required insert count of a section, and its base (RFC 9204 §4.5.1).
    fn prefix(&self, section: &mut &[u8]) -> Result<(u64, u64), Undecodable> {
        let encoded = read_integer(section, 8)? as u64;
        let is_negative = section.first().is_some_and(|first| first & 0x80 != 0);
        let delta = read_integer(section, 7)? as u64;
        if encoded == 0 {
            // Without references the base has no effect.
            return Ok((0, 0));
        }
        let entries_max = (self.limit_bytes_max / ENTRY_BYTES) as u64;
        let range = 2 * entries_max;
        if encoded > range {
            return Err(Undecodable::Invalid);
        }
        let most = self.inserted + entries_max;
        let mut required = most / range * range + encoded - 1;
        if required > most {
            required = required.checked_sub(range).ok_or(Undecodable::Invalid)?;
        }
        // No stream may be blocked.
        if required == 0 || required > self.inserted {
            return Err(Undecodable::Invalid);
        }
        let base = if is_negative { required.checked_sub(delta + 1) } else { Some(required + delta) };
        Ok((required, base.ok_or(Undecodable::Invalid)?))
    }

    /// Acknowledges a section if it refers to the dynamic table (RFC 9204 §4.4.1): then its first byte is not 0.
    pub fn acknowledge(&mut self, stream: u64, section: &[u8]) {
        if section.first().is_some_and(|required| *required != 0) {
            push_integer(&mut self.instructions, stream as usize, 7, 0x80);
        }
    }

    /// Tells the peer that sections of a stream will not be read (RFC 9204 §4.4.2).
    pub fn cancel(&mut self, stream: u64) {
        push_integer(&mut self.instructions, stream as usize, 6, 0x40);
    }
}

fn read<'v>(rest: &mut &[u8], value: &'v mut Vec<u8>) -> Result<&'v [u8], Undecodable> {
    read_string(rest, 7, value)?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(decoder: &mut LabQpackDecoder, section: &[u8]) -> Result<String, Undecodable> {
        let mut text = String::new();
        let decoded = decoder.decode(section, |name, value| {
            let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
            text.push_str(&format!("{name}={value};"));
        });
        decoded.map(|()| text)
    }

    /// RFC 9204 Appendix B, with the table size used there.
    #[test]
    fn the_example_of_the_rfc() {
        let mut decoder = LabQpackDecoder::new(220);
        let insertions = [
            &b"\x3f\xbd\x01\xc0\x0fwww.example.com\xc1\x0c/sample/path"[..],
            b"\x4acustom-key\x0ccustom-value",
            b"\x02",
            b"\x81\x0dcustom-value2",
        ];
        decoder.insert(insertions[0]).expect("is valid");
        assert_eq!(std::mem::take(decoder.instructions()), b"\x02");
        let section = b"\x03\x81\x10\x11";
        assert_eq!(
            fields(&mut decoder, section).as_deref(),
            Ok(":authority=www.example.com;:path=/sample/path;")
        );
        decoder.acknowledge(4, section);
        assert_eq!(std::mem::take(decoder.instructions()), b"\x84");
        // The pieces have any size; a whole insertion is acknowledged.
        for byte in insertions[1] {
            assert_eq!(decoder.instructions().as_slice(), b"");
            decoder.insert(std::slice::from_ref(byte)).expect("is valid");
        }
        decoder.insert(insertions[2]).expect("is valid");
        assert_eq!(
            fields(&mut decoder, b"\x05\x00\x80\xc1\x81").as_deref(),
            Ok(":authority=www.example.com;:path=/;custom-key=custom-value;")
        );
        decoder.cancel(8);
        assert_eq!(std::mem::take(decoder.instructions()), b"\x01\x01\x48");
        decoder.insert(insertions[3]).expect("is valid");
        assert_eq!(decoder.table.len_and_size(), (4, 215));
        assert_eq!(fields(&mut decoder, b"\x06\x00\x80").as_deref(), Ok("custom-key=custom-value2;"));
        // The first entry was evicted.
        assert_eq!(fields(&mut decoder, b"\x06\x00\x84"), Err(Undecodable::Invalid));
    }

    #[test]
    fn names_are_referred_to_before_and_behind_the_base() {
        let mut decoder = LabQpackDecoder::default();
        decoder.insert(b"\x3f\xe1\x1f\x41a\x011\x41b\x012").expect("is valid");
        let rows: [(&[u8], Result<&str, Undecodable>); 8] = [
            (b"\x03\x00\x40\x01x\x41\x01y", Ok("b=x;a=y;")),
            (b"\x03\x81\x00\x01x\x08\x01y", Ok("a=x;a=y;")),
            (b"\x03\x81\x00\x01x\x01\x01y", Ok("a=x;b=y;")),
            // The required insert count is lower than the reference.
            (b"\x02\x80\x11", Err(Undecodable::Invalid)),
            // The required insert count exceeds the insertions.
            (b"\x04\x00\x80", Err(Undecodable::Invalid)),
            (b"\x03\x00\x82", Err(Undecodable::Invalid)),
            (b"\x03\x83\x80", Err(Undecodable::Invalid)),
            (b"\xff\x02\x00", Err(Undecodable::Invalid)),
        ];
        for (section, expected) in rows {
            assert_eq!(
                fields(&mut decoder, section).as_deref().map_err(|error| *error),
                expected,
                "{section:x?}"
            );
        }
    }

    #[test]
    fn what_is_no_insertion_is_refused() {
        for instructions in [
            // A capacity above the limit; an entry larger than the table, or before its capacity is set.
            &b"\x3f\xe2\x1f"[..],
            b"\x41a\x011",
            b"\x3f\x01\x41a\x011",
            // Names that do not exist.
            b"\x3f\xe1\x1f\x80\x011",
            b"\x3f\xe1\x1f\xff\x24\x011",
            b"\x3f\xe1\x1f\x00",
            // Invalid Huffman codes.
            b"\x3f\xe1\x1f\x41a\x81\xff",
            b"\xff\xff\xff\xff\xff\xff",
        ] {
            let broken = LabQpackDecoder::default().insert(instructions).map_err(|broken| broken.0);
            assert_eq!(broken, Err(LabH3Code::QPACK_ENCODER_STREAM_ERROR), "{instructions:x?}");
        }
        let endless = [&b"\x3f\xe1\x1f\x41a\x7f\xff\xff\x7f"[..], &[b'a'; CUT_OFF_BYTES_MAX]].concat();
        assert!(LabQpackDecoder::default().insert(&endless).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_insertions_or_refused_however_they_are_cut(
            bytes in proptest::collection::vec(proptest::prop_oneof![proptest::prelude::any::<u8>(), 0u8..0x50], 0..60),
            cut in 0..60usize,
        ) {
            let bytes = [&b"\x3f\xe1\x1f"[..], &bytes].concat();
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let (mut whole, mut halves) = (LabQpackDecoder::default(), LabQpackDecoder::default());
            let read = whole.insert(&bytes);
            proptest::prop_assert_eq!(halves.insert(first).and_then(|()| halves.insert(second)), read);
            if read.is_ok() {
                let section = b"\x02\x00\x80";
                proptest::prop_assert_eq!(fields(&mut halves, section), fields(&mut whole, section));
                proptest::prop_assert_eq!(halves.inserted, whole.inserted);
            }
        }
    }
}
