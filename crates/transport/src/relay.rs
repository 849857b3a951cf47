//! Relays bytes between two sockets, both ways, through a chain of toxics that may change meanwhile.
//!
//! A connection that one side did not end itself is reset on the other side.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use shape::{Chain, Ending, Link};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// What is read at once.
const READ_BYTES: usize = 32 * 1024;
/// With less room than this there is a new buffer: small pieces that wait share one.
const READ_BYTES_MIN: usize = 4 * 1024;

/// Relays bytes both ways until either side, or a toxic, ends the connection. `sleep` waits for delayed bytes.
pub async fn pass_between<T>(
    client: &TcpStream,
    server: &TcpStream,
    up: RelayDirection<T>,
    down: RelayDirection<T>,
    sleep: impl AsyncFn(Duration),
) {
    let (of_up, of_down) = (Progress::default(), Progress::default());
    let outcome = tokio::try_join!(
        up.run(client, server, [&of_up, &of_down], &sleep),
        down.run(server, client, [&of_down, &of_up], &sleep)
    );
    if let Err(Broken::Reset) = outcome {
        for stream in [client, server] {
            // A socket that is gone already has been reset.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}

/// How both ways of a connection end at once.
#[derive(Debug)]
enum Broken {
    Close,
    Reset,
}

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self::Reset
    }
}

/// How far one way has come, as the other one sees it.
#[derive(Default)]
struct Progress {
    /// All of it is passed on, and its end.
    has_ended: AtomicBool,
    /// Its source has ended, and a toxic keeps that to itself.
    is_silent: AtomicBool,
}

/// Those of all toxics that one way has.
type Choice<T> = Box<dyn Fn(&T) -> Vec<Link> + Send>;

/// One direction of a relayed connection.
pub struct RelayDirection<T> {
    toxics: watch::Receiver<T>,
    links: Choice<T>,
    /// What the chain's time is counted from.
    epoch: Instant,
    chain: Chain,
    buffer: BytesMut,
    /// Whether its source has not ended.
    is_open: bool,
    /// Whether its end is a reset, of a source that cannot tell.
    resets: Option<Arc<AtomicBool>>,
    /// Where its bytes are counted.
    counts: Option<Arc<Counts>>,
}

impl<T> RelayDirection<T> {
    /// A direction whose toxics follow `toxics`, also later changes; `links` turns them into the links of a chain.
    pub fn new(mut toxics: watch::Receiver<T>, links: impl Fn(&T) -> Vec<Link> + Send + 'static) -> Self {
        // Those there are already are a change from none.
        toxics.mark_changed();
        let (chain, buffer, epoch) = (Chain::default(), BytesMut::new(), Instant::now());
        let links = Box::new(links);
        Self { toxics, links, epoch, chain, buffer, is_open: true, resets: None, counts: None }
    }

    /// Counts the bytes of the direction in `counts`.
    pub fn counted_by(self, counts: Arc<Counts>) -> Self {
        Self { counts: Some(counts), ..self }
    }

    /// Treats the source's end as a reset once `resets` is true: for a source, such as a Unix socket, that cannot be
    /// reset.
    pub fn reset_by(self, resets: Arc<AtomicBool>) -> Self {
        Self { resets: Some(resets), ..self }
    }

    /// Moves bytes until the source has ended and all of it is written.
    async fn run(
        mut self,
        source: &TcpStream,
        sink: &TcpStream,
        [own, other]: [&Progress; 2],
        sleep: &impl AsyncFn(Duration),
    ) -> Result<(), Broken> {
        loop {
            self.take_up_changes();
            let due = self.chain.advance(self.epoch.elapsed());
            if self.send(sink)? {
                // There is room for what is behind it.
                continue;
            }
            match self.chain.ending() {
                None => {}
                Some(Ending::End) => {
                    SockRef::from(sink).shutdown(std::net::Shutdown::Write)?;
                    own.has_ended.store(true, Ordering::Relaxed);
                    return if other.is_silent.load(Ordering::Relaxed) { Err(Broken::Reset) } else { Ok(()) };
                }
                Some(Ending::Close) => return Err(Broken::Close),
                Some(Ending::Reset) => return Err(Broken::Reset),
            }
            // Once both peers have ended nobody is left to be kept in the dark, and nothing else would end it.
            let is_silent = !self.is_open && due.is_none() && self.chain.is_empty();
            own.is_silent.store(is_silent, Ordering::Relaxed);
            if is_silent
                && (other.has_ended.load(Ordering::Relaxed) || other.is_silent.load(Ordering::Relaxed))
            {
                return Err(Broken::Reset);
            }
            let may_read = self.is_open && self.chain.has_room();
            let is_full = self.chain.front().is_some();
            let pause = due.map_or(Duration::ZERO, |due| due.saturating_sub(self.epoch.elapsed()));
            tokio::select! {
                biased;
                // Its sender goes with the proxy, and this task with it.
                changed = self.toxics.changed() => match changed {
                    Ok(()) => self.toxics.mark_changed(),
                    Err(_) => return Err(Broken::Close),
                },
                ready = sink.writable(), if is_full => ready?,
                ready = source.readable(), if may_read => {
                    ready?;
                    // What came after a change meets that.
                    self.take_up_changes();
                    self.receive(source);
                }
                () = sleep(pause), if due.is_some() => {}
            }
        }
    }

    fn take_up_changes(&mut self) {
        // Without a sender nothing changes any more.
        if self.toxics.has_changed().unwrap_or(false) {
            let links = (self.links)(&self.toxics.borrow_and_update());
            self.chain.set(self.epoch.elapsed(), &links);
        }
    }

    /// Writes what is due; says whether that was anything.
    fn send(&mut self, sink: &TcpStream) -> io::Result<bool> {
        let Some(bytes) = self.chain.front() else { return Ok(false) };
        let written = tried(sink.try_write(bytes))?;
        if let (Some(counts), Some(written)) = (&self.counts, written) {
            counts.has_sent(written);
        }
        self.chain.written(written.unwrap_or(0));
        Ok(written.is_some())
    }

    /// Reads what has come.
    fn receive(&mut self, source: &TcpStream) {
        if self.buffer.capacity() < READ_BYTES_MIN {
            self.buffer.reserve(READ_BYTES);
        }
        let outcome = tried(source.try_read_buf(&mut self.buffer));
        let now = self.epoch.elapsed();
        let ending = match outcome {
            Ok(None) => return,
            Ok(Some(0)) if self.resets.as_ref().is_some_and(|resets| resets.load(Ordering::Acquire)) => {
                Ending::Reset
            }
            Ok(Some(0)) => Ending::End,
            Ok(Some(count)) => {
                if let Some(counts) = &self.counts {
                    counts.has_received(count);
                }
                return self.chain.push(now, self.buffer.split().freeze());
            }
            // What its sender has sent before is not lost to the toxics that hold it.
            Err(_) => Ending::Reset,
        };
        self.is_open = false;
        self.chain.end(now, ending);
    }
}

/// What a step came to; `None` where it has to wait.
fn tried(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Byte counters of one direction, over all connections that share them.
#[derive(Debug, Default)]
pub struct Counts {
    /// The number of bytes read.
    pub received: AtomicU64,
    /// The number of bytes written.
    pub sent: AtomicU64,
}

impl Counts {
    fn has_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn has_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
