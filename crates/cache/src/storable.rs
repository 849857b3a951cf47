//! Decides whether a response may be stored (RFC 9111 §3), and what of it.

use http1::{Method, Name, ResponseHead, Span};

use crate::asked::{Asked, Present};
use crate::directives::{ResponseDirectives, is_named};
use crate::fields::{date_unix_seconds, members, push_date, value, values};
use crate::freshness::{self, Lifetime, Origin};
use crate::labels::names_tags;
use crate::policy::Policy;
use crate::ranges::Part;
use crate::refusal::Refusal;
use crate::stored::{Stored, Times, Traits};

/// Decides whether a response may be stored. If so, appends the head to store to `out`: HTTP/1.1 with its empty line,
/// with a Date, and without hop-by-hop fields, Age, Content-Length and a part's Content-Range.
///
/// The store checks the length of the body, and `Vary::of` checks Vary.
///
/// # Errors
/// Why the response is not stored.
pub fn admit(
    asked: &Asked,
    head: &ResponseHead,
    bytes: &[u8],
    times: Times,
    policy: &Policy,
    out: &mut Vec<u8>,
) -> Result<Stored, Refusal> {
    let directives = ResponseDirectives::of(head, bytes);
    check_request(asked, policy)?;
    let part = part_of(head, bytes, asked)?;
    let status = if part.is_some() { 200 } else { head.start.status };
    check_response(asked, head, bytes, status, &directives, policy)?;
    let lifetime = freshness::judge(head, bytes, status, &directives, times, policy);
    if says_nothing(head, bytes, &directives, &lifetime) {
        return Err(Refusal::NoFreshness);
    }
    let start = out.len();
    write_head(out, head, bytes, status, lifetime.date_unix_seconds, policy);
    let stored = Stored {
        part,
        ..describe(&out[start..], head, bytes, status, &directives, &lifetime, times, policy)
    };
    match check_use(&stored, &directives, &lifetime, policy) {
        Ok(()) => Ok(stored),
        Err(refusal) => {
            out.truncate(start);
            Err(refusal)
        }
    }
}

/// Whether neither time nor validator speaks for keeping a response, as with most that are made anew for each request. That
/// `check_use` would say the same: here nothing has to be written for it first.
fn says_nothing(
    head: &ResponseHead,
    bytes: &[u8],
    directives: &ResponseDirectives,
    lifetime: &Lifetime,
) -> bool {
    let may_be_stale =
        directives.stale_while_revalidate_seconds.is_some() || directives.stale_if_error_seconds.is_some();
    lifetime.origin == Origin::Unknown
        && !directives.no_cache
        && !may_be_stale
        && value(head, bytes, b"etag").is_none()
        && value(head, bytes, b"last-modified").is_none()
}

fn check_request(asked: &Asked, policy: &Policy) -> Result<(), Refusal> {
    if asked.method == Method::Head {
        return Err(Refusal::Head);
    }
    if !asked.may_be_answered() {
        return Err(Refusal::Method);
    }
    // RFC 9111 §5.2.1.5.
    if asked.directives.no_store && !policy.ignore.request_directives {
        return Err(Refusal::RequestNoStore);
    }
    Ok(())
}

/// The part that a 206 brings (RFC 9111 §3.3).
fn part_of(head: &ResponseHead, bytes: &[u8], asked: &Asked) -> Result<Option<Part>, Refusal> {
    match head.start.status {
        206 => {
            let part = Part::of_response(head, bytes).filter(|_| asked.has(Present::Range));
            part.map(Some).ok_or(Refusal::Status)
        }
        // They say something about a condition or range of their request alone.
        ..200 | 304 | 412 | 416 => Err(Refusal::Status),
        _ => Ok(None),
    }
}

pub(crate) fn check_response(
    asked: &Asked,
    head: &ResponseHead,
    bytes: &[u8],
    status: u16,
    directives: &ResponseDirectives,
    policy: &Policy,
) -> Result<(), Refusal> {
    if policy.status_ttl_ms(status) == Some(0) {
        return Err(Refusal::StatusTtlZero);
    }
    let obeys = !policy.force && !policy.ignore.response_directives;
    let takes_cookies = policy.ignore.set_cookie
        || policy.force
        || is_for_all(directives)
        || (obeys && directives.names_fields && is_named(head, bytes, b"set-cookie"));
    // RFC 9111 §7.3 leaves it open; what sets a cookie is mostly for one client, unless it says otherwise.
    if !takes_cookies && value(head, bytes, b"set-cookie").is_some() {
        return Err(Refusal::SetCookie);
    }
    if policy.force {
        return Ok(());
    }
    if obeys {
        // RFC 9111 §5.2.2.3: with must-understand, no-store is for those who do not know the status.
        if directives.must_understand && !is_understood(status) {
            return Err(Refusal::NotUnderstood);
        }
        if directives.no_store && !directives.must_understand {
            return Err(Refusal::NoStore);
        }
        if directives.private {
            return Err(Refusal::Private);
        }
    }
    // RFC 9111 §3.5: what is left aside cannot say that others may see it.
    let is_shared =
        obeys && (directives.public || directives.s_maxage_seconds.is_some() || directives.must_revalidate);
    if asked.has(Present::Authorization) && !is_shared {
        return Err(Refusal::Authorization);
    }
    Ok(())
}

