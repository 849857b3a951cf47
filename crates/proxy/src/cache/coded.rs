//! Stored responses in other content codings. Each form is made once, beside the body, and then sent as any hit is.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use ::cache::{FormJoined, FormKey, FormReader, FormWriter, Forms, Object, Opening, Reader, Store, Stored};
use coding::{Change, Coding, Content, Flush};
use config::Compress;

use super::hit::{self, CacheReport};
use super::live;
use crate::body::transform::{Choice, accepted, fields_of_text};
use crate::context::client::Next;
use crate::context::coders::Transform;
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::{Memory, Request};
use crate::context::failure::Failure;
use crate::context::plan::Compression;
use crate::context::worker::Worker;

/// A body up to this length is coded at once: the client gets the length of the form.
const AT_ONCE_BYTES_MAX: u64 = 64 << 10;
/// So much of a longer one is coded before others have a turn.
const PIECE_BYTES: usize = 32 << 10;

/// What is noted about a stored response: it may get a coding, has one, and needs a line of Vary.
const MAY_BE_CODED: u8 = 1;
const IS_CODED: u8 = 2;
const ADDS_VARY: u8 = 4;

/// Whether responses of the route may have other forms.
pub(super) fn may_have_forms(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, stored: &Stored) -> bool {
    ctx.snapshot.plan.routes[routed.route].compress.is_some() && stored.part.is_none()
}

/// How a stored response is sent.
pub(super) enum Picked {
    /// As it is stored.
    AsStored,
    /// In a form that is there.
    Made(Arc<Object>),
    /// In a form that has to be made.
    Wanted(Choice),
}

/// Picks the form of a stored response for a request. What stays as it is gets its line of Vary.
#[inline(never)]
pub(super) fn pick(compression: &Compression, memory: &mut Memory, object: &Arc<Object>) -> Picked {
    if object.stored().part.is_some() {
        return Picked::AsStored;
    }
    let (stored, forms) = (object.stored(), object.forms());
    let choice =
        choose(compression, &memory.request, &forms, (stored, object.head(), Some(object.body_bytes())));
    let Some(key) = key_of(choice, &compression.settings) else {
        add_vary(choice, memory);
        return Picked::AsStored;
    };
    forms.made(&key).map_or(Picked::Wanted(choice), Picked::Made)
}

/// Decides about a stored response, of which most is known from the last time.
fn choose(
    compression: &Compression,
    request: &Request,
    forms: &Forms,
    (stored, head, body_bytes): (&Stored, &[u8], Option<u64>),
) -> Choice {
    let compress = &*compression.settings;
    let note = forms.note(compression.number, || {
        let content = Content::of(fields_of_text(head)).with_length(body_bytes);
        let may_be_coded = content.may_be_coded(stored.status, &compress.types, compress.min_size);
        let flags =
            [(MAY_BE_CODED, may_be_coded), (IS_CODED, content.is_coded()), (ADDS_VARY, !content.varies())];
        flags.into_iter().filter(|(_, is_so)| *is_so).fold(0, |note, (flag, _)| note | flag)
    });
    let adds_vary = note & MAY_BE_CODED != 0 && note & ADDS_VARY != 0;
    if note & (MAY_BE_CODED | IS_CODED) == 0 {
        return Choice::Unchanged { adds_vary };
    }
    let (accepted, forbids) = accepted(&request.head, request.head_bytes());
    // RFC 9110 §14.2: a range is one of the bytes that are stored.
    if forbids || has_range(request) {
        return Choice::Unchanged { adds_vary };
    }
    if note & MAY_BE_CODED != 0 {
        return accepted.choose(&compress.codings).map_or(Choice::Unchanged { adds_vary }, Choice::Code);
    }
    let content = Content::of(fields_of_text(head));
    let removed = content.coding_to_remove(stored.status, &accepted);
    removed.map_or(Choice::Unchanged { adds_vary }, Choice::Decode)
}

fn has_range(request: &Request) -> bool {
    let (head, bytes) = (&request.head, request.head_bytes());
    head.fields.iter().any(|field| field.name.of(bytes).eq_ignore_ascii_case(b"range"))
}

fn add_vary(choice: Choice, memory: &mut Memory) {
    if choice == (Choice::Unchanged { adds_vary: true }) {
        memory.response.added.extend_from_slice(coding::VARY);
    }
}

