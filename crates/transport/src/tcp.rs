//! TCP connections for the request path: reads that know when the kernel has no more bytes, and pipes for splice(2).
//!
//! Connected Unix sockets use the same types, since the runtime's stream accepts any stream socket.

use std::cell::{Cell, OnceCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pages::Region;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_congestion, set_tcp_quickack, set_tcp_user_timeout};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, acceptfrom_with, recv, send, sendmsg,
};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};

use crate::unix;

/// Sent bytes from which on the call in `drop` is worthwhile: for less, the kernel holds next to nothing.
const WORTH_A_LIMIT: u32 = 16 * 1024;

/// A TCP or Unix connection. It registers with the worker's runtime when it first has to wait. A connection that is
/// served and closed at once (`Connection: close`) never registers.
pub struct Tcp {
    // Registering costs a system call, which short connections save.
    fresh: Cell<Option<std::net::TcpStream>>,
    registered: OnceCell<TcpStream>,
    /// Whether the runtime has just reported something to read.
    is_told_readable: Cell<bool>,
    /// Sent bytes, and how many milliseconds the kernel may try to send the rest after the close; 0 means no limit.
    sent: Cell<u32>,
    leaves_within: Cell<u32>,
    /// Present if this connection stands in for another.
    stand_in: Option<Box<StandIn>>,
}

/// Properties of the client's connection that a stand-in for it (a Unix socket pair) has to report itself.
pub struct StandIn {
    /// The local address of the client's connection.
    pub local_address: Option<SocketAddr>,
    /// Whether the connection ends with a reset, because a Unix socket pair cannot transmit one.
    pub resets: Arc<AtomicBool>,
}

impl Tcp {
    /// Creates a stand-in for a client's connection. The stream must be non-blocking.
    pub fn in_place(stream: std::net::TcpStream, stand_in: StandIn) -> Self {
        let mut tcp = Self::new(stream);
        tcp.stand_in = Some(Box::new(stand_in));
        tcp
    }

    /// Wraps a stream fresh from accept. The stream must be non-blocking.
    pub fn new(stream: std::net::TcpStream) -> Self {
        Self::from_fresh(Some(stream), OnceCell::new())
    }

    fn from_fresh(fresh: Option<std::net::TcpStream>, registered: OnceCell<TcpStream>) -> Self {
        Self {
            fresh: Cell::new(fresh),
            registered,
            is_told_readable: Cell::new(false),
            sent: Cell::new(0),
            leaves_within: Cell::new(0),
            stand_in: None,
        }
    }

