//! TCP counters of the kernel since its start, for all processes of this network namespace together.

use std::fs;

use report::results::Network;

/// The counters now. A counter that the kernel does not report is 0.
pub(crate) fn now() -> Network {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    counted(&read("/proc/net/snmp"), &read("/proc/net/netstat"), &read("/proc/net/dev"))
}

/// Differences of the counters between two readings.
pub(crate) fn since(now: Network, earlier: Network) -> Network {
    Network {
        sent_segments: now.sent_segments.saturating_sub(earlier.sent_segments),
        retransmitted_segments: now.retransmitted_segments.saturating_sub(earlier.retransmitted_segments),
        reset_connections: now.reset_connections.saturating_sub(earlier.reset_connections),
        listen_drops: now.listen_drops.saturating_sub(earlier.listen_drops),
        received_bytes: now.received_bytes.saturating_sub(earlier.received_bytes),
    }
}

fn counted(snmp: &str, netstat: &str, dev: &str) -> Network {
    Network {
        sent_segments: counter(snmp, "Tcp:", "OutSegs"),
        retransmitted_segments: counter(snmp, "Tcp:", "RetransSegs"),
        reset_connections: counter(snmp, "Tcp:", "EstabResets"),
        listen_drops: counter(netstat, "TcpExt:", "ListenDrops"),
        received_bytes: dev
            .lines()
            .filter_map(|line| line.split_once(':')?.1.split_whitespace().next()?.parse::<u64>().ok())
            .sum(),
    }
}

/// Value of a counter. The kernel writes a line of names, then a line of values, each beginning with the group.
fn counter(text: &str, group: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let at = names.split_whitespace().position(|word| word == name);
    at.and_then(|at| values.split_whitespace().nth(at)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_counters_are_found_by_name() {
        let snmp = "Ip: Forwarding\nIp: 1\nTcp: EstabResets OutSegs RetransSegs\nTcp: 3 500 7\n";
        let netstat = "TcpExt: SyncookiesSent ListenDrops\nTcpExt: 0 9\n";
        let dev = "Inter-| Receive\n face |bytes\n    lo: 1000 1 0\n  eth0: 24 2 0\n";
        let expected = Network {
            sent_segments: 500,
            retransmitted_segments: 7,
            reset_connections: 3,
            listen_drops: 9,
            received_bytes: 1024,
        };
        assert_eq!(counted(snmp, netstat, dev), expected);
        assert_eq!(counted("", "", ""), Network::default());
        let later = Network { sent_segments: 600, ..expected };
        assert_eq!(since(later, expected), Network { sent_segments: 100, ..Network::default() });
        assert!(now().sent_segments > 0 || now().received_bytes > 0, "this machine has a network");
    }
}
