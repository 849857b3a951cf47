//! A UDP socket for QUIC: several datagrams for each system call (GSO, GRO), and marks of congestion (ECN).

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll, ready};

use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// What the kernel holds for the socket in each direction, as far as it permits.
const KERNEL_BYTES: usize = 2 << 20;
/// Buffers that one call fills, each with one datagram or with as many of one peer as the kernel has put together.
const BUFFERS: usize = 8;
/// Bytes of each of them.
const BUFFER_BYTES: usize = 64 * 1024;
/// The most datagrams of a system call.
const SEGMENTS_MAX: usize = 10;

/// A UDP socket.
pub struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
}

/// Room for what is received, which the sockets of a thread share.
pub struct Batch {
    bytes: Box<[u8]>,
    metas: [RecvMeta; BUFFERS],
    count: usize,
}

/// Datagrams of one peer, which have the same length but for the last.
pub struct Received<'b> {
    /// All of them.
    pub bytes: &'b [u8],
    /// The length of each.
    pub stride: usize,
    /// Who has sent them.
    pub remote: SocketAddr,
    /// The address that they were sent to.
    pub local: Option<IpAddr>,
    /// What routers have said about congestion.
    pub ecn: Option<EcnCodepoint>,
}

impl Default for Batch {
    fn default() -> Self {
        let bytes = vec![0; BUFFERS * BUFFER_BYTES].into_boxed_slice();
        Self { bytes, metas: [RecvMeta::default(); BUFFERS], count: 0 }
    }
}

impl Batch {
    /// What was received last.
    pub fn received(&self) -> impl Iterator<Item = Received<'_>> {
        let buffers = self.bytes.chunks_exact(BUFFER_BYTES);
        self.metas[..self.count].iter().zip(buffers).map(|(meta, bytes)| Received {
            bytes: &bytes[..meta.len],
            stride: meta.stride.max(1),
            remote: meta.addr,
            local: meta.dst_ip,
            ecn: meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
        })
    }
}

impl Socket {
    /// Registers a socket that does not block with the current runtime.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // Less works, too.
        let _ = state.set_send_buffer_size(UdpSockRef::from(&socket), KERNEL_BYTES);
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), KERNEL_BYTES);
        Ok(Self { socket: UdpSocket::from_std(socket)?, state })
    }

    /// Whether a datagram that is too large for a link may arrive in parts, so that none tells how large they may be.
    pub fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    /// The most datagrams that one call sends.
    pub fn segments_max(&self) -> usize {
        self.state.max_gso_segments().min(SEGMENTS_MAX)
    }

    /// Receives what has come.
    ///
    /// # Errors
    /// Of a connected socket: that nobody listens at the other end.
    pub fn poll_receive(&self, context: &mut Context<'_>, batch: &mut Batch) -> Poll<io::Result<()>> {
        let mut buffers = batch.bytes.chunks_exact_mut(BUFFER_BYTES).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BUFFERS] =
            std::array::from_fn(|_| buffers.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        batch.count = 0;
        loop {
            ready!(self.socket.poll_recv_ready(context))?;
            let receive = || self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut batch.metas);
            match self.socket.try_io(Interest::READABLE, receive) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received.map(|count| batch.count = count)),
            }
        }
    }

    /// What the kernel has heard of earlier datagrams: of a connected socket, that nobody listens at the other end.
    pub fn take_error(&self) -> Option<io::Error> {
        self.socket.take_error().ok().flatten()
    }

    /// Sends datagrams. False if the kernel has no room for them now: [`Self::poll_sendable`] tells when. Those that it
    /// refuses are lost, as they could be on their way.
    pub fn send(&self, transmit: &Transmit, bytes: &[u8]) -> bool {
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: &bytes[..transmit.size],
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        let send = || self.state.try_send(UdpSockRef::from(&self.socket), &transmit);
        let sent = self.socket.try_io(Interest::WRITABLE, send);
        !sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Ready when the kernel may have room again.
    pub fn poll_sendable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_send_ready(context).map(drop)
    }
}
