//! One fetch for all who want the same: who leads it, who waits for its head, who reads its body as it arrives.
//!
//! Each end has a handle, and dropping one is never forgotten: a leader that goes away before the head hands over to one
//! who waits, one that goes away later breaks the body. Asks no origin; wakes tasks, but runs none.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::purge::Force;
use crate::refusal::Refusal;
use crate::store::Store;
use crate::store::marks::Mark;
use crate::store::object::{Object, Opening, SHORT_BODY_BYTES_MAX};
use crate::store::shelf::{Placing, Shelving};

/// A fetch under way, as its sharers see it.
pub(crate) mod flight;

use flight::{End, Flight, Keeping, Next, Place, Stage, Stream};

/// Who asks the origin, until the response's head is known. Dropped, one of those who wait takes its place.
#[derive(Debug)]
pub struct Lead {
    store: Arc<Store>,
    flight: Arc<Flight>,
    is_over: bool,
}

impl Lead {
    pub(crate) fn new(store: Arc<Store>, flight: Arc<Flight>) -> Self {
        Self { store, flight, is_over: false }
    }

    /// Whether what is stored may stand in for a response that did not come. Its key may have been purged when it was not
    /// in memory any more, or not yet: then only this fetch was met.
    pub fn may_stand_in(&self, object: &Object) -> bool {
        self.store.is_good(object) && (!self.flight.is_doomed() || object.is_softly_purged())
    }

    /// The response may be stored, and this is its head: all who wait get to read it, and so does who asked.
    pub fn open(mut self, opening: Opening) -> (Fill, Reader) {
        // Parts are joined with others before long.
        let placing = if opening.stored.part.is_some() { Placing::InParts } else { Placing::Short };
        let mut stream = Box::new(Stream::new(Arc::new(opening), self.store.filling()));
        let reader = Reader::new(&mut stream, &self.flight);
        self.is_over = true;
        self.flight.advance(|progress| progress.stage = Stage::Streaming(stream));
        let (store, flight) = (self.store.clone(), self.flight.clone());
        (Fill { store, flight, placing, is_over: false }, reader)
    }

    /// The response may not be stored. All who wait are let go, each to ask for themselves, and so are all who come
    /// until then.
    pub fn refuse(mut self, until_seconds: u64) {
        self.store.mark(self.flight.key, Mark::Unstorable, until_seconds);
        self.end(Stage::Refused);
    }

    /// There is no response, and asking again would not bring one: all who wait hear of it.
    pub fn fail(mut self) {
        self.end(Stage::Failed);
    }

    /// What is stored was found to be still good (RFC 9111 §4.3.4): it is stored with its new head, in the place of the
    /// old one, and all who wait are answered with it.
    pub fn renew(mut self, old: &Object, opening: Opening) -> Arc<Object> {
        let object = Arc::new(old.renewed(self.flight.epoch, opening));
        if !self.flight.is_doomed() {
            self.store.put(&self.flight, &object);
        }
        self.end(Stage::Renewed(object.clone()));
        object
    }

    /// What lay behind the store answers: it is stored here, and all who wait are answered with it.
    pub fn restore(mut self, object: &Arc<Object>) {
        if object.weight_bytes() > self.store.object_bytes_max() {
            return self.end(Stage::Renewed(Arc::clone(object)));
        }
        let object = self.store.shelved(object).unwrap_or_else(|| Arc::clone(object));
        self.store.put_here(&self.flight, &object);
        self.end(Stage::Renewed(object));
    }

    /// What is stored was found to be still good, and answers this request under its new head, but it is to be stored no
    /// longer: it goes, and the others are let go as if it had been refused.
    pub fn release(mut self, old: &Object, opening: Opening, until_seconds: u64) -> Arc<Object> {
        let object = Arc::new(old.renewed(self.flight.epoch, opening));
        old.purge(Force::Hard);
        // RFC 9111 §3.2: behind the store it has the head by which it could be stored.
        self.store.forget_behind(self.flight.key);
        self.store.mark(self.flight.key, Mark::Unstorable, until_seconds);
        self.end(Stage::Refused);
        object
    }

