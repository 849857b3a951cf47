//! A route's mirror: which requests it copies, and how many copies are under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use expression::Expression;
use shape::Millionths;

/// Shared by all workers.
pub(crate) struct Mirror {
    pub(crate) upstream: usize,
    pub(crate) body_bytes_max: u64,
    /// The line that marks a request as a copy for its server; empty if there is none.
    pub(crate) mark: Vec<u8>,
    /// The condition under which requests are copied.
    pub(crate) when: Option<Arc<Expression>>,
    requests_max: u32,
    /// The share in 2⁻⁶⁴, rounded up; `None` copies every request.
    step: Option<u64>,
    /// The sum of the steps so far. A request is copied whenever it overflows, so the share is exact.
    sum: AtomicU64,
    under_way: AtomicU32,
}

/// Counts a copy under way until it is dropped.
pub(crate) struct MirrorPermit(Arc<Mirror>);

impl Mirror {
    pub(crate) fn new(settings: &config::Mirror) -> Self {
        let mark = settings.mark.as_ref().map(|name| format!("{name}: 1\r\n").into_bytes());
        Self {
            upstream: settings.upstream,
            body_bytes_max: settings.body_bytes_max,
            mark: mark.unwrap_or_default(),
            when: settings.when.clone(),
            requests_max: settings.requests_max,
            step: step(settings.share),
            sum: AtomicU64::new(0),
            under_way: AtomicU32::new(0),
        }
    }

    /// Whether the next request is copied.
    pub(crate) fn is_next(&self) -> bool {
        let Some(step) = self.step else { return true };
        // Only the sum counts, not the order of the requests, so Relaxed suffices.
        self.sum.fetch_add(step, Ordering::Relaxed).overflowing_add(step).1
    }

    /// Returns a place for another copy, if the limit permits.
    pub(crate) fn place(self: &Arc<Self>) -> Option<MirrorPermit> {
        // Beyond the limit, dropping the guard takes the count back.
        let place = MirrorPermit(Arc::clone(self));
        (self.under_way.fetch_add(1, Ordering::Relaxed) < self.requests_max).then_some(place)
    }
}

impl Drop for MirrorPermit {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

fn step(share: Millionths) -> Option<u64> {
    let whole = u128::from(Millionths::WHOLE.millionths());
    // Rounded up: rounded down, a share of 1 in n would copy only every (n + 1)th request at times.
    u64::try_from((u128::from(share.millionths()) << 64).div_ceil(whole)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(millionths: u32) -> Arc<Mirror> {
        Arc::new(Mirror::new(&config::Mirror {
            upstream: 0,
            share: Millionths::of_millionths(millionths).unwrap(),
            body_bytes_max: 0,
            requests_max: 2,
            mark: Some("X-Copy".to_owned()),
            when: None,
        }))
    }

    #[test]
    fn a_share_is_exact() {
        for (millionths, requests, copied) in [
            (0, 1000, 0),
            (1_000_000, 1000, 1000),
            (500_000, 1000, 500),
            (100_000, 1000, 100),
            (333_333, 1_000_000, 333_333),
            (1, 3_000_000, 3),
            (999_999, 1_000_000, 999_999),
        ] {
            let mirror = mirror(millionths);
            assert_eq!((0..requests).filter(|_| mirror.is_next()).count(), copied, "{millionths}");
        }
    }

    #[test]
    fn places_are_given_back() {
        let mirror = mirror(1);
        let (first, second) = (mirror.place(), mirror.place());
        assert!(first.is_some() && second.is_some() && mirror.place().is_none());
        drop(first);
        assert!(mirror.place().is_some());
        assert_eq!(mirror.mark, b"X-Copy: 1\r\n");
    }
}
