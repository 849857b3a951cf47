//! Byte ranges (RFC 9110 §14): parses the Range field. `endpoint::page` sends the response.

/// With more ranges, the field is ignored (RFC 9110 §14.2).
const RANGES_MAX: usize = 16;

/// First and last byte, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl ByteRange {
    pub(crate) fn length(self) -> u64 {
        self.last - self.first + 1
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// No range, another unit, or a value that must be ignored.
    Whole,
    /// The satisfiable ranges, at least one, in the requested order.
    Parts(Vec<ByteRange>),
    /// No range overlaps the representation.
    Unsatisfiable,
}

/// Parses a Range field for a representation of `length` bytes.
pub(crate) fn select(value: &str, length: u64) -> Selection {
    parse(value, length).unwrap_or(Selection::Whole)
}

/// Returns `None` if the field must be ignored (RFC 9110 §14.2): another unit, a malformed set, or too many ranges.
fn parse(value: &str, length: u64) -> Option<Selection> {
    let (unit, set) = value.split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (mut parts, mut count) = (Vec::new(), 0);
    for text in set.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        count += 1;
        if count > RANGES_MAX {
            return None;
        }
        parts.extend(parse_one(text, length)?);
    }
    let overlaps = |(index, a): (usize, &ByteRange)| {
        parts[..index].iter().filter(|b| a.first <= b.last && b.first <= a.last).count()
    };
    // RFC 9110 §14.2: more than two overlapping ranges come from a broken client or an attack.
    if parts.iter().enumerate().map(overlaps).sum::<usize>() > 2 || count == 0 {
        return None;
    }
    Some(if parts.is_empty() { Selection::Unsatisfiable } else { Selection::Parts(parts) })
}

/// `None` is malformed, `Some(None)` unsatisfiable.
fn parse_one(text: &str, length: u64) -> Option<Option<ByteRange>> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // RFC 9110 §14.1.1: an overlong number is a large one, not an error.
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let range = match text.split_once('-')? {
        ("", suffix) => {
            let suffix = number(suffix)?.min(length);
            (suffix > 0).then(|| ByteRange { first: length - suffix, last: length - 1 })
        }
        (first, "") => {
            let first = number(first)?;
            (first < length).then(|| ByteRange { first, last: length - 1 })
        }
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            (first < length).then(|| ByteRange { first, last: last.min(length - 1) })
        }
    };
    Some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(parts: &[(u64, u64)]) -> Selection {
        Selection::Parts(parts.iter().map(|&(first, last)| ByteRange { first, last }).collect())
    }

    #[test]
    fn rfc9110_14_1_2_byte_ranges() {
        for (value, expected) in [
            ("bytes=0-499", parts(&[(0, 499)])),
            ("bytes=500-999", parts(&[(500, 999)])),
            ("bytes=-500", parts(&[(9500, 9999)])),
            ("bytes=9500-", parts(&[(9500, 9999)])),
            ("bytes=0-0,-1", parts(&[(0, 0), (9999, 9999)])),
            ("BYTES= 0-999, 4500-5499, -1000", parts(&[(0, 999), (4500, 5499), (9000, 9999)])),
            ("bytes=500-600,601-999", parts(&[(500, 600), (601, 999)])),
            ("bytes=9999-20000", parts(&[(9999, 9999)])),
            ("bytes=-20000", parts(&[(0, 9999)])),
            ("bytes=0-99999999999999999999", parts(&[(0, 9999)])),
            ("bytes=10000-,0-1", parts(&[(0, 1)])),
        ] {
            assert_eq!(select(value, 10_000), expected, "{value}");
        }
    }

    #[test]
    fn rfc9110_15_5_17_unsatisfiable() {
        for (value, length) in [
            ("bytes=10000-", 10_000),
            ("bytes=-0", 10_000),
            ("bytes=0-0", 0),
            ("bytes=-1", 0),
            ("bytes=10-,20-", 5),
        ] {
            assert_eq!(select(value, length), Selection::Unsatisfiable, "{value} of {length}");
        }
    }

    #[test]
    fn rfc9110_14_2_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=a-b",
            "bytes=1",
            "bytes=2-1",
            "bytes=-",
            "bytes=0-1;2-3",
            "lines=0-1",
            "bytes 0-1",
            "bytes=0x1-2",
            "bytes=+1-2",
            "bytes=0-,0-,0-",
            "bytes=--1",
        ] {
            assert_eq!(select(value, 10_000), Selection::Whole, "{value}");
        }
        let many = vec!["0-0"; RANGES_MAX + 1].join(",");
        assert_eq!(select(&format!("bytes={many}"), 10_000), Selection::Whole);
    }
}
