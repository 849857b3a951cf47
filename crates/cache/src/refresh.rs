//! Validation requests (RFC 9111 §4.3.1), and updates of stored responses by a 304 (§4.3.4).

use http1::{HeadLimits, Method, Name, Parsed, ResponseHead};

use crate::asked::CacheRequestFields;
use crate::conditional::{TagComparison, matches};
use crate::directives::ResponseDirectives;
use crate::fields::{date_unix_seconds, push_date, push_number, value};
use crate::freshness::{self, Lifetime, LifetimeSource};
use crate::policy::CachePolicy;
use crate::ranges::{StoredPart, may_combine};
use crate::refusal::NotStored;
use crate::storable::{Keeping, KeptHead, check_response, check_use, describe, has_field, push_field};
use crate::stored::{Stored, StoredTimes};

/// Appends the precondition fields of a validation request (RFC 9111 §4.3.1), each with CRLF. The client's own
/// preconditions and Range are left out of the request.
pub fn write_conditions(out: &mut Vec<u8>, stored: &Stored, stored_head: &[u8]) {
    if let Some(etag) = stored.etag(stored_head) {
        push_field(out, b"If-None-Match", etag);
    }
    if let Some(date) = stored.last_modified(stored_head) {
        push_field(out, b"If-Modified-Since", date);
    }
}

/// Appends fields that request the missing end of a stored part, or the whole if the representation has changed (RFC
/// 9111 §3.4). Appends nothing if more than the end is missing, or without a strong validator.
pub fn write_completion(out: &mut Vec<u8>, stored: &Stored, stored_head: &[u8]) {
    let missing = stored.part.and_then(|part| part.missing()).filter(|missing| missing.start > 0);
    let Some((missing, validator)) = missing.zip(stored.strong_validator(stored_head)) else { return };
    out.extend_from_slice(b"Range: bytes=");
    push_number(out, missing.start);
    out.extend_from_slice(b"-\r\n");
    push_field(out, b"If-Range", validator);
}

/// Whether a response contains everything that a stored part lacks, of an unchanged representation (RFC 9110
/// §15.3.7.3).
pub fn completes(head: &ResponseHead, bytes: &[u8], stored: &Stored, stored_head: &[u8]) -> bool {
    let missing = stored.part.and_then(|part| part.missing());
    let brought = StoredPart::of_response(head, bytes);
    missing.zip(brought).is_some_and(|(missing, brought)| {
        missing == (brought.start..brought.end)
            && brought.whole_bytes == stored.part.and_then(|part| part.whole_bytes)
            && may_combine(stored, stored_head, head, bytes)
    })
}

/// Whether a client's field is left out of a request to which `write_conditions` adds fields.
pub fn is_replaced_condition(name: &[u8]) -> bool {
    const REPLACED: [&[u8]; 6] =
        [b"if-none-match", b"if-modified-since", b"if-match", b"if-unmodified-since", b"if-range", b"range"];
    REPLACED.iter().any(|replaced| name.eq_ignore_ascii_case(replaced))
}

/// Whether a 304 applies to the stored response (RFC 9111 §4.3.4). If not, nothing is updated, and the origin is asked
/// again without conditions.
pub fn is_about(head: &ResponseHead, bytes: &[u8], stored: &Stored, stored_head: &[u8]) -> bool {
    if let Some(theirs) = value(head, bytes, b"etag") {
        // A validator that the stored response lacks may be new in this 304, because the request had only one
        // validator.
        return match stored.etag(stored_head) {
            // RFC 9111 §4.3.4: a weak validator in the 304 selects by weak comparison.
            Some(ours) if theirs.starts_with(b"W/") => matches(ours, theirs, TagComparison::Weak),
            Some(ours) => {
                matches(ours, theirs, TagComparison::Strong) || ours.strip_prefix(b"W/") == Some(theirs)
            }
            None => stored.last_modified(stored_head).is_some(),
        };
    }
    match (value(head, bytes, b"last-modified"), stored.last_modified(stored_head)) {
        (Some(theirs), Some(ours)) => theirs == ours,
        _ => true,
    }
}

