//! What one worker counts for each route, listener, upstream and server: plain integers in cells, found by place.
//!
//! Cells come in pieces that are made when the first of them is asked for, stay where they are, and are read by anyone.
//! Which name has which place is the directory's to say.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use crate::counters::{Causes, Counter, Gauge, Merge};
use crate::histogram::Histogram;

/// Places for each kind of thing: those that a plan can name, and as many again for the one before it.
pub(crate) const PLACES: usize = 2048;
/// Cells in a piece.
const PIECE: usize = 16;

/// Declares a cell: counters, gauges and histograms that are merged field by field.
macro_rules! cell {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $help:literal])+ $field:ident: $kind:ty,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Default)]
        pub struct $name {
            $($(#[doc = $help])+ pub $field: $kind,)+
        }

        impl Merge for $name {
            fn add_all(&self, other: &Self) {
                $(self.$field.add_all(&other.$field);)+
            }

            fn take_off(&self, other: &Self) {
                $(self.$field.take_off(&other.$field);)+
            }
        }
    };
}

cell! {
    /// What is counted for a route.
    RouteCell {
        /// Requests by how they ended for the client.
        requests: Classes,
        /// From the first byte of the request to the last of the response.
        duration: Histogram,
        /// What its cache does; nothing where it has none.
        cache: Rare<CacheCell>,
    }
}

cell! {
    /// What is counted for the cache of a route.
    CacheCell {
        /// Requests that were answered with what was stored.
        hits: Counter,
        /// Requests that were answered with what was stale, whether or not a server had been asked.
        stale: Counter,
        /// Requests that waited for the response to another one of the same.
        waits: Counter,
        /// Responses that were stored, or found to be still good.
        stored: Counter,
        /// Of bodies that were answered from the store.
        sent_bytes: Counter,
        /// Requests that were for a server, by the proxy's index of reasons.
        misses: Causes,
        /// Responses that were not stored, by the proxy's index of reasons.
        refusals: Causes,
    }
}

cell! {
    /// What is counted for a listener whose connections are passed on, once they have ended.
    ListenerCell {
        /// Connections.
        connections: Counter,
        /// Those that failed, by the proxy's index of causes.
        failures: Causes,
        /// From when they could be passed on to their end.
        duration: Histogram,
        /// From clients.
        bytes_received: Counter,
        /// To clients.
        bytes_sent: Counter,
    }
}

cell! {
    /// What is counted for an upstream, whichever server it was.
    UpstreamCell {
        /// To connect, with the TLS handshake, where that came to a connection.
        connect: Histogram,
        /// Attempts that came to nothing, by the proxy's index of causes.
        failures: Causes,
        /// Attempts after one that failed, by the cause of that failure.
        retries: Causes,
        /// Requests that wait for a server with room now.
        queued: Gauge,
        /// How long requests waited for a server with room, those included that found none.
        queue: Histogram,
    }
}

cell! {
    /// What is counted for a server.
    ServerCell {
        /// Attempts by how they ended: the class of the answer, or none.
        requests: Classes,
        /// From the start of an attempt to the first byte of the answer.
        first_byte: Histogram,
        /// Connections that carry a request now; counted once a second.
        connections_busy: Gauge,
        /// Connections in the pool now; counted once a second.
        connections_idle: Gauge,
        /// Times that its circuit opened.
        circuit_openings: Counter,
        /// Connections of clients that were passed on to it.
        connections_passed_on: Counter,
    }
}

/// A cell that few need: made when it is first counted in.
#[derive(Default)]
pub struct Rare<C>(OnceLock<Box<C>>);

impl<C: Default> Rare<C> {
    /// To count in.
    #[inline]
    #[must_use]
    pub fn cell(&self) -> &C {
        self.0.get_or_init(Box::default)
    }

    /// What was counted, if anything was.
    #[must_use]
    pub fn look(&self) -> Option<&C> {
        self.0.get().map(AsRef::as_ref)
    }
}

