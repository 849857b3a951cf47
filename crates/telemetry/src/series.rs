//! A worker's counters for each route, listener, upstream and server: plain integers in cells, which places index.
//!
//! Cells are allocated in chunks at first use, never move, and any thread may read them. `directory` assigns names to
//! places.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use crate::counters::{Causes, Counter, Gauge, Merge};
use crate::exemplars::Exemplars;
use crate::histogram::Histogram;

/// The number of places of each kind: for the names of a plan, and as many for the previous plan.
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
    /// The counters of a route.
    RouteCell {
        /// Requests by the status class of their response.
        requests: Classes,
        /// Time from the first byte of the request to the last byte of the response.
        duration: Histogram,
        /// Requests whose traces are recorded; empty without traces.
        exemplars: Rare<Exemplars>,
        /// How much of that the request waited neither for its client nor for a server.
        held: Histogram,
        /// Streams by kind; empty if the route had none.
        streams: Streams,
        /// The counters of the route's cache; empty if it has none.
        cache: Rare<CacheCell>,
        /// The counters of the route's mirror; empty if it has none.
        mirror: Rare<MirrorCell>,
        /// The counters of the route's questions to an authentication server; empty if it has none.
        forward_auth: Rare<AuthCell>,
    }
}

/// Streams by their kind, in the order of `StreamKind::NAMED`.
type Streams = [Rare<StreamCell>; StreamKind::NAMED.len()];

/// A kind of stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// Server-sent events.
    Events,
    /// The responses of gRPC calls.
    Grpc,
    /// WebSocket, from the server.
    WebSocket,
}

impl StreamKind {
    /// All kinds with their names.
    pub const NAMED: [(Self, &'static str); 3] =
        [(Self::Events, "events"), (Self::Grpc, "grpc"), (Self::WebSocket, "websocket")];
}

cell! {
    /// The counters of a route's streams of one kind.
    StreamCell {
        /// Time from the beginning of the request to the first byte of the stream.
        first_byte: Histogram,
        /// The longest time of a stream in which nothing came.
        longest_gap: Histogram,
    }
}

cell! {
    /// The counters of a route's cache.
    CacheCell {
        /// Requests answered from the cache.
        hits: Counter,
        /// Requests answered with a stale response, whether or not a server was asked first.
        stale: Counter,
        /// Requests that waited for the response to another request for the same resource.
        waits: Counter,
        /// Responses that were stored, or found to be still valid.
        stored: Counter,
        /// Body bytes sent from the cache.
        sent_bytes: Counter,
        /// Requests that went to a server, by the proxy's index of reasons.
        misses: Causes,
        /// Responses that were not stored, by the proxy's index of reasons.
        refusals: Causes,
    }
}

cell! {
    /// The counters of copies of a route's requests, for another upstream.
    MirrorCell {
        /// Copies by the status class of their response; none of those that failed.
        responses: Classes,
        /// Copies that failed, by the proxy's index of causes.
        failures: Causes,
        /// Requests that were not copied though it was their turn.
        skipped: Skipped,
        /// Time from when a copy was sent to the head of its response.
        first_byte: Histogram,
    }
}

cell! {
    /// The counters of questions to an authentication server.
    AuthCell {
        /// Questions by the status class of their answer; none of those that failed.
        responses: Classes,
        /// Questions that failed, by the proxy's index of causes.
        failures: Causes,
        /// Requests whose decision was remembered.
        cached: Counter,
        /// Requests that waited for the answer to another request's question.
        waits: Counter,
        /// Time from a question to its whole answer.
        duration: Histogram,
    }
}

/// Why a request was not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// The body is larger than the bound.
    BodyTooLarge,
    /// Too many copies are under way.
    TooMany,
    /// The body did not come to its end.
    Incomplete,
    /// The request asks for another protocol.
    Upgrade,
}

/// The number of requests that were not copied, by cause.
#[derive(Default)]
pub struct Skipped([Counter; 4]);

impl Skipped {
    /// The names of the causes, in order.
    pub const NAMES: [&'static str; 4] = ["body-too-large", "too-many", "incomplete", "upgrade"];

    /// Counts a request.
    pub fn count(&self, skip: Skip) {
        self.0[skip as usize].increment();
    }

    /// The counts by cause, in the order of the names.
    #[must_use]
    pub fn values(&self) -> [u64; 4] {
        std::array::from_fn(|cause| self.0[cause].value())
    }
}

impl Merge for Skipped {
    fn add_all(&self, other: &Self) {
        self.0.add_all(&other.0);
    }

