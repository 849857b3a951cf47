//! Files in a content coding that they are not stored in. What is coded of a short file is kept while the file is open.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use coding::{Coding, Content, Flush};
use config::Compress;
use http1::{Framing, Method};

use super::representation::{Representation, ServedFile};
use super::send::{cut, read_piece};
use super::wanted::{Extent, write_head};
use crate::body::response_plan::ResponsePlan;
use crate::body::sink::BodySink;
use crate::body::transform::{Choice, changed_head, fields_of_text};
use crate::context::client::Next;
use crate::context::exchange::Exchange;
use crate::context::exchange_slot::{Request, Response};
use crate::context::failure::Failure;
use crate::faults::messages;

/// What is coded of a file up to this length is kept.
const KEPT_FILE_BYTES_MAX: u64 = 1 << 20;
/// A worker keeps this much of all files.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// So much of a coded file leaves in one write.
const PIECE_BYTES: usize = 16 << 10;

thread_local! {
    /// What the files of this worker keep.
    static KEPT_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// The coded forms of a file that a worker keeps.
#[derive(Default)]
pub(super) struct KeptForms(RefCell<Vec<KeptForm>>);

/// A coding, its level, and the coded file.
type KeptForm = (Coding, u8, Rc<[u8]>);

impl KeptForms {
    fn get(&self, coding: Coding, level: u8) -> Option<Rc<[u8]>> {
        let forms = self.0.borrow();
        let known = forms.iter().find(|(known, at, _)| (*known, *at) == (coding, level));
        known.map(|(.., form)| Rc::clone(form))
    }

    fn keep(&self, coding: Coding, level: u8, form: &Rc<[u8]>) {
        let bytes = KEPT_BYTES.get() + form.len();
        if bytes <= KEPT_BYTES_MAX {
            KEPT_BYTES.set(bytes);
            self.0.borrow_mut().push((coding, level, Rc::clone(form)));
        }
    }
}

impl Drop for KeptForms {
    fn drop(&mut self) {
        let bytes: usize = self.0.borrow().iter().map(|(.., form)| form.len()).sum();
        KEPT_BYTES.set(KEPT_BYTES.get() - bytes);
    }
}

/// Decides how a file is sent to a client.
pub(super) fn choose(compress: &Compress, request: &Request, representation: &Representation) -> Choice {
    Choice::of(compress, request, 200, &Content::of(fields_of_text(representation.whole_head())))
}

/// Sends a whole file in a coding.
pub(super) async fn send(
    exchange: &mut Exchange<'_, '_>,
    file: &Rc<ServedFile>,
    (choice, compress): (Choice, &Compress),
    has_whole_request: bool,
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let request = &exchange.memory.request;
    let representation = file.choose(&request.head, request.head_bytes());
    let length = representation.bytes();
    let (Some(change), Choice::Code(coding)) = (choice.change(), choice) else {
        // What is stored in a coding is chosen by what the client takes.
        return Err(Failure::FileUnreadable);
    };
    let level = compress.levels.of(coding);
    let may_be_kept = length <= KEPT_FILE_BYTES_MAX;
    let kept = file.forms.get(coding, level).filter(|_| may_be_kept);
    let framing = kept.as_ref().map_or(Framing::Chunked, |form| Framing::Length(form.len() as u64));
    let plan = planned(exchange, framing, has_whole_request);
    write_head(ctx, routed, exchange.memory, (representation, &Extent::Whole, length), &plan);
    let Response { out, buffer, .. } = &mut exchange.memory.response;
    *out = coded_head(changed_head(out, fields_of_text(out), change), plan.framing);
    exchange.state.answers(200);
    let sink = BodySink::paced(ctx, routed, plan, out, exchange.state);
    let next = if has_whole_request { sink.plan().next() } else { Next::Linger };
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
                // All of it leaves at once.
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
    Ok(outcome.map_or_else(|failure| cut(ctx, exchange.state, failure), |()| next))
}

/// Plans the response, with the fault that was drawn for it.
fn planned(exchange: &mut Exchange<'_, '_>, framing: Framing, has_whole_request: bool) -> ResponsePlan {
    let Exchange { ctx, routed, .. } = *exchange;
    let mut plan = ResponsePlan::new(ctx, routed, 200, framing, has_whole_request);
    if exchange.state.has_fault() {
        messages::add_to_routed(ctx, routed, &mut plan, (200, false), exchange.state);
    }
    plan
}

/// Ends a head whose body has this framing.
fn coded_head(mut head: Vec<u8>, framing: Framing) -> Vec<u8> {
    match framing {
        Framing::Length(length) => ::cache::write_content_length(&mut head, length),
        Framing::Chunked => head.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::None | Framing::UntilClose => {}
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Adds a line to a head that is written.
pub(super) fn add_line(head: &mut Vec<u8>, line: &[u8]) {
    head.truncate(head.len() - b"\r\n".len());
    head.extend_from_slice(line);
    head.extend_from_slice(b"\r\n");
}
