//! Precise timers of a worker: one kernel timer (timerfd), armed for the earliest wait. The worker's runtime has no
//! timers, because they would read the clock at each sleep.
//!
//! For time-outs see `deadline`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// When a wait is due, in nanoseconds, and a number that distinguishes waits with equal times.
type Place = (u64, u64);

pub struct Alarms {
    epoch: Instant,
    waiting: RefCell<BTreeMap<Place, Waker>>,
    next: Cell<u64>,
    /// When the kernel timer fires.
    armed_ns: Cell<u64>,
    /// A `TcpStream`, because the runtime watches any descriptor under this type; see `listen`.
    timer: TcpStream,
}

impl Alarms {
    /// Creates the timers in the current runtime, in which a task must poll [`run`](Self::run). Times count from
    /// `epoch`.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new(epoch: Instant) -> io::Result<Rc<Self>> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Rc::new(Self {
            epoch,
            waiting: RefCell::default(),
            next: Cell::new(0),
            armed_ns: Cell::new(u64::MAX),
            timer: TcpStream::from_std(std::net::TcpStream::from(timer))?,
        }))
    }

    /// Wakes tasks when their waits are due. Runs as long as the runtime.
    pub async fn run(self: Rc<Self>) {
        loop {
            let read = || {
                let mut count = [0; 8];
                Ok(rustix::io::read(self.timer.as_fd(), &mut count)?)
            };
            match self.timer.async_io(Interest::READABLE, read).await {
                // Only the end of the runtime leads here.
                Err(error) if error.kind() != ErrorKind::Interrupted => return,
                _ => self.ring(),
            }
        }
    }

    /// Reads the clock: nanoseconds since the epoch.
    pub fn now_ns(&self) -> u64 {
        // 2^64 nanoseconds are 584 years.
        self.epoch.elapsed().as_nanos() as u64
    }

    pub async fn until(self: &Rc<Self>, due_ns: u64) {
        let alarm = self.alarm();
        poll_fn(|context| alarm.poll(context, due_ns)).await;
    }

    pub async fn sleep(self: &Rc<Self>, pause: Duration) {
        self.until(self.after(pause)).await;
    }

    /// The clock's reading after `pause`, in nanoseconds.
    pub fn after(&self, pause: Duration) -> u64 {
        self.now_ns().saturating_add(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX))
    }

    pub fn alarm(self: &Rc<Self>) -> Alarm {
        Alarm { alarms: Rc::clone(self), place: Cell::new(None) }
    }

    pub fn next_in(&self) -> Duration {
        Duration::from_nanos(self.armed_ns.get().saturating_sub(self.now_ns()))
    }

    fn file(&self, due_ns: u64, waker: Waker) -> Place {
        // The number keeps waits apart that are due in one nanosecond.
        let place = (due_ns, self.next.replace(self.next.get() + 1));
        self.waiting.borrow_mut().insert(place, waker);
        // A later wait needs no system call: `ring` arms the timer for it.
        if due_ns < self.armed_ns.get() {
            self.arm(due_ns);
        }
        place
    }

    fn arm(&self, due_ns: u64) {
        self.armed_ns.set(due_ns);
        // Zero would disarm the timer.
        let wait = Duration::from_nanos(due_ns.saturating_sub(self.now_ns()).max(1));
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() },
        };
        // Cannot fail: the call rejects only invalid times.
        let _ = timerfd_settime(self.timer.as_fd(), TimerfdTimerFlags::empty(), &once);
    }

    fn ring(&self) {
        let now_ns = self.now_ns();
        self.armed_ns.set(u64::MAX);
        loop {
            let mut waiting = self.waiting.borrow_mut();
            match waiting.first_entry() {
                Some(first) if first.key().0 <= now_ns => {
                    let waker = first.remove();
                    // A waker may drop another alarm, which removes its entry from this map.
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

/// A reusable timer, for one wait at a time.
pub struct Alarm {
    alarms: Rc<Alarms>,
    place: Cell<Option<Place>>,
}

impl Alarm {
    /// Ready once the clock reads `due_ns`.
    pub fn poll(&self, context: &mut Context<'_>, due_ns: u64) -> Poll<()> {
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
