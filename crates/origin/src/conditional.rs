//! Preconditions (RFC 9110 §13): evaluates the conditional fields of a request.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::request::OwnedRequest;

pub(crate) struct Validators<'a> {
    /// Strong entity tag, with its quotes.
    pub(crate) etag: &'a str,
    pub(crate) last_modified_unix_seconds: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreconditionAnswer {
    Proceed,
    NotModified,
    PreconditionFailed,
}

/// Evaluates the preconditions in the order of RFC 9110 §13.2.2.
pub(crate) fn evaluate(request: &OwnedRequest, validators: &Validators<'_>) -> PreconditionAnswer {
    let date = |name| single_date(request, name);
    let modified = UNIX_EPOCH + Duration::from_secs(validators.last_modified_unix_seconds);

    if let Some(tags) = request.list("If-Match") {
        if !any_matches(&tags, validators.etag, TagMatch::Strong) {
            return PreconditionAnswer::PreconditionFailed;
        }
    } else if date("If-Unmodified-Since").is_some_and(|since| modified > since) {
        return PreconditionAnswer::PreconditionFailed;
    }

    if let Some(tags) = request.list("If-None-Match") {
        if any_matches(&tags, validators.etag, TagMatch::Weak) {
            let reads = request.is_get_or_head();
            return if reads {
                PreconditionAnswer::NotModified
            } else {
                PreconditionAnswer::PreconditionFailed
            };
        }
    } else if request.is_get_or_head() && date("If-Modified-Since").is_some_and(|since| modified <= since) {
        return PreconditionAnswer::NotModified;
    }
    PreconditionAnswer::Proceed
}

/// Evaluates If-Range (RFC 9110 §13.1.5): whether the Range field applies.
pub(crate) fn range_applies(request: &OwnedRequest, validators: &Validators<'_>) -> bool {
    let Some(value) = request.list("If-Range") else { return true };
    if value.starts_with('"') || value.starts_with("W/") {
        // A list or a weak tag matches nothing.
        return value == validators.etag;
    }
    let modified = UNIX_EPOCH + Duration::from_secs(validators.last_modified_unix_seconds);
    httpdate::parse_http_date(&value).is_ok_and(|date| date == modified)
}

