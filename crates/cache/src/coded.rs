//! Other content codings of a stored body. Each is made once, by one task for all clients that want it, and kept beside
//! the body for as long as that is stored.
//!
//! A coded form is a stored response of its own, with its own head, which a hit sends as any other. Makes no form itself;
//! wakes tasks, but runs none.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::fields::span_of_field;
use crate::fill::ReadError;
use crate::key::Key;
use crate::store::Store;
use crate::store::object::{Object, Opening};
use crate::stored::Stored;

/// What tells the forms of a body apart. The numbers are the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormKey {
    /// The coding.
    pub coding: u8,
    /// The level of the coding.
    pub level: u8,
    /// The digest of the dictionary, if there is one.
    pub dictionary: Option<[u8; 32]>,
}

/// Forms with a dictionary that are kept of one body: clients come with the versions that they have.
const DICTIONARY_FORMS_MAX: usize = 4;

/// All forms of a body.
#[derive(Debug, Default)]
pub struct Forms(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    forms: Vec<(FormKey, Form)>,
    /// The memory of the forms that are made.
    bytes: u64,
    /// Whether the response is stored, so that the store has to be told of more memory.
    is_stored: bool,
    /// What the caller noted about the response, and under which settings.
    note: Option<(u64, u8)>,
}

#[derive(Debug)]
enum Form {
    Coming(Arc<Coming>),
    Made(Arc<Object>),
}

/// How to get a form.
#[derive(Debug)]
pub enum FormJoined {
    /// It is there.
    Made(Arc<Object>),
    /// It is being made.
    Coming(FormReader),
    /// Make it, for all who want it.
    Make(FormWriter, FormReader),
    /// It is not made: it would be too large to keep, or there are too many.
    No,
}

impl Forms {
    /// The form, if it is made.
    #[inline]
    pub fn made(&self, key: &FormKey) -> Option<Arc<Object>> {
        match self.state().find(key)? {
            Form::Made(object) => Some(Arc::clone(object)),
            Form::Coming(_) => None,
        }
    }

    /// How to get a form.
    pub fn join(self: &Arc<Self>, key: FormKey) -> FormJoined {
        let mut state = self.state();
        match state.find(&key) {
            Some(Form::Made(object)) => return FormJoined::Made(Arc::clone(object)),
            Some(Form::Coming(coming)) => {
                return FormReader::new(coming).map_or(FormJoined::No, FormJoined::Coming);
            }
            None => {}
        }
        let has_dictionary = |(key, _): &&(FormKey, Form)| key.dictionary.is_some();
        if key.dictionary.is_some()
            && state.forms.iter().filter(has_dictionary).count() >= DICTIONARY_FORMS_MAX
        {
            return FormJoined::No;
        }
        let coming = Arc::<Coming>::default();
        state.forms.push((key, Form::Coming(Arc::clone(&coming))));
        let reader = FormReader::new(&coming);
        let writer = FormWriter { forms: Arc::clone(self), key, coming, is_over: false };
        reader.map_or(FormJoined::No, |reader| FormJoined::Make(writer, reader))
    }

    /// What the caller noted about the response under settings with this number, or what `judge` says, which is noted.
    #[inline]
    pub fn note(&self, settings: u64, judge: impl FnOnce() -> u8) -> u8 {
        let mut state = self.state();
        match state.note {
            Some((known, note)) if known == settings => note,
            _ => {
                let note = judge();
                state.note = Some((settings, note));
                note
            }
        }
    }

    /// The forms that are made, each with its key.
    fn all_made(&self) -> Vec<(FormKey, Arc<Object>)> {
        let state = self.state();
        let made = state.forms.iter().filter_map(|(key, form)| match form {
            Form::Made(object) => Some((*key, Arc::clone(object))),
            Form::Coming(_) => None,
        });
        made.collect()
    }

    /// Takes over a form of another response with the same body.
    fn adopt(&self, key: FormKey, form: Arc<Object>) {
        let mut state = self.state();
        if state.find(&key).is_none() {
            state.bytes += form.weight_bytes();
            state.forms.push((key, Form::Made(form)));
        }
    }

    /// The memory of the forms, from when the response is stored: what is added later is told to the store.
    pub(crate) fn weigh(&self) -> u64 {
        let mut state = self.state();
        state.is_stored = true;
        state.bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&self, key: &FormKey) -> Option<&Form> {
        self.forms.iter().find(|(known, _)| known == key).map(|(_, form)| form)
    }
}

/// A form while it is made.
#[derive(Debug, Default)]
struct Coming(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    parts: VecDeque<Bytes>,
    /// The number of the first part that is still here.
    first: usize,
    /// The bytes of the parts that are here.
    held_bytes: u64,
    /// Whether the beginning is gone: the form is too large to be kept.
    is_window: bool,
    /// The next part of each reader.
    readers: Vec<(u64, usize)>,
    last_reader: u64,
    end: Option<Result<(), ReadError>>,
    wakers: Vec<Waker>,
    writer: Option<Waker>,
}

/// So much of a form that is not kept may be ahead of its slowest reader.
const WINDOW_BYTES: u64 = 256 << 10;