impl<C: Merge + Default> Merge for Rare<C> {
    fn add_all(&self, other: &Self) {
        if let Some(other) = other.look() {
            self.cell().add_all(other);
        }
    }

    fn take_off(&self, other: &Self) {
        if let Some(other) = other.look() {
            self.cell().take_off(other);
        }
    }
}

/// How requests ended: one counter for each class of statuses, and one for none.
#[derive(Default)]
pub struct Classes([Counter; 6]);

impl Classes {
    /// The names of the classes, in order.
    pub const NAMES: [&'static str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

    /// One ended with this status; 0 for none.
    #[inline]
    pub fn count(&self, status: u16) {
        self.0[usize::from(status / 100).min(5)].increment();
    }

    /// How many there were of each class, in the order of the names.
    #[must_use]
    pub fn values(&self) -> [u64; 6] {
        std::array::from_fn(|class| self.0[class].value())
    }
}

impl Merge for Classes {
    fn add_all(&self, other: &Self) {
        self.0.add_all(&other.0);
    }

    fn take_off(&self, other: &Self) {
        self.0.take_off(&other.0);
    }
}

/// Where a route, a listener, an upstream or a server is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place(pub(crate) u16);

impl Place {
    /// For requests that belong to no route, and connections to no listener.
    pub const NONE: Self = Self(0);
    /// For all that are beyond the limit.
    pub const OTHER: Self = Self(1);
    /// The first that a name can have.
    pub(crate) const FIRST: Self = Self(2);
}

/// All cells of one worker.
#[derive(Default)]
pub(crate) struct Cells {
    pub(crate) routes: Slab<RouteCell>,
    pub(crate) listeners: Slab<ListenerCell>,
    pub(crate) upstreams: Slab<UpstreamCell>,
    pub(crate) servers: Slab<ServerCell>,
}

/// Cells in pieces that are made on first use and never move.
pub(crate) struct Slab<C> {
    pieces: Box<[OnceLock<Box<[C; PIECE]>>]>,
}

impl<C> Default for Slab<C> {
    fn default() -> Self {
        Self { pieces: (0..PLACES / PIECE).map(|_| OnceLock::new()).collect() }
    }
}

impl<C: Default> Slab<C> {
    #[inline]
    fn cell(&self, Place(place): Place) -> &C {
        let (piece, at) = (usize::from(place) / PIECE, usize::from(place) % PIECE);
        &self.pieces[piece].get_or_init(|| Box::new(std::array::from_fn(|_| C::default())))[at]
    }

    /// The cell, if any of its piece was ever counted in.
    pub(crate) fn look(&self, Place(place): Place) -> Option<&C> {
        let (piece, at) = (usize::from(place) / PIECE, usize::from(place) % PIECE);
        Some(&self.pieces[piece].get()?[at])
    }
}

/// The owner's handle: may move to the worker's thread, but not be shared with another.
#[derive(Default)]
pub struct Series {
    cells: Arc<Cells>,
    one_writer: PhantomData<Cell<()>>,
}

impl Series {
    /// Nothing counted.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The cell of a route.
    #[inline]
    #[must_use]
    pub fn route(&self, place: Place) -> &RouteCell {
        self.cells.routes.cell(place)
    }

    /// The cell of a listener.
    #[must_use]
    pub fn listener(&self, place: Place) -> &ListenerCell {
        self.cells.listeners.cell(place)
    }

    /// The cell of an upstream.
    #[inline]
    #[must_use]
    pub fn upstream(&self, place: Place) -> &UpstreamCell {
        self.cells.upstreams.cell(place)
    }

    /// The cell of a server.
    #[inline]
    #[must_use]
    pub fn server(&self, place: Place) -> &ServerCell {
        self.cells.servers.cell(place)
    }

    /// A handle to read them from any thread.
    #[must_use]
    pub fn reader(&self) -> SeriesReader {
        SeriesReader { cells: Arc::clone(&self.cells) }
    }
}

/// Reads what one worker counts.
#[derive(Clone)]
pub struct SeriesReader {
    pub(crate) cells: Arc<Cells>,
}
