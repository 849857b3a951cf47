//! Parses and prints status codes: `200`, `"2xx"`, `"200-399"`, and lists of them.

use std::fmt::Write;
use std::ops::RangeInclusive;

use toml::de::DeValue;

use crate::document::reader::Reader;
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, quoted, refuse_type};
use crate::option::table::Written;

const STATUS: &str = "a status such as 200, \"2xx\" or \"200-399\"";
const FIRST: u16 = 100;
const LAST: u16 = 599;

/// Parses one status code or a range.
pub(crate) fn status_range(text: &str) -> Result<RangeInclusive<u16>, ValueError> {
    let number = |text: &str| {
        let is_status = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|status| is_status && (FIRST..=LAST).contains(status))
    };
    let range = match (text.strip_suffix("xx"), text.split_once('-')) {
        (Some(class), _) => {
            let first = number(&format!("{class}00"));
            first.map(|first| first..=first + 99)
        }
        (None, Some((first, last))) => number(first)
            .zip(number(last))
            .filter(|(first, last)| first <= last)
            .map(|(first, last)| first..=last),
        (None, None) => number(text).map(|status| status..=status),
    };
    range.ok_or_else(|| ValueError {
        fault: ValueFault::Unknown { written: text.to_owned(), why: "is no status", nearest: None },
        expected: STATUS,
    })
}

pub(crate) fn written_range(range: &RangeInclusive<u16>) -> String {
    let (first, last) = (*range.start(), *range.end());
    let mut text = String::new();
    let _ = match last - first {
        0 => write!(text, "{first}"),
        99 if first.is_multiple_of(100) => write!(text, "{}xx", first / 100),
        _ => write!(text, "{first}-{last}"),
    };
    text
}

/// The kind of value for status codes: one, a range, or an array.
pub(crate) struct StatusesKind;

impl Described for StatusesKind {
    fn form(&self) -> Form {
        Form::brief(format!("{STATUS}, or an array of them"), "status or array")
    }
}

impl Kind<Statuses> for StatusesKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Statuses> {
        let one = std::slice::from_ref(written.value);
        let elements = match written.value.get_ref() {
            DeValue::Array(elements) => elements,
            _ => one,
        };
        if elements.is_empty() {
            let mistake = reader.mistake(&written.value.span(), format!("{}: this is empty", written.name));
            reader.add(mistake.expecting(self.expected()));
            return None;
        }
        let mut ranges = Vec::new();
        for value in elements {
            let read = match value.get_ref() {
                DeValue::Integer(number) => status_range(number.as_str()),
                DeValue::String(text) => status_range(text),
                _ => {
                    refuse_type(&Written { value, ..*written }, self.expected(), reader);
                    continue;
                }
            };
            match read {
                Ok(range) => ranges.push(range),
                Err(error) => reader.refuse(&value.span(), written.name, &error),
            }
        }
        (ranges.len() == elements.len()).then_some(Statuses(ranges))
    }

    fn print(&self, statuses: &Statuses) -> Option<String> {
        let ranges: Vec<String> = statuses.0.iter().map(|range| quoted(&written_range(range))).collect();
        match ranges.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(format!("[{}]", several.join(", "))),
        }
    }
}

/// Status codes of responses, as ranges within 100 to 599.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statuses(pub(crate) Vec<RangeInclusive<u16>>);

impl Statuses {
    /// The status codes from 200 to 299.
    pub fn successful() -> Self {
        Self(vec![200..=299])
    }

    /// These status codes.
    pub fn from_statuses(statuses: impl IntoIterator<Item = u16>) -> Self {
        Self(statuses.into_iter().map(|status| status..=status).collect())
    }

    /// Whether a status code is included.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }

    /// Whether no status code is included.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        for (text, range) in
            [("200", 200..=200), ("2xx", 200..=299), ("200-399", 200..=399), ("100-199", 100..=199)]
        {
            assert_eq!(status_range(text), Ok(range.clone()));
            assert_eq!(status_range(&written_range(&range)), Ok(range));
        }
        for text in ["", "xx", "2x", "6xx", "0xx", "099", "600", "+200", "300-200", "200-", "2xx-3xx"] {
            assert!(status_range(text).is_err(), "{text}");
        }
    }
}
