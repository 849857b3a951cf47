//! The head of a response: whether its body may be encoded or decoded, and how the head changes then.

use crate::{Accepted, Coding, MediaRange, is_among};

/// Fields of a head that decide whether and how its body may be coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BodyHead<'a> {
    content_type: Option<&'a [u8]>,
    coding: Option<&'a [u8]>,
    etag: Option<&'a [u8]>,
    has_several_codings: bool,
    forbids_transform: bool,
    length: Option<u64>,
    /// Whether Vary names Accept-Encoding, or is `*`.
    varies: bool,
}

impl<'a> BodyHead<'a> {
    /// `fields`: name and value of each.
    pub fn from_fields(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
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
            } else if name.eq_ignore_ascii_case(b"etag") {
                content.etag = Some(value);
            } else if name.eq_ignore_ascii_case(b"vary") {
                content.varies |=
                    members(value).any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding"));
            }
        }
        content
    }

    /// Whether the body may get a coding. The status must have a whole representation, the type must be among `types`,
    /// and the body must have at least `least_bytes`. The body must not be empty or coded, and Cache-Control must not
    /// forbid it (RFC 9110 §7.7, RFC 9111 §5.2.2.6).
    pub fn may_be_coded(&self, status: u16, types: &[MediaRange], least_bytes: u64) -> bool {
        is_whole(status)
            && self.coding.is_none()
            && !self.forbids_transform
            // An empty body is shorter than any coding of it.
            && self.length.is_none_or(|length| length >= least_bytes.max(1))
            && self.content_type.is_some_and(|content_type| is_among(content_type, types))
    }

    /// Returns the coding that may be removed from the body: its only one. `None` if the response is not a whole
    /// representation, or if Cache-Control forbids the change.
    pub fn removable_coding(&self, status: u16) -> Option<Coding> {
        let is_fixed = !is_whole(status) || self.has_several_codings || self.forbids_transform;
        Coding::named(self.coding?).filter(|coding| !is_fixed && Coding::PLAIN.contains(coding))
    }

    /// Returns the coding to remove for a client that does not accept it. `None` leaves the body unchanged.
    pub fn coding_to_remove(&self, status: u16, accepted: &Accepted) -> Option<Coding> {
        self.removable_coding(status).filter(|coding| accepted.takes_identity() && !accepted.takes(*coding))
    }

    /// Whether other clients may get another coding: then every Vary names Accept-Encoding (RFC 9110 §12.5.5).
    pub fn is_negotiated(&self, status: u16, types: &[MediaRange], least_bytes: u64) -> bool {
        if !matches!(status, 206 | 304) {
            return self.may_be_coded(status, types, least_bytes) || self.removable_coding(status).is_some();
        }
        // RFC 9110 §15.3.7, §15.4.5: a 206 and a 304 have the Vary of the 200, but no type and another length.
        let whole = Self { length: None, ..*self };
        let is_of_unknown_type = self.content_type.is_none_or(|value| value.starts_with(b"multipart/"));
        whole.may_be_coded(200, types, least_bytes)
            || whole.removable_coding(200).is_some()
            || (is_of_unknown_type && self.coding.is_none() && !self.forbids_transform)
    }

    pub fn etag(&self) -> Option<&'a [u8]> {
        self.etag
    }

    pub fn varies(&self) -> bool {
        self.varies
    }

    /// Sets the length of the body, if it is known.
    pub fn with_length(self, length: Option<u64>) -> Self {
        Self { length: length.or(self.length), ..self }
    }

    pub fn length(&self) -> Option<u64> {
        self.length
    }
}

fn is_whole(status: u16) -> bool {
    status >= 200 && !matches!(status, 204 | 205 | 206 | 304)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyChange {
    Code(Coding),
    Decode,
}

impl BodyChange {
    /// Appends the fields of a changed response, except the length of its body.
    ///
    /// RFC 9110 §8.8.1: the new representation has the same meaning and other bytes, so its validator is weak. Digests
    /// of the old bytes (RFC 9530) and offers of ranges are removed.
    pub fn write<'a>(self, out: &mut Vec<u8>, fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) {
        let varies = BodyHead::from_fields(fields.clone()).varies();
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

pub const VARY: &[u8] = b"Vary: Accept-Encoding\r\n";

/// RFC 9842 §6.2.
pub const VARY_BY_DICTIONARY: &[u8] = b"Vary: Available-Dictionary\r\n";

/// Whether a field describes the bytes of a body, not their meaning.
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
            (200, &[("Content-Type", "text/html"), ("Content-Length", "0")], false),
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
            let content = BodyHead::from_fields(fields(head));
            assert_eq!(content.may_be_coded(*status, &types, 100), *expected, "{status} {head:?}");
        }
        let empty = BodyHead::from_fields(fields(&[("Content-Type", "text/html"), ("Content-Length", "0")]));
        assert!(!empty.may_be_coded(200, &types, 0), "a coding of nothing is longer than nothing");
    }

    /// RFC 9110 §12.5.5, §15.3.7, §15.4.5.
    #[test]
    fn what_others_get_in_another_coding_varies() {
        let types = ["text/*".parse().expect("is a range")];
        let rows: &[(u16, Fields, bool)] = &[
            (200, &[("Content-Type", "text/html")], true),
            (200, &[("Content-Type", "image/png")], false),
            (200, &[("Content-Type", "image/png"), ("Content-Encoding", "gzip")], true),
            (200, &[("Content-Type", "image/png"), ("Content-Encoding", "gzip, br")], false),
            (200, &[("Content-Encoding", "gzip"), ("Cache-Control", "no-transform")], false),
            (200, &[("Content-Type", "text/html"), ("Content-Length", "99")], false),
            (206, &[("Content-Type", "text/html"), ("Content-Length", "99")], true),
            (206, &[("Content-Type", "image/png"), ("Content-Length", "200")], false),
            (206, &[("Content-Type", "image/png"), ("Content-Encoding", "br")], true),
            (206, &[("Content-Type", "multipart/byteranges; boundary=b")], true),
            (304, &[], true),
            (304, &[("Content-Type", "text/css")], true),
            (304, &[("Content-Type", "image/png")], false),
            (304, &[("Cache-Control", "no-transform")], false),
            (304, &[("Content-Encoding", "gzip, br")], false),
            (204, &[("Content-Type", "text/html")], false),
        ];
        for (status, head, expected) in rows {
            let content = BodyHead::from_fields(fields(head));
            assert_eq!(content.is_negotiated(*status, &types, 100), *expected, "{status} {head:?}");
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
            let accepted = Accepted::from_values([accepted.as_bytes()]);
            let content = BodyHead::from_fields(fields(head));
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
        BodyChange::Code(Coding::Brotli).write(&mut out, fields(FIELDS));
        let expected = "Content-Type: text/html\r\nETag: W/\"a\"\r\nVary: Cookie\r\nX-Other: y\r\n\
                        Content-Encoding: br\r\nVary: Accept-Encoding\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        out.clear();
        const CODED: Fields =
            &[("ETag", "W/\"a\""), ("Content-Encoding", "gzip"), ("Vary", "Origin, accept-encoding")];
        BodyChange::Decode.write(&mut out, fields(CODED));
        assert_eq!(String::from_utf8_lossy(&out), "ETag: W/\"a\"\r\nVary: Origin, accept-encoding\r\n");
    }
}
