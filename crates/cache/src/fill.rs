//! Request collapsing: one fetch for all clients with equal requests. One client leads it, others wait for its head,
//! and all read the body as it arrives.
//!
//! Each role has a handle. If a leader is dropped before the head arrives, a waiting client takes over; later, the body
//! breaks. Sends no requests; wakes tasks, but runs none.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::key::CacheKey;
use crate::refusal::NotStored;
use crate::store::MemoryStore;
use crate::store::marks::Mark;
use crate::store::object::{Object, Opening, SHORT_BODY_BYTES_MAX};
use crate::store::shelf::{Placing, Shelving};

/// State of a fetch, shared by all its clients.
pub(crate) mod flight;

use flight::{Flight, FlightEnd, FlightStage, FlightStream, Keeping, NextPiece, WakerSlot};

/// The leader of a fetch: asks the origin, until the head of the response is known. When dropped early, a waiting
/// client takes over.
#[derive(Debug)]
pub struct Lead {
    store: Arc<MemoryStore>,
    flight: Arc<Flight>,
    /// The stored response that must not outlive the new one.
    outdated: Option<Arc<Object>>,
    is_over: bool,
}

impl Lead {
    pub(crate) fn new(store: Arc<MemoryStore>, flight: Arc<Flight>) -> Self {
        Self { store, flight, outdated: None, is_over: false }
    }

    /// Marks a stored response as outdated. It is removed when the new one is complete, or is not stored. If the new
    /// body breaks, the server has failed, and the stored one stays.
    pub fn outdates(&mut self, stored: Option<Arc<Object>>) {
        self.outdated = stored;
    }

    /// Whether a stored response may be sent in place of a missing one. A purge of the key may have affected only this
    /// fetch, if the response was not in memory at that time.
    pub fn may_stand_in(&self, object: &Object) -> bool {
        // A hard purge that was answered must hold even while the origin fails.
        self.store.is_good(object) && (!self.flight.is_doomed() || object.is_softly_purged())
    }

    /// Starts the body of a storable response. All waiting clients get a reader, and so does the leader.
    pub fn open(mut self, opening: Opening) -> (Fill, FillReader) {
        // Parts are soon joined with others, so they do not go to the shelf.
        let placing = if opening.stored.part.is_some() { Placing::InParts } else { Placing::Short };
        let mut stream = Box::new(FlightStream::new(Arc::new(opening), self.store.filling()));
        let reader = FillReader::new(&mut stream, &self.flight);
        self.is_over = true;
        // The leader's reader exists already, so the first part is not released before it has read it.
        self.flight.advance(|progress| progress.stage = FlightStage::Streaming(stream));
        let (store, flight, outdated) = (self.store.clone(), self.flight.clone(), self.outdated.take());
        (Fill { store, flight, placing, outdated, broken: ReadError::Broken, is_over: false }, reader)
    }

    /// Ends the fetch because the response must not be stored. Waiting clients, and new ones until `until_seconds`,
    /// send separate requests.
    pub fn refuse(mut self, until_seconds: u64) {
        if let Some(outdated) = self.outdated.take() {
            self.store.withdraw(&outdated);
        }
        self.store.mark(self.flight.key, Mark::Unstorable, until_seconds);
        self.end(FlightStage::Refused);
    }

    /// Ends the fetch because there is no response, and another request would not help. Waiting clients get
    /// [`Waited::Failed`].
    pub fn fail(mut self) {
        self.end(FlightStage::Failed);
    }

    /// Stores the validated response with its new head (RFC 9111 §4.3.4). All waiting clients get it.
    pub fn renew(mut self, old: &Object, opening: Opening) -> Arc<Object> {
        let object = Arc::new(old.renewed(self.flight.epoch, opening));
        // A purge came while the origin was asked: its 304 is about a response that must not be used again.
        if !self.flight.is_doomed() {
            self.store.put(&self.flight, &object);
        }
        self.end(FlightStage::Renewed(object.clone()));
        object
    }