    /// Limits how long the kernel tries to send the rest after the close: a peer that accepts no bytes for `limit`
    /// loses them.
    pub fn leaves_within(&self, limit: Duration) {
        self.leaves_within.set(limit.as_millis().try_into().unwrap_or(u32::MAX));
    }

    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Requests leave in whole writes, so Nagle's rule could only delay their last segment.
        socket.set_nodelay(true)?;
        suit(&socket, address);
        let stream = socket.connect(address).await?;
        Ok(Self::from_fresh(None, OnceCell::from(stream)))
    }

    /// Connects to a Unix socket. `sleep` waits between attempts while the server's backlog is full.
    pub async fn connect_unix(path: &Path, sleep: impl AsyncFn(Duration)) -> io::Result<Self> {
        unix::reach(path, sleep).await.map(Self::new)
    }

    /// The connection as registered with the runtime.
    fn stream(&self) -> io::Result<&TcpStream> {
        if let Some(fresh) = self.fresh.take() {
            // A fresh connection is not registered yet.
            let _ = self.registered.set(TcpStream::from_std(fresh)?);
        }
        // Neither exists only after a failed registration.
        self.registered.get().ok_or_else(|| io::Error::from(ErrorKind::NotConnected))
    }

    /// Tries a step on a fresh connection. `None` if it would have to wait, or is no longer fresh.
    fn at_once(
        &self,
        step: impl FnOnce(&std::net::TcpStream) -> rustix::io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        let stream = self.fresh.take()?;
        let outcome = step(&stream);
        self.fresh.set(Some(stream));
        match outcome {
            // Would have to wait: the caller registers the connection and tries again.
            Err(Errno::AGAIN | Errno::INTR) => None,
            outcome => Some(outcome.map_err(io::Error::from)),
        }
    }

    /// Ready when there is something to read, or the end. On a fresh connection it may be ready too early.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.registered.get() {
            Some(stream) => {
                ready!(stream.poll_read_ready(context))?;
                self.is_told_readable.set(true);
                Poll::Ready(Ok(()))
            }
            None => Poll::Ready(Ok(())),
        }
    }

    /// Reads into `buffer`, which must not be empty; 0 is the end.
    pub fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Some(outcome) = self.at_once(|stream| Ok(recv(stream, &mut *buffer, RecvFlags::empty())?.0)) {
            return Poll::Ready(outcome);
        }
        let stream = self.stream()?;
        loop {
            // `poll_readable` has asked already, so the read that follows it does not ask again.
            if !self.is_told_readable.take() {
                ready!(stream.poll_read_ready(context))?;
            }
            // The direct system call: the C library's function would also handle thread cancellation.
            match stream.try_io(Interest::READABLE, || Ok(recv(stream, &mut *buffer, RecvFlags::empty())?.0))
            {
                Ok(count) => {
                    if count > 0 && count < buffer.len() {
                        forget_readable(stream);
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(error) if is_transient(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn has_sent(&self, count: usize) {
        self.sent.set(self.sent.get().saturating_add(count as u32));
    }

    /// Sends the start of `bytes`, at least one byte.
    pub fn poll_send(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        let flags = follows.flags();
        self.poll_sent(context, |socket| send(socket, bytes, flags))
    }

    /// Sends the start of `head` with `body` behind it, at least one byte, in one system call.
    pub fn poll_send_both(
        &self,
        context: &mut Context<'_>,
        head: &[u8],
        body: &[u8],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        self.poll_send_pieces(context, &[IoSlice::new(head), IoSlice::new(body)], follows)
    }

    /// Sends the start of all `pieces` together, at least one byte, in one system call.
    pub fn poll_send_pieces(
        &self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        let flags = follows.flags();
        self.poll_sent(context, |socket| sendmsg(socket, pieces, &mut SendAncillaryBuffer::default(), flags))
    }

    fn poll_sent(
        &self,
        context: &mut Context<'_>,
        mut step: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        // Counted in one place, for the decision in `drop`.
        let mut step = |socket: BorrowedFd<'_>| step(socket).inspect(|count| self.has_sent(*count));
        if let Some(outcome) = self.at_once(|stream| step(stream.as_fd())) {
            return Poll::Ready(outcome);
        }
        let stream = self.stream()?;
        // Writes without asking the runtime: there is nearly always room, and the kernel reports the opposite more
        // cheaply.
        match step(stream.as_fd()) {
            Err(Errno::AGAIN | Errno::INTR) => {
                poll_when(context, stream, Interest::WRITABLE, |stream| step(stream.as_fd()))
            }
            outcome => Poll::Ready(outcome.map_err(io::Error::from)),
        }
    }

    /// Sends the start of `head` with the bytes of `region` from `offset` behind it, at least one byte, without a copy.
    pub fn poll_send_region(
        &self,
        context: &mut Context<'_>,
        head: &[u8],
        region: &Region,
        offset: u64,
    ) -> Poll<io::Result<usize>> {
        self.poll_sent(context, |socket| match head {
            [] => region.send(socket, offset),
            head => {
                region.send_with(socket, head).unwrap_or_else(|| send(socket, head, Follows::More.flags()))
            }
        })
    }

    /// Sends the start of `count` bytes of a file from `offset` on, without a copy; 0 if the file ends there.
    pub fn poll_send_file(
        &self,
        context: &mut Context<'_>,
        file: impl AsFd,
        offset: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_sent(context, |socket| {
            // With an explicit offset, because several responses may send one open file.
            rustix::fs::sendfile(socket, file.as_fd(), Some(&mut { offset }), count)
        })
    }

    /// Reads arrived bytes without removing them (MSG_PEEK); 0 is the end.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| {
            if let Some(outcome) = self.at_once(|stream| Ok(recv(stream, &mut *buffer, RecvFlags::PEEK)?.0)) {
                return Poll::Ready(outcome);
            }
            poll_when(context, self.stream()?, Interest::READABLE, |stream| {
                Ok(recv(stream, &mut *buffer, RecvFlags::PEEK)?.0)
            })
        })
        .await
    }

    /// The local address of the peer's connection. A Unix socket has none.
    pub fn local_address(&self) -> Option<SocketAddr> {
        if let Some(stand_in) = &self.stand_in {
            // The local address of the socket pair would be that of no listener.
            return stand_in.local_address;
        }
        let address = rustix::net::getsockname(self.stream().ok()?).ok()?;
        address.try_into().ok()
    }

    /// Reads from the kernel at once, without asking the runtime whether the socket is readable.
    pub fn read_at_once(&self, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match recv(self.stream()?, buffer, RecvFlags::DONTWAIT) {
            Ok((count, _)) => Poll::Ready(Ok(count)),
            // The caller registers no waker here: it asks again when it needs to.
            Err(Errno::AGAIN | Errno::INTR) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }

    /// Sends `bytes` at once if the kernel accepts them. Returns whether it accepted all.
    pub fn send_at_once(&self, bytes: &[u8]) -> bool {
        // A peer that has closed must not end the process by SIGPIPE.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        self.stream().is_ok_and(|stream| send(stream, bytes, flags) == Ok(bytes.len()))
    }

    /// Acknowledges received data now. Otherwise the kernel waits 40 ms or more for data to send along, and so does a
    /// peer that obeys Nagle's algorithm.
    pub fn acknowledge(&self) {
        // Fails on a Unix socket, which has no acknowledgments.
        let acknowledge = |socket: BorrowedFd<'_>| _ = set_tcp_quickack(socket, true);
        match self.fresh.take() {
            Some(fresh) => {
                acknowledge(fresh.as_fd());
                self.fresh.set(Some(fresh));
            }
            None => _ = self.registered.get().map(|stream| acknowledge(stream.as_fd())),
        }
    }

    /// Moves at most `limit` bytes into an empty pipe; 0 is the end.
    pub async fn splice_into(&self, pipe: &Pipe, limit: usize) -> io::Result<usize> {
        // An empty pipe has room, so only the socket can make this wait.
        self.when(Interest::READABLE, |stream| splice(stream, None, &pipe.entry, None, limit, SPLICE)).await
    }

    /// Moves at least one byte, and at most `limit`, out of a pipe that holds `limit` bytes.
    pub fn poll_splice_from(
        &self,
        context: &mut Context<'_>,
        pipe: &Pipe,
        limit: usize,
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        // Without the hint, the kernel would send a short segment at the end of each pipe.
        let flags = if follows == Follows::More { SPLICE.union(SpliceFlags::MORE) } else { SPLICE };
        let step = |stream: &TcpStream| {
            splice(&pipe.exit, None, stream, None, limit, flags).inspect(|count| self.has_sent(*count))
        };
        poll_when(context, self.stream()?, Interest::WRITABLE, step)
    }

    /// Performs a step as soon as the kernel allows it.
    async fn when(
        &self,
        interest: Interest,
        mut step: impl FnMut(&TcpStream) -> rustix::io::Result<usize>,
    ) -> io::Result<usize> {
        let stream = self.stream()?;
        poll_fn(|context| poll_when(context, stream, interest, &mut step)).await
    }

    /// Whether unread bytes have arrived. Costs a system call, but does not register a fresh connection with the
    /// runtime.
    pub fn has_unread(&self) -> bool {
        let look = |socket: BorrowedFd<'_>| {
            let mut byte = [0u8; 1];
            recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT).is_ok_and(|(count, _)| count > 0)
        };
        let Some(fresh) = self.fresh.take() else {
            return self.registered.get().is_some_and(|stream| look(stream.as_fd()));
        };
        let has_unread = look(fresh.as_fd());
        self.fresh.set(Some(fresh));
        has_unread
    }

    /// Whether nothing has arrived on an idle connection, as far as the kernel knows. Costs a system call.
    pub fn is_quiet_still(&self) -> bool {
        // A connection whose registration failed is of no use, so it counts as not quiet.
        let Ok(stream) = self.stream() else { return false };
        let mut byte = [0u8; 1];
        recv(stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT)
            .is_err_and(|error| error == Errno::AGAIN)
    }

    /// Whether the peer has closed its side, even if there are bytes to read first. Costs a system call.
    pub fn has_peer_closed(&self) -> bool {
        let Ok(stream) = self.stream() else { return true };
        // A peek would see only the first unread byte; RDHUP also shows an end behind unread bytes.
        let mut polled = [PollFd::new(stream, PollFlags::RDHUP)];
        let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().intersects(closed)
    }

    /// Ready once the peer has closed its side. Never wakes for an end behind unread bytes.
    pub fn poll_peer_closed(&self, context: &mut Context<'_>) -> Poll<()> {
        let Ok(stream) = self.stream() else { return Poll::Ready(()) };
        // A readiness that is left from an earlier read is cleared by `is_quiet`.
        while stream.poll_read_ready(context).is_ready() {
            if self.has_peer_closed() {
                return Poll::Ready(());
            }
            if !self.is_quiet() {
                break;
            }
        }
        Poll::Pending
    }

    /// Whether nothing has arrived on an idle connection, as far as the runtime knows: no byte, no end, no error.
    pub fn is_quiet(&self) -> bool {
        let Ok(stream) = self.stream() else { return false };
        // The kernel is asked only if the runtime reports readiness. That may be a remainder of a read that took
        // exactly all bytes.
        let look = stream.try_io(Interest::READABLE, || {
            let mut byte = [0u8; 1];
            Ok(recv(stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT)?.0)
        });
        look.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Sends the end of the stream. The other direction stays open.
    pub fn shutdown_write(&self) -> io::Result<()> {
        rustix::net::shutdown(self.stream()?, rustix::net::Shutdown::Write)?;
        Ok(())
    }

    /// Makes the close a reset, so that the peer does not take an incomplete message for a complete one.
    pub fn reset_on_drop(&self) {
        if let Some(stand_in) = &self.stand_in {
            // Pairs with the load in `relay`, which reads it at the end of the stream.
            stand_in.resets.store(true, Ordering::Release);
        }
        if let Ok(stream) = self.stream() {
            // A linger time of zero turns the close into RST.
            let _ = rustix::net::sockopt::set_socket_linger(stream, Some(std::time::Duration::ZERO));
        }
    }
}

impl Drop for Tcp {
    /// Without a limit, the kernel sends the rest as long as the peer answers probes, even if it never accepts a byte.
    fn drop(&mut self) {
        let limit = self.leaves_within.get();
        if limit == 0 || self.sent.get() < WORTH_A_LIMIT {
            return;
        }
        // Fails on a Unix socket, which has no such option.
        let _ = match (self.fresh.get_mut(), self.registered.get()) {
            (Some(stream), _) => set_tcp_user_timeout(stream, limit),
            (None, Some(stream)) => set_tcp_user_timeout(stream, limit),
            (None, None) => Ok(()),
        };
    }
}

/// Selects the congestion control for an address, before the socket connects or listens: Reno for loopback.
///
/// Loopback traffic meets no congestion, so the cheapest algorithm is the best. BBR, the default of some systems, paces
/// and samples in vain: 2% of a small request's time, more of a large one's. Every kernel has Reno, and every user may
/// select it.
pub fn suit(socket: &impl AsFd, address: SocketAddr) {
    if address.ip().to_canonical().is_loopback() {
        // If the kernel refuses, its default remains.
        let _ = set_tcp_congestion(socket, "reno");
    }
}

/// The data that the sender writes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// Unknown.
    Nothing,
    /// More of the message, at once. The kernel may hold an incomplete segment back, for at most 200 ms.
    More,
    /// Nothing: the message ends here.
    End,
    /// Nothing: the message ends here, and the connection closes.
    Close,
}

