//! Precise waits, for shaped messages only: one timer of the kernel for each worker, armed for the earliest of them.
//!
//! Time-outs are not for this: see `deadline`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// How often waits are looked at where the kernel has no timer for them.
const COARSE: Duration = Duration::from_millis(1);

/// When, and which of those that are due then.
type Place = (u64, u64);

/// All precise waits of one worker.
pub(crate) struct Alarms {
    epoch: Instant,
    waiting: RefCell<BTreeMap<Place, Waker>>,
    next: Cell<u64>,
    /// When the timer goes off.
    armed_ns: Cell<u64>,
    timer: RefCell<Timer>,
}

enum Timer {
    /// Nobody has had to wait yet.
    Unused,
    Kernel(Rc<TcpStream>),
    /// The process may have no more descriptors.
    Coarse,
}

impl Alarms {
    /// Time is counted from `epoch`.
    pub(crate) fn new(epoch: Instant) -> Rc<Self> {
        Rc::new(Self {
            epoch,
            waiting: RefCell::default(),
            next: Cell::new(0),
            armed_ns: Cell::new(u64::MAX),
            timer: RefCell::new(Timer::Unused),
        })
    }

    /// A reading of the clock.
    pub(crate) fn now_ns(&self) -> u64 {
        // 2^64 nanoseconds are 584 years.
        self.epoch.elapsed().as_nanos() as u64
    }

    /// A wait that has not begun.
    pub(crate) fn alarm(self: &Rc<Self>) -> Alarm {
        Alarm { alarms: Rc::clone(self), place: Cell::new(None) }
    }

    fn file(self: &Rc<Self>, due_ns: u64, waker: Waker) -> Place {
        let place = (due_ns, self.next.replace(self.next.get() + 1));
        self.waiting.borrow_mut().insert(place, waker);
        if due_ns < self.armed_ns.get() {
            self.arm(due_ns);
        }
        place
    }

    fn arm(self: &Rc<Self>, due_ns: u64) {
        self.armed_ns.set(due_ns);
        let mut timer = self.timer.borrow_mut();
        if let Timer::Unused = &*timer {
            *timer = Timer::new();
            tokio::task::spawn_local(ring(Rc::clone(self)));
        }
        if let Timer::Kernel(timer) = &*timer {
            let wait = Duration::from_nanos(due_ns.saturating_sub(self.now_ns()).max(1));
            let once = Itimerspec {
                it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
                it_value: Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() },
            };
            // It takes every time that is valid, as this is.
            let _ = timerfd_settime(timer.as_fd(), TimerfdTimerFlags::empty(), &once);
        }
    }

    /// Wakes whoever is due.
    fn ring(self: &Rc<Self>) {
        let now_ns = self.now_ns();
        self.armed_ns.set(u64::MAX);
        loop {
            let mut waiting = self.waiting.borrow_mut();
            match waiting.first_entry() {
                Some(first) if first.key().0 <= now_ns => {
                    let waker = first.remove();
                    drop(waiting);
                    waker.wake();
                }
                Some(first) => {
                    let due_ns = first.key().0;
                    drop(waiting);
                    return self.arm(due_ns);
                }
                None => return,
            }
        }
    }
}

impl Timer {
    fn new() -> Self {
        let made = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC);
        // The runtime's stream is anything whose readiness is told; see `listen`.
        let stream = |timer: OwnedFd| TcpStream::from_std(std::net::TcpStream::from(timer));
        match made.map_err(std::io::Error::from).and_then(stream) {
            Ok(timer) => Self::Kernel(Rc::new(timer)),
            Err(_) => Self::Coarse,
        }
    }
}

/// Waits for the timer for as long as the worker runs.
async fn ring(alarms: Rc<Alarms>) {
    let timer = match &*alarms.timer.borrow() {
        Timer::Kernel(timer) => Some(Rc::clone(timer)),
        Timer::Unused | Timer::Coarse => None,
    };
    loop {
        match &timer {
            Some(timer) => {
                let read = || {
                    let mut count = [0; 8];
                    Ok(rustix::io::read(timer.as_fd(), &mut count)?)
                };
                match timer.async_io(Interest::READABLE, read).await {
                    Err(error) if error.kind() != ErrorKind::Interrupted => tokio::time::sleep(COARSE).await,
                    _ => {}
                }
            }
            None => tokio::time::sleep(COARSE).await,
        }
        alarms.ring();
    }
}

/// One wait; begun anew for the next.
pub(crate) struct Alarm {
    alarms: Rc<Alarms>,
    place: Cell<Option<Place>>,
}

impl Alarm {
    /// Ready once it is `due_ns`.
    pub(crate) fn poll(&self, context: &mut Context<'_>, due_ns: u64) -> Poll<()> {
        self.end();
        if due_ns <= self.alarms.now_ns() {
            return Poll::Ready(());
        }
        self.place.set(Some(self.alarms.file(due_ns, context.waker().clone())));
        Poll::Pending
    }

    fn end(&self) {
        if let Some(place) = self.place.take() {
            self.alarms.waiting.borrow_mut().remove(&place);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.end();
    }
}
