//! Stored responses in other content codings. Each form is made once, kept beside the body, and then sent like any hit.

use std::future::{Future, poll_fn};
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use ::cache::{
    FillReader, FormJoined, FormKey, FormReader, FormWriter, Forms, MemoryStore, Object, Opening, ReadError,
    Stored,
};
use coding::{Accepted, BodyChange, BodyEncoder, BodyHead, Coding, Flush};
use config::Compress;

use super::hit::{self, CacheReport};
use super::{Cache, live};
use crate::body::coders::Transform;
use crate::body::transform::{Choice, accepted, changed_head, values};
use crate::context::client::AfterExchange;
use crate::context::exchange_slot::{CurrentRequest, SlotMemory};
use crate::context::plan::Compression;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::worker::Worker;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::shared::request_fields::fields_of_text;
use crate::store::dictionaries::{self, Dictionary};
use transport::cold::poll_once;

/// Up to this length, a body is coded at once, so that the client gets its Content-Length.
const AT_ONCE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a longer body that are coded before other tasks run.
const PIECE_BYTES: usize = 32 << 10;

/// Notes about a stored response, remembered per route: it may be coded, may be decoded, needs Vary, or is offered as a
/// dictionary.
const MAY_BE_CODED: u8 = 1;
const MAY_BE_DECODED: u8 = 2;
const ADDS_VARY: u8 = 4;
const IS_OFFERED: u8 = 8;

/// Whether a response of the route may get other forms.
pub(super) fn may_have_forms(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, stored: &Stored) -> bool {
    ctx.snapshot.plan.routes[routed.route].compress.is_some() && stored.part.is_none()
}

/// The form in which a stored response is sent.
pub(super) enum Picked {
    AsStored,
    /// In a form that exists.
    Made(Arc<Object>),
    /// In a form that must be made.
    Wanted(Box<WantedForm>),
}

/// A form that a client gets.
pub(super) struct WantedForm {
    choice: Choice,
    dictionary: Option<Dictionary>,
    /// Whether the client does not accept the stored form.
    is_needed: bool,
}

impl WantedForm {
    /// Returns the key of the form; `None` for the stored form.
    fn key(&self, compress: &Compress) -> Option<FormKey> {
        /// Marks the keys of decoded forms.
        const DECODED: u8 = 0x80;
        let (coding, level) = match self.choice {
            Choice::Unchanged { .. } | Choice::Weaken => return None,
            Choice::Code(coding) => (coding as u8, compress.levels.for_coding(coding)),
            Choice::Decode(coding) => (DECODED | coding as u8, 0),
        };
        Some(FormKey {
            coding,
            level,
            dictionary: self.dictionary.as_ref().map(|dictionary| dictionary.digest),
        })
    }

    /// Returns the coder or decoder that makes the form. `size` is the body's length, if known.
    fn transform(&self, worker: &Worker, compress: &Compress, size: Option<u64>) -> Option<Transform> {
        let (Choice::Code(coding), Some(Dictionary { digest, object })) = (self.choice, &self.dictionary)
        else {
            return self.choice.transform(&worker.coders, compress, size);
        };
        // Coders need the dictionary in one piece; the stored body lies in blocks.
        let bytes: Vec<u8> = object.body(0..u64::MAX).flatten().copied().collect();
        BodyEncoder::with_dictionary(coding, compress.levels, size, (&bytes, digest)).map(Transform::Encode)
    }
}

/// Picks the form of a stored response for a request. Called for each hit of a route that codes bodies. Fields that the
/// stored head lacks are added to the response.
#[inline(never)]
pub(super) fn pick(
    cache: &Cache,
    compression: &Compression,
    memory: &mut SlotMemory,
    object: &Arc<Object>,
) -> Picked {
    // A part is a range of the stored bytes: coding it would change what its Content-Range means.
    if object.stored().part.is_some() {
        add_vary(compression, 206, object.head(), &mut memory.response.added);
        return Picked::AsStored;
    }
    let forms = object.forms();
    let response = StoredResponse {
        stored: object.stored(),
        head: object.head(),
        key_text: object.key_text(),
        body_bytes: Some(object.body_bytes()),
    };
    let at_first = || cache.dictionaries.consider(object, &compression.settings, dictionary_bytes_max(cache));
    let wanted = choose(cache, compression, memory, &forms, &response, at_first);
    match wanted.key(&compression.settings) {
        None => Picked::AsStored,
        Some(key) => forms.made(&key).map_or_else(|| Picked::Wanted(Box::new(wanted)), Picked::Made),
    }
}

