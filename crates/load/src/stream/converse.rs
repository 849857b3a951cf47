//! A stream, from its opening to its end: sends when its turn comes, receives always, and opens again what broke.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::failure::StreamFailure;
use super::grpc::Messages;
use super::ledger::Ledger;
use super::open::{self, Opening};
use super::pipe::Pipe;
use super::plan::{Call, Workload};
use super::session::Link;
use super::sse::{Event, Events};
use super::websocket::{self, Frames, Opcode, Received};
use super::{Prepared, grpc};
use crate::arrivals::{Next, Turn};
use crate::check::Cut;
use crate::failure::{Failure, Setbacks};
use crate::give_up::GiveUp;
use crate::plan::Arrival;
use crate::random::Random;
use crate::template::Values;
use crate::worker::Worker;

/// How often a stream sends and receives before others have their turn.
const ROUNDS_MAX: u32 = 64;
/// Longest time that a server's `retry` lets an event stream wait.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Maximum number of connections on which a call is tried that the server has not processed.
const ATTEMPTS_MAX: u32 = 3;
/// Bytes of frames that wait to answer others; further pings are not answered.
const ANSWERS_BYTES_MAX: usize = 64 * 1024;
/// Stands for the code of a close frame without one (RFC 6455 §7.1.5).
const NO_CODE: u16 = 1005;

/// Which stream it is: within the thread, and of all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) local: usize,
    pub(super) number: usize,
}

/// How a stream ended, if it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The run is over for it.
    Over,
    /// The server ended it.
    Closed,
    /// A gRPC call ended with OK.
    Called,
}

/// What a stream does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Receives,
    /// Sends what others receive.
    Publishes,
    /// Sends and is answered.
    Converses,
    Calls(Call),
}

/// Waits until the load begins; `None` once it has.
type Waiting = Option<Pin<Box<dyn Future<Output = Option<Instant>>>>>;

struct Stream {
    worker: Rc<Worker>,
    link: Rc<Link>,
    place: Place,
    workload: Workload,
    role: Role,
    waiting: Waiting,
    give_up: GiveUp,
    setbacks: Setbacks,
    random: Random,
    ledger: Ledger,
    /// Messages composed so far.
    composed: u64,
    /// The last one.
    message: Vec<u8>,
    /// Since when the stream is ready to send.
    free: Instant,
    /// It waits for its turn.
    has_asked: bool,
    /// A turn that came when the stream was broken.
    kept_turn: Option<Turn>,
    /// The run is over for it.
    is_over: bool,
    /// It was open before.
    was_open: bool,
    /// How often the call was made that the server has not processed.
    attempt: u32,
    decoder: Decoder,
    /// Frames that answer what was received.
    answers: Vec<u8>,
    /// Code of the server's close frame.
    closed: Option<u16>,
    broken: Option<Failure>,
    call: CallState,
}

/// Reads messages from bytes.
enum Decoder {
    Events(Events),
    Frames(Frames),
    Messages(Messages),
}

/// State of a gRPC call.
#[derive(Debug, Clone, Copy)]
struct CallState {
    began: Instant,
    sent: u64,
    received: u64,
    received_bytes: usize,
    /// Turn and sending of its first message if there is one, otherwise of its last.
    last: Option<(Turn, Instant)>,
    /// When it had sent everything.
    finished: Option<Instant>,
}

impl CallState {
    fn new(began: Instant) -> Self {
        Self { began, sent: 0, received: 0, received_bytes: 0, last: None, finished: None }
    }
}

/// Runs a stream until the run is over.
pub(super) async fn drive(link: Rc<Link>, place: Place) {
    let mut stream = Stream::new(link, place);
    let mut next = stream.open_ahead().await;
    match &next {
        Ok(_) => stream.worker.shared.reach.succeeded(),
        // A server that is down for some of them is counted when the load begins.
        Err(failure) => stream.worker.shared.reach.failed(|| failure.unreached()),
    }
    let worker = Rc::clone(&stream.worker);
    stream.waiting = Some(Box::pin(async move { worker.wait_for_start().await }));
    loop {
        let opened = match next {
            Ok(None) => stream.begin().await,
            opened => opened,
        };
        let goes_on = match opened {
            Ok(None) => false,
            Ok(Some(mut pipe)) => {
                let ended = poll_fn(|context| stream.poll_converse(&mut pipe, context)).await;
                stream.ended(ended, &pipe).await
            }
            Err(failure) => stream.failed_to_open(&failure).await,
        };
        if !goes_on {
            return;
        }
        next = Ok(None);
    }
}

