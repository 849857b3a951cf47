//! An open connection of HTTP/2 or HTTP/3: the state that its task and its senders share.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use quinn_proto::ConnectionError;

use super::carrier::{Carrier, Wire};
use super::{Sent, Traffic};
use crate::arrivals::{Arrivals, Next, Turn};
use crate::check::{Cut, Response};
use crate::failure::Failure;
use crate::http2::{Asked, Ended, Received};
use crate::record::Moments;
use crate::slots::Slots;
use crate::target::Requests;
use crate::transport::{Arrival, Fault};
use crate::watch::Verdict;
use crate::worker::Worker;

/// A request under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    pub(super) turn: Turn,
    pub(super) sent: Instant,
    /// Index of the request.
    pub(super) chosen: usize,
    /// Its number among those under way, if it is counted.
    pub(super) number: Option<usize>,
}

/// The sender of a place, which waits for its response.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) waker: Option<Waker>,
    pub(super) exchange: Option<Exchange>,
    /// Whether requests of this place have succeeded of which the sender does not know.
    pub(super) has_succeeded: bool,
}

impl Waiting {
    /// The last request of the place, and whether others succeeded before it.
    pub(super) fn end(&mut self) -> (Option<Exchange>, bool) {
        (self.exchange.take(), std::mem::take(&mut self.has_succeeded))
    }
}

/// State of an open connection, which its task and its senders share.
pub(super) struct Open {
    pub(super) connection: RefCell<Carrier>,
    pub(super) waiting: RefCell<Vec<Waiting>>,
    /// Limit of concurrent requests.
    pub(super) slots: Rc<Slots>,
    /// Number that distinguishes the connection from earlier and later ones.
    pub(super) number: u64,
    /// Number of those that use it.
    pub(super) handles: Cell<usize>,
    /// Waker of the connection's task, and whether it is woken.
    pub(super) driver: RefCell<Option<Waker>>,
    pub(super) is_woken: Cell<bool>,
    /// Why it ended.
    pub(super) cause: RefCell<Option<Cause>>,
    pub(super) traffic: Rc<Traffic>,
    pub(super) worker: Rc<Worker>,
    pub(super) follows: bool,
}

/// Why a connection ended under its requests.
#[derive(Debug)]
pub(super) enum Cause {
    End,
    Torn,
    Read(io::Error),
    Write(io::Error),
    Tls(rustls::Error),
    Quic(ConnectionError),
}

/// Moves the bytes of a connection, until it ends or nobody uses it.
pub(super) async fn run(open: Rc<Open>, mut wire: Wire) {
    poll_fn(|context| open.poll(&mut wire, context)).await;
}

impl Open {
    /// Wakes the connection's task: there is something to send.
    pub(super) fn wake(&self) {
        if !self.is_woken.replace(true)
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }

    fn poll(&self, wire: &mut Wire, context: &mut Context<'_>) -> Poll<()> {
        self.is_woken.set(false);
        keep(&mut self.driver.borrow_mut(), context);
        if self.handles.get() == 0 {
            self.connection.borrow_mut().go_away();
            // What cannot leave at once is not missed by anybody.
            let _ = self.poll_send(wire, context);
            return Poll::Ready(());
        }
        let mut is_alive = true;
        while is_alive {
            let Poll::Ready(good) = self.poll_receive(wire, context) else { break };
            is_alive = good;
            if self.connection.borrow().is_over() {
                self.slots.end();
            }
            self.settle();
        }
        let sent = self.poll_send(wire, context);
        if !is_alive {
            return Poll::Ready(());
        }
        // It is read on: what the server has said before is worth more.
        if let Poll::Ready(Err(fault)) = sent {
            self.slots.end();
            wire.drop_unsent(&mut self.connection.borrow_mut());
            self.cause.borrow_mut().get_or_insert(Cause::of(fault, Cause::Write));
        }
        Poll::Pending
    }

