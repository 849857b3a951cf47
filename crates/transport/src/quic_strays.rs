//! QUIC datagrams between the processes of an upgrade: each passes on datagrams for connections of the other.
//!
//! A message is a packet of a Unix socket pair (SOCK_SEQPACKET), which only these two processes hold.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};

use quinn_proto::EcnCodepoint;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::quic_endpoint::Datagram;

/// A message from one process to the other.
pub struct Stray {
    pub word: StrayMessage,
    /// The local address of the socket that received the datagram.
    pub listener: SocketAddr,
    /// Empty in a message without a datagram.
    pub datagram: Datagram,
}

/// The type of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrayMessage {
    /// The datagram has a connection ID of the receiver.
    Pass,
    /// A client begins, perhaps with the receiver.
    Ask,
    /// The answer to `Ask`: the sender does not know the client.
    Unknown {
        /// Whether the sender has other unfinished handshakes.
        has_pending: bool,
    },
    /// The sender receives on this socket.
    Receives,
}

/// The other process has ended.
#[derive(Debug)]
pub struct ProcessGone;

/// Size of the kernel's buffer, as far as the kernel allows it: for a burst of one worker's clients.
const KERNEL_BUFFER: usize = 1 << 20;
/// Exceeds the size of any datagram.
const MESSAGE_MAX: usize = 66_000;
/// Bytes in front of the datagram.
const HEAD: usize = 2 + 2 * ADDRESS + 17;
/// An IPv6 address with a port and a scope.
const ADDRESS: usize = 16 + 2 + 4;

/// Creates both ends of a channel, for a worker of this process and for those of the next one.
///
/// # Errors
/// No file descriptor is left.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    // Not blocking: a process that hangs must not stop the workers of the other.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    for end in [&one, &other] {
        // A smaller buffer works, too.
        let _ = sockopt::set_socket_send_buffer_size(end, KERNEL_BUFFER);
    }
    Ok((one, other))
}

/// Whether the process at the other end still runs.
pub fn is_alive(channel: impl AsFd) -> bool {
    // A single byte is no valid message, so the receiver ignores it.
    !matches!(send(channel, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT), Err(error) if is_gone(error))
}

/// Sends a message. If the kernel has no room, it is lost, as it could be on the network.
///
/// # Errors
/// The other process has ended.
pub fn pass(channel: impl AsFd, stray: &Stray) -> Result<(), ProcessGone> {
    let mut message = Vec::with_capacity(HEAD + stray.datagram.bytes.len());
    stray.write(&mut message);
    match send(channel, &message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Err(error) if is_gone(error) => Err(ProcessGone),
        // QUIC sends a lost datagram again, as after any loss.
        _ => Ok(()),
    }
}

/// Takes the messages that have arrived at an end of a channel.
pub fn waiting(channel: impl AsFd) -> impl Iterator<Item = Stray> {
    let mut buffer = vec![0; MESSAGE_MAX];
    let receive = move || match recv(&channel, &mut buffer[..], RecvFlags::DONTWAIT) {
        Ok((count @ 1.., _)) => Some(Stray::read(&buffer[..count])),
        _ => None,
    };
    // Invalid messages are skipped.
    std::iter::from_fn(receive).flatten()
}

fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::PIPE | Errno::CONNRESET | Errno::CONNREFUSED | Errno::NOTCONN)
}

pub struct Strays {
    // The runtime watches any socket as this type.
    channel: UnixStream,
    buffer: Vec<u8>,
}

