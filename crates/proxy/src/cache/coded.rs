//! Stored responses in other content codings. Each form is made once, beside the body, and then sent as any hit is.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use ::cache::{FormJoined, FormKey, FormReader, FormWriter, Forms, Object, Opening, Reader, Store, Stored};
use coding::{Accepted, Change, Coding, Content, Encoder, Flush};
use config::Compress;

use super::dictionaries::{self, Dictionary};
use super::hit::{self, CacheReport};
use super::{Cache, live};
use crate::body::transform::{Choice, accepted, changed_head, fields_of_text, values};
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

/// What is noted about a stored response: it may get a coding, has one, needs a line of Vary, and is a dictionary by a
/// pattern of its route.
const MAY_BE_CODED: u8 = 1;
const IS_CODED: u8 = 2;
const ADDS_VARY: u8 = 4;
const IS_OFFERED: u8 = 8;

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
    Wanted(Box<Wanted>),
}

/// A form that a client is to get.
pub(super) struct Wanted {
    choice: Choice,
    dictionary: Option<Dictionary>,
}

impl Wanted {
    /// What tells the form from others; `None` for what is stored.
    fn key(&self, compress: &Compress) -> Option<FormKey> {
        /// Of the forms that have lost a coding.
        const DECODED: u8 = 0x80;
        let (coding, level) = match self.choice {
            Choice::Unchanged { .. } | Choice::Weaken => return None,
            Choice::Code(coding) => (coding as u8, compress.levels.of(coding)),
            Choice::Decode(coding) => (DECODED | coding as u8, 0),
        };
        Some(FormKey {
            coding,
            level,
            dictionary: self.dictionary.as_ref().map(|dictionary| dictionary.digest),
        })
    }

    /// What makes the form of a body of this length, if it is known.
    fn transform(&self, worker: &Worker, compress: &Compress, size: Option<u64>) -> Option<Transform> {
        let (Choice::Code(coding), Some(Dictionary { digest, object })) = (self.choice, &self.dictionary)
        else {
            return self.choice.transform(&worker.coders, compress, size);
        };
        let bytes: Vec<u8> = object.body(0..u64::MAX).flatten().copied().collect();
        Encoder::with_dictionary(coding, compress.levels, size, (&bytes, digest)).map(Transform::Encode)
    }
}

