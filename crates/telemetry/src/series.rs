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
        /// The part of the duration in which the request waited neither for its client nor for a server.
        held: Histogram,
        /// Streams by kind; empty if the route had none.
        streams: Streams,
        /// The counters of the route's cache; empty if it has none.
        cache: Rare<CacheCell>,
        /// The counters of the route's mirror; empty if it has none.
        mirror: Rare<MirrorCell>,
        /// The counters of the route's requests to an authentication server; empty if it has none.
        forward_auth: Rare<AuthCell>,
    }
}

/// In the order of `StreamKind::NAMED`.
type Streams = [Rare<StreamCell>; StreamKind::NAMED.len()];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// Server-sent events.
    Events,
    /// The responses of gRPC calls.
    Grpc,
    /// Messages from the server.
    WebSocket,
}

impl StreamKind {
    pub const NAMED: [(Self, &'static str); 3] =
        [(Self::Events, "events"), (Self::Grpc, "grpc"), (Self::WebSocket, "websocket")];
}

cell! {
    /// The counters of a route's streams of one kind.
    StreamCell {
        /// Time from the start of the request to the first byte of the stream.
        first_byte: Histogram,
        /// The longest time of a stream without any bytes.
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
        /// Copies by the status class of their response; failed ones are not included.
        responses: Classes,
        /// Copies that failed, by the proxy's index of causes.
        failures: Causes,
        /// Requests that should have been copied and were not.
        skipped: Skipped,
        /// Time from the start of a copy to the head of its response.
        first_byte: Histogram,
    }
}

cell! {
    /// The counters of requests to an authentication server.
    AuthCell {
        /// Requests by the status class of their response; failed ones are not included.
        responses: Classes,
        /// Requests that failed, by the proxy's index of causes.
        failures: Causes,
        /// Requests of clients whose decision was remembered.
        cached: Counter,
        /// Requests of clients that waited for the decision on another request.
        waits: Counter,
        /// Time from a request to the end of its response.
        duration: Histogram,
    }
}

/// Why a request was not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// The body exceeds the limit.
    BodyTooLarge,
    /// Too many copies are in progress.
    TooMany,
    /// The body was incomplete.
    Incomplete,
    /// The request asks for another protocol.
    Upgrade,
}

/// The number of requests that were not copied, by cause.
#[derive(Default)]
pub struct Skipped([Counter; 4]);

impl Skipped {
    /// In the order of the causes.
    pub const NAMES: [&'static str; 4] = ["body-too-large", "too-many", "incomplete", "upgrade"];

    pub fn count(&self, skip: Skip) {
        self.0[skip as usize].increment();
    }

    /// In the order of the names.
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
        /// Requests for which another upstream was asked instead (`on_status`).
        fallbacks: Counter,
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
    /// In the order of the classes.
    pub const NAMES: [&'static str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

    /// Counts a request by its response's status; 0 means no response.
    #[inline]
    pub fn count(&self, status: u16) {
        self.0[usize::from(status / 100).min(5)].increment();
    }

    /// In the order of the names.
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
pub struct SeriesIndex(pub(crate) u16);

impl SeriesIndex {
    /// The place for requests without a route, and for connections without a listener.
    pub const NONE: Self = Self(0);
    /// The place for everything beyond `NAMED_MAX`.
    pub const OTHER: Self = Self(1);
    /// The place for requests of other instances, on any route: clients sent them to those instances.
    pub const PEERS: Self = Self(2);
    /// The first place that a name can have.
    pub(crate) const FIRST: Self = Self(3);
}

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
    fn cell(&self, SeriesIndex(place): SeriesIndex) -> &C {
        let (piece, at) = (usize::from(place) / PIECE, usize::from(place) % PIECE);
        &self.pieces[piece].get_or_init(|| Box::new(std::array::from_fn(|_| C::default())))[at]
    }

    /// The cell, if its chunk was ever used.
    pub(crate) fn look(&self, SeriesIndex(place): SeriesIndex) -> Option<&C> {
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
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    #[inline]
    #[must_use]
    pub fn route(&self, place: SeriesIndex) -> &RouteCell {
        self.cells.routes.cell(place)
    }

    #[must_use]
    pub fn listener(&self, place: SeriesIndex) -> &ListenerCell {
        self.cells.listeners.cell(place)
    }

    #[inline]
    #[must_use]
    pub fn upstream(&self, place: SeriesIndex) -> &UpstreamCell {
        self.cells.upstreams.cell(place)
    }

    #[inline]
    #[must_use]
    pub fn server(&self, place: SeriesIndex) -> &ServerCell {
        self.cells.servers.cell(place)
    }

    /// A handle that reads the cells from any thread.
    #[must_use]
    pub fn reader(&self) -> SeriesReader {
        SeriesReader { cells: Arc::clone(&self.cells) }
    }
}

#[derive(Clone)]
pub struct SeriesReader {
    pub(crate) cells: Arc<Cells>,
}
