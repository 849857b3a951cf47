//! A UDP socket for QUIC: several datagrams for each system call (GSO, GRO), and marks of congestion (ECN).

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll, ready};

use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// What the kernel holds for the socket in each direction, as far as it permits.
const KERNEL_BUFFER: usize = 2 << 20;
/// Buffers that one call fills: each with one datagram, or with as many of one peer as the kernel has put together.
const BATCH: usize = 8;
/// The most bytes in one of them.
const BUFFER: usize = 64 * 1024;

/// A UDP socket.
pub struct QuicSocket {
    socket: RefCell<Registered>,
    state: UdpSocketState,
    address: Option<SocketAddr>,
    /// Whether the kernel has told that nobody can be reached.
    is_refused: Cell<bool>,
    /// Whether the kernel tells of errors: of a socket for one peer.
    has_errors: bool,
}

/// What the runtime knows of a socket.
enum Registered {
    /// It tells when something can be received, and sent.
    Both(UdpSocket),
    /// Nothing: another process receives.
    Nothing(std::net::UdpSocket),
}

/// Received datagrams of one system call.
#[derive(Default)]
pub struct Batch {
    /// Empty until something is received.
    bytes: Box<[u8]>,
    metas: [RecvMeta; BATCH],
    filled: usize,
}

/// A datagram, or several of one peer that have the same length but for the last one.
pub struct Received<'a> {
    /// The bytes of all of them.
    pub bytes: &'a [u8],
    /// The length of each.
    pub stride: usize,
    /// Who has sent them.
    pub remote: SocketAddr,
    /// The address that they were sent to.
    pub local: Option<IpAddr>,
    /// Whether routers have marked them.
    pub ecn: Option<EcnCodepoint>,
}

impl Batch {
    /// What was received last.
    pub fn received(&self) -> impl Iterator<Item = Received<'_>> {
        let buffers = self.bytes.chunks_exact(BUFFER);
        self.metas[..self.filled].iter().zip(buffers).map(|(meta, bytes)| Received {
            bytes: &bytes[..meta.len],
            stride: meta.stride.max(1),
            remote: meta.addr,
            local: meta.dst_ip,
            ecn: meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
        })
    }
}

impl QuicSocket {
    /// Registers a socket that does not block with the current runtime.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        Self::of(socket, false)
    }

    fn of(socket: std::net::UdpSocket, has_errors: bool) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // Less than that works, too.
        let _ = state.set_send_buffer_size(UdpSockRef::from(&socket), KERNEL_BUFFER);
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), KERNEL_BUFFER);
        let address = socket.local_addr().ok();
        let socket = RefCell::new(Registered::Both(UdpSocket::from_std(socket)?));
        Ok(Self { socket, state, address, is_refused: Cell::default(), has_errors })
    }

    /// A socket for one peer: the kernel drops what others send, and tells if nobody listens there.
    ///
    /// # Errors
    /// If there is no file descriptor left, or no way to the peer.
    pub fn to(peer: SocketAddr) -> io::Result<Self> {
        let own = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = std::net::UdpSocket::bind(SocketAddr::new(own, 0))?;
        socket.connect(peer)?;
        socket.set_nonblocking(true)?;
        Self::of(socket, true)
    }

    /// Whether the kernel has told since the last call that the peer cannot be reached. Only of a socket for one peer.
    pub fn take_refusal(&self) -> bool {
        self.is_refused.take()
    }

    /// Asks the kernel, with a system call, whether it has told so.
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

    /// The address that the socket is bound to.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Receives no more, since another process does, at the same socket.
    ///
    /// # Errors
    /// If there is no file descriptor left. Then this process goes on receiving, too.
    pub fn leave_receiving(&self) -> io::Result<()> {
        let mut socket = self.socket.borrow_mut();
        if let Registered::Both(both) = &*socket {
            let own = rustix::io::fcntl_dupfd_cloexec(both, 3)?;
            *socket = Registered::Nothing(std::net::UdpSocket::from(own));
        }
        Ok(())
    }

    /// Whether datagrams that are too large for a link may arrive in parts, so that their size tells nothing about it.
    pub fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    /// The most datagrams that one call may send.
    pub fn segments_max(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Receives what has arrived. Errors tell of datagrams that were sent earlier, and mean nothing here.
    pub fn poll_receive(&self, context: &mut Context<'_>, batch: &mut Batch) -> Poll<()> {
        let socket = self.socket.borrow();
        let Registered::Both(socket) = &*socket else { return Poll::Pending };
        loop {
            if ready!(socket.poll_recv_ready(context)).is_err() {
                return Poll::Pending;
            }
            match socket.try_io(Interest::READABLE, || self.fill(socket, batch)) {
                Ok(()) => {
                    // recvmmsg(2) ends early when nothing is left, or at an error: then there is no need to ask once more.
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

    /// The same, whether or not the runtime knows that something has arrived, which it looks for only between tasks. False if
    /// nothing has.
    pub fn receive_now(&self, batch: &mut Batch) -> bool {
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

    fn fill(&self, socket: &UdpSocket, batch: &mut Batch) -> io::Result<()> {
        if batch.bytes.is_empty() {
            batch.bytes = vec![0; BATCH * BUFFER].into_boxed_slice();
        }
        let mut buffers = batch.bytes.chunks_exact_mut(BUFFER).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BATCH] =
            std::array::from_fn(|_| buffers.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        batch.filled = 0;
        batch.filled = self.state.recv(UdpSockRef::from(socket), &mut slices, &mut batch.metas)?;
        Ok(())
    }

    /// Sends datagrams; false if the kernel has no room for them now. Those that it refuses are lost, as they could be on
    /// their way.
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
            // Nobody tells when there is room again.
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