/// Adds Vary to an unchanged response that other clients get in another coding. A part has the Vary of the complete
/// response (RFC 9110 §15.3.7).
#[cold]
fn add_vary(compression: &Compression, status: u16, head: &[u8], added: &mut Vec<u8>) {
    let (content, settings) = (BodyHead::from_fields(fields_of_text(head)), &compression.settings);
    if content.is_negotiated(status, &settings.types, settings.min_size) && !content.varies() {
        added.extend_from_slice(coding::VARY);
    }
}

/// Whether a client accepts the coding of a stored part, which cannot be changed. Without compression, the server has
/// decided that.
pub(super) fn accepts_part(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    part: &Object,
) -> bool {
    let accepts = || {
        let (accepted, _) = accepted(&request.head, request.head_bytes());
        BodyHead::from_fields(fields_of_text(part.head())).coding_to_remove(200, &accepted).is_none()
    };
    routed.compression(ctx).is_none() || accepts()
}

/// Memory for dictionaries, which may outlive the stored response.
pub(super) fn dictionary_bytes_max(cache: &Cache) -> u64 {
    cache.store.memory_bytes() / 16
}

/// The properties of a stored response that the choice depends on.
struct StoredResponse<'a> {
    stored: &'a Stored,
    head: &'a [u8],
    key_text: &'a [u8],
    body_bytes: Option<u64>,
}

/// Chooses the form of a stored response. `at_first` runs when the response is judged for the first time.
fn choose(
    cache: &Cache,
    compression: &Compression,
    memory: &mut SlotMemory,
    forms: &Forms,
    response: &StoredResponse<'_>,
    at_first: impl FnOnce(),
) -> WantedForm {
    let compress = &*compression.settings;
    // Judged once for each route's settings, then remembered with the response.
    let note = forms.note(compression.number, || {
        at_first();
        judge(compression, response)
    });
    let plain = |choice| WantedForm { choice, dictionary: None, is_needed: false };
    let unchanged = Choice::Unchanged { adds_vary: note & ADDS_VARY != 0 };
    if note & (MAY_BE_CODED | MAY_BE_DECODED) == 0 {
        return plain(unchanged);
    }
    let (request, added) = (&memory.request, &mut memory.response.added);
    let (accepted, forbids) = accepted(&request.head, request.head_bytes());
    if note & MAY_BE_DECODED != 0 {
        let content = BodyHead::from_fields(fields_of_text(response.head));
        let removed = content.coding_to_remove(response.stored.status, &accepted).filter(|_| !forbids);
        if let Some(coding) = removed {
            return WantedForm { is_needed: true, ..plain(Choice::Decode(coding)) };
        }
        if note & ADDS_VARY != 0 {
            added.extend_from_slice(coding::VARY);
        }
        return plain(unchanged);
    }
    let knows_dictionaries =
        accepted.takes(Coding::DictionaryZstd) || accepted.takes(Coding::DictionaryBrotli);
    let dictionary = if knows_dictionaries { available(cache, request, response) } else { None };
    // RFC 9110 §14.2: a range refers to the stored bytes, unless the client only accepts coded ones.
    let wants_stored = field(request, b"range").is_some() && accepted.takes_identity();
    let wanted = if forbids || wants_stored {
        plain(unchanged)
    } else {
        coded(compress, &accepted, dictionary, response.body_bytes).unwrap_or_else(|| plain(unchanged))
    };
    if wanted.choice == (Choice::Unchanged { adds_vary: true }) {
        added.extend_from_slice(coding::VARY);
    }
    // Another client may get this response with a dictionary, so caches behind this one must tell them apart.
    if !compress.dictionaries.is_empty() && wanted.dictionary.is_none() {
        added.extend_from_slice(coding::VARY_BY_DICTIONARY);
    }
    // A client only names a dictionary coding once it has a dictionary.
    if note & IS_OFFERED != 0 {
        offer(compress, response.key_text, added);
    }
    wanted
}