    fn end(&mut self, stage: Stage) {
        self.is_over = true;
        self.store.land(&self.flight);
        self.flight.advance(|progress| progress.stage = stage);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.is_over {
            self.flight.progress().stage = Stage::Vacant;
            self.store.hand_over(&self.flight);
        }
    }
}

/// Who waits for the head of a fetch that somebody else leads.
#[derive(Debug)]
pub struct Wait {
    store: Arc<Store>,
    flight: Arc<Flight>,
    place: Place,
    /// It still counts among those who wait.
    is_waiting: bool,
}

/// What came of waiting.
#[derive(Debug)]
pub enum Waited {
    /// A response comes. Whether it is the right variant is to be seen from its opening; if not, ask the store again.
    Stream(Reader),
    /// What is stored is still good, or has just been stored. Whether it is the right variant is to be seen; if not, ask the store again.
    Hit(Arc<Object>),
    /// The leader is gone: it is on this one to ask now.
    Lead(Lead),
    /// What came may not be stored, or its beginning is gone already: ask for yourself.
    Refused,
    /// The origin gave no response.
    Failed,
}

impl Wait {
    pub(crate) fn new(store: Arc<Store>, flight: Arc<Flight>) -> Self {
        Self { store, flight, place: Place::default(), is_waiting: true }
    }

    /// What came of it, or this task is woken when there is more to see. Not to be called again after that.
    pub fn poll(&mut self, context: &Context<'_>) -> Poll<Waited> {
        let mut progress = self.flight.progress();
        let waited = match &mut progress.stage {
            Stage::Asked => {
                progress.wait(&mut self.place, context);
                return Poll::Pending;
            }
            Stage::Vacant => {
                progress.stage = Stage::Asked;
                Waited::Lead(Lead::new(self.store.clone(), self.flight.clone()))
            }
            Stage::Streaming(stream) if stream.has_beginning() => {
                Waited::Stream(Reader::new(stream, &self.flight))
            }
            // It was let go of since others were faster, and is stored by now, or is not kept.
            Stage::Streaming(stream) => {
                stream.stored().map_or(Waited::Refused, |object| Waited::Hit(Arc::clone(object)))
            }
            Stage::Renewed(object) => Waited::Hit(object.clone()),
            Stage::Refused => Waited::Refused,
            Stage::Failed => Waited::Failed,
        };
        progress.waiting -= 1;
        progress.leave(&self.place);
        self.is_waiting = false;
        Poll::Ready(waited)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if !self.is_waiting {
            return;
        }
        let is_vacant = {
            let mut progress = self.flight.progress();
            progress.waiting -= 1;
            progress.leave(&self.place);
            matches!(progress.stage, Stage::Vacant)
        };
        // It may have been the one whom the leader's going woke.
        if is_vacant {
            self.store.hand_over(&self.flight);
        }
    }
}

/// Who receives the body. Dropped before its end, the body is broken for all who read it.
#[derive(Debug)]
pub struct Fill {
    store: Arc<Store>,
    flight: Arc<Flight>,
    placing: Placing,
    is_over: bool,
}

/// What is wanted of a body after what was received of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// It is going to be stored.
    ToStore,
    /// It is not going to be stored, but somebody reads it.
    ToRead,
    /// By nobody: the fetch may end here.
    No,
}

/// What became of a body that came whole.
#[derive(Debug, Clone)]
pub enum Filled {
    /// It is stored.
    Stored(Arc<Object>),
    /// It was larger than what one object may take, or than all fetches together.
    TooLarge,
    /// It was purged while it came.
    Purged,
    /// It is not as long as its head says.
    Broken,
}

