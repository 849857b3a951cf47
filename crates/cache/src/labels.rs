//! Labels that a stored response can be purged by, besides its key. They are its host, the tags from its origin, and
//! its URI if the key has more parts.

use http1::{MessageHead, ResponseHead};

use crate::fields::{members, values};
use crate::key::{KeySecret, Uri};
use crate::policy::KeyOptions;
use crate::purge::Label;

/// The fields in which an origin names tags. In the first, spaces and commas separate them; in the second, only commas.
const SURROGATE_KEY: &[u8] = b"surrogate-key";
const CACHE_TAG: &[u8] = b"cache-tag";

/// The tags in the fields of a message.
pub fn tags<'a, Start>(head: &'a MessageHead<Start>, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let keys = values(head, bytes, SURROGATE_KEY).flat_map(|value| value.split(is_separator));
    keys.filter(|tag| !tag.is_empty()).chain(values(head, bytes, CACHE_TAG).flat_map(members))
}

/// The tags in lines of fields.
pub fn tags_of_lines(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines.split(|&byte| byte == b'\n').flat_map(|line| {
        let name_len = line.iter().position(|&byte| byte == b':').unwrap_or(0);
        let (name, value) = line.split_at(name_len);
        let value = value.strip_prefix(b":").filter(|_| names_tags(name)).unwrap_or_default();
        let is_between = separator(name);
        value.split(is_between).map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty())
    })
}

/// As many whole tags of a field as fit.
pub(crate) fn first_tags<'a>(name: &[u8], value: &'a [u8], bytes_max: usize) -> &'a [u8] {
    if value.len() <= bytes_max {
        return value;
    }
    let is_between = separator(name);
    // Cut between tags: half a tag would be shown as another one.
    let end = value[..=bytes_max].iter().rposition(is_between).unwrap_or(0);
    &value[..end]
}

fn separator(name: &[u8]) -> fn(&u8) -> bool {
    if name.eq_ignore_ascii_case(CACHE_TAG) { |&byte| byte == b',' } else { is_separator }
}

/// Fastly separates by spaces, xkey of Varnish and Souin by commas.
fn is_separator(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || *byte == b','
}

/// Whether a field carries tags. Tags are meant for caches, not for clients.
pub fn names_tags(name: &[u8]) -> bool {
    match name.len() {
        9 => name.eq_ignore_ascii_case(CACHE_TAG),
        13 => name.eq_ignore_ascii_case(SURROGATE_KEY),
        _ => false,
    }
}

/// The labels of a response to a request for this URI: its host, its tags, and its URI if the key has more parts.
pub fn labels(
    secret: KeySecret,
    uri: &Uri<'_>,
    options: &KeyOptions,
    head: &ResponseHead,
    bytes: &[u8],
) -> Box<[Label]> {
    let host = Label::host(secret, http1::host_without_port(uri.authority));
    let uri = (!options.is_uri_alone()).then(|| Label::uri(secret, uri, options));
    let tags = tags(head, bytes).map(|tag| Label::tag(secret, tag));
    each_once(std::iter::once(host).chain(uri).chain(tags))
}

/// The labels of a stored response after a 304: its old ones and those that the 304 adds.
pub fn also_labelled(secret: KeySecret, known: &[Label], head: &ResponseHead, bytes: &[u8]) -> Box<[Label]> {
    let tags = tags(head, bytes).map(|tag| Label::tag(secret, tag));
    // Old tags stay, since a 304 need not repeat them.
    each_once(known.iter().copied().chain(tags))
}

fn each_once(labels: impl Iterator<Item = Label>) -> Box<[Label]> {
    let mut labels: Vec<Label> = labels.collect();
    labels.sort_unstable();
    labels.dedup();
    labels.into()
}

#[cfg(test)]
mod tests {
    use http1::HeadLimits;

    use super::*;

    fn head(fields: &str) -> (ResponseHead, Vec<u8>) {
        let bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\n").into_bytes();
        let mut head = ResponseHead::default();
        let limits = HeadLimits { bytes: bytes.len(), fields: 100, target: 0 };
        head.parse(&bytes, &limits).expect("is a head");
        (head, bytes)
    }

    #[test]
    fn tags_are_separated_as_each_field_has_it() {
        for (fields, expected) in [
            ("", vec![]),
            ("Surrogate-Key: a  b\tc\r\n", vec!["a", "b", "c"]),
            ("Surrogate-Key: a, b,c ,,d e, \r\nSurrogate-Key: ,f\r\n", vec!["a", "b", "c", "d", "e", "f"]),
            ("Cache-Tag: a b, c ,,d\r\n", vec!["a b", "c", "d"]),
            ("cache-tag: x\r\nSURROGATE-KEY: y\r\nCache-Tag: z\r\n", vec!["y", "x", "z"]),
        ] {
            let (head, bytes) = head(fields);
            let found: Vec<&str> = tags(&head, &bytes).filter_map(|tag| str::from_utf8(tag).ok()).collect();
            assert_eq!(found, expected, "{fields}");
            assert!(head.fields.iter().all(|field| names_tags(field.name.for_bytes(&bytes))));
        }
        assert!(!names_tags(b"cache-tags") && !names_tags(b"cache-key"));
    }

    #[test]
    fn as_many_tags_are_kept_as_fit() {
        let lines = b"Surrogate-Control: max-age=1\r\nsurrogate-key: a, b c\r\nCache-Tag: d e,f\r\n";
        let found: Vec<&[u8]> = tags_of_lines(lines).collect();
        assert_eq!(found, [b"a", b"b", b"c", &b"d e"[..], b"f"]);
        for (name, value, bytes_max, expected) in [
            ("surrogate-key", "a, b c", 6, "a, b c"),
            ("surrogate-key", "a, b c", 5, "a, b"),
            ("surrogate-key", "a, b c", 2, "a,"),
            ("surrogate-key", "long", 3, ""),
            ("Cache-Tag", "d e,f", 4, "d e"),
            ("Cache-Tag", "d e,f", 2, ""),
            ("Cache-Tag", "d e,f", 0, ""),
        ] {
            assert_eq!(first_tags(name.as_bytes(), value.as_bytes(), bytes_max), expected.as_bytes());
        }
    }

    #[test]
    fn each_label_is_there_once_whatever_the_case_and_port_of_the_host() {
        let secret = KeySecret::new(7);
        let (head, bytes) = head("Surrogate-Key: a b a\r\nCache-Tag: b\r\n");
        let labels = |authority: &str, options| {
            labels(secret, &Uri::new(true, authority.as_bytes(), b"/x"), options, &head, &bytes)
        };
        let plain = KeyOptions::default();
        let mut expected =
            [Label::host(secret, b"Example.com"), Label::tag(secret, b"a"), Label::tag(secret, b"b")];
        expected.sort_unstable();
        assert_eq!(*labels("example.COM:8443", &plain), expected);
        let by_header = KeyOptions { headers: vec![b"x-kind"[..].into()], ..KeyOptions::default() };
        let uri = Label::uri(secret, &Uri::new(true, b"example.com", b"/x"), &by_header);
        assert!(labels("EXAMPLE.com:443", &by_header).contains(&uri));
        assert!(!labels("example.com:8443", &by_header).contains(&uri));
        let known = [Label::tag(secret, b"old"), Label::tag(secret, b"a")];
        let also = also_labelled(secret, &known, &head, &bytes);
        assert!(also.len() == 3 && known.iter().all(|label| also.contains(label)));
    }
}