/// Whether a 200 to HEAD applies to the stored response, so that it updates it as a 304 does (RFC 9111 §4.3.5).
/// `body_bytes` is the length of the stored body. If not, the stored response is stale.
pub fn is_head_of(
    head: &ResponseHead,
    bytes: &[u8],
    stored: &Stored,
    stored_head: &[u8],
    body_bytes: u64,
) -> bool {
    let agrees =
        |name, ours: Option<&[u8]>| value(head, bytes, name).is_none_or(|theirs| ours == Some(theirs));
    let length = value(head, bytes, b"content-length");
    // RFC 9110 §9.3.2: a HEAD may lack fields that are costly to compute. That contradicts nothing.
    agrees(b"etag", stored.etag(stored_head))
        && agrees(b"last-modified", stored.last_modified(stored_head))
        && length.is_none_or(|length| str::from_utf8(length).is_ok_and(|text| text.parse() == Ok(body_bytes)))
}

/// Whether a response shows that the stored one is obsolete, so that it is removed (RFC 9111 §4.3.3). Any response to a
/// request that the stored one could not answer does. Exceptions are 304, server errors, and responses about the
/// request's own range or precondition. `known` is the stored response with its head.
pub fn outdates(
    asked: &CacheRequestFields,
    head: &ResponseHead,
    bytes: &[u8],
    known: Option<(&Stored, &[u8])>,
    policy: &CachePolicy,
) -> bool {
    // RFC 9111 §5.2.1.5: such a request bypasses the stored response, and leaves it unchanged.
    if asked.directives.no_store && !policy.ignore.request_directives {
        return false;
    }
    let is_refused = || {
        let directives = ResponseDirectives::from_head(head, bytes, &policy.targets);
        check_response(asked, head, bytes, 200, &directives, None, policy).is_err()
    };
    match head.start.status {
        // RFC 9111 §4.3.3: a server error may be handled as if the server had not answered.
        ..200 | 304 | 500.. => false,
        206 if asked.has_range() => {
            known.is_some_and(|(stored, stored_head)| !is_about(head, bytes, stored, stored_head))
                || is_refused()
        }
        // Only a precondition of the request can lead to 412, so otherwise the resource itself has changed.
        412 => !asked.is_conditional(),
        416 => !asked.has_range(),
        // RFC 9111 §4.3.5: its fields decide whether it is about the stored response.
        200 if asked.method == Method::Head => is_refused(),
        // A server that does not support HEAD has said nothing about the resource.
        405 if asked.method == Method::Head => false,
        _ => true,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refreshed {
    /// The updated response stays stored.
    Stored(Stored),
    /// The updated response is sent for this request, but must not be stored any longer.
    Unstored(Stored, NotStored),
}

/// Updates a stored response, and writes its new head to `out`: fields of the 304 replace stored fields with equal
/// names (RFC 9111 §3.2).
///
/// # Errors
/// The new head exceeds `limits`, or the stored one is damaged.
#[allow(clippy::too_many_arguments, reason = "two messages and what is known of each")]
pub fn refresh(
    asked: &CacheRequestFields,
    stored: &Stored,
    (shown, hidden): (&[u8], &[u8]),
    head: &ResponseHead,
    bytes: &[u8],
    times: StoredTimes,
    policy: &CachePolicy,
    limits: &HeadLimits,
    out: &mut KeptHead,
) -> Result<Refreshed, NotStored> {
    let stored_head = KeptHead::whole(shown, hidden);
    // The stored head is text, so that it takes little memory; a validation is rare enough to parse it again.
    let old = parse(&stored_head, limits)?;
    merge(out, (&old, &stored_head), (head, bytes), times, policy);
    let merged_bytes = &*KeptHead::whole(&out.shown, &out.hidden);
    let merged = parse(merged_bytes, limits)?;
    let directives = ResponseDirectives::from_head(&merged, merged_bytes, &policy.targets);
    let judge = |head, bytes| freshness::judge(head, bytes, stored.status, &directives, times, policy);
    let lifetime = lifetime(judge(&merged, merged_bytes), judge(head, bytes), times.received_ms);
    let fresh =
        describe(&out.shown, &merged, merged_bytes, stored.status, &directives, &lifetime, times, policy);
    let fresh = Stored { part: stored.part, ..fresh };
    let is_kept =
        check_response(asked, &merged, merged_bytes, stored.status, &directives, times.ttl_ms, policy)
            .and_then(|()| check_use(&fresh, &directives, &lifetime, policy));
    Ok(match is_kept {
        Ok(()) => Refreshed::Stored(fresh),
        Err(refusal) => Refreshed::Unstored(fresh, refusal),
    })
}

fn parse(bytes: &[u8], limits: &HeadLimits) -> Result<ResponseHead, NotStored> {
    let mut head = ResponseHead::default();
    match head.parse(bytes, limits) {
        Ok(Parsed::Complete) => Ok(head),
        Ok(Parsed::Partial) | Err(_) => Err(NotStored::Malformed),
    }
}

/// RFC 9111 §3.2: keeps fields that describe the stored body, and Vary, by which the response was found.
fn is_kept_as_stored(name: &[u8]) -> bool {
    const KEPT: [&[u8]; 3] = [b"content-encoding", b"content-range", b"vary"];
    KEPT.iter().any(|kept| name.eq_ignore_ascii_case(kept))
}

fn merge(
    kept: &mut KeptHead,
    (old, old_bytes): (&ResponseHead, &[u8]),
    (new, new_bytes): (&ResponseHead, &[u8]),
    times: StoredTimes,
    policy: &CachePolicy,
) {
    let first = old.fields.first().map_or(old.len - 2, |field| field.name.start as usize);
    kept.shown.extend_from_slice(&old_bytes[..first]);
    let keeping = Keeping::new(new, new_bytes, policy);
    // RFC 9110 §6.6.1: without a valid Date, the time of receipt replaces it. The Date of the earlier response no
    // longer counts: Expires is relative to now (RFC 9111 §4.2.1).
    let has_date = new.value(new_bytes, Name::Date).and_then(date_unix_seconds).is_some();
    let is_taken = |name: &[u8], known| keeping.has(name, known) && !is_kept_as_stored(name);
    for field in &old.fields {
        let name = field.name.for_bytes(old_bytes);
        // Fields that the 304 lists in no-cache or private are removed; fields that it contains replace stored ones.
        let is_replaced = has_field(new, new_bytes, name) && is_taken(name, field.known);
        let is_forbidden = !keeping.has(name, field.known) && field.known != Name::Date;
        let is_outdated = field.known == Name::Date && !has_date;
        if !is_replaced && !is_forbidden && !is_outdated {
            // Through `push`, because the options on which fields are hidden may have changed since.
            kept.push(name, field.value.for_bytes(old_bytes), policy);
        }
    }
    for field in &new.fields {
        let name = field.name.for_bytes(new_bytes);
        if is_taken(name, field.known) {
            kept.push(name, field.value.for_bytes(new_bytes), policy);
        }
    }
    let out = &mut kept.shown;
    if !has_date {
        out.extend_from_slice(b"Date: ");
        push_date(out, times.received_ms / 1000);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// The lifetime of the merged response, with the age of the 304, which is not stored. The Date of the 304 counts even
/// if the old one stays.
fn lifetime(of_merged: Lifetime, of_answer: Lifetime, received_ms: u64) -> Lifetime {
    let age_ms = received_ms.saturating_sub(of_answer.made_ms);
    let fresh_for_ms = of_merged.fresh_until_ms.saturating_sub(of_merged.made_ms);
    Lifetime {
        made_ms: of_answer.made_ms,
        fresh_until_ms: match of_merged.origin {
            // A lifetime from the route counts from receipt, whatever the age of the response.
            LifetimeSource::Route => of_merged.fresh_until_ms,
            _ => received_ms.saturating_add(fresh_for_ms).saturating_sub(age_ms),
        },
        ..of_merged
    }
}
