//! Looks up fields by name, and parses common values.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http1::{ByteSpan, MessageHead};

/// The values of all fields with this name, which must be in lower case.
pub(crate) fn values<'a, Start>(
    head: &'a MessageHead<Start>,
    bytes: &'a [u8],
    name: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> {
    let fields = head.fields.iter();
    fields
        .filter(move |field| field.name.for_bytes(bytes).eq_ignore_ascii_case(name))
        .map(move |field| field.value.for_bytes(bytes))
}
/// The value of the first field with this name, which must be in lower case.
pub(crate) fn value<'a, Start>(
    head: &'a MessageHead<Start>,
    bytes: &'a [u8],
    name: &'a [u8],
) -> Option<&'a [u8]> {
    values(head, bytes, name).next()
}

/// The position of a field's value in a head that the proxy wrote. `name` is in lower case.
pub(crate) fn span_of_field(head: &[u8], name: &[u8]) -> Option<ByteSpan> {
    let mut line_start = 0;
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        let value = line.get(name.len()..).and_then(|rest| rest.strip_prefix(b": "));
        if let Some(value) = value.filter(|_| line[..name.len()].eq_ignore_ascii_case(name)) {
            let start = line_start + name.len() + 2;
            return Some(ByteSpan {
                start: start as u32,
                end: (start + value.trim_ascii_end().len()) as u32,
            });
        }
        line_start += line.len();
    }
    None
}

/// Parses a date in one of its three forms (RFC 9110 §5.6.7), as seconds since 1970. Earlier dates count as 1970.
pub(crate) fn date_unix_seconds(text: &[u8]) -> Option<u64> {
    let text = str::from_utf8(text).ok()?;
    // The strict form first: nearly all servers send it, and it allocates nothing.
    let date = httpdate::parse_http_date(text).ok().or_else(|| in_usual_case(text))?;
    Some(date.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// RFC 9111 §4.2: the case of day names, month names and the zone is ignored.
#[cold]
fn in_usual_case(text: &str) -> Option<SystemTime> {
    const LONGEST: usize = "Wednesday, 09-Nov-94 08:49:37 GMT".len();
    // Longer text is no date, and would only be copied.
    if text.len() > LONGEST || !text.is_ascii() {
        return None;
    }
    let mut usual = text.to_ascii_lowercase();
    for start in 0..usual.len() {
        let is_first = start == 0 || !usual.as_bytes()[start - 1].is_ascii_alphabetic();
        if is_first {
            usual[start..=start].make_ascii_uppercase();
        }
    }
    let usual = usual.strip_suffix("Gmt").map(|date| format!("{date}GMT")).unwrap_or(usual);
    httpdate::parse_http_date(&usual).ok()
}

/// Appends a date in the preferred format (RFC 9110 §5.6.7).
pub(crate) fn push_date(out: &mut Vec<u8>, unix_seconds: u64) {
    // The last second of the year 9999: the format has four digits for the year.
    let unix_seconds = unix_seconds.min(253_402_300_799);
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_seconds));
    out.extend_from_slice(date.as_bytes());
}

pub(crate) fn push_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// The values of all cookies with this name in a request (RFC 6265 §4.2).
pub(crate) fn cookies<'a, Start>(
    head: &'a MessageHead<Start>,
    bytes: &'a [u8],
    name: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> {
    let pairs = values(head, bytes, b"cookie").flat_map(|value| value.split(|&byte| byte == b';'));
    pairs.filter_map(move |pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"="))
}

/// The non-empty members of a comma-separated list (RFC 9110 §5.6.1), without support for quoted strings.
pub(crate) fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9111_4_2_dates_count_in_any_case() {
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "SUN, 06 NOV 1994 08:49:37 GMT",
            "sun, 06 nov 1994 08:49:37 gmt",
            "sUnDaY, 06-nOv-94 08:49:37 gMt",
            "SUN NOV  6 08:49:37 1994",
        ] {
            assert_eq!(date_unix_seconds(date.as_bytes()), Some(784_111_777), "{date}");
        }
        let long = format!("{} GMT", "sun, 06 nov 1994 08:49:37 ".repeat(9));
        for text in ["", "0", "GMT", "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 06 Nov 1994 08:49:37", &long] {
            assert_eq!(date_unix_seconds(text.as_bytes()), None, "{text}");
        }
    }
}
