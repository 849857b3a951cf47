//! The tasks that use streams of a connection, and the events that each waits for. Used by HTTP/2 and HTTP/3.

use std::cell::{Cell, RefCell, RefMut};
use std::task::{Context, Waker};

/// The key of a stream in its connection.
type Key = usize;

#[derive(Default)]
pub(crate) struct StreamWaits {
    waits: RefCell<Vec<StreamWait>>,
    /// Number of streams with bytes that wait for room.
    behind: Cell<usize>,
    /// The sum of these bytes.
    bytes: Cell<usize>,
}

/// The task of a stream, and the events that it waits for.
#[derive(Default)]
pub(crate) struct StreamWait {
    task: Option<Waker>,
    pub(crate) to_read: bool,
    pub(crate) to_write: bool,
    pub(crate) for_reset: bool,
    /// Whether a write found no room, and there was none since. Unused by HTTP/2, which checks its windows.
    is_full: bool,
    /// Whether bytes are left that a write found no room for.
    is_behind: bool,
    /// The number of these bytes.
    bytes: u32,
}

impl StreamWaits {
    /// Registers a stream that a task uses from now on.
    pub(crate) fn hold(&self, key: Key) {
        let mut waits = self.waits.borrow_mut();
        if waits.len() <= key {
            waits.resize_with(key + 1, StreamWait::default);
        }
        self.forget(&mut waits[key]);
    }

    /// Called when the stream's task has ended.
    pub(crate) fn release(&self, key: Key) {
        self.forget(&mut self.waits.borrow_mut()[key]);
    }

    fn forget(&self, wait: &mut StreamWait) {
        let wait = std::mem::take(wait);
        // A stream that ends while it waits must leave the sums.
        if wait.is_behind {
            self.behind.set(self.behind.get() - 1);
            self.bytes.set(self.bytes.get() - wait.bytes as usize);
        }
    }

    /// The events that this context's task waits for, on a stream that it holds.
    pub(crate) fn for_key(&self, key: Key, context: &Context<'_>) -> RefMut<'_, StreamWait> {
        let mut wait = self.at(key);
        match &mut wait.task {
            Some(task) => task.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        wait
    }

    fn at(&self, key: Key) -> RefMut<'_, StreamWait> {
        RefMut::map(self.waits.borrow_mut(), |waits| &mut waits[key])
    }

    /// Wakes the task of a stream if `is_it` accepts its wait. A stream may have no task yet.
    pub(crate) fn wake(&self, key: Key, is_it: impl FnOnce(&StreamWait) -> bool) {
        if let Some(wait) = self.waits.borrow_mut().get_mut(key).filter(|wait| is_it(wait)) {
            wait.wake();
        }
    }

    /// Wakes every task whose wait `is_it` accepts.
    pub(crate) fn wake_all(&self, is_it: impl Fn(&StreamWait) -> bool) {
        self.waits.borrow_mut().iter_mut().filter(|wait| is_it(wait)).for_each(StreamWait::wake);
    }

    /// Lets the task wait for room, for this many bytes of its stream.
    pub(crate) fn wait_for_room(&self, key: Key, context: &Context<'_>, bytes: usize) {
        let mut wait = self.for_key(key, context);
        (wait.to_write, wait.is_full) = (true, true);
        // Counted once, however often the task is polled.
        if !std::mem::replace(&mut wait.is_behind, true) {
            self.behind.set(self.behind.get() + 1);
        }
        let had = std::mem::replace(&mut wait.bytes, bytes as u32);
        self.bytes.set(self.bytes.get() - had as usize + bytes);
    }

    /// Called when all bytes of a stream were accepted.
    #[inline]
    pub(crate) fn caught_up(&self, key: Key) {
        // The usual case, without a look at the stream.
        if self.behind.get() == 0 {
            return;
        }
        let mut wait = self.at(key);
        if std::mem::take(&mut wait.is_behind) {
            self.behind.set(self.behind.get() - 1);
            self.bytes.set(self.bytes.get() - std::mem::take(&mut wait.bytes) as usize);
        }
    }

    pub(crate) fn is_full(&self, key: Key) -> bool {
        self.at(key).is_full
    }

    /// Whether bytes of any stream wait for room, or have not used new room yet.
    pub(crate) fn some_are_behind(&self) -> bool {
        self.behind.get() > 0
    }

    /// Bytes of all streams that wait for room.
    pub(crate) fn bytes_behind(&self) -> usize {
        self.bytes.get()
    }

    /// Called when a stream has room again.
    pub(crate) fn has_room(&self, key: Key) {
        if let Some(wait) = self.waits.borrow_mut().get_mut(key) {
            // Cleared even if no task waits, so that the next look at the stream sees the room.
            wait.is_full = false;
            if wait.to_write {
                wait.wake();
            }
        }
    }
}

impl StreamWait {
    fn wake(&mut self) {
        // A woken task says again what it waits for, so it is woken once per wait.
        (self.to_read, self.to_write, self.for_reset) = (false, false, false);
        if let Some(task) = &self.task {
            task.wake_by_ref();
        }
    }
}
