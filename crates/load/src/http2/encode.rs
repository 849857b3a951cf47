//! HPACK encoder: header blocks of requests (RFC 7541), rendered before the load.
//!
//! The fields that all requests to a server have in common go into the table of a connection with its first request, as
//! other clients do it; all later requests refer to them. So a block is put together from parts that never change.

use ::h3::prefixed::{push_integer, push_string};
use ::http::Request;

use super::decode::STATIC;

/// Size of the dynamic table that a server allows unless it says otherwise, and an entry's overhead (RFC 7541 §4.1).
pub(super) const TABLE_BYTES: usize = 4096;
const ENTRY_BYTES: usize = 32;

/// What the table of a connection holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Table {
    #[default]
    Empty,
    /// The common fields.
    Common,
    /// The server wants a smaller one: it is not used.
    Unused,
}

/// Fields that all planned requests to a server have in common.
#[derive(Debug, Default)]
pub(crate) struct Common {
    coding: Coding,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// As literals that go into the table, as references to it, and as literals only.
    inserted: Parts,
    referred: Parts,
    literal: Parts,
}

/// What blocks are coded for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Coding {
    #[default]
    Hpack,
    /// HTTP/3: a block is a whole HEADERS frame, and nothing is common.
    Qpack,
}

/// The start of a block with pseudo-header fields, and its other fields (RFC 9113 §8.3).
#[derive(Debug, Default)]
struct Parts {
    pseudo: Vec<u8>,
    regular: Vec<u8>,
}

/// Header block of a request, without the common fields.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    bytes: Box<[u8]>,
    pseudo_bytes: usize,
    has_common: bool,
}

impl Common {
    /// Blocks of HTTP/3, which refer to no table.
    pub(crate) fn qpack() -> Self {
        Self { coding: Coding::Qpack, ..Self::default() }
    }

    /// What the requests to one server have in common.
    pub(crate) fn of<'r>(heads: impl Iterator<Item = &'r Request<()>> + Clone) -> Self {
        let Some(first) = heads.clone().next() else { return Self::default() };
        let (mut common, mut table_bytes) = (Self::default(), 0);
        let all = fields(first);
        for (place, (name, _)) in all.iter().enumerate() {
            let values: Vec<_> = values(&all, name).collect();
            let is_first = all[..place].iter().all(|(other, _)| other != name);
            let bytes: usize = values.iter().map(|value| name.len() + value.len() + ENTRY_BYTES).sum();
            // All values of a name, or none.
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
            push(name, value, self.inserted.of(name), Form::Inserted);
            push(name, value, self.literal.of(name), Form::Literal);
            match index {
                Some(index) => push_integer(self.referred.of(name), index, 7, 0x80),
                None => push(name, value, self.referred.of(name), Form::Literal),
            }
        }
    }

    /// The block of a request.
    pub(crate) fn block(&self, head: &Request<()>) -> Block {
        let all = fields(head);
        if self.coding == Coding::Qpack {
            return Block::headers_frame(&all);
        }
        let has_common = self
            .fields
            .iter()
            .all(|(name, value)| all.iter().any(|(other, of_other)| name == other && value == of_other));
        let mut parts = Parts::default();
        for (name, value) in all {
            if !has_common || !self.fields.iter().any(|(other, _)| other == name) {
                push(name, value, parts.of(name), Form::Literal);
            }
        }
        let pseudo_bytes = parts.pseudo.len();
        let bytes = [parts.pseudo, parts.regular].concat().into_boxed_slice();
        Block { bytes, pseudo_bytes, has_common }
    }

    /// Appends the whole block of a request, and updates what the table holds.
    #[inline]
    pub(super) fn write(&self, block: &Block, table: &mut Table, out: &mut Vec<u8>) {
        if !block.has_common {
            return out.extend_from_slice(&block.bytes);
        }
        let common = match table {
            Table::Empty => &self.inserted,
            Table::Common => &self.referred,
            Table::Unused => &self.literal,
        };
        if *table == Table::Empty {
            *table = Table::Common;
        }
        let (pseudo, regular) = block.bytes.split_at(block.pseudo_bytes);
        for part in [&common.pseudo[..], pseudo, &common.regular, regular] {
            out.extend_from_slice(part);
        }
    }
}

