//! TCP connections of this network namespace, as the kernel lists them.

use std::collections::BTreeMap;
use std::fs;

/// The states of the kernel's list, by their number from 1.
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

/// Every connection at one moment.
pub(crate) struct Connections(Vec<Connection>);

#[derive(Clone, Copy)]
struct Connection {
    local_port: u16,
    remote_port: u16,
    state: &'static str,
}

impl Connections {
    pub(crate) fn now() -> Self {
        let list = |path| fs::read_to_string(path).unwrap_or_default();
        Self::read(&(list("/proc/net/tcp") + &list("/proc/net/tcp6")))
    }

    fn read(list: &str) -> Self {
        let connection = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            let port = |word: &str| u16::from_str_radix(word.rsplit_once(':')?.1, 16).ok();
            let (local_port, remote_port) = (port(words.next()?)?, port(words.next()?)?);
            let number = usize::from_str_radix(words.next()?, 16).ok()?;
            Some(Connection { local_port, remote_port, state: STATES.get(number.checked_sub(1)?)? })
        };
        Self(list.lines().filter_map(connection).collect())
    }

    /// Established connections that were made to one of the ports: each is listed with both of its ends here, and
    /// counted by that of the server.
    pub(crate) fn established(&self, ports: &[u16]) -> usize {
        let is_counted = |one: &&Connection| one.state == "ESTABLISHED" && ports.contains(&one.local_port);
        self.0.iter().filter(is_counted).count()
    }

    /// Ends of connections to the ports that are neither established nor listening, by state.
    pub(crate) fn others(&self, ports: &[u16]) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for one in &self.0 {
            let is_theirs = ports.contains(&one.local_port) || ports.contains(&one.remote_port);
            if is_theirs && !["ESTABLISHED", "LISTEN"].contains(&one.state) {
                *counts.entry(one.state.to_owned()).or_default() += 1;
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_once_and_a_listener_not_at_all() {
        let list = "  sl  local_address rem_address   st tx_queue\n\
                    0: 0100007F:1F90 00000000:0000 0A 00000000\n\
                    1: 0100007F:1F90 0100007F:D431 01 00000000\n\
                    2: 0100007F:D431 0100007F:1F90 01 00000000\n\
                    3: 0100007F:D432 0100007F:1F90 06 00000000\n";
        let connections = Connections::read(list);
        assert_eq!(connections.established(&[8080]), 1);
        assert_eq!(connections.established(&[9000]), 0);
        assert_eq!(connections.others(&[8080]), BTreeMap::from([("TIME_WAIT".to_owned(), 1)]));
        assert!(connections.others(&[9000]).is_empty());
    }
}
