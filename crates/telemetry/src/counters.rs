//! Integers that one worker counts in and anyone may read. An increment is a load, an add and a store: one thread
//! writes, so no locked instruction is needed, and a reader on another core sees whole, slightly old values.
//!
//! A metric without labels is one line of the declaration below, which whatever lists counters iterates over, and an
//! increment where it happens. One with labels is a field of `series` and a family of `exposition`.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The maximum number of causes of failure. The proxy assigns the indices and the words.
pub const CAUSES_MAX: usize = 112;

/// Declares the counters: the fields that a worker counts in and the same fields of a snapshot.
macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident: $kind:ident $(as $exposed:literal)?,)+) => {
        /// The counters of one worker, a field each.
        // On cache lines of their own: two workers never write to the same one.
        #[derive(Default)]
        #[repr(align(128))]
        pub struct Fields {
            $($(#[doc = $help])+ pub $name: $kind,)+
            failures: Causes,
            retries: Causes,
        }

        /// The values of all counters at one moment, for one worker or the sum of several.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Snapshot {
            $($(#[doc = $help])+ pub $name: u64,)+
            /// Failures by the index of their cause.
            pub failures: [u64; CAUSES_MAX],
            /// Retries by the index of the cause of the previous attempt's failure.
            pub retries: [u64; CAUSES_MAX],
        }

        impl Snapshot {
            fn of(fields: &Fields) -> Self {
                Self {
                    $($name: fields.$name.value(),)+
                    failures: fields.failures.values(),
                    retries: fields.retries.values(),
                }
            }

            fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)+
                for (sums, values) in
                    [(&mut self.failures, &other.failures), (&mut self.retries, &other.retries)]
                {
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum = sum.wrapping_add(*value);
                    }
                }
            }

            /// All counters except those by cause, in the order of their declaration.
            pub fn each(&self) -> impl Iterator<Item = Row> {
                [$(Row {
                    name: stringify!($name),
                    exposed: exposed!($name $($exposed)?),
                    meaning: concat!($($help),+).trim_ascii(),
                    kind: Kind::$kind,
                    value: self.$name,
                },)+].into_iter()
            }
        }

        impl Default for Snapshot {
            fn default() -> Self {
                Self { $($name: 0,)+ failures: [0; CAUSES_MAX], retries: [0; CAUSES_MAX] }
            }
        }
    };
}

/// The name of a counter in the exposition: its own, if none is given.
macro_rules! exposed {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident $exposed:literal) => {
        $exposed
    };
}

