//! Writes the heads of responses from the store: the stored head, and the fields that differ per response.

use std::ops::Range;

use ::cache::{
    Boundary, CacheStatus, Handling, Stored, write_age, write_content_length, write_content_range,
};
use http1::{BodyFraming, ClientConnection, ConnectionOptions, HeadLimits, ResponseRewrite};

use crate::context::exchange_slot::SlotMemory;
use crate::context::routed::{ExchangeContext, Purpose, RoutedRequest};
use crate::context::seen;
use crate::failure::Failure;
use crate::outgoing::edits::{self, ResponseSource};
use crate::outgoing::response_plan::ResponsePlan;

pub(super) struct StoredHead<'a> {
    pub(super) stored: &'a Stored,
    /// Includes the final empty line.
    pub(super) head: &'a [u8],
    /// Lines for other instances only.
    pub(super) hidden: &'a [u8],
    pub(super) extent: &'a SentPart,
    pub(super) handling: Handling,
    /// `None` omits Age.
    pub(super) age_seconds: Option<u64>,
    /// Remaining freshness lifetime; negative if stale.
    pub(super) ttl_seconds: i64,
    /// The cache key, if clients may see it.
    pub(super) key: Option<&'a [u8]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SentPart {
    Whole,
    /// The head only: the client already has the body (304).
    NotModified,
    /// A single range, and the complete length, if known.
    Part(Range<u64>, Option<u64>),
    Parts(Vec<Range<u64>>, Boundary),
}

impl SentPart {
    pub(super) fn status(&self, stored: &Stored) -> u16 {
        match self {
            Self::Whole => stored.status,
            Self::NotModified => 304,
            Self::Part(..) | Self::Parts(..) => 206,
        }
    }
}