/// Picks the form of a stored response for a request. What its head does not say goes to the lines of the response.
#[inline(never)]
pub(super) fn pick(
    cache: &Cache,
    compression: &Compression,
    memory: &mut Memory,
    object: &Arc<Object>,
) -> Picked {
    if object.stored().part.is_some() {
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

/// The memory for dictionaries, which clients may use longer than they are stored.
pub(super) fn dictionary_bytes_max(cache: &Cache) -> u64 {
    cache.store.memory_bytes() / 16
}

/// What is looked at of a stored response.
struct StoredResponse<'a> {
    stored: &'a Stored,
    head: &'a [u8],
    key_text: &'a [u8],
    body_bytes: Option<u64>,
}

/// Decides about a stored response, of which most is known from the last time. `at_first` runs when it is not.
fn choose(
    cache: &Cache,
    compression: &Compression,
    memory: &mut Memory,
    forms: &Forms,
    response: &StoredResponse<'_>,
    at_first: impl FnOnce(),
) -> Wanted {
    let compress = &*compression.settings;
    let note = forms.note(compression.number, || {
        at_first();
        judge(compress, response)
    });
    let plain = |choice| Wanted { choice, dictionary: None };
    let unchanged = Choice::Unchanged { adds_vary: note & MAY_BE_CODED != 0 && note & ADDS_VARY != 0 };
    if note & (MAY_BE_CODED | IS_CODED) == 0 {
        return plain(unchanged);
    }
    let (request, added) = (&memory.request, &mut memory.response.added);
    let (accepted, forbids) = accepted(&request.head, request.head_bytes());
    if note & IS_CODED != 0 {
        let content = Content::of(fields_of_text(response.head));
        let removed = content.coding_to_remove(response.stored.status, &accepted);
        let removed = removed.filter(|_| !forbids && field(request, b"range").is_none());
        return plain(removed.map_or(unchanged, Choice::Decode));
    }
    let knows_dictionaries =
        accepted.takes(Coding::DictionaryZstd) || accepted.takes(Coding::DictionaryBrotli);
    let dictionary = if knows_dictionaries { available(cache, request, response) } else { None };
    // RFC 9110 §14.2: a range is one of the bytes that are stored.
    let wanted = if forbids || field(request, b"range").is_some() {
        plain(unchanged)
    } else {
        coded(compress, &accepted, dictionary, response.body_bytes).unwrap_or_else(|| plain(unchanged))
    };
    if wanted.choice == (Choice::Unchanged { adds_vary: true }) {
        added.extend_from_slice(coding::VARY);
    }
    if !compress.dictionaries.is_empty() && wanted.dictionary.is_none() {
        added.extend_from_slice(coding::VARY_BY_DICTIONARY);
    }
    // A client names no coding with a dictionary before it has one.
    if note & IS_OFFERED != 0 {
        offer(compress, response.key_text, added);
    }
    wanted
}

/// What holds for a stored response whoever asks for it.
fn judge(compress: &Compress, response: &StoredResponse<'_>) -> u8 {
    let content = Content::of(fields_of_text(response.head)).with_length(response.body_bytes);
    let is_said = |(name, _): (&[u8], &[u8])| name.eq_ignore_ascii_case(b"use-as-dictionary");
    let is_offered = dictionaries::pattern_of(dictionaries::path(response.key_text), compress).is_some()
        && !fields_of_text(response.head).any(is_said);
    let flags = [
        (MAY_BE_CODED, content.may_be_coded(response.stored.status, &compress.types, compress.min_size)),
        (IS_CODED, content.is_coded()),
        (ADDS_VARY, !content.varies()),
        (IS_OFFERED, is_offered),
    ];
    flags.into_iter().filter(|(_, is_so)| *is_so).fold(0, |note, (flag, _)| note | flag)
}

/// The coding that the client likes best, with the dictionary if it is one that uses that.
fn coded(
    compress: &Compress,
    accepted: &Accepted,
    dictionary: Option<Dictionary>,
    body_bytes: Option<u64>,
) -> Option<Wanted> {
    let Some(dictionary) = dictionary else {
        let choice = accepted.choose(&compress.codings).map(Choice::Code)?;
        return Some(Wanted { choice, dictionary: None });
    };
    // Brotli has to know how far the dictionary may be.
    let can = |coding: &Coding| *coding != Coding::DictionaryBrotli || body_bytes.is_some();
    let with_dictionary = compress.codings.iter().filter_map(|coding| coding.with_dictionary()).filter(can);
    let offered: Vec<Coding> = with_dictionary.chain(compress.codings.iter().copied()).collect();
    let coding = accepted.choose(&offered)?;
    let uses_it = matches!(coding, Coding::DictionaryBrotli | Coding::DictionaryZstd);
    Some(Wanted { choice: Choice::Code(coding), dictionary: Some(dictionary).filter(|_| uses_it) })
}

/// The dictionary that the client has, if it is known here (RFC 9842 §2.2).
#[cold]
fn available(cache: &Cache, request: &Request, response: &StoredResponse<'_>) -> Option<Dictionary> {
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

fn field<'a>(request: &'a Request, name: &'a [u8]) -> Option<&'a [u8]> {
    let (head, bytes) = (&request.head, request.head_bytes());
    values(head, bytes, name).next()
}

/// The head of a form.
fn head_of(head: &[u8], change: Change) -> Vec<u8> {
    let mut text = changed_head(head, fields_of_text(head), change);
    text.extend_from_slice(b"\r\n");
    text
}

/// The forms of a response that was renewed: their bodies are the same, their heads follow its own.
pub(super) fn renew(store: &Store, old: &Object, new: &Arc<Object>) {
    let change = |key: &FormKey| {
        let codings = Coding::PLAIN
            .into_iter()
            .chain(Coding::PLAIN.iter().filter_map(|coding| coding.with_dictionary()));
        let coding = codings.into_iter().find(|coding| *coding as u8 == key.coding);
        coding.map_or(Change::Decode, Change::Code)
    };
    store.renew_forms(old, new, |key| head_of(new.head(), change(key)));
}

/// Sends a stored response in a form that is not there yet.
pub(super) async fn make(
    exchange: &mut Exchange<'_, '_>,
    object: &Arc<Object>,
    wanted: &Wanted,
    report: CacheReport,
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let source = Source::Stored(Arc::clone(object), 0);
    let mut opening = object.opening();
    opening.forms = Some(object.forms());
    match join(ctx, routed, opening, source, wanted) {
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
    let (plan, opening) = (&ctx.snapshot.plan, reader.opening().clone());
    let compression = plan.routes[routed.route].compress.as_ref();
    let (Some(compression), Some(cache), Some(forms)) = (compression, &plan.cache, &opening.forms) else {
        return Arriving::AsStored(reader);
    };
    let response = StoredResponse {
        stored: &opening.stored,
        head: &opening.head,
        key_text: &opening.key_text,
        body_bytes: opening.body_bytes,
    };
    // Whether it is a dictionary is looked at when it is whole.
    let wanted = choose(cache, compression, memory, forms, &response, || ());
    if wanted.key(&compression.settings).is_none() {
        return Arriving::AsStored(reader);
    }
    match join(ctx, routed, opening, Source::Arriving(reader), &wanted) {
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
    wanted: &Wanted,
) -> Joined {
    let ExchangeContext { worker, snapshot, .. } = *ctx;
    let (route, cache) = (&snapshot.plan.routes[routed.route], &snapshot.plan.cache);
    let (Some(compression), Some(cache), Some(change)) = (&route.compress, cache, wanted.choice.change())
    else {
        return Joined::No(source);
    };
    let (Some(key), Some(forms)) = (wanted.key(&compression.settings), &opening.forms) else {
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
    let transform = wanted.transform(worker, &compression.settings, opening.body_bytes);
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
