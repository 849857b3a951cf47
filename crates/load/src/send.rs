//! HTTP/1.1 connection: takes a turn, sends the request, reads the response, records it, and repeats.
//!
//! In the steady state a request costs one send, one receive and one clock reading, and no allocation.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use crate::arrivals::{Next, Turn};
use crate::check::{Cut, LastHead, Malformed, Reader, Response};
use crate::connect;
use crate::cookies::Jar;
use crate::failure::{Failure, Setbacks};
use crate::give_up::GiveUp;
use crate::record::Moments;
use crate::target::Requests;
use crate::tls::Sessions;
use crate::transport::{Arrival, Fault, Transport};
use crate::visit::{Answer, Visit};
use crate::watch::Verdict;
use crate::worker::{Shared, Worker};

/// Maximum bytes of one receive.
const RECEIVE_BYTES: usize = 64 * 1024;
/// Maximum bytes of one receive with TLS: several records, or a handshake message of the maximum length.
const RECEIVE_TLS_BYTES: usize = 128 * 1024;

/// Sends requests on one connection until the run is over. Reopens the connection whenever it ends.
pub(crate) async fn drive(worker: Rc<Worker>, index: usize) {
    let mut connection = Connection::new(worker, index);
    match connection.open_ahead().await {
        Ok(_) => connection.worker.shared.reach.succeeded(),
        // A server that is down for some of them is counted when the load begins.
        Err(failure) => connection.worker.shared.reach.failed(|| failure.unreached()),
    }
    let Some(free) = connection.worker.wait_for_start().await else { return };
    if connection.user.is_some() {
        return Box::pin(drive_user(connection, free)).await;
    }
    connection.perform_all(free).await;
}

/// The same for a user with cookies or redirects.
async fn drive_user(mut connection: Connection, mut free: Instant) {
    while let Some(turn) = connection.next_turn(&mut free).await {
        free = connection.perform_visit(turn, free).await;
    }
}

/// Receive buffers that the connections of a thread share, as only one receives at a time.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) buffer: Box<[u8]>,
    last_head: LastHead,
}

impl Scratch {
    pub(crate) fn new(has_tls: bool) -> Self {
        let bytes = if has_tls { RECEIVE_TLS_BYTES } else { RECEIVE_BYTES };
        Self { buffer: vec![0; bytes].into_boxed_slice(), last_head: LastHead::default() }
    }
}

/// Progress of an exchange.
#[derive(Debug, Default)]
struct Progress {
    /// Bytes of the request, and those of it that were sent.
    request_bytes: usize,
    sent_bytes: usize,
    /// Bytes of earlier requests, which were redirected.
    redirected_bytes: u64,
    received_bytes: u64,
    first_byte: Option<Instant>,
    /// The request could not be sent completely; the response may give the reason.
    /// Boxed, since it is rare, and every request moves the room for it.
    write_error: Option<Box<Fault>>,
    /// Whether the task was woken since the exchange began.
    was_woken: bool,
}

/// A complete response, and when it arrived.
#[derive(Debug)]
struct Received {
    response: Response,
    first_byte: Instant,
    done: Instant,
}

struct Connection {
    worker: Rc<Worker>,
    index: usize,
    stream: Option<Transport>,
    sessions: Sessions,
    /// Server of the stream.
    server: usize,
    reader: Reader,
    give_up: GiveUp,
    setbacks: Setbacks,
    /// Set if requests depend on earlier responses.
    user: Option<Box<User>>,
}

/// What a user has besides a connection.
struct User {
    jar: Option<Jar>,
    /// Open connections to other servers, which redirects lead to.
    others: Vec<(usize, Transport)>,
}

impl Connection {
    fn new(worker: Rc<Worker>, index: usize) -> Self {
        let plan = &worker.shared.plan;
        let mut reader = Reader::new(false);
        let user = plan.has_visits().then(|| {
            reader.keep_heads();
            // They were checked before the run.
            let jar = plan.cookies.as_ref().map(|cookies| Jar::given(cookies).unwrap_or_default());
            Box::new(User { jar, others: Vec::new() })
        });
        let give_up = GiveUp::new(Duration::from_secs_f64(plan.timeout_seconds));
        let sessions = Sessions::new(worker.shared.targets.servers.count());
        Self {
            worker,
            index,
            stream: None,
            sessions,
            server: 0,
            reader,
            give_up,
            setbacks: Setbacks::default(),
            user,
        }
    }

