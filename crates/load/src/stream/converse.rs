//! A stream, from its opening to its end: sends when its turn comes, receives always, and reopens after a failure.

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
use super::session::SessionLink;
use super::sse::{SseEvent, SseReader};
use super::websocket::{self, Frames, Opcode, ReceivedMessage};
use super::{Prepared, grpc};
use crate::arrivals::{NextTurn, RequestTurn};
use crate::check::Cut;
use crate::failure::{LoadFailure, Setbacks};
use crate::give_up::GiveUp;
use crate::plan::Arrival;
use crate::random::Random;
use crate::template::Values;
use crate::worker::LoadWorker;

/// How often a stream sends and receives before others have their turn.
const ROUNDS_MAX: u32 = 64;
/// Longest time that a server's `retry` lets an event stream wait.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Maximum bytes of queued control frames; further pings are not answered.
const ANSWERS_BYTES_MAX: usize = 64 * 1024;
/// Stands for the code of a close frame without one (RFC 6455 §7.1.5).
const NO_CODE: u16 = 1005;

/// Index of a stream: within the thread, and among all.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamNumber {
    pub(super) local: usize,
    pub(super) number: usize,
}

/// The end of a stream that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamEnd {
    Over,
    /// The server ended it.
    Closed,
    /// A gRPC call ended with OK.
    Called,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamRole {
    Receives,
    /// Sends messages that others receive.
    Publishes,
    /// Sends messages and receives their answers.
    Converses,
    Calls(Call),
}

/// Waits until the load begins; `None` once it has.
type Waiting = Option<Pin<Box<dyn Future<Output = Option<Instant>>>>>;

struct Conversation {
    worker: Rc<LoadWorker>,
    link: Rc<SessionLink>,
    place: StreamNumber,
    workload: Workload,
    role: StreamRole,
    waiting: Waiting,
    give_up: GiveUp,
    setbacks: Setbacks,
    random: Random,
    ledger: Ledger,
    /// Messages composed so far.
    composed: u64,
    message: Vec<u8>,
    /// Since when the stream is ready to send.
    free: Instant,
    /// The stream waits for its turn.
    has_asked: bool,
    /// A turn that arrived while the stream was broken.
    kept_turn: Option<RequestTurn>,
    is_over: bool,
    was_open: bool,
    /// The stream is reopened, or the call repeated, because the server has not processed it; and since when.
    is_again: bool,
    opening_since: Instant,
    decoder: MessageDecoder,
    /// Queued control frames, such as pongs.
    answers: Vec<u8>,
    /// Code of the server's close frame.
    closed: Option<u16>,
    broken: Option<LoadFailure>,
    call: CallState,
}

enum MessageDecoder {
    Events(SseReader),
    Frames(Frames),
    Messages(Messages),
}

#[derive(Debug, Clone, Copy)]
struct CallState {
    began: Instant,
    sent: u64,
    received: u64,
    received_bytes: usize,
    /// Turn and send time of its first message if there is one, otherwise of its last.
    last: Option<(RequestTurn, Instant)>,
    /// When everything was sent.
    finished: Option<Instant>,
}

impl CallState {
    fn new(began: Instant) -> Self {
        Self { began, sent: 0, received: 0, received_bytes: 0, last: None, finished: None }
    }
}

