//! One proxy's connections: a server for each client, and bytes both ways through the toxics that hold.
//!
//! A server may speak first, so it is connected to at once. What one side has not ended itself ends in a reset.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use shape::{Chain, Ending, Link};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::toxics::{Drawn, Stream, Toxics};
use super::traffic::{Counts, Traffic};
use telemetry::message;

/// Connections of one proxy at a time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 10_000;
/// How long a server may take to be connected to.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
/// Between two tries to accept where that fails: for want of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What is read at once.
const READ_BYTES: usize = 32 * 1024;
/// With less room than this there is a new buffer: small pieces that wait share one.
const READ_BYTES_MIN: usize = 4 * 1024;

/// What the connections of a proxy go by.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) upstream: Arc<str>,
    pub(super) toxics: watch::Receiver<Toxics>,
    pub(super) traffic: Traffic,
    pub(super) seed: u64,
    pub(super) proxy: u64,
}

/// Serves clients until it is dropped, and they with it.
pub(super) async fn run(listener: TcpListener, source: Source) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        let client = loop {
            match listener.accept().await {
                Ok((client, _)) => break client,
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        };
        connections.spawn(serve(client, source.clone(), number));
    }
}

/// Serves one client until either side, or a toxic, has ended it.
async fn serve(client: TcpStream, source: Source, connection: u64) {
    let server = match connect(&source.upstream).await {
        Ok(server) => server,
        Err(error) => {
            message::warn(&format!("chaos: server {} cannot be reached: {error}", source.upstream));
            return;
        }
    };
    // Pieces leave as they are cut.
    let _ = client.set_nodelay(true);
    let drawn = Drawn { seed: source.seed, proxy: source.proxy, connection };
    let way = |stream: Stream| {
        let way = Way::new(source.toxics.clone(), move |toxics: &Toxics| toxics.links(stream, drawn));
        way.counted_by(Arc::clone(source.traffic.of(stream)))
    };
    pass_between(&client, &server, way(Stream::Upstream), way(Stream::Downstream), sleep).await;
}

/// Passes bytes both ways until either side, or a toxic, has ended it; `sleep` waits for what is due later.
pub(crate) async fn pass_between<T>(
    client: &TcpStream,
    server: &TcpStream,
    up: Way<T>,
    down: Way<T>,
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

async fn connect(upstream: &str) -> io::Result<TcpStream> {
    let server = timeout(CONNECT_TIME_MAX, TcpStream::connect(upstream)).await??;
    let _ = server.set_nodelay(true);
    Ok(server)
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

/// One way of a connection.
pub(crate) struct Way<T> {
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

impl<T> Way<T> {
    /// One that meets what `links` makes of these, whatever they become.
    pub(crate) fn new(
        mut toxics: watch::Receiver<T>,
        links: impl Fn(&T) -> Vec<Link> + Send + 'static,
    ) -> Self {
        // Those there are already are a change from none.
        toxics.mark_changed();
        let (chain, buffer, epoch) = (Chain::default(), BytesMut::new(), Instant::now());
        let links = Box::new(links);
        Self { toxics, links, epoch, chain, buffer, is_open: true, resets: None, counts: None }
    }

    /// The same, with its bytes counted there.
    fn counted_by(self, counts: Arc<Counts>) -> Self {
        Self { counts: Some(counts), ..self }
    }

    /// The same of a source whose end is a reset once this says so.
    pub(crate) fn reset_by(self, resets: Arc<AtomicBool>) -> Self {
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
