//! Templates: text with values that differ each time it is sent, such as `{{counter}}`. No clock, no I/O.

use std::ops::Range;

use crate::random::Random;

/// The values that may stand between `{{` and `}}`.
const EXPECTED: &str = "expected counter, random FIRST LAST, uuid, timestamp, timestamp_ms or timestamp_ns";

/// Stands for two braces.
const BRACES: &str = "braces";

/// Escapes text for a template, so that no part of it is a value.
pub(crate) fn literal(text: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(begin) = memchr::memmem::find(&text[at..], b"{{").map(|found| at + found) {
        out.extend_from_slice(&text[at..begin]);
        out.extend_from_slice(format!("{{{{{BRACES}}}}}").as_bytes());
        at = begin + 2;
    }
    out.extend_from_slice(&text[at..]);
    out
}

/// A value that differs each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VaryingValue {
    /// How often the request was sent, from 1, padded with zeros to this many digits.
    Counter(usize),
    /// Number of the stream that sends the message, from 0.
    Stream,
    /// A random whole number, both ends included.
    Random(u64, u64),
    Uuid,
    /// Seconds since 1970.
    Timestamp,
    TimestampMs,
    TimestampNs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LoadTemplatePiece {
    Text(Box<[u8]>),
    Value(VaryingValue),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadTemplate(Vec<LoadTemplatePiece>);

#[derive(Debug)]
pub(crate) struct Values {
    counter: u64,
    stream: u64,
    unix_ns: u64,
    random: Random,
}

/// The place of a mistake, and its message.
pub(crate) type Wrong = (Range<usize>, String);

impl LoadTemplate {
    /// Parses the text of a request, in which each `{{` begins a value.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Wrong> {
        let template = Self::parse_message(text)?;
        let has_stream = template.0.contains(&LoadTemplatePiece::Value(VaryingValue::Stream));
        let wrong = || (0..text.len(), format!("{{{{stream}}}} is only for messages in streams; {EXPECTED}"));
        if has_stream { Err(wrong()) } else { Ok(template) }
    }

    pub(crate) fn parse_message(text: &[u8]) -> Result<Self, Wrong> {
        let (mut pieces, mut at) = (Vec::new(), 0);
        while let Some(begin) = memchr::memmem::find(&text[at..], b"{{").map(|found| at + found) {
            let Some(end) = memchr::memmem::find(&text[begin..], b"}}").map(|found| begin + found) else {
                return Err((begin..text.len(), format!("{{{{ has no }}}}; {EXPECTED}")));
            };
            let written = String::from_utf8_lossy(&text[begin + 2..end]).into_owned();
            let wrong = || {
                let shown = crate::url::shortened(&written);
                (begin..end + 2, format!("{{{{{shown}}}}} is not a value; {EXPECTED}"))
            };
            if begin > at {
                pieces.push(LoadTemplatePiece::Text(text[at..begin].into()));
            }
            pieces.push(match written.trim() {
                BRACES => LoadTemplatePiece::Text((*b"{{").into()),
                _ => LoadTemplatePiece::Value(VaryingValue::parse(&written).ok_or_else(wrong)?),
            });
            at = end + 2;
        }
        if at < text.len() {
            pieces.push(LoadTemplatePiece::Text(text[at..].into()));
        }
        Ok(Self(pieces))
    }

    /// Makes a template from text, without looking for values in it.
    pub(crate) fn from_text(text: &[u8]) -> Self {
        Self(vec![LoadTemplatePiece::Text(text.into())])
    }

    /// Changes the text between its values.
    pub(crate) fn with_text<E>(self, change: impl Fn(&[u8]) -> Result<Vec<u8>, E>) -> Result<Self, E> {
        let pieces = self.0.into_iter().map(|piece| match piece {
            LoadTemplatePiece::Text(text) => Ok(LoadTemplatePiece::Text(change(&text)?.into())),
            LoadTemplatePiece::Value(value) => Ok(LoadTemplatePiece::Value(value)),
        });
        Ok(Self(pieces.collect::<Result<_, E>>()?))
    }

    /// Whether it has no values.
    pub(crate) fn is_constant(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, LoadTemplatePiece::Text(_)))
    }

    /// The template without spaces within values, so that it can stand in a URL.
    pub(crate) fn canonical(&self) -> String {
        let told = self.0.iter().map(|piece| match piece {
            LoadTemplatePiece::Text(text) => String::from_utf8_lossy(&literal(text)).into_owned(),
            LoadTemplatePiece::Value(value) => match value {
                VaryingValue::Counter(0) => "{{counter}}".to_owned(),
                VaryingValue::Counter(digits) => format!("{{{{counter:{digits}}}}}"),
                VaryingValue::Stream => "{{stream}}".to_owned(),
                VaryingValue::Random(first, last) => format!("{{{{random:{first}:{last}}}}}"),
                VaryingValue::Uuid => "{{uuid}}".to_owned(),
                VaryingValue::Timestamp => "{{timestamp}}".to_owned(),
                VaryingValue::TimestampMs => "{{timestamp_ms}}".to_owned(),
                VaryingValue::TimestampNs => "{{timestamp_ns}}".to_owned(),
            },
        });
        told.collect()
    }

    pub(crate) fn render(&self, values: &mut Values, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                LoadTemplatePiece::Text(text) => out.extend_from_slice(text),
                LoadTemplatePiece::Value(value) => value.render(values, out),
            }
        }
    }
}