/// What tells the form of a choice from others; `None` for what is stored.
fn key_of(choice: Choice, compress: &Compress) -> Option<FormKey> {
    /// Of the forms that have lost a coding.
    const DECODED: u8 = 0x80;
    let (coding, level) = match choice {
        Choice::Unchanged { .. } | Choice::Weaken => return None,
        Choice::Code(coding) => (coding as u8, compress.levels.of(coding)),
        Choice::Decode(coding) => (DECODED | coding as u8, 0),
    };
    Some(FormKey { coding, level, dictionary: None })
}

/// The head of a form.
fn head_of(head: &[u8], change: Change) -> Vec<u8> {
    let start = head.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut text = head[..start].to_vec();
    change.write(&mut text, fields_of_text(head));
    text.extend_from_slice(b"\r\n");
    text
}

/// The forms of a response that was renewed: their bodies are the same, their heads follow its own.
pub(super) fn renew(store: &Store, old: &Object, new: &Arc<Object>) {
    let change = |key: &FormKey| {
        let coding = Coding::PLAIN.into_iter().find(|coding| *coding as u8 == key.coding);
        coding.map_or(Change::Decode, Change::Code)
    };
    store.renew_forms(old, new, |key| head_of(new.head(), change(key)));
}

/// Sends a stored response in a form that is not there yet.
pub(super) async fn make(
    exchange: &mut Exchange<'_, '_>,
    object: &Arc<Object>,
    choice: Choice,
    report: CacheReport,
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let source = Source::Stored(Arc::clone(object), 0);
    let mut opening = object.opening();
    opening.forms = Some(object.forms());
    match join(ctx, routed, opening, source, choice) {
        Joined::Made(form) => hit::whole(exchange, &form, report).await,
        Joined::Coming(reader, opening) => live::form(exchange, reader, &opening, report).await,
        Joined::No(_) => hit::whole(exchange, object, report).await,
    }
}

/// What becomes of a response that is still arriving.
pub(super) enum Arriving {
    /// It is sent as it arrives.
    AsStored(Reader),
    /// It is sent in another form, as far as that is made.
    Form(FormReader, Opening),
    /// The form is there already.
    Made(Arc<Object>),
}

/// Picks the form of a response that is still arriving.
pub(super) fn pick_arriving(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    memory: &mut Memory,
    reader: Reader,
) -> Arriving {
    let compression = ctx.snapshot.plan.routes[routed.route].compress.as_ref();
    let opening = reader.opening().clone();
    let (Some(compression), Some(forms)) = (compression, &opening.forms) else {
        return Arriving::AsStored(reader);
    };
    let known = (&opening.stored, &*opening.head, opening.body_bytes);
    let choice = choose(compression, &memory.request, forms, known);
    if key_of(choice, &compression.settings).is_none() {
        add_vary(choice, memory);
        return Arriving::AsStored(reader);
    }
    match join(ctx, routed, opening, Source::Arriving(reader), choice) {
        Joined::Made(form) => Arriving::Made(form),
        Joined::Coming(reader, opening) => Arriving::Form(reader, opening),
        Joined::No(Source::Arriving(reader)) => Arriving::AsStored(reader),
        Joined::No(Source::Stored(object, _)) => Arriving::Made(object),
    }
}

enum Joined {
    Made(Arc<Object>),
    /// With what the form begins with.
    Coming(FormReader, Opening),
    /// It is not made; here is what it would have been made of.
    No(Source),
}

