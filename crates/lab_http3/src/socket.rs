//! A UDP socket for QUIC: several datagrams per system call (GSO, GRO), and congestion marks (ECN).

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll, ready};

use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Size of the kernel's buffer in each direction, if it permits this much.
const KERNEL_BYTES: usize = 2 << 20;
/// Buffers that one call fills, each with one datagram, or with several of one peer that the kernel has joined.
const BUFFERS: usize = 8;
const BUFFER_BYTES: usize = 64 * 1024;
/// Maximum number of datagrams in one system call.
const SEGMENTS_MAX: usize = 10;

pub struct LabUdpSocket {
    socket: UdpSocket,
    state: UdpSocketState,
}

/// Receive buffers, which the sockets of a thread share.
pub struct ReceiveBatch {
    bytes: Box<[u8]>,
    metas: [RecvMeta; BUFFERS],
    count: usize,
}

/// Datagrams from one peer. All have the same length, but the last may be shorter.
pub struct ReceivedDatagrams<'b> {
    /// The datagrams, concatenated.
    pub bytes: &'b [u8],
    /// The length of each datagram.
    pub stride: usize,
    pub remote: SocketAddr,
    /// The destination address.
    pub local: Option<IpAddr>,
    /// Congestion marks from routers.
    pub ecn: Option<EcnCodepoint>,
}

impl Default for ReceiveBatch {
    fn default() -> Self {
        let bytes = vec![0; BUFFERS * BUFFER_BYTES].into_boxed_slice();
        Self { bytes, metas: [RecvMeta::default(); BUFFERS], count: 0 }
    }
}

impl ReceiveBatch {
    /// Returns the datagrams of the last receive call.
    pub fn received(&self) -> impl Iterator<Item = ReceivedDatagrams<'_>> {
        let buffers = self.bytes.chunks_exact(BUFFER_BYTES);
        self.metas[..self.count].iter().zip(buffers).map(|(meta, bytes)| ReceivedDatagrams {
            bytes: &bytes[..meta.len],
            stride: meta.stride.max(1),
            remote: meta.addr,
            local: meta.dst_ip,
            ecn: meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
        })
    }
}

impl LabUdpSocket {
    /// Registers a non-blocking socket with the current runtime.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // Smaller buffers work, too.
        let _ = state.set_send_buffer_size(UdpSockRef::from(&socket), KERNEL_BYTES);
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), KERNEL_BYTES);
        Ok(Self { socket: UdpSocket::from_std(socket)?, state })
    }

    /// Whether the network may fragment large datagrams, so that path MTU discovery is impossible.
    pub fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    /// Maximum number of datagrams that one call sends.
    pub fn segments_max(&self) -> usize {
        self.state.max_gso_segments().min(SEGMENTS_MAX)
    }

    /// Receives the waiting datagrams.
    ///
    /// # Errors
    /// On a connected socket: no process listens at the other end (ECONNREFUSED).
    pub fn poll_receive(&self, context: &mut Context<'_>, batch: &mut ReceiveBatch) -> Poll<io::Result<()>> {
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

    /// Returns the pending error of earlier datagrams. On a connected socket: no process listens at the other end.
    pub fn take_error(&self) -> Option<io::Error> {
        self.socket.take_error().ok().flatten()
    }

    /// Sends datagrams. Returns false if the kernel has no room for them: see [`Self::poll_sendable`]. Datagrams that
    /// it refuses are lost, as they could be in the network.
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
