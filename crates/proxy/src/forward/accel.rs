//! Orders of servers to the proxy: files in place of a body (X-Accel-Redirect, X-Sendfile), and the rate of the body
//! (X-Accel-Limit-Rate).
//!
//! Only names below the folders of the route are looked up; `files` opens them, and decides what clients never get.

use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use http1::FieldLine;

use crate::context::exchange_slot::CurrentResponse;
use crate::context::plan::Accel;
use crate::context::routed::ExchangeContext;
use crate::context::seen;
use crate::exchange::{Exchange, FileOrder};
use crate::failure::Failure;
use crate::forward::{Reply, respond};

/// Fields of the server's response that describe the file to the client, in lower case; those that nginx passes on.
const PASSED: [&[u8]; 5] =
    [b"content-type", b"content-disposition", b"set-cookie", b"cache-control", b"expires"];

/// Obeys the fields of a response. If it names a file, it is taken: `NoFile` is then no failure, because the caller sends the file with other means than
/// those of a server's response. Returns any other response.
#[inline]
pub(super) fn take(exchange: &mut Exchange<'_, '_>, reply: Reply) -> Result<Reply, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let accel = routed.response_policies(ctx).and_then(|policies| policies.accel.as_deref());
    let Some(accel) = accel else { return Ok(reply) };
    exchange.state.rate_bytes_per_second = rate(&exchange.memory.response);
    order(ctx, accel, &mut exchange.memory.response, reply).map_err(|order| {
        exchange.state.ordered = Some(order);
        Failure::NoFile
    })
}

/// Returns the rate of X-Accel-Limit-Rate: bytes per second, where 0 means none.
#[cold]
fn rate(response: &CurrentResponse) -> Option<NonZeroU64> {
    let value = seen::line(&response.head, response.buffer.filled(), b"x-accel-limit-rate")?;
    let digits = std::str::from_utf8(value.trim_ascii()).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Returns the file that a server's response names as an error. The response itself is discarded then.
#[cold]
fn order(
    ctx: &ExchangeContext<'_>,
    accel: &Accel,
    response: &mut CurrentResponse,
    reply: Reply,
) -> Result<Reply, Box<FileOrder>> {
    let (head, bytes) = (&response.head, response.buffer.filled());
    if head.start.status != 200 {
        return Ok(reply);
    }
    let value = |name: &[u8]| seen::line(head, bytes, name).map(<[u8]>::trim_ascii);
    let (field, value, path) = match (value(b"x-accel-redirect"), value(b"x-sendfile")) {
        (Some(value), _) => ("X-Accel-Redirect", value, redirected(accel, value)),
        (None, Some(value)) => ("X-Sendfile", value, sent(accel, value)),
        (None, None) => return Ok(reply),
    };
    let (files, path) = match path {
        Some((folder, path)) => (Some(Arc::clone(&accel.folders[folder].1)), path),
        None => (None, Vec::new()),
    };
    let is_passed = |field: &&FieldLine| {
        let name = field.name.for_bytes(bytes);
        PASSED.iter().any(|passed| name.eq_ignore_ascii_case(passed))
    };
    let mut lines = Vec::new();
    for field in head.fields.iter().filter(is_passed) {
        lines.extend_from_slice(&bytes[field.name.start as usize..field.line_end as usize]);
    }
    let named = format!("{field}: {}", value.escape_ascii());
    let has_whole_request = reply.upload.has_left_client();
    respond::discard(ctx, response, reply);
    Err(Box::new(FileOrder { files, path, lines, has_whole_request, named }))
}

/// Returns the folder for a path of X-Accel-Redirect, and the rest of the path, which is percent-encoded.
fn redirected(accel: &Accel, value: &[u8]) -> Option<(usize, Vec<u8>)> {
    let path = value.split(|&byte| byte == b'?').next().unwrap_or_default();
    let below = |(prefix, _): &(String, _)| path.strip_prefix(prefix.as_bytes()).map(<[u8]>::to_vec);
    accel.folders.iter().enumerate().find_map(|(index, folder)| Some((index, below(folder)?)))
}

/// Returns the folder for a file of X-Sendfile, and the rest of its path, percent-encoded.
fn sent(accel: &Accel, value: &[u8]) -> Option<(usize, Vec<u8>)> {
    let below = |root: &[u8]| value.strip_prefix(root)?.strip_prefix(b"/");
    let found = accel.folders.iter().enumerate().filter_map(|(index, (_, files))| {
        let root = files.settings.root.as_os_str().as_bytes();
        // `/` ends with the slash of its only name.
        Some((index, below(root.strip_suffix(b"/").unwrap_or(root))?))
    });
    // The innermost folder.
    let (index, rest) = found.min_by_key(|(_, rest)| rest.len())?;
    let mut path = Vec::with_capacity(rest.len());
    for &byte in rest {
        match byte {
            // A file's name is not encoded, so a percent sign is part of it.
            b'%' => path.extend_from_slice(b"%25"),
            byte => path.push(byte),
        }
    }
    Some((index, path))
}