impl Fill {
    /// More of the body. A body that is too large is not stored, and that is remembered until then; those who read it
    /// already go on, as far as they keep up.
    pub fn push(&mut self, bytes: &[u8], refused_until_seconds: u64) -> Wanted {
        let mut is_refused = false;
        let mut wanted = Wanted::ToStore;
        let mut total_bytes = 0;
        self.flight.advance(|progress| {
            let Some(stream) = progress.stream() else { return };
            if stream.keeping == Keeping::Whole {
                let object_bytes = stream.total_bytes + bytes.len() as u64;
                is_refused = object_bytes > self.store.object_bytes_max();
                if is_refused || self.store.is_filling_full(stream.held_bytes()) {
                    stream.give_up(self.store.object_bytes_max());
                }
            }
            stream.push(bytes);
            total_bytes = stream.total_bytes;
            wanted = match stream.keeping {
                Keeping::Whole => Wanted::ToStore,
                Keeping::Window(_) if stream.readers > 0 => Wanted::ToRead,
                Keeping::Window(_) => Wanted::No,
            };
        });
        if is_refused {
            self.store.refuse(self.flight.key, Refusal::TooLarge);
            self.store.mark(self.flight.key, Mark::TooLarge, refused_until_seconds);
        }
        if wanted == Wanted::ToStore {
            self.place(bytes, total_bytes);
        } else {
            self.placing = Placing::InParts;
            self.store.land(&self.flight);
        }
        wanted
    }

    /// Has the body on the shelf as well, from where it is known to be long. Those who read it meanwhile have the parts.
    fn place(&mut self, appended: &[u8], total_bytes: u64) {
        match &mut self.placing {
            Placing::Short if total_bytes > SHORT_BODY_BYTES_MAX as u64 => {
                self.placing = self.shelve().map_or(Placing::InParts, Placing::OnShelf);
            }
            Placing::OnShelf(shelving) => {
                if !shelving.append(appended) {
                    self.placing = Placing::InParts;
                }
            }
            Placing::Short | Placing::InParts => {}
        }
    }

    /// Begins it there with all that has come of it.
    fn shelve(&self) -> Option<Box<dyn Shelving>> {
        let (body_bytes, parts) = {
            let mut progress = self.flight.progress();
            let stream = progress.stream()?;
            (stream.opening.body_bytes, stream.parts())
        };
        self.store.shelve(body_bytes, parts.iter().map(|part| &part[..]))
    }