/// Writes the head to `Response::out`, according to the plan. Called for each response from the store.
pub(super) fn write(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    memory: &mut SlotMemory,
    stored_head: &StoredHead<'_>,
    plan: &ResponsePlan,
) -> Result<(), Failure> {
    let out = &mut memory.response.out;
    out.clear();
    push_stored(out, stored_head);
    push_own(out, stored_head, plan.framing);
    out.extend_from_slice(&memory.response.added);
    if routed.response_policies(ctx).is_some() {
        // The route's edits depend on the request, so the head is written like a server's.
        return edit(ctx, routed, memory, plan);
    }
    if plan.framing == BodyFraming::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    out.extend_from_slice(match plan.client_connection {
        ClientConnection::KeepAlive => b"Connection: keep-alive\r\n",
        ClientConnection::Close => b"Connection: close\r\n",
        ClientConnection::Persist | ClientConnection::Upgrade => b"",
    });
    out.extend_from_slice(seen::added(ctx, &memory.request.head, memory.request.head_bytes()));
    // The instance that asks for its client adds these fields itself.
    if routed.purpose == Purpose::Peer {
        out.extend_from_slice(stored_head.hidden);
    } else {
        out.extend_from_slice(b"Via: 1.1 vanward\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends the stored fields that apply to the part that is sent.
fn push_stored(out: &mut Vec<u8>, stored_head: &StoredHead<'_>) {
    // Without the final empty line, because more fields follow.
    let lines = &stored_head.head[..stored_head.head.len() - 2];
    match stored_head.extent {
        SentPart::Whole => out.extend_from_slice(lines),
        SentPart::NotModified => {
            out.extend_from_slice(b"HTTP/1.1 304 Not Modified\r\n");
            push_fields(out, lines, |name| !describes_content(name));
        }
        SentPart::Part(range, whole_bytes) => {
            out.extend_from_slice(b"HTTP/1.1 206 Partial Content\r\n");
            // A stored part has its own Content-Range, which describes other bytes.
            push_fields(out, lines, |name| !name.eq_ignore_ascii_case(b"content-range"));
            write_content_range(out, range, *whole_bytes);
        }
        SentPart::Parts(_, boundary) => {
            out.extend_from_slice(b"HTTP/1.1 206 Partial Content\r\n");
            // RFC 9110 §15.3.7.2: these two fields belong to each part, not to the head.
            let is_own = |name: &[u8]| {
                name.eq_ignore_ascii_case(b"content-type") || name.eq_ignore_ascii_case(b"content-range")
            };
            push_fields(out, lines, |name| !is_own(name));
            boundary.write_content_type(out);
        }
    }
}

/// Whether a 304 omits the field, because the client has it (RFC 9110 §15.4.5). Content-Location is repeated.
fn describes_content(name: &[u8]) -> bool {
    let begins = name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"content-"));
    begins && !name.eq_ignore_ascii_case(b"content-location")
}

/// Appends the wanted fields of a head that the proxy has written.
fn push_fields(out: &mut Vec<u8>, lines: &[u8], is_wanted: impl Fn(&[u8]) -> bool) {
    for line in lines.split_inclusive(|&byte| byte == b'\n').skip(1) {
        let name_len = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        if is_wanted(&line[..name_len]) {
            out.extend_from_slice(line);
        }
    }
}

/// Appends the fields that differ per response.
fn push_own(out: &mut Vec<u8>, stored_head: &StoredHead<'_>, framing: BodyFraming) {
    // RFC 9110 §8.6: a 204 has no Content-Length; in a 304 it would describe another response.
    let status = stored_head.extent.status(stored_head.stored);
    if let (BodyFraming::Length(length), false) = (framing, matches!(status, 204 | 304)) {
        write_content_length(out, length);
    }
    if let Some(age_seconds) = stored_head.age_seconds {
        write_age(out, age_seconds);
    }
    let (handling, ttl_seconds, key) = (stored_head.handling, Some(stored_head.ttl_seconds), stored_head.key);
    CacheStatus { handling, ttl_seconds, key, detail: None }.write(out);
}

/// Rewrites the head by the route's policies.
fn edit(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    memory: &mut SlotMemory,
    plan: &ResponsePlan,
) -> Result<(), Failure> {
    let Some(policies) = routed.response_policies(ctx) else { return Ok(()) };
    let SlotMemory { request, response, .. } = memory;
    let (out, buffer) = (&mut response.out, &mut response.buffer);
    // The edits work on parsed heads, so the written text is parsed again.
    out.extend_from_slice(b"\r\n");
    buffer.clear();
    ctx.worker.buffers.fit(buffer, out.len());
    buffer.spare()[..out.len()].copy_from_slice(out);
    buffer.advance(out.len());
    response.head.clear();
    // The stored head was within the limits when it arrived. With the added fields it need not be.
    let limits = HeadLimits { bytes: out.len(), fields: usize::MAX, target: 0 };
    response.head.parse(buffer.filled(), &limits).map_err(|_| Failure::UpstreamMalformed)?;
    let options = ConnectionOptions::of_response(&response.head, buffer.filled())
        .map_err(|_| Failure::UpstreamFraming)?;
    out.clear();
    let date = ctx.worker.date();
    let rewrite = ResponseRewrite {
        edits: None,
        // Alt-Svc is never stored.
        passes_alt_svc: false,
        added: seen::added(ctx, &request.head, request.head_bytes()),
        via: http1::Via::Own,
        connection: options,
        framing: plan.framing,
        client_connection: plan.client_connection,
        date: &date,
    };
    let sender = ResponseSource { server: "", has_page: false };
    edits::write_response(ctx, policies, routed, sender, request, response, rewrite);
    response.buffer.clear();
    Ok(())
}

/// Returns the value of a field in a head that the proxy has written.
pub(super) fn field<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    head.split_inclusive(|&byte| byte == b'\n').skip(1).find_map(|line| {
        let (known, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b": ")?;
        known.eq_ignore_ascii_case(name).then(|| value.trim_ascii_end())
    })
}
