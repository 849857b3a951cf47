//! An open connection of HTTP/2 or HTTP/3: the state that its task and its senders share.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use quinn_proto::ConnectionError;

use super::carrier::{Carrier, CarrierWire};
use super::{PendingTraffic, SentRequest};
use crate::arrivals::{ArrivalSchedule, NextTurn, RequestTurn};
use crate::check::Cut;
use crate::failure::LoadFailure;
use crate::http2::{H2LoadRequest, H2StreamFailure, ReceivedResponse};
use crate::record::Moments;
use crate::slots::Slots;
use crate::target::RenderedRequests;
use crate::transport::{ReceiveResult, TransportFault};
use crate::watch::ResponseVerdict;
use crate::worker::LoadWorker;

#[derive(Debug, Clone, Copy)]
pub(super) struct OpenRequest {
    pub(super) turn: RequestTurn,
    pub(super) sent: Instant,
    pub(super) chosen: usize,
    /// Its number among the active requests, if it is counted.
    pub(super) number: Option<usize>,
}

/// The sender of a place, which waits for its response.
#[derive(Debug, Default)]
pub(super) struct WaitingSender {
    pub(super) waker: Option<Waker>,
    pub(super) exchange: Option<OpenRequest>,
    /// Whether requests of this place have succeeded without the sender's knowledge.
    pub(super) has_succeeded: bool,
}

impl WaitingSender {
    /// The last request of the place, and whether others succeeded before it.
    pub(super) fn end(&mut self) -> (Option<OpenRequest>, bool) {
        (self.exchange.take(), std::mem::take(&mut self.has_succeeded))
    }
}

/// State of an open connection, which its task and its senders share.
pub(super) struct OpenConnection {
    pub(super) connection: RefCell<Carrier>,
    pub(super) waiting: RefCell<Vec<WaitingSender>>,
    pub(super) slots: Rc<Slots>,
    /// Number that distinguishes the connection from earlier and later ones.
    pub(super) number: u64,
    pub(super) server: usize,
    /// How many times the server's addresses had changed when it was opened.
    pub(super) address_changes: u64,
    pub(super) handles: Cell<usize>,
    /// Waker of the connection's task, and whether it is woken.
    pub(super) driver: RefCell<Option<Waker>>,
    pub(super) is_woken: Cell<bool>,
    pub(super) cause: RefCell<Option<CloseCause>>,
    /// Whether it had a response.
    pub(super) was_answered: Cell<bool>,
    pub(super) traffic: Rc<PendingTraffic>,
    pub(super) worker: Rc<LoadWorker>,
    pub(super) follows: bool,
}

/// The reason why a connection ended under its requests.
#[derive(Debug)]
pub(super) enum CloseCause {
    End,
    Torn,
    Read(io::Error),
    Write(io::Error),
    Tls(rustls::Error),
    Quic(ConnectionError),
}

/// Moves the bytes of a connection, until it ends or its last handle is dropped.
pub(super) async fn run(open: Rc<OpenConnection>, mut wire: CarrierWire) {
    poll_fn(|context| open.poll(&mut wire, context)).await;
}

impl OpenConnection {
    /// Whether the server's addresses have changed since.
    #[inline]
    pub(super) fn is_outdated(&self) -> bool {
        self.worker.address_changes(self.server) != self.address_changes
    }

    /// Wakes the connection's task, because there is something to send.
    pub(super) fn wake(&self) {
        if !self.is_woken.replace(true)
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }

