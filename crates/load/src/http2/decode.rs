//! HPACK decoder: header blocks to fields (RFC 7541).

use lab_http3::DynamicTable;
use lab_http3::prefixed::{Undecodable, read_integer, read_string};

/// Size of the dynamic table that the server may use: the default of SETTINGS_HEADER_TABLE_SIZE.
const TABLE_BYTES: usize = 4096;

#[derive(Debug)]
pub(crate) struct LabHpackDecoder {
    table: DynamicTable,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Default for LabHpackDecoder {
    fn default() -> Self {
        Self { table: DynamicTable::new(TABLE_BYTES), name: Vec::new(), value: Vec::new() }
    }
}

/// Decodes the header blocks of a connection, in their order.
pub(crate) trait Decode: Default {
    /// Number of changes of the table: while it is the same, equal blocks have equal fields.
    fn changes(&self) -> u64;

    /// Passes the fields of a block to `field`, in order.
    fn decode(&mut self, block: &[u8], field: impl FnMut(&[u8], &[u8])) -> Result<(), Undecodable>;
}

impl Decode for LabHpackDecoder {
    fn changes(&self) -> u64 {
        self.table.changes()
    }

    fn decode(&mut self, mut block: &[u8], mut field: impl FnMut(&[u8], &[u8])) -> Result<(), Undecodable> {
        let mut may_resize = true;
        while let Some(&first) = block.first() {
            match first {
                // RFC 7541 §6.1: an indexed field.
                0x80.. => {
                    let index = read_integer(&mut block, 7)?;
                    let (name, value) = self.entry(index)?;
                    field(name, value);
                }
                // RFC 7541 §6.3: a table size update, only at the start of a block (§4.2).
                0x20..0x40 => {
                    let limit_bytes = read_integer(&mut block, 5)?;
                    if !may_resize || limit_bytes > TABLE_BYTES {
                        return Err(Undecodable::Invalid);
                    }
                    self.table.set_limit(limit_bytes);
                    continue;
                }
                // RFC 7541 §6.2: a literal field.
                _ => {
                    let is_indexed = first >= 0x40;
                    self.literal(&mut block, if is_indexed { 6 } else { 4 })?;
                    field(&self.name, &self.value);
                    if is_indexed {
                        // RFC 7541 §4.4: an entry larger than the table empties it, and is not an error.
                        let _ = self.table.insert(&self.name, &self.value);
                    }
                }
            }
            may_resize = false;
        }
        Ok(())
    }
}

impl LabHpackDecoder {
    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), Undecodable> {
        let place = index.checked_sub(1).ok_or(Undecodable::Invalid)?;
        if let Some((name, value)) = STATIC.get(place) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        self.table.recent(place - STATIC.len()).ok_or(Undecodable::Invalid)
    }

    /// Reads a literal field into `name` and `value`.
    fn literal(&mut self, block: &mut &[u8], prefix_bits: u32) -> Result<(), Undecodable> {
        let index = read_integer(block, prefix_bits)?;
        let mut name = std::mem::take(&mut self.name);
        name.clear();
        if index == 0 {
            read_string(block, 7, &mut name)?;
        } else {
            name.extend_from_slice(self.entry(index)?.0);
        }
        self.name = name;
        self.value.clear();
        read_string(block, 7, &mut self.value)
    }
}

/// RFC 7541, Appendix A.
#[rustfmt::skip]
pub(super) static STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(blocks: &[&[u8]]) -> Vec<Result<String, Undecodable>> {
        let mut decoder = LabHpackDecoder::default();
        let decode = |block: &&[u8]| {
            let mut text = String::new();
            let field = |name: &[u8], value: &[u8]| {
                let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                text += &format!("{name}: {value}\n");
            };
            decoder.decode(block, field).map(|()| text)
        };
        blocks.iter().map(decode).collect()
    }

    #[test]
    fn rfc_7541_c_5_responses() {
        // The table of the examples holds 256 bytes.
        let first = b"\x3f\xe1\x01\x48\x03302\x58\x07private\x61\x1dMon, 21 Oct 2013 20:13:21 GMT\
            \x6e\x17https://www.example.com";
        let second = b"\x48\x03307\xc1\xc0\xbf";
        let told = fields(&[first, second]);
        let rest = "cache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com\n";
        assert_eq!(told, [Ok(format!(":status: 302\n{rest}")), Ok(format!(":status: 307\n{rest}"))]);
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for block in [
            &b"\x80"[..],                        // index 0
            b"\xbe",                             // an empty table
            b"\xff\xff\xff\xff\xff\xff\xff\x7f", // too large for anything
            b"\x40",                             // no name
            b"\x40\x01a",                        // no value
            b"\x40\x05a",                        // shorter than it says
            b"\x7f\x00\x01a",                    // the name of nothing
            b"\x00\x81\xff\x00",                 // padding of a whole byte
            b"\x82\x20",                         // a size behind a field
            b"\x3f\xe2\x1f",                     // a size of 4,097
            b"\x1f",                             // half an integer
        ] {
            assert!(matches!(fields(&[block])[..], [Err(_)]), "{block:x?}");
        }
    }

    #[test]
    fn a_smaller_table_forgets() {
        let told = fields(&[b"\x40\x01a\x01b", b"\xbe", b"\x20\x3f\xe1\x1f", b"\xbe"]);
        let field = || Ok("a: b\n".to_owned());
        assert_eq!(told, [field(), field(), Ok(String::new()), Err(Undecodable::Invalid)]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_fields_or_refused(blocks: Vec<Vec<u8>>) {
            fields(&blocks.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
    }
}
