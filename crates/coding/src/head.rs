//! The head of a response: whether its body may be coded or decoded, and what changes in the head if it is.

use crate::{Accepted, Coding, MediaRange, is_among};

/// What a head says about its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Content<'a> {
    content_type: Option<&'a [u8]>,
    /// The only coding of the body.
    coding: Option<&'a [u8]>,
    has_several_codings: bool,
    forbids_transform: bool,
    length: Option<u64>,
    /// Whether Vary names Accept-Encoding, or is `*`.
    varies: bool,
}

impl<'a> Content<'a> {
    /// Reads the fields of a head: name and value of each.
    pub fn of(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut content = Self::default();
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(b"content-type") {
                content.content_type = Some(value);
            } else if name.eq_ignore_ascii_case(b"content-encoding") {
                for coding in members(value).filter(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
                    content.has_several_codings |= content.coding.is_some();
                    content.coding = Some(coding);
                }
            } else if name.eq_ignore_ascii_case(b"cache-control") {
                content.forbids_transform |=
                    members(value).any(|directive| directive.eq_ignore_ascii_case(b"no-transform"));
            } else if name.eq_ignore_ascii_case(b"content-length") {
                content.length = std::str::from_utf8(value).ok().and_then(|value| value.trim().parse().ok());
            } else if name.eq_ignore_ascii_case(b"vary") {
                content.varies |=
                    members(value).any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding"));
            }
        }
        content
    }

    /// Whether the body may get a coding that it does not have: its status is one of a whole representation, its type
    /// is among `types`, it is not shorter than `least_bytes`, and nobody forbids it (RFC 9110 §7.7, RFC 9111 §5.2.2.6).
    pub fn may_be_coded(&self, status: u16, types: &[MediaRange], least_bytes: u64) -> bool {
        let is_whole = status >= 200 && !matches!(status, 204 | 205 | 206 | 304);
        is_whole
            && self.coding.is_none()
            && !self.forbids_transform
            && self.length.is_none_or(|length| length >= least_bytes)
            && self.content_type.is_some_and(|content_type| is_among(content_type, types))
    }

    /// The coding to take from the body, for a client that does not accept it. `None` leaves the body as it is.
    pub fn coding_to_remove(&self, status: u16, accepted: &Accepted) -> Option<Coding> {
        let is_whole = status >= 200 && !matches!(status, 204 | 205 | 206 | 304);
        if !is_whole || self.has_several_codings || self.forbids_transform || !accepted.takes_identity() {
            return None;
        }
        let coding = Coding::named(self.coding?)?;
        (Coding::PLAIN.contains(&coding) && !accepted.takes(coding)).then_some(coding)
    }

    /// Whether the body has a coding.
    pub fn is_coded(&self) -> bool {
        self.coding.is_some()
    }

    /// Whether Vary names Accept-Encoding already.
    pub fn varies(&self) -> bool {
        self.varies
    }

    /// The same with this length, if it is known.
    pub fn with_length(self, length: Option<u64>) -> Self {
        Self { length: length.or(self.length), ..self }
    }

    /// The length of the body, if it is told.
    pub fn length(&self) -> Option<u64> {
        self.length
    }
}

/// How the body of a response changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It gets a coding.
    Code(Coding),
    /// It loses its coding.
    Decode,
}

impl Change {
    /// Appends the fields of a changed response, except the length of its body, which is another one.
    ///
    /// RFC 9110 §8.8.1: the new representation has the same meaning and other bytes, so its validator is weak. Digests of
    /// the bytes before (RFC 9530) and offers of ranges of them go.
    pub fn write<'a>(self, out: &mut Vec<u8>, fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) {
        let varies = Content::of(fields.clone()).varies();
        for (name, value) in fields {
            if is_of_bytes(name) {
                continue;
            }
            let is_strong = name.eq_ignore_ascii_case(b"etag") && !value.starts_with(b"W/");
            push_field(out, name, if is_strong { b"W/" } else { b"" }, value);
        }
        if let Self::Code(coding) = self {
            push_field(out, b"Content-Encoding", b"", coding.name().as_bytes());
        }
        if !varies {
            out.extend_from_slice(VARY);
        }
        if matches!(self, Self::Code(Coding::DictionaryBrotli | Coding::DictionaryZstd)) {
            // RFC 9842 §6.2.
            out.extend_from_slice(VARY_BY_DICTIONARY);
        }
    }
}

/// The line for a response whose coding depends on Accept-Encoding (RFC 9110 §12.5.5).
pub const VARY: &[u8] = b"Vary: Accept-Encoding\r\n";

