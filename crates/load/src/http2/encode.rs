//! HPACK encoder: header blocks of requests (RFC 7541), rendered before the load.
//!
//! The first request on a connection puts the common fields of all requests to its server into the table. Later
//! requests refer to them, as with other clients. So a block consists of parts that never change.

use ::http::Request;
use lab_http3::prefixed::{push_integer, push_string};

use super::decode::STATIC;

/// Default size of the server's dynamic table, and an entry's overhead (RFC 7541 §4.1).
pub(super) const TABLE_BYTES: usize = 4096;
const ENTRY_BYTES: usize = 32;

/// Contents of a connection's dynamic table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum EncoderTable {
    #[default]
    Empty,
    Common,
    /// The server wants a smaller table, so none is used.
    Unused,
}

/// Common fields of all planned requests to a server.
#[derive(Debug, Default)]
pub(crate) struct CommonFields {
    coding: Coding,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// As literals that go into the table, as references to it, and as literals only.
    inserted: BlockParts,
    referred: BlockParts,
    literal: BlockParts,
}

/// The header compression of the blocks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Coding {
    #[default]
    Hpack,
    /// HTTP/3: a block is a whole HEADERS frame, and nothing is common.
    Qpack,
}

/// The start of a block with pseudo-header fields, and its other fields (RFC 9113 §8.3).
#[derive(Debug, Default)]
struct BlockParts {
    pseudo: Vec<u8>,
    regular: Vec<u8>,
}

/// Header block of a request, without the common fields.
#[derive(Debug, Clone)]
pub(crate) struct RequestBlock {
    bytes: Box<[u8]>,
    pseudo_bytes: usize,
    has_common: bool,
}

impl CommonFields {
    /// Blocks of HTTP/3, which refer to no table.
    pub(crate) fn qpack() -> Self {
        Self { coding: Coding::Qpack, ..Self::default() }
    }

    /// Finds the common fields of the requests to one server.
    pub(crate) fn from_heads<'r>(heads: impl Iterator<Item = &'r Request<()>> + Clone) -> Self {
        let Some(first) = heads.clone().next() else { return Self::default() };
        let (mut common, mut table_bytes) = (Self::default(), 0);
        let all = fields(first);
        for (place, (name, _)) in all.iter().enumerate() {
            let values: Vec<_> = values(&all, name).collect();
            let is_first = all[..place].iter().all(|(other, _)| other != name);
            let bytes: usize = values.iter().map(|value| name.len() + value.len() + ENTRY_BYTES).sum();
            // A name is common only with all of its values.
            if is_first
                && is_stored(name)
                && table_bytes + bytes <= TABLE_BYTES
                && heads.clone().all(|head| self::values(&fields(head), name).eq(values.iter().copied()))
            {
                table_bytes += bytes;
                common.fields.extend(values.into_iter().map(|value| (name.to_vec(), value.to_vec())));
            }
        }
        common.render();
        common
    }

    fn render(&mut self) {
        let is_static = |(name, value): &(Vec<u8>, Vec<u8>)| position(name, value).1;
        let stored = self.fields.iter().filter(|field| !is_static(field)).count();
        let mut place = 0;
        for field @ (name, value) in &self.fields {
            let mut index = None;
            if !is_static(field) {
                index = Some(STATIC.len() + stored - place);
                place += 1;
            }
            push(name, value, self.inserted.for_name(name), EncodedForm::Inserted);
            push(name, value, self.literal.for_name(name), EncodedForm::Literal);
            match index {
                Some(index) => push_integer(self.referred.for_name(name), index, 7, 0x80),
                None => push(name, value, self.referred.for_name(name), EncodedForm::Literal),
            }
        }
    }

    pub(crate) fn block(&self, head: &Request<()>) -> RequestBlock {
        let all = fields(head);
        if self.coding == Coding::Qpack {
            return RequestBlock::headers_frame(&all);
        }
        let has_common = self
            .fields
            .iter()
            .all(|(name, value)| all.iter().any(|(other, of_other)| name == other && value == of_other));
        let mut parts = BlockParts::default();
        for (name, value) in all {
            if !has_common || !self.fields.iter().any(|(other, _)| other == name) {
                push(name, value, parts.for_name(name), EncodedForm::Literal);
            }
        }
        let pseudo_bytes = parts.pseudo.len();
        let bytes = [parts.pseudo, parts.regular].concat().into_boxed_slice();
        RequestBlock { bytes, pseudo_bytes, has_common }
    }

    /// Appends the whole block of a request, and updates the table's state.
    #[inline]
    pub(super) fn write(&self, block: &RequestBlock, table: &mut EncoderTable, out: &mut Vec<u8>) {
        if !block.has_common {
            return out.extend_from_slice(&block.bytes);
        }
        let common = match table {
            EncoderTable::Empty => &self.inserted,
            EncoderTable::Common => &self.referred,
            EncoderTable::Unused => &self.literal,
        };
        if *table == EncoderTable::Empty {
            *table = EncoderTable::Common;
        }
        let (pseudo, regular) = block.bytes.split_at(block.pseudo_bytes);
        for part in [&common.pseudo[..], pseudo, &common.regular, regular] {
            out.extend_from_slice(part);
        }
    }
}

