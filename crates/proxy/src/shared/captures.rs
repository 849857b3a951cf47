//! Captures of running traffic: operators and files get copies of requests, at the end of each.
//!
//! All workers share the captures. Without any, each request costs the check of one flag. A worker never waits: what
//! comes faster than it is taken is lost, and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use capture::CapturedRequest;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Captured requests that wait to be written. With their heads, they take about 1 MiB.
const QUEUE_MAX: usize = 1024;
/// Captured requests that wait with their bodies: each takes at most 88 KiB in base64, and all 11 MiB.
const QUEUE_WITH_BODIES_MAX: usize = 128;

/// All captures in progress.
#[derive(Default)]
pub struct Captures {
    is_on: AtomicBool,
    all: ArcSwap<Vec<Arc<LiveCapture>>>,
    last: AtomicU64,
}

/// A capture in progress.
struct LiveCapture {
    id: CaptureId,
    routes: CapturedRoutes,
    /// Requests that may still be captured.
    left: AtomicU64,
    has_bodies: bool,
    lost: Arc<AtomicU64>,
    queue: Sender<CapturedRequest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureId(u64);

/// The routes whose requests are captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CapturedRoutes {
    /// All, and requests without a route.
    All,
    /// The routes with these labels.
    Labelled(Vec<String>),
}

/// A capture that has begun.
pub struct BegunCapture {
    pub id: CaptureId,
    /// Ends with the capture.
    pub requests: Receiver<CapturedRequest>,
    /// Requests that were not captured, because they came faster than they were taken.
    pub lost: Arc<AtomicU64>,
}

impl LiveCapture {
    fn has(&self, route: Option<&str>) -> bool {
        match (&self.routes, route) {
            (CapturedRoutes::All, _) => true,
            (CapturedRoutes::Labelled(labels), Some(route)) => labels.iter().any(|label| label == route),
            (CapturedRoutes::Labelled(_), None) => false,
        }
    }

    /// Returns whether more requests may follow.
    fn take(&self, request: CapturedRequest) -> bool {
        let one_less = |left: u64| left.checked_sub(1);
        let Ok(left) = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) else {
            return false;
        };
        match self.queue.try_send(request) {
            Ok(()) => left > 1,
            Err(TrySendError::Full(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                // It is still wanted.
                self.left.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Closed(_)) => false,
        }
    }
}

impl Captures {
    /// Begins a capture of at most `requests_max` requests, with buffered bodies if `has_bodies`.
    pub fn begin(&self, routes: CapturedRoutes, requests_max: u64, has_bodies: bool) -> BegunCapture {
        let (queue, requests) = channel(if has_bodies { QUEUE_WITH_BODIES_MAX } else { QUEUE_MAX });
        let lost = Arc::<AtomicU64>::default();
        let id = CaptureId(self.last.fetch_add(1, Ordering::Relaxed));
        let left = AtomicU64::new(requests_max);
        let capture = LiveCapture { id, routes, left, has_bodies, lost: Arc::clone(&lost), queue };
        let capture = Arc::new(capture);
        self.change(|all| all.push(Arc::clone(&capture)));
        BegunCapture { id, requests, lost }
    }

    /// Ends a capture, if it has not ended.
    pub fn end(&self, id: CaptureId) {
        self.change(|all| all.retain(|capture| capture.id != id));
    }

    /// Ends all captures.
    pub fn end_all(&self) {
        self.change(Vec::clear);
    }

    fn change(&self, change: impl Fn(&mut Vec<Arc<LiveCapture>>)) {
        self.all.rcu(|all| {
            let mut changed = Vec::clone(all);
            change(&mut changed);
            changed
        });
        // After two changes at once, the flag follows the last one.
        self.is_on.store(!self.all.load().is_empty(), Ordering::SeqCst);
    }

    /// The number of captures in progress.
    pub fn count(&self) -> usize {
        self.all.load().len()
    }

    #[inline]
    pub(crate) fn are_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Gives a finished request to the captures of its route. `request` makes it, with or without its body.
    #[cold]
    pub(crate) fn give(&self, route: Option<&str>, request: impl Fn(bool) -> CapturedRequest) {
        for capture in self.all.load_full().iter().filter(|capture| capture.has(route)) {
            if !capture.take(request(capture.has_bodies)) {
                self.end(capture.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::error::TryRecvError;

    use super::*;

    fn request(target: &str) -> CapturedRequest {
        CapturedRequest { method: "GET".to_owned(), target: target.to_owned(), ..Default::default() }
    }

    /// Targets of the requests that wait, and whether the capture has ended.
    fn received(begun: &mut BegunCapture) -> (Vec<String>, bool) {
        let waiting = std::iter::from_fn(|| begun.requests.try_recv().ok()).map(|request| request.target);
        (waiting.collect(), begun.requests.try_recv() == Err(TryRecvError::Disconnected))
    }

    #[test]
    fn captures_take_requests_of_their_routes_up_to_their_number() {
        let captures = Captures::default();
        assert!(!captures.are_on());
        let mut all = captures.begin(CapturedRoutes::All, 3, false);
        let mut shop = captures.begin(CapturedRoutes::Labelled(vec!["shop".to_owned()]), 10, false);
        for (route, target) in
            [(Some("shop"), "/1"), (None, "/2"), (Some("blog"), "/3"), (Some("shop"), "/4")]
        {
            captures.give(route, |_| request(target));
        }
        let targets = |targets: &[&str]| targets.iter().map(|&target| target.to_owned()).collect::<Vec<_>>();
        assert_eq!(received(&mut all), (targets(&["/1", "/2", "/3"]), true));
        assert_eq!(received(&mut shop), (targets(&["/1", "/4"]), false));
        assert!(captures.are_on());
        captures.end(shop.id);
        assert_eq!(received(&mut shop), (Vec::new(), true));
        assert!(!captures.are_on());
    }

    #[test]
    fn requests_that_nobody_takes_are_counted_and_end_nothing() {
        let captures = Captures::default();
        let mut begun = captures.begin(CapturedRoutes::All, 2000, false);
        (0..QUEUE_MAX + 5).for_each(|_| captures.give(None, |_| request("/")));
        let (waiting, is_over) = received(&mut begun);
        assert_eq!((begun.lost.load(Ordering::Relaxed), waiting.len(), is_over), (5, QUEUE_MAX, false));
        // Once the receiver is gone, the capture ends with the next request.
        drop(begun);
        captures.give(None, |_| request("/"));
        assert!(!captures.are_on());
    }
}
