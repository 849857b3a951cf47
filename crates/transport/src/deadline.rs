//! Time-outs at the cost of one store: coarse deadlines in a timer wheel that advances ten times a second.
//!
//! Arming a deadline writes one number. When the wheel reaches a postponed deadline, it files the deadline again. The
//! worker's tick supplies the time, so no clock is read here. For precise waits (pacing, delays) see `alarm`.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pin_project_lite::pin_project;
use slab::Slab;

pub const TICK: Duration = Duration::from_millis(100);
/// Slots of the wheel. A later deadline is filed in the last slot, and checked again there.
// 102 s: most time-outs are shorter, and are filed once.
const SLOTS: u32 = 1024;
const NEVER: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(pub u32);

impl Ticks {
    /// A time-out that never expires in practice.
    pub const FOREVER: Self = Self(NEVER / 2);
}

impl From<Duration> for Ticks {
    /// Rounded up, so that no wait ends early.
    fn from(duration: Duration) -> Self {
        let ticks = duration.as_nanos().div_ceil(TICK.as_nanos());
        Ticks(u32::try_from(ticks).map_or(Self::FOREVER.0, |ticks| ticks.min(Self::FOREVER.0)))
    }
}

/// Error: a wait exceeded its time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

/// All deadlines of one worker, in a timer wheel.
pub struct Deadlines {
    now: Cell<u32>,
    entries: RefCell<Slab<DeadlineEntry>>,
    wheel: RefCell<Vec<Vec<u32>>>,
}

struct DeadlineEntry {
    due: u32,
    /// The tick in whose slot this entry is valid. Older filings of it are void.
    filed: u32,
    is_idle: bool,
    waker: Option<Waker>,
}

impl Deadlines {
    pub fn new() -> Rc<Self> {
        let wheel = (0..SLOTS).map(|_| Vec::new()).collect();
        Rc::new(Self { now: Cell::new(0), entries: RefCell::default(), wheel: RefCell::new(wheel) })
    }

    pub fn now(&self) -> u32 {
        self.now.get()
    }

    /// Whether no deadline exists, armed or not. Then the tick need not be exact.
    pub fn is_empty(&self) -> bool {
        self.entries.borrow().is_empty()
    }

    /// The current second, counted from tick 0.
    pub fn second(&self) -> u32 {
        self.now.get() / (Duration::from_secs(1).as_millis() / TICK.as_millis()) as u32
    }

    pub fn deadline(self: &Rc<Self>) -> Deadline {
        let entry = DeadlineEntry { due: NEVER, filed: NEVER, is_idle: false, waker: None };
        let key = self.entries.borrow_mut().insert(entry);
        // The slab holds at most one entry per connection and one per upload: far below 2^32.
        Deadline { deadlines: Rc::clone(self), key: key as u32 }
    }

    /// Advances to tick `now` and wakes the tasks whose deadlines have passed.
    pub fn advance(&self, now: u32) {
        while self.now.get() < now {
            let tick = self.now.get() + 1;
            self.now.set(tick);
            // Taken out, because `visit` files keys into the wheel.
            let keys = std::mem::take(&mut self.wheel.borrow_mut()[(tick % SLOTS) as usize]);
            for &key in &keys {
                self.visit(key, tick);
            }
            self.give_back(tick, keys);
        }
    }

    /// Wakes every idle connection, so that it checks for changes.
    pub fn wake_idle(&self) {
        for (_, entry) in self.entries.borrow_mut().iter_mut().filter(|(_, entry)| entry.is_idle) {
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
    }

    /// Ends the wait of every idle connection, for a drain.
    pub fn expire_idle(&self) {
        let now = self.now.get();
        for (_, entry) in self.entries.borrow_mut().iter_mut().filter(|(_, entry)| entry.is_idle) {
            entry.due = now;
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
    }

    fn visit(&self, key: u32, tick: u32) {
        let mut entries = self.entries.borrow_mut();
        // A void filing: the deadline was armed again for an earlier slot, or its key has another owner.
        let Some(entry) = entries.get_mut(key as usize).filter(|entry| entry.filed == tick) else { return };
        entry.filed = NEVER;
        if entry.due <= tick {
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        } else if entry.due != NEVER {
            self.file(entry, key);
        }
    }

    fn file(&self, entry: &mut DeadlineEntry, key: u32) {
        let now = self.now.get();
        // Never the slot that is being visited, because that one is visited again only after a whole turn.
        let at = entry.due.clamp(now + 1, now + SLOTS - 1);
        entry.filed = at;
        self.wheel.borrow_mut()[(at % SLOTS) as usize].push(key);
    }

    /// Keeps the capacity of a visited slot.
    fn give_back(&self, tick: u32, mut keys: Vec<u32>) {
        keys.clear();
        let slot = &mut self.wheel.borrow_mut()[(tick % SLOTS) as usize];
        if slot.is_empty() {
            *slot = keys;
        }
    }
}

/// A reusable deadline, for one time-out at a time.
pub struct Deadline {
    deadlines: Rc<Deadlines>,
    key: u32,
}

pin_project! {
    /// A future within a limit. No `async fn`: that would hold the future twice, as its argument and as its variable.
    pub struct DeadlineFuture<'d, F> {
        deadline: &'d Deadline,
        limit: Ticks,
        is_armed: bool,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for DeadlineFuture<'_, F> {
    type Output = Result<F::Output, Elapsed>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.future.poll(context) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            // After the future: what is ready at the last moment still counts.
            Poll::Pending => {
                // Most steps are ready at once, and never arm the deadline.
                if !std::mem::replace(this.is_armed, true) {
                    this.deadline.set(*this.limit);
                }
                this.deadline.poll(context).map(|()| Err(Elapsed))
            }
        }
    }
}

