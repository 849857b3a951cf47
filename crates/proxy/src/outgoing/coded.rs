//! Codes complete bodies in memory before their heads are sent.

use coding::{BodyHead, Flush};

use crate::body::transform::{Choice, changed_head};
use crate::context::exchange_slot::CurrentRequest;
use crate::context::plan::Compression;
use crate::context::routed::ExchangeContext;
use crate::shared::request_fields::fields_of_text;

/// Codes a complete body whose head has been begun. Returns the coded body; `None` if it stays unchanged.
#[cold]
pub(crate) fn code_whole(
    ctx: &ExchangeContext<'_>,
    compression: &Compression,
    request: &CurrentRequest,
    head: &mut Vec<u8>,
    status: u16,
    body: &[u8],
) -> Option<Vec<u8>> {
    // Without a request head, the accepted codings are unknown.
    if body.is_empty() || request.head.len == 0 {
        return None;
    }
    let (compress, size) = (&compression.settings, body.len() as u64);
    let content = BodyHead::from_fields(fields_of_text(head)).with_length(Some(size));
    let choice = Choice::new(compress, &request.head, request.head_bytes(), status, &content);
    if choice == (Choice::Unchanged { adds_vary: true }) {
        head.extend_from_slice(coding::VARY);
    }
    let (change, mut transform) =
        (choice.change()?, choice.transform(&ctx.worker.coders, compress, Some(size))?);
    let mut coded = Vec::new();
    transform.push(body, Flush::End, &mut coded).ok()?;
    ctx.worker.coders.give(transform);
    *head = changed_head(head, fields_of_text(head), change, Some(coded.len() as u64));
    Some(coded)
}
