//! Arrivals: when a connection may send its next request. At once in a closed loop, or when the schedule says so.
//!
//! Uses a timerfd, because tokio's timer has a resolution of milliseconds. The thread never spins: it sleeps until a
//! request is due or a response arrives.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::schedule::{Dispatch, Schedule, ScheduleWindow};
use crate::think::Thinking;

/// Permission to send one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestTurn {
    pub(crate) due: Instant,
    /// Whether the request belongs to the measured window.
    pub(crate) counted: bool,
}

/// Answer to a connection that asks for its next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextTurn {
    Send(RequestTurn),
    Over,
}

/// Gives turns to the connections of one thread, in a closed loop or on a schedule.
#[derive(Debug)]
pub(crate) enum ArrivalSchedule {
    Closed(Closed),
    Open(OpenModel),
}

impl ArrivalSchedule {
    pub(crate) fn new(
        schedule: Option<Schedule>,
        thinking: Option<Thinking>,
        window: ScheduleWindow,
        requests: Option<u64>,
        connections: usize,
    ) -> io::Result<Self> {
        Ok(match schedule {
            None => Self::Closed(Closed { start: window.start, remaining: Cell::new(requests), thinking }),
            Some(schedule) => Self::Open(OpenModel {
                dispatch: RefCell::new(Dispatch::new(schedule, window, requests)),
                start: window.start,
                places: (0..connections).map(|_| RefCell::new(TurnState::Busy)).collect(),
                alarm: Alarm::new()?,
            }),
        })
    }

    /// The next turn of a connection that has been free since `free`.
    pub(crate) fn poll_next(
        &self,
        connection: usize,
        free: Instant,
        context: &mut Context<'_>,
    ) -> Poll<NextTurn> {
        match self {
            Self::Closed(closed) => closed.poll_next(connection, free, context),
            Self::Open(open) => open.poll_next(connection, free, context),
        }
    }

    /// Removes a waiting connection that broke. It asks again after it has been reopened.
    pub(crate) fn leave(&self, connection: usize) {
        if let Self::Open(open) = self {
            open.dispatch.borrow_mut().leave(connection);
            *open.places[connection].borrow_mut() = TurnState::Busy;
        }
    }

    /// Wakes connections when requests fall due. Runs as a separate task, which may outlive the last connection.
    pub(crate) async fn serve(&self) {
        if let Self::Open(open) = self {
            open.serve().await;
        }
    }

    /// Whether the requested number of requests is used up.
    pub(crate) fn is_spent(&self) -> bool {
        match self {
            Self::Closed(closed) => closed.is_spent(),
            Self::Open(open) => open.dispatch.borrow().is_spent(),
        }
    }

    /// Due times of the window's requests that no connection had sent at `by`.
    pub(crate) fn unclaimed(&self, by: Instant) -> impl Iterator<Item = Instant> + use<> {
        let open = match self {
            Self::Closed(_) => None,
            Self::Open(open) => Some(open.dispatch.borrow().unclaimed(by)),
        };
        open.into_iter().flatten()
    }
}

/// Closed loop: each connection sends as soon as it is free.
#[derive(Debug)]
pub(crate) struct Closed {
    start: Instant,
    /// Requests that are left in the measured window; `None` without a limit.
    remaining: Cell<Option<u64>>,
    /// Pauses between requests, if there are any.
    thinking: Option<Thinking>,
}

impl Closed {
    /// Takes a turn for a connection that could not be opened. Returns true if none was left.
    pub(crate) fn is_over(&self, free: Instant) -> bool {
        self.next(free) == NextTurn::Over
    }

    fn poll_next(&self, connection: usize, free: Instant, context: &mut Context<'_>) -> Poll<NextTurn> {
        // After the last request there is no pause.
        match &self.thinking {
            Some(thinking) if self.remaining.get() != Some(0) => {
                thinking.poll(connection, free, context).map(|free| self.next(free))
            }
            _ => Poll::Ready(self.next(free)),
        }
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.remaining.get() == Some(0)
    }

