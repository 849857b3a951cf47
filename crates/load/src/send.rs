//! HTTP/1.1 connection: takes a turn, sends the request, reads the response, records it, and repeats.
//!
//! In the steady state a request costs one send, one receive and one clock reading, and no allocation.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use crate::arrivals::{NextTurn, RequestTurn};
use crate::check::{CheckedResponse, Cut, LastHead, Malformed, ResponseReader};
use crate::connect;
use crate::cookies::Jar;
use crate::failure::{LoadFailure, Setbacks};
use crate::give_up::GiveUp;
use crate::record::Moments;
use crate::target::RenderedRequests;
use crate::tls::Sessions;
use crate::transport::{ReceiveResult, Transport, TransportFault};
use crate::visit::{Visit, VisitFields};
use crate::watch::ResponseVerdict;
use crate::worker::{LoadShared, LoadWorker};

const RECEIVE_BYTES: usize = 64 * 1024;
/// Maximum bytes of one receive with TLS: several records, or a handshake message of the maximum length.
const RECEIVE_TLS_BYTES: usize = 128 * 1024;

/// Sends requests on one connection until the run is over. Reopens the connection whenever it ends.
pub(crate) async fn drive(worker: Rc<LoadWorker>, index: usize) {
    let mut connection = LoadConnection::new(worker, index);
    match connection.open_ahead().await {
        Ok(_) => connection.worker.shared.reach.succeeded(),
        // A server that is down for some connections is counted when the load begins.
        Err(failure) => connection.worker.shared.reach.failed(|| failure.unreached()),
    }
    let Some(free) = connection.worker.wait_for_start().await else { return };
    if connection.user.is_some() {
        return Box::pin(drive_user(connection, free)).await;
    }
    connection.perform_all(free).await;
}

/// Sends the requests of a user with cookies or redirects.
async fn drive_user(mut connection: LoadConnection, mut free: Instant) {
    while let Some(turn) = connection.next_turn(&mut free).await {
        free = connection.perform_visit(turn, free).await;
    }
}

/// Receive buffers that the connections of a thread share, because only one receives at a time.
#[derive(Debug)]
pub(crate) struct SendScratch {
    pub(crate) buffer: Box<[u8]>,
    last_head: LastHead,
}

impl SendScratch {
    pub(crate) fn new(has_tls: bool) -> Self {
        let bytes = if has_tls { RECEIVE_TLS_BYTES } else { RECEIVE_BYTES };
        Self { buffer: vec![0; bytes].into_boxed_slice(), last_head: LastHead::default() }
    }
}

#[derive(Debug, Default)]
struct SendProgress {
    /// Length of the request, and the number of bytes sent.
    request_bytes: usize,
    sent_bytes: usize,
    /// Bytes of earlier requests, which were redirected.
    redirected_bytes: u64,
    received_bytes: u64,
    first_byte: Option<Instant>,
    /// The request could not be sent completely; the response may give the reason. Boxed, because it is rare, and every
    /// request moves the room for it.
    write_error: Option<Box<TransportFault>>,
    /// Whether the task was woken since the exchange began.
    was_woken: bool,
}

/// A complete response, and when it arrived.
#[derive(Debug)]
struct TimedResponse {
    response: CheckedResponse,
    first_byte: Instant,
    done: Instant,
}

struct LoadConnection {
    worker: Rc<LoadWorker>,
    index: usize,
    stream: Option<Transport>,
    sessions: Sessions,
    server: usize,
    /// How many times the server's addresses had changed when the connection was opened.
    address_changes: u64,
    reader: ResponseReader,
    give_up: GiveUp,
    setbacks: Setbacks,
    /// Set if requests depend on earlier responses.
    user: Option<Box<ConnectionUser>>,
}

/// State of a user, besides its connection.
struct ConnectionUser {
    jar: Option<Jar>,
    /// Open connections to other servers, which redirects lead to.
    others: Vec<(usize, Transport)>,
}

