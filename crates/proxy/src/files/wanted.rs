//! Decides which part of a file a request gets, and writes the head.

use std::ops::Range;

use ::cache::{
    Boundary, CacheRequestFields, PreconditionResult, Selection, select, write_content_length,
    write_content_range,
};
use http1::ClientConnection;

use crate::answer;
use crate::body::segments::{Segment, parts};
use crate::context::exchange_slot::{CurrentRequest, SlotMemory};
use crate::context::seen;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::open_files::representation::Representation;
use crate::outgoing::edits::{self, OwnResponse, PolicySubject};
use crate::outgoing::proxy_status::StatusSource;
use crate::outgoing::response_plan::ResponsePlan;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileExtent {
    Whole,
    /// The client already has it: 304.
    NotModified,
    Part(Range<u64>),
    /// Several ranges, as multipart/byteranges.
    Parts(Vec<Range<u64>>, Boundary),
}

pub(super) enum WantedFile {
    Extent(FileExtent),
    /// No satisfiable range (RFC 9110 §15.5.17).
    Nothing,
}

/// Determines which part of a file a request wants, by its conditions and ranges.
pub(super) fn wanted(
    request: &CurrentRequest,
    representation: &Representation,
) -> Result<WantedFile, Failure> {
    let (head, bytes) = (&request.head, request.head_bytes());
    let asked = CacheRequestFields::new(head, bytes);
    let validators = representation.validators();
    match validators.judge(&asked, head, bytes) {
        PreconditionResult::Proceed => {}
        PreconditionResult::NotModified => return Ok(WantedFile::Extent(FileExtent::NotModified)),
        // RFC 9110 §13.1.1, §13.1.4: this is the origin.
        PreconditionResult::AskOrigin => return Err(Failure::PreconditionFailed),
    }
    if !asked.has_range() || !validators.range_applies(&asked, head, bytes) {
        return Ok(WantedFile::Extent(FileExtent::Whole));
    }
    Ok(WantedFile::Extent(match select(head, bytes, representation.bytes()) {
        Selection::Whole => FileExtent::Whole,
        Selection::One(range) => FileExtent::Part(range),
        Selection::Several(ranges) => FileExtent::Parts(ranges, Boundary::new(fastrand::u64(..))),
        Selection::Unsatisfiable => return Ok(WantedFile::Nothing),
    }))
}

impl FileExtent {
    pub(super) fn status(&self) -> u16 {
        match self {
            Self::Whole => 200,
            Self::NotModified => 304,
            Self::Part(_) | Self::Parts(..) => 206,
        }
    }

    /// Returns the body: texts of the proxy, each followed by a range of the file.
    pub(super) fn segments(&self, representation: &Representation) -> Vec<Segment> {
        let whole_bytes = representation.bytes();
        match self {
            Self::Whole => vec![Segment::from_range(0..whole_bytes)],
            Self::NotModified => Vec::new(),
            Self::Part(range) => vec![Segment::from_range(range.clone())],
            Self::Parts(ranges, boundary) => {
                let content_type = representation.content_type();
                // Kept as a line, while each part writes the name itself.
                let content_type = content_type.strip_prefix(b"Content-Type: ").unwrap_or_default();
                parts(ranges, boundary, Some(content_type.trim_ascii_end()), whole_bytes)
            }
        }
    }
}

pub(super) fn write_head(
    exchange: &mut Exchange<'_, '_>,
    representation: &Representation,
    extent: &FileExtent,
    length: u64,
    plan: &ResponsePlan,
    lines: &[u8],
) {
    let Exchange { ctx, routed, .. } = *exchange;
    let SlotMemory { request, response, .. } = &mut *exchange.memory;
    let out = &mut response.out;
    out.clear();
    // Written into the text that was sent last, which is still in the core's cache.
    ctx.worker.buffers.warm_text(out);
    match extent {
        FileExtent::Whole => out.extend_from_slice(representation.whole_head()),
        // RFC 9110 §15.4.5: fields about the content are omitted, because the client has them.
        FileExtent::NotModified => {
            answer::begin(out, 304);
            out.extend_from_slice(representation.others());
        }
        FileExtent::Part(range) => {
            answer::begin(out, 206);
            write_content_length(out, length);
            out.extend_from_slice(representation.content_type());
            write_content_range(out, range, Some(representation.bytes()));
            push_all(out, representation);
        }
        FileExtent::Parts(_, boundary) => {
            answer::begin(out, 206);
            write_content_length(out, length);
            boundary.write_content_type(out);
            push_all(out, representation);
        }
    }
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(&ctx.worker.date());
    out.extend_from_slice(b"\r\n");
    if !lines.is_empty() {
        merge(out, lines, extent);
    }
    out.extend_from_slice(seen::added(ctx, &request.head, request.head_bytes()));
    if let Some(policies) = routed.policies(ctx) {
        let start = answer::start_line_len(out);
        let own = OwnResponse { status: extent.status(), source: StatusSource::Proxy, is_preflight: false };
        edits::edit_own(ctx, policies, &PolicySubject::from_routed(routed), own, request, start, out);
    }
    out.extend_from_slice(match plan.client_connection {
        ClientConnection::KeepAlive => b"Connection: keep-alive\r\n\r\n",
        ClientConnection::Close => b"Connection: close\r\n\r\n",
        ClientConnection::Persist | ClientConnection::Upgrade => b"\r\n",
    });
}

/// Adds fields of a server's response to a head, in place of fields with the same names.
#[cold]
fn merge(out: &mut Vec<u8>, lines: &[u8], extent: &FileExtent) {
    let name = |line: &[u8]| line.split(|&byte| byte == b':').next().unwrap_or_default().to_ascii_lowercase();
    // RFC 9110 §15.4.5, §14.6: these describe the content, or the parts that the proxy makes of it.
    let is_left_out = |line: &[u8]| match extent {
        FileExtent::Whole | FileExtent::Part(_) => false,
        FileExtent::NotModified => name(line).starts_with(b"content-"),
        FileExtent::Parts(..) => name(line) == b"content-type",
    };
    let added: Vec<&[u8]> =
        lines.split_inclusive(|&byte| byte == b'\n').filter(|line| !is_left_out(line)).collect();
    let names: Vec<Vec<u8>> = added.iter().map(|line| name(line)).collect();
    let mut merged = Vec::with_capacity(out.len() + lines.len());
    for line in out.split_inclusive(|&byte| byte == b'\n') {
        if !names.contains(&name(line)) {
            merged.extend_from_slice(line);
        }
    }
    added.into_iter().for_each(|line| merged.extend_from_slice(line));
    *out = merged;
}

fn push_all(out: &mut Vec<u8>, representation: &Representation) {
    out.extend_from_slice(representation.of_content());
    out.extend_from_slice(representation.others());
}