    /// The next turn of a sender without pauses.
    #[inline]
    pub(crate) fn next(&self, free: Instant) -> NextTurn {
        let counted = free >= self.start;
        if counted && let Some(requests) = self.remaining.get() {
            let Some(left) = requests.checked_sub(1) else { return NextTurn::Over };
            self.remaining.set(Some(left));
        }
        NextTurn::Send(RequestTurn { due: free, counted })
    }
}

/// Open model: requests fall due on a schedule, and go to free connections.
#[derive(Debug)]
pub(crate) struct OpenModel {
    dispatch: RefCell<Dispatch>,
    start: Instant,
    places: Vec<RefCell<TurnState>>,
    alarm: Alarm,
}

#[derive(Debug)]
enum TurnState {
    Busy,
    Waiting(Waker),
    Called(NextTurn),
}

impl OpenModel {
    /// Whether a connection that could not be opened may stop trying: the window or the schedule is over.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        let dispatch = self.dispatch.borrow();
        dispatch.is_past_end(now) || dispatch.next_due().is_none()
    }

    fn poll_next(&self, connection: usize, free: Instant, context: &mut Context<'_>) -> Poll<NextTurn> {
        let mut place = self.places[connection].borrow_mut();
        match &mut *place {
            TurnState::Called(next) => {
                let next = *next;
                *place = TurnState::Busy;
                return Poll::Ready(next);
            }
            TurnState::Waiting(waker) => waker.clone_from(context.waker()),
            TurnState::Busy => {
                let mut dispatch = self.dispatch.borrow_mut();
                // Waiting connections come first, because due requests were due for them. A connection that has just
                // become free would hide that the generator woke them late.
                self.assign(&mut dispatch, free);
                if let Some(due) = dispatch.claim(free) {
                    return Poll::Ready(self.turn(due));
                }
                let Some(due) = dispatch.next_due() else { return Poll::Ready(NextTurn::Over) };
                *place = TurnState::Waiting(context.waker().clone());
                if dispatch.wait(connection) {
                    self.alarm.set(due.saturating_duration_since(free));
                }
            }
        }
        Poll::Pending
    }

    async fn serve(&self) {
        while let Ok(now) = self.alarm.ring().await {
            let mut dispatch = self.dispatch.borrow_mut();
            self.assign(&mut dispatch, now);
            match dispatch.next_due() {
                Some(due) if dispatch.has_idle() => self.alarm.set(due.saturating_duration_since(now)),
                Some(_) => {}
                None => {
                    dispatch.dismiss().for_each(|connection| self.call(connection, NextTurn::Over));
                    return;
                }
            }
        }
    }

    /// Gives the due requests to waiting connections.
    fn assign(&self, dispatch: &mut Dispatch, now: Instant) {
        while let Some((connection, due)) = dispatch.assign(now) {
            self.call(connection, self.turn(due));
        }
    }

    fn call(&self, connection: usize, next: NextTurn) {
        let place = self.places[connection].replace(TurnState::Called(next));
        if let TurnState::Waiting(waker) = place {
            waker.wake();
        }
    }

    fn turn(&self, due: Instant) -> NextTurn {
        NextTurn::Send(RequestTurn { due, counted: due >= self.start })
    }
}

/// Timer with a resolution of microseconds.
#[derive(Debug)]
struct Alarm {
    timer: AsyncFd<OwnedFd>,
}