/// Joins the making of a form, or begins it.
fn join(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    opening: Opening,
    source: Source,
    choice: Choice,
) -> Joined {
    let ExchangeContext { worker, snapshot, .. } = *ctx;
    let (route, cache) = (&snapshot.plan.routes[routed.route], &snapshot.plan.cache);
    let (Some(compression), Some(cache), Some(change)) = (&route.compress, cache, choice.change()) else {
        return Joined::No(source);
    };
    let (Some(key), Some(forms)) = (key_of(choice, &compression.settings), &opening.forms) else {
        return Joined::No(source);
    };
    let head = head_of(&opening.head, change);
    let of_form = opening.with_head(&head);
    let (writer, reader) = match forms.join(key) {
        FormJoined::Made(form) => return Joined::Made(form),
        FormJoined::Coming(reader) => return Joined::Coming(reader, of_form),
        FormJoined::No => return Joined::No(source),
        FormJoined::Make(writer, reader) => (writer, reader),
    };
    let transform = choice.transform(&worker.coders, &compression.settings, opening.body_bytes);
    let Some(transform) = transform else { return Joined::No(source) };
    let making = Making {
        worker: Rc::clone(worker),
        store: Arc::clone(&cache.store),
        writer,
        source,
        transform,
        opening,
        head,
        coded: Vec::new(),
    };
    let forms = making.opening.forms.clone();
    if let Source::Stored(object, _) = &making.source
        && object.body_bytes() <= AT_ONCE_BYTES_MAX
    {
        making.at_once();
        if let Some(form) = forms.and_then(|forms| forms.made(&key)) {
            return Joined::Made(form);
        }
        return Joined::Coming(reader, of_form);
    }
    tokio::task::spawn_local(making.run());
    Joined::Coming(reader, of_form)
}

/// What a form is made of.
enum Source {
    /// A stored body, from an offset on.
    Stored(Arc<Object>, u64),
    /// A body that is still arriving.
    Arriving(Reader),
}

/// The making of a form: a task of its own, so that no slow client delays it.
struct Making {
    worker: Rc<Worker>,
    store: Arc<Store>,
    writer: FormWriter,
    source: Source,
    transform: Transform,
    /// Of what the form is made.
    opening: Opening,
    /// The form's own head.
    head: Vec<u8>,
    coded: Vec<u8>,
}

impl Making {
    /// Makes a short form.
    fn at_once(mut self) {
        let Source::Stored(object, _) = &self.source else { return };
        let object = Arc::clone(object);
        for piece in object.body(0..u64::MAX) {
            if self.transform.push(piece, Flush::Nothing, &mut self.coded).is_err() {
                return;
            }
        }
        self.finish();
    }

    async fn run(mut self) {
        loop {
            // Those who read what is not kept set the pace.
            if !poll_fn(|context| self.writer.poll_room(context)).await {
                return;
            }
            let pushed = match &mut self.source {
                Source::Stored(object, at) => {
                    let piece = object.body_at(*at);
                    let piece = &piece[..piece.len().min(PIECE_BYTES)];
                    *at += piece.len() as u64;
                    if piece.is_empty() {
                        break;
                    }
                    tokio::task::yield_now().await;
                    self.transform.push(piece, Flush::Nothing, &mut self.coded)
                }
                Source::Arriving(reader) => {
                    match poll_fn(|context| Poll::Ready(reader.poll_next(context))).await {
                        Poll::Ready(Some(Ok(piece))) => {
                            self.transform.push(&piece, Flush::Nothing, &mut self.coded)
                        }
                        Poll::Ready(None) => break,
                        // The body breaks, and the form with it.
                        Poll::Ready(Some(Err(_))) => return,
                        Poll::Pending => self.wait().await,
                    }
                }
            };
            if pushed.is_err() {
                return;
            }
            if self.coded.len() >= PIECE_BYTES {
                self.send();
            }
        }
        self.finish();
    }

    /// Waits for more of the body. What is here of it is coded and passed on before.
    async fn wait(&mut self) -> Result<(), coding::CodingError> {
        self.transform.push(b"", Flush::Piece, &mut self.coded)?;
        self.send();
        let Source::Arriving(reader) = &mut self.source else { return Ok(()) };
        match poll_fn(|context| reader.poll_next(context)).await {
            Some(Ok(piece)) => self.transform.push(&piece, Flush::Nothing, &mut self.coded),
            // The next look tells.
            None | Some(Err(_)) => Ok(()),
        }
    }

    fn send(&mut self) {
        self.writer.push(std::mem::take(&mut self.coded), self.store.object_bytes_max());
    }

    fn finish(mut self) {
        if self.transform.push(b"", Flush::End, &mut self.coded).is_err() || !self.transform.is_whole() {
            return;
        }
        self.send();
        let (key, epoch) = match &self.source {
            Source::Stored(object, _) => (object.key(), object.epoch()),
            Source::Arriving(reader) => (reader.key(), reader.epoch()),
        };
        self.writer.finish(&self.store, (&self.opening, key), &self.head, epoch);
        self.worker.coders.give(self.transform);
    }
}
