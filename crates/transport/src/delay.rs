//! Configured delays: a random or recorded delay for each message or connection.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shape::Delay;

use crate::alarm::Alarms;

/// A configured delay, and the number of delays drawn. All workers share it, so that a recorded trace is played in
/// order.
pub struct Delayed {
    settings: Delay,
    drawn: AtomicU64,
}

impl Delayed {
    /// Keeps the previous plan's delay if its settings are equal, so that a trace continues. `None` without settings.
    pub fn new(settings: Option<&Delay>, before: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let settings = settings?;
        let known = before.filter(|before| before.settings == *settings).cloned();
        Some(known.unwrap_or_else(|| Arc::new(Self { settings: settings.clone(), drawn: AtomicU64::new(0) })))
    }

    pub(crate) fn draw_ns(&self) -> u64 {
        // Relaxed: each message needs another place in the trace, and no order with other memory.
        self.settings.draw_ns(self.drawn.fetch_add(1, Ordering::Relaxed), fastrand::u64(..))
    }
}

impl Alarms {
    /// Draws a delay and waits for it.
    pub async fn wait(self: &Rc<Self>, delay: &Delayed) {
        self.sleep(Duration::from_nanos(delay.draw_ns())).await;
    }
}

#[cfg(test)]
mod tests {
    use shape::Jitter;

    use super::*;

    #[test]
    fn each_place_goes_through_its_trace_and_goes_on_after_a_reload_that_leaves_it() {
        let trace = |added: [i64; 3]| Delay {
            mean_ns: 10,
            jitter: Jitter::Trace { source: "t".into(), added_ns: Arc::new(added) },
        };
        let settings = trace([1, 2, 3]);
        let made = |before| Delayed::new(Some(&settings), before).expect("there is one");
        let (one, other) = (made(None), made(None));
        for late_ns in [11, 12, 13, 11] {
            assert_eq!([one.draw_ns(), other.draw_ns()], [late_ns; 2]);
        }
        assert_eq!(made(Some(&one)).draw_ns(), 12, "where it was");
        let changed = Delayed::new(Some(&trace([4, 5, 6])), Some(&one)).expect("there is one");
        assert_eq!(changed.draw_ns(), 14, "from its beginning");
        assert!(Delayed::new(None, Some(&one)).is_none());
    }
}