impl Deadline {
    /// Arms the deadline, and replaces an earlier time-out.
    pub fn set(&self, limit: Ticks) {
        self.arm(limit, false);
    }

    /// Arms the deadline of an idle connection, which waits for its next request.
    pub fn set_idle(&self, limit: Ticks) {
        self.arm(limit, true);
    }

    /// Runs a future until the armed deadline passes.
    #[inline]
    pub fn guard<F: Future>(&self, future: F) -> DeadlineFuture<'_, F> {
        DeadlineFuture { deadline: self, limit: Ticks::FOREVER, is_armed: true, future }
    }

    /// Runs a future for at most `limit`, counted from when it first has to wait.
    #[inline]
    pub fn within<F: Future>(&self, limit: Ticks, future: F) -> DeadlineFuture<'_, F> {
        DeadlineFuture { deadline: self, limit, is_armed: false, future }
    }

    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut entries = self.deadlines.entries.borrow_mut();
        let entry = &mut entries[self.key as usize];
        if entry.due <= self.deadlines.now.get() {
            return Poll::Ready(());
        }
        match &mut entry.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    fn arm(&self, limit: Ticks, is_idle: bool) {
        let mut entries = self.deadlines.entries.borrow_mut();
        let entry = &mut entries[self.key as usize];
        // One tick more, because the current one is partly over.
        entry.due = self.deadlines.now.get() + limit.0 + 1;
        entry.is_idle = is_idle;
        // A postponed deadline stays where it is filed: that is the store that the module promises.
        if entry.due < entry.filed {
            self.deadlines.file(entry, self.key);
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // The wheel may still contain the key. Such filings are void, because the key's next owner has another `filed`
        // tick.
        let entry = self.deadlines.entries.borrow_mut().try_remove(self.key as usize);
        drop(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Polls at the current tick, and returns whether the deadline has passed.
    fn has_passed(deadline: &Deadline, wakes: &Arc<Wakes>) -> bool {
        let waker = Waker::from(Arc::clone(wakes));
        deadline.poll(&mut Context::from_waker(&waker)).is_ready()
    }

    #[test]
    fn wakes_once_at_the_time_that_was_set_last() {
        for (first, last) in [(5, 5), (50, 5), (5, 50), (5, 5000), (5000, 5), (1, 1023), (1, 1024), (1024, 1)]
        {
            let (deadlines, wakes) = (Deadlines::new(), Arc::new(Wakes::default()));
            let deadline = deadlines.deadline();
            deadline.set(Ticks(first));
            deadline.set(Ticks(last));
            assert!(!has_passed(&deadline, &wakes));
            for now in 1..=last {
                deadlines.advance(now);
                assert!(!has_passed(&deadline, &wakes), "set {first} then {last}: passed at {now}");
            }
            assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
            deadlines.advance(last + 1);
            assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "set {first} then {last}");
            assert!(has_passed(&deadline, &wakes));
        }
    }

    #[test]
    fn a_dropped_deadline_wakes_no_task_and_its_key_is_reused() {
        let (deadlines, wakes) = (Deadlines::new(), Arc::new(Wakes::default()));
        let first = deadlines.deadline();
        first.set(Ticks(3));
        assert!(!has_passed(&first, &wakes));
        drop(first);
        let second = deadlines.deadline();
        second.set(Ticks(10));
        assert!(!has_passed(&second, &wakes));
        deadlines.advance(10);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        deadlines.advance(11);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_drain_ends_idle_waits_only() {
        let (deadlines, wakes) = (Deadlines::new(), Arc::new(Wakes::default()));
        let (idle, busy) = (deadlines.deadline(), deadlines.deadline());
        idle.set_idle(Ticks(100));
        busy.set(Ticks(100));
        assert!(!has_passed(&idle, &wakes) && !has_passed(&busy, &wakes));
        deadlines.expire_idle();
        assert!(has_passed(&idle, &wakes) && !has_passed(&busy, &wakes));
    }

    #[test]
    fn idle_waits_that_are_woken_go_on() {
        let (deadlines, wakes) = (Deadlines::new(), Arc::new(Wakes::default()));
        let (idle, busy) = (deadlines.deadline(), deadlines.deadline());
        idle.set_idle(Ticks(100));
        busy.set(Ticks(100));
        assert!(!has_passed(&idle, &wakes) && !has_passed(&busy, &wakes));
        deadlines.wake_idle();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(!has_passed(&idle, &wakes));
    }

    #[test]
    fn re_arming_again_and_again_does_not_fill_the_wheel() {
        let deadlines = Deadlines::new();
        let deadline = deadlines.deadline();
        for now in 0..100_000 {
            deadline.set(Ticks(600));
            deadline.set(Ticks(100));
            if now % 7 == 0 {
                deadlines.advance(now);
            }
        }
        let filed: usize = deadlines.wheel.borrow().iter().map(Vec::len).sum();
        assert!(filed <= 2, "{filed} filings of one deadline");
    }
}
