//! Relays bytes between two sockets, in both directions, through a chain of toxics that may change meanwhile.
//!
//! If one side did not end its connection itself, the other side gets a reset.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use shape::{Chain, ChainLink, DirectionEnding};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Bytes that are read at once.
const READ_BYTES: usize = 32 * 1024;
/// With less room than this, a new buffer is allocated. Small pieces that wait share one buffer.
const READ_BYTES_MIN: usize = 4 * 1024;

/// Relays bytes in both directions until either side, or a toxic, ends the connection. `sleep` waits for delayed bytes.
pub async fn pass_between<T>(
    client: &TcpStream,
    server: &TcpStream,
    up: RelayDirection<T>,
    down: RelayDirection<T>,
    sleep: impl AsyncFn(Duration),
) {
    let (of_up, of_down) = (RelayProgress::default(), RelayProgress::default());
    let outcome = tokio::try_join!(
        up.run(client, server, [&of_up, &of_down], &sleep),
        down.run(server, client, [&of_down, &of_up], &sleep)
    );
    // Both sides: each has to notice that the other's message was cut off.
    if let Err(RelayEnd::Reset) = outcome {
        for stream in [client, server] {
            // Fails if the socket is gone, which counts as reset already.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}

/// The way in which both directions end at once.
#[derive(Debug)]
enum RelayEnd {
    Close,
    Reset,
}

impl From<io::Error> for RelayEnd {
    fn from(_: io::Error) -> Self {
        Self::Reset
    }
}

/// The progress of one direction, for the other one.
#[derive(Default)]
struct RelayProgress {
    /// Everything is forwarded, including the end.
    has_ended: AtomicBool,
    /// The source has ended, and a toxic hides the end.
    is_silent: AtomicBool,
}

/// Selects the links of one direction from all toxics.
type Choice<T> = Box<dyn Fn(&T) -> Vec<ChainLink> + Send>;

pub struct RelayDirection<T> {
    toxics: watch::Receiver<T>,
    links: Choice<T>,
    /// Start of the chain's time.
    epoch: Instant,
    chain: Chain,
    buffer: BytesMut,
    /// Whether the source has not ended.
    is_open: bool,
    /// Whether the end of the source counts as a reset, for a source that cannot be reset.
    resets: Option<Arc<AtomicBool>>,
    counts: Option<Arc<RelayCounts>>,
}

impl<T> RelayDirection<T> {
    /// Creates a direction whose toxics follow changes of `toxics`. `links` converts them into the links of a chain.
    pub fn new(
        mut toxics: watch::Receiver<T>,
        links: impl Fn(&T) -> Vec<ChainLink> + Send + 'static,
    ) -> Self {
        // The initial toxics count as a change from none.
        toxics.mark_changed();
        let (chain, buffer, epoch) = (Chain::default(), BytesMut::new(), Instant::now());
        let links = Box::new(links);
        Self { toxics, links, epoch, chain, buffer, is_open: true, resets: None, counts: None }
    }

    /// Counts the bytes of the direction in `counts`.
    pub fn counted_by(self, counts: Arc<RelayCounts>) -> Self {
        Self { counts: Some(counts), ..self }
    }

    /// Treats the source's end as a reset once `resets` is true: for a source, such as a Unix socket, that cannot be
    /// reset.
    pub fn reset_by(self, resets: Arc<AtomicBool>) -> Self {
        Self { resets: Some(resets), ..self }
    }

    /// Moves bytes until the source has ended and everything is written.
    async fn run(
        mut self,
        source: &TcpStream,
        sink: &TcpStream,
        [own, other]: [&RelayProgress; 2],
        sleep: &impl AsyncFn(Duration),
    ) -> Result<(), RelayEnd> {
        loop {
            self.take_up_changes();
            let due = self.chain.advance(self.epoch.elapsed());
            // Before reading more: bytes that are due leave first.
            if self.send(sink)? {
                // The chain has room for more now.
                continue;
            }
            match self.chain.ending() {
                None => {}
                Some(DirectionEnding::End) => {
                    SockRef::from(sink).shutdown(std::net::Shutdown::Write)?;
                    own.has_ended.store(true, Ordering::Relaxed);
                    // Nothing would ever end the other direction, whose toxic hides the end.
                    return if other.is_silent.load(Ordering::Relaxed) {
                        Err(RelayEnd::Reset)
                    } else {
                        Ok(())
                    };
                }
                Some(DirectionEnding::Close) => return Err(RelayEnd::Close),
                Some(DirectionEnding::Reset) => return Err(RelayEnd::Reset),
            }
            // When both peers have ended, hiding the ends is pointless, and nothing else would end the relay.
            let is_silent = !self.is_open && due.is_none() && self.chain.is_empty();
            own.is_silent.store(is_silent, Ordering::Relaxed);
            if is_silent
                && (other.has_ended.load(Ordering::Relaxed) || other.is_silent.load(Ordering::Relaxed))
            {
                return Err(RelayEnd::Reset);
            }
            let may_read = self.is_open && self.chain.has_room();
            let is_full = self.chain.front().is_some();
            let pause = due.map_or(Duration::ZERO, |due| due.saturating_sub(self.epoch.elapsed()));
            tokio::select! {
                // In this order, since a change of the toxics has to apply to bytes that are ready at the same time.
                biased;
                // The sender ends with the proxy, and so does this task.
                changed = self.toxics.changed() => match changed {
                    Ok(()) => self.toxics.mark_changed(),
                    Err(_) => return Err(RelayEnd::Close),
                },
                ready = sink.writable(), if is_full => ready?,
                ready = source.readable(), if may_read => {
                    ready?;
                    // Bytes that arrived after a change pass through the new toxics.
                    self.take_up_changes();
                    self.receive(source);
                }
                () = sleep(pause), if due.is_some() => {}
            }
        }
    }

    fn take_up_changes(&mut self) {
        // Without a sender, there are no more changes.
        if self.toxics.has_changed().unwrap_or(false) {
            let links = (self.links)(&self.toxics.borrow_and_update());
            self.chain.set(self.epoch.elapsed(), &links);
        }
    }

    /// Writes bytes that are due. Returns whether there were any.
    fn send(&mut self, sink: &TcpStream) -> io::Result<bool> {
        let Some(bytes) = self.chain.front() else { return Ok(false) };
        let written = tried(sink.try_write(bytes))?;
        if let (Some(counts), Some(written)) = (&self.counts, written) {
            counts.has_sent(written);
        }
        self.chain.written(written.unwrap_or(0));
        Ok(written.is_some())
    }

    /// Reads the bytes that have arrived.
    fn receive(&mut self, source: &TcpStream) {
        if self.buffer.capacity() < READ_BYTES_MIN {
            self.buffer.reserve(READ_BYTES);
        }
        let outcome = tried(source.try_read_buf(&mut self.buffer));
        let now = self.epoch.elapsed();
        let ending = match outcome {
            Ok(None) => return,
            // A socket pair ends quietly even where the client's connection was reset.
            Ok(Some(0)) if self.resets.as_ref().is_some_and(|resets| resets.load(Ordering::Acquire)) => {
                DirectionEnding::Reset
            }
            Ok(Some(0)) => DirectionEnding::End,
            Ok(Some(count)) => {
                if let Some(counts) = &self.counts {
                    counts.has_received(count);
                }
                return self.chain.push(now, self.buffer.split().freeze());
            }
            // Earlier bytes from the source stay in the toxics that delay them.
            Err(_) => DirectionEnding::Reset,
        };
        self.is_open = false;
        self.chain.end(now, ending);
    }
}

/// The result of an attempt. `None` if it would have to wait.
fn tried(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Byte counters of one direction, over all connections that share them.
#[derive(Debug, Default)]
pub struct RelayCounts {
    pub received: AtomicU64,
    pub sent: AtomicU64,
}

impl RelayCounts {
    fn has_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn has_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
