//! Decides whether a response may be stored (RFC 9111 §3), and which of its fields.

use std::borrow::Cow;

use http1::{ByteSpan, Method, Name, ResponseHead};

use crate::asked::{CacheRequestFields, Present};
use crate::directives::{ResponseDirectives, is_named};
use crate::fields::{date_unix_seconds, members, push_date, value, values};
use crate::freshness::{self, Lifetime, LifetimeSource};
use crate::labels::{first_tags, names_tags};
use crate::policy::CachePolicy;
use crate::ranges::StoredPart;
use crate::refusal::NotStored;
use crate::stored::{Stored, StoredTimes, Traits};

/// The head of a stored response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeptHead {
    /// The head as clients get it: HTTP/1.1 with its empty line.
    pub shown: Vec<u8>,
    /// Lines with the fields that are only for this cache: tags, and targeted fields that are not sent.
    pub hidden: Vec<u8>,
}

/// The limit on hidden lines; a field that does not fit is dropped.
// The stored response keeps the length in two bytes that are free.
const HIDDEN_BYTES_MAX: usize = u16::MAX as usize;

/// The length up to which tags are kept for display; all of them are labels.
const TAGS_BYTES_MAX: usize = 1024;

impl KeptHead {
    pub(crate) fn push(&mut self, name: &[u8], value: &[u8], policy: &CachePolicy) {
        if !policy.hides(name) {
            push_field(&mut self.shown, name, value);
        } else if names_tags(name) {
            let room = TAGS_BYTES_MAX.saturating_sub(self.hidden.len());
            let tags = first_tags(name, value, room);
            if !tags.is_empty() {
                push_field(&mut self.hidden, name, tags);
            }
        } else if self.hidden.len() + name.len() + value.len() + b": \r\n".len() <= HIDDEN_BYTES_MAX {
            push_field(&mut self.hidden, name, value);
        }
    }

    /// All fields in one head.
    pub(crate) fn whole<'a>(shown: &'a [u8], hidden: &[u8]) -> Cow<'a, [u8]> {
        match shown.strip_suffix(b"\r\n") {
            Some(lines) if !hidden.is_empty() => Cow::Owned([lines, hidden, b"\r\n"].concat()),
            _ => Cow::Borrowed(shown),
        }
    }
}

/// Decides whether a response may be stored. If so, writes the head to store to `out`, with a Date, and without
/// hop-by-hop fields, Age, Content-Length and a part's Content-Range.
///
/// The store checks the length of the body, and `Vary::of` checks Vary.
///
/// # Errors
/// Why the response is not stored.
pub fn admit(
    asked: &CacheRequestFields,
    head: &ResponseHead,
    bytes: &[u8],
    times: StoredTimes,
    policy: &CachePolicy,
    out: &mut KeptHead,
) -> Result<Stored, NotStored> {
    let directives = ResponseDirectives::from_head(head, bytes, &policy.targets);
    check_request(asked, policy)?;
    let part = part_of(head, bytes, asked)?;
    let status = if part.is_some() { 200 } else { head.start.status };
    check_response(asked, head, bytes, status, &directives, times.ttl_ms, policy)?;
    let lifetime = freshness::judge(head, bytes, status, &directives, times, policy);
    // In front of pages made for each request, composing heads in vain doubled the instructions of a request.
    if says_nothing(head, bytes, &directives, &lifetime) {
        return Err(NotStored::NoFreshness);
    }
    write_head(out, head, bytes, status, lifetime.date_unix_seconds, policy);
    let stored =
        Stored { part, ..describe(&out.shown, head, bytes, status, &directives, &lifetime, times, policy) };
    if let Err(refusal) = check_use(&stored, &directives, &lifetime, policy) {
        *out = KeptHead::default();
        return Err(refusal);
    }
    Ok(stored)
}

/// Whether a response has neither lifetime nor validator, like most responses that are generated per request. A
/// shortcut with the same result as `check_use`, before anything is written.
fn says_nothing(
    head: &ResponseHead,
    bytes: &[u8],
    directives: &ResponseDirectives,
    lifetime: &Lifetime,
) -> bool {
    let may_be_stale =
        directives.stale_while_revalidate_seconds.is_some() || directives.stale_if_error_seconds.is_some();
    lifetime.origin == LifetimeSource::Unknown
        && !directives.no_cache
        && !may_be_stale
        && value(head, bytes, b"etag").is_none()
        && value(head, bytes, b"last-modified").is_none()
}

