//! The on-disk format of records and segments: little-endian numbers, each header with its own checksum.
//!
//! A segment is a header with records behind it. Only data with a correct checksum is trusted.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The size of a segment's header: a magic number, the store's ID, the segment's number, and a checksum.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 40;

/// The size of a record's header.
pub(crate) const RECORD_HEADER_BYTES: usize = 64;

/// The last byte is the version.
const SEGMENT_MAGIC: [u8; 8] = *b"vanwseg\x01";
const RECORD_MAGIC: u32 = 0x7277_6176;

/// The ID of the store that a segment belongs to.
pub(crate) type StoreId = u128;

/// Encodes the header of a segment.
pub(crate) fn segment_header(store: StoreId, number: u64) -> [u8; SEGMENT_HEADER_BYTES] {
    let mut header = [0; SEGMENT_HEADER_BYTES];
    header[..8].copy_from_slice(&SEGMENT_MAGIC);
    header[8..24].copy_from_slice(&store.to_le_bytes());
    header[24..32].copy_from_slice(&number.to_le_bytes());
    let sum = xxh3_64(&header[..32]);
    header[32..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Stores bytes as a variant of a key.
    Put,
    /// Removes all variants of a key.
    Remove,
    /// Removes all keys.
    Clear,
    /// A note about all earlier records. It has no key.
    Note,
}

impl Kind {
    const ALL: [(Self, u8); 4] = [(Self::Put, 1), (Self::Remove, 2), (Self::Clear, 3), (Self::Note, 4)];
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: Kind,
    pub(crate) key: u128,
    pub(crate) variant: u64,
    /// The run number of the process that wrote the record.
    pub(crate) run: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) payload_sum: u64,
}

/// What of a header its checksum is over.
const SUMMED_BYTES: usize = RECORD_HEADER_BYTES - 8;

impl RecordHeader {
    pub(crate) fn to_bytes(self) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[..4].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
        bytes[4] = Kind::ALL.iter().find(|(kind, _)| *kind == self.kind).map_or(0, |(_, byte)| *byte);
        bytes[8..24].copy_from_slice(&self.key.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.variant.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.run.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.payload_sum.to_le_bytes());
        let sum = xxh3_64(&bytes[..SUMMED_BYTES]);
        bytes[SUMMED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a header; `None` if it is damaged, or no header at all.
    pub(crate) fn from_bytes(bytes: &[u8; RECORD_HEADER_BYTES]) -> Option<Self> {
        let (said, sum) = bytes.split_at(SUMMED_BYTES);
        let is_right = xxh3_64(said).to_le_bytes() == *sum && said[..4] == RECORD_MAGIC.to_le_bytes();
        let (kind, _) = Kind::ALL.into_iter().find(|(_, byte)| *byte == said[4])?;
        is_right.then_some(Self {
            kind,
            key: u128::from_le_bytes(said[8..24].try_into().ok()?),
            variant: u64::from_le_bytes(said[24..32].try_into().ok()?),
            run: u32::from_le_bytes(said[32..36].try_into().ok()?),
            payload_bytes: u32::from_le_bytes(said[36..40].try_into().ok()?),
            payload_sum: u64::from_le_bytes(said[40..48].try_into().ok()?),
        })
    }
}

/// The checksum of a payload. It depends on the key too, so that a record in the wrong place is not trusted.
pub(crate) fn payload_sum<'a>(key: u128, parts: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut sum = Xxh3::new();
    sum.update(&key.to_le_bytes());
    parts.for_each(|part| sum.update(part));
    sum.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_any_bit_turned_is_not_believed() {
        let header = RecordHeader {
            kind: Kind::Put,
            key: 7 << 70,
            variant: 9,
            run: 3,
            payload_bytes: 1000,
            payload_sum: 42,
        };
        let bytes = header.to_bytes();
        assert_eq!(RecordHeader::from_bytes(&bytes), Some(header));
        for bit in 0..RECORD_HEADER_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::from_bytes(&damaged), None, "bit {bit}");
        }
    }
}
