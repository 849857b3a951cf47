//! Byte counters of each proxy, exposed under Toxiproxy's names.
//!
//! Bytes count at once; Toxiproxy counts the bytes of a connection when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use telemetry::{MetricsText, Syntax, Type};
use transport::relay::RelayCounts;

use super::toxics::ByteDirection;

/// Counts since the proxy's addresses last changed.
#[derive(Debug, Clone, Default)]
pub(super) struct ProxyTraffic {
    upstream: Arc<RelayCounts>,
    downstream: Arc<RelayCounts>,
}

type Counter = fn(&RelayCounts) -> &AtomicU64;

pub(super) struct Labels<'p> {
    pub(super) proxy: &'p str,
    pub(super) listener: &'p str,
    pub(super) upstream: &'p str,
}

impl ProxyTraffic {
    pub(super) fn for_stream(&self, stream: ByteDirection) -> &Arc<RelayCounts> {
        match stream {
            ByteDirection::Upstream => &self.upstream,
            ByteDirection::Downstream => &self.downstream,
        }
    }
}

pub(super) fn written(proxies: &[(Labels<'_>, &ProxyTraffic)], syntax: Syntax) -> Vec<u8> {
    let families: [(&str, &str, Counter); 2] = [
        ("toxiproxy_proxy_received_bytes", "Bytes received, by direction.", |counts| &counts.received),
        ("toxiproxy_proxy_sent_bytes", "Bytes forwarded, by direction.", |counts| &counts.sent),
    ];
    let mut text = MetricsText::new(syntax);
    for (name, help, counter) in families {
        let mut family = text.family(name, Type::Counter, help);
        for (Labels { proxy, listener, upstream }, traffic) in proxies {
            for stream in [ByteDirection::Downstream, ByteDirection::Upstream] {
                let labels = [
                    ("direction", stream.name()),
                    ("listener", listener),
                    ("proxy", proxy),
                    ("upstream", upstream),
                ];
                family.sample(&labels, counter(traffic.for_stream(stream)).load(Ordering::Relaxed));
            }
        }
    }
    text.finish()
}