impl Strays {
    /// Registers an end with the current runtime.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(channel: OwnedFd) -> io::Result<Self> {
        let channel = UnixStream::from_std(channel.into())?;
        Ok(Self { channel, buffer: vec![0; MESSAGE_MAX] })
    }

    /// The next message. `None` once the other process has ended.
    pub async fn next(&mut self) -> Option<Stray> {
        loop {
            self.channel.readable().await.ok()?;
            let receive = || Ok(recv(&self.channel, &mut self.buffer[..], RecvFlags::empty())?.0);
            match self.channel.try_io(Interest::READABLE, receive) {
                // A packet of length zero is the end, since no message is empty.
                Ok(0) => return None,
                Ok(count) => match Stray::read(&self.buffer[..count]) {
                    Some(stray) => return Some(stray),
                    None => continue,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }
}

impl Stray {
    fn write(&self, out: &mut Vec<u8>) {
        // Both processes may be of different versions, so the numbers never change.
        out.push(match self.word {
            StrayMessage::Pass => 1,
            StrayMessage::Ask => 2,
            StrayMessage::Unknown { has_pending: true } => 3,
            StrayMessage::Unknown { has_pending: false } => 4,
            StrayMessage::Receives => 5,
        });
        out.push(self.datagram.ecn.map_or(0, |ecn| ecn as u8));
        put_address(out, self.listener);
        put_address(out, self.datagram.remote);
        match self.datagram.local {
            Some(local) => {
                out.push(if local.is_ipv4() { 4 } else { 6 });
                out.extend(mapped(local).octets());
            }
            None => out.extend([0; 17]),
        }
        out.extend(&self.datagram.bytes);
    }

    fn read(message: &[u8]) -> Option<Self> {
        let (head, bytes) = message.split_at_checked(HEAD)?;
        let word = match head[0] {
            1 => StrayMessage::Pass,
            2 => StrayMessage::Ask,
            3 => StrayMessage::Unknown { has_pending: true },
            4 => StrayMessage::Unknown { has_pending: false },
            5 => StrayMessage::Receives,
            // A message of a later version is skipped.
            _ => return None,
        };
        let (listener, rest) = head[2..].split_first_chunk()?;
        let (remote, rest) = rest.split_first_chunk()?;
        let (family, local) = rest.split_first()?;
        let local = Ipv6Addr::from_octets(*local.first_chunk()?);
        let datagram = Datagram {
            bytes: bytes.to_vec(),
            remote: address(remote),
            local: match family {
                4 => Some(IpAddr::V6(local).to_canonical()),
                6 => Some(IpAddr::V6(local)),
                _ => None,
            },
            ecn: EcnCodepoint::from_bits(head[1]),
        };
        Some(Self { word, listener: address(listener), datagram })
    }
}

fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    out.extend(mapped(address.ip()).octets());
    out.extend(address.port().to_be_bytes());
    let scope = if let SocketAddr::V6(six) = address { six.scope_id() } else { IS_V4 };
    out.extend(scope.to_be_bytes());
}

/// Marks an IPv4 address, in place of the scope of an IPv6 address. A dual-stack socket has mapped IPv4 addresses, and
/// they have to stay mapped.
const IS_V4: u32 = u32::MAX;

fn address(bytes: &[u8; ADDRESS]) -> SocketAddr {
    let [ip @ .., port_high, port_low, a, b, c, d] = *bytes;
    let (ip, port) = (Ipv6Addr::from_octets(ip), u16::from_be_bytes([port_high, port_low]));
    match u32::from_be_bytes([a, b, c, d]) {
        IS_V4 => SocketAddr::new(IpAddr::V6(ip).to_canonical(), port),
        scope => SocketAddrV6::new(ip, port, 0, scope).into(),
    }
}

fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stray(word: StrayMessage, addresses: [&str; 2], local: Option<&str>, bytes: &[u8]) -> Stray {
        let [listener, remote] = addresses.map(|address| address.parse().expect("is an address"));
        let local = local.map(|local| local.parse().expect("is an address"));
        let ecn = EcnCodepoint::from_bits(bytes.len() as u8 & 3);
        Stray { word, listener, datagram: Datagram { bytes: bytes.to_vec(), remote, local, ecn } }
    }

    #[tokio::test]
    async fn messages_arrive_as_they_were_sent_until_the_end() {
        let (one, other) = pair().expect("a pair");
        let mut strays = Strays::new(other).expect("is a socket");
        let long = vec![7; 65_000];
        for sent in [
            stray(StrayMessage::Pass, ["127.0.0.1:443", "192.0.2.1:1"], Some("127.0.0.1"), b"x"),
            stray(
                StrayMessage::Ask,
                ["[::]:443", "[::ffff:192.0.2.1]:65535"],
                Some("::ffff:192.0.2.2"),
                b"xy",
            ),
            stray(StrayMessage::Unknown { has_pending: true }, ["[::1]:443", "[fe80::1%7]:9"], None, b"xyz"),
            stray(StrayMessage::Unknown { has_pending: false }, ["[::1]:443", "[::1]:9"], Some("::1"), &long),
            stray(StrayMessage::Receives, ["0.0.0.0:443", "0.0.0.0:0"], None, b""),
        ] {
            assert!(is_alive(&one));
            pass(&one, &sent).expect("the other end is there");
            let got = strays.next().await.expect("it comes");
            assert_eq!((got.word, got.listener), (sent.word, sent.listener));
            let (got, sent) = (got.datagram, sent.datagram);
            assert_eq!((got.remote, got.local, got.ecn), (sent.remote, sent.local, sent.ecn));
            assert!(got.bytes == sent.bytes, "{} bytes", got.bytes.len());
        }
        // Takes all waiting messages at once.
        assert!(is_alive(&one));
        for port in ["1", "2"] {
            let told =
                stray(StrayMessage::Receives, [&format!("127.0.0.1:{port}"), "127.0.0.1:0"], None, b"");
            pass(&one, &told).expect("the other end is there");
        }
        let ports: Vec<u16> = waiting(&strays.channel).map(|told| told.listener.port()).collect();
        assert_eq!((ports, waiting(&strays.channel).count()), (vec![1, 2], 0));
        drop(one);
        assert!(strays.next().await.is_none());
    }

    #[test]
    fn invalid_messages_are_ignored_and_a_closed_socket_is_noticed() {
        for message in [&b""[..], &[0], &[1; HEAD - 1], &[9; HEAD]] {
            assert!(Stray::read(message).is_none(), "{message:?}");
        }
        let (one, other) = pair().expect("a pair");
        drop(other);
        assert!(!is_alive(&one));
        assert!(pass(&one, &stray(StrayMessage::Pass, ["[::1]:1", "[::1]:2"], None, b"")).is_err());
    }
}