    /// Stores a response that was found behind the store, for example on disk. All waiting clients get it.
    pub fn restore(mut self, object: &Arc<Object>) {
        if object.weight_bytes() > self.store.object_bytes_max() {
            // Larger than memory allows now, perhaps after a change of the limit: served, but not stored.
            return self.end(FlightStage::Renewed(Arc::clone(object)));
        }
        let object = self.store.shelved(object).unwrap_or_else(|| Arc::clone(object));
        // Not `put`, which would write the response to the disk that it came from.
        self.store.put_here(&self.flight, &object);
        self.end(FlightStage::Renewed(object));
    }

    /// Ends the fetch with a validated response that answers this request, but must not be stored any longer. It is
    /// removed, and waiting clients continue as after `refuse`.
    pub fn release(mut self, old: &Object, opening: Opening, until_seconds: u64) -> Arc<Object> {
        let object = Arc::new(old.renewed(self.flight.epoch, opening));
        // RFC 9111 §3.2: the store behind still has the old head, which may be stored.
        self.store.withdraw(old);
        self.store.mark(self.flight.key, Mark::Unstorable, until_seconds);
        self.end(FlightStage::Refused);
        object
    }

    fn end(&mut self, stage: FlightStage) {
        self.is_over = true;
        self.store.land(&self.flight);
        self.flight.advance(|progress| progress.stage = stage);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.is_over {
            // The client that led may have been cancelled. The others still want the response, so one of them leads.
            self.flight.progress().stage = FlightStage::Vacant;
            self.store.hand_over(&self.flight);
        }
    }
}

/// A client that waits for the head of a fetch with another leader.
#[derive(Debug)]
pub struct HeadWait {
    store: Arc<MemoryStore>,
    flight: Arc<Flight>,
    place: WakerSlot,
    /// Whether this client still counts as waiting.
    is_waiting: bool,
}

#[derive(Debug)]
pub enum Waited {
    /// A response is arriving. Check with its opening whether it is the right variant; if not, ask the store again.
    Stream(FillReader),
    /// A stored response was validated, or just stored. Check whether it is the right variant; if not, ask the store
    /// again.
    Hit(Arc<Object>),
    /// The leader is gone, so this client has to ask the origin.
    Lead(Lead),
    /// The response must not be stored, or its first bytes are released. Send a separate request.
    Refused,
    /// There was no response from the origin.
    Failed,
}

impl HeadWait {
    pub(crate) fn new(store: Arc<MemoryStore>, flight: Arc<Flight>) -> Self {
        Self { store, flight, place: WakerSlot::default(), is_waiting: true }
    }

    /// Must not be called again after it is ready.
    pub fn poll(&mut self, context: &Context<'_>) -> Poll<Waited> {
        let mut progress = self.flight.progress();
        let waited = match &mut progress.stage {
            FlightStage::Asked => {
                progress.wait(&mut self.place, context);
                return Poll::Pending;
            }
            FlightStage::Vacant => {
                progress.stage = FlightStage::Asked;
                Waited::Lead(Lead::new(self.store.clone(), self.flight.clone()))
            }
            FlightStage::Streaming(stream) if stream.has_beginning() => {
                Waited::Stream(FillReader::new(stream, &self.flight))
            }
            // Other readers were faster, and its first bytes are released. It is stored by now, or is not kept.
            FlightStage::Streaming(stream) => {
                stream.stored().map_or(Waited::Refused, |object| Waited::Hit(Arc::clone(object)))
            }
            FlightStage::Renewed(object) => Waited::Hit(object.clone()),
            FlightStage::Refused => Waited::Refused,
            FlightStage::Failed => Waited::Failed,
        };
        progress.waiting -= 1;
        progress.leave(&self.place);
        self.is_waiting = false;
        Poll::Ready(waited)
    }
}

