//! Writes name-value pairs as PARAMS records (FastCGI 1.0 §5.2).
//!
//! No pair is split over two records. The specification allows it, but php-fpm parses each record separately.

use crate::pair::{pair_len, push_lengths};
use crate::record::{HEADER_BYTES, Header, PARAMS_END, PIECE_MAX, RecordType};

/// Limits on the parameters of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamsLimits {
    /// The most bytes of all pairs together, with their lengths.
    pub bytes: usize,
}

/// Why a request cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// The parameters exceed [`ParamsLimits::bytes`].
    #[error("the parameters of the request have more than {0} bytes")]
    TooLarge(usize),
    /// A parameter is longer than a record.
    #[error("a parameter of the request has {0} bytes, more than a record of 65528")]
    PairTooLarge(usize),
    /// The length of the body is unknown, but CONTENT_LENGTH has to come before it. The caller has to receive the whole
    /// body first, or answer with 411.
    #[error("the length of the body is unknown, but CONTENT_LENGTH comes before it (RFC 3875 §4.1.2)")]
    LengthUnknown,
    /// The framing of the request is invalid.
    #[error("the framing of the request is invalid (RFC 9112 §6.3)")]
    Framing,
}

/// Properties of a request that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestOutline {
    /// The length of the body, as CONTENT_LENGTH says; it follows in the records of [`Stdin`](crate::Stdin).
    pub body: u64,
    /// How many fields were dropped, because their names are ambiguous as variables.
    pub dropped_fields: usize,
}

/// Name, or the header field that it is derived from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VariableName<'a> {
    /// As it is written.
    Plain(&'a [u8]),
    /// Variable of a field: `HTTP_` and the name in upper case, with underscores.
    Field(&'a [u8]),
}

/// Prefix of all variables of header fields (RFC 3875 §4.1.18).
const FIELD_PREFIX: &[u8] = b"HTTP_";

/// A byte of a field's name, in the name of its variable (RFC 3875 §4.1.18).
fn variable_byte(byte: u8) -> u8 {
    if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() }
}

impl VariableName<'_> {
    fn len(self) -> usize {
        match self {
            Self::Plain(name) => name.len(),
            Self::Field(name) => FIELD_PREFIX.len() + name.len(),
        }
    }

    /// Whether the variable has this name.
    pub(crate) fn is(self, other: &[u8]) -> bool {
        match self {
            Self::Plain(name) => name == other,
            Self::Field(name) => other.strip_prefix(FIELD_PREFIX).is_some_and(|rest| {
                rest.len() == name.len() && rest.iter().zip(name).all(|(a, b)| *a == variable_byte(*b))
            }),
        }
    }

    fn push(self, out: &mut Vec<u8>) {
        match self {
            Self::Plain(name) => out.extend_from_slice(name),
            Self::Field(name) => {
                out.extend_from_slice(FIELD_PREFIX);
                out.extend(name.iter().map(|byte| variable_byte(*byte)));
            }
        }
    }
}

/// Writes pairs to a buffer, in as few records as possible.
pub(crate) struct ParamWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Where the current record begins.
    record: usize,
    /// The bytes of all pairs.
    total: usize,
    limit: usize,
}

impl<'o> ParamWriter<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>, limits: ParamsLimits) -> Self {
        let record = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        Self { out, record, total: 0, limit: limits.bytes }
    }

    /// Adds a variable. Its value has these parts in a row.
    pub(crate) fn push<'v>(
        &mut self,
        name: VariableName<'_>,
        parts: impl Iterator<Item = &'v [u8]> + Clone,
    ) -> Result<(), ParamsError> {
        let value_len = parts.clone().map(<[u8]>::len).sum();
        let len = pair_len(name.len(), value_len);
        if len > PIECE_MAX {
            return Err(ParamsError::PairTooLarge(len));
        }
        self.total += len;
        if self.total > self.limit {
            return Err(ParamsError::TooLarge(self.limit));
        }
        if self.content() + len > PIECE_MAX {
            self.close();
            self.record = self.out.len();
            self.out.extend_from_slice(&[0; HEADER_BYTES]);
        }
        push_lengths(name.len(), value_len, self.out);
        name.push(self.out);
        parts.for_each(|part| self.out.extend_from_slice(part));
        Ok(())
    }

    /// Ends the parameters.
    pub(crate) fn end(mut self) {
        if self.content() > 0 {
            self.close();
        } else {
            self.out.truncate(self.record);
        }
        self.out.extend_from_slice(&PARAMS_END);
    }

    fn content(&self) -> usize {
        self.out.len() - self.record - HEADER_BYTES
    }

    fn close(&mut self) {
        let header = Header::new(RecordType::Params, self.content() as u16).encode();
        self.out[self.record..self.record + HEADER_BYTES].copy_from_slice(&header);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::ParamPairs;

    /// The pairs of each record.
    fn records(mut bytes: &[u8]) -> Vec<Vec<(Vec<u8>, usize)>> {
        let mut records = Vec::new();
        while let Some((header, rest)) = bytes.split_first_chunk() {
            let header = Header::decode(*header);
            assert_eq!((header.kind, header.padding), (RecordType::Params as u8, 0));
            let (content, rest) = rest.split_at(header.content.into());
            let pairs = ParamPairs::new(content).map(|pair| pair.expect("a whole pair"));
            records.push(pairs.map(|(name, value)| (name.to_vec(), value.len())).collect());
            bytes = rest;
        }
        records
    }

    fn written(lens: &[usize], limit: usize) -> Result<Vec<u8>, ParamsError> {
        let mut out = Vec::new();
        let mut writer = ParamWriter::new(&mut out, ParamsLimits { bytes: limit });
        for len in lens {
            writer.push(VariableName::Plain(b"N"), [&vec![b'v'; *len][..]].into_iter())?;
        }
        writer.end();
        Ok(out)
    }

    #[test]
    fn no_pair_is_split_over_records() {
        let full = PIECE_MAX - 6;
        for (lens, expected) in [
            (&[][..], &[0][..]),
            (&[1, 1], &[2, 0]),
            (&[full], &[1, 0]),
            (&[full, 0], &[1, 1, 0]),
            (&[0, full], &[1, 1, 0]),
            (&[40_000, 20_000, 20_000], &[2, 1, 0]),
        ] {
            let out = written(lens, usize::MAX).unwrap();
            let counts: Vec<usize> = records(&out).iter().map(Vec::len).collect();
            assert_eq!(counts, expected, "{lens:?}");
        }
        assert_eq!(written(&[full + 1], usize::MAX), Err(ParamsError::PairTooLarge(PIECE_MAX + 1)));
    }

    #[test]
    fn all_pairs_together_have_a_limit() {
        assert!(written(&[7, 7], 20).is_ok());
        assert_eq!(written(&[7, 8], 20), Err(ParamsError::TooLarge(20)));
    }

    #[test]
    fn fields_have_their_variables() {
        let mut out = Vec::new();
        let mut writer = ParamWriter::new(&mut out, ParamsLimits { bytes: 100 });
        writer.push(VariableName::Field(b"x-Forwarded-For"), [&b"a"[..], b", ", b"b"].into_iter()).unwrap();
        writer.end();
        assert_eq!(records(&out), [vec![(b"HTTP_X_FORWARDED_FOR".to_vec(), 4)], vec![]]);
        assert!(VariableName::Field(b"x-A").is(b"HTTP_X_A"));
        for other in [&b"HTTP_X_B"[..], b"HTTP_X-A", b"HTTP_X_A_", b"X_A"] {
            assert!(!VariableName::Field(b"x-A").is(other));
        }
    }
}