impl RequestBlock {
    /// HTTP/3: the HEADERS frame with the field section (RFC 9114 §7.2.2).
    fn headers_frame(fields: &[(&[u8], &[u8])]) -> Self {
        let (mut section, mut frame) = (Vec::new(), Vec::new());
        lab_http3::push_prefix(&mut section);
        for (name, value) in fields {
            lab_http3::push_field(&mut section, name, value);
        }
        lab_http3::push_headers(&mut frame, &section);
        Self { bytes: frame.into_boxed_slice(), pseudo_bytes: 0, has_common: false }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl BlockParts {
    fn for_name(&mut self, name: &[u8]) -> &mut Vec<u8> {
        if name.starts_with(b":") { &mut self.pseudo } else { &mut self.regular }
    }
}

/// Fields of a request in the order in which they are sent.
fn fields(head: &Request<()>) -> Vec<(&[u8], &[u8])> {
    let uri = head.uri();
    let pseudo = [
        (":method", head.method().as_str()),
        (":scheme", uri.scheme_str().unwrap_or_default()),
        (":authority", uri.authority().map_or("", |authority| authority.as_str())),
        (":path", uri.path_and_query().map_or("/", |path| path.as_str())),
    ];
    let pseudo = pseudo.into_iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    pseudo
        .chain(head.headers().iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())))
        .collect()
}

fn values<'f>(fields: &[(&'f [u8], &'f [u8])], name: &[u8]) -> impl Iterator<Item = &'f [u8]> + use<'f> {
    let values: Vec<_> = fields.iter().filter(|(other, _)| *other == name).map(|(_, value)| *value).collect();
    values.into_iter()
}