impl Stream {
    fn new(link: Rc<Link>, place: Place) -> Self {
        let worker = Rc::clone(&link.worker);
        let plan = &worker.shared.plan;
        let workload = plan.stream.as_ref().map_or(Workload::Events, |streams| streams.workload);
        let role = match workload {
            Workload::Events => Role::Receives,
            Workload::Echo => Role::Converses,
            Workload::FanOut { senders } if place.number < senders => Role::Publishes,
            Workload::FanOut { .. } => Role::Receives,
            Workload::Grpc { call, .. } => Role::Calls(call),
        };
        let receives = matches!(role, Role::Receives | Role::Calls(Call::ServerStream));
        let now = Instant::now();
        Self {
            place,
            workload,
            role,
            waiting: None,
            give_up: GiveUp::new(Duration::from_secs_f64(plan.timeout_seconds)),
            setbacks: Setbacks::default(),
            random: Random::of_thread(plan.values_seed, place.number),
            ledger: Ledger::new(&worker, place.number, receives),
            composed: 0,
            message: Vec::new(),
            free: now,
            has_asked: false,
            kept_turn: None,
            is_over: false,
            was_open: false,
            attempt: 0,
            decoder: Decoder::of(workload),
            answers: Vec::new(),
            closed: None,
            broken: None,
            call: CallState::new(now),
            link,
            worker,
        }
    }

    fn prepared(&self) -> &Prepared {
        match &self.worker.shared.streams {
            Some(prepared) => prepared,
            None => unreachable!("a run with streams has prepared them"),
        }
    }

    /// Opens the stream before the load begins, so that all are open when it does. Of gRPC, the connection.
    async fn open_ahead(&mut self) -> Result<Option<Pipe>, Failure> {
        match self.role {
            Role::Calls(_) => self.link.session(&mut self.give_up).await.map(|_| None),
            _ => self.begin().await,
        }
    }

    /// Opens the stream, or makes the next call. `None` is the end of the run.
    async fn begin(&mut self) -> Result<Option<Pipe>, Failure> {
        let (mut first, mut is_all) = (Vec::new(), false);
        if let Role::Calls(call) = self.role {
            if self.is_over || !self.has_begun().await {
                return Ok(None);
            }
            match call {
                // The message of the last attempt.
                Call::Unary if self.attempt > 0 => {}
                Call::ServerStream => self.compose_unanswered(),
                Call::Unary | Call::ClientStream | Call::Bidi => {
                    let Some(turn) = poll_fn(|context| self.poll_turn(Instant::now(), context)).await else {
                        return Ok(None);
                    };
                    self.call = CallState::new(Instant::now());
                    match call {
                        Call::Unary => self.compose_call(turn),
                        // It is sent once the call is open.
                        _ => self.kept_turn = Some(turn),
                    }
                }
            }
            if matches!(call, Call::Unary | Call::ServerStream) {
                (first, is_all) = (open::framed(&self.message), true);
            }
        }
        let began = Instant::now();
        let last_id = self.decoder.restart();
        let opening = Opening { workload: self.workload, last_id: &last_id, first: &first, is_all };
        let pipe = open::open(&self.link, opening, &mut self.random, &mut self.give_up).await?;
        let is_call = matches!(self.role, Role::Calls(_));
        let is_again = std::mem::replace(&mut self.was_open, true) && !is_call;
        self.ledger.tally(|tally| {
            tally.counts.opened += 1;
            tally.counts.reconnected += u64::from(is_again);
            if !is_call {
                tally.open.record(began.elapsed());
            }
        });
        self.closed = None;
        Ok(Some(pipe))
    }

    /// Waits until the load has begun. False if the run is stopped before.
    async fn has_begun(&mut self) -> bool {
        let Some(waiting) = self.waiting.take() else { return true };
        let begun = waiting.await;
        self.free = begun.unwrap_or(self.free);
        begun.is_some()
    }

