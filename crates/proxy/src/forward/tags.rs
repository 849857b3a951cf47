//! Restores entity tags in conditions that the proxy has weakened in responses.
//!
//! RFC 9110 §8.8.1: a response that is coded or decoded here has a weak tag, `W/"a"` for the server's `"a"`. A client
//! that saves its changes sends that with If-Match, which only a strong tag matches (§13.1.1).

use ::cache::is_replaced_condition;

use http1::FieldLine;
use route::HeaderEdit;

use crate::context::exchange_slot::CurrentRequest;
use crate::context::plan::{RoutePolicies, TagKinds};
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::forward::{self, Reply};

/// Returns the conditions for the server; `None` if the client's need no change. Called for routes that code bodies.
#[cold]
pub(crate) fn conditions(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
) -> Option<Vec<u8>> {
    let kinds = ctx.snapshot.plan.routes[routed.route].compress.as_ref()?.sent_tags.kinds();
    let (head, bytes) = (&request.head, request.head_bytes());
    let names_tags =
        |name: &[u8]| name.eq_ignore_ascii_case(b"if-match") || name.eq_ignore_ascii_case(b"if-none-match");
    let is_weak = |field: &FieldLine| {
        names_tags(field.name.for_bytes(bytes))
            && field.value.for_bytes(bytes).windows(3).any(|part| part == b"W/\"")
    };
    let is_range = |field: &FieldLine| field.name.for_bytes(bytes).eq_ignore_ascii_case(b"range");
    // Servers that only send weak tags, such as FHIR and OData, know them. A client that resumes a download has bytes
    // of the coded body, not of the server's.
    if kinds == TagKinds::Weak
        || head.fields.iter().any(is_range)
        || !head.fields.iter().any(is_weak)
        || routed.policies(ctx).is_some_and(edits_conditions)
    {
        return None;
    }
    let mut lines = Vec::new();
    for field in head.fields.iter().filter(|field| is_replaced_condition(field.name.for_bytes(bytes))) {
        let (name, value) = (field.name.for_bytes(bytes), field.value.for_bytes(bytes));
        lines.extend_from_slice(name);
        lines.extend_from_slice(b": ");
        // If the servers send both kinds, the tag may have been weak before: then both forms are sent.
        if names_tags(name) {
            push_tags(&mut lines, value, kinds == TagKinds::Both);
        } else {
            lines.extend_from_slice(value);
        }
        lines.extend_from_slice(b"\r\n");
    }
    Some(lines)
}

/// Whether the route's edits set conditions.
fn edits_conditions(policies: &RoutePolicies) -> bool {
    policies.settings.request_headers.edits().any(|edit| match edit {
        HeaderEdit::Set(name, _)
        | HeaderEdit::Add(name, _)
        | HeaderEdit::Default(name, _)
        | HeaderEdit::Remove(name) => is_replaced_condition(name.as_bytes()),
    })
}

/// Appends a list of tags, with the strong form of each weak one. `keeps_weak` adds the weak form, too.
fn push_tags(out: &mut Vec<u8>, list: &[u8], keeps_weak: bool) {
    let mut rest = list;
    while let Some(first) = rest.first() {
        let opening = if rest.starts_with(b"W/\"") { 2 } else { 0 };
        // A tag has no quotes within (RFC 9110 §8.8.3), but may have commas.
        let quoted = rest[opening..].strip_prefix(b"\"");
        let closing = quoted.and_then(|inside| inside.iter().position(|byte| *byte == b'"'));
        let Some(closing) = closing else {
            // Something else than a tag, such as `*` or a comma.
            out.push(*first);
            rest = &rest[1..];
            continue;
        };
        let (tag, behind) = rest.split_at(opening + closing + 2);
        if keeps_weak && opening > 0 {
            out.extend_from_slice(tag);
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(&tag[opening..]);
        rest = behind;
    }
}

/// Forwards a request with these conditions in place of the client's.
pub(crate) async fn forward(exchange: &mut Exchange<'_, '_>, conditions: Vec<u8>) -> Result<Reply, Failure> {
    exchange.memory.request.texts.conditions = Some(conditions);
    let outcome = forward::forward(exchange).await;
    exchange.memory.request.texts.conditions = None;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_tags_get_the_form_that_the_server_knows() {
        for (list, strong, both) in [
            ("W/\"a\"", "\"a\"", "W/\"a\", \"a\""),
            ("\"a\"", "\"a\"", "\"a\""),
            ("*", "*", "*"),
            (
                "W/\"a,W/\", \"W/\",W/\"\"",
                "\"a,W/\", \"W/\",\"\"",
                "W/\"a,W/\", \"a,W/\", \"W/\",W/\"\", \"\"",
            ),
            ("W/a, W/\"b", "W/a, W/\"b", "W/a, W/\"b"),
            ("", "", ""),
        ] {
            for (keeps_weak, expected) in [(false, strong), (true, both)] {
                let mut out = Vec::new();
                push_tags(&mut out, list.as_bytes(), keeps_weak);
                assert_eq!(String::from_utf8_lossy(&out), expected, "{list}");
            }
        }
    }
}
