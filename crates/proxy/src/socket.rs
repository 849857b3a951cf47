//! A TCP connection as the path needs it: reads that know when the kernel has no more, and pipes for splice(2).
//!
//! All methods take `&self`: both directions of a connection may be under way in one task.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, Waker, ready};

use rustix::net::{RecvFlags, recv};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A connection, registered with its worker's runtime.
pub(crate) struct Socket {
    stream: TcpStream,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream }
    }

    /// Connects to `address`.
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Ready when there is something to read, or the end.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_read_ready(context)
    }

    /// Reads into `buffer`, which is not empty; 0 is the end.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(context, buffer)).await
    }

    /// Reads into `buffer`, which is not empty; 0 is the end.
    pub(crate) fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read(buffer) {
                Ok(count) => {
                    if count > 0 && count < buffer.len() {
                        self.forget_readable();
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(error) if is_transient(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Writes the start of `bytes`, at least one.
    pub(crate) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|context| {
            self.poll_io(context, Interest::WRITABLE, |stream| stream.try_write(bytes))
        })
        .await
    }

    /// Moves at most `limit` bytes into a pipe that is empty; 0 is the end.
    pub(crate) async fn splice_into(&self, pipe: &Pipe, limit: usize) -> io::Result<usize> {
        poll_fn(|context| {
            self.poll_io(context, Interest::READABLE, |stream| {
                stream.try_io(Interest::READABLE, || {
                    Ok(splice(stream.as_fd(), None, &pipe.entry, None, limit, SPLICE)?)
                })
            })
        })
        .await
    }

    /// Moves at most `limit` bytes out of a pipe that holds as many; at least one.
    pub(crate) async fn splice_from(&self, pipe: &Pipe, limit: usize) -> io::Result<usize> {
        poll_fn(|context| {
            self.poll_io(context, Interest::WRITABLE, |stream| {
                stream.try_io(Interest::WRITABLE, || {
                    Ok(splice(&pipe.exit, None, stream.as_fd(), None, limit, SPLICE)?)
                })
            })
        })
        .await
    }

    fn poll_io(
        &self,
        context: &mut Context<'_>,
        interest: Interest,
        mut attempt: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if interest == Interest::READABLE {
                ready!(self.stream.poll_read_ready(context))?;
            } else {
                ready!(self.stream.poll_write_ready(context))?;
            }
            match attempt(&self.stream) {
                Err(error) if is_transient(&error) => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// A short read emptied the socket: the next one waits for the kernel's word instead of asking once more.
    ///
    /// Nothing is lost: what arrives after that read is told by an edge of its own, which this thread's driver has
    /// not seen yet; the end of the stream is kept apart from readability by the runtime.
    fn forget_readable(&self) {
        let _ = self.stream.try_io(Interest::READABLE, || Err::<(), _>(ErrorKind::WouldBlock.into()));
    }

    /// Whether nothing has arrived on an idle connection: no byte, no end, no error.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        match self.stream.poll_read_ready(&mut context) {
            Poll::Pending => true,
            // Readiness may be left over from a read that took exactly what was there: look.
            Poll::Ready(Ok(())) => {
                let look = self.stream.try_io(Interest::READABLE, || {
                    let mut byte = [0u8; 1];
                    Ok(recv(&self.stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT)?.0)
                });
                look.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            }
            Poll::Ready(Err(_)) => false,
        }
    }

    /// Sends the end of the stream; the other direction stays open.
    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write)?;
        Ok(())
    }

    /// Closes so that the peer sees a reset, not an end: the message is not whole.
    pub(crate) fn reset_on_drop(&self) {
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(std::time::Duration::ZERO));
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

const SPLICE: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

/// A pipe that bodies move through inside the kernel.
pub(crate) struct Pipe {
    exit: OwnedFd,
    entry: OwnedFd,
}

impl Pipe {
    /// What a pipe should hold: the most that an unprivileged process may ask for by default.
    pub(crate) const CAPACITY: usize = 1 << 20;

    pub(crate) fn new() -> io::Result<Self> {
        let (exit, entry) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        // A smaller pipe works as well, in more steps.
        let _ = fcntl_setpipe_size(&entry, Self::CAPACITY);
        Ok(Self { exit, entry })
    }
}
