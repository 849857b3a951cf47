//! A UDP socket for QUIC: several datagrams per system call (GSO, GRO), and ECN marks.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll, ready};

use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Size of the kernel's buffer in each direction, as far as the kernel allows it.
// While handshakes are computed nothing is received, and what the buffer cannot hold is lost.
const KERNEL_BUFFER: usize = 2 << 20;
/// Buffers that one call fills: each with one datagram, or with several of one peer that the kernel has combined.
const BATCH: usize = 8;
/// Size of each buffer, in bytes.
// The kernel combines datagrams of one sender up to this size.
const BUFFER: usize = 64 * 1024;

pub struct QuicSocket {
    socket: RefCell<Registered>,
    state: UdpSocketState,
    address: Option<SocketAddr>,
    /// Whether an ICMP error has reported that the peer cannot be reached.
    is_refused: Cell<bool>,
    /// Whether the kernel reports ICMP errors: only on a socket for one peer.
    has_errors: bool,
}

/// The state of the socket in the runtime.
enum Registered {
    /// The runtime watches it for receiving and sending.
    Both(UdpSocket),
    /// Not watched: another process receives.
    Nothing(std::net::UdpSocket),
}

/// Received datagrams of one system call.
#[derive(Default)]
pub struct DatagramBatch {
    /// Empty until something is received.
    bytes: Box<[u8]>,
    metas: [RecvMeta; BATCH],
    filled: usize,
}

/// A datagram, or several of one peer that have the same length except for the last one.
pub struct ReceivedBatch<'a> {
    /// The bytes of all of them.
    pub bytes: &'a [u8],
    /// The length of each.
    pub stride: usize,
    pub remote: SocketAddr,
    /// The address that they were sent to.
    pub local: Option<IpAddr>,
    pub ecn: Option<EcnCodepoint>,
}

impl DatagramBatch {
    /// The last received datagrams.
    pub fn received(&self) -> impl Iterator<Item = ReceivedBatch<'_>> {
        let buffers = self.bytes.chunks_exact(BUFFER);
        self.metas[..self.filled].iter().zip(buffers).map(|(meta, bytes)| ReceivedBatch {
            bytes: &bytes[..meta.len],
            stride: meta.stride.max(1),
            remote: meta.addr,
            local: meta.dst_ip,
            ecn: meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
        })
    }
}

