//! Parses Cache-Control of requests and responses, and CDN-Cache-Control (RFC 9213).
//!
//! Malformed directives are read as less fresh: a missing number counts as zero, and a malformed list of field names as
//! all fields (RFC 9111 §4.2.1). A response directive is read in two places: `add`, and `add_targeted` for
//! CDN-Cache-Control.

use http1::{RequestHead, ResponseHead};

use crate::fields::{members, values};
use crate::structured::{Dictionary, Value};

/// The largest number of seconds; larger ones are reduced to it (RFC 9111 §1.2.2).
pub(crate) const SECONDS_MAX: u32 = 1 << 31;

/// Cache-Control directives of a request (RFC 9111 §5.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestDirectives {
    /// `no-cache`: stored responses must be validated first.
    pub no_cache: bool,
    /// `no-store`: nothing of the exchange may be stored.
    pub no_store: bool,
    /// `only-if-cached`: only a stored response is accepted.
    pub only_if_cached: bool,
    /// `max-age`: the highest age that is accepted.
    pub max_age_seconds: Option<u32>,
    /// `min-fresh`: how long the response must stay fresh.
    pub min_fresh_seconds: Option<u32>,
    /// `max-stale`: the staleness that is accepted; `SECONDS_MAX` if any is.
    pub max_stale_seconds: Option<u32>,
}

impl RequestDirectives {
    /// Parses Cache-Control, or Pragma if there is no Cache-Control.
    pub(crate) fn of(head: &RequestHead, bytes: &[u8]) -> Self {
        let mut directives = Self::default();
        let mut has_cache_control = false;
        for value in values(head, bytes, b"cache-control") {
            has_cache_control = true;
            for (name, argument) in Directives::new(value) {
                directives.add(name, argument);
            }
        }
        if !has_cache_control {
            // RFC 9111 §5.4: where Cache-Control is missing, `Pragma: no-cache` still has its meaning of HTTP/1.0.
            let mut pragmas = values(head, bytes, b"pragma").flat_map(Directives::new);
            directives.no_cache = pragmas.any(|(name, _)| name.eq_ignore_ascii_case(b"no-cache"));
        }
        directives
    }

    fn add(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            7 if is(b"max-age") => {
                // What is no number asks for nothing that is stored: the client wanted something young.
                let seconds = seconds(argument).unwrap_or(0);
                self.max_age_seconds = Some(self.max_age_seconds.map_or(seconds, |other| other.min(seconds)));
            }
            9 if is(b"min-fresh") => {
                let seconds = seconds(argument).unwrap_or(SECONDS_MAX);
                self.min_fresh_seconds =
                    Some(self.min_fresh_seconds.map_or(seconds, |other| other.max(seconds)));
            }
            9 if is(b"max-stale") => {
                // RFC 9111 §5.2.1.2: without a value any staleness will do; with a bad one, none.
                let seconds = argument.map_or(Some(SECONDS_MAX), |_| seconds(argument)).unwrap_or(0);
                self.max_stale_seconds =
                    Some(self.max_stale_seconds.map_or(seconds, |other| other.min(seconds)));
            }
            8 if is(b"no-cache") => self.no_cache = true,
            8 if is(b"no-store") => self.no_store = true,
            14 if is(b"only-if-cached") => self.only_if_cached = true,
            _ => {}
        }
    }
}

/// Cache-Control directives of a response (RFC 9111 §5.2.2, RFC 5861).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseDirectives {
    /// The field that the directives come from.
    pub source: Source,
    /// `no-cache`: must be validated before each use. If it lists field names, it applies only to the fields
    /// (`names_fields`).
    pub no_cache: bool,
    /// `no-store`: must not be stored.
    pub no_store: bool,
    /// `private`: meant for one client. If it lists field names, it applies only to the fields.
    pub private: bool,
    /// `public`: may be stored for every client, even if that is not the default.
    pub public: bool,
    /// `must-revalidate`: must never be used stale.
    pub must_revalidate: bool,
    /// `proxy-revalidate`: must never be used stale by shared caches, such as this one.
    pub proxy_revalidate: bool,
    /// `must-understand`: may be stored only if the cache knows the requirements of the status.
    pub must_understand: bool,
    /// Whether `no-cache` or `private` lists fields that must not be stored.
    pub names_fields: bool,
    /// `max-age`: the freshness lifetime.
    pub max_age_seconds: Option<u32>,
    /// `s-maxage`: the freshness lifetime in shared caches.
    pub s_maxage_seconds: Option<u32>,
    /// `stale-while-revalidate`: how long the response may be used stale during revalidation (RFC 5861 §3).
    pub stale_while_revalidate_seconds: Option<u32>,
    /// `stale-if-error`: how long the response may be used stale while the origin fails (RFC 5861 §4).
    pub stale_if_error_seconds: Option<u32>,
}