    /// Receives once. False if the connection is at its end.
    fn poll_receive(&self, wire: &mut Wire, context: &mut Context<'_>) -> Poll<bool> {
        let mut connection = self.connection.borrow_mut();
        let cause = match (wire, &mut *connection) {
            (Wire::Tcp { transport, .. }, Carrier::Http2(http2)) => {
                let mut scratch = self.worker.scratch.borrow_mut();
                let (mut is_good, mut now) = (true, None);
                let received = ready!(transport.poll_receive(context, &mut scratch.buffer, |bytes| {
                    let now = *now.get_or_insert_with(Instant::now);
                    self.traffic.received(bytes.len() as u64);
                    is_good = is_good && http2.receive(bytes, now);
                }));
                match received {
                    Ok(Arrival::Content) => return Poll::Ready(is_good),
                    Ok(Arrival::End) => Cause::End,
                    Ok(Arrival::Torn) => Cause::Torn,
                    Err(fault) => Cause::of(fault, Cause::Read),
                }
            }
            (Wire::Udp(udp), Carrier::Http3(http3)) => {
                let mut quic = self.worker.quic.borrow_mut();
                let received = ready!(udp.poll_receive(http3, &mut quic, context));
                self.traffic.received(std::mem::take(&mut http3.received_bytes));
                match received {
                    Ok(true) => return Poll::Ready(true),
                    Ok(false) => Cause::of_quic(http3.lost.take()),
                    Err(error) => Cause::Read(error),
                }
            }
            _ => unreachable!("a connection and its socket are of one protocol"),
        };
        self.cause.borrow_mut().get_or_insert(cause);
        connection.lose();
        Poll::Ready(false)
    }

    /// Sends what there is to send.
    fn poll_send(&self, wire: &mut Wire, context: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let mut connection = self.connection.borrow_mut();
        let sent = wire.poll_send(&mut connection, &self.worker, context);
        self.traffic.sent(wire.take_sent(&mut connection));
        sent
    }

    /// Wakes the senders whose streams have ended, unless their next requests follow at once.
    fn settle(&self) {
        let mut ended = std::mem::take(self.connection.borrow_mut().ended());
        for place in ended.drain(..) {
            if !(self.follows && self.follow(place)) {
                let waiting = &mut self.waiting.borrow_mut()[place];
                if let Some(waker) = &waiting.waker {
                    waker.wake_by_ref();
                }
            }
        }
        *self.connection.borrow_mut().ended() = ended;
    }

    /// Records a successful exchange, and sends the next request of its place. False if its sender has to do that.
    fn follow(&self, place: usize) -> bool {
        let (worker, mut connection) = (&*self.worker, self.connection.borrow_mut());
        let (Arrivals::Closed(closed), Requests::Streams(messages)) =
            (worker.arrivals(), &worker.shared.targets.requests)
        else {
            return false;
        };
        let waiting = &mut self.waiting.borrow_mut()[place];
        let Some(exchange) = &mut waiting.exchange else { return false };
        if connection.is_over() || closed.is_spent() {
            return false;
        }
        let Some(received) = connection.take_success(place) else { return false };
        record(worker, &self.traffic, exchange, Some(&received));
        waiting.has_succeeded = true;
        let Next::Send(turn) = closed.next(received.done) else { unreachable!("it is not spent") };
        let chosen = worker.next_request(messages.len());
        let number = turn.counted.then(|| worker.departure(&turn, turn.due, turn.due));
        *exchange = Exchange { turn, sent: turn.due, chosen, number };
        let message = &messages[chosen];
        self.ask(&mut connection, place, Sent::of(message, worker).asked(worker, message.server, false));
        true
    }

    /// Sends a request. The last number of a stream ends the connection for others.
    #[inline]
    pub(super) fn ask(&self, connection: &mut Carrier, place: usize, asked: Asked<'_>) {
        connection.ask(place, asked);
        if connection.is_over() {
            self.slots.end();
        }
    }