impl Alarm {
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[allow(deprecated, reason = "sound for an OwnedFd, which stays open; its successor is an unsafe fn")]
        let timer = AsyncFd::with_interest(timer, tokio::io::Interest::READABLE)?;
        Ok(Self { timer })
    }

    fn set(&self, wait: Duration) {
        // Zero would disarm it.
        let wait = wait.max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) },
        };
        let set = timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once);
        debug_assert!(set.is_ok(), "a valid time on a timer of ours");
    }

    /// Waits for the timer and returns the time. The timer is never read: setting it again resets it, and the
    /// edge-triggered poller reports each expiry once.
    async fn ring(&self) -> io::Result<Instant> {
        self.timer.readable().await?.clear_ready();
        Ok(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::rc::Rc;

    use super::*;
    use crate::plan::Arrival;

    fn local<F: Future>(future: F) -> F::Output {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(tokio::runtime::LocalOptions::default());
        runtime.expect("a runtime").block_on(future)
    }

    fn open(requests: u64, rate: f64, load: Instant) -> ArrivalSchedule {
        let schedule = Schedule::new(&Arrival::Constant { requests_per_second: rate }, 0.0, 0, 1);
        let window = ScheduleWindow { load, start: load, end: None };
        ArrivalSchedule::new(schedule, None, window, Some(requests), 2).expect("a timer")
    }

    #[test]
    fn a_closed_loop_gives_turns_at_once_until_the_count_is_used_up() {
        let load = Instant::now();
        let window = ScheduleWindow { load, start: load + Duration::from_secs(1), end: None };
        let arrivals = ArrivalSchedule::new(None, None, window, Some(2), 1).expect("no timer");
        let mut context = Context::from_waker(Waker::noop());
        let mut next = |free| arrivals.poll_next(0, free, &mut context);
        let send = |due, counted| Poll::Ready(NextTurn::Send(RequestTurn { due, counted }));
        assert_eq!(next(load), send(load, false), "the warm-up is not counted");
        assert_eq!(next(window.start), send(window.start, true));
        assert_eq!(next(window.start), send(window.start, true));
        assert_eq!(next(window.start), Poll::Ready(NextTurn::Over));
    }

    #[test]
    fn connections_are_woken_in_turn_for_every_due_time_and_then_dismissed() {
        local(async {
            let load = Instant::now();
            let arrivals = Rc::new(open(20, 2_000.0, load));
            let connections = [0, 1].map(|connection| {
                let arrivals = Rc::clone(&arrivals);
                tokio::task::spawn_local(async move {
                    let mut dues = Vec::new();
                    loop {
                        let free = Instant::now();
                        match poll_fn(|context| arrivals.poll_next(connection, free, context)).await {
                            NextTurn::Send(turn) => {
                                assert!(Instant::now() >= turn.due, "never early");
                                dues.push(turn.due);
                            }
                            NextTurn::Over => return dues,
                        }
                    }
                })
            });
            let serving = Rc::clone(&arrivals);
            tokio::task::spawn_local(async move { serving.serve().await });
            let mut dues = Vec::new();
            for connection in connections {
                dues.extend(connection.await.expect("no panic"));
            }
            dues.sort_unstable();
            let expected: Vec<Instant> =
                (0..20).map(|index| load + Duration::from_micros(500 * index)).collect();
            assert_eq!(dues, expected);
        });
    }

    #[test]
    fn a_connection_that_becomes_free_lets_those_that_wait_go_first() {
        local(async {
            let load = Instant::now();
            let arrivals = open(3, 1_000.0, load);
            let mut context = Context::from_waker(Waker::noop());
            let mut next = |connection, after_ms| {
                let free = load + Duration::from_millis(after_ms);
                arrivals.poll_next(connection, free, &mut context)
            };
            let due = |after_ms| {
                let due = load + Duration::from_millis(after_ms);
                Poll::Ready(NextTurn::Send(RequestTurn { due, counted: true }))
            };
            assert_eq!(next(0, 0), due(0));
            assert_eq!(next(1, 0), Poll::Pending);
            // The timer was not polled yet, and the request of 1 ms is overdue: it goes to the waiting connection.
            assert_eq!(next(0, 2), due(2));
            assert_eq!(next(1, 2), due(1));
            assert_eq!(next(1, 2), Poll::Ready(NextTurn::Over));
        });
    }

    #[test]
    fn a_connection_that_leaves_gets_no_turn() {
        local(async {
            let arrivals = open(1, 1_000.0, Instant::now() + Duration::from_millis(5));
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(arrivals.poll_next(0, Instant::now(), &mut context), Poll::Pending);
            assert_eq!(arrivals.poll_next(1, Instant::now(), &mut context), Poll::Pending);
            arrivals.leave(0);
            arrivals.serve().await;
            assert!(matches!(
                arrivals.poll_next(1, Instant::now(), &mut context),
                Poll::Ready(NextTurn::Send(_))
            ));
            assert_eq!(arrivals.poll_next(0, Instant::now(), &mut context), Poll::Ready(NextTurn::Over));
        });
    }
}
