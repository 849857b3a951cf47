//! TCP connections of this network namespace, as the kernel lists them.

use std::fs;

/// `ESTABLISHED` in the kernel's list.
const ESTABLISHED: &str = "01";

/// Established connections that were made to one of the ports: each is listed with both of its ends here, and counted
/// by that of the server.
pub(crate) fn established(ports: &[u16]) -> usize {
    let list = |path| fs::read_to_string(path).unwrap_or_default();
    count(&list("/proc/net/tcp"), ports) + count(&list("/proc/net/tcp6"), ports)
}

fn count(list: &str, ports: &[u16]) -> usize {
    let is_counted = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next(), words.nth(1));
        let port = local.and_then(|local| u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok());
        state == Some(ESTABLISHED) && port.is_some_and(|port| ports.contains(&port))
    };
    list.lines().skip(1).filter(is_counted).count()
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
                    3: 0100007F:1F90 0100007F:D432 06 00000000\n";
        assert_eq!(count(list, &[8080]), 1);
        assert_eq!(count(list, &[9000]), 0);
    }
}
