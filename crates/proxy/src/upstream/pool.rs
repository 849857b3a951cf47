//! The pool: one worker's idle HTTP/1 connections to one server, and the requests that wait for one.
//!
//! Idle connections form a stack: the one used last is the least likely to have been closed, and surplus ones collect
//! at the bottom. Waiting requests get connections that become free, in order.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use config::Pool as Settings;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::upstream::ServerConnection;
use transport::deadline::{Deadlines, TICK, Ticks};

#[derive(Default)]
pub(crate) struct Pool {
    settings: Cell<Settings>,
    idle: RefCell<Vec<PooledIdle>>,
    /// How many connections may be idle now: none while a request waits, so that a returned connection is handed over.
    room: Cell<usize>,
    waiting: RefCell<VecDeque<oneshot::Sender<Box<ServerConnection>>>>,
    /// How many of those still wait.
    waiting_count: Cell<usize>,
    /// Connections being made that a waiting request may get.
    making: Cell<usize>,
    /// Connections recently in use, as added to the sum of all workers.
    in_use: Cell<usize>,
}

struct PooledIdle {
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

    pub(crate) fn len(&self) -> usize {
        self.idle.borrow().len()
    }

    /// Takes the connection that was used last, among those that pass `is_good`. Drops the others on the way.
    #[inline]
    pub(crate) fn take(&self, is_good: impl Fn(&ServerConnection) -> bool) -> Option<Box<ServerConnection>> {
        let mut idle = self.idle.borrow_mut();
        while let Some(PooledIdle { connection, .. }) = idle.pop() {
            if is_good(&connection) {
                return Some(connection);
            }
        }
        None
    }

    /// Gives a connection to a waiting request, or back to the pool.
    #[inline]
    pub(crate) fn put(&self, connection: Box<ServerConnection>, now: u32) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < self.room.get() {
            idle.push(PooledIdle { connection, since: now });
        } else {
            drop(idle);
            self.hand_over(connection, now);
        }
    }

    /// Hands a connection to the request that has waited longest; closes it if the pool is full.
    #[cold]
    fn hand_over(&self, mut connection: Box<ServerConnection>, now: u32) {
        // No request waits, so the pool is full.
        if self.waiting_count.get() == 0 {
            return;
        }
        loop {
            let Some(waiting) = self.waiting.borrow_mut().pop_front() else { break };
            match waiting.send(connection) {
                Ok(()) => return self.waits_no_longer(),
                // The request has left.
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
            // Entries of requests that have left.
            self.waiting.borrow_mut().clear();
        }
    }

    /// Joins the requests that wait for a connection.
    pub(crate) fn wait<'a>(&'a self, deadlines: &'a Deadlines) -> PoolWaiter<'a> {
        let (sender, given) = oneshot::channel();
        self.waiting.borrow_mut().push_back(sender);
        self.waiting_count.set(self.waiting_count.get() + 1);
        self.room.set(0);
        PoolWaiter { pool: self, deadlines, given, is_over: false }
    }

    /// Closes idle connections that have timed out, are surplus, or were closed by the server.
    pub(crate) fn sweep(&self, now: u32, in_use_by_all: &AtomicUsize, open: usize, workers: usize) {
        let timeout = self.settings.get().idle_timeout;
        let (limit, lull) = (Ticks::from(timeout).0, Ticks::from(balance::IdleConnections::lull(timeout)).0);
        let mut idle = self.idle.borrow_mut();
        // A connection with something to read was closed, or its server broke the protocol.
        idle.retain(|idle| now - idle.since < limit && idle.connection.socket.is_quiet());
        let unused = idle.partition_point(|idle| now - idle.since >= lull);
        let in_use = open.saturating_sub(unused);
        self.tell_in_use(in_use_by_all, in_use);
        let Some(oldest) = idle.first() else { return };
        let kept = balance::IdleConnections {
            unused,
            longest: TICK * (now - oldest.since),
            timeout,
            in_use,
            in_use_by_all: in_use_by_all.load(Relaxed),
            workers,
        };
        idle.drain(..kept.surplus());
    }

    /// Updates the sum over all workers of connections in use.
    pub(crate) fn tell_in_use(&self, by_all: &AtomicUsize, in_use: usize) {
        let before = self.in_use.replace(in_use);
        // The sum may wrap around temporarily; the final value is right.
        by_all.fetch_add(in_use.wrapping_sub(before), Relaxed);
    }

    /// Closes the half of the idle connections that was used longest ago.
    pub(crate) fn give_up_half(&self) {
        let mut idle = self.idle.borrow_mut();
        // Rounded up, so that a single one is closed, too.
        let half = idle.len().div_ceil(2);
        idle.drain(..half);
    }
}

/// The place of a request that waits for a connection.
pub(crate) struct PoolWaiter<'a> {
    pool: &'a Pool,
    deadlines: &'a Deadlines,
    given: oneshot::Receiver<Box<ServerConnection>>,
    is_over: bool,
}

impl PoolWaiter<'_> {
    /// Whether at least as many connections are being made as requests wait, so that this one need not make another.
    pub(crate) fn is_provided_for(&self) -> bool {
        self.pool.making.get() >= self.pool.waiting_count.get()
    }

    /// Ready with a connection that became free, or that was made for another request.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Box<ServerConnection>> {
        // A receiver must not be polled after it has answered.
        if self.is_over {
            return Poll::Pending;
        }
        match std::pin::Pin::new(&mut self.given).poll(context) {
            Poll::Ready(Ok(connection)) => {
                self.is_over = true;
                Poll::Ready(connection)
            }
            // Its sender stays in the queue as long as this place.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }

    /// Ends the wait. Returns the connection that was given meanwhile, if any.
    fn end(&mut self) -> Option<Box<ServerConnection>> {
        if std::mem::replace(&mut self.is_over, true) {
            return None;
        }
        // Closed first, so that no connection is given between this look and the end.
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

impl Drop for PoolWaiter<'_> {
    fn drop(&mut self) {
        // An unused connection goes to the next request.
        if let Some(connection) = self.end() {
            self.pool.put(connection, self.deadlines.now());
        }
    }
}

/// Guard that counts a connection while it is being made.
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
