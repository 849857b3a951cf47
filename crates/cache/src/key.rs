//! Cache keys: scheme, host, path, query, and further parts that the route's options add.
//!
//! A lookup copies nothing: the parts are hashed in place. The hash has 128 bits and a secret, so that neither chance
//! nor an attacker makes two keys collide. The text of a key is written only for stored responses, for purges and
//! display.

use std::hash::Hasher;

use http1::RequestHead;
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::fields::{cookies, values};
use crate::policy::{KeyOptions, KeyQuery};

/// The cache key of a resource, which all its variants share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheKey(u128);

impl CacheKey {
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }

    /// The key for parts of the resource with this key; applied twice, it returns the original key. Both are in one
    /// shard.
    #[must_use]
    pub(crate) const fn of_parts(self) -> Self {
        const PARTS: u128 = 0x5bd1_e995_7f4a_7c15;
        // Changes only the lower half: the upper half selects the shard, which stays.
        Self(self.0 ^ PARTS)
    }

    /// The key of a request. `passes` says whether the server gets the field with a name as the client sent it. Other
    /// fields are left out of the key: they cannot change the response, but a client could use them to store responses
    /// for others. `values` passes the values of the key, in the order of their names in the options.
    pub fn from_secret(
        secret: KeySecret,
        uri: &Uri<'_>,
        options: &KeyOptions,
        (head, bytes): (&RequestHead, &[u8]),
        passes: impl Fn(&[u8]) -> bool,
        values: impl KeyValues,
    ) -> Self {
        let mut hash = KeyHash(SipHasher13::new_with_keys(secret.0, secret.1));
        write_parts(&mut hash, uri, options, (head, bytes), passes, values);
        Self(hash.0.finish128().as_u128())
    }

    /// The key of a URI if nothing else is part of the key.
    // The bytes hashed here are those of `of` without further parts, so that both give one key.
    pub(crate) fn of_uri(secret: KeySecret, uri: &Uri<'_>, options: &KeyOptions) -> Self {
        let mut hash = KeyHash(SipHasher13::new_with_keys(secret.0, secret.1));
        write_uri(&mut hash, uri, options);
        Self(hash.0.finish128().as_u128())
    }
}

/// The secret that keys are hashed with. A disk store keeps its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct KeySecret(u64, u64);

impl KeySecret {
    /// A secret from 128 random bits.
    pub const fn new(bits: u128) -> Self {
        Self((bits >> 64) as u64, bits as u64)
    }

    pub(crate) fn halves(self) -> (u64, u64) {
        (self.0, self.1)
    }

    /// The secret of the key space with this name. Keys of different spaces are unrelated.
    #[must_use]
    pub fn of_space(self, name: &[u8]) -> Self {
        let mut hash = SipHasher13::new_with_keys(self.0, self.1);
        hash.write(name);
        let hash = hash.finish128();
        Self(hash.h1, hash.h2)
    }
}

/// A key space: routes that share stored responses, separate from all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    pub secret: KeySecret,
    pub options: KeyOptions,
}

/// The URI of a request, as parts of its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uri<'a> {
    pub is_https: bool,
    /// Host and optional port, as sent.
    pub authority: &'a [u8],
    /// The path, from its slash up to the query.
    pub path: &'a [u8],
    /// The query after `?`; `None` if there is none.
    pub query: Option<&'a [u8]>,
}

impl<'a> Uri<'a> {
    /// A URI from the authority and path with query, as in `http1::Target`.
    pub fn new(is_https: bool, authority: &'a [u8], path_and_query: &'a [u8]) -> Self {
        let mark = path_and_query.iter().position(|&byte| byte == b'?');
        let (path, query) = match mark {
            Some(at) => (&path_and_query[..at], Some(&path_and_query[at + 1..])),
            None => (path_and_query, None),
        };
        // RFC 9110 §4.2.3: an empty path is the same as `/`.
        Self { is_https, authority, path: if path.is_empty() { b"/" } else { path }, query }
    }

    /// Whether the authority is in normal form: lower case, without the default port. A server may repeat it in its
    /// response, which then suits all clients.
    pub fn is_plain(&self) -> bool {
        self.plain_authority().len() == self.authority.len()
            && !self.authority.iter().any(u8::is_ascii_uppercase)
    }

    /// The authority without the default port of its scheme (RFC 9110 §4.2.3). Case is not changed.
    pub(crate) fn plain_authority(&self) -> &'a [u8] {
        let implied: &[u8] = if self.is_https { b":443" } else { b":80" };
        let authority = self.authority.strip_suffix(implied).unwrap_or(self.authority);
        // RFC 3986 §3.2.3: an empty port is left out.
        authority.strip_suffix(b":").unwrap_or(authority)
    }
}

/// The values of a key: passes each name with its text, or nothing for an absent value.
pub trait KeyValues: Fn(&mut dyn FnMut(&str, &[u8])) {}

impl<F: Fn(&mut dyn FnMut(&str, &[u8]))> KeyValues for F {}

/// Passes no values: for keys without them.
pub fn no_values(_: &mut dyn FnMut(&str, &[u8])) {}

/// Appends the text of a key: the URI, then one line for each further part, `cookie:name=value`, `name=value` or
/// `value:name=value`. `passes` and `values` are as in [`CacheKey::from_secret`].
pub fn write_key(
    out: &mut Vec<u8>,
    uri: &Uri<'_>,
    options: &KeyOptions,
    head: (&RequestHead, &[u8]),
    passes: impl Fn(&[u8]) -> bool,
    values: impl KeyValues,
) {
    write_parts(&mut KeyText(out), uri, options, head, passes, values);
}