/// Whether a field may go into the table: not if it is secret (RFC 7541 §7.1) or differs with each request.
fn is_stored(name: &[u8]) -> bool {
    let never: [&[u8]; 5] =
        [b":path", b"content-length", b"authorization", b"proxy-authorization", b"cookie"];
    !never.contains(&name)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EncodedForm {
    Inserted,
    Literal,
}

/// Appends a field, as an index if the static table has it.
fn push(name: &[u8], value: &[u8], out: &mut Vec<u8>, form: EncodedForm) {
    let (index, is_whole) = position(name, value);
    let is_secret = matches!(name, b"authorization" | b"proxy-authorization" | b"cookie");
    match form {
        _ if is_whole => return push_integer(out, index, 7, 0x80),
        EncodedForm::Inserted => push_integer(out, index, 6, 0x40),
        EncodedForm::Literal => push_integer(out, index, 4, if is_secret { 0x10 } else { 0 }),
    }
    if index == 0 {
        push_string(out, name, 7, 0);
    }
    push_string(out, value, 7, 0);
}

/// Index of a field in the static table, and whether the value matches too; 0 for an unknown name.
fn position(name: &[u8], value: &[u8]) -> (usize, bool) {
    let is_named = |(other, _): &(&str, &str)| other.as_bytes() == name;
    let whole =
        STATIC.iter().position(|field| is_named(field) && field.1.as_bytes() == value && !value.is_empty());
    match whole {
        Some(place) => (place + 1, true),
        None => (STATIC.iter().position(is_named).map_or(0, |place| place + 1), false),
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode::{Decode, LabHpackDecoder};
    use super::*;

    fn head(path: &str, fields: &[(&str, &str)]) -> Request<()> {
        let mut builder = Request::builder().uri(format!("http://a.test:81{path}"));
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        builder.body(()).expect("a head")
    }

    /// Decodes the fields of successive requests.
    fn read(heads: &[Request<()>], mut table: EncoderTable) -> (Vec<String>, Vec<usize>) {
        let common = CommonFields::from_heads(heads.iter());
        let (mut decoder, mut read, mut sizes) = (LabHpackDecoder::default(), Vec::new(), Vec::new());
        for head in heads {
            let mut out = Vec::new();
            common.write(&common.block(head), &mut table, &mut out);
            let mut text = String::new();
            let field = |name: &[u8], value: &[u8]| {
                text += &format!("{}={} ", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
            };
            decoder.decode(&out, field).expect("a good block");
            read.push(text);
            sizes.push(out.len());
        }
        (read, sizes)
    }

    #[test]
    fn every_request_has_its_fields_and_later_ones_are_short() {
        let heads = [
            head("/1", &[("user-agent", "vanward"), ("x-a", "1"), ("x-a", "2"), ("authorization", "secret")]),
            head("/2", &[("user-agent", "vanward"), ("x-a", "1"), ("x-a", "3"), ("content-length", "5")]),
            head("/3", &[("user-agent", "vanward")]),
        ];
        let pseudo = ":method=GET :scheme=http :authority=a.test:81";
        let expected = [
            format!("{pseudo} :path=/1 user-agent=vanward x-a=1 x-a=2 authorization=secret "),
            format!("{pseudo} :path=/2 user-agent=vanward x-a=1 x-a=3 content-length=5 "),
            format!("{pseudo} :path=/3 user-agent=vanward "),
        ];
        for table in [EncoderTable::Empty, EncoderTable::Unused, EncoderTable::Empty] {
            assert_eq!(read(&heads, table).0, expected);
        }
        let (_, sizes) =
            read(&[head("/1", &[("x-a", "1")]), head("/1", &[("x-a", "1")])], EncoderTable::Empty);
        // Method, scheme, authority and the field are a byte each.
        assert_eq!((sizes[0] > 15, sizes[1]), (true, 4 + 4), "{sizes:?}");
    }

    #[test]
    fn a_request_without_the_common_fields_leaves_the_table_alone() {
        let planned = [head("/1", &[("x-a", "1")])];
        let common = CommonFields::from_heads(planned.iter());
        let (mut table, mut out) = (EncoderTable::Empty, Vec::new());
        common.write(&common.block(&head("/", &[])), &mut table, &mut out);
        assert_eq!(table, EncoderTable::Empty);
        common.write(&common.block(&planned[0]), &mut table, &mut out);
        assert_eq!(table, EncoderTable::Common);
        // Fields that exceed the table are sent in full each time, behind the rest.
        let long = "x".repeat(3000);
        let heads = [0, 1].map(|_| head("/", &[("x-a", &long), ("x-b", &long), ("x-c", "1")]));
        let expected =
            format!(":method=GET :scheme=http :authority=a.test:81 :path=/ x-a={long} x-c=1 x-b={long} ");
        assert!(read(&heads, EncoderTable::Empty).0 == [expected.clone(), expected]);
    }
}
