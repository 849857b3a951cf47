//! Parses Cache-Control of requests and responses, and targeted fields: Surrogate-Control, and those of RFC 9213.
//!
//! Malformed directives are read as less fresh: a missing number counts as zero, and a malformed list of field names as
//! all fields (RFC 9111 §4.2.1). Two functions read response directives: `add`, and `add_targeted` for fields of RFC
//! 9213.

use http1::{RequestHead, ResponseHead};
use structured::Bare;

use crate::fields::{members, values};
use crate::policy::{ACCEL_EXPIRES, SURROGATE_CONTROL, TargetedField};

/// The largest number of seconds; larger ones are reduced to it (RFC 9111 §1.2.2).
pub(crate) const SECONDS_MAX: u32 = 1 << 31;

/// Cache-Control directives of a request (RFC 9111 §5.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestDirectives {
    /// Stored responses must be validated first.
    pub no_cache: bool,
    /// Nothing of the exchange may be stored.
    pub no_store: bool,
    /// Only a stored response is accepted.
    pub only_if_cached: bool,
    /// The highest accepted age.
    pub max_age_seconds: Option<u32>,
    /// How long the response must stay fresh.
    pub min_fresh_seconds: Option<u32>,
    /// The accepted staleness; `SECONDS_MAX` if any is accepted.
    pub max_stale_seconds: Option<u32>,
}

impl RequestDirectives {
    /// Parses Cache-Control, or Pragma if there is no Cache-Control.
    pub(crate) fn from_head(head: &RequestHead, bytes: &[u8]) -> Self {
        let mut directives = Self::default();
        let mut has_cache_control = false;
        for value in values(head, bytes, b"cache-control") {
            has_cache_control = true;
            // RFC 9110 §5.3: several fields are one list.
            for (name, argument) in Directives::new(value) {
                directives.add(name, argument);
            }
        }
        if !has_cache_control {
            // RFC 9111 §5.4: without Cache-Control, `Pragma: no-cache` keeps its meaning from HTTP/1.0.
            let mut pragmas = values(head, bytes, b"pragma").flat_map(Directives::new);
            directives.no_cache = pragmas.any(|(name, _)| name.eq_ignore_ascii_case(b"no-cache"));
        }
        directives
    }