    /// Records that the stream could not be opened. Returns whether to try again, after a pause.
    async fn failed_to_open(&mut self, failure: &Failure) -> bool {
        self.ledger.tally(|tally| tally.counts.failed += 1);
        if !self.has_begun().await {
            return false;
        }
        let now = Instant::now();
        // A call has its turn; whatever else cannot be opened takes one, so that a run against a dead server ends.
        let turn = self.call.last.map(|(turn, _)| turn).filter(|_| self.role == Role::Calls(Call::Unary));
        let is_over = turn.is_none() && self.worker.spend_on_failure(now);
        let (due, counted) =
            turn.map_or((now, self.worker.is_measured(now)), |turn| (turn.due, turn.counted));
        self.attempt = 0;
        self.ledger.forget();
        // WHATWG HTML §9.2.3: with 204 a server ends an event stream for good.
        let is_ended = matches!(failure, Failure::Stream(StreamFailure::Status { status: 204 }));
        if is_over || (is_ended && self.workload == Workload::Events) {
            return false;
        }
        self.setbacks.fail(&self.worker, failure, due, counted).await;
        true
    }

    /// Records how the stream ended. Returns whether to open it again, after a pause.
    async fn ended(&mut self, ended: Result<Ended, Failure>, pipe: &Pipe) -> bool {
        self.keep_turn();
        let now = Instant::now();
        let is_measured = self.worker.is_measured(now);
        let failure = match ended {
            Ok(Ended::Over) => return false,
            Ok(Ended::Called) => {
                self.attempt = 0;
                self.setbacks.end();
                return true;
            }
            Ok(Ended::Closed) => None,
            Err(failure) => Some(failure),
        };
        if let (Some(failure), Some(session)) = (&failure, pipe.session()) {
            self.link.broken(session, failure);
        }
        let is_unary = self.role == Role::Calls(Call::Unary);
        if is_unary && failure.as_ref().is_some_and(Failure::is_unprocessed) && self.attempt < ATTEMPTS_MAX {
            self.attempt += 1;
            return true;
        }
        self.attempt = 0;
        let has_status = matches!(failure, Some(Failure::Stream(StreamFailure::GrpcStatus { .. })));
        self.ledger.tally(|tally| tally.counts.closed_early += u64::from(is_measured && !has_status));
        if is_unary {
            self.ledger.forget();
        } else {
            self.ledger.interrupted();
        }
        if let Some(failure) = &failure {
            let turn = self.call.last.map(|(turn, _)| turn).filter(|_| is_unary);
            let (due, counted) = turn.map_or((now, is_measured), |turn| (turn.due, turn.counted));
            self.setbacks.fail(&self.worker, failure, due, counted).await;
        } else {
            self.setbacks.end();
        }
        if let Some(retry) = self.decoder.retry() {
            tokio::time::sleep(retry.min(RETRY_MAX)).await;
        }
        !self.is_over
    }

    /// Gives back a turn that the stream waits for, or keeps it if it has come.
    fn keep_turn(&mut self) {
        if std::mem::take(&mut self.has_asked) {
            let mut context = Context::from_waker(std::task::Waker::noop());
            match self.worker.arrivals().poll_next(self.place.local, Instant::now(), &mut context) {
                Poll::Ready(Next::Send(turn)) => self.kept_turn = Some(turn),
                Poll::Ready(Next::Over) => self.end_sending(),
                Poll::Pending => self.worker.arrivals().leave(self.place.local),
            }
        }
    }