    fn take_off(&self, other: &Self) {
        self.0.take_off(&other.0);
    }
}

cell! {
    /// The counters of a layer 4 listener; connections are counted when they end.
    ListenerCell {
        /// Connections that have ended.
        connections: Counter,
        /// Connections that failed, by the proxy's index of causes.
        failures: Causes,
        /// Time from the start of forwarding to the end of the connection.
        duration: Histogram,
        /// Bytes received from clients.
        bytes_received: Counter,
        /// Bytes sent to clients.
        bytes_sent: Counter,
    }
}

cell! {
    /// The counters of an upstream, over all its servers.
    UpstreamCell {
        /// Time to connect, including the TLS handshake, for connections that succeeded.
        connect: Histogram,
        /// Failed attempts, by the proxy's index of causes.
        failures: Causes,
        /// Retries, by the cause of the previous attempt's failure.
        retries: Causes,
        /// Requests in the wait queue for a server now.
        queued: Gauge,
        /// Time in the wait queue for a server, including requests that got none.
        queue: Histogram,
    }
}

cell! {
    /// The counters of a server.
    ServerCell {
        /// Attempts by the status class of the response, or without a response.
        requests: Classes,
        /// Time from the start of an attempt to the first byte of the response.
        first_byte: Histogram,
        /// Connections that carry a request now; counted once a second.
        connections_busy: Gauge,
        /// Connections in the pool now; counted once a second.
        connections_idle: Gauge,
        /// Times that the server's circuit opened.
        circuit_openings: Counter,
        /// Connections of clients that were forwarded to the server (layer 4).
        connections_passed_on: Counter,
    }
}

/// A cell that is allocated when it is first counted in.
#[derive(Default)]
pub struct Rare<C>(OnceLock<Box<C>>);

impl<C: Default> Rare<C> {
    /// The cell to count in; allocates it if necessary.
    #[inline]
    #[must_use]
    pub fn cell(&self) -> &C {
        self.0.get_or_init(Box::default)
    }

    /// The cell, if anything was counted in it.
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

/// The number of requests by status class, and of requests without a response.
#[derive(Default)]
pub struct Classes([Counter; 6]);

impl Classes {
    /// The names of the status classes, in order.
    pub const NAMES: [&'static str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

    /// Counts a request by its response's status; 0 means no response.
    #[inline]
    pub fn count(&self, status: u16) {
        self.0[usize::from(status / 100).min(5)].increment();
    }

    /// The counts by status class, in the order of the names.
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

/// The place of a route, listener, upstream or server in the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place(pub(crate) u16);

impl Place {
    /// The place for requests without a route, and for connections without a listener.
    pub const NONE: Self = Self(0);
    /// The place for everything beyond `NAMED_MAX`.
    pub const OTHER: Self = Self(1);
    /// The place for requests of other instances, whatever their routes: clients have asked those.
    pub const PEERS: Self = Self(2);
    /// The first place that a name can have.
    pub(crate) const FIRST: Self = Self(3);
}

/// All cells of one worker.
#[derive(Default)]
pub(crate) struct Cells {
    pub(crate) routes: Slab<RouteCell>,
    pub(crate) listeners: Slab<ListenerCell>,
    pub(crate) upstreams: Slab<UpstreamCell>,
    pub(crate) servers: Slab<ServerCell>,
}

/// Cells in chunks that are allocated at first use and never move.
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

    /// The cell, if its chunk was ever used.
    pub(crate) fn look(&self, Place(place): Place) -> Option<&C> {
        let (piece, at) = (usize::from(place) / PIECE, usize::from(place) % PIECE);
        Some(&self.pieces[piece].get()?[at])
    }
}

/// The cells of one worker, for that worker to write. May move to another thread, but not be shared.
#[derive(Default)]
pub struct Series {
    cells: Arc<Cells>,
    one_writer: PhantomData<Cell<()>>,
}

impl Series {
    /// Cells without any counts.
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

    /// A handle that reads the cells from any thread.
    #[must_use]
    pub fn reader(&self) -> SeriesReader {
        SeriesReader { cells: Arc::clone(&self.cells) }
    }
}

/// Reads the cells of one worker.
#[derive(Clone)]
pub struct SeriesReader {
    pub(crate) cells: Arc<Cells>,
}