impl LoadConnection {
    fn new(worker: Rc<LoadWorker>, index: usize) -> Self {
        let plan = &worker.shared.plan;
        let mut reader = ResponseReader::new(false);
        let user = plan.has_visits().then(|| {
            reader.keep_heads();
            // They were checked before the run.
            let jar = plan.cookies.as_ref().map(|cookies| Jar::given(cookies).unwrap_or_default());
            Box::new(ConnectionUser { jar, others: Vec::new() })
        });
        let give_up = GiveUp::new(Duration::from_secs_f64(plan.timeout_seconds));
        let sessions = Sessions::new(worker.shared.targets.servers.count());
        Self {
            worker,
            index,
            stream: None,
            sessions,
            server: 0,
            address_changes: 0,
            reader,
            give_up,
            setbacks: Setbacks::default(),
            user,
        }
    }

    /// Opens the connection before a request needs it, if all requests go to one server. Returns whether it opened one.
    async fn open_ahead(&mut self) -> Result<bool, LoadFailure> {
        if self.stream.is_some() || !self.worker.opens_ahead() {
            return Ok(false);
        }
        // Boxed, because each request would otherwise move the large state of opening.
        Box::pin(self.open(0)).await.map(|()| true)
    }

    /// Opens the connection as [`Self::open_ahead`] does, once the load has begun. A connection that cannot be opened
    /// is as late as a response.
    async fn open_ahead_counted(&mut self) -> Result<bool, LoadFailure> {
        if self.stream.is_some() || !self.worker.opens_ahead() {
            return Ok(false);
        }
        let number = self.worker.opening();
        let opened = self.open_ahead().await;
        number.into_iter().for_each(|number| self.worker.settled(number));
        opened
    }

    async fn open(&mut self, server: usize) -> Result<(), LoadFailure> {
        let worker = Rc::clone(&self.worker);
        // Read first, so that a change during the connect is noticed.
        self.address_changes = worker.address_changes(server);
        self.stream = Some(connect::open(&worker, &self.sessions, server, &mut self.give_up).await?);
        self.reader.restart();
        self.server = server;
        Ok(())
    }