/// The field that a response's directives come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// Neither field is present.
    #[default]
    None,
    /// Cache-Control.
    CacheControl,
    /// CDN-Cache-Control. Cache-Control and Expires then apply to other caches only (RFC 9213 §2.2).
    Targeted,
}

impl ResponseDirectives {
    /// Parses the directives that apply to this cache: of CDN-Cache-Control if it is present and valid, otherwise of
    /// Cache-Control.
    pub fn of(head: &ResponseHead, bytes: &[u8]) -> Self {
        if let Some(targeted) = targeted(head, bytes) {
            return targeted;
        }
        let mut directives = Self::default();
        for value in values(head, bytes, b"cache-control") {
            directives.source = Source::CacheControl;
            for (name, argument) in Directives::new(value) {
                directives.add(name, argument);
            }
        }
        directives
    }

    fn add(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        let named = argument.is_some_and(names_fields);
        match name.len() {
            6 if is(b"public") => self.public = true,
            7 if is(b"private") && named => self.names_fields = true,
            7 if is(b"private") => self.private = true,
            7 if is(b"max-age") => set_first(&mut self.max_age_seconds, argument),
            8 if is(b"no-cache") && named => self.names_fields = true,
            8 if is(b"no-cache") => self.no_cache = true,
            8 if is(b"no-store") => self.no_store = true,
            8 if is(b"s-maxage") => set_first(&mut self.s_maxage_seconds, argument),
            14 if is(b"stale-if-error") => set_first(&mut self.stale_if_error_seconds, argument),
            15 if is(b"must-revalidate") => self.must_revalidate = true,
            15 if is(b"must-understand") => self.must_understand = true,
            16 if is(b"proxy-revalidate") => self.proxy_revalidate = true,
            22 if is(b"stale-while-revalidate") => {
                set_first(&mut self.stale_while_revalidate_seconds, argument);
            }
            _ => {}
        }
    }
}

/// RFC 9111 §4.2.1: of a repeated directive the first counts, and what is no number is stale.
fn set_first(slot: &mut Option<u32>, argument: Option<&[u8]>) {
    if slot.is_none() {
        *slot = Some(seconds(argument).unwrap_or(0));
    }
}

/// Whether an argument of `no-cache` or `private` is a list of names of fields; if not, the directive concerns everything.
fn names_fields(argument: &[u8]) -> bool {
    let is_name = |name: &[u8]| {
        name.iter().all(|byte| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(byte))
    };
    members(argument).all(is_name) && members(argument).next().is_some()
}

/// Whether `no-cache` or `private` lists this field, so that it is not stored (RFC 9111 §5.2.2.4, §5.2.2.7).
pub(crate) fn is_named(head: &ResponseHead, bytes: &[u8], field: &[u8]) -> bool {
    let fields = [b"cache-control".as_slice(), b"cdn-cache-control"];
    let mut directives =
        fields.into_iter().flat_map(|name| values(head, bytes, name)).flat_map(Directives::new);
    directives.any(|(name, argument)| {
        let names = name.eq_ignore_ascii_case(b"no-cache") || name.eq_ignore_ascii_case(b"private");
        names && argument.is_some_and(|list| members(list).any(|member| member.eq_ignore_ascii_case(field)))
    })
}

/// RFC 9213 §2.1: a Dictionary of RFC 9651; one that is none, that is empty, or that gives a time as something else than an
/// Integer, is treated as not there.
fn targeted(head: &ResponseHead, bytes: &[u8]) -> Option<ResponseDirectives> {
    let mut directives = ResponseDirectives { source: Source::Targeted, ..ResponseDirectives::default() };
    let mut is_empty = true;
    for value in values(head, bytes, b"cdn-cache-control") {
        for member in Dictionary::new(value) {
            let (key, value) = member.ok()?;
            directives.add_targeted(key, value)?;
            is_empty = false;
        }
    }
    (!is_empty).then_some(directives)
}

