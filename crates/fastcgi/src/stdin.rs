//! The body of a request as STDIN records (FastCGI 1.0 §5.3), with exactly the length that CONTENT_LENGTH says.
//!
//! Only headers are made here: the content follows from where the caller has it.

use crate::record::{HEADER_BYTES, Header, PIECE_MAX, RecordType};

/// The record that ends the body of a request (FastCGI §5.3). A request without a body needs it, too.
pub const STDIN_END: [u8; HEADER_BYTES] = Header::new(RecordType::Stdin, 0).encode();

/// The progress of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stdin {
    left: u64,
}

/// The body is longer than CONTENT_LENGTH. The application would read the rest as the start of the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body of the request is longer than CONTENT_LENGTH (RFC 3875 §4.2)")]
pub struct BodyTooLong;

impl Stdin {
    /// A body of this length, as in [`RequestOutline::body`](crate::RequestOutline::body).
    pub fn new(length: u64) -> Self {
        Self { left: length }
    }

    /// How many bytes are missing. At 0, [`STDIN_END`] follows.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns the header of the next record for a piece of the body with `len` bytes, and how many of them the record
    /// takes: at most [`PIECE_MAX`].
    ///
    /// # Errors
    /// The body is longer than announced, and the record would begin behind its end.
    ///
    /// # Panics
    /// If `len` is 0, because a record without content ends the body.
    #[inline]
    pub fn record(&mut self, len: usize) -> Result<([u8; HEADER_BYTES], usize), BodyTooLong> {
        assert!(len > 0, "an empty record ends the body");
        let taken = len.min(PIECE_MAX).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if taken == 0 {
            return Err(BodyTooLong);
        }
        self.left -= taken as u64;
        Ok((Header::new(RecordType::Stdin, taken as u16).encode(), taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_cut_into_records_of_its_length() {
        assert_eq!(STDIN_END, *b"\x01\x05\0\x01\0\0\0\0");
        for (length, lens, expected, outcome) in [
            (0, &[][..], &[][..], Ok(0)),
            (5, &[2, 3], &[2, 3], Ok(0)),
            (5, &[2], &[2], Ok(3)),
            (5, &[9, 4], &[5], Err(BodyTooLong)),
            (0, &[1], &[], Err(BodyTooLong)),
            (0x1_0000, &[0x1_0000, 8], &[0xfff8, 8], Ok(0)),
            (u64::MAX, &[usize::MAX], &[0xfff8], Ok(u64::MAX - 0xfff8)),
        ] {
            let mut stdin = Stdin::new(length);
            let records: Result<Vec<_>, _> = lens.iter().map(|len| stdin.record(*len)).collect();
            match records {
                Ok(records) => {
                    for ((header, taken), expected) in records.iter().zip(expected) {
                        assert_eq!(taken, expected);
                        assert_eq!(Header::decode(*header), Header::new(RecordType::Stdin, *expected as u16));
                    }
                    assert_eq!((records.len(), Ok(stdin.left())), (expected.len(), outcome));
                }
                Err(error) => assert_eq!((Err(error), stdin.left()), (outcome, 0)),
            }
        }
    }
}