    fn add(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            7 if is(b"max-age") => {
                // An invalid number matches no stored response, because the client wanted a recent one.
                let seconds = seconds(argument).unwrap_or(0);
                self.max_age_seconds = Some(self.max_age_seconds.map_or(seconds, |other| other.min(seconds)));
            }
            9 if is(b"min-fresh") => {
                let seconds = seconds(argument).unwrap_or(SECONDS_MAX);
                self.min_fresh_seconds =
                    Some(self.min_fresh_seconds.map_or(seconds, |other| other.max(seconds)));
            }
            9 if is(b"max-stale") => {
                // RFC 9111 §5.2.1.2: without a value, any staleness is accepted; with an invalid one, none.
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
    pub source: DirectiveSource,
    /// `no-cache`: must be validated before each use. If it lists field names, it applies only to the fields
    /// (`names_fields`).
    pub no_cache: bool,
    pub no_store: bool,
    /// `private`: meant for one client. If it lists field names, it applies only to the fields.
    pub private: bool,
    /// `public`: may be stored for every client, even if that is not the default.
    pub public: bool,
    /// Must never be used stale.
    pub must_revalidate: bool,
    /// Must never be used stale by shared caches, such as this one.
    pub proxy_revalidate: bool,
    /// May be stored only if the cache knows the requirements of the status.
    pub must_understand: bool,
    /// Whether `no-cache` or `private` lists fields that must not be stored.
    pub names_fields: bool,
    /// The freshness lifetime.
    pub max_age_seconds: Option<u32>,
    /// The freshness lifetime in shared caches.
    pub s_maxage_seconds: Option<u32>,
    /// When the response stops being fresh, in seconds since 1970.
    pub fresh_until_unix_seconds: Option<u64>,
    /// How long the response may be used stale during revalidation (RFC 5861 §3).
    pub stale_while_revalidate_seconds: Option<u32>,
    /// How long the response may be used stale while the origin fails (RFC 5861 §4).
    pub stale_if_error_seconds: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DirectiveSource {
    /// Neither field is present.
    #[default]
    None,
    CacheControl,
    /// A targeted field. Cache-Control and Expires then apply to other caches only (RFC 9213 §2.2).
    Targeted,
}

impl ResponseDirectives {
    /// Parses the directives that apply to this cache: from the first targeted field that is present and valid,
    /// otherwise from Cache-Control.
    pub fn from_head(head: &ResponseHead, bytes: &[u8], targets: &[TargetedField]) -> Self {
        // RFC 9213 §2.2.
        let read = |target: &TargetedField| match &*target.name {
            SURROGATE_CONTROL => surrogate(head, bytes),
            ACCEL_EXPIRES => accel_expires(head, bytes),
            name => targeted(head, bytes, name.as_bytes()),
        };
        if let Some(targeted) = targets.iter().find_map(read) {
            return targeted;
        }
        let mut directives = Self::default();
        for value in values(head, bytes, b"cache-control") {
            directives.source = DirectiveSource::CacheControl;
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
            // A list of names restricts only these fields (RFC 9111 §5.2.2.7); the rest of the response may be
            // stored.
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

/// RFC 9111 §4.2.1: the first of repeated directives counts, and an invalid number means stale.
fn set_first(slot: &mut Option<u32>, argument: Option<&[u8]>) {
    if slot.is_none() {
        *slot = Some(seconds(argument).unwrap_or(0));
    }
}

/// Whether an argument of `no-cache` or `private` is a list of field names; otherwise the directive applies to the
/// whole response.
fn names_fields(argument: &[u8]) -> bool {
    let is_name = |name: &[u8]| {
        name.iter().all(|byte| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(byte))
    };
    members(argument).all(is_name) && members(argument).next().is_some()
}

/// Whether `no-cache` or `private` lists this field, so that it is not stored (RFC 9111 §5.2.2.4, §5.2.2.7).
pub(crate) fn is_named(head: &ResponseHead, bytes: &[u8], targets: &[TargetedField], field: &[u8]) -> bool {
    let targeted = targets.iter().map(|target| target.name.as_bytes());
    let fields = std::iter::once(b"cache-control".as_slice()).chain(targeted);
    let mut directives = fields.flat_map(|name| values(head, bytes, name)).flat_map(Directives::new);
    directives.any(|(name, argument)| {
        let names = name.eq_ignore_ascii_case(b"no-cache") || name.eq_ignore_ascii_case(b"private");
        names && argument.is_some_and(|list| members(list).any(|member| member.eq_ignore_ascii_case(field)))
    })
}

/// RFC 9213 §2.1: parses a Dictionary (RFC 9651). An invalid or empty one, or one with a time that is no Integer,
/// counts as missing.
fn targeted(head: &ResponseHead, bytes: &[u8], name: &[u8]) -> Option<ResponseDirectives> {
    let mut directives =
        ResponseDirectives { source: DirectiveSource::Targeted, ..ResponseDirectives::default() };
    let mut is_empty = true;
    for value in values(head, bytes, name) {
        structured::dictionary(value, |key, parser| {
            let value = parser.value(|parser| {
                parser.bare()?;
                parser.parameters(|_, _| Some(()))
            })?;
            parser.parameters(|_, _| Some(()))?;
            is_empty = false;
            directives.add_targeted(key, value)
        })?;
    }
    (!is_empty).then_some(directives)
}

/// The device token of this cache in Surrogate-Control.
const DEVICE: &[u8] = b"vanward";

/// Edge Architecture Specification (W3C Note, 2001) §2.2: directives for all surrogates, or with `;TOKEN` for some,
/// which then count alone. `content` and `no-store-remote` do not apply to this cache. Without other directives the
/// field counts as missing.
fn surrogate(head: &ResponseHead, bytes: &[u8]) -> Option<ResponseDirectives> {
    let nothing = ResponseDirectives { source: DirectiveSource::Targeted, ..ResponseDirectives::default() };
    let (mut own, mut general) = (nothing, nothing);
    for value in values(head, bytes, SURROGATE_CONTROL.as_bytes()) {
        for (name, argument) in Directives::new(value) {
            let mut parts = argument.unwrap_or(name).split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let first = parts.next().unwrap_or_default();
            let (name, argument) = if argument.is_some() { (name, Some(first)) } else { (first, None) };
            let mut devices = parts.peekable();
            let directives = if devices.peek().is_none() {
                &mut general
            } else if devices.any(|device| device.eq_ignore_ascii_case(DEVICE)) {
                &mut own
            } else {
                continue;
            };
            directives.add_surrogate(name, argument);
        }
    }
    [own, general].into_iter().find(|directives| *directives != nothing)
}

/// X-Accel-Expires of nginx: seconds, `0` for a response that is not stored, or `@` and seconds since 1970. Counts as missing if
/// it is none of these.
fn accel_expires(head: &ResponseHead, bytes: &[u8]) -> Option<ResponseDirectives> {
    let directives =
        ResponseDirectives { source: DirectiveSource::Targeted, ..ResponseDirectives::default() };
    let value = values(head, bytes, ACCEL_EXPIRES.as_bytes()).next()?.trim_ascii();
    if let Some(time) = value.strip_prefix(b"@") {
        let time =
            std::str::from_utf8(time).ok().filter(|time| time.bytes().all(|byte| byte.is_ascii_digit()))?;
        return Some(ResponseDirectives { fresh_until_unix_seconds: Some(time.parse().ok()?), ..directives });
    }
    Some(match delta_seconds(value)? {
        0 => ResponseDirectives { no_store: true, ..directives },
        seconds => ResponseDirectives { max_age_seconds: Some(seconds), ..directives },
    })
}

impl ResponseDirectives {
    /// `max-age=60+30`: fresh for the first number of seconds, and used stale for the second.
    fn add_surrogate(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let plus = argument.and_then(|text| text.iter().position(|&byte| byte == b'+'));
        let Some((plus, text)) = plus.zip(argument).filter(|_| name.eq_ignore_ascii_case(b"max-age")) else {
            return self.add(name, argument);
        };
        self.add(name, Some(&text[..plus]));
        for stale in [&b"stale-while-revalidate"[..], b"stale-if-error"] {
            self.add(stale, Some(&text[plus + 1..]));
        }
    }

    /// `None` if a time is no Integer.
    fn add_targeted(&mut self, key: &str, value: Option<Bare<'_>>) -> Option<()> {
        let is_true = value != Some(Bare::Boolean(false));
        // RFC 9651 §3.2: the last value of a key counts.
        match key {
            "max-age" => self.max_age_seconds = Some(targeted_seconds(value)?),
            "s-maxage" => self.s_maxage_seconds = Some(targeted_seconds(value)?),
            "stale-while-revalidate" => self.stale_while_revalidate_seconds = Some(targeted_seconds(value)?),
            "stale-if-error" => self.stale_if_error_seconds = Some(targeted_seconds(value)?),
            "public" => self.public = is_true,
            "private" | "no-cache" => {
                let named = matches!(value, Some(Bare::String(names)) if names_fields(names.as_bytes()));
                let slot = if key == "private" { &mut self.private } else { &mut self.no_cache };
                *slot = is_true && !named;
                self.names_fields |= named;
            }
            "no-store" => self.no_store = is_true,
            "must-revalidate" => self.must_revalidate = is_true,
            "proxy-revalidate" => self.proxy_revalidate = is_true,
            "must-understand" => self.must_understand = is_true,
            _ => {}
        }
        Some(())
    }
}

/// `None` if the value is no Integer.
fn targeted_seconds(value: Option<Bare<'_>>) -> Option<u32> {
    match value {
        Some(Bare::Integer(seconds)) => Some(seconds.clamp(0, SECONDS_MAX.into()) as u32),
        _ => None,
    }
}

/// RFC 9111 §1.2.2: digits; a number beyond 2^31 counts as 2^31.
fn seconds(argument: Option<&[u8]>) -> Option<u32> {
    delta_seconds(argument?)
}

/// `None` if the text is not a number.
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

    /// The text up to the next comma. Continues behind the comma.
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
        // RFC 9111 §5.2: no white space around the equals sign.
        let is_malformed =
            trimmed.len() < name.len() || argument.first().is_some_and(u8::is_ascii_whitespace);
        Some((trimmed, Some(if is_malformed { b"" } else { argument })))
    }
}

impl<'a> Directives<'a> {
    /// A quoted string behind its first quote (RFC 9110 §5.6.4). An unterminated one ends at the next comma, so that it
    /// hides no later directive.
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
        // Text behind the closing quote makes the argument malformed, and hides no later directive.
        let is_alone = self.up_to_comma(at + 1).trim_ascii().is_empty();
        if is_alone { argument } else { b"" }
    }
}
