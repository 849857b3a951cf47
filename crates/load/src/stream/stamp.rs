//! Finds sender, number and time in a message: `from=3 seq=17 sent_ns=1700000000000000000`, or these names in JSON.

use memchr::memmem::Finder;

use super::plan::StampFields;

/// Only this much of a message is searched.
const LOOKED_THROUGH_BYTES: usize = 64 * 1024;

/// Fields that were found in a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MessageStamp {
    pub(crate) sender: Option<u64>,
    pub(crate) number: Option<u64>,
    /// When it was sent, in nanoseconds since 1970.
    pub(crate) sent_unix_ns: Option<u64>,
}

/// Finds stamps by the names of their fields.
#[derive(Debug)]
pub(crate) struct Stamps {
    sender: Finder<'static>,
    number: Finder<'static>,
    time: Finder<'static>,
}

impl Stamps {
    pub(crate) fn new(fields: &StampFields) -> Self {
        let finder = |name: &str| Finder::new(name).into_owned();
        Self { sender: finder(&fields.sender), number: finder(&fields.number), time: finder(&fields.time) }
    }

    pub(crate) fn read(&self, message: &[u8]) -> MessageStamp {
        let text = &message[..message.len().min(LOOKED_THROUGH_BYTES)];
        let whole = |finder| value(finder, text).map(|(whole, _)| whole);
        let sent_unix_ns = value(&self.time, text).and_then(|(whole, fraction)| unix_ns(whole, fraction));
        MessageStamp { sender: whole(&self.sender), number: whole(&self.number), sent_unix_ns }
    }
}

/// The number behind a name: its whole part, and its fraction in billionths.
fn value(name: &Finder<'_>, text: &[u8]) -> Option<(u64, u64)> {
    let length = name.needle().len();
    if length == 0 {
        return None;
    }
    let places = name.find_iter(text).filter(|at| {
        // A match at the end of a longer name is another field.
        let before = at.checked_sub(1).map(|before| text[before]);
        !before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    });
    places.into_iter().find_map(|at| number(&text[at + length..]))
}

/// A number behind `=`, or as in JSON behind `":`.
fn number(rest: &[u8]) -> Option<(u64, u64)> {
    let rest = match rest {
        [b'=', rest @ ..] => rest,
        [b'"', rest @ ..] => rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start(),
        _ => return None,
    };
    let rest = rest.strip_prefix(b"\"").unwrap_or(rest);
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (whole, rest) = rest.split_at(digits(rest));
    if whole.is_empty() || whole.len() > 20 {
        return None;
    }
    let decimal = |digits: &[u8]| {
        digits.iter().try_fold(0u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
    };
    let fraction = rest.strip_prefix(b".").map_or(&[][..], |rest| &rest[..digits(rest).min(9)]);
    let scale = 10u64.pow(9 - fraction.len() as u32);
    Some((decimal(whole)?, decimal(fraction)? * scale))
}

/// Converts a time since 1970 to nanoseconds. Its size shows the unit: seconds, milliseconds, µs or ns.
fn unix_ns(whole: u64, fraction: u64) -> Option<u64> {
    let factor = match whole {
        0..1_000_000_000 => return None,
        1_000_000_000..100_000_000_000 => 1_000_000_000,
        100_000_000_000..100_000_000_000_000 => 1_000_000,
        100_000_000_000_000..100_000_000_000_000_000 => 1_000,
        _ => 1,
    };
    whole.checked_mul(factor)?.checked_add(fraction / (1_000_000_000 / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_found_in_text_and_json_with_times_in_any_unit() {
        let stamps = Stamps::new(&StampFields::default());
        let read = |text: &str| {
            let MessageStamp { sender, number, sent_unix_ns } = stamps.read(text.as_bytes());
            (sender, number, sent_unix_ns)
        };
        let ns = Some(1_700_000_000_123_456_789);
        for (text, expected) in [
            ("from=3 seq=17 sent_ns=1700000000123456789 ....", (Some(3), Some(17), ns)),
            (r#"{"seq": 0, "sent_ns":"1700000000123456789","from" : 9}"#, (Some(9), Some(0), ns)),
            ("seq=5;", (None, Some(5), None)),
            ("subseq=5 seq=x seq=6 my_from=1 seq=7", (None, Some(6), None)),
            ("sent_ns=1700000000", (None, None, Some(1_700_000_000_000_000_000))),
            ("sent_ns=1700000000.5", (None, None, Some(1_700_000_000_500_000_000))),
            ("sent_ns=1700000000123", (None, None, Some(1_700_000_000_123_000_000))),
            ("sent_ns=1700000000123.25", (None, None, Some(1_700_000_000_123_250_000))),
            ("sent_ns=1700000000123456", (None, None, Some(1_700_000_000_123_456_000))),
            ("sent_ns=12", (None, None, None)),
            ("seq=99999999999999999999 from=184467440737095516160", (None, None, None)),
            ("seq", (None, None, None)),
            (r#""seq""#, (None, None, None)),
            ("", (None, None, None)),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        assert_eq!(stamps.read(b"\n\x20\0from=1 seq=2\xff\xfe").number, Some(2), "within a binary message");
        let named = StampFields { time: "ts".to_owned(), number: String::new(), ..StampFields::default() };
        let stamp = Stamps::new(&named).read(br#"{"ts":1700000000,"seq":4}"#);
        assert_eq!((stamp.sent_unix_ns, stamp.number), (Some(1_700_000_000_000_000_000), None));
    }
}
