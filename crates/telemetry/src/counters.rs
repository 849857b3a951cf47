//! Integers that one worker writes and any thread may read. An increment is a load, an add and a store. Only one thread
//! writes, so no locked instruction is needed; a reader on another core sees whole, slightly old values.
//!
//! A metric without labels is one line in the declaration below, over which every list of counters iterates, and an
//! increment. One with labels is a field of `series` and a family of `exposition`.

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
        // On separate cache lines, so that two workers never write to the same one.
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
            fn from_fields(fields: &Fields) -> Self {
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
            pub fn each(&self) -> impl Iterator<Item = CounterRow> {
                [$(CounterRow {
                    name: stringify!($name),
                    exposed: exposed!($name $($exposed)?),
                    meaning: concat!($($help),+).trim_ascii(),
                    kind: MetricKind::$kind,
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

/// The name of a counter in the exposition. The default is its field name.
macro_rules! exposed {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident $exposed:literal) => {
        $exposed
    };
}

// The text after `as` is the name in the exposition, without prefix and `_total`. Empty if the exposition has a more
// detailed metric.
counters! {
    /// Client connections accepted since the start.
    connections_accepted: Counter as "client_connections_accepted",
    /// Client connections open now.
    connections_active: Gauge as "client_connections",
    /// Client connections refused because a limit was reached.
    connections_refused: Counter as "client_connections_refused",
    /// Times that accepting paused because file descriptors ran out.
    accept_pauses: Counter,
    /// Full TLS handshakes with clients.
    handshakes: Counter as "tls_handshakes",
    /// TLS handshakes with clients that resumed a session.
    handshakes_resumed: Counter as "tls_handshakes_resumed",
    /// TLS handshakes with clients that failed.
    handshake_failures: Counter as "tls_handshake_failures",
    /// Client connections that used HTTP/2.
    http2_connections: Counter,
    /// Client connections that used HTTP/3.
    http3_connections: Counter,
    /// QUIC connections whose client had to validate its address first.
    quic_retries: Counter,
    /// First QUIC datagrams that were not answered because too many handshakes were in progress.
    quic_unanswered: Counter,
    /// QUIC datagrams that were passed on to another worker.
    quic_passed_on: Counter as "quic_datagrams_passed_on",
    /// Client connections that were passed through to a server.
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
    /// Retries that were due, but that the retry budget did not allow.
    upstream_retries_denied: Counter,
    /// Requests for which another upstream was asked after an error (`on_status`).
    upstream_fallbacks: Counter as "",
    /// Requests shed because of the limit on requests, or because memory was short.
    requests_shed: Counter,
    /// Spans that the trace collector has accepted.
    spans_sent: Counter as "trace_spans_sent",
    /// Spans that the trace collector rejected, or that could not be sent before the proxy ended.
    spans_refused: Counter as "trace_spans_refused",
    /// Requests whose spans were not sent, because the trace collector did not keep up.
    spans_dropped: Counter as "trace_requests_dropped",
    /// Requests of a session that went to another server than before.
    sessions_moved: Counter,
    /// Requests that faults were injected into.
    faults_injected: Counter,
    /// Configuration changes that were applied.
    reloads: Counter,
    /// Configuration changes that were rejected, and changed nothing.
    reload_failures: Counter,
    /// Key sets of tokens that were fetched.
    token_key_fetches: Counter,
    /// Key sets of tokens that could not be fetched; the previous ones stay in use.
    token_key_fetch_failures: Counter,
    /// Requests that waited for a server with room.
    requests_queued: Counter,
    /// Requests whose whole body was read before a server was asked.
    requests_buffered: Counter,
    /// Buffered requests whose body went to disk.
    requests_buffered_on_disk: Counter,
    /// Memory of buffered request bodies now, in bytes.
    request_buffer_memory_bytes: Gauge,
    /// Disk space of buffered request bodies now, in bytes.
    request_buffer_disk_bytes: Gauge,
    /// Requests that were answered from the cache.
    cache_hits: Counter as "",
    /// Requests that the cache could have answered, and did not.
    cache_misses: Counter as "",
    /// Requests that waited for the response to an equal request.
    cache_waits: Counter as "",
    /// Requests answered with a stale response, because the server or the client allows it.
    cache_stale: Counter as "",
    /// Requests of the cache itself, to revalidate stale responses that it has sent.
    cache_fetches: Counter,
    /// Requests of the cache itself in progress now.
    cache_fetches_active: Gauge,
    /// Requests that were sent to another instance, because it owns their key.
    cache_peer_requests: Counter,
    /// Requests to another instance that it answered from its cache.
    cache_peer_hits: Counter,
    /// Requests to another instance that it did not answer, so that the upstream was asked.
    cache_peer_failures: Counter,
    /// Often requested responses that are kept for a while although another instance owns them.
    cache_peer_kept: Counter,
    /// Requests that this instance got from other instances.
    cache_peer_served: Counter,
    /// Bytes of requests, heads and bodies, without the framing of chunks, of HTTP/2 and of TLS.
    client_bytes_received: Counter as "client_received_bytes",
    /// Bytes of responses, counted in the same way.
    client_bytes_sent: Counter as "client_sent_bytes",
    /// Bytes of responses from servers, counted in the same way.
    upstream_bytes_received: Counter as "upstream_received_bytes",
    /// Bytes of requests to servers, counted in the same way.
    upstream_bytes_sent: Counter as "upstream_sent_bytes",
}

/// A counter with its description and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterRow {
    /// The field name of the counter.
    pub name: &'static str,
    /// The metric name, without prefix and suffix. Empty if the exposition has a more detailed metric.
    pub exposed: &'static str,
    /// The description in the exposition (`# HELP`): a single sentence.
    pub meaning: &'static str,
    pub kind: MetricKind,
    pub value: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only grows, until the process ends.
    Counter,
    /// A value that goes up and down.
    Gauge,
}

/// A value that only grows.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    #[inline]
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A value that goes up and down.
#[derive(Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    #[inline]
    pub fn decrement(&self) {
        self.subtract(1);
    }

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

    /// Sets the value, for a quantity that is counted elsewhere.
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

pub struct Causes([Counter; CAUSES_MAX]);

impl Default for Causes {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl Causes {
    /// `cause` is its index, less than `CAUSES_MAX`.
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
    fn add_all(&self, other: &Self);
    /// Subtracts earlier counts; gauges keep their value.
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
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle that reads the counters from any thread.
    #[must_use]
    pub fn reader(&self) -> CounterReader {
        CounterReader { fields: Arc::clone(&self.fields) }
    }
}

impl Deref for Counters {
    type Target = Fields;

    #[inline]
    fn deref(&self) -> &Fields {
        &self.fields
    }
}

#[derive(Clone)]
pub struct CounterReader {
    fields: Arc<Fields>,
}

impl CounterReader {
    /// The current values. They are read one by one, so they may differ by a request in progress.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::from_fields(&self.fields)
    }
}

impl Snapshot {
    /// The sum over all workers.
    pub fn sum<'r>(readers: impl IntoIterator<Item = &'r CounterReader>) -> Self {
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
    fn a_sum_is_over_all_workers() {
        let workers = [Counters::new(), Counters::new(), Counters::new()];
        let readers: Vec<CounterReader> = workers.iter().map(Counters::reader).collect();
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
        let listed: Vec<CounterRow> = Snapshot { requests: 7, ..Snapshot::default() }.each().collect();
        for (name, exposed, meaning, kind, value) in [
            ("requests", "requests_received", "Requests whose head was read.", MetricKind::Counter, 7),
            (
                "connections_active",
                "client_connections",
                "Client connections open now.",
                MetricKind::Gauge,
                0,
            ),
            ("tunnels", "tunnels", "Connections upgraded to a tunnel.", MetricKind::Counter, 0),
        ] {
            assert!(listed.contains(&CounterRow { name, exposed, meaning, kind, value }), "{name}");
        }
        assert!(listed.iter().all(|row| row.meaning.ends_with('.')));
    }

    #[test]
    #[should_panic(expected = "decremented more often")]
    fn a_gauge_below_zero_is_our_bug() {
        Counters::new().connections_active.decrement();
    }
}