    fn poll(&self, wire: &mut CarrierWire, context: &mut Context<'_>) -> Poll<()> {
        self.is_woken.set(false);
        keep(&mut self.driver.borrow_mut(), context);
        if self.handles.get() == 0 {
            self.connection.borrow_mut().go_away();
            // Bytes that cannot be sent at once are dropped.
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
        // Reading continues, because the server's earlier bytes may explain the error.
        if let Poll::Ready(Err(fault)) = sent {
            self.slots.end();
            wire.drop_unsent(&mut self.connection.borrow_mut());
            self.cause.borrow_mut().get_or_insert(CloseCause::new(fault, CloseCause::Write));
        }
        Poll::Pending
    }

    /// Receives once. Returns false if the connection is at its end.
    fn poll_receive(&self, wire: &mut CarrierWire, context: &mut Context<'_>) -> Poll<bool> {
        let mut connection = self.connection.borrow_mut();
        let cause = match (wire, &mut *connection) {
            (CarrierWire::Tcp { transport, .. }, Carrier::Http2(http2)) => {
                let mut scratch = self.worker.scratch.borrow_mut();
                let (mut is_good, mut now) = (true, None);
                let received = ready!(transport.poll_receive(context, &mut scratch.buffer, |bytes| {
                    let now = *now.get_or_insert_with(Instant::now);
                    self.traffic.received(bytes.len() as u64);
                    is_good = is_good && http2.receive(bytes, now);
                }));
                match received {
                    Ok(ReceiveResult::Content) => return Poll::Ready(is_good),
                    Ok(ReceiveResult::End) => CloseCause::End,
                    Ok(ReceiveResult::Torn) => CloseCause::Torn,
                    Err(fault) => CloseCause::new(fault, CloseCause::Read),
                }
            }
            (CarrierWire::Udp(udp), Carrier::Http3(http3)) => {
                let mut quic = self.worker.quic.borrow_mut();
                let received = ready!(udp.poll_receive(http3, &mut quic, context));
                self.traffic.received(std::mem::take(&mut http3.received_bytes));
                match received {
                    Ok(true) => return Poll::Ready(true),
                    Ok(false) => CloseCause::of_quic(http3.lost.take()),
                    Err(error) => CloseCause::Read(error),
                }
            }
            _ => unreachable!("a connection and its socket are of one protocol"),
        };
        self.cause.borrow_mut().get_or_insert(cause);
        connection.lose();
        Poll::Ready(false)
    }

    fn poll_send(
        &self,
        wire: &mut CarrierWire,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), TransportFault>> {
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

    /// Records a successful exchange, and sends the place's next request; false if its sender has to send it.
    fn follow(&self, place: usize) -> bool {
        let (worker, mut connection) = (&*self.worker, self.connection.borrow_mut());
        let (ArrivalSchedule::Closed(closed), RenderedRequests::Streams(messages)) =
            (worker.arrivals(), &worker.shared.targets.requests)
        else {
            return false;
        };
        let waiting = &mut self.waiting.borrow_mut()[place];
        let Some(exchange) = &mut waiting.exchange else { return false };
        if connection.is_over() || closed.is_spent() || self.is_outdated() {
            return false;
        }
        let Some(received) = connection.take_success(place) else { return false };
        record(worker, &self.traffic, exchange, Ok(&received));
        waiting.has_succeeded = true;
        self.was_answered.set(true);
        let NextTurn::Send(turn) = closed.next(received.done) else { unreachable!("it is not spent") };
        let chosen = worker.next_request(messages.len());
        let number = turn.counted.then(|| worker.departure(&turn, turn.due, turn.due, Some(chosen)));
        *exchange = OpenRequest { turn, sent: turn.due, chosen, number };
        let message = &messages[chosen];
        self.ask(
            &mut connection,
            place,
            SentRequest::from_message(message, worker).asked(worker, message.server, false),
        );
        true
    }

    /// Sends a request. After the last stream ID, the connection accepts no further requests.
    #[inline]
    pub(super) fn ask(&self, connection: &mut Carrier, place: usize, asked: H2LoadRequest<'_>) {
        connection.ask(place, asked);
        if connection.is_over() {
            self.slots.end();
        }
    }

    pub(super) fn poll_ended(
        &self,
        place: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<ReceivedResponse, LoadFailure>> {
        let ended = self.connection.borrow_mut().take(place);
        if let Some(result) = ended {
            self.was_answered.set(self.was_answered.get() || result.is_ok());
            return Poll::Ready(result.map_err(|ended| self.failure(ended)));
        }
        keep(&mut self.waiting.borrow_mut()[place].waker, context);
        Poll::Pending
    }

    fn failure(&self, ended: H2StreamFailure) -> LoadFailure {
        let is_begun = match ended {
            H2StreamFailure::Reset(code) => return LoadFailure::Reset(code),
            H2StreamFailure::GoAway(code) => return LoadFailure::GoAway(code),
            H2StreamFailure::ResetOfHttp3(code) => return LoadFailure::Http3Reset(code),
            H2StreamFailure::Malformed(what) => return self.connection.borrow().broken(what),
            H2StreamFailure::Lost { is_begun } => is_begun,
        };
        // Each request gets a copy of a system error.
        let copy = |error: &io::Error| match error.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => error.kind().into(),
        };
        match &*self.cause.borrow() {
            Some(CloseCause::Torn) => LoadFailure::Cut(Cut::Torn),
            Some(CloseCause::Read(error)) => LoadFailure::Read(copy(error)),
            Some(CloseCause::Write(error)) => LoadFailure::Write(copy(error)),
            Some(CloseCause::Tls(error)) => LoadFailure::Tls { error: error.clone() },
            Some(CloseCause::Quic(error)) => LoadFailure::Quic(error.to_string()),
            Some(CloseCause::End) | None => LoadFailure::Cut(if is_begun { Cut::Body } else { Cut::Nothing }),
        }
    }
}

impl CloseCause {
    fn new(fault: TransportFault, system: fn(io::Error) -> Self) -> Self {
        match fault {
            TransportFault::Io(error) => system(error),
            TransportFault::Tls(error) => Self::Tls(error),
        }
    }

    /// The reason why a QUIC connection has ended. A close without an error is a plain end.
    fn of_quic(lost: Option<ConnectionError>) -> Self {
        match lost {
            None => Self::End,
            Some(ConnectionError::ApplicationClosed(close))
                if close.error_code.into_inner() == lab_http3::LabH3Code::NO_ERROR.0 =>
            {
                Self::End
            }
            // RFC 9000 §10.1: idle for as long as the server permits.
            Some(ConnectionError::TimedOut) => Self::End,
            Some(error) => Self::Quic(error),
        }
    }
}

fn keep(waker: &mut Option<Waker>, context: &mut Context<'_>) {
    match waker {
        Some(waker) if waker.will_wake(context.waker()) => {}
        _ => *waker = Some(context.waker().clone()),
    }
}

pub(super) fn record(
    worker: &LoadWorker,
    traffic: &PendingTraffic,
    exchange: &OpenRequest,
    exchanged: Result<&ReceivedResponse, &LoadFailure>,
) {
    let &OpenRequest { turn, sent, chosen, number } = exchange;
    // Bytes that were moved before the window are not recorded.
    let (sent_bytes, received_bytes) = (traffic.sent_bytes.take(), traffic.received_bytes.take());
    let Some(number) = number else { return };
    let (received, pattern) = (exchanged.ok(), worker.pattern(chosen));
    let verdict = received.map_or(ResponseVerdict::Status, |received| {
        received.observer.verdict(received.page, pattern, received.done)
    });
    let mut record = worker.record.borrow_mut();
    record.transferred(sent_bytes, received_bytes);
    if let Some(&ReceivedResponse { page, first_byte, done, ref observer, .. }) = received {
        let moments = Moments { due: turn.due, sent, first_byte, done };
        record.response(page, verdict, &moments, || {
            worker.missed(chosen, &observer.words(verdict, page, pattern))
        });
    }
    drop(record);
    if worker.has_tables() {
        let began = if worker.is_open_model { turn.due } else { sent };
        worker.break_down(
            chosen,
            turn.due,
            received.map(|received| (received.page.status, received.done - began)),
            received.is_some() && verdict == ResponseVerdict::Good,
        );
    }
    match exchanged {
        Err(LoadFailure::Timeout { .. }) => worker.unanswered(number, Instant::now()),
        _ => worker.settled(number),
    }
}