impl Block {
    /// HTTP/3: the HEADERS frame with the field section (RFC 9114 §7.2.2).
    fn headers_frame(fields: &[(&[u8], &[u8])]) -> Self {
        let (mut section, mut frame) = (Vec::new(), Vec::new());
        ::h3::push_prefix(&mut section);
        for (name, value) in fields {
            ::h3::push_field(&mut section, name, value);
        }
        ::h3::push_headers(&mut frame, &section);
        Self { bytes: frame.into_boxed_slice(), pseudo_bytes: 0, has_common: false }
    }

    /// All of its bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Parts {
    fn of(&mut self, name: &[u8]) -> &mut Vec<u8> {
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

/// Values of a field, in their order.
fn values<'f>(fields: &[(&'f [u8], &'f [u8])], name: &[u8]) -> impl Iterator<Item = &'f [u8]> + use<'f> {
    let values: Vec<_> = fields.iter().filter(|(other, _)| *other == name).map(|(_, value)| *value).collect();
    values.into_iter()
}

/// Whether a field may go into the table: not what is secret (RFC 7541 §7.1) or differs with each request.
fn is_stored(name: &[u8]) -> bool {
    let never: [&[u8]; 5] =
        [b":path", b"content-length", b"authorization", b"proxy-authorization", b"cookie"];
    !never.contains(&name)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Inserted,
    Literal,
}

/// Appends a field; one of the static table as its index.
fn push(name: &[u8], value: &[u8], out: &mut Vec<u8>, form: Form) {
    let (index, is_whole) = position(name, value);
    let is_secret = matches!(name, b"authorization" | b"proxy-authorization" | b"cookie");
    match form {
        _ if is_whole => return push_integer(out, index, 7, 0x80),
        Form::Inserted => push_integer(out, index, 6, 0x40),
        Form::Literal => push_integer(out, index, 4, if is_secret { 0x10 } else { 0 }),
    }
    if index == 0 {
        push_string(out, name, 7, 0);
    }
    push_string(out, value, 7, 0);
}

/// Index of a field in the static table, and whether it has that value; 0 for a name that is not there.
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
    use super::super::decode::{Decode, Decoder};
    use super::*;

    fn head(path: &str, fields: &[(&str, &str)]) -> Request<()> {
        let mut builder = Request::builder().uri(format!("http://a.test:81{path}"));
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        builder.body(()).expect("a head")
    }

    /// The fields as the server reads them, for requests that follow each other.
    fn read(heads: &[Request<()>], mut table: Table) -> (Vec<String>, Vec<usize>) {
        let common = Common::of(heads.iter());
        let (mut decoder, mut read, mut sizes) = (Decoder::default(), Vec::new(), Vec::new());
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
        for table in [Table::Empty, Table::Unused, Table::Empty] {
            assert_eq!(read(&heads, table).0, expected);
        }
        let (_, sizes) = read(&[head("/1", &[("x-a", "1")]), head("/1", &[("x-a", "1")])], Table::Empty);
        // Method, scheme, authority and the field are a byte each.
        assert_eq!((sizes[0] > 15, sizes[1]), (true, 4 + 4), "{sizes:?}");
    }

    #[test]
    fn a_request_without_the_common_fields_leaves_the_table_alone() {
        let planned = [head("/1", &[("x-a", "1")])];
        let common = Common::of(planned.iter());
        let (mut table, mut out) = (Table::Empty, Vec::new());
        common.write(&common.block(&head("/", &[])), &mut table, &mut out);
        assert_eq!(table, Table::Empty);
        common.write(&common.block(&planned[0]), &mut table, &mut out);
        assert_eq!(table, Table::Common);
        // More than the table holds: what does not fit is sent in full each time, behind the rest.
        let long = "x".repeat(3000);
        let heads = [0, 1].map(|_| head("/", &[("x-a", &long), ("x-b", &long), ("x-c", "1")]));
        let expected =
            format!(":method=GET :scheme=http :authority=a.test:81 :path=/ x-a={long} x-c=1 x-b={long} ");
        assert!(read(&heads, Table::Empty).0 == [expected.clone(), expected]);
    }
}