    /// Sends and receives until the stream ends.
    fn poll_converse(&mut self, pipe: &mut Pipe, context: &mut Context<'_>) -> Poll<Result<Ended, Failure>> {
        let worker = Rc::clone(&self.worker);
        if let Some(waiting) = &mut self.waiting
            && let Poll::Ready(begun) = waiting.as_mut().poll(context)
        {
            self.waiting = None;
            let Some(begun) = begun else { return Poll::Ready(Ok(Ended::Over)) };
            self.free = begun;
        }
        for _ in 0..ROUNDS_MAX {
            let received = pipe.poll_receive(&worker, context, |bytes| self.take(bytes));
            if let Some(failure) = self.broken.take() {
                self.say_goodbye(pipe, context);
                return Poll::Ready(Err(failure));
            }
            if let Some(code) = self.closed {
                websocket::append_close(1000, self.random.next() as u32, &mut self.answers);
                self.say_goodbye(pipe, context);
                // RFC 6455 §7.4.1: the server has done its work, or goes away, or gives no reason.
                let is_well = matches!(code, 1000 | 1001 | NO_CODE);
                return Poll::Ready(if is_well {
                    Ok(Ended::Closed)
                } else {
                    Err(StreamFailure::Closed(code).into())
                });
            }
            match &received {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return Poll::Ready(self.end_of_body(pipe)),
                Poll::Ready(Err(_)) => return received.map_ok(|_| Ended::Closed),
                Poll::Pending => {}
            }
            if !pipe.is_full() {
                pipe.out().append(&mut self.answers);
            }
            self.answers.clear();
            let has_sent = self.poll_send(pipe, context);
            if let Poll::Ready(Err(failure)) = pipe.poll_flush(&worker, context) {
                return Poll::Ready(Err(failure));
            }
            let gave_up = match has_sent || received.is_ready() || self.is_done() {
                true => Poll::Pending,
                false => self.poll_give_up(pipe, context),
            };
            match gave_up {
                // Nothing else is to come: what was overtaken is lost.
                Poll::Ready(_) if self.is_over && self.ledger.unanswered.oldest().is_none() => {}
                Poll::Ready(failure) => return Poll::Ready(Err(failure)),
                Poll::Pending if self.is_done() => {}
                Poll::Pending if has_sent || received.is_ready() => continue,
                Poll::Pending => return Poll::Pending,
            }
            if self.workload.is_websocket() {
                websocket::append_close(1000, self.random.next() as u32, &mut self.answers);
                self.say_goodbye(pipe, context);
            }
            return Poll::Ready(Ok(Ended::Over));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends the last frames, if there is room for them.
    fn say_goodbye(&mut self, pipe: &mut Pipe, context: &mut Context<'_>) {
        pipe.out().append(&mut self.answers);
        pipe.finish();
        let _ = pipe.poll_flush(&self.worker, context);
    }

    /// Whether the run is over for the stream. A publisher stays: that it leaves would be another event.
    fn is_done(&self) -> bool {
        self.is_over
            && match self.role {
                Role::Receives | Role::Calls(Call::ServerStream) => true,
                Role::Converses => self.ledger.unanswered.is_empty(),
                Role::Publishes | Role::Calls(_) => false,
            }
    }

    /// Ready when something was waited for too long.
    fn poll_give_up(&mut self, pipe: &Pipe, context: &mut Context<'_>) -> Poll<Failure> {
        let since = match self.role {
            Role::Receives | Role::Publishes => return Poll::Pending,
            Role::Calls(Call::ServerStream) => Some(self.call.began).filter(|_| pipe.head().is_none()),
            Role::Converses if self.is_over => Some(self.ledger.unanswered.oldest().unwrap_or(self.free)),
            _ => self.ledger.unanswered.oldest().or(self.call.finished),
        };
        self.give_up.start(since.unwrap_or_else(Instant::now));
        let after = self.give_up.after();
        self.give_up.poll(context).map(|()| Failure::Timeout { after })
    }

    /// The next turn to send; `None` at the end of the run.
    fn poll_turn(&mut self, now: Instant, context: &mut Context<'_>) -> Poll<Option<Turn>> {
        if let Some(turn) = self.kept_turn.take() {
            return Poll::Ready(Some(turn));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        let next = self.worker.arrivals().poll_next(self.place.local, now, context);
        self.has_asked = next.is_pending();
        Poll::Ready(match ready!(next) {
            Next::Send(turn) => Some(turn),
            Next::Over => {
                self.end_sending();
                None
            }
        })
    }

    fn end_sending(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) && self.role == Role::Publishes {
            self.prepared().ended.fetch_add(1, Ordering::Release);
        }
    }

    /// Sends a message, or the end of a call. Returns whether it did.
    fn poll_send(&mut self, pipe: &mut Pipe, context: &mut Context<'_>) -> bool {
        if self.waiting.is_some() || pipe.is_full() {
            return false;
        }
        let is_closed_loop = self.worker.shared.plan.arrival == Arrival::Closed;
        let is_full = is_closed_loop && self.ledger.unanswered.len() >= self.prepared().plan.in_flight;
        match (self.role, self.workload) {
            (Role::Receives | Role::Calls(Call::Unary | Call::ServerStream), _) => return false,
            (Role::Calls(_), _) if self.call.finished.is_some() => return false,
            (Role::Calls(_), Workload::Grpc { messages: Some(most), .. }) if self.call.sent >= most => {
                return self.finish_call(pipe);
            }
            (Role::Converses | Role::Calls(Call::Bidi), _) if is_full => return false,
            _ if self.is_over && matches!(self.role, Role::Converses | Role::Publishes) => return false,
            _ => {}
        }
        let now = Instant::now();
        let turn = match self.poll_turn(now, context) {
            Poll::Pending => return false,
            Poll::Ready(Some(turn)) => turn,
            Poll::Ready(None) if matches!(self.role, Role::Calls(_)) => return self.finish_call(pipe),
            Poll::Ready(None) => return true,
        };
        self.compose(turn.due, now);
        match self.role {
            Role::Calls(_) => grpc::append(&self.message, pipe.out()),
            _ => {
                let opcode = if self.prepared().is_text { Opcode::Text } else { Opcode::Binary };
                websocket::append(opcode, &self.message, self.random.next() as u32, pipe.out());
            }
        }
        let waits = matches!(self.role, Role::Converses | Role::Calls(Call::Bidi));
        self.ledger.sent(self.composed, turn, self.free, now, self.message.len(), waits);
        self.free = now;
        self.call.sent += 1;
        self.call.last = Some((turn, now));
        if self.role == Role::Publishes {
            let (prepared, number) = (self.prepared(), self.place.number);
            prepared.sent[number].store(self.composed, Ordering::Relaxed);
            if turn.counted {
                // Before it is sent, so that whoever receives it knows.
                prepared.first_measured[number].fetch_min(self.composed, Ordering::Release);
            }
        }
        true
    }

    fn finish_call(&mut self, pipe: &mut Pipe) -> bool {
        pipe.finish();
        self.call.finished = Some(Instant::now());
        true
    }

    /// Renders the next message, with the time when it was due.
    fn compose(&mut self, due: Instant, now: Instant) {
        self.composed += 1;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ns = unix.saturating_sub(now.saturating_duration_since(due)).as_nanos() as u64;
        let seed = self.worker.shared.plan.values_seed;
        let mut values = Values::of_stream(seed, self.place.number, self.composed, unix_ns);
        let mut message = std::mem::take(&mut self.message);
        message.clear();
        let prepared = self.prepared();
        prepared.message.render(&mut values, &mut message);
        let size_bytes = prepared.plan.message.size_bytes;
        if message.len() < size_bytes {
            message.resize(size_bytes, b'.');
        }
        self.message = message;
    }

    /// The message of a call whose responses nobody waits for one by one.
    fn compose_unanswered(&mut self) {
        let now = Instant::now();
        self.call = CallState::new(now);
        self.compose(now, now);
        let (bytes, is_measured) = (self.message.len() as u64, self.worker.is_measured(now));
        self.ledger.tally(|tally| {
            tally.counts.sent += u64::from(is_measured);
            tally.counts.sent_bytes += if is_measured { bytes } else { 0 };
        });
    }

    /// The message of a call with one response.
    fn compose_call(&mut self, turn: Turn) {
        let now = Instant::now();
        self.compose(turn.due, now);
        self.ledger.sent(self.composed, turn, self.free, now, self.message.len(), true);
        self.call.last = Some((turn, now));
    }

    /// Reads received bytes.
    fn take(&mut self, bytes: &[u8]) {
        if self.broken.is_some() || self.closed.is_some() || (self.is_over && !self.workload.sends()) {
            return;
        }
        let now = Instant::now();
        let Self { worker, ledger, role, decoder, answers, random, closed, call, is_over, .. } = self;
        let mut receive = |ledger: &mut Ledger, payload: &[u8], number| {
            // A server's messages are counted as they come.
            *is_over = *is_over || (worker.window().is_some() && worker.spend_on_failure(now));
            if !*is_over {
                ledger.received(payload, number, now);
            }
        };
        let read: Result<(), Failure> = match decoder {
            Decoder::Events(events) => events
                .read(bytes, |event| receive(ledger, event.data, number(event)))
                .map_err(|_| StreamFailure::EventTooLarge.into()),
            Decoder::Frames(frames) => frames
                .read(bytes, |received| match (received, *role) {
                    (Received::Message(payload), Role::Converses) => ledger.answered(payload, now),
                    (Received::Message(payload), Role::Receives) => {
                        ledger.received(payload, None, now);
                    }
                    // RFC 6455 §5.5.3: of several pings, the last needs an answer.
                    (Received::Ping(payload), _) if answers.len() < ANSWERS_BYTES_MAX => {
                        websocket::append(Opcode::Pong, payload, random.next() as u32, answers);
                    }
                    (Received::Close(code), _) => *closed = Some(code.unwrap_or(NO_CODE)),
                    _ => {}
                })
                .map_err(|violation| {
                    websocket::append_close(violation.close_code(), random.next() as u32, answers);
                    StreamFailure::WebSocket(violation).into()
                }),
            Decoder::Messages(messages) => messages
                .read(bytes, |payload| {
                    call.received += 1;
                    call.received_bytes += payload.len();
                    match role {
                        Role::Calls(Call::ServerStream) => receive(ledger, payload, None),
                        Role::Calls(Call::Bidi) => ledger.answered(payload, now),
                        _ => {}
                    }
                })
                .map_err(|broken| StreamFailure::Grpc(broken).into()),
        };
        self.broken = read.err();
        if self.worker.window().is_some() && !self.workload.sends() && self.worker.arrivals().is_spent() {
            self.worker.stream_done.notify_one();
        }
    }

    /// The server has sent all that it sends.
    fn end_of_body(&mut self, pipe: &Pipe) -> Result<Ended, Failure> {
        let messages = match &self.decoder {
            Decoder::Events(_) => return Ok(Ended::Closed),
            Decoder::Frames(_) => return Err(Failure::Cut(Cut::Body)),
            Decoder::Messages(messages) => messages,
        };
        messages.end().map_err(StreamFailure::Grpc)?;
        let status = open::grpc_status(pipe)?;
        let now = Instant::now();
        let is_measured = self.call.last.map_or(self.worker.is_measured(now), |(turn, _)| turn.counted);
        if is_measured {
            self.ledger.tally(|tally| {
                tally.counts.calls += 1;
                *tally.statuses.entry(status.0).or_default() += 1;
            });
        }
        if let Some(failure) = open::grpc_failure(status) {
            return Err(failure);
        }
        let is_one = matches!(self.role, Role::Calls(Call::Unary | Call::ClientStream));
        if is_one && self.call.received == 0 {
            return Err(StreamFailure::NoResponse.into());
        }
        match (self.role, self.call.last) {
            (Role::Calls(Call::Unary), _) => self.ledger.called(self.call.received_bytes, now),
            (Role::Calls(Call::ClientStream), Some((turn, sent))) if turn.counted => {
                let times = (now - turn.due, now - sent);
                self.ledger.arrived(now, self.call.received_bytes, Some(times), false);
            }
            // What a call did not answer before it ended with OK is lost; the next counts anew.
            (Role::Calls(Call::Bidi | Call::ServerStream), _) => self.ledger.interrupted(),
            _ => {}
        }
        Ok(Ended::Called)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // It will not send what it has not sent.
        self.end_sending();
    }
}

impl Decoder {
    fn of(workload: Workload) -> Self {
        match workload {
            Workload::Events => Self::Events(Events::default()),
            Workload::Echo | Workload::FanOut { .. } => Self::Frames(Frames::default()),
            Workload::Grpc { .. } => Self::Messages(Messages::default()),
        }
    }

    /// Begins another stream. Returns the ID of the last event.
    fn restart(&mut self) -> Vec<u8> {
        match self {
            Self::Events(events) => {
                events.restart();
                return events.last_id().to_vec();
            }
            Self::Frames(frames) => *frames = Frames::default(),
            Self::Messages(messages) => *messages = Messages::default(),
        }
        Vec::new()
    }

    /// How long the server wants a client to wait before it connects again.
    fn retry(&self) -> Option<Duration> {
        let Self::Events(events) = self else { return None };
        events.retry_ms().map(Duration::from_millis)
    }
}

/// The number that an event has as its ID.
fn number(event: Event<'_>) -> Option<u64> {
    std::str::from_utf8(event.id).ok().filter(|_| event.has_own_id)?.parse().ok()
}
