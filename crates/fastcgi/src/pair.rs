//! Name-value pairs (FastCGI 1.0 §3.4): two lengths of one or four bytes, the name, the value.

/// The longest length that one byte holds.
pub(crate) const SHORT_MAX: usize = 127;
/// The longest name or value: the highest bit of four says that there are four bytes.
const LONG_MAX: usize = 0x7fff_ffff;

/// Why bytes are no name-value pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// The bytes end within a length, a name or a value.
    #[error("the name-value pair at byte {at} is cut off (FastCGI §3.4)")]
    Truncated {
        /// Where the pair starts.
        at: usize,
    },
}

/// The bytes that a pair takes.
#[inline(always)]
pub(crate) fn pair_len(name: usize, value: usize) -> usize {
    let width = |len: usize| if len <= SHORT_MAX { 1 } else { 4 };
    width(name) + width(value) + name + value
}

/// Appends both lengths of a pair; its name and value have to follow.
#[inline(always)]
pub(crate) fn push_lengths(name: usize, value: usize, out: &mut Vec<u8>) {
    if name <= SHORT_MAX && value <= SHORT_MAX {
        out.extend_from_slice(&[name as u8, value as u8]);
    } else {
        push_long_lengths(name, value, out);
    }
}

#[cold]
fn push_long_lengths(name: usize, value: usize, out: &mut Vec<u8>) {
    for len in [name, value] {
        assert!(len <= LONG_MAX, "a name or value has less than 2 GiB");
        if len <= SHORT_MAX {
            out.push(len as u8);
        } else {
            out.extend_from_slice(&(len as u32 | 0x8000_0000).to_be_bytes());
        }
    }
}

/// Appends a pair.
///
/// # Panics
/// If name or value has 2 GiB or more.
pub fn push_pair(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    push_lengths(name.len(), value.len(), out);
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

/// A name and its value.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// Reads pairs. Ends after the last one, or after an error.
#[derive(Debug, Clone)]
pub struct ParamPairs<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ParamPairs<'a> {
    /// The pairs of a whole stream, or of records that split no pair.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next pair, and where the one behind it starts.
    fn pair(&self) -> Option<(Pair<'a>, usize)> {
        let rest = &self.bytes[self.at..];
        let (name, rest) = length(rest)?;
        let (value, rest) = length(rest)?;
        let (name, rest) = rest.split_at_checked(name)?;
        let (value, rest) = rest.split_at_checked(value)?;
        Some(((name, value), self.bytes.len() - rest.len()))
    }
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [first, rest @ ..] if *first & 0x80 == 0 => Some((usize::from(*first), rest)),
        [a, b, c, d, rest @ ..] => Some((u32::from_be_bytes([a & 0x7f, *b, *c, *d]) as usize, rest)),
        _ => None,
    }
}

impl<'a> Iterator for ParamPairs<'a> {
    type Item = Result<Pair<'a>, PairError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.bytes.len() {
            return None;
        }
        match self.pair() {
            Some((pair, end)) => {
                self.at = end;
                Some(Ok(pair))
            }
            None => {
                let at = std::mem::replace(&mut self.at, self.bytes.len());
                Some(Err(PairError::Truncated { at }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_have_one_byte_or_four() {
        for (name, value, head) in [
            (0, 0, &b"\0\0"[..]),
            (127, 0, b"\x7f\0"),
            (128, 127, b"\x80\0\0\x80\x7f"),
            (1, 70_000, b"\x01\x80\x01\x11\x70"),
            (200, 300, b"\x80\0\0\xc8\x80\0\x01\x2c"),
        ] {
            let (name, value) = (vec![b'N'; name], vec![b'v'; value]);
            let mut out = Vec::new();
            push_pair(&name, &value, &mut out);
            assert_eq!(out, [head, &name, &value].concat());
            assert_eq!(out.len(), pair_len(name.len(), value.len()));
            assert_eq!(ParamPairs::new(&out).collect::<Vec<_>>(), [Ok((&name[..], &value[..]))]);
        }
    }

    #[test]
    fn a_pair_that_is_cut_off_is_an_error_once() {
        let mut out = Vec::new();
        push_pair(b"A", b"1", &mut out);
        let first = out.len();
        push_pair(b"NAME", &[b'v'; 200], &mut out);
        for end in first + 1..out.len() {
            let read: Vec<_> = ParamPairs::new(&out[..end]).collect();
            assert_eq!(read, [Ok((&b"A"[..], &b"1"[..])), Err(PairError::Truncated { at: first })], "{end}");
        }
        // A length of nearly 2 GiB reads nothing beyond the end.
        let read: Vec<_> = ParamPairs::new(b"\xff\xff\xff\xff\0x").collect();
        assert_eq!(read, [Err(PairError::Truncated { at: 0 })]);
    }

    proptest! {
        #[test]
        fn pairs_read_back_as_they_were_written(
            pairs in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(any::<u8>(), 0..300)), 0..6),
        ) {
            let mut out = Vec::new();
            pairs.iter().for_each(|(name, value)| push_pair(name, value, &mut out));
            let read: Result<Vec<_>, _> = ParamPairs::new(&out).collect();
            let written: Vec<_> = pairs.iter().map(|(name, value)| (&name[..], &value[..])).collect();
            prop_assert_eq!(read, Ok(written));
        }

        #[test]
        fn any_bytes_are_pairs_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(ParamPairs::new(&bytes).count() <= bytes.len());
        }
    }
}
