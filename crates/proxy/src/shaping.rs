//! Messages that are slowed down on purpose: what of their bodies may be sent now, and how late requests go on.
//!
//! Nothing here is on the path of a message that is not shaped.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};

use shape::{Delay, Grant, Limit, Line, StreamId, Total};

use crate::alarm::{Alarm, Alarms};
use crate::exchange::Call;
use crate::lane::Memory;

/// Below this a piece is copied: a pipe would cost more than it saves.
const WIDE_PIECE_BYTES: u64 = 64 * 1024;

/// What is done to the messages of a route: shared by all workers, and kept over changes that leave it as it was.
pub(crate) struct Shaping {
    meant: config::Shaping,
    /// All bodies of responses together.
    down: Option<Arc<Total>>,
    /// All bodies of requests together.
    up: Option<Arc<Total>>,
}

impl Shaping {
    /// `None` where nothing is shaped.
    pub(crate) fn new(meant: &config::Shaping, before: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        if *meant == config::Shaping::default() {
            return None;
        }
        if let Some(before) = before.filter(|before| before.meant == *meant) {
            return Some(Arc::clone(before));
        }
        let total = |rate| Arc::new(Total::new(Limit::link(rate)));
        let (down, up) = (meant.rate.map(total), meant.upload_rate.map(total));
        Some(Arc::new(Self { meant: meant.clone(), down, up }))
    }

    /// The pace of a response's body.
    pub(crate) fn down(&self, shaper: &Shaper) -> Option<Flow> {
        self.down.as_ref().map(|total| shaper.flow(total))
    }

    /// The pace of a request's body.
    pub(crate) fn up(&self, shaper: &Shaper) -> Option<Flow> {
        self.up.as_ref().map(|total| shaper.flow(total))
    }

    /// How late requests go on.
    pub(crate) fn delay(&self) -> Option<&Delay> {
        self.meant.delay.as_ref()
    }
}

/// Holds a request back. It keeps no more memory meanwhile than its bytes take.
pub(crate) async fn hold_back(call: &Call<'_>, delay: &Delay, memory: &mut Memory) {
    let Call { worker, .. } = *call;
    let shaper = &worker.shaper;
    let number = shaper.delayed.replace(shaper.delayed.get() + 1);
    let due_ns = shaper.alarms.now_ns().saturating_add(delay.draw_ns(number, fastrand::u64(..)));
    memory.park(worker);
    let alarm = shaper.alarms.alarm();
    poll_fn(|context| alarm.poll(context, due_ns)).await;
    memory.unpark(worker);
}

/// What one worker knows of shaped messages.
pub(crate) struct Shaper {
    worker: usize,
    alarms: Rc<Alarms>,
    shares: RefCell<Vec<Weak<Share>>>,
    /// Requests that were held back so far.
    delayed: Cell<u64>,
}

impl Shaper {
    pub(crate) fn new(worker: usize, alarms: Rc<Alarms>) -> Self {
        Self { worker, alarms, shares: RefCell::default(), delayed: Cell::new(0) }
    }

    fn flow(&self, total: &Arc<Total>) -> Flow {
        let share = self.share(total);
        let stream = share.join();
        Flow { share, stream, granted: Cell::new(0), free: Cell::new(0) }
    }

    /// This worker's share of a total, for as long as one of its messages has a part in it.
    fn share(&self, total: &Arc<Total>) -> Rc<Share> {
        let mut shares = self.shares.borrow_mut();
        let known = shares.iter().filter_map(Weak::upgrade).find(|share| share.is_of(total));
        if let Some(share) = known {
            return share;
        }
        shares.retain(|share| share.strong_count() > 0);
        let share = Rc::new(Share {
            line: RefCell::new(Line::new(Arc::clone(total), self.worker)),
            waits: RefCell::default(),
            grants: RefCell::default(),
            due_ns: Cell::new(None),
            driver: Cell::new(None),
            alarms: Rc::clone(&self.alarms),
        });
        shares.push(Rc::downgrade(&share));
        tokio::task::spawn_local(drive(Rc::downgrade(&share), self.alarms.alarm()));
        share
    }
}

/// One worker's streams under one total.
struct Share {
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
    fn is_of(&self, total: &Arc<Total>) -> bool {
        Arc::ptr_eq(self.line.borrow().total(), total)
    }

    fn join(&self) -> StreamId {
        let stream = self.line.borrow_mut().join(1);
        let mut waits = self.waits.borrow_mut();
        if waits.len() <= stream.0 {
            waits.resize_with(stream.0 + 1, Wait::default);
        }
        waits[stream.0] = Wait::default();
        stream
    }

    /// Asks for a stream, once until it is served; says what it was granted.
    fn poll_grant(&self, stream: StreamId, wanted: u64, task: &Waker) -> Poll<u64> {
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

    fn leave(&self, stream: StreamId, unsent: u64) {
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
}

/// Serves a share when it is due, for as long as it is one.
async fn drive(share: Weak<Share>, alarm: Alarm) {
    poll_fn(|context| {
        loop {
            let Some(share) = share.upgrade() else { return Poll::Ready(()) };
            share.driver.set(Some(context.waker().clone()));
            let Some(due_ns) = share.due_ns.get() else { return Poll::Pending };
            if alarm.poll(context, due_ns).is_pending() {
                return Poll::Pending;
            }
            share.serve(share.alarms.now_ns());
        }
    })
    .await;
}

impl Drop for Share {
    fn drop(&mut self) {
        self.wake_driver();
    }
}

/// The pace of one message's body.
pub(crate) struct Flow {
    share: Rc<Share>,
    stream: StreamId,
    /// What may be sent and is not yet.
    granted: Cell<u64>,
    /// Bytes that are not counted: a head before the body.
    free: Cell<u64>,
}

impl Flow {
    /// The next bytes, so many, are not counted.
    pub(crate) fn pass(&self, bytes: usize) {
        self.free.set(self.free.get() + bytes as u64);
    }

    /// Whether what is granted at once is worth a pipe.
    pub(crate) fn is_wide(&self) -> bool {
        self.share.line.borrow().total().limit().piece_bytes() >= WIDE_PIECE_BYTES
    }

    /// Waits until some of these may be sent, and says how many: at least one.
    pub(crate) async fn allowance(&self, wanted: usize) -> usize {
        let (wanted, free) = (wanted as u64, self.free.get());
        let counted = wanted.saturating_sub(free);
        if counted > 0 && self.granted.get() == 0 {
            let granted = poll_fn(|context| {
                let polled = self.share.poll_grant(self.stream, counted, context.waker());
                // A head does not wait for its body.
                if polled.is_pending() && free > 0 { Poll::Ready(0) } else { polled }
            });
            let granted = granted.await;
            self.granted.set(granted);
        }
        wanted.min(free + self.granted.get()) as usize
    }

    /// So many of those were sent.
    pub(crate) fn sent(&self, count: usize) {
        let free = self.free.get().min(count as u64);
        self.free.set(self.free.get() - free);
        // No more is sent than was allowed.
        self.granted.set(self.granted.get().saturating_sub(count as u64 - free));
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.share.leave(self.stream, self.granted.get());
    }
}
