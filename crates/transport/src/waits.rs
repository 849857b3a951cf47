//! The tasks that streams of a connection belong to, and what each waits for: the same for HTTP/2 and HTTP/3.

use std::cell::{Cell, RefCell, RefMut};
use std::task::{Context, Waker};

/// The place of a stream in its connection.
type Key = usize;

/// Who waits for each stream.
#[derive(Default)]
pub(crate) struct Waits {
    waits: RefCell<Vec<Wait>>,
    /// Streams that are behind.
    behind: Cell<usize>,
    /// What their tasks hold of them.
    bytes: Cell<usize>,
}

/// The task that a stream belongs to, and what it waits for.
#[derive(Default)]
pub(crate) struct Wait {
    task: Option<Waker>,
    pub(crate) to_read: bool,
    pub(crate) to_write: bool,
    pub(crate) for_reset: bool,
    /// Whether a write has found no room, and there was none since. HTTP/2 knows that by its windows.
    is_full: bool,
    /// Whether bytes are left that a write has found no room for.
    is_behind: bool,
    /// How many those are.
    bytes: u32,
}

impl Waits {
    /// A task uses the stream from now on.
    pub(crate) fn hold(&self, key: Key) {
        let mut waits = self.waits.borrow_mut();
        if waits.len() <= key {
            waits.resize_with(key + 1, Wait::default);
        }
        self.forget(&mut waits[key]);
    }

    /// Its task has ended.
    pub(crate) fn release(&self, key: Key) {
        self.forget(&mut self.waits.borrow_mut()[key]);
    }

    fn forget(&self, wait: &mut Wait) {
        let wait = std::mem::take(wait);
        if wait.is_behind {
            self.behind.set(self.behind.get() - 1);
            self.bytes.set(self.bytes.get() - wait.bytes as usize);
        }
    }

    /// What the task of this context is to wait for on a stream that it holds.
    pub(crate) fn of(&self, key: Key, context: &Context<'_>) -> RefMut<'_, Wait> {
        let mut wait = self.at(key);
        match &mut wait.task {
            Some(task) => task.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        wait
    }

    /// The wait for a stream that a task holds.
    fn at(&self, key: Key) -> RefMut<'_, Wait> {
        RefMut::map(self.waits.borrow_mut(), |waits| &mut waits[key])
    }

    /// Wakes whose wait for a stream this is about. A stream may have no task yet.
    pub(crate) fn wake(&self, key: Key, is_it: impl FnOnce(&Wait) -> bool) {
        if let Some(wait) = self.waits.borrow_mut().get_mut(key).filter(|wait| is_it(wait)) {
            wait.wake();
        }
    }

    /// Wakes all whose wait this is about.
    pub(crate) fn wake_all(&self, is_it: impl Fn(&Wait) -> bool) {
        self.waits.borrow_mut().iter_mut().filter(|wait| is_it(wait)).for_each(Wait::wake);
    }

    /// There is no room for a stream, for which its task has so many bytes: it is to wait for room.
    pub(crate) fn wait_for_room(&self, key: Key, context: &Context<'_>, bytes: usize) {
        let mut wait = self.of(key, context);
        (wait.to_write, wait.is_full) = (true, true);
        if !std::mem::replace(&mut wait.is_behind, true) {
            self.behind.set(self.behind.get() + 1);
        }
        let had = std::mem::replace(&mut wait.bytes, bytes as u32);
        self.bytes.set(self.bytes.get() - had as usize + bytes);
    }

    /// All bytes of a stream were taken.
    #[inline]
    pub(crate) fn caught_up(&self, key: Key) {
        if self.behind.get() == 0 {
            return;
        }
        let mut wait = self.at(key);
        if std::mem::take(&mut wait.is_behind) {
            self.behind.set(self.behind.get() - 1);
            self.bytes.set(self.bytes.get() - std::mem::take(&mut wait.bytes) as usize);
        }
    }

    /// Whether a stream is full.
    pub(crate) fn is_full(&self, key: Key) -> bool {
        self.at(key).is_full
    }

    /// Whether bytes of any stream wait for room, those included that there is room for again.
    pub(crate) fn some_are_behind(&self) -> bool {
        self.behind.get() > 0
    }

    /// What tasks hold that waits for room.
    pub(crate) fn bytes_behind(&self) -> usize {
        self.bytes.get()
    }

    /// There is room for a stream again.
    pub(crate) fn has_room(&self, key: Key) {
        if let Some(wait) = self.waits.borrow_mut().get_mut(key) {
            wait.is_full = false;
            if wait.to_write {
                wait.wake();
            }
        }
    }
}

impl Wait {
    fn wake(&mut self) {
        (self.to_read, self.to_write, self.for_reset) = (false, false, false);
        if let Some(task) = &self.task {
            task.wake_by_ref();
        }
    }
}
