//! Files in a content coding that they are not stored in. The coded form of a short file is kept while the file is
//! open.

use std::rc::Rc;

use coding::{BodyChange, BodyHead, Flush};
use config::Compress;
use http1::{BodyFraming, Method};

use super::FileSource;
use super::send::read_piece;
use super::wanted::{FileExtent, write_head};
use crate::body::transform::{Choice, changed_head};
use crate::context::client::AfterExchange;
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse};
use crate::context::later::{self, KnownResponse};
use crate::context::plan::Compression;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::forward::respond;
use crate::open_files::representation::{Representation, ServedFile};
use crate::outgoing::faults;
use crate::outgoing::response_plan::ResponsePlan;
use crate::outgoing::sink::BodySink;
use crate::shared::request_fields::fields_of_text;

/// Longest file whose coded form is kept.
const KEPT_FILE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a coded file per write.
const PIECE_BYTES: usize = 16 << 10;

/// Returns how a file is coded; `None` if the route codes none, or its condition does not hold.
pub(super) fn compression<'a>(
    ctx: &ExchangeContext<'a>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    representation: &Representation,
) -> Option<&'a Compression> {
    let (head, size) = (representation.whole_head(), Some(representation.bytes()));
    later::compression(ctx, routed, request, || KnownResponse { status: 200, head, size, server: "" })
}

/// Decides in which coding a file is sent.
pub(super) fn choose(
    compress: &Compress,
    request: &CurrentRequest,
    representation: &Representation,
) -> Choice {
    Choice::new(
        compress,
        &request.head,
        request.head_bytes(),
        200,
        &BodyHead::from_fields(fields_of_text(representation.whole_head())),
    )
}

/// Sends a complete file in a coding.
pub(super) async fn send(
    exchange: &mut Exchange<'_, '_>,
    file: &Rc<ServedFile>,
    choice: Choice,
    compress: &Compress,
    source: FileSource<'_>,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let request = &exchange.memory.request;
    let representation = file.choose(&request.head, request.head_bytes());
    let length = representation.bytes();
    let (Some(change), Choice::Code(coding)) = (choice.change(), choice) else {
        // Stored codings are chosen elsewhere, by Accept-Encoding.
        return Err(Failure::FileUnreadable);
    };
    let level = compress.levels.for_coding(coding);
    let may_be_kept = length <= KEPT_FILE_BYTES_MAX;
    let kept = file.forms.get(coding, level).filter(|_| may_be_kept);
    let form_bytes = kept.as_ref().map(|form| form.len() as u64);
    let framing = form_bytes.map_or(BodyFraming::Chunked, BodyFraming::Length);
    let has_whole_request = source.has_whole_request.unwrap_or_default();
    let plan = planned(exchange, framing, has_whole_request);
    write_head(exchange, representation, &FileExtent::Whole, length, &plan, source.lines);
    let CurrentResponse { out, buffer, .. } = &mut exchange.memory.response;
    *out = coded_head(changed_head(out, fields_of_text(out), change, form_bytes), plan.framing);
    exchange.state.answers(200);
    let sink = BodySink::paced(ctx, routed, plan, out, exchange.state);
    let next = if has_whole_request { sink.plan().next() } else { AfterExchange::Linger };
    sink.begin(out).await?;
    if routed.method == Method::Head {
        sink.send(out, b"", sink.plan().at_end()).await?;
        return Ok(next);
    }
    let sent = async {
        if let Some(form) = kept {
            return sink.send(out, &form[..sink.takes(form.len())], sink.plan().at_end()).await;
        }
        let mut transform =
            choice.transform(&ctx.worker.coders, compress, Some(length)).ok_or(Failure::FileUnreadable)?;
        let (mut at, mut coded) = (0, Vec::new());
        while at < length {
            read_piece(ctx, representation, buffer, at..length).await?;
            at += buffer.len() as u64;
            let pushed = transform.push(buffer.filled(), Flush::Nothing, &mut coded);
            pushed.map_err(|_| Failure::FileUnreadable)?;
            buffer.clear();
            if may_be_kept {
                // A form that may be kept is coded completely, and sent at once.
                continue;
            }
            if coded.len() >= PIECE_BYTES {
                sink.send_part(out, &coded, false).await?;
                coded.clear();
            }
            ctx.worker.holding.during(tokio::task::yield_now()).await;
        }
        transform.push(b"", Flush::End, &mut coded).map_err(|_| Failure::FileUnreadable)?;
        ctx.worker.coders.give(transform);
        if may_be_kept {
            let form: Rc<[u8]> = coded.into();
            file.forms.keep(coding, level, &form);
            return sink.end(out, &form, b"").await;
        }
        sink.end(out, &coded, b"").await
    };
    let outcome = sent.await;
    exchange.state.body_bytes_sent = sink.sent_bytes();
    buffer.clear();
    ctx.worker.buffers.wait(buffer);
    Ok(outcome.map_or_else(|failure| respond::cut(exchange, failure), |()| next))
}

/// Plans the response, with the drawn fault.
fn planned(exchange: &mut Exchange<'_, '_>, framing: BodyFraming, has_whole_request: bool) -> ResponsePlan {
    let Exchange { ctx, routed, .. } = *exchange;
    let mut plan = ResponsePlan::new(ctx, routed, 200, framing, has_whole_request);
    if exchange.state.has_fault() {
        faults::add_to_routed(ctx, routed, &mut plan, 200, false, exchange.state);
    }
    plan
}

/// Completes a head, given the framing of its body.
fn coded_head(mut head: Vec<u8>, framing: BodyFraming) -> Vec<u8> {
    if framing == BodyFraming::Chunked {
        head.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Weakens the validators in the head of a 304 whose full response would be coded.
pub(super) fn weaken(head: &mut Vec<u8>) {
    *head = coded_head(changed_head(head, fields_of_text(head), BodyChange::Decode, None), BodyFraming::None);
}

/// Adds a line to a complete head.
pub(super) fn add_line(head: &mut Vec<u8>, line: &[u8]) {
    head.truncate(head.len() - b"\r\n".len());
    head.extend_from_slice(line);
    head.extend_from_slice(b"\r\n");
}
