//! Writes the heads of responses from the store: the stored head, with the fields that each response gets anew.

use std::ops::Range;

use ::cache::{
    Boundary, CacheStatus, Handling, Stored, write_age, write_content_length, write_content_range,
};
use http1::{ClientConnection, ConnectionOptions, Framing, HeadLimits, ResponseRewrite};

use crate::body::response_plan::ResponsePlan;
use crate::context::exchange::{ExchangeContext, Purpose, RoutedRequest};
use crate::context::exchange_slot::Memory;
use crate::context::failure::Failure;
use crate::context::seen;
use crate::forward::policies::{self, Sender};

/// A stored head with the values to add to it.
pub(super) struct StoredHead<'a> {
    pub(super) stored: &'a Stored,
    /// The stored head, including its empty line.
    pub(super) head: &'a [u8],
    pub(super) extent: &'a Extent,
    pub(super) handling: Handling,
    /// The age, if Age is to be sent.
    pub(super) age_seconds: Option<u64>,
    /// The remaining freshness lifetime; negative if the response is stale.
    pub(super) ttl_seconds: i64,
    /// The cache key, if clients are to see it.
    pub(super) key: Option<&'a [u8]>,
}

/// The part of a stored response that is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// The head only: the client already has the body (304).
    NotModified,
    /// One range, and the complete length, if that is known.
    Part(Range<u64>, Option<u64>),
    /// Several ranges.
    Parts(Vec<Range<u64>>, Boundary),
}

impl Extent {
    /// The status of the response.
    pub(super) fn status(&self, stored: &Stored) -> u16 {
        match self {
            Self::Whole => stored.status,
            Self::NotModified => 304,
            Self::Part(..) | Self::Parts(..) => 206,
        }
    }
}

/// Writes the head to `Response::out`, according to the plan.
pub(super) fn write(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    memory: &mut Memory,
    stored_head: &StoredHead<'_>,
    plan: &ResponsePlan,
) -> Result<(), Failure> {
    let out = &mut memory.response.out;
    out.clear();
    push_stored(out, stored_head);
    push_own(out, stored_head, plan.framing);
    out.extend_from_slice(&memory.response.added);
    if routed.response_policies(ctx).is_some() {
        // What the route wants of the head depends on the request: it is written as if a server had sent it.
        return edit(ctx, routed, memory, plan);
    }
    if plan.framing == Framing::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    out.extend_from_slice(match plan.client_connection {
        ClientConnection::KeepAlive => b"Connection: keep-alive\r\n",
        ClientConnection::Close => b"Connection: close\r\n",
        ClientConnection::Persist | ClientConnection::Upgrade => b"",
    });
    out.extend_from_slice(seen::added(ctx, &memory.request.head, memory.request.head_bytes()));
    // Who asks for its client says so itself.
    let is_for_client = routed.purpose != Purpose::Peer;
    out.extend_from_slice(if is_for_client { b"Via: 1.1 vanward\r\n\r\n" } else { b"\r\n" });
    Ok(())
}

/// Appends what of the stored head goes with what is sent of the body.
fn push_stored(out: &mut Vec<u8>, stored_head: &StoredHead<'_>) {
    let lines = &stored_head.head[..stored_head.head.len() - 2];
    match stored_head.extent {
        Extent::Whole => out.extend_from_slice(lines),
        Extent::NotModified => {
            out.extend_from_slice(b"HTTP/1.1 304 Not Modified\r\n");
            push_fields(out, lines, |name| !describes_content(name));
        }
        Extent::Part(range, whole_bytes) => {
            out.extend_from_slice(b"HTTP/1.1 206 Partial Content\r\n");
            push_fields(out, lines, |name| !name.eq_ignore_ascii_case(b"content-range"));
            write_content_range(out, range, *whole_bytes);
        }
        Extent::Parts(_, boundary) => {
            out.extend_from_slice(b"HTTP/1.1 206 Partial Content\r\n");
            let is_own = |name: &[u8]| {
                name.eq_ignore_ascii_case(b"content-type") || name.eq_ignore_ascii_case(b"content-range")
            };
            push_fields(out, lines, |name| !is_own(name));
            boundary.write_content_type(out);
        }
    }
}

/// RFC 9110 §15.4.5: what a 304 leaves out, as its client has it; Content-Location is to be said again.
fn describes_content(name: &[u8]) -> bool {
    let begins = name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"content-"));
    begins && !name.eq_ignore_ascii_case(b"content-location")
}

/// Appends the fields of a head of our own writing that are wanted.
fn push_fields(out: &mut Vec<u8>, lines: &[u8], is_wanted: impl Fn(&[u8]) -> bool) {
    for line in lines.split_inclusive(|&byte| byte == b'\n').skip(1) {
        let name_len = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        if is_wanted(&line[..name_len]) {
            out.extend_from_slice(line);
        }
    }
}

/// Appends what is said anew each time.
fn push_own(out: &mut Vec<u8>, stored_head: &StoredHead<'_>, framing: Framing) {
    // RFC 9110 §8.6: no Content-Length in a 204; that of a 304 would be another response's.
    let status = stored_head.extent.status(stored_head.stored);
    if let (Framing::Length(length), false) = (framing, matches!(status, 204 | 304)) {
        write_content_length(out, length);
    }
    if let Some(age_seconds) = stored_head.age_seconds {
        write_age(out, age_seconds);
    }
    let (handling, ttl_seconds, key) = (stored_head.handling, Some(stored_head.ttl_seconds), stored_head.key);
    CacheStatus { handling, ttl_seconds, key, detail: None }.write(out);
}

/// Writes the head anew, as the route's policies want it.
fn edit(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    memory: &mut Memory,
    plan: &ResponsePlan,
) -> Result<(), Failure> {
    let Some(policies) = routed.response_policies(ctx) else { return Ok(()) };
    let Memory { request, response, .. } = memory;
    let (out, buffer) = (&mut response.out, &mut response.buffer);
    out.extend_from_slice(b"\r\n");
    buffer.clear();
    ctx.worker.buffers.fit(buffer, out.len());
    buffer.spare()[..out.len()].copy_from_slice(out);
    buffer.advance(out.len());
    response.head.clear();
    let limits = HeadLimits { bytes: out.len(), fields: usize::MAX, target: 0 };
    response.head.parse(buffer.filled(), &limits).map_err(|_| Failure::UpstreamMalformed)?;
    let options = ConnectionOptions::of_response(&response.head, buffer.filled())
        .map_err(|_| Failure::UpstreamFraming)?;
    out.clear();
    let date = ctx.worker.date();
    let rewrite = ResponseRewrite {
        edits: None,
        added: seen::added(ctx, &request.head, request.head_bytes()),
        via: http1::Via::Own,
        connection: options,
        framing: plan.framing,
        client_connection: plan.client_connection,
        date: &date,
    };
    let sender = Sender { server: "", has_page: false };
    policies::write_response(ctx, policies, routed, sender, request, response, rewrite);
    response.buffer.clear();
    Ok(())
}

/// The value of a field in a head that the proxy wrote.
pub(super) fn field<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    head.split_inclusive(|&byte| byte == b'\n').skip(1).find_map(|line| {
        let (known, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b": ")?;
        known.eq_ignore_ascii_case(name).then(|| value.trim_ascii_end())
    })
}