/// Value of a date field. Anything but one valid date is ignored (RFC 9110 §13.1.3, §13.1.4).
fn single_date(request: &OwnedRequest, name: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(&request.list(name)?).ok()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TagMatch {
    Strong,
    Weak,
}

/// Whether a tag of the list `tags` matches `etag` (RFC 9110 §8.8.3.2). Stops at the first malformed tag.
fn any_matches(tags: &str, etag: &str, comparison: TagMatch) -> bool {
    if tags.trim() == "*" {
        return true;
    }
    let mut rest = tags.trim_start_matches([' ', '\t', ',']);
    while !rest.is_empty() {
        let (weak, opaque) = rest.strip_prefix("W/").map_or((false, rest), |opaque| (true, opaque));
        // The next quote ends the tag: entity tags have no escapes, and may contain commas.
        let Some(length) = opaque.strip_prefix('"').and_then(|inner| inner.find('"')) else { return false };
        let (tag, after) = opaque.split_at(length + 2);
        if tag == etag && !(weak && comparison == TagMatch::Strong) {
            return true;
        }
        let separated = after.trim_start_matches([' ', '\t']);
        if !separated.is_empty() && !separated.starts_with(',') {
            return false;
        }
        rest = separated.trim_start_matches([' ', '\t', ',']);
    }
    false
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;
    use crate::content::{LAST_MODIFIED, LAST_MODIFIED_UNIX_SECONDS};
    use crate::request;

    const OURS: Validators<'_> =
        Validators { etag: "\"ours\"", last_modified_unix_seconds: LAST_MODIFIED_UNIX_SECONDS };
    const BEFORE: &str = "Sun, 31 Dec 2023 23:59:59 GMT";
    const AFTER: &str = "Monday, 01-Jan-24 00:00:01 GMT";

    fn request(method: &str, fields: &str) -> OwnedRequest {
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut slots = [const { MaybeUninit::uninit() }; request::FIELDS_MAX];
        let parsed = request::parse(head.as_bytes(), &mut slots).expect("is well-formed");
        OwnedRequest::new(head.as_bytes(), &parsed)
    }

    fn verdict(method: &str, fields: &str) -> PreconditionAnswer {
        evaluate(&request(method, fields), &OURS)
    }

    #[test]
    fn rfc9110_13_1_1_if_match() {
        for (value, expected) in [
            ("*", PreconditionAnswer::Proceed),
            ("\"ours\"", PreconditionAnswer::Proceed),
            ("\"a\", \"ours\"", PreconditionAnswer::Proceed),
            ("\"a\" ,,\t\"ours\"", PreconditionAnswer::Proceed),
            ("W/\"ours\"", PreconditionAnswer::PreconditionFailed),
            ("\"a\"", PreconditionAnswer::PreconditionFailed),
            ("ours", PreconditionAnswer::PreconditionFailed),
            ("\"a\" \"ours\"", PreconditionAnswer::PreconditionFailed),
        ] {
            assert_eq!(verdict("GET", &format!("If-Match: {value}\r\n")), expected, "{value}");
        }
    }

    #[test]
    fn rfc9110_13_1_2_if_none_match() {
        for (method, value, expected) in [
            ("GET", "\"ours\"", PreconditionAnswer::NotModified),
            ("HEAD", "W/\"ours\"", PreconditionAnswer::NotModified),
            ("GET", "*", PreconditionAnswer::NotModified),
            ("GET", "\"a,b\", W/\"ours\"", PreconditionAnswer::NotModified),
            ("PUT", "*", PreconditionAnswer::PreconditionFailed),
            ("GET", "\"a\"", PreconditionAnswer::Proceed),
            ("GET", "\"ours", PreconditionAnswer::Proceed),
        ] {
            assert_eq!(verdict(method, &format!("If-None-Match: {value}\r\n")), expected, "{method} {value}");
        }
        let lines = "If-None-Match: \"a\"\r\nIf-None-Match: \"ours\"\r\n";
        assert_eq!(verdict("GET", lines), PreconditionAnswer::NotModified);
    }

    #[test]
    fn rfc9110_13_1_3_if_modified_since() {
        for (method, value, expected) in [
            ("GET", LAST_MODIFIED, PreconditionAnswer::NotModified),
            ("GET", AFTER, PreconditionAnswer::NotModified),
            ("GET", BEFORE, PreconditionAnswer::Proceed),
            ("GET", "yesterday", PreconditionAnswer::Proceed),
            ("POST", LAST_MODIFIED, PreconditionAnswer::Proceed),
        ] {
            assert_eq!(
                verdict(method, &format!("If-Modified-Since: {value}\r\n")),
                expected,
                "{method} {value}"
            );
        }
    }

    #[test]
    fn rfc9110_13_1_4_if_unmodified_since() {
        for (value, expected) in [
            (LAST_MODIFIED, PreconditionAnswer::Proceed),
            (AFTER, PreconditionAnswer::Proceed),
            (BEFORE, PreconditionAnswer::PreconditionFailed),
            ("yesterday", PreconditionAnswer::Proceed),
        ] {
            assert_eq!(verdict("GET", &format!("If-Unmodified-Since: {value}\r\n")), expected, "{value}");
        }
    }

    #[test]
    fn rfc9110_13_1_5_if_range() {
        for (value, expected) in [
            ("\"ours\"", true),
            (LAST_MODIFIED, true),
            ("W/\"ours\"", false),
            ("\"a\"", false),
            (AFTER, false),
            (BEFORE, false),
            ("x", false),
        ] {
            let request = request("GET", &format!("If-Range: {value}\r\n"));
            assert_eq!(range_applies(&request, &OURS), expected, "{value}");
        }
        assert!(range_applies(&request("GET", ""), &OURS));
    }

    #[test]
    fn rfc9110_13_2_2_precedence() {
        for (fields, expected) in [
            // If-Match overrides If-Unmodified-Since.
            (format!("If-Match: \"ours\"\r\nIf-Unmodified-Since: {BEFORE}\r\n"), PreconditionAnswer::Proceed),
            // If-None-Match overrides If-Modified-Since.
            (format!("If-None-Match: \"a\"\r\nIf-Modified-Since: {AFTER}\r\n"), PreconditionAnswer::Proceed),
            // If-Match is evaluated before If-None-Match.
            (
                "If-Match: \"a\"\r\nIf-None-Match: \"ours\"\r\n".to_owned(),
                PreconditionAnswer::PreconditionFailed,
            ),
            ("If-Match: \"ours\"\r\nIf-None-Match: \"ours\"\r\n".to_owned(), PreconditionAnswer::NotModified),
        ] {
            assert_eq!(verdict("GET", &fields), expected, "{fields}");
        }
    }
}
