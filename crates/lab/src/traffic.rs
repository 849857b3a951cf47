//! TCP connections with their byte counts, as `ss -ti` shows them, read over sock_diag (netlink).
//!
//! The counts of a socket end with the socket: bytes sent after the last sample are not counted.

use std::collections::HashMap;

use report::results::TcpTraffic;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use crate::connections::{Connections, CountedConnection, Ports};

/// Maximum size of a netlink message.
const PIECE_BYTES: usize = 64 * 1024;

// The kernel's names are NLMSG_ERROR, NLMSG_DONE and SOCK_DIAG_BY_FAMILY.
const REFUSED: u16 = 2;
const DONE: u16 = 3;
const SOCKETS_OF_A_FAMILY: u16 = 20;
/// NLM_F_REQUEST and NLM_F_DUMP.
const REQUEST_ALL: u16 = 0x301;
/// INET_DIAG_INFO, the attribute with the counts.
const COUNTS: u16 = 2;
const TCP: u8 = 6;
/// States of sockets without a connection: CLOSE and LISTEN.
const STATES_WITHOUT: u32 = 1 << 7 | 1 << 10;

/// Offsets in a message, in its socket description, and in its counts.
const HEADER_BYTES: usize = 16;
const SOCKET_BYTES: usize = 72;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
const STATE_AT: usize = 1;
const LOCAL_PORT_AT: usize = 4;
const REMOTE_PORT_AT: usize = 6;
const COOKIE_AT: usize = 44;
const SENT_AGAIN_AT: usize = 100;
const ACKNOWLEDGED_AT: usize = 120;
const RECEIVED_AT: usize = 128;

/// All connections of this network namespace at one moment.
pub(crate) struct Sockets(Vec<TrafficSocket>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TrafficSocket {
    /// Kernel's unique identifier of a socket.
    cookie: u64,
    connection: CountedConnection,
    /// `None` if the kernel does not count yet or any more.
    counted: Option<TcpTraffic>,
}

/// Counts of a part's connections at the last sample.
#[derive(Debug, Clone, Default)]
pub(crate) struct PartTraffic(HashMap<u64, TcpTraffic>);

impl Sockets {
    /// Reads all connections; `None` if the kernel does not report them.
    pub(crate) fn now() -> Option<Self> {
        let asking = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        );
        let asking = asking.ok()?;
        let mut sockets = Vec::new();
        let mut piece = vec![0; PIECE_BYTES];
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            send(&asking, &request(family), SendFlags::empty()).ok()?;
            loop {
                let (bytes, _) = recv(&asking, piece.as_mut_slice(), RecvFlags::empty()).ok()?;
                match read(&piece[..bytes], &mut sockets)? {
                    ListRest::Follows => {}
                    ListRest::Nothing => break,
                }
            }
        }
        Some(Self(sockets))
    }

    pub(crate) fn connections(&self) -> Connections {
        self.0.iter().map(|socket| socket.connection).collect()
    }
}

impl PartTraffic {
    /// Begins with the present counts, so that only later traffic is counted.
    pub(crate) fn begin(sockets: Option<&Sockets>, ports: &Ports) -> Self {
        let mut counted = Self::default();
        if let Some(sockets) = sockets {
            counted.since_last(sockets, ports);
        }
        counted
    }

    /// Traffic since the last sample, over the connections that exist now; all traffic of a new connection.
    pub(crate) fn since_last(&mut self, sockets: &Sockets, ports: &Ports) -> TcpTraffic {
        let mut sum = TcpTraffic::default();
        let theirs = sockets.0.iter().filter(|TrafficSocket { connection, .. }| {
            ports.has(connection.local_port, connection.remote_port)
        });
        let now = theirs.filter_map(|socket| Some((socket.cookie, socket.counted?))).collect();
        let before = std::mem::replace(&mut self.0, now);
        for (cookie, now) in &self.0 {
            let before = before.get(cookie).copied().unwrap_or_default();
            sum.received_bytes += now.received_bytes.saturating_sub(before.received_bytes);
            sum.sent_bytes += now.sent_bytes.saturating_sub(before.sent_bytes);
            sum.segments_sent_again += now.segments_sent_again.saturating_sub(before.segments_sent_again);
        }
        sum
    }
}

