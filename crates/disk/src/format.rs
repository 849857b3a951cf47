//! The on-disk format of records and segments: little-endian numbers, each header with its own checksum.
//!
//! A segment is a header followed by records. Only data with a correct checksum is trusted.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Magic number, store ID, segment number, checksum.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 40;

pub(crate) const RECORD_HEADER_BYTES: usize = 64;

/// The last byte is the version.
const SEGMENT_MAGIC: [u8; 8] = *b"vanwseg\x01";
const RECORD_MAGIC: u32 = 0x7277_6176;

/// Identifies the store that a segment belongs to.
pub(crate) type StoreId = u128;

pub(crate) fn segment_header(store: StoreId, number: u64) -> [u8; SEGMENT_HEADER_BYTES] {
    let mut header = [0; SEGMENT_HEADER_BYTES];
    header[..8].copy_from_slice(&SEGMENT_MAGIC);
    header[8..24].copy_from_slice(&store.to_le_bytes());
    header[24..32].copy_from_slice(&number.to_le_bytes());
    let sum = xxh3_64(&header[..32]);
    header[32..].copy_from_slice(&sum.to_le_bytes());
    header
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Put,
    Remove,
    Clear,
    /// A note about all earlier records; its key is 0.
    Note,
}

impl RecordKind {
    const ALL: [(Self, u8); 4] = [(Self::Put, 1), (Self::Remove, 2), (Self::Clear, 3), (Self::Note, 4)];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    pub(crate) key: u128,
    pub(crate) variant: u64,
    /// The run number of the process that wrote the record.
    pub(crate) run: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) payload_sum: u64,
}

/// Length of the part of a header that its checksum covers.
const SUMMED_BYTES: usize = RECORD_HEADER_BYTES - 8;

impl RecordHeader {
    pub(crate) fn to_bytes(self) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[..4].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
        bytes[4] = RecordKind::ALL.iter().find(|(kind, _)| *kind == self.kind).map_or(0, |(_, byte)| *byte);
        bytes[8..24].copy_from_slice(&self.key.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.variant.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.run.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.payload_sum.to_le_bytes());
        let sum = xxh3_64(&bytes[..SUMMED_BYTES]);
        bytes[SUMMED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Returns `None` if the header is damaged, or is no header.
    pub(crate) fn from_bytes(bytes: &[u8; RECORD_HEADER_BYTES]) -> Option<Self> {
        let (said, sum) = bytes.split_at(SUMMED_BYTES);
        let is_right = xxh3_64(said).to_le_bytes() == *sum && said[..4] == RECORD_MAGIC.to_le_bytes();
        let (kind, _) = RecordKind::ALL.into_iter().find(|(_, byte)| *byte == said[4])?;
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

/// Computes the checksum of a payload. It covers the key too, so that a record in the wrong place is not trusted.
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
            kind: RecordKind::Put,
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