fn check_request(asked: &CacheRequestFields, policy: &CachePolicy) -> Result<(), NotStored> {
    if asked.method == Method::Head {
        return Err(NotStored::Head);
    }
    if !asked.may_be_answered() {
        return Err(NotStored::Method);
    }
    // RFC 9111 §5.2.1.5.
    if asked.directives.no_store && !policy.ignore.request_directives {
        return Err(NotStored::RequestNoStore);
    }
    Ok(())
}

/// The part in a 206 (RFC 9111 §3.3).
fn part_of(
    head: &ResponseHead,
    bytes: &[u8],
    asked: &CacheRequestFields,
) -> Result<Option<StoredPart>, NotStored> {
    match head.start.status {
        206 => {
            let part = StoredPart::of_response(head, bytes).filter(|_| asked.has(Present::Range));
            part.map(Some).ok_or(NotStored::Status)
        }
        // These statuses concern only a condition or range of their request.
        ..200 | 304 | 412 | 416 => Err(NotStored::Status),
        _ => Ok(None),
    }
}

pub(crate) fn check_response(
    asked: &CacheRequestFields,
    head: &ResponseHead,
    bytes: &[u8],
    status: u16,
    directives: &ResponseDirectives,
    ttl_ms: Option<u64>,
    policy: &CachePolicy,
) -> Result<(), NotStored> {
    if ttl_ms.or_else(|| policy.status_ttl_ms(status)) == Some(0) {
        return Err(NotStored::StatusTtlZero);
    }
    let obeys = !policy.force && !policy.ignore.response_directives;
    let takes_cookies = policy.ignore.set_cookie
        || policy.force
        || is_for_all(directives)
        || (obeys && directives.names_fields && is_named(head, bytes, &policy.targets, b"set-cookie"));
    // RFC 9111 §7.3 leaves it open. A response that sets a cookie is usually for one client, unless it says otherwise.
    // The session of one client would be given to all others.
    if !takes_cookies && value(head, bytes, b"set-cookie").is_some() {
        return Err(NotStored::SetCookie);
    }
    if policy.force {
        return Ok(());
    }
    if obeys {
        // RFC 9111 §5.2.2.3: beside must-understand, no-store applies only to caches that do not know the status.
        if directives.must_understand && !is_understood(status) {
            return Err(NotStored::NotUnderstood);
        }
        if directives.no_store && !directives.must_understand {
            return Err(NotStored::NoStore);
        }
        if directives.private {
            return Err(NotStored::Private);
        }
    }
    // RFC 9111 §3.5: ignored directives cannot allow sharing.
    // Only these three permit to share a response to a request with Authorization.
    let is_shared =
        obeys && (directives.public || directives.s_maxage_seconds.is_some() || directives.must_revalidate);
    if asked.has(Present::Authorization) && !is_shared {
        return Err(NotStored::Authorization);
    }
    Ok(())
}

fn is_for_all(directives: &ResponseDirectives) -> bool {
    directives.public || directives.s_maxage_seconds.is_some()
}

/// The statuses whose requirements for caches (RFC 9110 §15) this cache obeys.
fn is_understood(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300..=303 | 307 | 308 | 400..=411 | 413..=415 | 417 | 421 | 422 | 426 | 500..=505)
}

/// Rejects responses that could never answer a request, and are not worth their memory.
pub(crate) fn check_use(
    stored: &Stored,
    directives: &ResponseDirectives,
    lifetime: &Lifetime,
    policy: &CachePolicy,
) -> Result<(), NotStored> {
    // RFC 9111 §3: without explicit freshness, only some statuses are stored at all.
    let is_storable = freshness::is_heuristically_cacheable(stored.status) || directives.public;
    if lifetime.origin == LifetimeSource::Unknown && !is_storable {
        return Err(NotStored::NoFreshness);
    }
    if stored.has_validator() {
        return Ok(());
    }
    if stored.traits.has(Traits::VALIDATE_ALWAYS) {
        return Err(NotStored::NoCache);
    }
    let may_be_stale =
        stored.stale_while_revalidate_seconds > 0 || directives.stale_if_error_seconds > Some(0);
    let is_stale = lifetime.fresh_until_ms <= stored.received_ms;
    match lifetime.origin {
        _ if !is_stale || (may_be_stale && !stored.traits.has(Traits::NEVER_STALE)) => Ok(()),
        LifetimeSource::Unknown => Err(NotStored::NoFreshness),
        // A grace applies only to responses that were fresh once, or that clients may use stale.
        LifetimeSource::Explicit if policy.grace_ms > 0 && !stored.traits.has(Traits::NEVER_STALE) => Ok(()),
        LifetimeSource::Route | LifetimeSource::Explicit | LifetimeSource::Heuristic => Err(NotStored::Stale),
    }
}

