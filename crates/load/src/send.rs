//! One connection: take a turn, send the request, read the response, record it, and again.
//!
//! In the steady state a request costs one send, one receive and one clock reading, and allocates nothing.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::arrivals::{Next, Turn};
use crate::check::{Cut, LastHead, Malformed, Reader, Response};
use crate::give_up::GiveUp;
use crate::outcome::ErrorClass;
use crate::record::Moments;
use crate::target::Request;
use crate::worker::Worker;

/// The first pause after a failure that follows a failure; it doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
/// The longest pause.
const PAUSE_LONGEST: Duration = Duration::from_millis(500);
/// What one receive takes at most.
const RECEIVE_BYTES: usize = 64 * 1024;

/// Sends requests on one connection, opened again whenever it ends, until the run is over.
pub(crate) async fn drive(worker: Rc<Worker>, index: usize) {
    let mut connection = Connection::new(worker, index);
    match connection.open_ahead().await {
        Ok(()) => connection.worker.shared.reach.succeeded(),
        // A server that is down for some of them is counted when the load begins.
        Err(failure) => connection.worker.shared.reach.failed(|| failure.to_string()),
    }
    let Some(mut free) = connection.worker.wait_for_start().await else { return };
    while let Some(turn) = connection.next_turn(&mut free).await {
        free = connection.perform(turn, free).await;
    }
}

/// What the connections of a thread share to receive into, as only one receives at a time.
#[derive(Debug)]
pub(crate) struct Scratch {
    buffer: Box<[u8]>,
    last_head: LastHead,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(), last_head: LastHead::default() }
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot connect to {address}: {source}")]
    Connect { address: std::net::SocketAddr, source: io::Error },
    #[error("no connection within {after:?}")]
    ConnectTimeout { after: Duration },
    #[error("cannot send the request: {0}")]
    Write(io::Error),
    #[error("cannot read the response: {0}")]
    Read(io::Error),
    #[error("{0}")]
    Cut(Cut),
    #[error("no whole response within {after:?}")]
    Timeout { after: Duration },
    #[error("{0}")]
    Malformed(Malformed),
}

impl Failure {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Connect { .. } | Self::ConnectTimeout { .. } => ErrorClass::Connect,
            Self::Write(_) => ErrorClass::Write,
            Self::Read(_) | Self::Cut(_) => ErrorClass::Read,
            Self::Timeout { .. } => ErrorClass::Timeout,
            Self::Malformed(_) => ErrorClass::Malformed,
        }
    }
}

/// How far an exchange has come.
#[derive(Debug, Default)]
struct Progress {
    sent_bytes: usize,
    received_bytes: u64,
    first_byte: Option<Instant>,
    /// The request could not be sent whole; the response may say why.
    write_error: Option<io::Error>,
    /// Whether the task was woken since the exchange began.
    was_woken: bool,
}

/// A whole response, and when it came.
#[derive(Debug)]
struct Received {
    response: Response,
    first_byte: Instant,
    done: Instant,
}

struct Connection {
    worker: Rc<Worker>,
    index: usize,
    stream: Option<TcpStream>,
    /// Which server the stream leads to.
    server: usize,
    reader: Reader,
    give_up: GiveUp,
    /// Failures since the last success.
    failures: u32,
}

impl Connection {
    fn new(worker: Rc<Worker>, index: usize) -> Self {
        let plan = &worker.shared.plan;
        let reader = Reader::new(plan.method == "HEAD");
        let give_up = GiveUp::new(Duration::from_secs_f64(plan.timeout_seconds));
        Self { worker, index, stream: None, server: 0, reader, give_up, failures: 0 }
    }

    /// Opens the connection before a request needs it, where it is known which server the request will go to.
    async fn open_ahead(&mut self) -> Result<(), Failure> {
        if self.stream.is_some() || !self.worker.opens_ahead() {
            return Ok(());
        }
        // Boxed, as everywhere that opens: each request would otherwise move the room that opening takes.
        Box::pin(self.open(0)).await
    }

