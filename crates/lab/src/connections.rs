//! TCP connections of this network namespace, and the part of the lab that each belongs to.

use std::collections::BTreeMap;
use std::fs;

/// TCP states, by the kernel's numbers from 1.
const STATES: [&str; 12] = [
    "ESTABLISHED",
    "SYN_SENT",
    "SYN_RECV",
    "FIN_WAIT1",
    "FIN_WAIT2",
    "TIME_WAIT",
    "CLOSE",
    "CLOSE_WAIT",
    "LAST_ACK",
    "LISTEN",
    "CLOSING",
    "NEW_SYN_RECV",
];

pub(crate) struct Connections(Vec<CountedConnection>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountedConnection {
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    state: &'static str,
}

/// Ports that identify the connections of a part of the lab.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ports {
    /// Ports that the part listens on.
    pub(crate) of: Vec<u16>,
    /// Ports of other parts that the part connects to.
    pub(crate) to: Vec<u16>,
}

impl Ports {
    /// Whether this end of a connection belongs to the part. If everything runs on one machine, the list has both ends.
    pub(crate) fn has(&self, local_port: u16, remote_port: u16) -> bool {
        self.of.contains(&local_port) || self.to.contains(&remote_port)
    }
}

impl CountedConnection {
    /// `None` for an unknown state number.
    pub(crate) fn new(local_port: u16, remote_port: u16, state: usize) -> Option<Self> {
        Some(Self { local_port, remote_port, state: STATES.get(state.checked_sub(1)?)? })
    }
}

impl FromIterator<CountedConnection> for Connections {
    fn from_iter<All: IntoIterator<Item = CountedConnection>>(all: All) -> Self {
        Self(all.into_iter().collect())
    }
}

impl Connections {
    /// Reads the connections from /proc/net, which takes milliseconds. For systems without sock_diag.
    pub(crate) fn listed() -> Self {
        let list = |path| fs::read_to_string(path).unwrap_or_default();
        Self::read(&(list("/proc/net/tcp") + &list("/proc/net/tcp6")))
    }

    fn read(list: &str) -> Self {
        let connection = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            let port = |word: &str| u16::from_str_radix(word.rsplit_once(':')?.1, 16).ok();
            let (local_port, remote_port) = (port(words.next()?)?, port(words.next()?)?);
            CountedConnection::new(local_port, remote_port, usize::from_str_radix(words.next()?, 16).ok()?)
        };
        list.lines().filter_map(connection).collect()
    }

    pub(crate) fn established(&self, ports: &Ports) -> usize {
        self.for_ports(ports).filter(|one| one.state == "ESTABLISHED").count()
    }

    /// Number of connection ends that are neither established nor listening, by state.
    pub(crate) fn others(&self, ports: &Ports) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for one in self.for_ports(ports).filter(|one| !["ESTABLISHED", "LISTEN"].contains(&one.state)) {
            *counts.entry(one.state.to_owned()).or_default() += 1;
        }
        counts
    }

    fn for_ports(&self, ports: &Ports) -> impl Iterator<Item = &CountedConnection> {
        self.0.iter().filter(|one| ports.has(one.local_port, one.remote_port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_once_for_each_of_its_ends_and_a_listener_not_at_all() {
        let list = "  sl  local_address rem_address   st tx_queue\n\
                    0: 0100007F:1F90 00000000:0000 0A 00000000\n\
                    1: 0100007F:1F90 0100007F:D431 01 00000000\n\
                    2: 0100007F:D431 0100007F:1F90 01 00000000\n\
                    3: 0100007F:D432 0100007F:1F90 06 00000000\n";
        let connections = Connections::read(list);
        let server = Ports { of: vec![8080], to: Vec::new() };
        let client = Ports { of: Vec::new(), to: vec![8080] };
        let stranger = Ports { of: vec![9000], to: vec![9000] };
        assert_eq!([&server, &client, &stranger].map(|ports| connections.established(ports)), [1, 1, 0]);
        assert_eq!(connections.others(&client), BTreeMap::from([("TIME_WAIT".to_owned(), 1)]));
        assert!(connections.others(&server).is_empty() && connections.others(&stranger).is_empty());
    }
}