    /// Polls for the end of a stream.
    pub(super) fn poll_ended(
        &self,
        place: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<Received, Failure>> {
        let ended = self.connection.borrow_mut().take(place);
        if let Some(result) = ended {
            return Poll::Ready(result.map_err(|ended| self.failure(ended)));
        }
        keep(&mut self.waiting.borrow_mut()[place].waker, context);
        Poll::Pending
    }

    fn failure(&self, ended: Ended) -> Failure {
        let is_begun = match ended {
            Ended::Reset(code) => return Failure::Reset(code),
            Ended::GoAway(code) => return Failure::GoAway(code),
            Ended::ResetOfHttp3(code) => return Failure::Http3Reset(code),
            Ended::Malformed(what) => return self.connection.borrow().broken(what),
            Ended::Lost { is_begun } => is_begun,
        };
        // Errors of the system are told to each of its requests.
        let copy = |error: &io::Error| match error.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => error.kind().into(),
        };
        match &*self.cause.borrow() {
            Some(Cause::Torn) => Failure::Cut(Cut::Torn),
            Some(Cause::Read(error)) => Failure::Read(copy(error)),
            Some(Cause::Write(error)) => Failure::Write(copy(error)),
            Some(Cause::Tls(error)) => Failure::Tls { error: error.clone() },
            Some(Cause::Quic(error)) => Failure::Quic(error.to_string()),
            Some(Cause::End) | None => Failure::Cut(if is_begun { Cut::Body } else { Cut::Nothing }),
        }
    }
}

impl Cause {
    fn of(fault: Fault, system: fn(io::Error) -> Self) -> Self {
        match fault {
            Fault::Io(error) => system(error),
            Fault::Tls(error) => Self::Tls(error),
        }
    }

    /// Why a QUIC connection has ended. A server that says that nothing is wrong closes it as others do.
    fn of_quic(lost: Option<ConnectionError>) -> Self {
        match lost {
            None => Self::End,
            Some(ConnectionError::ApplicationClosed(close))
                if close.error_code.into_inner() == ::h3::Code::NO_ERROR.0 =>
            {
                Self::End
            }
            // RFC 9000 §10.1: idle for as long as the server permits.
            Some(ConnectionError::TimedOut) => Self::End,
            Some(error) => Self::Quic(error),
        }
    }
}

/// Keeps the waker of a task.
fn keep(waker: &mut Option<Waker>, context: &mut Context<'_>) {
    match waker {
        Some(waker) if waker.will_wake(context.waker()) => {}
        _ => *waker = Some(context.waker().clone()),
    }
}

/// Records the end of an exchange. `received` is its complete response, if there is one.
pub(super) fn record(worker: &Worker, traffic: &Traffic, exchange: &Exchange, received: Option<&Received>) {
    let &Exchange { turn, sent, chosen, number } = exchange;
    // What was moved before the window is in no figure.
    let (sent_bytes, received_bytes) = (traffic.sent_bytes.take(), traffic.received_bytes.take());
    let Some(number) = number else { return };
    let verdict = received.map_or(Verdict::Status, |received| match &received.watch {
        None => Verdict::of(received.status),
        Some(watch) => watch.verdict(received.status, received.body_bytes),
    });
    let mut record = worker.record.borrow_mut();
    record.transferred(sent_bytes, received_bytes);
    if let Some(&Received { status, body_bytes, first_byte, done, ref watch, .. }) = received {
        let moments = Moments { due: turn.due, sent, first_byte, done };
        record.response(Response { status, body_bytes, keepalive: true }, verdict, &moments, |missed| {
            let words = watch.as_ref().map(|watch| watch.words(missed, status, body_bytes));
            worker.missed(chosen, &words.unwrap_or_default())
        });
    }
    drop(record);
    if worker.has_tables() {
        let began = if worker.is_open_model { turn.due } else { sent };
        worker.break_down(
            chosen,
            turn.due,
            received.map(|received| (received.status, received.done - began)),
            received.is_some() && verdict == Verdict::Good,
        );
    }
    worker.settled(number);
}
