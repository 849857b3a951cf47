//! Decides what of a file a request gets, and writes the head for it.

use std::ops::Range;

use ::cache::{Asked, Boundary, Selection, Verdict, select, write_content_length, write_content_range};
use http1::ClientConnection;

use super::representation::Representation;
use crate::body::response_plan::ResponsePlan;
use crate::body::segments::{Segment, parts};
use crate::context::exchange::{ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::{Memory, Request};
use crate::context::failure::Failure;
use crate::context::proxy_status::Source;
use crate::context::seen;
use crate::forward::answer;
use crate::forward::policies::{self, OwnResponse, Subject};

/// What of a file is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// The client has it already: 304.
    NotModified,
    /// One range.
    Part(Range<u64>),
    /// Several ranges, as multipart/byteranges.
    Parts(Vec<Range<u64>>, Boundary),
}

/// What a request wants of a file.
pub(super) enum Wanted {
    Extent(Extent),
    /// No range that there is (RFC 9110 §15.5.17).
    Nothing,
}

/// Determines what of a file a request wants.
pub(super) fn wanted(request: &Request, representation: &Representation) -> Result<Wanted, Failure> {
    let (head, bytes) = (&request.head, request.head_bytes());
    let asked = Asked::of(head, bytes);
    let validators = representation.validators();
    match validators.judge(&asked, head, bytes) {
        Verdict::Proceed => {}
        Verdict::NotModified => return Ok(Wanted::Extent(Extent::NotModified)),
        // RFC 9110 §13.1.1, §13.1.4: this is the origin.
        Verdict::AskOrigin => return Err(Failure::PreconditionFailed),
    }
    if !asked.has_range() || !validators.range_applies(&asked, head, bytes) {
        return Ok(Wanted::Extent(Extent::Whole));
    }
    Ok(Wanted::Extent(match select(head, bytes, representation.bytes()) {
        Selection::Whole => Extent::Whole,
        Selection::One(range) => Extent::Part(range),
        Selection::Several(ranges) => Extent::Parts(ranges, Boundary::new(fastrand::u64(..))),
        Selection::Unsatisfiable => return Ok(Wanted::Nothing),
    }))
}

impl Extent {
    pub(super) fn status(&self) -> u16 {
        match self {
            Self::Whole => 200,
            Self::NotModified => 304,
            Self::Part(_) | Self::Parts(..) => 206,
        }
    }

    /// The body: texts of our own, each with what of the file follows it.
    pub(super) fn segments(&self, representation: &Representation) -> Vec<Segment> {
        let whole_bytes = representation.bytes();
        match self {
            Self::Whole => vec![Segment::of(0..whole_bytes)],
            Self::NotModified => Vec::new(),
            Self::Part(range) => vec![Segment::of(range.clone())],
            Self::Parts(ranges, boundary) => {
                let content_type = representation.content_type();
                let content_type = content_type.strip_prefix(b"Content-Type: ").unwrap_or_default();
                parts(ranges, boundary, Some(content_type.trim_ascii_end()), whole_bytes)
            }
        }
    }
}

/// Writes the head of a response to `Response::out`.
pub(super) fn write_head(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    memory: &mut Memory,
    (representation, extent, length): (&Representation, &Extent, u64),
    plan: &ResponsePlan,
) {
    let Memory { request, response, .. } = memory;
    let out = &mut response.out;
    out.clear();
    ctx.worker.buffers.warm_text(out);
    match extent {
        Extent::Whole => out.extend_from_slice(representation.whole_head()),
        // RFC 9110 §15.4.5: what describes the content is what the client has already.
        Extent::NotModified => {
            answer::begin(out, 304);
            out.extend_from_slice(representation.others());
        }
        Extent::Part(range) => {
            answer::begin(out, 206);
            write_content_length(out, length);
            out.extend_from_slice(representation.content_type());
            write_content_range(out, range, Some(representation.bytes()));
            push_all(out, representation);
        }
        Extent::Parts(_, boundary) => {
            answer::begin(out, 206);
            write_content_length(out, length);
            boundary.write_content_type(out);
            push_all(out, representation);
        }
    }
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(&ctx.worker.date());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(seen::added(ctx, &request.head, request.head_bytes()));
    if let Some(policies) = routed.policies(ctx) {
        let start = answer::start_line_len(out);
        let own = OwnResponse { status: extent.status(), source: Source::Proxy, is_preflight: false };
        policies::edit_own(ctx, policies, &Subject::of(routed), own, request, start, out);
    }
    out.extend_from_slice(match plan.client_connection {
        ClientConnection::KeepAlive => b"Connection: keep-alive\r\n\r\n",
        ClientConnection::Close => b"Connection: close\r\n\r\n",
        ClientConnection::Persist | ClientConnection::Upgrade => b"\r\n",
    });
}

fn push_all(out: &mut Vec<u8>, representation: &Representation) {
    out.extend_from_slice(representation.of_content());
    out.extend_from_slice(representation.others());
}