    /// Opens the connection before a request needs it, if all requests go to one server. Returns whether it opened one.
    async fn open_ahead(&mut self) -> Result<bool, Failure> {
        if self.stream.is_some() || !self.worker.opens_ahead() {
            return Ok(false);
        }
        // Boxed, as everywhere that opens: each request would otherwise move the room that opening takes.
        Box::pin(self.open(0)).await.map(|()| true)
    }

    async fn open(&mut self, server: usize) -> Result<(), Failure> {
        let worker = Rc::clone(&self.worker);
        self.stream = Some(connect::open(&worker, &self.sessions, server, &mut self.give_up).await?);
        self.reader.restart();
        self.server = server;
        Ok(())
    }

    /// Waits for the next request to send; `None` is the end of the run. Updates `free`, the time since which the
    /// connection is ready.
    async fn next_turn(&mut self, free: &mut Instant) -> Option<Turn> {
        loop {
            let opened = self.open_ahead().await;
            // It was not ready for a request while it opened: that is no delay of the generator's.
            if !matches!(opened, Ok(false)) {
                *free = Instant::now();
            }
            if let Err(failure) = opened {
                if self.worker.spend_on_failure(*free) {
                    return None;
                }
                let counted = self.worker.is_measured(*free);
                Box::pin(self.setbacks.fail(&self.worker, &failure, *free, counted)).await;
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
                    Box::pin(self.setbacks.pause()).await;
                    *free = Instant::now();
                }
            }
        }
    }

    /// Polls for the next turn. `None` if the server closed the connection while it waited.
    fn poll_turn(&mut self, free: Instant, context: &mut Context<'_>) -> Poll<Option<Next>> {
        if let Poll::Ready(next) = self.worker.arrivals().poll_next(self.index, free, context) {
            return Poll::Ready(Some(next));
        }
        let Some(stream) = &mut self.stream else { return Poll::Pending };
        let mut scratch = self.worker.scratch.borrow_mut();
        // Bytes that nobody asked for end the connection as its end does. TLS may have something to say of its own.
        ready!(stream.poll_receive(context, &mut scratch.buffer, |_| {})).ok();
        Poll::Ready(None)
    }

    /// Sends requests until the run is over, and records their results. One future: a separate one for each request would
    /// be moved for each.
    async fn perform_all(&mut self, mut free: Instant) {
        let worker = Rc::clone(&self.worker);
        let Requests::Http1(requests) = &worker.shared.targets.requests else {
            unreachable!("the requests of a run are of one protocol")
        };
        while let Some(turn) = self.next_turn(&mut free).await {
            let chosen = worker.next_request(requests.len());
            let request = &requests[chosen];
            let sent = if worker.is_open_model { Instant::now() } else { turn.due };
            let number = turn.counted.then(|| worker.departure(&turn, free, sent));
            let mut progress = Progress::default();
            self.reader.prepare(request.is_head, request.checker.as_ref());
            let rendered = request.fill.as_ref().map(|fill| fill.render(worker.shared.targets.form(chosen)));
            let bytes = rendered.as_deref().unwrap_or(&request.bytes);
            let opened = if self.is_open_to(request.server) {
                Ok(())
            } else {
                Box::pin(self.open(request.server)).await
            };
            let exchanged = match opened {
                Ok(()) => {
                    self.begin(bytes, sent, &mut progress);
                    poll_fn(|context| self.poll_exchange(bytes, &mut progress, context)).await
                }
                Err(failure) => Err(failure),
            };
            if let Some(number) = number {
                self.record((chosen, number), &turn, sent, &exchanged, &progress);
            }
            free = match exchanged {
                Ok(Received { response, done, .. }) => {
                    self.setbacks.end();
                    self.keep_or_close(response, &progress);
                    done
                }
                Err(failure) => Box::pin(self.failed(&failure, &turn)).await,
            };
        }
    }

    /// Sends the request of a user with cookies or redirects, and records its result. Apart, so that other requests do not
    /// pay for it.
    async fn perform_visit(&mut self, turn: Turn, free: Instant) -> Instant {
        let worker = Rc::clone(&self.worker);
        let Requests::Http1(requests) = &worker.shared.targets.requests else {
            unreachable!("the requests of a run are of one protocol")
        };
        let chosen = worker.next_request(requests.len());
        let request = &requests[chosen];
        let sent = if worker.is_open_model { Instant::now() } else { turn.due };
        let number = turn.counted.then(|| worker.departure(&turn, free, sent));
        let mut progress = Progress::default();
        self.reader.prepare(request.is_head, request.checker.as_ref());
        let exchanged = self.visit(chosen, turn.counted, sent, &mut progress).await;
        if let Some(number) = number {
            self.record((chosen, number), &turn, sent, &exchanged, &progress);
        }
        match exchanged {
            Ok(Received { response, done, .. }) => {
                self.setbacks.end();
                self.keep_or_close(response, &progress);
                done
            }
            Err(failure) => self.failed(&failure, &turn).await,
        }
    }

    /// Closes the connection of a failed request, and counts it. Returns when the connection may be opened again.
    async fn failed(&mut self, failure: &Failure, turn: &Turn) -> Instant {
        self.stream = None;
        let worker = Rc::clone(&self.worker);
        self.setbacks.fail(&worker, failure, turn.due, turn.counted).await;
        Instant::now()
    }

    /// Records the result of a counted request: its index in the list, and its number among those under way.
    fn record(
        &self,
        (chosen, number): (usize, usize),
        turn: &Turn,
        sent: Instant,
        exchanged: &Result<Received, Failure>,
        progress: &Progress,
    ) {
        let verdict = exchanged.as_ref().map(|received| self.reader.verdict(received.response));
        let mut record = self.worker.record.borrow_mut();
        record.transferred(progress.redirected_bytes + progress.sent_bytes as u64, progress.received_bytes);
        if let (&Ok(Received { response, first_byte, done }), &Ok(verdict)) = (exchanged, &verdict) {
            let moments = Moments { due: turn.due, sent, first_byte, done };
            record.response(response, verdict, &moments, |missed| {
                let watch = self.reader.watch();
                let words = watch.map(|watch| watch.words(missed, response.status, response.body_bytes));
                self.worker.missed(chosen, &words.unwrap_or_default())
            });
        }
        drop(record);
        if self.worker.has_tables() {
            let began = if self.worker.is_open_model { turn.due } else { sent };
            let done = exchanged.as_ref().ok();
            self.worker.break_down(
                chosen,
                turn.due,
                done.map(|done| (done.response.status, done.done - began)),
                verdict.is_ok_and(|verdict| verdict == Verdict::Good),
            );
        }
        self.worker.settled(number);
    }

    /// Whether there is a connection to this server; one to another is closed.
    fn is_open_to(&mut self, server: usize) -> bool {
        if self.server != server {
            self.stream = None;
        }
        self.stream.is_some()
    }

    /// Begins an exchange. The time-out covers the whole request, its connect included.
    fn begin(&mut self, request: &[u8], sent: Instant, progress: &mut Progress) {
        progress.request_bytes = request.len();
        self.give_up.start(sent);
    }

    /// Keeps the connection for the next request only if both sides do.
    fn keep_or_close(&mut self, response: Response, progress: &Progress) {
        let was_sent_whole = progress.sent_bytes == progress.request_bytes;
        let is_ended = self.stream.as_ref().is_none_or(Transport::is_ended);
        if !(response.keepalive && self.worker.shared.plan.keepalive && was_sent_whole) || is_ended {
            self.stream = None;
        }
    }

    /// A request of a user, with the redirects that follow it.
    async fn visit(
        &mut self,
        chosen: usize,
        is_counted: bool,
        sent: Instant,
        progress: &mut Progress,
    ) -> Result<Received, Failure> {
        let worker = Rc::clone(&self.worker);
        let Shared { targets, .. } = &*worker.shared;
        let Requests::Http1(requests) = &targets.requests else {
            unreachable!("the requests of a run are of one protocol")
        };
        let mut visit =
            Visit::new(&worker.shared, chosen, requests[chosen].server, requests[chosen].fill.as_deref());
        loop {
            let jar = self.user.as_ref().and_then(|user| user.jar.as_ref());
            let request = visit.render(targets, jar);
            self.turn_to(visit.server);
            let received = self.exchange(visit.server, &request, sent, progress).await?;
            let answer = Answer::of_head(self.reader.kept());
            let jar = self.user.as_mut().and_then(|user| user.jar.as_mut());
            if !visit.takes(&worker.shared, &answer, jar)? {
                return Ok(received);
            }
            worker.record.borrow_mut().redirects += u64::from(is_counted);
            self.keep_or_close(received.response, progress);
            *progress = Progress {
                redirected_bytes: progress.redirected_bytes + progress.sent_bytes as u64,
                received_bytes: progress.received_bytes,
                ..Progress::default()
            };
        }
    }

    /// Puts the connection aside if it is to another server, and takes up one to this server, if one is open.
    fn turn_to(&mut self, server: usize) {
        if self.server == server {
            return;
        }
        let Some(user) = &mut self.user else { return };
        user.others.retain(|(other, _)| *other != self.server);
        if let Some(stream) = self.stream.take().filter(|_| self.worker.shared.plan.keepalive) {
            user.others.push((self.server, stream));
        }
        let known = user.others.iter().position(|(other, _)| *other == server);
        let mut stream = known.map(|at| user.others.swap_remove(at).1);
        // One that has ended, or said something that nobody asked for, is of no use any more.
        let mut context = Context::from_waker(Waker::noop());
        let mut scratch = self.worker.scratch.borrow_mut();
        stream.take_if(|stream| stream.poll_receive(&mut context, &mut scratch.buffer, |_| {}).is_ready());
        self.stream = stream;
        self.server = server;
        self.reader.restart();
    }

    async fn exchange(
        &mut self,
        server: usize,
        request: &[u8],
        sent: Instant,
        progress: &mut Progress,
    ) -> Result<Received, Failure> {
        if !self.is_open_to(server) {
            self.open(server).await?;
        }
        self.begin(request, sent, progress);
        poll_fn(|context| self.poll_exchange(request, progress, context)).await
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
            progress.write_error = Some(Box::new(error));
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
    ) -> Poll<Result<(), Fault>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
        while progress.sent_bytes < request.len() {
            match ready!(stream.poll_write(context, &request[progress.sent_bytes..]))? {
                0 => return Poll::Ready(Err(Fault::Io(io::ErrorKind::WriteZero.into()))),
                written => progress.sent_bytes += written,
            }
        }
        stream.poll_flush(context)
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
            let mut read = Ok(None);
            let received = ready!(stream.poll_receive(context, buffer, |bytes| {
                progress.received_bytes += bytes.len() as u64;
                read = match read {
                    Ok(None) => self.reader.read(bytes, last_head),
                    // One request is under way at a time: nothing may follow its response.
                    Ok(Some(_)) => Err(Malformed::Excess),
                    Err(malformed) => Err(malformed),
                };
            }));
            let response = match received {
                // A failed send is the cause of what follows, unless the server answered all the same.
                Err(fault) => {
                    Err(progress.write_error.take().map_or_else(|| unread(fault), |fault| unsent(*fault)))
                }
                Ok(Arrival::Content) => read.map_err(Failure::Malformed),
                Ok(ending) => match (self.reader.end(), progress.write_error.take()) {
                    // RFC 9112 §9.8: only a closure that was announced ends a body that nothing else ends.
                    (Ok(_), _) if ending == Arrival::Torn => Err(Failure::Cut(Cut::Torn)),
                    (Ok(response), _) => Ok(Some(response)),
                    (Err(_), Some(fault)) => Err(unsent(*fault)),
                    (Err(cut), None) => Err(Failure::Cut(cut)),
                },
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
}

fn unread(fault: Fault) -> Failure {
    match fault {
        Fault::Io(error) => Failure::Read(error),
        Fault::Tls(error) => Failure::Tls { error },
    }
}

fn unsent(fault: Fault) -> Failure {
    match fault {
        Fault::Io(error) => Failure::Write(error),
        Fault::Tls(error) => Failure::Tls { error },
    }
}
