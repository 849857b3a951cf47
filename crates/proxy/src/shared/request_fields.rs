//! The fields of a head, for look-ups by name.

use http1::{FieldLine, MessageHead, RequestTarget};

#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestFields<'a> {
    fields: &'a [FieldLine],
    bytes: &'a [u8],
}

impl<'a> RequestFields<'a> {
    pub(crate) const NONE: Self = Self { fields: &[], bytes: &[] };

    pub(crate) fn new<Start>(head: &'a MessageHead<Start>, bytes: &'a [u8]) -> Self {
        Self { fields: &head.fields, bytes }
    }
}

/// Returns the value of the first field line with this name, for names that `http1` does not know.
pub(crate) fn line<'a, Start>(head: &MessageHead<Start>, bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let field = head.fields.iter().find(|field| field.name.for_bytes(bytes).eq_ignore_ascii_case(name))?;
    Some(field.value.for_bytes(bytes))
}

impl route::FieldLookup for RequestFields<'_> {
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (field.name.for_bytes(self.bytes), field.value.for_bytes(self.bytes)))
    }
}

impl balance::SessionFields for RequestFields<'_> {
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        route::FieldLookup::values(self, name.as_bytes())
    }
}

/// Returns the query of a target, without its question mark.
pub(crate) fn query<'a>(target: &RequestTarget, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let path = target.path.for_bytes(bytes);
    target.path_and_query.for_bytes(bytes).get(path.len()..).and_then(|rest| rest.strip_prefix(b"?"))
}

/// Returns the fields of a head that the proxy has written.
pub(crate) fn fields_of_text(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    let lines = head.split_inclusive(|byte| *byte == b'\n').skip(1);
    lines.filter_map(|line| {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
        Some((name, value[1..].trim_ascii()))
    })
}
