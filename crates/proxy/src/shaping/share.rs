//! One worker's streams under one total, and the task that grants them bytes when these are due.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};

use shape::{Grant, Line, StreamId, Total};

use super::limits::Limiter;
use transport::alarm::{Alarm, Alarms};

/// A driver that has served sleeps at least so long: under a fast limit one waking serves several pieces.
const APART_NS: u64 = 800_000;

/// A head goes ahead of its body, if that would have to wait longer: two sends cost more than one.
const HEAD_WAIT_NS: u64 = 20_000_000;

/// One worker's streams under one total.
pub(crate) struct Share {
    /// Whose limit it is.
    limiter: Arc<Limiter>,
    total: Arc<Total>,
    line: RefCell<Line>,
    /// By the number of the stream.
    waits: RefCell<Vec<Wait>>,
    grants: RefCell<Vec<Grant>>,
    /// When somebody may be served next; `None` while nobody waits.
    due_ns: Cell<Option<u64>>,
    driver: Cell<Option<Waker>>,
    alarms: Rc<Alarms>,
}

#[derive(Default)]
struct Wait {
    granted: u64,
    is_asking: bool,
    task: Option<Waker>,
}

impl Share {
    /// Creates the share of worker number `worker`.
    pub(super) fn new(
        limiter: &Arc<Limiter>,
        total: &Arc<Total>,
        worker: usize,
        alarms: &Rc<Alarms>,
    ) -> Rc<Self> {
        let share = Rc::new(Self {
            limiter: Arc::clone(limiter),
            total: Arc::clone(total),
            line: RefCell::new(Line::new(Arc::clone(total), worker)),
            waits: RefCell::default(),
            grants: RefCell::default(),
            due_ns: Cell::new(None),
            driver: Cell::new(None),
            alarms: Rc::clone(alarms),
        });
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
            waits.resize_with(stream.0 + 1, Wait::default);
        }
        waits[stream.0] = Wait::default();
        stream
    }

    /// Whether waiting streams are served so soon that a head may wait for its body.
    pub(super) fn is_short(&self) -> bool {
        self.line.borrow().is_served_within(HEAD_WAIT_NS)
    }

    /// Asks for bytes for a stream, once until they are granted. Returns how many.
    pub(super) fn poll_grant(&self, stream: StreamId, wanted: u64, task: &Waker) -> Poll<u64> {
        let is_first = {
            let mut waits = self.waits.borrow_mut();
            let wait = &mut waits[stream.0];
            !std::mem::replace(&mut wait.is_asking, true)
        };
        if is_first {
            let now_ns = self.alarms.now_ns();
            self.line.borrow_mut().ask(stream, wanted, now_ns);
            // While others wait there is no credit to be had.
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
            Some(known) => known.clone_from(task),
            none => *none = Some(task.clone()),
        }
        Poll::Pending
    }

    /// Grants what may be sent by now.
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
        // What it left may be enough for others, and without any the driver ends.
        self.is_due(self.due_ns.get().map(|_| now_ns));
        self.wake_driver();
    }

    /// Applies the limit in force. Waiting streams check whether they still have to wait.
    pub(super) fn follow(&self) {
        let now_ns = self.alarms.now_ns();
        self.total.set_limit(self.limiter.limit(), now_ns);
        self.is_due(self.due_ns.get().map(|_| now_ns));
        for wait in &mut *self.waits.borrow_mut() {
            if let Some(task) = wait.task.take() {
                task.wake();
            }
        }
    }
}

/// Serves a share when it is due, for as long as it is one.
async fn drive(share: Weak<Share>, alarm: Alarm) {
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

impl Drop for Share {
    fn drop(&mut self) {
        self.wake_driver();
    }
}