/// Appends path and query, reduced to the parts of the key. If the response is shared by all requests with the key, the
/// server must see no more.
pub fn write_kept_target(out: &mut Vec<u8>, uri: &Uri<'_>, options: &KeyOptions) {
    out.extend_from_slice(uri.path);
    write_query(&mut KeyText(out), uri.query, options);
}

/// Takes the parts of a key, in order.
trait KeySink {
    fn write(&mut self, bytes: &[u8]);
}

struct KeyHash(SipHasher13);

impl KeySink for KeyHash {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
}

struct KeyText<'a>(&'a mut Vec<u8>);

impl KeySink for KeyText<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// No part or URI contains a line end, so different requests are written differently.
fn write_parts(
    sink: &mut impl KeySink,
    uri: &Uri<'_>,
    options: &KeyOptions,
    (head, bytes): (&RequestHead, &[u8]),
    passes: impl Fn(&[u8]) -> bool,
    computed: impl KeyValues,
) {
    write_uri(sink, uri, options);
    // A field that no server sees cannot change the response. Under its value, clients would fill entries for others.
    for name in options.cookies.iter().filter(|_| passes(b"cookie")) {
        // All cookies with this name, because it is unknown which one the server uses.
        for value in cookies(head, bytes, name) {
            sink.write(b"\ncookie:");
            sink.write(name);
            sink.write(b"=");
            sink.write(value);
        }
    }
    for name in options.headers.iter().filter(|name| passes(name)) {
        // All values, since servers differ in which of several they use.
        for value in values(head, bytes, name) {
            sink.write(b"\n");
            sink.write(name);
            sink.write(b"=");
            sink.write(value);
        }
    }
    if !options.values.is_empty() {
        computed(&mut |name, value| {
            sink.write(b"\nvalue:");
            sink.write(name.as_bytes());
            sink.write(b"=");
            write_value(sink, value);
        });
    }
}

/// Writes a value, which may have any bytes. Escaped, so that a line end in it begins no other part.
fn write_value(sink: &mut impl KeySink, value: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for piece in value.split_inclusive(|&byte| byte.is_ascii_control() || byte == b'%') {
        match piece.split_last() {
            Some((&last, before)) if last.is_ascii_control() || last == b'%' => {
                sink.write(before);
                sink.write(&[b'%', DIGITS[usize::from(last >> 4)], DIGITS[usize::from(last & 15)]]);
            }
            _ => sink.write(piece),
        }
    }
}

fn write_uri(sink: &mut impl KeySink, uri: &Uri<'_>, options: &KeyOptions) {
    if !options.ignores_scheme {
        sink.write(if uri.is_https { b"https:" } else { b"http:" });
    }
    if !options.ignores_host {
        sink.write(b"//");
        write_lower(sink, uri.plain_authority());
    }
    sink.write(uri.path);
    write_query(sink, uri.query, options);
}

fn write_lower(sink: &mut impl KeySink, text: &[u8]) {
    // Nearly every client sends the host in lower case: then it is hashed in one piece.
    if !text.iter().any(u8::is_ascii_uppercase) {
        return sink.write(text);
    }
    for byte in text {
        sink.write(&[byte.to_ascii_lowercase()]);
    }
}

/// Parameters beyond this number keep the order in which they came.
const SORTED_PARAMETERS_MAX: usize = 64;

fn write_query(sink: &mut impl KeySink, query: Option<&[u8]>, options: &KeyOptions) {
    let Some(query) = query else { return };
    // The default options look at no parameter.
    if options.query == KeyQuery::Whole && !options.sorts_query {
        sink.write(b"?");
        return sink.write(query);
    }
    // On the stack: a lookup allocates nothing.
    let mut sorted: [&[u8]; SORTED_PARAMETERS_MAX] = [b""; SORTED_PARAMETERS_MAX];
    let mut count = 0;
    for parameter in kept(query, &options.query) {
        if count == SORTED_PARAMETERS_MAX {
            // Sorting by insertion takes quadratic time, which a client must not be able to demand.
            return write_parameters(sink, kept(query, &options.query));
        }
        // Inserted behind those with the same name, whose order may matter.
        let mut at = count;
        while options.sorts_query && at > 0 && name(sorted[at - 1]) > name(parameter) {
            sorted[at] = sorted[at - 1];
            at -= 1;
        }
        sorted[at] = parameter;
        count += 1;
    }
    write_parameters(sink, sorted[..count].iter().copied());
}

fn kept<'a>(query: &'a [u8], options: &KeyQuery) -> impl Iterator<Item = &'a [u8]> {
    let parameters = query.split(|&byte| byte == b'&').filter(|parameter| !parameter.is_empty());
    parameters.filter(move |parameter| {
        let is_among = |names: &[crate::Parameter]| names.iter().any(|named| named.is(name(parameter)));
        match options {
            KeyQuery::Whole => true,
            KeyQuery::None => false,
            KeyQuery::Keep(names) => is_among(names),
            KeyQuery::Drop(names) => !is_among(names),
        }
    })
}

fn name(parameter: &[u8]) -> &[u8] {
    parameter.split(|&byte| byte == b'=').next().unwrap_or_default()
}

fn write_parameters<'a>(sink: &mut impl KeySink, parameters: impl Iterator<Item = &'a [u8]>) {
    for (index, parameter) in parameters.enumerate() {
        sink.write(if index == 0 { b"?" } else { b"&" });
        sink.write(parameter);
    }
}
