//! Fields of heads by their names, and what is read out of their values.

use std::time::{Duration, UNIX_EPOCH};

use wire::Head;

/// The values of every field of this name, which is in lower case.
pub(crate) fn values<'a, Start>(
    head: &'a Head<Start>,
    bytes: &'a [u8],
    name: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> {
    let fields = head.fields.iter();
    fields
        .filter(move |field| field.name.of(bytes).eq_ignore_ascii_case(name))
        .map(move |field| field.value.of(bytes))
}
/// The value of the first field of this name, which is in lower case.
pub(crate) fn value<'a, Start>(head: &'a Head<Start>, bytes: &'a [u8], name: &'a [u8]) -> Option<&'a [u8]> {
    values(head, bytes, name).next()
}

/// RFC 9110 §5.6.7: a date in one of its three forms, in seconds since 1970; one before that counts as 1970.
pub(crate) fn date_unix_seconds(text: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(str::from_utf8(text).ok()?).ok()?;
    Some(date.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Appends a date in the form that is sent (RFC 9110 §5.6.7).
pub(crate) fn push_date(out: &mut Vec<u8>, unix_seconds: u64) {
    // The last second of the year 9999, behind which there is no such form.
    let unix_seconds = unix_seconds.min(253_402_300_799);
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_seconds));
    out.extend_from_slice(date.as_bytes());
}

/// Appends a number in decimal digits.
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

/// The value of a cookie of a request (RFC 6265 §4.2); the first, if there are several.
pub(crate) fn cookie<'a, Start>(head: &'a Head<Start>, bytes: &'a [u8], name: &'a [u8]) -> Option<&'a [u8]> {
    values(head, bytes, b"cookie").flat_map(|value| value.split(|&byte| byte == b';')).find_map(|pair| {
        let pair = pair.trim_ascii();
        pair.strip_prefix(name)?.strip_prefix(b"=")
    })
}

/// The members of a comma-separated list, empty ones left out (RFC 9110 §5.6.1). For lists without quoted strings.
pub(crate) fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}
