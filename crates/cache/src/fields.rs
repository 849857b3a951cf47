//! Fields of heads by their names, and what is read out of their values.

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