/// The line for a response that may be coded with a dictionary (RFC 9842 §6.2).
pub const VARY_BY_DICTIONARY: &[u8] = b"Vary: Available-Dictionary\r\n";

/// Whether a field describes the bytes of a body, and not what they mean.
pub fn is_of_bytes(name: &[u8]) -> bool {
    let names: [&[u8]; 7] = [
        b"content-length",
        b"content-encoding",
        b"content-md5",
        b"digest",
        b"content-digest",
        b"repr-digest",
        b"accept-ranges",
    ];
    names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn push_field(out: &mut Vec<u8>, name: &[u8], mark: &[u8], value: &[u8]) {
    for part in [name, b": ", mark, value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = &'static [(&'static str, &'static str)];

    fn fields(fields: Fields) -> impl Iterator<Item = (&'static [u8], &'static [u8])> + Clone {
        fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
    }

    #[test]
    fn what_may_be_coded_is_a_whole_representation_of_a_known_type() {
        let types = ["text/*".parse().expect("is a range")];
        let rows: &[(u16, Fields, bool)] = &[
            (200, &[("Content-Type", "text/html")], true),
            (404, &[("Content-Type", "text/html")], true),
            (200, &[("Content-Type", "text/html"), ("Content-Length", "100")], true),
            (200, &[("Content-Type", "text/html"), ("Content-Length", "99")], false),
            (200, &[("Content-Type", "image/png")], false),
            (200, &[], false),
            (206, &[("Content-Type", "text/html")], false),
            (304, &[("Content-Type", "text/html")], false),
            (204, &[("Content-Type", "text/html")], false),
            (200, &[("Content-Type", "text/html"), ("Content-Encoding", "gzip")], false),
            (200, &[("Content-Type", "text/html"), ("Content-Encoding", "identity")], true),
            (200, &[("Content-Type", "text/html"), ("Cache-Control", "public, No-Transform")], false),
        ];
        for (status, head, expected) in rows {
            let content = Content::of(fields(head));
            assert_eq!(content.may_be_coded(*status, &types, 100), *expected, "{status} {head:?}");
        }
    }

    #[test]
    fn a_coding_that_the_client_does_not_take_is_removed() {
        let rows: &[(&str, Fields, Option<Coding>)] = &[
            ("", &[("Content-Encoding", "gzip")], Some(Coding::Gzip)),
            ("br", &[("Content-Encoding", "x-gzip")], Some(Coding::Gzip)),
            ("gzip", &[("Content-Encoding", "gzip")], None),
            ("br;q=0", &[("Content-Encoding", "br")], Some(Coding::Brotli)),
            ("", &[("Content-Encoding", "gzip, br")], None),
            ("", &[("Content-Encoding", "gzip"), ("Content-Encoding", "br")], None),
            ("", &[("Content-Encoding", "compress")], None),
            ("", &[("Content-Encoding", "dcz")], None),
            ("", &[], None),
            ("identity;q=0", &[("Content-Encoding", "gzip")], None),
            ("", &[("Content-Encoding", "gzip"), ("Cache-Control", "no-transform")], None),
        ];
        for (accepted, head, expected) in rows {
            let accepted = Accepted::of([accepted.as_bytes()]);
            let content = Content::of(fields(head));
            assert_eq!(content.coding_to_remove(200, &accepted), *expected, "{head:?}");
        }
    }

    #[test]
    fn the_head_says_what_became_of_the_body() {
        const FIELDS: Fields = &[
            ("Content-Type", "text/html"),
            ("Content-Length", "1000"),
            ("ETag", "\"a\""),
            ("Vary", "Cookie"),
            ("Accept-Ranges", "bytes"),
            ("Content-MD5", "x"),
            ("Repr-Digest", "sha-256=:x:"),
            ("X-Other", "y"),
        ];
        let mut out = Vec::new();
        Change::Code(Coding::Brotli).write(&mut out, fields(FIELDS));
        let expected = "Content-Type: text/html\r\nETag: W/\"a\"\r\nVary: Cookie\r\nX-Other: y\r\n\
                        Content-Encoding: br\r\nVary: Accept-Encoding\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        out.clear();
        const CODED: Fields =
            &[("ETag", "W/\"a\""), ("Content-Encoding", "gzip"), ("Vary", "Origin, accept-encoding")];
        Change::Decode.write(&mut out, fields(CODED));
        assert_eq!(String::from_utf8_lossy(&out), "ETag: W/\"a\"\r\nVary: Origin, accept-encoding\r\n");
    }
}
