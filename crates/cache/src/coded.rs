//! Other content codings of a stored body. One task makes each form once, for all clients that want it. The form is
//! kept as long as the body is stored.
//!
//! A coded form is a separate stored response with its own head, and a hit sends it like any other. This module makes
//! no form itself; it wakes tasks, but runs none.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::fields::span_of_field;
use crate::fill::ReadError;
use crate::key::CacheKey;
use crate::store::MemoryStore;
use crate::store::object::{Object, Opening};
use crate::stored::Stored;

/// Distinguishes the forms of a body. The caller assigns the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormKey {
    pub coding: u8,
    pub level: u8,
    /// The digest of the dictionary, if there is one.
    pub dictionary: Option<[u8; 32]>,
}

/// Forms with a dictionary that are kept per body. Clients may have many versions of a dictionary.
// Each is as large as a compressed body, and would push other responses out.
const DICTIONARY_FORMS_MAX: usize = 4;

#[derive(Debug, Default)]
pub struct Forms(Mutex<CodingState>);

#[derive(Debug, Default)]
struct CodingState {
    forms: Vec<(FormKey, CodedForm)>,
    /// The memory of the finished forms.
    bytes: u64,
    /// Whether the response is stored: the store must then count additional memory.
    is_stored: bool,
    /// The caller's note about the response, and the number of the settings that it is based on.
    note: Option<(u64, u8)>,
}

#[derive(Debug)]
enum CodedForm {
    Coming(Arc<Coming>),
    Made(Arc<Object>),
}

/// The result of [`Forms::join`].
#[derive(Debug)]
pub enum FormJoined {
    Made(Arc<Object>),
    /// Another task is making the form.
    Coming(FormReader),
    /// The caller must make the form, for all who want it.
    Make(FormWriter, FormReader),
    /// No form is made: it would be too large to keep, or there are too many.
    No,
}

impl Forms {
    /// The form, if it is finished.
    #[inline]
    pub fn made(&self, key: &FormKey) -> Option<Arc<Object>> {
        match self.state().find(key)? {
            CodedForm::Made(object) => Some(Arc::clone(object)),
            CodedForm::Coming(_) => None,
        }
    }

    /// Finds a form, or its maker. If there is none, the caller becomes the maker.
    pub fn join(self: &Arc<Self>, key: FormKey) -> FormJoined {
        let mut state = self.state();
        match state.find(&key) {
            Some(CodedForm::Made(object)) => return FormJoined::Made(Arc::clone(object)),
            Some(CodedForm::Coming(coming)) => {
                // The beginning may be released already: then this client gets another coding, not a wait.
                return FormReader::new(coming).map_or(FormJoined::No, FormJoined::Coming);
            }
            None => {}
        }
        let has_dictionary = |(key, _): &&(FormKey, CodedForm)| key.dictionary.is_some();
        // Forms without a dictionary are few by nature: one for each coding and level.
        if key.dictionary.is_some()
            && state.forms.iter().filter(has_dictionary).count() >= DICTIONARY_FORMS_MAX
        {
            return FormJoined::No;
        }
        let coming = Arc::<Coming>::default();
        state.forms.push((key, CodedForm::Coming(Arc::clone(&coming))));
        let reader = FormReader::new(&coming);
        let broken = ReadError::Broken;
        let writer = FormWriter { forms: Arc::clone(self), key, coming, broken, is_over: false };
        reader.map_or(FormJoined::No, |reader| FormJoined::Make(writer, reader))
    }

    /// The caller's note about the response under settings with this number. If there is none, calls `judge` and keeps
    /// its result.
    #[inline]
    pub fn note(&self, settings: u64, judge: impl FnOnce() -> u8) -> u8 {
        let mut state = self.state();
        match state.note {
            Some((known, note)) if known == settings => note,
            _ => {
                // Under the lock, so that a response is judged once, not by each worker.
                let note = judge();
                state.note = Some((settings, note));
                note
            }
        }
    }

    /// The finished forms, each with its key.
    fn all_made(&self) -> Vec<(FormKey, Arc<Object>)> {
        let state = self.state();
        let made = state.forms.iter().filter_map(|(key, form)| match form {
            CodedForm::Made(object) => Some((*key, Arc::clone(object))),
            CodedForm::Coming(_) => None,
        });
        made.collect()
    }

    /// Takes over a form of another response with the same body.
    fn adopt(&self, key: FormKey, form: Arc<Object>) {
        let mut state = self.state();
        // A form that was made since from the new response is as good.
        if state.find(&key).is_none() {
            state.bytes += form.weight_bytes();
            state.forms.push((key, CodedForm::Made(form)));
        }
    }

    /// The memory of the forms when the response is stored. Later forms are reported to the store.
    pub(crate) fn weigh(&self) -> u64 {
        let mut state = self.state();
        state.is_stored = true;
        state.bytes
    }

    fn state(&self) -> MutexGuard<'_, CodingState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CodingState {
    fn find(&self, key: &FormKey) -> Option<&CodedForm> {
        self.forms.iter().find(|(known, _)| known == key).map(|(_, form)| form)
    }
}

/// A form while it is made.
#[derive(Debug, Default)]
struct Coming(Mutex<CodingProgress>);