/// Netlink request for all TCP sockets of an address family, with their counts.
fn request(family: AddressFamily) -> [u8; REQUEST_BYTES] {
    let mut request = [0; REQUEST_BYTES];
    request[..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&SOCKETS_OF_A_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST_ALL.to_ne_bytes());
    // Both families have numbers below 256.
    request[HEADER_BYTES] = family.as_raw() as u8;
    request[HEADER_BYTES + 1] = TCP;
    request[HEADER_BYTES + 2] = 1 << (COUNTS - 1);
    request[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&(!STATES_WITHOUT).to_ne_bytes());
    request
}

/// Whether more messages of a list follow.
#[derive(Debug, PartialEq, Eq)]
enum ListRest {
    Follows,
    Nothing,
}

/// Reads the sockets in a message. `None` if the kernel reports an error.
fn read(mut piece: &[u8], sockets: &mut Vec<TrafficSocket>) -> Option<ListRest> {
    while let Some(length) = u32_at(piece, 0) {
        let length = (length as usize).clamp(HEADER_BYTES, piece.len().max(HEADER_BYTES));
        let message = piece.get(..length)?;
        match u16_at(message, 4)? {
            DONE => return Some(ListRest::Nothing),
            REFUSED => return None,
            _ => sockets.extend(socket(&message[HEADER_BYTES..])),
        }
        piece = piece.get(aligned(length)..).unwrap_or_default();
    }
    Some(ListRest::Follows)
}

/// Parses a socket, with its counts if present.
fn socket(message: &[u8]) -> Option<TrafficSocket> {
    let attributes = message.get(SOCKET_BYTES..)?;
    let port = |at: usize| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?));
    let state = usize::from(*message.get(STATE_AT)?);
    Some(TrafficSocket {
        cookie: u64_at(message, COOKIE_AT)?,
        connection: CountedConnection::new(port(LOCAL_PORT_AT)?, port(REMOTE_PORT_AT)?, state)?,
        counted: counted(attributes),
    })
}

/// Finds the counts among the attributes of a socket. `None` if they are missing or too short.
fn counted(mut attributes: &[u8]) -> Option<TcpTraffic> {
    let counts = loop {
        let length = usize::from(u16_at(attributes, 0)?);
        let value = attributes.get(ATTRIBUTE_HEADER_BYTES..length)?;
        if u16_at(attributes, 2)? == COUNTS {
            break value;
        }
        attributes = attributes.get(aligned(length)..)?;
    };
    Some(TcpTraffic {
        received_bytes: u64_at(counts, RECEIVED_AT)?,
        sent_bytes: u64_at(counts, ACKNOWLEDGED_AT)?,
        segments_sent_again: u32_at(counts, SENT_AGAIN_AT)?.into(),
    })
}