impl Drop for HeadWait {
    fn drop(&mut self) {
        if !self.is_waiting {
            return;
        }
        let is_vacant = {
            let mut progress = self.flight.progress();
            progress.waiting -= 1;
            progress.leave(&self.place);
            matches!(progress.stage, FlightStage::Vacant)
        };
        // The dropped leader may have woken only this client.
        if is_vacant {
            self.store.hand_over(&self.flight);
        }
    }
}

/// The writer of a body. When dropped before the end, the body breaks for all readers.
#[derive(Debug)]
pub struct Fill {
    store: Arc<MemoryStore>,
    flight: Arc<Flight>,
    placing: Placing,
    /// The stored response that must not outlive this one.
    outdated: Option<Arc<Object>>,
    /// Why the body breaks, if the writer is dropped before the end.
    broken: ReadError,
    is_over: bool,
}

/// Whether the fetch should continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyDemand {
    /// The body will be stored.
    ToStore,
    /// The body will not be stored, but clients are reading it.
    ToRead,
    /// No client reads the body; the fetch may end.
    No,
}

/// The result of a body that was fully received.
#[derive(Debug, Clone)]
pub enum Filled {
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
    pub fn push(&mut self, bytes: &[u8], refused_until_seconds: u64) -> BodyDemand {
        let mut is_refused = false;
        let mut wanted = BodyDemand::ToStore;
        let mut total_bytes = 0;
        self.flight.advance(|progress| {
            let Some(stream) = progress.stream() else { return };
            if stream.keeping == Keeping::Whole {
                let object_bytes = stream.total_bytes + bytes.len() as u64;
                is_refused = object_bytes > self.store.object_bytes_max();
                // A body beyond the limits is passed on without being kept, so that clients still get it.
                if is_refused || self.store.is_filling_full(stream.held_bytes()) {
                    stream.give_up(self.store.object_bytes_max());
                }
            }
            stream.push(bytes);
            total_bytes = stream.total_bytes;
            wanted = match stream.keeping {
                Keeping::Whole => BodyDemand::ToStore,
                Keeping::Window(_) if stream.readers > 0 => BodyDemand::ToRead,
                Keeping::Window(_) => BodyDemand::No,
            };
        });
        // Outside of `advance`, which holds the lock of the fetch: the lock of the shard is taken before it, never
        // after it.
        if is_refused {
            self.store.refuse(self.flight.key, NotStored::TooLarge);
            self.store.mark(self.flight.key, Mark::TooLarge, refused_until_seconds);
        }
        if wanted == BodyDemand::ToStore {
            self.place(bytes, total_bytes);
        } else {
            self.withdraw_outdated();
            self.placing = Placing::InParts;
            // No client can join any more, so the fetch leaves the list.
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

    fn withdraw_outdated(&mut self) {
        if let Some(outdated) = self.outdated.take() {
            self.store.withdraw(&outdated);
        }
    }

    /// Breaks the body for all readers, for this reason.
    pub fn fail(mut self, why: ReadError) {
        self.broken = why;
    }

    /// Ends the body. It is stored unless it must not be.
    pub fn finish(mut self) -> Filled {
        self.is_over = true;
        let (stream_is_kept, opening, parts, total_bytes) = {
            let mut progress = self.flight.progress();
            let Some(stream) = progress.stream() else { return Filled::Broken };
            (stream.keeping == Keeping::Whole, stream.opening.clone(), stream.parts(), stream.total_bytes)
        };
        // A body with another length than announced is incomplete, or mixed up with the next one.
        if opening.body_bytes.is_some_and(|told| told != total_bytes) {
            self.store.refuse(self.flight.key, NotStored::Incomplete);
            self.end(FlightEnd::Broken(self.broken), None);
            return Filled::Broken;
        }
        // A new response replaces the old one only if it is the same variant.
        if self.outdated.as_ref().is_some_and(|old| !old.is_variant(&opening)) {
            self.withdraw_outdated();
        }
        let filled = if stream_is_kept { self.store_whole(&opening, &parts) } else { Filled::TooLarge };
        if !matches!(filled, Filled::Stored(_)) {
            self.withdraw_outdated();
        }
        let stored = match &filled {
            // If a part was joined with another, its readers must not continue with the result.
            Filled::Stored(object) if object.stored().part == opening.stored.part => Some(Arc::clone(object)),
            _ => None,
        };
        self.end(FlightEnd::Whole, stored);
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
            // A part is in no estimate of hit rates: it answers only some requests for its key.
            return self.store.put_part(&self.flight, object).map_or(Filled::Purged, Filled::Stored);
        }
        self.store.survey_miss(&object);
        // Head and labels count, too, so this may fail although the body alone was within the limit.
        if object.weight_bytes() > self.store.object_bytes_max() {
            self.store.refuse(self.flight.key, NotStored::TooLarge);
            return Filled::TooLarge;
        }
        let object = Arc::new(object);
        if self.store.put(&self.flight, &object) {
            return Filled::Stored(object);
        }
        self.store.refuse(self.flight.key, NotStored::Purged);
        Filled::Purged
    }

    fn end(&self, end: FlightEnd, stored: Option<Arc<Object>>) {
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
                // The next request then asks only for the rest (RFC 9111 §3.3).
                self.store.put_rest_of(&self.flight, &opening, &parts);
            }
            self.store.refuse(self.flight.key, NotStored::Incomplete);
            self.end(FlightEnd::Broken(self.broken), None);
        }
    }
}