    /// Waits for the next request to send; `None` ends the run. Updates `free`: since when the connection is ready.
    async fn next_turn(&mut self, free: &mut Instant) -> Option<RequestTurn> {
        loop {
            let opened = self.open_ahead_counted().await;
            // While it was opened, the connection was not ready. This is not the generator's delay.
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
                Some(NextTurn::Send(turn)) => return Some(turn),
                Some(NextTurn::Over) => return None,
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
    fn poll_turn(&mut self, free: Instant, context: &mut Context<'_>) -> Poll<Option<NextTurn>> {
        if let Poll::Ready(next) = self.worker.arrivals().poll_next(self.index, free, context) {
            return Poll::Ready(Some(next));
        }
        let Some(stream) = &mut self.stream else { return Poll::Pending };
        let mut scratch = self.worker.scratch.borrow_mut();
        // Unexpected bytes end the connection, as its end does. TLS messages without content do not.
        ready!(stream.poll_receive(context, &mut scratch.buffer, |_| {})).ok();
        Poll::Ready(None)
    }

    /// Sends requests and records their results until the run is over. A future per request would be moved each time.
    async fn perform_all(&mut self, mut free: Instant) {
        let worker = Rc::clone(&self.worker);
        let RenderedRequests::Http1(requests) = &worker.shared.targets.requests else {
            unreachable!("the requests of a run are of one protocol")
        };
        while let Some(turn) = self.next_turn(&mut free).await {
            let chosen = worker.next_request(requests.len());
            let request = &requests[chosen];
            let sent = if worker.is_open_model { Instant::now() } else { turn.due };
            let number = turn.counted.then(|| worker.departure(&turn, free, sent, Some(chosen)));
            let mut progress = SendProgress::default();
            self.reader.prepare(request.is_head, request.checker.as_ref(), request.pattern.as_ref());
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
                Ok(TimedResponse { response, done, .. }) => {
                    self.setbacks.end();
                    self.keep_or_close(response, &progress);
                    done
                }
                Err(failure) => Box::pin(self.failed(&failure, &turn)).await,
            };
        }
    }

    /// Sends the request of a user with cookies or redirects, and records its result. A separate function, so that
    /// other requests do not pay for it.
    async fn perform_visit(&mut self, turn: RequestTurn, free: Instant) -> Instant {
        let worker = Rc::clone(&self.worker);
        let RenderedRequests::Http1(requests) = &worker.shared.targets.requests else {
            unreachable!("the requests of a run are of one protocol")
        };
        let chosen = worker.next_request(requests.len());
        let request = &requests[chosen];
        let sent = if worker.is_open_model { Instant::now() } else { turn.due };
        let number = turn.counted.then(|| worker.departure(&turn, free, sent, Some(chosen)));
        let mut progress = SendProgress::default();
        self.reader.prepare(request.is_head, request.checker.as_ref(), request.pattern.as_ref());
        let exchanged = self.visit(chosen, turn.counted, sent, &mut progress).await;
        if let Some(number) = number {
            self.record((chosen, number), &turn, sent, &exchanged, &progress);
        }
        match exchanged {
            Ok(TimedResponse { response, done, .. }) => {
                self.setbacks.end();
                self.keep_or_close(response, &progress);
                done
            }
            Err(failure) => self.failed(&failure, &turn).await,
        }
    }

    /// Closes a failed request's connection and counts the failure. Returns when the connection may be opened again.
    async fn failed(&mut self, failure: &LoadFailure, turn: &RequestTurn) -> Instant {
        self.stream = None;
        let worker = Rc::clone(&self.worker);
        self.setbacks.fail(&worker, failure, turn.due, turn.counted).await;
        Instant::now()
    }

    /// Records the result of a counted request: its index in the list, and its number among the active ones.
    fn record(
        &self,
        (chosen, number): (usize, usize),
        turn: &RequestTurn,
        sent: Instant,
        exchanged: &Result<TimedResponse, LoadFailure>,
        progress: &SendProgress,
    ) {
        let (observer, pattern) = (self.reader.observer(), self.worker.pattern(chosen));
        let verdict = exchanged
            .as_ref()
            .map(|received| observer.verdict(received.response.page(), pattern, received.done));
        let mut record = self.worker.record.borrow_mut();
        record.transferred(progress.redirected_bytes + progress.sent_bytes as u64, progress.received_bytes);
        if let (&Ok(TimedResponse { response, first_byte, done }), &Ok(verdict)) = (exchanged, &verdict) {
            let moments = Moments { due: turn.due, sent, first_byte, done };
            record.response(response.page(), verdict, &moments, || {
                self.worker.missed(chosen, &observer.words(verdict, response.page(), pattern))
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
                verdict.is_ok_and(|verdict| verdict == ResponseVerdict::Good),
            );
        }
        match exchanged {
            Err(LoadFailure::Timeout { .. }) => self.worker.unanswered(number, Instant::now()),
            _ => self.worker.settled(number),
        }
    }

    /// Whether there is a connection to this server. Closes a connection to another server.
    fn is_open_to(&mut self, server: usize) -> bool {
        if self.server != server {
            self.stream = None;
        }
        self.stream.is_some()
    }

    /// Begins an exchange. The time-out covers the whole request, its connect included.
    fn begin(&mut self, request: &[u8], sent: Instant, progress: &mut SendProgress) {
        progress.request_bytes = request.len();
        self.give_up.start(sent);
    }

    /// Keeps the connection for the next request only if both sides do.
    fn keep_or_close(&mut self, response: CheckedResponse, progress: &SendProgress) {
        let was_sent_whole = progress.sent_bytes == progress.request_bytes;
        let is_ended = self.stream.as_ref().is_none_or(Transport::is_ended)
            || self.worker.address_changes(self.server) != self.address_changes;
        if !(response.keepalive && self.worker.shared.plan.keepalive && was_sent_whole) || is_ended {
            self.stream = None;
        }
    }

    /// Sends a request of a user, and the redirects that follow it.
    async fn visit(
        &mut self,
        chosen: usize,
        is_counted: bool,
        sent: Instant,
        progress: &mut SendProgress,
    ) -> Result<TimedResponse, LoadFailure> {
        let worker = Rc::clone(&self.worker);
        let LoadShared { targets, .. } = &*worker.shared;
        let RenderedRequests::Http1(requests) = &targets.requests else {
            unreachable!("the requests of a run are of one protocol")
        };
        let mut visit =
            Visit::new(&worker.shared, chosen, requests[chosen].server, requests[chosen].fill.as_deref());
        loop {
            let jar = self.user.as_ref().and_then(|user| user.jar.as_ref());
            let request = visit.render(targets, jar);
            self.turn_to(visit.server);
            let received = self.exchange(visit.server, &request, sent, progress).await?;
            let answer = VisitFields::of_head(self.reader.kept());
            let jar = self.user.as_mut().and_then(|user| user.jar.as_mut());
            if !visit.takes(&worker.shared, &answer, jar)? {
                return Ok(received);
            }
            worker.record.borrow_mut().redirects += u64::from(is_counted);
            self.keep_or_close(received.response, progress);
            *progress = SendProgress {
                redirected_bytes: progress.redirected_bytes + progress.sent_bytes as u64,
                received_bytes: progress.received_bytes,
                ..SendProgress::default()
            };
        }
    }

    /// Puts the connection aside if it is to another server, and takes an open one to this server, if there is one.
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
        // A connection that has ended, or has received unexpected bytes, is no longer usable.
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
        progress: &mut SendProgress,
    ) -> Result<TimedResponse, LoadFailure> {
        if !self.is_open_to(server) {
            self.open(server).await?;
        }
        self.begin(request, sent, progress);
        poll_fn(|context| self.poll_exchange(request, progress, context)).await
    }

    fn poll_exchange(
        &mut self,
        request: &[u8],
        progress: &mut SendProgress,
        context: &mut Context<'_>,
    ) -> Poll<Result<TimedResponse, LoadFailure>> {
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
        late.map(|()| Err(LoadFailure::Timeout { after: self.give_up.after() }))
    }

    fn poll_send(
        &mut self,
        request: &[u8],
        progress: &mut SendProgress,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), TransportFault>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
        while progress.sent_bytes < request.len() {
            match ready!(stream.poll_write(context, &request[progress.sent_bytes..]))? {
                0 => return Poll::Ready(Err(TransportFault::Io(io::ErrorKind::WriteZero.into()))),
                written => progress.sent_bytes += written,
            }
        }
        stream.poll_flush(context)
    }

