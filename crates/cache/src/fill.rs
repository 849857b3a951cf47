//! Request collapsing: one fetch for all clients with equal requests. One leads it, others wait for its head, and all
//! read the body as it arrives.
//!
//! Each role has a handle, and dropping one has an effect: if a leader goes away before the head arrives, a waiting
//! client takes over; later, the body breaks. Sends no requests; wakes tasks, but runs none.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::key::Key;
use crate::purge::Force;
use crate::refusal::Refusal;
use crate::store::Store;
use crate::store::marks::Mark;
use crate::store::object::{Object, Opening, SHORT_BODY_BYTES_MAX};
use crate::store::shelf::{Placing, Shelving};

/// State of a fetch, shared by all its clients.
pub(crate) mod flight;

use flight::{End, Flight, Keeping, Next, Place, Stage, Stream};

/// The leader of a fetch: asks the origin, until the head of the response is known. When dropped early, a waiting
/// client takes over.
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

    /// Whether a stored response may be sent in place of a missing one. A purge of the key may have affected only this
    /// fetch, if the response was not in memory at that time.
    pub fn may_stand_in(&self, object: &Object) -> bool {
        self.store.is_good(object) && (!self.flight.is_doomed() || object.is_softly_purged())
    }

    /// Starts the body of a storable response. All waiting clients get a reader, and so does the leader.
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

    /// Ends the fetch because the response must not be stored. Waiting clients, and new ones until `until_seconds`,
    /// send requests of their own.
    pub fn refuse(mut self, until_seconds: u64) {
        self.store.mark(self.flight.key, Mark::Unstorable, until_seconds);
        self.end(Stage::Refused);
    }

    /// Ends the fetch because there is no response, and another request would not help. Waiting clients are told.
    pub fn fail(mut self) {
        self.end(Stage::Failed);
    }

    /// Stores the validated response with its new head (RFC 9111 §4.3.4). All waiting clients get it.
    pub fn renew(mut self, old: &Object, opening: Opening) -> Arc<Object> {
        let object = Arc::new(old.renewed(self.flight.epoch, opening));
        if !self.flight.is_doomed() {
            self.store.put(&self.flight, &object);
        }
        self.end(Stage::Renewed(object.clone()));
        object
    }

    /// Stores a response that was found behind the store, for example on disk. All waiting clients get it.
    pub fn restore(mut self, object: &Arc<Object>) {
        if object.weight_bytes() > self.store.object_bytes_max() {
            return self.end(Stage::Renewed(Arc::clone(object)));
        }
        let object = self.store.shelved(object).unwrap_or_else(|| Arc::clone(object));
        self.store.put_here(&self.flight, &object);
        self.end(Stage::Renewed(object));
    }

    /// Ends the fetch with a validated response that answers this request, but must not be stored any longer. It is
    /// removed, and waiting clients are let go as in `refuse`.
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

/// A client that waits for the head of a fetch with another leader.
#[derive(Debug)]
pub struct Wait {
    store: Arc<Store>,
    flight: Arc<Flight>,
    place: Place,
    /// Whether this client still counts as waiting.
    is_waiting: bool,
}

/// The result of waiting.
#[derive(Debug)]
pub enum Waited {
    /// A response is arriving. Check with its opening whether it is the right variant; if not, ask the store again.
    Stream(Reader),
    /// A stored response was validated, or just stored. Check whether it is the right variant; if not, ask the store
    /// again.
    Hit(Arc<Object>),
    /// The leader is gone, so this client has to ask the origin.
    Lead(Lead),
    /// The response must not be stored, or its beginning is gone. Send a request of your own.
    Refused,
    /// There was no response from the origin.
    Failed,
}

impl Wait {
    pub(crate) fn new(store: Arc<Store>, flight: Arc<Flight>) -> Self {
        Self { store, flight, place: Place::default(), is_waiting: true }
    }

    /// Polls for the result. Must not be called again after it is ready.
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

/// The writer of a body. When dropped before the end, the body breaks for all readers.
#[derive(Debug)]
pub struct Fill {
    store: Arc<Store>,
    flight: Arc<Flight>,
    placing: Placing,
    is_over: bool,
}

/// Whether more of a body is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The body will be stored.
    ToStore,
    /// The body will not be stored, but clients are reading it.
    ToRead,
    /// Nobody wants the body; the fetch may end.
    No,
}

/// The result of a body that was fully received.
#[derive(Debug, Clone)]
pub enum Filled {
    /// The body was stored.
    Stored(Arc<Object>),
    /// The body exceeded the limit of one object, or the memory for all fetches.
    TooLarge,
    /// The response was purged while the body arrived.
    Purged,
    /// The length of the body contradicts its head.
    Broken,
}

impl Fill {
    /// Appends to the body. A body that is too large is not stored; this is remembered until `refused_until_seconds`.
    /// Current readers continue as long as they keep up.
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

    /// Also writes the body to the shelf, once it is known to be long. Readers use the parts meanwhile.
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

    /// Starts a body on the shelf with everything that has arrived.
    fn shelve(&self) -> Option<Box<dyn Shelving>> {
        let (body_bytes, parts) = {
            let mut progress = self.flight.progress();
            let stream = progress.stream()?;
            (stream.opening.body_bytes, stream.parts())
        };
        self.store.shelve(body_bytes, parts.iter().map(|part| &part[..]))
    }

    /// Ready when more of the body should be received: at once if it will be stored; otherwise when the fastest reader
    /// has caught up, or no reader is left.
    pub fn poll_room(&mut self, context: &Context<'_>) -> Poll<()> {
        let is_full = self.store.is_filling_full(0);
        let mut progress = self.flight.progress();
        let has_room = progress.stream().is_none_or(|stream| stream.has_room(is_full, context));
        if has_room { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Ends the body. It is stored unless it must not be.
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

/// A reader of a body while it arrives, at any speed.
#[derive(Debug)]
pub struct Reader {
    flight: Arc<Flight>,
    opening: Arc<Opening>,
    place: Place,
    next_part: usize,
    read_bytes: u64,
}

/// Why a body ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    /// The fetch failed.
    Broken,
    /// The reader was too slow for a body that is too large to be kept.
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

    /// The head of the response, and what is known of it.
    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    /// The key of the response.
    pub fn key(&self) -> Key {
        self.flight.key
    }

    /// The epoch in which the fetch began.
    pub fn epoch(&self) -> u64 {
        self.flight.epoch
    }

    /// How many bytes of the body were read.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// The next piece of the body; `None` at the end. If nothing is available, the task is woken later.
    ///
    /// # Errors
    /// The rest of the body is not available.
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