impl ResponseDirectives {
    /// `None` where a time is no Integer.
    fn add_targeted(&mut self, key: &[u8], value: Value<'_>) -> Option<()> {
        let is_true = value != Value::Boolean(false);
        // RFC 9651 §3.2: the last of a key counts.
        match key {
            b"max-age" => self.max_age_seconds = Some(value.seconds()?),
            b"s-maxage" => self.s_maxage_seconds = Some(value.seconds()?),
            b"stale-while-revalidate" => self.stale_while_revalidate_seconds = Some(value.seconds()?),
            b"stale-if-error" => self.stale_if_error_seconds = Some(value.seconds()?),
            b"public" => self.public = is_true,
            b"private" | b"no-cache" => {
                let named = matches!(value, Value::String(names) if names_fields(names));
                let slot = if key == b"private" { &mut self.private } else { &mut self.no_cache };
                *slot = is_true && !named;
                self.names_fields |= named;
            }
            b"no-store" => self.no_store = is_true,
            b"must-revalidate" => self.must_revalidate = is_true,
            b"proxy-revalidate" => self.proxy_revalidate = is_true,
            b"must-understand" => self.must_understand = is_true,
            _ => {}
        }
        Some(())
    }
}

impl Value<'_> {
    fn seconds(self) -> Option<u32> {
        match self {
            Value::Integer(seconds) => Some(seconds.clamp(0, SECONDS_MAX.into()) as u32),
            _ => None,
        }
    }
}

/// RFC 9111 §1.2.2: digits; what is greater than 2^31 counts as that.
fn seconds(argument: Option<&[u8]>) -> Option<u32> {
    delta_seconds(argument?)
}

/// Parses a number of seconds; `None` if the text is not a number.
pub(crate) fn delta_seconds(text: &[u8]) -> Option<u32> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0u32, |sum, byte| {
        sum.saturating_mul(10).saturating_add(u32::from(byte - b'0')).min(SECONDS_MAX)
    }))
}

/// Iterates over the directives of a field value, as name and unquoted argument. A malformed argument is empty, as in
/// `max-age=`.
pub(crate) struct Directives<'a> {
    rest: &'a [u8],
}

impl<'a> Directives<'a> {
    pub(crate) fn new(value: &'a [u8]) -> Self {
        Self { rest: value }
    }

    /// What is up to the next comma, and goes on behind it.
    fn up_to_comma(&mut self, from: usize) -> &'a [u8] {
        let end =
            self.rest[from..].iter().position(|&byte| byte == b',').map_or(self.rest.len(), |at| from + at);
        let text = &self.rest[from..end];
        self.rest = self.rest.get(end + 1..).unwrap_or_default();
        text
    }
}

impl<'a> Iterator for Directives<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.rest.iter().position(|byte| !b" \t,".contains(byte))?;
        self.rest = &self.rest[start..];
        let name_len = self.rest.iter().position(|byte| b"=,".contains(byte)).unwrap_or(self.rest.len());
        if self.rest.get(name_len) != Some(&b'=') {
            return Some((self.up_to_comma(0).trim_ascii_end(), None));
        }
        let name = &self.rest[..name_len];
        let (trimmed, value_start) = (name.trim_ascii_end(), name_len + 1);
        let argument = if self.rest.get(value_start) == Some(&b'"') {
            self.quoted(value_start + 1)
        } else {
            self.up_to_comma(value_start).trim_ascii_end()
        };
        // RFC 9111 §5.2: there is no white space around the sign.
        let is_malformed =
            trimmed.len() < name.len() || argument.first().is_some_and(u8::is_ascii_whitespace);
        Some((trimmed, Some(if is_malformed { b"" } else { argument })))
    }
}

impl<'a> Directives<'a> {
    /// A quoted string behind its first quote (RFC 9110 §5.6.4). One that does not end hides nothing behind the next comma.
    fn quoted(&mut self, start: usize) -> &'a [u8] {
        let mut at = start;
        loop {
            match self.rest.get(at) {
                Some(b'\\') => at += 2,
                Some(b'"') => break,
                Some(_) => at += 1,
                None => {
                    self.up_to_comma(start);
                    return b"";
                }
            }
        }
        let argument = &self.rest[start..at];
        let is_alone = self.up_to_comma(at + 1).trim_ascii().is_empty();
        if is_alone { argument } else { b"" }
    }
}
