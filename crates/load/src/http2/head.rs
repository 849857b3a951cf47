//! Heads and trailers of responses: checks them (RFC 9113 §8, RFC 9114 §4), and reads status and length. If the table
//! has not changed, a block that equals an earlier one is not read again: most servers change only the Date.

use super::decode::{Decode, LabHpackDecoder};
use crate::page;

/// Maximum size of a head or of trailers, in the units of SETTINGS_MAX_HEADER_LIST_SIZE.
pub(crate) const FIELDS_BYTES_MAX: usize = 64 * 1024;
/// RFC 9113 §6.5.2: overhead of each field.
const FIELD_BYTES: usize = 32;
const KNOWN: usize = 8;
/// Maximum size of a remembered block.
const KNOWN_BYTES_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct H2ResponseHead {
    pub(crate) status: u16,
    /// Its media type, as a number from [`page::kind`].
    pub(crate) kind: u32,
    /// Content-Length, if there is one.
    pub(crate) length: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockFault {
    /// The block cannot be decoded, nor can any later block of the connection.
    Undecodable,
    /// RFC 9113 §8.1.1: the response is malformed.
    Malformed(&'static str),
}

/// Reads the blocks of a connection, in their order.
#[derive(Debug, Default)]
pub(crate) struct Heads<D = LabHpackDecoder> {
    decoder: D,
    known: [Option<KnownBlock>; KNOWN],
}

/// A block that did not change the table, and the state of the table that it was read with.
#[derive(Debug)]
struct KnownBlock {
    block: Vec<u8>,
    changes: u64,
    head: H2ResponseHead,
}

impl<D: Decode> Heads<D> {
    /// The decoder, for the instructions beside the blocks.
    pub(crate) fn decoder(&mut self) -> &mut D {
        &mut self.decoder
    }

    #[inline]
    pub(crate) fn read(&mut self, block: &[u8]) -> Result<H2ResponseHead, BlockFault> {
        let place = block.last().map_or(0, |last| (usize::from(*last) + block.len()) % KNOWN);
        if let Some(known) = &self.known[place]
            && known.changes == self.decoder.changes()
            && known.block == block
        {
            return Ok(known.head);
        }
        let before = self.decoder.changes();
        let head = self.read_fields(block, |_, _| {})?;
        if before == self.decoder.changes() && block.len() <= KNOWN_BYTES_MAX {
            let known =
                self.known[place].get_or_insert_with(|| KnownBlock { block: Vec::new(), changes: 0, head });
            known.block.clear();
            known.block.extend_from_slice(block);
            (known.changes, known.head) = (before, head);
        }
        Ok(head)
    }

    /// Reads the head of a response, and passes its regular fields to `keep`.
    pub(crate) fn read_fields(
        &mut self,
        block: &[u8],
        mut keep: impl FnMut(&[u8], &[u8]),
    ) -> Result<H2ResponseHead, BlockFault> {
        let mut checks = Checks::default();
        let (mut status, mut length, mut kind) = (None, None, 0);
        let decoded = self.decoder.decode(block, |name, value| {
            if let Some(name) = name.strip_prefix(b":") {
                if name != b"status" || status.is_some() || checks.has_regular {
                    checks.wrong("a pseudo-header field other than :status, or in the wrong place");
                }
                status = number(value).filter(|status| value.len() == 3 && *status >= 100);
                return;
            }
            checks.field(name, value);
            if name == b"content-length" {
                let given = number(value);
                if given.is_none() || length.is_some_and(|length| Some(length) != given) {
                    checks.wrong("Content-Length is not a number, or there are several that differ");
                }
                length = given;
            } else if name == b"content-type" {
                kind = page::kind(value);
            }
            keep(name, value);
        });
        decoded.map_err(|_| BlockFault::Undecodable)?;
        checks.end()?;
        let status = status
            .ok_or(BlockFault::Malformed("there is no :status, or it is not a number of three digits"))?;
        Ok(H2ResponseHead { status: status as u16, kind, length })
    }

    pub(crate) fn trailers(&mut self, block: &[u8]) -> Result<(), BlockFault> {
        let mut checks = Checks::default();
        let decoded = self.decoder.decode(block, |name, value| checks.field(name, value));
        decoded.map_err(|_| BlockFault::Undecodable)?;
        checks.end()
    }
}

#[derive(Debug, Default)]
struct Checks {
    bytes: usize,
    has_regular: bool,
    wrong: Option<&'static str>,
}

impl Checks {
    fn wrong(&mut self, what: &'static str) {
        self.wrong.get_or_insert(what);
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.has_regular = true;
        self.bytes += name.len() + value.len() + FIELD_BYTES;
        // RFC 9113 §8.2.1.
        if name.is_empty()
            || name.iter().any(|byte| !matches!(byte, 0x21..=0x7e) || matches!(byte, b'A'..=b'Z' | b':'))
        {
            self.wrong("a field name has an invalid character");
        }
        if memchr::memchr3(0, b'\r', b'\n', value).is_some() {
            self.wrong("a field value has a line break or a NUL");
        }
        // RFC 9113 §8.2.2.
        let of_connections: [&[u8]; 5] =
            [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];
        if of_connections.contains(&name) {
            self.wrong("a field is about one connection, such as Connection or Transfer-Encoding");
        }
    }

    fn end(self) -> Result<(), BlockFault> {
        if self.bytes > FIELDS_BYTES_MAX {
            return Err(BlockFault::Malformed("the fields are larger than 64 KiB"));
        }
        self.wrong.map_or(Ok(()), |what| Err(BlockFault::Malformed(what)))
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.len() < 19 && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use lab_http3::prefixed::push_integer;

    use super::*;

    /// A block of literals that are not put into the table.
    fn block(fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in fields {
            block.push(0);
            for text in [name, value] {
                push_integer(&mut block, text.len(), 7, 0);
                block.extend_from_slice(text.as_bytes());
            }
        }
        block
    }

    #[test]
    fn rfc_9113_8_heads_have_a_status_and_fields_that_may_be_there() {
        let ok = (":status", "200");
        let malformed: [&[(&str, &str)]; 13] = [
            &[],
            &[("a", "b")],
            &[(":status", "20")],
            &[(":status", "0200")],
            &[(":status", "099")],
            &[ok, ok],
            &[("a", "b"), ok],
            &[(":path", "/"), ok],
            &[ok, ("A", "b")],
            &[ok, ("a", "b\n")],
            &[ok, ("connection", "close")],
            &[ok, ("content-length", "-1")],
            &[ok, ("content-length", "1"), ("content-length", "2")],
        ];
        for fields in malformed {
            let read = Heads::<LabHpackDecoder>::default().read(&block(fields));
            assert!(matches!(read, Err(BlockFault::Malformed(_))), "{fields:?}: {read:?}");
        }
        let mut heads = Heads::<LabHpackDecoder>::default();
        let good = block(&[ok, ("content-length", "05"), ("content-length", "5")]);
        for _ in 0..2 {
            assert_eq!(heads.read(&good), Ok(H2ResponseHead { status: 200, kind: 0, length: Some(5) }));
        }
        assert_eq!(heads.read(b"\x80"), Err(BlockFault::Undecodable));
        assert!(heads.trailers(&block(&[ok])).is_err() && heads.trailers(&block(&[("a", "b")])).is_ok());
        let large = "x".repeat(FIELDS_BYTES_MAX);
        assert!(heads.read(&block(&[ok, ("a", &large)])).is_err());
    }

    #[test]
    fn a_known_block_is_read_again_when_the_table_has_changed() {
        let mut heads = Heads::<LabHpackDecoder>::default();
        // The newest entry is the status.
        assert_eq!(heads.read(b"\x48\x03201").map(|head| head.status), Ok(201));
        assert_eq!(heads.read(b"\xbe").map(|head| head.status), Ok(201));
        assert_eq!(heads.read(b"\xbe").map(|head| head.status), Ok(201));
        assert_eq!(heads.read(b"\x48\x03202").map(|head| head.status), Ok(202));
        assert_eq!(heads.read(b"\xbe").map(|head| head.status), Ok(202));
    }
}