impl QuicSocket {
    /// Registers a non-blocking socket with the current runtime.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        Self::from_socket(socket, false)
    }

    fn from_socket(socket: std::net::UdpSocket, has_errors: bool) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // A smaller buffer works, too.
        let _ = state.set_send_buffer_size(UdpSockRef::from(&socket), KERNEL_BUFFER);
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), KERNEL_BUFFER);
        let address = socket.local_addr().ok();
        let socket = RefCell::new(Registered::Both(UdpSocket::from_std(socket)?));
        Ok(Self { socket, state, address, is_refused: Cell::default(), has_errors })
    }

    /// Creates a socket for one peer: the kernel drops datagrams of other senders, and reports ICMP errors.
    ///
    /// # Errors
    /// No file descriptor is left, or there is no route to the peer.
    pub fn to(peer: SocketAddr) -> io::Result<Self> {
        let own = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = std::net::UdpSocket::bind(SocketAddr::new(own, 0))?;
        socket.connect(peer)?;
        socket.set_nonblocking(true)?;
        Self::from_socket(socket, true)
    }

    /// Whether an ICMP error arrived since the last call. Only on a socket for one peer.
    pub fn take_refusal(&self) -> bool {
        self.is_refused.take()
    }

    /// Asks the kernel for an ICMP error, with a system call.
    pub fn look_for_refusal(&self) {
        if let Registered::Both(socket) = &*self.socket.borrow()
            && let Ok(Some(error)) = socket.take_error()
        {
            self.note(&error);
        }
    }

    fn note(&self, error: &io::Error) {
        use ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
        if matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable) {
            self.is_refused.set(true);
        }
    }

    pub fn local_address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Stops receiving, because another process receives on the same socket.
    ///
    /// # Errors
    /// No file descriptor is left. This process then continues to receive, too.
    pub fn leave_receiving(&self) -> io::Result<()> {
        let mut socket = self.socket.borrow_mut();
        if let Registered::Both(both) = &*socket {
            // A copy of the descriptor stays for sending. Dropping the watched one removes it from the runtime.
            let own = rustix::io::fcntl_dupfd_cloexec(both, 3)?;
            *socket = Registered::Nothing(std::net::UdpSocket::from(own));
        }
        Ok(())
    }

    /// Whether datagrams that exceed a link's size may arrive in fragments, so that they cannot be used to discover
    /// that size.
    pub fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    /// The most datagrams that one call may send.
    pub fn segments_max(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Receives the datagrams that have arrived. Ignores errors, which concern datagrams that were sent earlier.
    pub fn poll_receive(&self, context: &mut Context<'_>, batch: &mut DatagramBatch) -> Poll<()> {
        let socket = self.socket.borrow();
        let Registered::Both(socket) = &*socket else { return Poll::Pending };
        loop {
            if ready!(socket.poll_recv_ready(context)).is_err() {
                return Poll::Pending;
            }
            match socket.try_io(Interest::READABLE, || self.fill(socket, batch)) {
                Ok(()) => {
                    // recvmmsg(2) ends early when nothing is left, or at an error: another call would find nothing.
                    if batch.filled < BATCH && !self.has_errors {
                        let _ =
                            socket.try_io(Interest::READABLE, || Err::<(), _>(ErrorKind::WouldBlock.into()));
                    }
                    return Poll::Ready(());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => {
                    self.note(&error);
                    return Poll::Ready(());
                }
            }
        }
    }

    /// As `poll_receive`, but asks the kernel directly, because the runtime polls sockets only between tasks. Returns
    /// false if nothing has arrived.
    pub fn receive_now(&self, batch: &mut DatagramBatch) -> bool {
        let socket = self.socket.borrow();
        let Registered::Both(socket) = &*socket else { return false };
        match self.fill(socket, batch) {
            Ok(()) => true,
            Err(error) => {
                self.note(&error);
                error.kind() != ErrorKind::WouldBlock
            }
        }
    }

    fn fill(&self, socket: &UdpSocket, batch: &mut DatagramBatch) -> io::Result<()> {
        if batch.bytes.is_empty() {
            // Half a MiB, which a worker without QUIC never takes.
            batch.bytes = vec![0; BATCH * BUFFER].into_boxed_slice();
        }
        let mut buffers = batch.bytes.chunks_exact_mut(BUFFER).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BATCH] =
            std::array::from_fn(|_| buffers.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        // If the call fails, the datagrams of the last one must not count again.
        batch.filled = 0;
        batch.filled = self.state.recv(UdpSockRef::from(socket), &mut slices, &mut batch.metas)?;
        Ok(())
    }

    /// Sends datagrams. Returns false if the kernel has no room for them now. Datagrams that it refuses are lost, as
    /// they could be on the network.
    pub fn send(&self, transmit: &Transmit, bytes: &[u8]) -> bool {
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: bytes,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        match &*self.socket.borrow() {
            Registered::Both(socket) => {
                let send = || self.state.try_send(UdpSockRef::from(socket), &transmit);
                let sent = socket.try_io(Interest::WRITABLE, send);
                !sent.is_err_and(|error| {
                    self.note(&error);
                    error.kind() == ErrorKind::WouldBlock
                })
            }
            // Lost if it fails, because the runtime does not report when there is room again.
            Registered::Nothing(socket) => {
                let _ = self.state.try_send(UdpSockRef::from(socket), &transmit);
                true
            }
        }
    }

    /// Ready when the kernel may have room again.
    pub fn poll_sendable(&self, context: &mut Context<'_>) -> Poll<()> {
        match &*self.socket.borrow() {
            Registered::Both(socket) => socket.poll_send_ready(context).map(drop),
            Registered::Nothing(_) => Poll::Ready(()),
        }
    }
}