/// Whether a response says that it is for every client.
fn is_for_all(directives: &ResponseDirectives) -> bool {
    directives.public || directives.s_maxage_seconds.is_some()
}

/// The statuses whose demands on a cache (RFC 9110 §15) are obeyed here.
fn is_understood(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300..=303 | 307 | 308 | 400..=411 | 413..=415 | 417 | 421 | 422 | 426 | 500..=505)
}

/// Rejects responses that could never answer a request, and are not worth their memory.
pub(crate) fn check_use(
    stored: &Stored,
    directives: &ResponseDirectives,
    lifetime: &Lifetime,
    policy: &Policy,
) -> Result<(), Refusal> {
    // RFC 9111 §3: without a word about it only some statuses are stored at all.
    let is_storable = freshness::is_heuristically_cacheable(stored.status) || directives.public;
    if lifetime.origin == Origin::Unknown && !is_storable {
        return Err(Refusal::NoFreshness);
    }
    if stored.has_validator() {
        return Ok(());
    }
    if stored.traits.has(Traits::VALIDATE_ALWAYS) {
        return Err(Refusal::NoCache);
    }
    let may_be_stale =
        stored.stale_while_revalidate_seconds > 0 || directives.stale_if_error_seconds > Some(0);
    let is_stale = lifetime.fresh_until_ms <= stored.received_ms;
    match lifetime.origin {
        _ if !is_stale || (may_be_stale && !stored.traits.has(Traits::NEVER_STALE)) => Ok(()),
        Origin::Unknown => Err(Refusal::NoFreshness),
        // A grace is for what was fresh once, or is meant to be used stale by the client.
        Origin::Explicit if policy.grace_ms > 0 && !stored.traits.has(Traits::NEVER_STALE) => Ok(()),
        Origin::Route | Origin::Explicit | Origin::Heuristic => Err(Refusal::Stale),
    }
}

/// What decisions need to know of a response; `stored_head` is what of `head` is kept.
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
    times: Times,
    policy: &Policy,
) -> Stored {
    let said = |seconds: Option<u32>| seconds.filter(|_| !policy.ignore.response_directives);
    let own_seconds = u32::try_from(policy.stale_while_revalidate_ms / 1000).unwrap_or(u32::MAX);
    let is_shared_only = directives.s_maxage_seconds.is_some();
    // RFC 9111 §5.2.2.10: s-maxage forbids stale use. What the origin itself says of stale use beside it is honoured all the
    // same, as it can mean nothing else; what this cache or a client would add to it is not.
    // And what was never known to be fresh, an error above all, is not stretched either.
    let is_unknown = lifetime.origin == Origin::Unknown;
    let own_seconds = if is_shared_only || is_unknown { 0 } else { own_seconds };
    let obeys = !policy.ignore.response_directives && !policy.force;
    let modified_seconds = value(head, bytes, b"last-modified").and_then(date_unix_seconds);
    Stored {
        status,
        traits: Traits::default()
            .with(Traits::VALIDATE_ALWAYS, obeys && directives.no_cache)
            .with(Traits::NEVER_STALE, obeys && (directives.must_revalidate || directives.proxy_revalidate))
            .with(Traits::STALE_ONLY_IF_SAID, obeys && is_shared_only)
            .with(Traits::HEURISTIC, lifetime.origin == Origin::Heuristic),
        stale_while_revalidate_seconds: said(directives.stale_while_revalidate_seconds)
            .unwrap_or(own_seconds),
        stale_if_error_seconds: said(directives.stale_if_error_seconds).unwrap_or(0),
        etag: find(stored_head, b"etag"),
        last_modified: modified_seconds.map_or(Span::default(), |_| find(stored_head, b"last-modified")),
        last_modified_unix_seconds: modified_seconds.unwrap_or(0),
        date_unix_seconds: lifetime.date_unix_seconds,
        received_ms: times.received_ms,
        made_ms: lifetime.made_ms,
        fresh_until_ms: lifetime.fresh_until_ms,
        part: None,
    }
}

/// Where the value of a field is in a head of our own writing.
fn find(head: &[u8], name: &[u8]) -> Span {
    let mut at = 0;
    for line in head.split_inclusive(|&byte| byte == b'\n') {
        if line.len() > name.len()
            && line[..name.len()].eq_ignore_ascii_case(name)
            && line[name.len()] == b':'
        {
            let start = at + name.len() + 2;
            return Span { start: start as u32, end: (at + line.len() - 2) as u32 };
        }
        at += line.len();
    }
    Span::default()
}