impl Coming {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the form for its readers.
    fn end(&self, end: Result<(), ReadError>) {
        let mut progress = self.progress();
        progress.end = Some(end);
        let wakers = std::mem::take(&mut progress.wakers);
        drop(progress);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Progress {
    /// Forgets what every reader of a form has read that is not kept.
    fn slide(&mut self) {
        let slowest = self.readers.iter().map(|(_, next)| *next).min().unwrap_or(usize::MAX);
        while self.is_window
            && self.first < slowest
            && let Some(part) = self.parts.pop_front()
        {
            self.held_bytes -= part.len() as u64;
            self.first += 1;
        }
    }
}

/// Makes a form. Dropped before its end, the form breaks for its readers, and another one may be made.
#[derive(Debug)]
pub struct FormWriter {
    forms: Arc<Forms>,
    key: FormKey,
    coming: Arc<Coming>,
    is_over: bool,
}

impl FormWriter {
    /// Appends to the form. A form that exceeds `bytes_max` is not kept.
    pub fn push(&mut self, bytes: Vec<u8>, bytes_max: u64) {
        if bytes.is_empty() {
            return;
        }
        let mut progress = self.coming.progress();
        progress.held_bytes += bytes.len() as u64;
        progress.parts.push_back(bytes.into());
        progress.is_window |= progress.held_bytes > bytes_max;
        progress.slide();
        let wakers = std::mem::take(&mut progress.wakers);
        drop(progress);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ready when more of the form should be made; false once nobody wants it.
    pub fn poll_room(&mut self, context: &Context<'_>) -> Poll<bool> {
        let mut progress = self.coming.progress();
        if !progress.is_window {
            return Poll::Ready(true);
        }
        if progress.readers.is_empty() {
            return Poll::Ready(false);
        }
        if progress.held_bytes <= WINDOW_BYTES {
            return Poll::Ready(true);
        }
        progress.writer = Some(context.waker().clone());
        Poll::Pending
    }

    /// Ends the form. It is kept beside the body unless it is too large. `of` is the response that it is a form of, and
    /// `head` the form's own head.
    pub fn finish(mut self, store: &Store, (of, key): (&Opening, Key), head: &[u8], epoch: u64) {
        let parts = {
            let progress = self.coming.progress();
            (!progress.is_window).then(|| progress.parts.iter().cloned().collect::<Vec<Bytes>>())
        };
        if let Some(parts) = parts {
            self.is_over = true;
            let object = Arc::new(Object::new(key, epoch, of.with_head(head), &parts));
            let object = store.shelved(&object).unwrap_or(object);
            let bytes = object.weight_bytes();
            let is_stored = {
                let mut state = self.forms.state();
                let form = state.forms.iter_mut().find(|(known, _)| *known == self.key);
                form.into_iter().for_each(|(_, form)| *form = Form::Made(Arc::clone(&object)));
                state.bytes += bytes;
                state.is_stored
            };
            if is_stored {
                store.add_weight(key, &self.forms, bytes);
            }
        }
        self.coming.end(Ok(()));
    }
}

impl Drop for FormWriter {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.forms.state().forms.retain(|(known, _)| *known != self.key);
        let is_ended = self.coming.progress().end.is_some();
        if !is_ended {
            self.coming.end(Err(ReadError::Broken));
        }
    }
}

/// Reads a form while it is made.
#[derive(Debug)]
pub struct FormReader {
    coming: Arc<Coming>,
    number: u64,
}

impl FormReader {
    /// `None` if the beginning is gone.
    fn new(coming: &Arc<Coming>) -> Option<Self> {
        let mut progress = coming.progress();
        if progress.first > 0 {
            return None;
        }
        progress.last_reader += 1;
        let number = progress.last_reader;
        progress.readers.push((number, 0));
        drop(progress);
        Some(Self { coming: Arc::clone(coming), number })
    }

    /// The next piece; `None` at the end. If nothing is there, the task is woken later.
    ///
    /// # Errors
    /// The rest of the body is not available.
    pub fn poll_next(&mut self, context: &Context<'_>) -> Poll<Option<Result<Bytes, ReadError>>> {
        let mut guard = self.coming.progress();
        let progress = &mut *guard;
        let Some((_, next)) = progress.readers.iter_mut().find(|(number, _)| *number == self.number) else {
            return Poll::Ready(None);
        };
        let part = next.checked_sub(progress.first).and_then(|at| progress.parts.get(at)).cloned();
        if let Some(part) = part {
            *next += 1;
            progress.slide();
            let writer = progress.writer.take_if(|_| progress.held_bytes <= WINDOW_BYTES);
            drop(guard);
            writer.into_iter().for_each(Waker::wake);
            return Poll::Ready(Some(Ok(part)));
        }
        match progress.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => {
                progress.wakers.push(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for FormReader {
    fn drop(&mut self) {
        let mut progress = self.coming.progress();
        progress.readers.retain(|(number, _)| *number != self.number);
        progress.slide();
        let writer = progress.writer.take();
        drop(progress);
        writer.into_iter().for_each(Waker::wake);
    }
}

impl Opening {
    /// The same response with another head, which says the same of its validators.
    pub fn with_head(&self, head: &[u8]) -> Self {
        let etag = span_of_field(head, b"etag").unwrap_or_default();
        let last_modified = match self.stored.last_modified(&self.head) {
            Some(_) => span_of_field(head, b"last-modified").unwrap_or_default(),
            None => http1::Span::default(),
        };
        Self {
            stored: Stored { etag, last_modified, ..self.stored },
            head: head.into(),
            body_bytes: None,
            forms: None,
            ..self.clone()
        }
    }
}

impl Store {
    /// Keeps the forms of a response that was renewed, with the heads that they have now.
    pub fn renew_forms(&self, old: &Object, new: &Object, head_of: impl Fn(&FormKey) -> Vec<u8>) {
        let Some(forms) = old.forms_if_any() else { return };
        for (key, form) in forms.all_made() {
            let form = Arc::new(form.renewed(new.epoch(), new.opening().with_head(&head_of(&key))));
            new.forms().adopt(key, Arc::clone(&form));
            self.add_weight(new.key(), &new.forms(), form.weight_bytes());
        }
    }
}
