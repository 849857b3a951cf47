//! HPACK decoder: header blocks to fields (RFC 7541).

use fields::huffman;
use fields::table::FieldTable;

use crate::table::{self, SIZE_DEFAULT, STATIC_LEN};

/// An invalid header block. This is a connection error, because later blocks cannot be decoded either (RFC 9113 §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidBlock;

impl From<huffman::InvalidHuffman> for InvalidBlock {
    fn from(_: huffman::InvalidHuffman) -> Self {
        Self
    }
}

/// Decodes the header blocks of one connection, in order.
pub struct HpackDecoder {
    table: FieldTable,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Default for HpackDecoder {
    fn default() -> Self {
        Self { table: FieldTable::new(SIZE_DEFAULT), name: Vec::new(), value: Vec::new() }
    }
}

/// Memory that is kept for reuse with each name or value, in bytes.
const KEEP_MAX: usize = 1024;

impl HpackDecoder {
    /// Decodes a block. `field` is called with the name and value of each field, in order.
    pub fn decode(&mut self, block: &[u8], mut field: impl FnMut(&[u8], &[u8])) -> Result<(), InvalidBlock> {
        let mut rest = block;
        let mut is_first = true;
        while let Some(&first) = rest.first() {
            match first {
                // RFC 7541 §6.1: an indexed field.
                0x80.. => {
                    let index = integer(&mut rest, 7)?;
                    let (name, value) = self.at(index)?;
                    field(name, value);
                }
                // RFC 7541 §6.2.1: a literal that enters the dynamic table.
                0x40..0x80 => {
                    self.literal(&mut rest, 6)?;
                    field(&self.name, &self.value);
                    self.table.insert(&self.name, &self.value);
                }
                // RFC 7541 §6.3, §4.2: a new table size, allowed only at the start of a block, and up to our limit.
                0x20..0x40 => {
                    let size = integer(&mut rest, 5)?;
                    if !is_first || size > SIZE_DEFAULT {
                        return Err(InvalidBlock);
                    }
                    self.table.set_limit(size);
                    // Skips `is_first = false`: two changes of the size may come in a row.
                    continue;
                }
                // RFC 7541 §6.2.2, §6.2.3: a literal that does not enter the table.
                _ => {
                    self.literal(&mut rest, 4)?;
                    field(&self.name, &self.value);
                }
            }
            is_first = false;
        }
        // A long value must not stay allocated until the connection ends.
        self.name.shrink_to(KEEP_MAX);
        self.value.shrink_to(KEEP_MAX);
        Ok(())
    }

    fn at(&self, index: usize) -> Result<(&[u8], &[u8]), InvalidBlock> {
        match index {
            // RFC 7541 §6.1: index 0 is an error, and no entry of the static table.
            0..=STATIC_LEN => table::fixed(index).ok_or(InvalidBlock),
            _ => self.table.at(index - STATIC_LEN - 1).ok_or(InvalidBlock),
        }
    }

    /// Reads name and value of a literal field, whose name index has this many bits.
    fn literal(&mut self, rest: &mut &[u8], bits: u32) -> Result<(), InvalidBlock> {
        let index = integer(rest, bits)?;
        let mut name = std::mem::take(&mut self.name);
        name.clear();
        if index == 0 {
            string(rest, &mut name)?;
        } else {
            // RFC 7541 §4.4: copied, because inserting the field may evict the entry that its name comes from.
            name.extend_from_slice(self.at(index)?.0);
        }
        self.name = name;
        self.value.clear();
        string(rest, &mut self.value)
    }
}

/// RFC 7541 §5.1: an integer that begins in the lowest `bits` of the first byte.
fn integer(rest: &mut &[u8], bits: u32) -> Result<usize, InvalidBlock> {
    let (&first, mut behind) = rest.split_first().ok_or(InvalidBlock)?;
    let mask = (1usize << bits) - 1;
    let mut value = usize::from(first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let (&byte, after) = behind.split_first().ok_or(InvalidBlock)?;
            behind = after;
            // No valid integer reaches 2^28, so more bytes are an error.
            if shift > 21 {
                return Err(InvalidBlock);
            }
            value += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = behind;
    Ok(value)
}

/// RFC 7541 §5.2: a string, appended to `text`.
fn string(rest: &mut &[u8], text: &mut Vec<u8>) -> Result<(), InvalidBlock> {
    let is_coded = rest.first().ok_or(InvalidBlock)? & 0x80 != 0;
    let len = integer(rest, 7)?;
    let (bytes, behind) = rest.split_at_checked(len).ok_or(InvalidBlock)?;
    *rest = behind;
    if is_coded {
        huffman::decode(bytes, text)?;
    } else {
        text.extend_from_slice(bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of each block, decoded one after the other.
    fn said(blocks: &[&[u8]]) -> Vec<Result<String, InvalidBlock>> {
        let mut decoder = HpackDecoder::default();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let read = |block: &&[u8]| {
            let mut said = String::new();
            let field = |name: &[u8], value: &[u8]| said += &format!("{}: {}\n", text(name), text(value));
            decoder.decode(block, field).map(|()| said)
        };
        blocks.iter().map(read).collect()
    }

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 7541 §C.4.
        let first = b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        let second = b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf";
        let third =
            b"\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf";
        let get = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n";
        let last = ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n";
        let expected = [
            get.to_owned(),
            format!("{get}cache-control: no-cache\n"),
            format!("{last}custom-key: custom-value\n"),
        ];
        assert_eq!(said(&[first, second, third]), expected.map(Ok));
    }

    #[test]
    fn invalid_input_is_unreadable() {
        let bad: [&[u8]; 11] = [
            b"\x80",                             // index 0
            b"\xbe",                             // nothing was said yet
            b"\xff\xff\xff\xff\xff\xff\xff\x7f", // too large for anything
            b"\x40",                             // no name
            b"\x40\x01a",                        // no value
            b"\x40\x05a",                        // less than it says
            b"\x7f\x00\x01a",                    // the name of nothing
            b"\x00\x81\xff\x00",                 // padding of a whole byte
            b"\x82\x20",                         // a size behind a field
            b"\x3f\xe2\x1f",                     // a size of 4097
            b"\x1f",                             // half an integer
        ];
        for block in bad {
            assert_eq!(said(&[block]), [Err(InvalidBlock)], "{block:x?}");
        }
    }

    #[test]
    fn a_smaller_table_forgets() {
        let blocks: [&[u8]; 4] = [b"\x40\x01a\x01b", b"\xbe", b"\x20\x3f\xe1\x1f", b"\xbe"];
        let a = || Ok("a: b\n".to_owned());
        assert_eq!(said(&blocks), [a(), a(), Ok(String::new()), Err(InvalidBlock)]);
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]

        #[test]
        fn another_encoder_is_understood(lists: Vec<Vec<(Vec<u8>, Vec<u8>)>>) {
            let (mut encoder, mut decoder) = (loona_hpack::Encoder::new(), HpackDecoder::default());
            for list in lists {
                let block = encoder.encode(list.iter().map(|(name, value)| (name.as_slice(), value.as_slice())));
                let mut got = Vec::new();
                let outcome = decoder.decode(&block, |name, value| got.push((name.to_vec(), value.to_vec())));
                assert_eq!((outcome, got), (Ok(()), list));
            }
        }

        #[test]
        fn anything_is_read_or_unreadable(blocks: Vec<Vec<u8>>) {
            let mut decoder = HpackDecoder::default();
            for block in blocks {
                let _ = decoder.decode(&block, |_, _| {});
            }
        }
    }
}