    /// Ready when more of the body is to be received: at once while it is going to be stored; else when the foremost of
    /// those who read it has come far enough, or nobody is left.
    pub fn poll_room(&mut self, context: &Context<'_>) -> Poll<()> {
        let is_full = self.store.is_filling_full(0);
        let mut progress = self.flight.progress();
        let has_room = progress.stream().is_none_or(|stream| stream.has_room(is_full, context));
        if has_room { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The body is whole: it is stored, unless it must not be, and those who read it come to its end.
    pub fn finish(mut self) -> Filled {
        self.is_over = true;
        let (stream_is_kept, opening, parts, total_bytes) = {
            let mut progress = self.flight.progress();
            let Some(stream) = progress.stream() else { return Filled::Broken };
            (stream.keeping == Keeping::Whole, stream.opening.clone(), stream.parts(), stream.total_bytes)
        };
        if opening.body_bytes.is_some_and(|told| told != total_bytes) {
            self.store.refuse(self.flight.key, Refusal::Incomplete);
            self.end(End::Broken, None);
            return Filled::Broken;
        }
        let filled = if stream_is_kept { self.store_whole(&opening, &parts) } else { Filled::TooLarge };
        let stored = match &filled {
            // A part may have been joined with another: that is not what its readers read.
            Filled::Stored(object) if object.stored().part == opening.stored.part => Some(Arc::clone(object)),
            _ => None,
        };
        self.end(End::Whole, stored);
        filled
    }

    fn store_whole(&mut self, opening: &Opening, parts: &[Bytes]) -> Filled {
        let (key, epoch, opening) = (self.flight.key, self.flight.epoch, opening.clone());
        let is_part = opening.stored.part.is_some();
        let object = match std::mem::replace(&mut self.placing, Placing::InParts).finish() {
            Some(body) => Object::shelved(key, epoch, opening, body),
            None => Object::new(key, epoch, opening, parts),
        };
        if is_part {
            return self.store.put_part(&self.flight, object).map_or(Filled::Purged, Filled::Stored);
        }
        self.store.survey_miss(&object);
        if object.weight_bytes() > self.store.object_bytes_max() {
            self.store.refuse(self.flight.key, Refusal::TooLarge);
            return Filled::TooLarge;
        }
        let object = Arc::new(object);
        if self.store.put(&self.flight, &object) {
            return Filled::Stored(object);
        }
        self.store.refuse(self.flight.key, Refusal::Purged);
        Filled::Purged
    }

    fn end(&self, end: End, stored: Option<Arc<Object>>) {
        self.store.land(&self.flight);
        self.flight.advance(|progress| {
            if let Some(stream) = progress.stream() {
                stream.finish(end, stored);
            }
        });
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        if !self.is_over {
            let kept = self.flight.progress().stream().and_then(|stream| {
                (stream.keeping == Keeping::Whole).then(|| (stream.opening.clone(), stream.parts()))
            });
            if let Some((opening, parts)) = kept {
                self.store.put_rest_of(&self.flight, &opening, &parts);
            }
            self.store.refuse(self.flight.key, Refusal::Incomplete);
            self.end(End::Broken, None);
        }
    }
}

/// Who reads a body as it arrives, at any speed.
#[derive(Debug)]
pub struct Reader {
    flight: Arc<Flight>,
    opening: Arc<Opening>,
    place: Place,
    next_part: usize,
    read_bytes: u64,
}

/// Why a body ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    /// The fetch died.
    Broken,
    /// The reader was too far behind in a body that is too large to be kept.
    Behind,
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Broken => "the fetch that this response came from ended before its end",
            Self::Behind => "the client was too slow for a response that is too large to be kept",
        })
    }
}

impl std::error::Error for ReadError {}

impl Reader {
    pub(crate) fn new(stream: &mut Stream, flight: &Arc<Flight>) -> Self {
        stream.readers += 1;
        Self {
            flight: flight.clone(),
            opening: stream.opening.clone(),
            place: Place::default(),
            next_part: 0,
            read_bytes: 0,
        }
    }

    /// The response up to its body.
    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    /// How much of the body was read.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// The next part of the body; `None` at its end. Without one this task is woken when there is more to see.
    ///
    /// # Errors
    /// If the rest of the body is not to be had.
    pub fn poll_next(&mut self, context: &Context<'_>) -> Poll<Option<Result<Bytes, ReadError>>> {
        let mut progress = self.flight.progress();
        let next = match progress.stream() {
            Some(stream) => stream.next(self.next_part, self.read_bytes),
            None => Next::Ended(End::Broken),
        };
        match next {
            Next::Part(part) => {
                self.next_part += 1;
                self.read_bytes += part.len() as u64;
                let filler = progress.stream().and_then(|stream| stream.taken(self.read_bytes));
                drop(progress);
                filler.into_iter().for_each(Waker::wake);
                Poll::Ready(Some(Ok(part)))
            }
            Next::Wait => {
                progress.wait(&mut self.place, context);
                Poll::Pending
            }
            Next::Ended(End::Whole) => Poll::Ready(None),
            Next::Ended(End::Broken) => Poll::Ready(Some(Err(ReadError::Broken))),
            Next::Gone => Poll::Ready(Some(Err(ReadError::Behind))),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut progress = self.flight.progress();
        progress.leave(&self.place);
        let filler = progress.stream().and_then(|stream| stream.leave(self.next_part));
        drop(progress);
        filler.into_iter().for_each(Waker::wake);
    }
}