impl VaryingValue {
    fn parse(written: &str) -> Option<Self> {
        let mut words = written.split([' ', '\t', ':']).filter(|word| !word.is_empty());
        let name = words.next()?;
        let words: Vec<&str> = words.collect();
        let number = |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with('+'));
        match (name, &words[..]) {
            ("counter", []) => Some(Self::Counter(0)),
            ("counter", [digits]) => match number(digits)? {
                digits @ 1..=20 => Some(Self::Counter(digits as usize)),
                _ => None,
            },
            ("stream", []) => Some(Self::Stream),
            ("uuid", []) => Some(Self::Uuid),
            ("timestamp", []) => Some(Self::Timestamp),
            ("timestamp_ms", []) => Some(Self::TimestampMs),
            ("timestamp_ns", []) => Some(Self::TimestampNs),
            ("random", [first, last]) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::Random(first, last))
            }
            _ => None,
        }
    }

    fn render(self, values: &mut Values, out: &mut Vec<u8>) {
        match self {
            Self::Counter(digits) => {
                use std::io::Write;
                let _ = write!(out, "{:0digits$}", values.counter);
            }
            Self::Stream => decimal(values.stream, out),
            Self::Timestamp => decimal(values.unix_ns / 1_000_000_000, out),
            Self::TimestampMs => decimal(values.unix_ns / 1_000_000, out),
            Self::TimestampNs => decimal(values.unix_ns, out),
            Self::Random(first, last) => {
                let count = u128::from(last - first) + 1;
                let chosen = (u128::from(values.random.next()) * count) >> 64;
                decimal(first + chosen as u64, out);
            }
            // RFC 9562 §5.4: a random UUID has version 4 and variant 10.
            Self::Uuid => {
                let high = values.random.next() & !0xf000 | 0x4000;
                let low = values.random.next() & !(0b11 << 62) | 0b10 << 62;
                let (time, middle, version) = (high >> 32, (high >> 16) & 0xffff, high & 0xffff);
                let (variant, node) = (low >> 48, low & 0xffff_ffff_ffff);
                let text = format!("{time:08x}-{middle:04x}-{version:04x}-{variant:04x}-{node:012x}");
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
}

fn decimal(number: u64, out: &mut Vec<u8>) {
    use std::io::Write;
    let _ = write!(out, "{number}");
}

impl Values {
    /// The values of the `counter`th sending of a request, from 1. Only the time of day does not come from the seed.
    pub(crate) fn new(seed: u64, request: usize, counter: u64, unix_ns: u64) -> Self {
        let random = Random::of_thread(seed.wrapping_add((request as u64) << 48), counter as usize);
        Self { counter, stream: 0, unix_ns, random }
    }

    /// The values of a stream's `counter`th message, from 1.
    pub(crate) fn of_stream(seed: u64, stream: usize, counter: u64, unix_ns: u64) -> Self {
        Self { stream: stream as u64, ..Self::new(seed, stream, counter, unix_ns) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rendered(text: &str, counter: u64) -> String {
        let mut out = Vec::new();
        let template = LoadTemplate::parse_message(text.as_bytes()).expect(text);
        template.render(&mut Values::of_stream(1, 3, counter, 1_700_000_000_123_456_789), &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn values_are_filled_in_and_repeat_with_their_seed() {
        assert_eq!(rendered("a{{counter}}b{{ counter }}", 7), "a7b7");
        assert_eq!(rendered("{{counter 4}}{{counter:1}} {{stream}}", 17), "001717 3");
        assert_eq!(rendered("{{timestamp}} {{timestamp_ms}}", 1), "1700000000 1700000000123");
        assert_eq!(rendered("{{timestamp_ns}}", 1), "1700000000123456789");
        assert_eq!(rendered("{{random 5 5}}{{random:0:18446744073709551615}}", 3).chars().next(), Some('5'));
        let chosen: Vec<u64> =
            (1..1000).map(|n| rendered("{{random 1 3}}", n).parse().expect("one")).collect();
        assert!((1..=3).all(|number| chosen.iter().filter(|one| **one == number).count() > 250));
        let uuid = rendered("{{uuid}}", 1);
        assert!(
            uuid.len() == 36 && uuid.as_bytes()[14] == b'4' && b"89ab".contains(&uuid.as_bytes()[19]),
            "{uuid}"
        );
        assert_eq!(uuid, rendered("{{uuid}}", 1));
        assert_ne!(uuid, rendered("{{uuid}}", 2));
    }

    #[test]
    fn what_is_no_value_is_told_with_its_place() {
        for (text, at) in [
            ("ab{{", 2..4),
            ("{{}}", 0..4),
            ("a {{count}}", 2..11),
            ("{{random 2 1}}", 0..14),
            ("{{random 1}}", 0..12),
            ("{{random -1 +1}}", 0..16),
            ("{{counter 21}}", 0..14),
            ("{{stream}}", 0..10),
        ] {
            let (wrong_at, message) = LoadTemplate::parse(text.as_bytes()).expect_err(text);
            assert_eq!(wrong_at, at, "{text}");
            assert!(message.contains("expected counter"), "{message}");
        }
    }

    proptest! {
        #[test]
        fn the_canonical_form_means_the_same(text in "[a{} ]{0,6}(\\{\\{(counter|counter 7|uuid|timestamp_ns| random 1  9 )\\}\\}[a{ ]?){0,3}") {
            if let Ok(template) = LoadTemplate::parse(text.as_bytes()) {
                let canonical = template.canonical();
                prop_assert_eq!(LoadTemplate::parse(canonical.as_bytes()), Ok(template));
            }
        }
    }
}