pub(super) async fn drive(link: Rc<SessionLink>, place: StreamNumber) {
    let mut stream = Conversation::new(link, place);
    let mut next = stream.open_ahead().await;
    match &next {
        Ok(_) => stream.worker.shared.reach.succeeded(),
        // A server that is down for some streams is counted when the load begins.
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

impl Conversation {
    fn new(link: Rc<SessionLink>, place: StreamNumber) -> Self {
        let worker = Rc::clone(&link.worker);
        let plan = &worker.shared.plan;
        let workload = plan.stream.as_ref().map_or(Workload::Events, |streams| streams.workload);
        let role = match workload {
            Workload::Events => StreamRole::Receives,
            Workload::Echo => StreamRole::Converses,
            Workload::FanOut { senders } if place.number < senders => StreamRole::Publishes,
            Workload::FanOut { .. } => StreamRole::Receives,
            Workload::Grpc { call, .. } => StreamRole::Calls(call),
        };
        let receives = matches!(role, StreamRole::Receives | StreamRole::Calls(Call::ServerStream));
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
            opening_since: now,
            is_again: false,
            decoder: MessageDecoder::from_workload(workload),
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

    /// Opens the stream before the load begins, so that all are open when it does. For gRPC, opens the connection.
    async fn open_ahead(&mut self) -> Result<Option<Pipe>, LoadFailure> {
        match self.role {
            StreamRole::Calls(_) => self.link.session(&mut self.give_up).await.map(|_| None),
            _ => self.begin().await,
        }
    }

    /// Opens the stream, or makes the next call. `None` is the end of the run.
    async fn begin(&mut self) -> Result<Option<Pipe>, LoadFailure> {
        let (mut first, mut is_all) = (Vec::new(), false);
        if let StreamRole::Calls(call) = self.role {
            if self.is_over || !self.has_begun().await {
                return Ok(None);
            }
            match call {
                // The message of the last attempt.
                Call::Unary | Call::ServerStream if self.is_again => {}
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
        if !self.is_again {
            self.opening_since = began;
        }
        let last_id = self.decoder.restart();
        let opening = Opening { workload: self.workload, last_id: &last_id, first: &first, is_all };
        let pipe = open::open(&self.link, opening, &mut self.random, &mut self.give_up).await?;
        let is_call = matches!(self.role, StreamRole::Calls(_));
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

    /// Waits until the load has begun. Returns false if the run is stopped before.
    async fn has_begun(&mut self) -> bool {
        let Some(waiting) = self.waiting.take() else { return true };
        let begun = waiting.await;
        self.free = begun.unwrap_or(self.free);
        begun.is_some()
    }

    /// Records that the stream could not be opened. Returns whether to try again, after a pause.
    async fn failed_to_open(&mut self, failure: &LoadFailure) -> bool {
        if self.waiting.is_none() && self.goes_again(failure).await {
            return true;
        }
        self.ledger.tally(|tally| tally.counts.failed += 1);
        if !self.has_begun().await {
            return false;
        }
        let now = Instant::now();
        // A call has its turn. Any other stream takes one, so that a run against a dead server ends.
        let turn =
            self.call.last.map(|(turn, _)| turn).filter(|_| self.role == StreamRole::Calls(Call::Unary));
        let is_over = turn.is_none() && self.worker.spend_on_failure(now);
        let (due, counted) =
            turn.map_or((now, self.worker.is_measured(now)), |turn| (turn.due, turn.counted));
        self.is_again = false;
        self.ledger.forget(Some(failure));
        // WHATWG HTML §9.2.3: with 204 a server ends an event stream for good.
        let is_ended = matches!(failure, LoadFailure::Stream(StreamFailure::Status { status: 204 }));
        if is_over || (is_ended && self.workload == Workload::Events) {
            return false;
        }
        self.setbacks.fail(&self.worker, failure, due, counted).await;
        true
    }

    /// Records how the stream ended. Returns whether to open it again, after a pause.
    async fn ended(&mut self, ended: Result<StreamEnd, LoadFailure>, pipe: &Pipe) -> bool {
        self.keep_turn();
        let now = Instant::now();
        let is_measured = self.worker.is_measured(now);
        let failure = match ended {
            Ok(StreamEnd::Over) => return false,
            Ok(StreamEnd::Called) => {
                self.is_again = false;
                self.setbacks.end();
                return true;
            }
            Ok(StreamEnd::Closed) => None,
            Err(failure) => Some(failure),
        };
        if let (Some(failure), Some(session)) = (&failure, pipe.session()) {
            self.link.broken(session, failure);
        }
        let is_one = matches!(self.role, StreamRole::Calls(Call::Unary | Call::ClientStream));
        let is_unary = self.role == StreamRole::Calls(Call::Unary);
        // A call that has sent several messages cannot be repeated.
        let is_repeatable = matches!(self.role, StreamRole::Calls(Call::Unary | Call::ServerStream));
        if let Some(failure) = failure.as_ref().filter(|_| is_repeatable)
            && self.goes_again(failure).await
        {
            return true;
        }
        self.is_again = false;
        let has_status = matches!(failure, Some(LoadFailure::Stream(StreamFailure::GrpcStatus { .. })));
        self.ledger.tally(|tally| tally.counts.closed_early += u64::from(is_measured && !has_status));
        if is_one {
            self.ledger.forget(failure.as_ref());
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

    /// Whether to reopen the stream, or repeat the call: the server has not processed it, and there is time left.
    async fn goes_again(&mut self, failure: &LoadFailure) -> bool {
        if !failure.is_unprocessed() || self.opening_since.elapsed() >= self.give_up.after() {
            return false;
        }
        // The first repetition is immediate, because it uses another connection.
        if std::mem::replace(&mut self.is_again, true) {
            self.setbacks.back_off().await;
        }
        true
    }

    /// Gives back a turn that the stream waits for, or keeps one that has arrived.
    fn keep_turn(&mut self) {
        if std::mem::take(&mut self.has_asked) {
            let mut context = Context::from_waker(std::task::Waker::noop());
            match self.worker.arrivals().poll_next(self.place.local, Instant::now(), &mut context) {
                Poll::Ready(NextTurn::Send(turn)) => self.kept_turn = Some(turn),
                Poll::Ready(NextTurn::Over) => self.end_sending(),
                Poll::Pending => self.worker.arrivals().leave(self.place.local),
            }
        }
    }

    /// Sends and receives until the stream ends.
    fn poll_converse(
        &mut self,
        pipe: &mut Pipe,
        context: &mut Context<'_>,
    ) -> Poll<Result<StreamEnd, LoadFailure>> {
        let worker = Rc::clone(&self.worker);
        if let Some(waiting) = &mut self.waiting
            && let Poll::Ready(begun) = waiting.as_mut().poll(context)
        {
            self.waiting = None;
            let Some(begun) = begun else { return Poll::Ready(Ok(StreamEnd::Over)) };
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
                // RFC 6455 §7.4.1: normal closure, going away, or no code.
                let is_well = matches!(code, 1000 | 1001 | NO_CODE);
                return Poll::Ready(if is_well {
                    Ok(StreamEnd::Closed)
                } else {
                    Err(StreamFailure::Closed(code).into())
                });
            }
            match &received {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return Poll::Ready(self.end_of_body(pipe)),
                Poll::Ready(Err(_)) => return received.map_ok(|_| StreamEnd::Closed),
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
                // At the end of the run, only overtaken messages are left, and they are lost.
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
            return Poll::Ready(Ok(StreamEnd::Over));
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

    /// Whether the run is over for the stream. A publisher stays connected, because its departure could cause messages.
    fn is_done(&self) -> bool {
        self.is_over
            && match self.role {
                StreamRole::Receives | StreamRole::Calls(Call::ServerStream) => true,
                StreamRole::Converses => self.ledger.unanswered.is_empty(),
                StreamRole::Publishes | StreamRole::Calls(_) => false,
            }
    }

    /// Ready when a wait has exceeded the timeout.
    fn poll_give_up(&mut self, pipe: &Pipe, context: &mut Context<'_>) -> Poll<LoadFailure> {
        let since = match self.role {
            StreamRole::Receives | StreamRole::Publishes => return Poll::Pending,
            StreamRole::Calls(Call::ServerStream) => Some(self.call.began).filter(|_| pipe.head().is_none()),
            StreamRole::Converses if self.is_over => {
                Some(self.ledger.unanswered.oldest().unwrap_or(self.free))
            }
            _ => self.ledger.unanswered.oldest().or(self.call.finished),
        };
        self.give_up.start(since.unwrap_or_else(Instant::now));
        let after = self.give_up.after();
        self.give_up.poll(context).map(|()| LoadFailure::Timeout { after })
    }

    /// The next turn to send; `None` at the end of the run.
    fn poll_turn(&mut self, now: Instant, context: &mut Context<'_>) -> Poll<Option<RequestTurn>> {
        if let Some(turn) = self.kept_turn.take() {
            return Poll::Ready(Some(turn));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        let next = self.worker.arrivals().poll_next(self.place.local, now, context);
        self.has_asked = next.is_pending();
        Poll::Ready(match ready!(next) {
            NextTurn::Send(turn) => Some(turn),
            NextTurn::Over => {
                self.end_sending();
                None
            }
        })
    }

    fn end_sending(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) && self.role == StreamRole::Publishes {
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
            (StreamRole::Receives | StreamRole::Calls(Call::Unary | Call::ServerStream), _) => return false,
            (StreamRole::Calls(_), _) if self.call.finished.is_some() => return false,
            (StreamRole::Calls(_), Workload::Grpc { messages: Some(most), .. }) if self.call.sent >= most => {
                return self.finish_call(pipe);
            }
            (StreamRole::Converses | StreamRole::Calls(Call::Bidi), _) if is_full => return false,
            _ if self.is_over && matches!(self.role, StreamRole::Converses | StreamRole::Publishes) => {
                return false;
            }
            _ => {}
        }
        let now = Instant::now();
        let turn = match self.poll_turn(now, context) {
            Poll::Pending => return false,
            Poll::Ready(Some(turn)) => turn,
            Poll::Ready(None) if matches!(self.role, StreamRole::Calls(_)) => return self.finish_call(pipe),
            Poll::Ready(None) => return true,
        };
        self.compose(turn.due, now);
        match self.role {
            StreamRole::Calls(_) => grpc::append(&self.message, pipe.out()),
            _ => {
                let opcode = if self.prepared().is_text { Opcode::Text } else { Opcode::Binary };
                websocket::append(opcode, &self.message, self.random.next() as u32, pipe.out());
            }
        }
        let waits = matches!(self.role, StreamRole::Converses | StreamRole::Calls(Call::Bidi));
        self.ledger.sent(self.composed, turn, self.free, now, self.message.len(), waits);
        self.free = now;
        self.call.sent += 1;
        self.call.last = Some((turn, now));
        if self.role == StreamRole::Publishes {
            let (prepared, number) = (self.prepared(), self.place.number);
            prepared.sent[number].store(self.composed, Ordering::Relaxed);
            if turn.counted {
                // Stored before the message is sent, so that every receiver sees it.
                prepared.first_measured[number].fetch_min(self.composed, Ordering::Release);
            }
        }
        true
    }

    fn finish_call(&mut self, pipe: &mut Pipe) -> bool {
        pipe.finish();
        if let (StreamRole::Calls(Call::ClientStream), Some((turn, sent))) = (self.role, self.call.last) {
            self.ledger.awaits(self.composed, turn, sent);
        }
        self.call.finished = Some(Instant::now());
        true
    }

    /// Renders the next message, with its due time.
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

    /// Composes the message of a call without a response for each message.
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

    fn compose_call(&mut self, turn: RequestTurn) {
        let now = Instant::now();
        self.compose(turn.due, now);
        self.ledger.sent(self.composed, turn, self.free, now, self.message.len(), true);
        self.call.last = Some((turn, now));
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.broken.is_some() || self.closed.is_some() || (self.is_over && !self.workload.sends()) {
            return;
        }
        let now = Instant::now();
        let Self { worker, ledger, role, decoder, answers, random, closed, call, is_over, .. } = self;
        let mut receive = |ledger: &mut Ledger, payload: &[u8], number| {
            // For a server stream, each received message counts as a request.
            *is_over = *is_over || (worker.window().is_some() && worker.spend_on_failure(now));
            if !*is_over {
                ledger.received(payload, number, now);
            }
        };
        let read: Result<(), LoadFailure> = match decoder {
            MessageDecoder::Events(events) => events
                .read(bytes, |event| receive(ledger, event.data, number(event)))
                .map_err(|_| StreamFailure::EventTooLarge.into()),
            MessageDecoder::Frames(frames) => frames
                .read(bytes, |received| match (received, *role) {
                    (ReceivedMessage::Message(payload), StreamRole::Converses) => {
                        ledger.answered(payload, now);
                    }
                    (ReceivedMessage::Message(payload), StreamRole::Receives) => {
                        ledger.received(payload, None, now);
                    }
                    // RFC 6455 §5.5.3: of several pings, the last needs an answer.
                    (ReceivedMessage::Ping(payload), _) if answers.len() < ANSWERS_BYTES_MAX => {
                        websocket::append(Opcode::Pong, payload, random.next() as u32, answers);
                    }
                    (ReceivedMessage::Close(code), _) => *closed = Some(code.unwrap_or(NO_CODE)),
                    _ => {}
                })
                .map_err(|violation| {
                    websocket::append_close(violation.close_code(), random.next() as u32, answers);
                    StreamFailure::WebSocket(violation).into()
                }),
            MessageDecoder::Messages(messages) => messages
                .read(bytes, |payload| {
                    call.received += 1;
                    call.received_bytes += payload.len();
                    match role {
                        StreamRole::Calls(Call::ServerStream) => receive(ledger, payload, None),
                        StreamRole::Calls(Call::Bidi) => ledger.answered(payload, now),
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

    /// Handles the end of the server's messages.
    fn end_of_body(&mut self, pipe: &Pipe) -> Result<StreamEnd, LoadFailure> {
        let messages = match &self.decoder {
            MessageDecoder::Events(_) => return Ok(StreamEnd::Closed),
            MessageDecoder::Frames(_) => return Err(LoadFailure::Cut(Cut::Body)),
            MessageDecoder::Messages(messages) => messages,
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
        let is_one = matches!(self.role, StreamRole::Calls(Call::Unary | Call::ClientStream));
        // PROTOCOL-HTTP2.md: a unary call has exactly one response. Messages of other calls may be echoed.
        match (self.call.received, self.role) {
            (0, _) if is_one => return Err(StreamFailure::NoResponse.into()),
            (several @ 2.., StreamRole::Calls(Call::Unary)) => {
                return Err(StreamFailure::SeveralResponses(several).into());
            }
            _ => {}
        }
        match self.role {
            StreamRole::Calls(Call::Unary | Call::ClientStream) => {
                self.ledger.called(self.call.received_bytes, now);
            }
            // A call that ends with OK loses its unanswered messages; the next call restarts the numbers.
            StreamRole::Calls(Call::Bidi | Call::ServerStream) => self.ledger.interrupted(),
            _ => {}
        }
        Ok(StreamEnd::Called)
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // The rest will not be sent.
        self.end_sending();
    }
}

impl MessageDecoder {
    fn from_workload(workload: Workload) -> Self {
        match workload {
            Workload::Events => Self::Events(SseReader::default()),
            Workload::Echo | Workload::FanOut { .. } => Self::Frames(Frames::default()),
            Workload::Grpc { .. } => Self::Messages(Messages::default()),
        }
    }

    /// Prepares for another stream. Returns the ID of the last event.
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

    /// The server's time to wait before a reconnect.
    fn retry(&self) -> Option<Duration> {
        let Self::Events(events) = self else { return None };
        events.retry_ms().map(Duration::from_millis)
    }
}

/// Parses an event's ID as a number.
fn number(event: SseEvent<'_>) -> Option<u64> {
    std::str::from_utf8(event.id).ok().filter(|_| event.has_own_id)?.parse().ok()
}
