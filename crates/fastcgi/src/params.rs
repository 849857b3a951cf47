//! Writes name-value pairs as PARAMS records (FastCGI 1.0 §5.2).
//!
//! No pair is split over two records. The specification allows it, but php-fpm parses each record separately.

use crate::pair::{SHORT_MAX, pair_len, push_lengths};
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
#[inline(always)]
fn variable_byte(byte: u8) -> u8 {
    if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() }
}

impl VariableName<'_> {
    #[inline(always)]
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

    #[inline(always)]
    fn push(self, out: &mut Vec<u8>) {
        match self {
            Self::Plain(name) => out.extend_from_slice(name),
            Self::Field(name) => {
                out.extend_from_slice(FIELD_PREFIX);
                push_field_name(name, out);
            }
        }
    }
}

/// How many bytes of a field's name are converted at once, in vector registers.
const NAME_PIECE: usize = 16;

#[inline(always)]
fn variable_bytes(mut piece: [u8; NAME_PIECE]) -> [u8; NAME_PIECE] {
    // A loop, because the closure of `map` is not inlined in every build.
    for byte in &mut piece {
        *byte = variable_byte(*byte);
    }
    piece
}

/// Appends a field's name as part of the name of a variable.
#[inline]
fn push_field_name(name: &[u8], out: &mut Vec<u8>) {
    let (pieces, rest) = name.as_chunks::<NAME_PIECE>();
    for piece in pieces {
        out.extend_from_slice(&variable_bytes(*piece));
    }
    let mut piece = [0; NAME_PIECE];
    piece[..rest.len()].copy_from_slice(rest);
    // All sixteen bytes, a constant length, are cheaper than a call that copies as many as there are.
    let end = out.len() + rest.len();
    out.extend_from_slice(&variable_bytes(piece));
    out.truncate(end);
}

/// Writes pairs to a buffer, in as few records as possible.
pub(crate) struct ParamWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Where the current record begins.
    record: usize,
    /// The length of `out` that the current record may reach.
    room_end: usize,
    /// The bytes of all pairs in the records before.
    before: usize,
    limit: usize,
}

impl<'o> ParamWriter<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>, limits: ParamsLimits) -> Self {
        let mut writer = Self { out, record: 0, room_end: 0, before: 0, limit: limits.bytes };
        writer.begin_record();
        writer
    }

    /// Adds a variable. Its value has these parts in a row.
    #[inline(always)]
    pub(crate) fn push<'v>(
        &mut self,
        name: VariableName<'_>,
        parts: impl Iterator<Item = &'v [u8]> + Clone,
    ) -> Result<(), ParamsError> {
        let value_len = parts.clone().map(<[u8]>::len).sum();
        let len = pair_len(name.len(), value_len);
        if len > self.room_end - self.out.len() {
            self.make_room(len)?;
        }
        push_lengths(name.len(), value_len, self.out);
        name.push(self.out);
        parts.for_each(|part| self.out.extend_from_slice(part));
        Ok(())
    }

    /// Adds a variable whose value is short, such as a number or an address. `write` appends it.
    #[inline(always)]
    pub(crate) fn push_short(
        &mut self,
        name: &[u8],
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), ParamsError> {
        let start = self.out.len();
        self.out.extend_from_slice(&[name.len() as u8, 0]);
        self.out.extend_from_slice(name);
        let value = self.out.len();
        write(self.out);
        let value_len = self.out.len() - value;
        assert!(name.len() <= SHORT_MAX && value_len <= SHORT_MAX, "numbers and addresses are short");
        self.out[start + 1] = value_len as u8;
        if self.out.len() > self.room_end { self.move_pair(start) } else { Ok(()) }
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

    /// Begins the next record, for a pair that the current one has no room for.
    #[cold]
    fn make_room(&mut self, len: usize) -> Result<(), ParamsError> {
        if len > PIECE_MAX {
            return Err(ParamsError::PairTooLarge(len));
        }
        if len > self.limit - self.before - self.content() {
            return Err(ParamsError::TooLarge(self.limit));
        }
        self.close();
        self.before += self.content();
        self.begin_record();
        Ok(())
    }

    /// Moves a pair that the current record has no room for to the next one.
    #[cold]
    fn move_pair(&mut self, start: usize) -> Result<(), ParamsError> {
        let pair = self.out.split_off(start);
        self.make_room(pair.len())?;
        self.out.extend_from_slice(&pair);
        Ok(())
    }

    fn begin_record(&mut self) {
        self.record = self.out.len();
        self.out.extend_from_slice(&[0; HEADER_BYTES]);
        self.room_end = self.out.len() + PIECE_MAX.min(self.limit - self.before);
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
    fn a_short_variable_moves_to_the_next_record_if_it_has_no_room() {
        // What is left of the first record, and the pairs of each record.
        for (left, expected) in [(4, &[2, 0][..]), (3, &[1, 1, 0]), (0, &[1, 1, 0])] {
            let mut out = Vec::new();
            let mut writer = ParamWriter::new(&mut out, ParamsLimits { bytes: PIECE_MAX + 4 - left });
            let long = vec![b'v'; PIECE_MAX - left - 6];
            writer.push(VariableName::Plain(b"N"), [&long[..]].into_iter()).unwrap();
            writer.push_short(b"P", |out| out.push(b'1')).unwrap();
            assert_eq!(
                writer.push_short(b"", |_| {}),
                Err(ParamsError::TooLarge(PIECE_MAX + 4 - left)),
                "{left}"
            );
            writer.end();
            let records = records(&out);
            assert_eq!(records.iter().map(Vec::len).collect::<Vec<_>>(), expected, "{left}");
            assert_eq!(records.concat()[1], (b"P".to_vec(), 1), "{left}");
        }
    }

    #[test]
    fn names_of_any_length_are_converted() {
        for len in 0..50 {
            let name: String = "x-Ab9-Cd".chars().cycle().take(len).collect();
            let mut out = b"kept".to_vec();
            VariableName::Field(name.as_bytes()).push(&mut out);
            let expected = format!("keptHTTP_{}", name.to_ascii_uppercase().replace('-', "_"));
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
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
