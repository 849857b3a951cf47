//! One worker's connections to one server that carry one exchange at a time: those that are idle, and who waits for one.
//!
//! Idle ones are a stack: the connection used last is the one least likely to have been closed meanwhile, and what is
//! not needed collects at the bottom. Whoever waits gets what becomes free, in turn.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use config::Pool as Settings;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::upstream::ServerConnection;
use transport::deadline::{Deadlines, TICK, Ticks};

/// See the file.
#[derive(Default)]
pub(crate) struct Pool {
    settings: Cell<Settings>,
    idle: RefCell<Vec<Idle>>,
    /// How many may be idle now: none while somebody waits. So what is given back is looked at once.
    room: Cell<usize>,
    waiting: RefCell<VecDeque<oneshot::Sender<Box<ServerConnection>>>>,
    /// How many of those wait still.
    waiting_count: Cell<usize>,
    /// How many connections are being made that a waiting request may get.
    making: Cell<usize>,
    /// How many were in use lately, as all workers have been told.
    in_use: Cell<usize>,
}

struct Idle {
    connection: Box<ServerConnection>,
    since: u32,
}

impl Pool {
    pub(crate) fn set(&self, settings: Settings) {
        self.settings.set(settings);
        self.make_room();
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings.get()
    }

    /// How many are idle.
    pub(crate) fn len(&self) -> usize {
        self.idle.borrow().len()
    }

    /// The one used last that is good still.
    #[inline]
    pub(crate) fn take(&self, is_good: impl Fn(&ServerConnection) -> bool) -> Option<Box<ServerConnection>> {
        let mut idle = self.idle.borrow_mut();
        while let Some(Idle { connection, .. }) = idle.pop() {
            if is_good(&connection) {
                return Some(connection);
            }
        }
        None
    }

    /// Takes one back, for whoever comes next; or for who waits.
    #[inline]
    pub(crate) fn put(&self, connection: Box<ServerConnection>, now: u32) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < self.room.get() {
            idle.push(Idle { connection, since: now });
        } else {
            drop(idle);
            self.hand_over(connection, now);
        }
    }

    /// To who waits longest; without room it is closed.
    #[cold]
    fn hand_over(&self, mut connection: Box<ServerConnection>, now: u32) {
        if self.waiting_count.get() == 0 {
            return;
        }
        loop {
            let Some(waiting) = self.waiting.borrow_mut().pop_front() else { break };
            match waiting.send(connection) {
                Ok(()) => return self.waits_no_longer(),
                // It has left.
                Err(omitted) => connection = omitted,
            }
        }
        debug_assert!(false, "somebody waits and is not there");
        self.waiting_count.set(0);
        self.make_room();
        self.put(connection, now);
    }

    fn waits_no_longer(&self) {
        self.waiting_count.set(self.waiting_count.get() - 1);
        self.make_room();
    }

    fn make_room(&self) {
        let is_awaited = self.waiting_count.get() > 0;
        self.room.set(if is_awaited { 0 } else { self.settings.get().idle });
        if !is_awaited {
            // Those who have left.
            self.waiting.borrow_mut().clear();
        }
    }

    /// Waits for one, behind all who do.
    pub(crate) fn wait<'a>(&'a self, deadlines: &'a Deadlines) -> Waiting<'a> {
        let (sender, given) = oneshot::channel();
        self.waiting.borrow_mut().push_back(sender);
        self.waiting_count.set(self.waiting_count.get() + 1);
        self.room.set(0);
        Waiting { pool: self, deadlines, given, is_over: false }
    }

    /// Closes what is idle for too long, what is not needed, and what its server has closed.
    pub(crate) fn sweep(&self, now: u32, in_use_by_all: &AtomicUsize, open: usize, workers: usize) {
        let timeout = self.settings.get().idle_timeout;
        let (limit, lull) = (Ticks::from(timeout).0, Ticks::from(balance::Idle::lull(timeout)).0);
        let mut idle = self.idle.borrow_mut();
        idle.retain(|idle| now - idle.since < limit && idle.connection.socket.is_quiet());
        let unused = idle.partition_point(|idle| now - idle.since >= lull);
        let in_use = open.saturating_sub(unused);
        self.tell_in_use(in_use_by_all, in_use);
        let Some(oldest) = idle.first() else { return };
        let kept = balance::Idle {
            unused,
            longest: TICK * (now - oldest.since),
            timeout,
            in_use,
            in_use_by_all: in_use_by_all.load(Relaxed),
            workers,
        };
        idle.drain(..kept.surplus());
    }

    /// Says to all workers how many were in use with this one.
    pub(crate) fn tell_in_use(&self, by_all: &AtomicUsize, in_use: usize) {
        let before = self.in_use.replace(in_use);
        // The sum of what each of them has told last; it wraps around on its way, never in the end.
        by_all.fetch_add(in_use.wrapping_sub(before), Relaxed);
    }

    /// Closes half of them, those that were used longest ago.
    pub(crate) fn give_up_half(&self) {
        let mut idle = self.idle.borrow_mut();
        let half = idle.len().div_ceil(2);
        idle.drain(..half);
    }
}

/// A place among those who wait for a connection.
pub(crate) struct Waiting<'a> {
    pool: &'a Pool,
    deadlines: &'a Deadlines,
    given: oneshot::Receiver<Box<ServerConnection>>,
    is_over: bool,
}

impl Waiting<'_> {
    /// Whether a connection is being made for each request that waits, this one included. Then this request need not
    /// begin another.
    pub(crate) fn is_provided_for(&self) -> bool {
        self.pool.making.get() >= self.pool.waiting_count.get()
    }

    /// Ready with one that has become free, or that was made for somebody else.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Box<ServerConnection>> {
        // A receiver that has answered must not be asked again.
        if self.is_over {
            return Poll::Pending;
        }
        match std::pin::Pin::new(&mut self.given).poll(context) {
            Poll::Ready(Ok(connection)) => {
                self.is_over = true;
                Poll::Ready(connection)
            }
            // Nobody forgets who waits.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }

    fn end(&mut self) -> Option<Box<ServerConnection>> {
        if std::mem::replace(&mut self.is_over, true) {
            return None;
        }
        self.given.close();
        match self.given.try_recv() {
            Ok(connection) => Some(connection),
            Err(TryRecvError::Empty | TryRecvError::Closed) => {
                self.pool.waits_no_longer();
                None
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // What was given meanwhile goes to the next.
        if let Some(connection) = self.end() {
            self.pool.put(connection, self.deadlines.now());
        }
    }
}

/// Counts a connection that is being made, for as long as it is.
pub(crate) struct Making<'a>(&'a Pool);

impl<'a> Making<'a> {
    pub(crate) fn new(pool: &'a Pool) -> Self {
        pool.making.set(pool.making.get() + 1);
        Self(pool)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.making.set(self.0.making.get() - 1);
    }
}