    async fn open(&mut self, server: usize) -> Result<(), Failure> {
        let worker = Rc::clone(&self.worker);
        let began = Instant::now();
        self.give_up.start(began);
        let after = self.give_up.after();
        let connecting = self.give_up.bound(connect(&worker, server)).await;
        let stream = connecting.unwrap_or(Err(Failure::ConnectTimeout { after }))?;
        if worker.is_measured(began) {
            let mut record = worker.record.borrow_mut();
            record.connections_opened += 1;
            record.connect.record(began.elapsed());
        }
        self.reader.restart();
        self.stream = Some(stream);
        self.server = server;
        Ok(())
    }

    /// Waits for the next request to send; `None` is the end of the run. `free` becomes the time at which the
    /// connection was ready for it.
    async fn next_turn(&mut self, free: &mut Instant) -> Option<Turn> {
        loop {
            if let Err(failure) = self.open_ahead().await {
                *free = Instant::now();
                if self.worker.spend_on_failure(*free) {
                    return None;
                }
                let counted = self.worker.is_measured(*free);
                Box::pin(self.fail(&failure, *free, counted)).await;
                *free = Instant::now();
                continue;
            }
            match poll_fn(|context| self.poll_turn(*free, context)).await {
                Some(Next::Send(turn)) => return Some(turn),
                Some(Next::Over) => return None,
                // An idle connection may be closed by the server at any time: no request failed.
                None => {
                    self.worker.arrivals().leave(self.index);
                    self.stream = None;
                    Box::pin(self.pause()).await;
                    *free = Instant::now();
                }
            }
        }
    }

    /// `None` if the server ended the connection while it waited.
    fn poll_turn(&mut self, free: Instant, context: &mut Context<'_>) -> Poll<Option<Next>> {
        if let Poll::Ready(next) = self.worker.arrivals().poll_next(self.index, free, context) {
            return Poll::Ready(Some(next));
        }
        let Some(stream) = &mut self.stream else { return Poll::Pending };
        let mut byte = [0];
        // Bytes that nobody asked for end the connection as its end does.
        ready!(Pin::new(stream).poll_read(context, &mut ReadBuf::new(&mut byte))).ok();
        Poll::Ready(None)
    }

    /// Sends the request of this turn and records what comes of it. Returns when the connection is free again.
    async fn perform(&mut self, turn: Turn, free: Instant) -> Instant {
        let worker = Rc::clone(&self.worker);
        let request = worker.next_request();
        let sent = if worker.is_open_model { Instant::now() } else { turn.due };
        if turn.counted {
            worker.departure(&turn, free, sent);
        }
        let mut progress = Progress::default();
        let exchanged = self.exchange(request, sent, &mut progress).await;
        if turn.counted {
            let mut record = worker.record.borrow_mut();
            record.transferred(progress.sent_bytes, progress.received_bytes);
            if let Ok(Received { response, first_byte, done }) = exchanged {
                let moments = Moments { due: turn.due, sent, first_byte, done };
                record.response(response, &moments);
            }
            drop(record);
            worker.settled();
        }
        match exchanged {
            Ok(Received { response, done, .. }) => {
                self.failures = 0;
                let was_sent_whole = progress.sent_bytes == request.bytes.len();
                if !(response.keepalive && worker.shared.plan.keepalive && was_sent_whole) {
                    self.stream = None;
                }
                done
            }
            Err(failure) => {
                self.stream = None;
                Box::pin(self.fail(&failure, Instant::now(), turn.counted)).await;
                Instant::now()
            }
        }
    }

    async fn exchange(
        &mut self,
        request: &Request,
        sent: Instant,
        progress: &mut Progress,
    ) -> Result<Received, Failure> {
        if self.stream.is_none() || self.server != request.server {
            self.stream = None;
            Box::pin(self.open(request.server)).await?;
        }
        // The time-out covers the whole request, its connect included.
        self.give_up.start(sent);
        poll_fn(|context| self.poll_exchange(&request.bytes, progress, context)).await
    }