    fn poll_receive(
        &mut self,
        progress: &mut SendProgress,
        context: &mut Context<'_>,
    ) -> Poll<Result<TimedResponse, LoadFailure>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(LoadFailure::Cut(Cut::Nothing))) };
        let mut scratch = self.worker.scratch.borrow_mut();
        let SendScratch { buffer, last_head } = &mut *scratch;
        loop {
            let mut read = Ok(None);
            let received = ready!(stream.poll_receive(context, buffer, |bytes| {
                progress.received_bytes += bytes.len() as u64;
                read = match read {
                    Ok(None) => self.reader.read(bytes, last_head),
                    // Requests are not pipelined, so no bytes may follow a response.
                    Ok(Some(_)) => Err(Malformed::Excess),
                    Err(malformed) => Err(malformed),
                };
            }));
            let response = match received {
                // A failed send is the cause of later errors, unless the server answered all the same.
                Err(fault) => {
                    Err(progress.write_error.take().map_or_else(|| unread(fault), |fault| unsent(*fault)))
                }
                Ok(ReceiveResult::Content) => read.map_err(LoadFailure::Malformed),
                Ok(ending) => match (self.reader.end(), progress.write_error.take()) {
                    // RFC 9112 §9.8: only an announced closure ends a body that has no other end.
                    (Ok(_), _) if ending == ReceiveResult::Torn => Err(LoadFailure::Cut(Cut::Torn)),
                    (Ok(response), _) => Ok(Some(response)),
                    (Err(_), Some(fault)) => Err(unsent(*fault)),
                    (Err(cut), None) => Err(LoadFailure::Cut(cut)),
                },
            };
            match response {
                Err(failure) => return Poll::Ready(Err(failure)),
                Ok(Some(response)) => {
                    let done = Instant::now();
                    let first_byte = progress.first_byte.unwrap_or(done);
                    return Poll::Ready(Ok(TimedResponse { response, first_byte, done }));
                }
                Ok(None) => {
                    progress.first_byte.get_or_insert_with(Instant::now);
                }
            }
        }
    }
}

fn unread(fault: TransportFault) -> LoadFailure {
    match fault {
        TransportFault::Io(error) => LoadFailure::Read(error),
        TransportFault::Tls(error) => LoadFailure::Tls { error },
    }
}

fn unsent(fault: TransportFault) -> LoadFailure {
    match fault {
        TransportFault::Io(error) => LoadFailure::Write(error),
        TransportFault::Tls(error) => LoadFailure::Tls { error },
    }
}