/// Judges a stored response independently of the client.
fn judge(compression: &Compression, response: &StoredResponse<'_>) -> u8 {
    let content = BodyHead::from_fields(fields_of_text(response.head)).with_length(response.body_bytes);
    // A coded form carries the tag as a weak one. The note tells later whether the server knows it as strong.
    compression.sent_tags.note(content.etag());
    let (compress, status) = (&*compression.settings, response.stored.status);
    let Compress { types, min_size, .. } = compress;
    let is_said = |(name, _): (&[u8], &[u8])| name.eq_ignore_ascii_case(b"use-as-dictionary");
    let is_offered = dictionaries::pattern_of(dictionaries::path(response.key_text), compress).is_some()
        && !fields_of_text(response.head).any(is_said);
    let flags = [
        (MAY_BE_CODED, content.may_be_coded(status, types, *min_size)),
        (MAY_BE_DECODED, content.removable_coding(status).is_some()),
        (ADDS_VARY, !content.varies() && content.is_negotiated(status, types, *min_size)),
        (IS_OFFERED, is_offered),
    ];
    flags.into_iter().filter(|(_, is_so)| *is_so).fold(0, |note, (flag, _)| note | flag)
}

/// Chooses the coding that the client prefers, with the dictionary for codings that use one.
fn coded(
    compress: &Compress,
    accepted: &Accepted,
    dictionary: Option<Dictionary>,
    body_bytes: Option<u64>,
) -> Option<WantedForm> {
    let is_needed = !accepted.takes_identity();
    let Some(dictionary) = dictionary else {
        let choice = accepted.choose(&compress.codings).map(Choice::Code)?;
        return Some(WantedForm { choice, dictionary: None, is_needed });
    };
    // Brotli needs the body's length for the distance to the dictionary.
    let can = |coding: &Coding| *coding != Coding::DictionaryBrotli || body_bytes.is_some();
    let with_dictionary = compress.codings.iter().filter_map(|coding| coding.with_dictionary()).filter(can);
    let offered: Vec<Coding> = with_dictionary.chain(compress.codings.iter().copied()).collect();
    let coding = accepted.choose(&offered)?;
    let uses_it = matches!(coding, Coding::DictionaryBrotli | Coding::DictionaryZstd);
    let (choice, dictionary) = (Choice::Code(coding), Some(dictionary).filter(|_| uses_it));
    Some(WantedForm { choice, dictionary, is_needed })
}

/// Returns the dictionary that the client has, if it is stored here (RFC 9842 §2.2).
#[cold]
fn available(cache: &Cache, request: &CurrentRequest, response: &StoredResponse<'_>) -> Option<Dictionary> {
    let digest = coding::available_dictionary(field(request, b"available-dictionary")?)?;
    cache.dictionaries.find(&digest, response.key_text)
}

/// Offers a response as a dictionary for later ones (RFC 9842 §2.1).
#[cold]
fn offer(compress: &Compress, key_text: &[u8], added: &mut Vec<u8>) {
    if let Some(pattern) = dictionaries::pattern_of(dictionaries::path(key_text), compress) {
        for part in ["Use-As-Dictionary: match=\"", pattern, "\"\r\n"] {
            added.extend_from_slice(part.as_bytes());
        }
    }
}

fn field<'a>(request: &'a CurrentRequest, name: &'a [u8]) -> Option<&'a [u8]> {
    let (head, bytes) = (&request.head, request.head_bytes());
    values(head, bytes, name).next()
}

/// Returns the head of a form.
fn head_of(head: &[u8], change: BodyChange) -> Vec<u8> {
    // Content-Length is written for each response.
    let mut text = changed_head(head, fields_of_text(head), change, None);
    text.extend_from_slice(b"\r\n");
    text
}

/// Keeps the forms of a revalidated response: the bodies stay, and the heads follow the new head.
pub(super) fn renew(store: &MemoryStore, old: &Object, new: &Arc<Object>) {
    let change = |key: &FormKey| {
        let codings = Coding::PLAIN
            .into_iter()
            .chain(Coding::PLAIN.iter().filter_map(|coding| coding.with_dictionary()));
        let coding = codings.into_iter().find(|coding| *coding as u8 == key.coding);
        coding.map_or(BodyChange::Decode, BodyChange::Code)
    };
    store.renew_forms(old, new, |key| head_of(new.head(), change(key)));
}

