//! Byte counters of each proxy, exposed under Toxiproxy's names.
//!
//! Bytes count at once; Toxiproxy counts the bytes of a connection when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use telemetry::{Syntax, Text, Type};
use transport::relay::Counts;

use super::toxics::Stream;

/// The byte counters of a proxy, since its addresses last changed.
#[derive(Debug, Clone, Default)]
pub(super) struct Traffic {
    upstream: Arc<Counts>,
    downstream: Arc<Counts>,
}

/// One of them.
type Counter = fn(&Counts) -> &AtomicU64;

/// The labels of a proxy's counters.
pub(super) struct Labels<'p> {
    pub(super) proxy: &'p str,
    pub(super) listener: &'p str,
    pub(super) upstream: &'p str,
}

impl Traffic {
    pub(super) fn of(&self, stream: Stream) -> &Arc<Counts> {
        match stream {
            Stream::Upstream => &self.upstream,
            Stream::Downstream => &self.downstream,
        }
    }
}

/// Writes the byte counters of proxies as Prometheus text.
pub(super) fn written(proxies: &[(Labels<'_>, &Traffic)], syntax: Syntax) -> Vec<u8> {
    let families: [(&str, &str, Counter); 2] = [
        ("toxiproxy_proxy_received_bytes", "Bytes that came in, by where they are going.", |counts| {
            &counts.received
        }),
        ("toxiproxy_proxy_sent_bytes", "Bytes that were passed on, by where they are going.", |counts| {
            &counts.sent
        }),
    ];
    let mut text = Text::new(syntax);
    for (name, help, counter) in families {
        let mut family = text.family(name, Type::Counter, help);
        for (Labels { proxy, listener, upstream }, traffic) in proxies {
            for stream in [Stream::Downstream, Stream::Upstream] {
                let labels = [
                    ("direction", stream.name()),
                    ("listener", listener),
                    ("proxy", proxy),
                    ("upstream", upstream),
                ];
                family.sample(&labels, counter(traffic.of(stream)).load(Ordering::Relaxed));
            }
        }
    }
    text.finish()
}