impl Follows {
    fn flags(self) -> SendFlags {
        match self {
            Self::Nothing | Self::End => SendFlags::NOSIGNAL,
            // The end of the connection then fills the same segment as the last bytes.
            Self::More | Self::Close => SendFlags::NOSIGNAL | SendFlags::MORE,
        }
    }

    pub fn is_end(self) -> bool {
        matches!(self, Self::End | Self::Close)
    }
}

fn poll_when(
    context: &mut Context<'_>,
    stream: &TcpStream,
    interest: Interest,
    mut step: impl FnMut(&TcpStream) -> rustix::io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        if interest == Interest::READABLE {
            ready!(stream.poll_read_ready(context))?;
        } else {
            ready!(stream.poll_write_ready(context))?;
        }
        match stream.try_io(interest, || Ok(step(stream)?)) {
            // The readiness was outdated. `try_io` has cleared it, so the loop waits.
            Err(error) if is_transient(&error) => {}
            outcome => return Poll::Ready(outcome),
        }
    }
}

/// Marks the socket as not readable after a short read, which emptied it. The next read waits for the runtime instead
/// of asking the kernel again.
///
/// Nothing is lost: later bytes cause another edge, which this thread's driver has not seen yet. The runtime keeps the
/// end of the stream apart from readability.
fn forget_readable(stream: &TcpStream) {
    let _ = stream.try_io(Interest::READABLE, || Err::<(), _>(ErrorKind::WouldBlock.into()));
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

const SPLICE: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

/// A pipe that moves bodies inside the kernel (splice). No operation blocks.
pub struct Pipe {
    exit: OwnedFd,
    entry: OwnedFd,
}

impl Pipe {
    /// The requested capacity in bytes: the most that an unprivileged process may request by default.
    pub const CAPACITY: usize = 1 << 20;

    /// Creates a pipe of [`Self::CAPACITY`] bytes, or of a size that the kernel allows.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let (exit, entry) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        // A smaller pipe works as well, in more steps.
        let _ = fcntl_setpipe_size(&entry, Self::CAPACITY);
        Ok(Self { exit, entry })
    }

    /// Puts bytes into the pipe. Returns how many fit.
    pub fn put(&self, bytes: &[u8]) -> usize {
        rustix::io::write(&self.entry, bytes).unwrap_or(0)
    }

    /// Takes bytes out of the pipe. Returns how many; 0 if the pipe is empty.
    pub fn take(&self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.exit, bytes)?)
    }

    /// Moves at most `limit` bytes into another pipe. Returns how many fit.
    pub fn move_on(&self, other: &Self, limit: usize) -> usize {
        splice(&self.exit, None, &other.entry, None, limit, SPLICE).unwrap_or(0)
    }
}

/// Accepts the next connection. Returns its peer's address, or `nowhere` if the peer has none (Unix sockets).
///
/// # Errors
/// No connection waits, or the process has no file descriptor left.
pub fn accept_one(listener: impl AsFd, nowhere: SocketAddr) -> io::Result<(std::net::TcpStream, SocketAddr)> {
    let (stream, peer) = acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let peer = peer.and_then(|peer| peer.try_into().ok());
    Ok((stream.into(), peer.unwrap_or(nowhere)))
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::tcp_congestion;

    use super::*;

    #[test]
    fn only_loopback_connections_use_reno() {
        let of = |address: &str| {
            let address: SocketAddr = address.parse().unwrap();
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.unwrap();
            let before = tcp_congestion(&socket).unwrap();
            suit(&socket, address);
            (before, tcp_congestion(&socket).unwrap())
        };
        for ours in ["127.0.0.1:80", "127.1.2.3:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert_eq!(of(ours).1, "reno", "{ours}");
        }
        for far in ["192.0.2.1:80", "0.0.0.0:80", "[2001:db8::1]:80", "[::]:80"] {
            let (before, after) = of(far);
            assert_eq!(before, after, "{far}");
        }
    }
}
