//! Labels: what a stored response can be purged by besides its key. They are its host, the tags from its origin, and
//! its URI if the key has more parts.

use http1::{Head, ResponseHead};

use crate::fields::{members, values};
use crate::key::{KeySecret, Uri};
use crate::policy::KeyOptions;
use crate::purge::Label;

/// The fields in which an origin names tags. In the first a space separates them, in the second a comma.
const SURROGATE_KEY: &[u8] = b"surrogate-key";
const CACHE_TAG: &[u8] = b"cache-tag";

/// The tags in the fields of a message.
pub fn tags<'a, Start>(head: &'a Head<Start>, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let keys = values(head, bytes, SURROGATE_KEY).flat_map(|value| value.split(u8::is_ascii_whitespace));
    keys.filter(|tag| !tag.is_empty()).chain(values(head, bytes, CACHE_TAG).flat_map(members))
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
            ("Cache-Tag: a b, c ,,d\r\n", vec!["a b", "c", "d"]),
            ("cache-tag: x\r\nSURROGATE-KEY: y\r\nCache-Tag: z\r\n", vec!["y", "x", "z"]),
        ] {
            let (head, bytes) = head(fields);
            let found: Vec<&str> = tags(&head, &bytes).filter_map(|tag| str::from_utf8(tag).ok()).collect();
            assert_eq!(found, expected, "{fields}");
            assert!(head.fields.iter().all(|field| names_tags(field.name.of(&bytes))));
        }
        assert!(!names_tags(b"cache-tags") && !names_tags(b"cache-key"));
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