/// Makes a form of a stored response, and sends it.
pub(super) async fn make(
    exchange: &mut Exchange<'_, '_>,
    object: &Arc<Object>,
    wanted: &WantedForm,
    report: CacheReport,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let source = CodingSource::Stored(Arc::clone(object), 0);
    let mut opening = object.opening();
    opening.forms = Some(object.forms());
    match join(ctx, routed, opening, source, wanted) {
        CodingRole::Made(form) => hit::whole(exchange, &form, report).await,
        CodingRole::Coming(reader, opening) => live::form(exchange, reader, &opening, report).await,
        CodingRole::No(_) => {
            // Vary is needed all the same: another client may get the form.
            if let Some(compression) = routed.compression(ctx) {
                let (status, head) = (object.stored().status, object.head());
                add_vary(compression, status, head, &mut exchange.memory.response.added);
            }
            hit::whole(exchange, object, report).await
        }
    }
}

/// The form in which a response is sent that is still arriving.
pub(super) enum Arriving {
    AsStored(FillReader),
    /// In another form, as far as that is made.
    Form(FormReader, Opening),
    /// In a form that exists.
    Made(Arc<Object>),
}

/// Picks the form of a response that is still arriving.
pub(super) fn pick_arriving(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    memory: &mut SlotMemory,
    reader: FillReader,
) -> Arriving {
    let (plan, opening) = (&ctx.snapshot.plan, reader.opening().clone());
    let compression = plan.routes[routed.route].compress.as_ref();
    let (Some(compression), Some(cache), Some(forms)) = (compression, &plan.cache, &opening.forms) else {
        if let Some(compression) = compression.filter(|_| opening.stored.part.is_some()) {
            add_vary(compression, 206, &opening.head, &mut memory.response.added);
        }
        return Arriving::AsStored(reader);
    };
    let response = StoredResponse {
        stored: &opening.stored,
        head: &opening.head,
        key_text: &opening.key_text,
        body_bytes: opening.body_bytes,
    };
    // Whether it is a dictionary is judged when it is complete.
    let wanted = choose(cache, compression, memory, forms, &response, || ());
    if wanted.key(&compression.settings).is_none() {
        return Arriving::AsStored(reader);
    }
    match join(ctx, routed, opening, CodingSource::Arriving(reader), &wanted) {
        CodingRole::Made(form) => Arriving::Made(form),
        CodingRole::Coming(reader, opening) => Arriving::Form(reader, opening),
        CodingRole::No(CodingSource::Arriving(reader)) => {
            let (status, head) = (reader.opening().stored.status, &reader.opening().head);
            add_vary(compression, status, head, &mut memory.response.added);
            Arriving::AsStored(reader)
        }
        CodingRole::No(CodingSource::Stored(object, _)) => Arriving::Made(object),
    }
}

enum CodingRole {
    Made(Arc<Object>),
    /// The form is being made; with the beginning of its head.
    Coming(FormReader, Opening),
    /// The form is not made. Returns the source.
    No(CodingSource),
}

/// Joins the making of a form, or begins it.
fn join(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    opening: Opening,
    source: CodingSource,
    wanted: &WantedForm,
) -> CodingRole {
    let ExchangeContext { worker, snapshot, .. } = *ctx;
    let (route, cache) = (&snapshot.plan.routes[routed.route], &snapshot.plan.cache);
    let (Some(compression), Some(cache), Some(change)) = (&route.compress, cache, wanted.choice.change())
    else {
        return CodingRole::No(source);
    };
    let (Some(key), Some(forms)) = (wanted.key(&compression.settings), &opening.forms) else {
        return CodingRole::No(source);
    };
    let head = head_of(&opening.head, change);
    let of_form = opening.with_head(&head);
    let (writer, reader) = match forms.join(key) {
        FormJoined::Made(form) => return CodingRole::Made(form),
        FormJoined::Coming(reader) => return CodingRole::Coming(reader, of_form),
        FormJoined::Make(writer, reader) => (writer, reader),
        // Makes the form for this client alone, which does not accept the stored form.
        FormJoined::No if wanted.is_needed => match Arc::<Forms>::default().join(key) {
            FormJoined::Make(writer, reader) => (writer, reader),
            _ => return CodingRole::No(source),
        },
        FormJoined::No => return CodingRole::No(source),
    };
    let transform = wanted.transform(worker, &compression.settings, opening.body_bytes);
    let Some(transform) = transform else { return CodingRole::No(source) };
    let (forms, is_stored) = (Arc::clone(forms), matches!(source, CodingSource::Stored(..)));
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
    // The first piece is made before the head is sent: if the body is not in its declared coding, the client gets an
    // error response.
    let mut run = Box::pin(making.run());
    if poll_once(|context| run.as_mut().poll(context)).is_none() {
        tokio::task::spawn_local(run);
    }
    // RFC 9111 §5.1: a form that was just made is sent without Age.
    match forms.made(&key).filter(|_| is_stored) {
        Some(form) => CodingRole::Made(form),
        None => CodingRole::Coming(reader, of_form),
    }
}