    fn poll_exchange(
        &mut self,
        request: &[u8],
        progress: &mut Progress,
        context: &mut Context<'_>,
    ) -> Poll<Result<Received, Failure>> {
        if progress.write_error.is_none()
            && let Poll::Ready(Err(error)) = self.poll_send(request, progress, context)
        {
            progress.write_error = Some(error);
        }
        if let Poll::Ready(received) = self.poll_receive(progress, context) {
            return Poll::Ready(received);
        }
        let was_woken = std::mem::replace(&mut progress.was_woken, true);
        let give_up = &mut self.give_up;
        let late = if was_woken { give_up.poll(context) } else { give_up.watch(context) };
        late.map(|()| Err(Failure::Timeout { after: self.give_up.after() }))
    }

    fn poll_send(
        &mut self,
        request: &[u8],
        progress: &mut Progress,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while progress.sent_bytes < request.len() {
            let Some(stream) = &mut self.stream else { break };
            match ready!(Pin::new(stream).poll_write(context, &request[progress.sent_bytes..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => progress.sent_bytes += written,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_receive(
        &mut self,
        progress: &mut Progress,
        context: &mut Context<'_>,
    ) -> Poll<Result<Received, Failure>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(Failure::Cut(Cut::Nothing))) };
        let mut scratch = self.worker.scratch.borrow_mut();
        let Scratch { buffer, last_head } = &mut *scratch;
        loop {
            let mut space = ReadBuf::new(buffer);
            let received = ready!(Pin::new(&mut *stream).poll_read(context, &mut space));
            let bytes = space.filled();
            progress.received_bytes += bytes.len() as u64;
            let response = match received {
                // A failed send is the cause of what follows, unless the server answered all the same.
                Err(error) => Err(progress.write_error.take().map_or(Failure::Read(error), Failure::Write)),
                Ok(()) if bytes.is_empty() => match (self.reader.end(), progress.write_error.take()) {
                    (Ok(response), _) => Ok(Some(response)),
                    (Err(_), Some(error)) => Err(Failure::Write(error)),
                    (Err(cut), None) => Err(Failure::Cut(cut)),
                },
                Ok(()) => self.reader.read(bytes, last_head).map_err(Failure::Malformed),
            };
            match response {
                Err(failure) => return Poll::Ready(Err(failure)),
                Ok(Some(response)) => {
                    let done = Instant::now();
                    let first_byte = progress.first_byte.unwrap_or(done);
                    return Poll::Ready(Ok(Received { response, first_byte, done }));
                }
                Ok(None) => {
                    progress.first_byte.get_or_insert_with(Instant::now);
                }
            }
        }
    }

    /// Records a failure, and pauses if it is not the first in a row: a server that is down must not be spun on.
    async fn fail(&mut self, failure: &Failure, now: Instant, counted: bool) {
        if counted {
            let words = || failure.to_string();
            self.worker.record.borrow_mut().failure(failure.class(), now, words);
            self.worker.publish();
        }
        self.pause().await;
    }

    async fn pause(&mut self) {
        let doublings = self.failures;
        self.failures = self.failures.saturating_add(1);
        if doublings > 0 {
            let pause = PAUSE_FIRST.saturating_mul(1 << (doublings - 1).min(16)).min(PAUSE_LONGEST);
            tokio::time::sleep(pause).await;
        }
    }
}

/// Connects to the first address of the server that accepts, starting with the one that did last time.
async fn connect(worker: &Worker, server: usize) -> Result<TcpStream, Failure> {
    let addresses = &worker.shared.targets.servers[server].addresses;
    let preferred = worker.preferred_address[server].get();
    let mut result = Err(Failure::Cut(Cut::Nothing));
    for offset in 0..addresses.len() {
        let chosen = (preferred + offset) % addresses.len();
        let address = addresses[chosen];
        // A TLS handshake belongs here, once HTTPS is spoken.
        match TcpStream::connect(address).await.and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
            Ok(stream) => {
                worker.preferred_address[server].set(chosen);
                return Ok(stream);
            }
            Err(source) => result = Err(Failure::Connect { address, source }),
        }
    }
    result
}