// Behind `as` stands the name in the exposition, without prefix and `_total`; none if it is told there in more detail.
counters! {
    /// Client connections accepted.
    connections_accepted: Counter as "client_connections_accepted",
    /// Client connections open now.
    connections_active: Gauge as "client_connections",
    /// Client connections refused because a limit was reached.
    connections_refused: Counter as "client_connections_refused",
    /// Times that accepting paused for want of file descriptors.
    accept_pauses: Counter,
    /// TLS handshakes with clients, in full.
    handshakes: Counter as "tls_handshakes",
    /// TLS handshakes with clients that resumed a session.
    handshakes_resumed: Counter as "tls_handshakes_resumed",
    /// TLS handshakes with clients that failed.
    handshake_failures: Counter as "tls_handshake_failures",
    /// Client connections that spoke HTTP/2.
    http2_connections: Counter,
    /// Client connections that spoke HTTP/3.
    http3_connections: Counter,
    /// Connections of QUIC that had to validate their address first.
    quic_retries: Counter,
    /// First datagrams of QUIC without an answer, because too many handshakes were under way.
    quic_unanswered: Counter,
    /// Datagrams of QUIC that were passed on to another worker.
    quic_passed_on: Counter as "quic_datagrams_passed_on",
    /// Client connections passed on as they are.
    connections_passed_on: Counter,
    /// Requests whose head was read.
    requests: Counter as "requests_received",
    /// Requests being served now.
    requests_active: Gauge,
    /// Connections upgraded to a tunnel.
    tunnels: Counter,
    /// Interim responses (1xx).
    responses_informational: Counter,
    /// Responses of class 2xx.
    responses_success: Counter as "",
    /// Responses of class 3xx.
    responses_redirection: Counter as "",
    /// Responses of class 4xx.
    responses_client_error: Counter as "",
    /// Responses of class 5xx.
    responses_server_error: Counter as "",
    /// Connections to servers established.
    upstream_connects: Counter,
    /// Connections to servers that could not be established.
    upstream_connect_failures: Counter,
    /// Requests sent on a pooled connection.
    upstream_reuses: Counter,
    /// Connections to servers open now, busy and idle; counted once a second.
    upstream_connections_active: Gauge as "",
    /// Attempts after the first.
    upstream_retries: Counter as "",
    /// Attempts after the first that were due, but that the budget for them did not allow.
    upstream_retries_denied: Counter,
    /// Requests turned away because more were under way than the proxy or its memory can take.
    requests_shed: Counter,
    /// Spans that the collector of traces has taken.
    spans_sent: Counter as "trace_spans_sent",
    /// Spans that the collector of traces refused, or that the proxy's end left no time for.
    spans_refused: Counter as "trace_spans_refused",
    /// Requests whose spans were not sent, because the collector did not keep up.
    spans_dropped: Counter as "trace_requests_dropped",
    /// Requests of a session that went to another server than the one that it had.
    sessions_moved: Counter,
    /// Requests with which something went wrong on purpose.
    faults_injected: Counter,
    /// Changes of the configuration that were taken over.
    reloads: Counter,
    /// Changes of the configuration that were refused, and changed nothing.
    reload_failures: Counter,
    /// Key sets of tokens that were fetched.
    token_key_fetches: Counter,
    /// Key sets of tokens that could not be fetched; the last ones stay in use.
    token_key_fetch_failures: Counter,
    /// Requests that waited for a server with room.
    requests_queued: Counter,
    /// Requests whose body was read as a whole before a server was asked.
    requests_buffered: Counter,
    /// Those of them whose body went to disk.
    requests_buffered_on_disk: Counter,
    /// Memory of buffered request bodies now, in bytes.
    request_buffer_memory_bytes: Gauge,
    /// Disk space of buffered request bodies now, in bytes.
    request_buffer_disk_bytes: Gauge,
    /// Requests that were answered from the cache.
    cache_hits: Counter as "",
    /// Requests that the cache could have answered, and did not.
    cache_misses: Counter as "",
    /// Requests that waited for the response to another one of the same.
    cache_waits: Counter as "",
    /// Requests that were answered with what was stale, because the server or the client allows it.
    cache_stale: Counter as "",
    /// Requests of the cache itself, to revalidate what was answered with while stale.
    cache_fetches: Counter,
    /// Those under way now.
    cache_fetches_active: Gauge,
    /// Requests that another instance was asked for, because it owns their key.
    cache_peer_requests: Counter,
    /// Those of them that it has answered from its cache.
    cache_peer_hits: Counter,
    /// Those of them that it did not answer, and that the upstream was asked for.
    cache_peer_failures: Counter,
    /// Responses that are kept for a while though another instance owns them, since they are asked for often.
    cache_peer_kept: Counter,
    /// Requests that other instances have asked this one for.
    cache_peer_served: Counter,
    /// Bytes of requests, heads and bodies, without the framing of chunks, of HTTP/2 and of TLS.
    client_bytes_received: Counter as "client_received_bytes",
    /// Bytes of responses, counted likewise.
    client_bytes_sent: Counter as "client_sent_bytes",
    /// Bytes of responses as servers sent them, counted likewise.
    upstream_bytes_received: Counter as "upstream_received_bytes",
    /// Bytes of requests as servers were sent them, counted likewise.
    upstream_bytes_sent: Counter as "upstream_sent_bytes",
}

/// A counter with its description and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The field name of the counter.
    pub name: &'static str,
    /// The metric name, without prefix and suffix. Empty if the exposition has a more detailed metric.
    pub exposed: &'static str,
    /// The description of the counter: one sentence.
    pub meaning: &'static str,
    /// The kind of metric.
    pub kind: Kind,
    /// The current value.
    pub value: u64,
}

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value that only grows, until the process ends.
    Counter,
    /// A value that goes up and down.
    Gauge,
}

/// A counter: a value that only grows.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// The current value.
    #[inline]
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A gauge: a value that goes up and down.
#[derive(Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds one.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Subtracts one.
    #[inline]
    pub fn decrement(&self) {
        self.subtract(1);
    }

    /// Adds `count`.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// Subtracts `count`, which the same worker has added before.
    #[inline]
    pub fn subtract(&self, count: u64) {
        let value = self.0.load(Ordering::Relaxed);
        assert!(value >= count, "a gauge was decremented more often than incremented");
        self.0.store(value - count, Ordering::Relaxed);
    }

    /// Sets the value, for things that are counted elsewhere.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The current value, for the worker that owns the gauge.
    #[inline]
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters by cause of failure.
pub struct Causes([Counter; CAUSES_MAX]);

impl Default for Causes {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl Causes {
    /// Counts a cause. `cause` is its index, less than `CAUSES_MAX`.
    pub fn count(&self, cause: usize) {
        self.0[cause].increment();
    }

    /// The counts by index of the cause.
    #[must_use]
    pub fn values(&self) -> [u64; CAUSES_MAX] {
        std::array::from_fn(|cause| self.0[cause].value())
    }
}

/// Merges the counts of several workers into a total.
pub(crate) trait Merge {
    /// Adds all that `other` has.
    fn add_all(&self, other: &Self);
    /// Takes off what `other` had counted before; what is there now stays.
    fn take_off(&self, other: &Self);
}

impl Merge for Counter {
    fn add_all(&self, other: &Self) {
        self.add(other.value());
    }