/// The body that a form is made from.
enum CodingSource {
    /// A stored body, from an offset.
    Stored(Arc<Object>, u64),
    /// A body that is still arriving.
    Arriving(FillReader),
}

/// The making of a form, in a separate task, so that no slow client delays it.
struct Making {
    worker: Rc<Worker>,
    store: Arc<MemoryStore>,
    writer: FormWriter,
    source: CodingSource,
    transform: Transform,
    /// The head and properties of the source.
    opening: Opening,
    /// The head of the form.
    head: Vec<u8>,
    coded: Vec<u8>,
}

impl Making {
    async fn run(mut self) {
        match self.make().await {
            Ok(()) => self.finish(),
            Err(why) => self.writer.fail(why),
        }
    }

    async fn make(&mut self) -> Result<(), ReadError> {
        loop {
            // A form that is not kept is made at the pace of its readers.
            if !poll_fn(|context| self.writer.poll_room(context)).await {
                return Err(ReadError::Broken);
            }
            match &mut self.source {
                CodingSource::Stored(object, at) => {
                    let piece = object.body_at(*at);
                    let piece = &piece[..piece.len().min(PIECE_BYTES)];
                    if piece.is_empty() {
                        return Ok(());
                    }
                    *at += piece.len() as u64;
                    push(&mut self.transform, piece, Flush::Nothing, &mut self.coded)?;
                    // A long body would hold the worker: other tasks run between its pieces.
                    if object.body_bytes() > AT_ONCE_BYTES_MAX {
                        tokio::task::yield_now().await;
                    }
                }
                CodingSource::Arriving(reader) => {
                    let next = poll_fn(|context| Poll::Ready(reader.poll_next(context))).await;
                    let next = match next {
                        Poll::Ready(next) => next,
                        Poll::Pending => {
                            // Codes and passes on the available bytes before the wait.
                            push(&mut self.transform, b"", Flush::Piece, &mut self.coded)?;
                            self.writer.push(mem::take(&mut self.coded), self.store.object_bytes_max());
                            poll_fn(|context| reader.poll_next(context)).await
                        }
                    };
                    let Some(piece) = next.transpose()? else { return Ok(()) };
                    push(&mut self.transform, &piece, Flush::Nothing, &mut self.coded)?;
                }
            }
            if self.coded.len() >= PIECE_BYTES {
                self.send();
            }
        }
    }

    fn send(&mut self) {
        self.writer.push(mem::take(&mut self.coded), self.store.object_bytes_max());
    }

    fn finish(mut self) {
        let ended = push(&mut self.transform, b"", Flush::End, &mut self.coded);
        // A body that ends within its coding is damaged, and must not be stored as complete.
        if ended.is_err() || !self.transform.is_whole() {
            return self.writer.fail(ReadError::Undecodable);
        }
        self.send();
        let (key, epoch) = match &self.source {
            CodingSource::Stored(object, _) => (object.key(), object.epoch()),
            CodingSource::Arriving(reader) => (reader.key(), reader.epoch()),
        };
        self.writer.finish(&self.store, (&self.opening, key), &self.head, epoch);
        self.worker.coders.give(self.transform);
    }
}

fn push(transform: &mut Transform, piece: &[u8], flush: Flush, coded: &mut Vec<u8>) -> Result<(), ReadError> {
    transform.push(piece, flush, coded).map_err(|_| ReadError::Undecodable)
}