/// Appends what is kept of a head (RFC 9111 §3.1).
fn write_head(
    out: &mut Vec<u8>,
    head: &ResponseHead,
    bytes: &[u8],
    status: u16,
    date_unix_seconds: u64,
    policy: &Policy,
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    if status == head.start.status {
        crate::fields::push_number(out, status.into());
        out.push(b' ');
        out.extend_from_slice(head.start.reason.of(bytes));
    } else {
        out.extend_from_slice(b"200 OK");
    }
    out.extend_from_slice(b"\r\n");
    let keeps = Keeping::of(head, bytes, policy);
    for field in &head.fields {
        let name = field.name.of(bytes);
        if keeps.has(name, field.known) {
            push_field(out, name, field.value.of(bytes));
        }
    }
    if head.value(bytes, Name::Date).and_then(self::date_unix_seconds).is_none() {
        // RFC 9110 §6.6.1: who stores a response without a Date gives it one.
        out.extend_from_slice(b"Date: ");
        push_date(out, date_unix_seconds);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the fields that `no-cache` or `private` names: they are not stored, and go only to the client that made the
/// request (RFC 9111 §5.2.2.4, §5.2.2.7).
pub fn write_named_fields(out: &mut Vec<u8>, head: &ResponseHead, bytes: &[u8], policy: &Policy) {
    let keeps = Keeping::of(head, bytes, policy);
    if !keeps.names_fields {
        return;
    }
    for field in &head.fields {
        let name = field.name.of(bytes);
        if keeps.is_of_message(name, field.known) && is_named(head, bytes, name) {
            push_field(out, name, field.value.of(bytes));
        }
    }
}

/// Appends the cookies of a 304 unless they are stored or ignored: only the client whose request caused the validation
/// gets them (RFC 9111 §4.3.4, §7.3).
pub fn write_cookies(out: &mut Vec<u8>, head: &ResponseHead, bytes: &[u8], policy: &Policy) {
    let keeps = Keeping::of(head, bytes, policy);
    // Those that are named are written as such.
    let is_named = keeps.names_fields && is_named(head, bytes, b"set-cookie");
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

/// Which fields of a response are stored.
pub(crate) struct Keeping<'a> {
    head: &'a ResponseHead,
    bytes: &'a [u8],
    names_fields: bool,
    keeps_cookies: bool,
    keeps_tags: bool,
    has_valid_date: bool,
}

impl<'a> Keeping<'a> {
    pub(crate) fn of(head: &'a ResponseHead, bytes: &'a [u8], policy: &Policy) -> Self {
        let directives = ResponseDirectives::of(head, bytes);
        Self {
            head,
            bytes,
            names_fields: directives.names_fields && !policy.ignore.response_directives && !policy.force,
            keeps_cookies: !policy.ignore.set_cookie && (policy.force || is_for_all(&directives)),
            keeps_tags: policy.sends_tags,
            has_valid_date: head.value(bytes, Name::Date).and_then(date_unix_seconds).is_some(),
        }
    }

    pub(crate) fn has(&self, name: &[u8], known: Name) -> bool {
        self.is_of_message(name, known)
            && (self.keeps_cookies || !name.eq_ignore_ascii_case(b"set-cookie"))
            && (self.keeps_tags || !names_tags(name))
            // RFC 9111 §5.2.2.4, §5.2.2.7.
            && !(self.names_fields && is_named(self.head, self.bytes, name))
    }

    /// Whether a field is one of the response, and neither of a hop nor of this message alone.
    fn is_of_message(&self, name: &[u8], known: Name) -> bool {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        match known {
            // RFC 9110 §7.6.1, RFC 9111 §3.1: what belongs to a hop. The length is said anew, with each body that is sent.
            Name::Connection
            | Name::KeepAlive
            | Name::ProxyConnection
            | Name::ProxyAuthenticate
            | Name::ProxyAuthorization
            | Name::Te
            | Name::Trailer
            | Name::TransferEncoding
            | Name::Upgrade
            | Name::Http2Settings
            | Name::ContentLength => return false,
            Name::Date if !self.has_valid_date => return false,
            _ => {}
        }
        // RFC 9110 §14.4: with another status than 206 a Content-Range says nothing about the body.
        let is_of_part = self.head.start.status == 206 && is(b"content-range");
        if is(b"age") || is_of_part || is(b"proxy-authentication-info") {
            return false;
        }
        !self.head.values(self.bytes, Name::Connection).flat_map(members).any(is)
    }
}

/// Whether a response has a field with this name.
pub(crate) fn has_field(head: &ResponseHead, bytes: &[u8], name: &[u8]) -> bool {
    values(head, bytes, name).next().is_some()
}