/// Collects the metadata for decisions. `stored_head` is the part of `head` that is kept.
#[allow(
    clippy::too_many_arguments,
    reason = "one caller for each of the two ways in which heads come to be stored"
)]
pub(crate) fn describe(
    stored_head: &[u8],
    head: &ResponseHead,
    bytes: &[u8],
    status: u16,
    directives: &ResponseDirectives,
    lifetime: &Lifetime,
    times: StoredTimes,
    policy: &CachePolicy,
) -> Stored {
    let said = |seconds: Option<u32>| seconds.filter(|_| !policy.ignore.response_directives);
    let own_seconds = u32::try_from(policy.stale_while_revalidate_ms / 1000).unwrap_or(u32::MAX);
    let is_shared_only = directives.s_maxage_seconds.is_some();
    // RFC 9111 §5.2.2.10: s-maxage forbids stale use. The origin's own stale directives beside it still apply, because
    // they would be meaningless otherwise; stale use by options or clients is not added. Responses without a known
    // freshness, such as errors, are not extended either.
    let is_unknown = lifetime.origin == LifetimeSource::Unknown;
    let own_seconds = if is_shared_only || is_unknown { 0 } else { own_seconds };
    let obeys = !policy.ignore.response_directives && !policy.force;
    let modified_seconds = value(head, bytes, b"last-modified").and_then(date_unix_seconds);
    Stored {
        status,
        traits: Traits::default()
            .with(Traits::VALIDATE_ALWAYS, obeys && directives.no_cache)
            .with(Traits::NEVER_STALE, obeys && (directives.must_revalidate || directives.proxy_revalidate))
            .with(Traits::STALE_ONLY_IF_SAID, obeys && is_shared_only)
            .with(Traits::HEURISTIC, lifetime.origin == LifetimeSource::Heuristic),
        stale_while_revalidate_seconds: said(directives.stale_while_revalidate_seconds)
            .unwrap_or(own_seconds),
        stale_if_error_seconds: said(directives.stale_if_error_seconds).unwrap_or(0),
        etag: find(stored_head, b"etag"),
        last_modified: modified_seconds.map_or(ByteSpan::default(), |_| find(stored_head, b"last-modified")),
        last_modified_unix_seconds: modified_seconds.unwrap_or(0),
        date_unix_seconds: lifetime.date_unix_seconds,
        received_ms: times.received_ms,
        made_ms: lifetime.made_ms,
        fresh_until_ms: lifetime.fresh_until_ms,
        part: None,
    }
}

/// The position of a field's value in a head that the proxy wrote.
fn find(head: &[u8], name: &[u8]) -> ByteSpan {
    let mut at = 0;
    for line in head.split_inclusive(|&byte| byte == b'\n') {
        if line.len() > name.len()
            && line[..name.len()].eq_ignore_ascii_case(name)
            && line[name.len()] == b':'
        {
            // The proxy wrote the line itself, with exactly one space.
            let start = at + name.len() + 2;
            return ByteSpan { start: start as u32, end: (at + line.len() - 2) as u32 };
        }
        at += line.len();
    }
    ByteSpan::default()
}