/// A reader of a body while it arrives, at any speed.
#[derive(Debug)]
pub struct FillReader {
    flight: Arc<Flight>,
    opening: Arc<Opening>,
    place: WakerSlot,
    next_part: usize,
    read_bytes: u64,
}

/// Why a body ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    Broken,
    /// The framing of the body is malformed.
    Malformed,
    /// The body is not in the content coding that its head names.
    Undecodable,
    /// The origin stopped in the middle of the body.
    Stalled,
    /// The reader was too slow for a body that is too large to be kept.
    Behind,
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Broken => "the fetch of this response ended early",
            Self::Malformed => "the framing of this response is malformed",
            Self::Undecodable => "the body of this response is not in the content coding that its head names",
            Self::Stalled => "the origin stopped in the middle of this response",
            Self::Behind => "the client was too slow for a response that is too large to be kept",
        })
    }
}

impl std::error::Error for ReadError {}

impl FillReader {
    pub(crate) fn new(stream: &mut FlightStream, flight: &Arc<Flight>) -> Self {
        stream.readers += 1;
        Self {
            flight: flight.clone(),
            opening: stream.opening.clone(),
            place: WakerSlot::default(),
            next_part: 0,
            read_bytes: 0,
        }
    }

    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    pub fn key(&self) -> CacheKey {
        self.flight.key
    }

    /// The epoch in which the fetch began.
    pub fn epoch(&self) -> u64 {
        self.flight.epoch
    }

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
            None => NextPiece::Ended(FlightEnd::Broken(ReadError::Broken)),
        };
        match next {
            NextPiece::Part(part) => {
                self.next_part += 1;
                self.read_bytes += part.len() as u64;
                let filler = progress.stream().and_then(|stream| stream.taken(self.read_bytes));
                // A waker may run code of another task, which must not meet this lock.
                drop(progress);
                filler.into_iter().for_each(Waker::wake);
                Poll::Ready(Some(Ok(part)))
            }
            NextPiece::Wait => {
                progress.wait(&mut self.place, context);
                Poll::Pending
            }
            NextPiece::Ended(FlightEnd::Whole) => Poll::Ready(None),
            NextPiece::Ended(FlightEnd::Broken(why)) => Poll::Ready(Some(Err(why))),
            NextPiece::Gone => Poll::Ready(Some(Err(ReadError::Behind))),
        }
    }
}

impl Drop for FillReader {
    fn drop(&mut self) {
        let mut progress = self.flight.progress();
        progress.leave(&self.place);
        let filler = progress.stream().and_then(|stream| stream.leave(self.next_part));
        drop(progress);
        filler.into_iter().for_each(Waker::wake);
    }
}