/// Rounds up to a multiple of four, the alignment of netlink.
fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    fn message(kind: u16, local_port: u16, attribute: u16, counts: &[u8]) -> Vec<u8> {
        let length = HEADER_BYTES + SOCKET_BYTES + ATTRIBUTE_HEADER_BYTES + counts.len();
        let mut message = vec![0; length];
        message[..4].copy_from_slice(&(length as u32).to_ne_bytes());
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER_BYTES + STATE_AT] = 1;
        message[HEADER_BYTES + LOCAL_PORT_AT..][..2].copy_from_slice(&local_port.to_be_bytes());
        message[HEADER_BYTES + COOKIE_AT..][..8].copy_from_slice(&u64::from(local_port).to_ne_bytes());
        let rest = &mut message[HEADER_BYTES + SOCKET_BYTES..];
        rest[..2].copy_from_slice(&((ATTRIBUTE_HEADER_BYTES + counts.len()) as u16).to_ne_bytes());
        rest[2..4].copy_from_slice(&attribute.to_ne_bytes());
        rest[ATTRIBUTE_HEADER_BYTES..].copy_from_slice(counts);
        message
    }

    fn counts() -> Vec<u8> {
        let mut counts = vec![0; 136];
        counts[SENT_AGAIN_AT] = 3;
        counts[ACKNOWLEDGED_AT..][..8].copy_from_slice(&700_u64.to_ne_bytes());
        counts[RECEIVED_AT..][..8].copy_from_slice(&5_000_000_000_u64.to_ne_bytes());
        counts
    }

    #[test]
    fn a_list_is_read_to_its_end() {
        let own = TcpTraffic { received_bytes: 5_000_000_000, sent_bytes: 700, segments_sent_again: 3 };
        let of = |local_port: u16| message(SOCKETS_OF_A_FAMILY, local_port, COUNTS, &counts());
        let mut sockets = Vec::new();
        let piece = [of(80), of(81)].concat();
        assert_eq!(read(&piece, &mut sockets), Some(ListRest::Follows));
        assert_eq!(
            sockets.iter().map(|one| (one.connection.local_port, one.counted)).collect::<Vec<_>>(),
            [(80, Some(own)), (81, Some(own))]
        );
        let last = [of(82), message(DONE, 0, 0, &[]), of(83)].concat();
        assert_eq!((read(&last, &mut sockets), sockets.len()), (Some(ListRest::Nothing), 3));
        assert_eq!(read(&message(REFUSED, 0, 0, &[]), &mut sockets), None);
    }

    #[test]
    fn what_is_cut_off_has_no_counts() {
        let whole = message(SOCKETS_OF_A_FAMILY, 80, COUNTS, &counts());
        for bytes in 0..whole.len() {
            let mut sockets = Vec::new();
            let _ = read(&whole[..bytes], &mut sockets);
            assert!(sockets.iter().all(|one| one.counted.is_none()), "of {bytes} bytes: {sockets:?}");
            assert_eq!(sockets.len(), usize::from(bytes >= HEADER_BYTES + SOCKET_BYTES), "of {bytes} bytes");
        }
    }

    #[test]
    fn a_connection_without_counts_is_one() {
        let older = message(SOCKETS_OF_A_FAMILY, 80, COUNTS, &counts()[..104]);
        let others = message(SOCKETS_OF_A_FAMILY, 80, COUNTS + 1, &counts());
        let mut ended = message(SOCKETS_OF_A_FAMILY, 80, 0, &[]);
        ended[HEADER_BYTES + STATE_AT] = 6;
        let ports = Ports { of: vec![80], to: Vec::new() };
        for (piece, established) in [(older, 1), (others, 1), (ended, 0)] {
            let mut sockets = Vec::new();
            assert_eq!((read(&piece, &mut sockets), sockets.len()), (Some(ListRest::Follows), 1));
            assert_eq!(sockets[0].counted, None);
            let connections = Sockets(sockets).connections();
            let others = connections.others(&ports).into_values().sum::<usize>();
            assert_eq!((connections.established(&ports), others), (established, 1 - established));
        }
    }

    #[test]
    fn what_is_in_no_state_is_no_connection() {
        let endless = [&[0; HEADER_BYTES + SOCKET_BYTES][..], &[0; 8]].concat();
        let mut sockets = Vec::new();
        assert_eq!((read(&endless, &mut sockets), sockets.len()), (Some(ListRest::Follows), 0));
    }

    #[test]
    fn each_end_of_a_connection_is_told_apart_and_counted_from_the_last_look() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let mut client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let (mut server, _) = listener.accept().expect("a connection");
        let sides = [Ports { of: vec![port], to: Vec::new() }, Ports { of: Vec::new(), to: vec![port] }];
        // If the kernel does not report connections, there is nothing to test.
        let Some(before) = Sockets::now() else { return };
        for ports in &sides {
            assert_eq!(before.connections().established(ports), 1);
            assert_eq!(Connections::listed().established(ports), 1, "the kernel's two lists agree");
        }
        let mut counted = sides.each_ref().map(|ports| PartTraffic::begin(Some(&before), ports));
        let mut exchange = |bytes: usize| {
            client.write_all(&vec![b'a'; bytes]).expect("it reads");
            server.read_exact(&mut vec![0; bytes]).expect("it was sent");
            server.write_all(b"done").expect("it reads");
            client.read_exact(&mut [0; 4]).expect("it was sent");
        };
        for bytes in [100_000, 5] {
            exchange(bytes);
            let now = Sockets::now().expect("it told before");
            let [server, client] = [0, 1].map(|side| counted[side].since_last(&now, &sides[side]));
            assert_eq!((server.received_bytes, client.received_bytes), (bytes as u64, 4));
            // The client has got the answer, so its own bytes have arrived.
            assert_eq!(client.sent_bytes, bytes as u64);
        }
    }
}