#[derive(Debug, Default)]
struct CodingProgress {
    parts: VecDeque<Bytes>,
    /// The number of the first part that is still held.
    first: usize,
    /// The bytes of the parts that are held.
    held_bytes: u64,
    /// Whether the first parts are released, because the form is too large to be kept.
    is_window: bool,
    /// The next part of each reader.
    readers: Vec<(u64, usize)>,
    last_reader: u64,
    end: Option<Result<(), ReadError>>,
    wakers: Vec<Waker>,
    writer: Option<Waker>,
}

/// The most bytes that a form that is not kept may be ahead of its slowest reader.
const WINDOW_BYTES: u64 = 256 << 10;

impl Coming {
    fn progress(&self) -> MutexGuard<'_, CodingProgress> {
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

impl CodingProgress {
    /// Releases the parts that all readers have read, if the form is not kept.
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

/// Makes a form. If it is dropped before the end, the form breaks for its readers, and another one may be made.
#[derive(Debug)]
pub struct FormWriter {
    forms: Arc<Forms>,
    key: FormKey,
    coming: Arc<Coming>,
    /// Why the form breaks, if the writer is dropped before the end.
    broken: ReadError,
    is_over: bool,
}

impl FormWriter {
    /// Breaks the form for its readers, for this reason. Another one may be made.
    pub fn fail(mut self, why: ReadError) {
        self.broken = why;
    }

    /// Appends to the form. A form that exceeds `bytes_max` is not kept.
    pub fn push(&mut self, bytes: Vec<u8>, bytes_max: u64) {
        if bytes.is_empty() {
            return;
        }
        let mut progress = self.coming.progress();
        progress.held_bytes += bytes.len() as u64;
        progress.parts.push_back(bytes.into());
        // Once a window, always one: the first parts are gone, so the form can never be kept.
        progress.is_window |= progress.held_bytes > bytes_max;
        progress.slide();
        let wakers = std::mem::take(&mut progress.wakers);
        drop(progress);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ready when more of the form should be made. Returns false if no reader is left.
    pub fn poll_room(&mut self, context: &Context<'_>) -> Poll<bool> {
        let mut progress = self.coming.progress();
        if !progress.is_window {
            return Poll::Ready(true);
        }
        // A form that is not kept is made for its readers alone.
        if progress.readers.is_empty() {
            return Poll::Ready(false);
        }
        if progress.held_bytes <= WINDOW_BYTES {
            return Poll::Ready(true);
        }
        progress.writer = Some(context.waker().clone());
        Poll::Pending
    }

    /// Ends the form. It is kept beside the body unless it is too large. `of` is the original response, and `head` the
    /// form's head.
    pub fn finish(mut self, store: &MemoryStore, (of, key): (&Opening, CacheKey), head: &[u8], epoch: u64) {
        let parts = {
            let progress = self.coming.progress();
            (!progress.is_window).then(|| progress.parts.iter().cloned().collect::<Vec<Bytes>>())
        };
        if let Some(parts) = parts {
            self.is_over = true;
            let object = Arc::new(Object::new(key, epoch, of.with_head(head), &parts));
            // Readers of the stored form send it without a copy, like a body from the origin.
            let object = store.shelved(&object).unwrap_or(object);
            let bytes = object.weight_bytes();
            let is_stored = {
                let mut state = self.forms.state();
                let form = state.forms.iter_mut().find(|(known, _)| *known == self.key);
                form.into_iter().for_each(|(_, form)| *form = CodedForm::Made(Arc::clone(&object)));
                state.bytes += bytes;
                state.is_stored
            };
            if is_stored {
                // The lock of the forms is released here, because this takes that of the shard.
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
        // The next client that wants the form makes it, from the beginning.
        self.forms.state().forms.retain(|(known, _)| *known != self.key);
        let is_ended = self.coming.progress().end.is_some();
        if !is_ended {
            self.coming.end(Err(self.broken));
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
    /// `None` if the first parts are released.
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

    /// The next piece; `None` at the end. If there is none yet, the task is woken later.
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
            // Woken only with room to write, not for each part.
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
    /// A copy with another head, which must have the same validators.
    pub fn with_head(&self, head: &[u8]) -> Self {
        let etag = span_of_field(head, b"etag").unwrap_or_default();
        let last_modified = match self.stored.last_modified(&self.head) {
            Some(_) => span_of_field(head, b"last-modified").unwrap_or_default(),
            None => http1::ByteSpan::default(),
        };
        Self {
            stored: Stored { etag, last_modified, ..self.stored },
            head: head.into(),
            hidden: Box::new([]),
            body_bytes: None,
            forms: None,
            ..self.clone()
        }
    }
}

impl MemoryStore {
    /// Keeps the forms of a response after a validation, with new heads.
    pub fn renew_forms(&self, old: &Object, new: &Object, head_of: impl Fn(&FormKey) -> Vec<u8>) {
        let Some(forms) = old.forms_if_any() else { return };
        for (key, form) in forms.all_made() {
            let form = Arc::new(form.renewed(new.epoch(), new.opening().with_head(&head_of(&key))));
            new.forms().adopt(key, Arc::clone(&form));
            self.add_weight(new.key(), &new.forms(), form.weight_bytes());
        }
    }
}
