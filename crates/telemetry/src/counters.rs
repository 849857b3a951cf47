//! Integers that one worker counts in and anyone may read. An increment is a load, an add and a store: one thread
//! writes, so no locked instruction is needed, and a reader on another core sees whole, slightly old values.
//!
//! Each counter is declared once, below; what lists them (a status page, an exposition) iterates over a `Snapshot`.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Causes of failure that can be told apart: the index is the proxy's, which knows their names.
pub const CAUSES_MAX: usize = 64;

/// Declares the counters: the fields that a worker counts in and the same fields of a snapshot.
macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident: $kind:ident,)+) => {
        /// The counters of one worker, a field each.
        // On cache lines of their own: two workers never write to the same one.
        #[derive(Default)]
        #[repr(align(128))]
        pub struct Fields {
            $($(#[doc = $help])+ pub $name: $kind,)+
            failures: Failures,
        }

        /// What the counters said at one moment, of one worker or the sum of several.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Snapshot {
            $($(#[doc = $help])+ pub $name: u64,)+
            /// Failures by the proxy's index of causes.
            pub failures: [u64; CAUSES_MAX],
        }

        impl Snapshot {
            fn of(fields: &Fields) -> Self {
                Self { $($name: fields.$name.value(),)+ failures: fields.failures.values() }
            }

            fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)+
                for (sum, value) in self.failures.iter_mut().zip(other.failures) {
                    *sum = sum.wrapping_add(value);
                }
            }

            /// Every field but the failures: name, what it means, kind and value, in the order of declaration.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, Kind, u64)> {
                [$((stringify!($name), concat!($($help),+).trim_ascii(), Kind::$kind, self.$name),)+].into_iter()
            }
        }

        impl Default for Snapshot {
            fn default() -> Self {
                Self { $($name: 0,)+ failures: [0; CAUSES_MAX] }
            }
        }
    };
}

counters! {
    /// Client connections accepted.
    connections_accepted: Counter,
    /// Client connections open now.
    connections_active: Gauge,
    /// Client connections refused because a limit was reached.
    connections_refused: Counter,
    /// Times that accepting paused for want of file descriptors.
    accept_pauses: Counter,
    /// TLS handshakes with clients, in full.
    handshakes: Counter,
    /// TLS handshakes with clients that resumed a session.
    handshakes_resumed: Counter,
    /// TLS handshakes with clients that failed.
    handshake_failures: Counter,
    /// Client connections that spoke HTTP/2.
    http2_connections: Counter,
    /// Requests whose head was read.
    requests: Counter,
    /// Requests being served now.
    requests_active: Gauge,
    /// Connections upgraded to a tunnel.
    tunnels: Counter,
    /// Interim responses (1xx).
    responses_informational: Counter,
    /// Responses of class 2xx.
    responses_success: Counter,
    /// Responses of class 3xx.
    responses_redirection: Counter,
    /// Responses of class 4xx.
    responses_client_error: Counter,
    /// Responses of class 5xx.
    responses_server_error: Counter,
    /// Connections to servers established.
    upstream_connects: Counter,
    /// Connections to servers that could not be established.
    upstream_connect_failures: Counter,
    /// Requests sent on a pooled connection.
    upstream_reuses: Counter,
    /// Connections to servers open now, busy and idle; counted once a second.
    upstream_connections_active: Gauge,
    /// Attempts after the first.
    upstream_retries: Counter,
    /// Bytes of requests, heads and bodies, without the framing of chunks, of HTTP/2 and of TLS.
    client_bytes_received: Counter,
    /// Bytes of responses, counted likewise.
    client_bytes_sent: Counter,
    /// Bytes of responses as servers sent them, counted likewise.
    upstream_bytes_received: Counter,
    /// Bytes of requests as servers were sent them, counted likewise.
    upstream_bytes_sent: Counter,
}

/// Whether a value only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Grows until the process ends.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// A number that only grows.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// `count` more.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number of things that are there now.
#[derive(Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// One more.
    #[inline]
    pub fn increment(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// One less. Every decrement follows its increment on the same worker.
    #[inline]
    pub fn decrement(&self) {
        let value = self.0.load(Ordering::Relaxed);
        assert!(value > 0, "a gauge was decremented more often than incremented");
        self.0.store(value - 1, Ordering::Relaxed);
    }

    /// As many as were counted elsewhere.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// How many there are: the owner's own view.
    #[inline]
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Failures([Counter; CAUSES_MAX]);

impl Default for Failures {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl Failures {
    fn values(&self) -> [u64; CAUSES_MAX] {
        std::array::from_fn(|cause| self.0[cause].value())
    }
}

impl Fields {
    /// A final or interim response of this status was sent to a client.
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

    /// Something failed for the cause with this index, less than `CAUSES_MAX`.
    pub fn failure(&self, cause: usize) {
        self.failures.0[cause].increment();
    }
}

/// The owner's handle: may move to the worker's thread, but not be shared with another.
#[derive(Default)]
pub struct Counters {
    fields: Arc<Fields>,
    one_writer: PhantomData<Cell<()>>,
}

impl Counters {
    /// All zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle to read them from any thread.
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
    /// What they say now. The fields are read one by one, so they may be apart by a request in flight.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.fields)
    }
}

impl Snapshot {
    /// All workers together.
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
            ..Snapshot::default()
        };
        expected.failures[..3].fill(1);
        expected.failures[CAUSES_MAX - 1] = 3;
        assert_eq!(sum, expected);
    }

    #[test]
    fn each_counter_is_listed_with_its_meaning() {
        let listed: Vec<_> = Snapshot { requests: 7, ..Snapshot::default() }.each().collect();
        assert!(listed.contains(&("requests", "Requests whose head was read.", Kind::Counter, 7)));
        assert!(listed.contains(&("connections_active", "Client connections open now.", Kind::Gauge, 0)));
        assert!(listed.iter().all(|(_, meaning, ..)| meaning.ends_with('.')));
    }

    #[test]
    #[should_panic(expected = "decremented more often")]
    fn a_gauge_below_zero_is_our_bug() {
        Counters::new().connections_active.decrement();
    }
}