/// Writes the stored part of a head (RFC 9111 §3.1).
fn write_head(
    kept: &mut KeptHead,
    head: &ResponseHead,
    bytes: &[u8],
    status: u16,
    date_unix_seconds: u64,
    policy: &CachePolicy,
) {
    let out = &mut kept.shown;
    out.extend_from_slice(b"HTTP/1.1 ");
    if status == head.start.status {
        crate::fields::push_number(out, status.into());
        out.push(b' ');
        out.extend_from_slice(head.start.reason.for_bytes(bytes));
    } else {
        // A part is stored under the status of the whole, so that a joined response can answer any request.
        out.extend_from_slice(b"200 OK");
    }
    out.extend_from_slice(b"\r\n");
    let keeps = Keeping::new(head, bytes, policy);
    for field in &head.fields {
        let name = field.name.for_bytes(bytes);
        if keeps.has(name, field.known) {
            kept.push(name, field.value.for_bytes(bytes), policy);
        }
    }
    let out = &mut kept.shown;
    if head.value(bytes, Name::Date).and_then(self::date_unix_seconds).is_none() {
        // RFC 9110 §6.6.1: a cache adds Date to a response without one.
        out.extend_from_slice(b"Date: ");
        push_date(out, date_unix_seconds);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the fields that `no-cache` or `private` names: they are not stored, and go only to the client that made the
/// request (RFC 9111 §5.2.2.4, §5.2.2.7).
pub fn write_named_fields(out: &mut Vec<u8>, head: &ResponseHead, bytes: &[u8], policy: &CachePolicy) {
    let keeps = Keeping::new(head, bytes, policy);
    if !keeps.names_fields {
        return;
    }
    for field in &head.fields {
        let name = field.name.for_bytes(bytes);
        if keeps.is_of_message(name, field.known) && is_named(head, bytes, &policy.targets, name) {
            push_field(out, name, field.value.for_bytes(bytes));
        }
    }
}

/// Appends the cookies of a 304 unless they are stored or ignored: only the client whose request caused the validation
/// gets them (RFC 9111 §4.3.4, §7.3).
pub fn write_cookies(out: &mut Vec<u8>, head: &ResponseHead, bytes: &[u8], policy: &CachePolicy) {
    let keeps = Keeping::new(head, bytes, policy);
    // `write_named_fields` writes cookies that a directive names.
    let is_named = keeps.names_fields && is_named(head, bytes, &policy.targets, b"set-cookie");
    if keeps.keeps_cookies || policy.ignore.set_cookie || is_named {
        return;
    }
    for cookie in values(head, bytes, b"set-cookie") {
        push_field(out, b"Set-Cookie", cookie);
    }
}

pub(crate) fn push_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Decides which fields of a response are stored.
pub(crate) struct Keeping<'a> {
    head: &'a ResponseHead,
    bytes: &'a [u8],
    policy: &'a CachePolicy,
    names_fields: bool,
    keeps_cookies: bool,
    has_valid_date: bool,
}

impl<'a> Keeping<'a> {
    pub(crate) fn new(head: &'a ResponseHead, bytes: &'a [u8], policy: &'a CachePolicy) -> Self {
        let directives = ResponseDirectives::from_head(head, bytes, &policy.targets);
        Self {
            head,
            bytes,
            policy,
            names_fields: directives.names_fields && !policy.ignore.response_directives && !policy.force,
            keeps_cookies: !policy.ignore.set_cookie && (policy.force || is_for_all(&directives)),
            has_valid_date: head.value(bytes, Name::Date).and_then(date_unix_seconds).is_some(),
        }
    }

    pub(crate) fn has(&self, name: &[u8], known: Name) -> bool {
        self.is_of_message(name, known)
            && (self.keeps_cookies || !name.eq_ignore_ascii_case(b"set-cookie"))
            // RFC 9111 §5.2.2.4, §5.2.2.7.
            && !(self.names_fields && is_named(self.head, self.bytes, &self.policy.targets, name))
    }

    /// Whether a field belongs to the response, not to a hop or only to this message.
    fn is_of_message(&self, name: &[u8], known: Name) -> bool {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        match known {
            // RFC 9110 §7.6.1, RFC 9111 §3.1: hop-by-hop fields. The length is written with each body that is sent.
            known if known.is_hop_by_hop() => return false,
            // RFC 7838 §3: the ports in Alt-Svc are the server's.
            Name::Trailer | Name::ContentLength | Name::AltSvc => return false,
            Name::Date if !self.has_valid_date => return false,
            _ => {}
        }
        // RFC 9110 §14.4: with another status than 206, Content-Range has no meaning.
        let is_of_part = self.head.start.status == 206 && is(b"content-range");
        if is(b"age") || is_of_part {
            return false;
        }
        !self.head.values(self.bytes, Name::Connection).flat_map(members).any(is)
    }
}

pub(crate) fn has_field(head: &ResponseHead, bytes: &[u8], name: &[u8]) -> bool {
    values(head, bytes, name).next().is_some()
}