    fn take_off(&self, other: &Self) {
        self.add(other.value().wrapping_neg());
    }
}

impl Merge for Gauge {
    fn add_all(&self, other: &Self) {
        self.set(self.value().wrapping_add(other.value()));
    }

    fn take_off(&self, _: &Self) {}
}

impl<T: Merge, const N: usize> Merge for [T; N] {
    fn add_all(&self, other: &Self) {
        self.iter().zip(other).for_each(|(own, other)| own.add_all(other));
    }

    fn take_off(&self, other: &Self) {
        self.iter().zip(other).for_each(|(own, other)| own.take_off(other));
    }
}

impl Merge for Causes {
    fn add_all(&self, other: &Self) {
        self.0.add_all(&other.0);
    }

    fn take_off(&self, other: &Self) {
        self.0.take_off(&other.0);
    }
}

impl Fields {
    /// Counts a final or interim response to a client by its status.
    #[inline]
    pub fn response(&self, status: u16) {
        match status / 100 {
            1 => self.responses_informational.increment(),
            2 => self.responses_success.increment(),
            3 => self.responses_redirection.increment(),
            4 => self.responses_client_error.increment(),
            _ => self.responses_server_error.increment(),
        }
    }

    /// Counts a failure by the index of its cause, less than `CAUSES_MAX`.
    pub fn failure(&self, cause: usize) {
        self.failures.count(cause);
    }

    /// Counts a retry by the index of the cause of the previous attempt's failure.
    pub fn retry(&self, cause: usize) {
        self.upstream_retries.increment();
        self.retries.count(cause);
    }
}

/// The counters of one worker, for that worker to write. May move to another thread, but not be shared.
#[derive(Default)]
pub struct Counters {
    fields: Arc<Fields>,
    one_writer: PhantomData<Cell<()>>,
}

impl Counters {
    /// Counters at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle that reads the counters from any thread.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader { fields: Arc::clone(&self.fields) }
    }
}

impl Deref for Counters {
    type Target = Fields;

    #[inline]
    fn deref(&self) -> &Fields {
        &self.fields
    }
}

/// Reads the counters of one worker.
#[derive(Clone)]
pub struct Reader {
    fields: Arc<Fields>,
}

impl Reader {
    /// The current values. They are read one by one, so they may differ by a request in flight.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.fields)
    }
}

impl Snapshot {
    /// The sum over all workers.
    pub fn sum<'r>(readers: impl IntoIterator<Item = &'r Reader>) -> Self {
        let mut sum = Self::default();
        for reader in readers {
            sum.add(&reader.snapshot());
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_what_all_workers_counted() {
        let workers = [Counters::new(), Counters::new(), Counters::new()];
        let readers: Vec<Reader> = workers.iter().map(Counters::reader).collect();
        std::thread::scope(|scope| {
            for (number, worker) in workers.into_iter().enumerate() {
                scope.spawn(move || {
                    for _ in 0..1000 {
                        worker.requests.increment();
                        worker.client_bytes_sent.add(128);
                        worker.connections_active.increment();
                        worker.response(200 + 100 * number as u16);
                    }
                    worker.connections_active.decrement();
                    worker.failure(number);
                    worker.failure(CAUSES_MAX - 1);
                    worker.retry(1);
                });
            }
        });

        let sum = Snapshot::sum(&readers);
        let mut expected = Snapshot {
            requests: 3000,
            client_bytes_sent: 384_000,
            connections_active: 2997,
            responses_success: 1000,
            responses_redirection: 1000,
            responses_client_error: 1000,
            upstream_retries: 3,
            ..Snapshot::default()
        };
        expected.failures[..3].fill(1);
        expected.failures[CAUSES_MAX - 1] = 3;
        expected.retries[1] = 3;
        assert_eq!(sum, expected);
    }

    #[test]
    fn each_counter_is_listed_with_its_meaning() {
        let listed: Vec<Row> = Snapshot { requests: 7, ..Snapshot::default() }.each().collect();
        for (name, exposed, meaning, kind, value) in [
            ("requests", "requests_received", "Requests whose head was read.", Kind::Counter, 7),
            ("connections_active", "client_connections", "Client connections open now.", Kind::Gauge, 0),
            ("tunnels", "tunnels", "Connections upgraded to a tunnel.", Kind::Counter, 0),
        ] {
            assert!(listed.contains(&Row { name, exposed, meaning, kind, value }), "{name}");
        }
        assert!(listed.iter().all(|row| row.meaning.ends_with('.')));
    }

    #[test]
    #[should_panic(expected = "decremented more often")]
    fn a_gauge_below_zero_is_our_bug() {
        Counters::new().connections_active.decrement();
    }
}
