//! A worker's streams under one total, and the task that grants them bytes when due.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};

use shape::{Grant, SharedLine, StreamId, Total};

use crate::shared::limits::Limiter;
use transport::alarm::{Alarm, Alarms};

/// Minimum sleep of the granting task: under a fast limit, one wake-up serves several pieces.
// Measured with 0.5 ms at 1 GB/s, 64 bodies of 166 kB: 126 us of CPU a response, 138 with a wake-up for each piece.
const APART_NS: u64 = 800_000;

/// If its body must wait longer, a head is sent first: two sends cost more than one.
// Measured at 1 GB/s: 58 to 64 us of CPU for a response in one send, 65 to 73 in two.
const HEAD_WAIT_NS: u64 = 20_000_000;

pub(crate) struct RateShare {
    /// The limit that the total belongs to.
    limiter: Arc<Limiter>,
    total: Arc<Total>,
    line: RefCell<SharedLine>,
    /// Indexed by stream number.
    waits: RefCell<Vec<ShareWait>>,
    grants: RefCell<Vec<Grant>>,
    /// When a stream may be served next; `None` while none waits.
    due_ns: Cell<Option<u64>>,
    driver: Cell<Option<Waker>>,
    alarms: Rc<Alarms>,
}

#[derive(Default)]
struct ShareWait {
    granted: u64,
    is_asking: bool,
    task: Option<Waker>,
}

impl RateShare {
    pub(super) fn new(
        limiter: &Arc<Limiter>,
        total: &Arc<Total>,
        worker: usize,
        alarms: &Rc<Alarms>,
    ) -> Rc<Self> {
        let share = Rc::new(Self {
            limiter: Arc::clone(limiter),
            total: Arc::clone(total),
            line: RefCell::new(SharedLine::new(Arc::clone(total), worker)),
            waits: RefCell::default(),
            grants: RefCell::default(),
            due_ns: Cell::new(None),
            driver: Cell::new(None),
            alarms: Rc::clone(alarms),
        });
        // The task holds no strong reference, so that the share ends with its last body.
        tokio::task::spawn_local(drive(Rc::downgrade(&share), alarms.alarm()));
        share
    }

    pub(super) fn is_of(&self, limiter: &Arc<Limiter>) -> bool {
        Arc::ptr_eq(&self.limiter, limiter)
    }

    /// The number of bytes granted to a stream at once.
    pub(super) fn piece_bytes(&self) -> u64 {
        self.total.limit().piece_bytes()
    }

    pub(super) fn join(&self, weight: u32) -> StreamId {
        let stream = self.line.borrow_mut().join(weight);
        let mut waits = self.waits.borrow_mut();
        if waits.len() <= stream.0 {
            waits.resize_with(stream.0 + 1, ShareWait::default);
        }
        // The number may have belonged to another stream before.
        waits[stream.0] = ShareWait::default();
        stream
    }

    /// Whether waiting streams are served so soon that a head may wait for its body.
    pub(super) fn is_short(&self) -> bool {
        self.line.borrow().is_served_within(HEAD_WAIT_NS)
    }

    /// Requests bytes for a stream. Pending until some are granted; then returns how many.
    pub(super) fn poll_grant(&self, stream: StreamId, wanted: u64, task: &Waker) -> Poll<u64> {
        let is_first = {
            let mut waits = self.waits.borrow_mut();
            let wait = &mut waits[stream.0];
            !std::mem::replace(&mut wait.is_asking, true)
        };
        if is_first {
            let now_ns = self.alarms.now_ns();
            self.line.borrow_mut().ask(stream, wanted, now_ns);
            // While others wait there is no credit.
            if self.due_ns.get().is_none_or(|due_ns| due_ns <= now_ns) {
                self.serve(now_ns);
            }
        }
        let wait = &mut self.waits.borrow_mut()[stream.0];
        let granted = std::mem::take(&mut wait.granted);
        if granted > 0 {
            return Poll::Ready(granted);
        }
        match &mut wait.task {
            // Usually the task is the same, and `clone_from` copies nothing.
            Some(known) => known.clone_from(task),
            none => *none = Some(task.clone()),
        }
        Poll::Pending
    }

    /// Grants the bytes that are due.
    fn serve(&self, now_ns: u64) {
        let mut grants = self.grants.borrow_mut();
        let due_ns = self.line.borrow_mut().serve(now_ns, &mut grants);
        let mut waits = self.waits.borrow_mut();
        for Grant { stream, bytes } in grants.drain(..) {
            let wait = &mut waits[stream.0];
            wait.granted += bytes;
            wait.is_asking = false;
            if let Some(task) = wait.task.take() {
                task.wake();
            }
        }
        drop((grants, waits));
        self.is_due(due_ns);
    }

    fn is_due(&self, due_ns: Option<u64>) {
        if self.due_ns.replace(due_ns) != due_ns {
            self.wake_driver();
        }
    }

    fn wake_driver(&self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    pub(super) fn leave(&self, stream: StreamId, unsent: u64) {
        let unsent = unsent + std::mem::take(&mut self.waits.borrow_mut()[stream.0]).granted;
        let now_ns = self.alarms.now_ns();
        let mut line = self.line.borrow_mut();
        line.give_back(stream, unsent);
        line.leave(stream, now_ns);
        drop(line);
        // What it left may suffice for others; without any stream, the task ends.
        self.is_due(self.due_ns.get().map(|_| now_ns));
        self.wake_driver();
    }

    /// Applies the limit in force. Waiting streams check whether they still have to wait.
    pub(super) fn follow(&self) {
        let now_ns = self.alarms.now_ns();
        self.total.set_limit(self.limiter.limit(), now_ns);
        // Due at once, because a higher limit may permit bytes now.
        self.is_due(self.due_ns.get().map(|_| now_ns));
        for wait in &mut *self.waits.borrow_mut() {
            if let Some(task) = wait.task.take() {
                task.wake();
            }
        }
    }
}

/// The task that serves a share when due, as long as it exists.
async fn drive(share: Weak<RateShare>, alarm: Alarm) {
    let mut rested_ns = 0;
    poll_fn(|context| {
        loop {
            let Some(share) = share.upgrade() else { return Poll::Ready(()) };
            share.driver.set(Some(context.waker().clone()));
            let Some(due_ns) = share.due_ns.get() else { return Poll::Pending };
            if alarm.poll(context, due_ns.max(rested_ns)).is_pending() {
                return Poll::Pending;
            }
            let now_ns = share.alarms.now_ns();
            share.serve(now_ns);
            rested_ns = now_ns + APART_NS;
        }
    })
    .await;
}

impl Drop for RateShare {
    fn drop(&mut self) {
        // The task ends when it finds the share gone.
        self.wake_driver();
    }
}
