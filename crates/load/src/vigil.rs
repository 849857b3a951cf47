//! Detects that the server is gone, so that a run with a number of requests does not continue for hours. No I/O.

use std::time::{Duration, Instant};

/// A server is gone after this time without any response …
const QUIET: Duration = Duration::from_secs(5);
/// … and after this many failures of each sender, on average.
const FAILURES_EACH: u64 = 2;

/// Detects for one thread that the server is gone.
#[derive(Debug)]
pub(crate) struct Vigil {
    senders: u64,
    answered: u64,
    /// Number of failures when the last response was seen.
    failed: u64,
    quiet_since: Instant,
    /// When the first failure after the last response was seen.
    failing_since: Option<Instant>,
}

impl Vigil {
    pub(crate) fn new(senders: usize, now: Instant) -> Self {
        Self { senders: senders as u64, answered: 0, failed: 0, quiet_since: now, failing_since: None }
    }

    /// Whether the server is gone for this thread: no responses, all senders fail, and no request that was sent before
    /// the first failure is active. `oldest` is when the oldest active request was sent.
    pub(crate) fn is_gone(
        &mut self,
        answered: u64,
        failed: u64,
        oldest: Option<Instant>,
        now: Instant,
    ) -> bool {
        if answered > self.answered {
            *self = Self { senders: self.senders, answered, failed, quiet_since: now, failing_since: None };
            return false;
        }
        if failed > self.failed {
            self.failing_since.get_or_insert(now);
        }
        let Some(failing_since) = self.failing_since else { return false };
        let is_quiet = now.saturating_duration_since(self.quiet_since) >= QUIET;
        let all_failed = failed - self.failed >= FAILURES_EACH * self.senders;
        is_quiet && all_failed && oldest.is_none_or(|sent| sent >= failing_since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_gone_once_everybody_fails_and_nothing_is_answered() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        // Whole responses, failures, send time of the oldest active request, time of the check; whether it is gone.
        let gone: &[(u64, u64, Option<u64>, u64, bool)] = &[
            (10, 0, Some(0), 1, false),
            (10, 4, None, 2, false),
            (10, 4, None, 8, true),
            // Another response restarts the check.
            (11, 4, None, 9, false),
            (11, 7, None, 15, false),
            (11, 8, None, 16, true),
            // A long download continues, although other requests are refused.
            (12, 8, Some(16), 17, false),
            (12, 30, Some(16), 40, false),
            (12, 30, Some(41), 41, true),
        ];
        let mut vigil = Vigil::new(2, start);
        for &(answered, failed, oldest, now, expected) in gone {
            let is_gone = vigil.is_gone(answered, failed, oldest.map(at), at(now));
            assert_eq!(is_gone, expected, "{answered} {failed} {oldest:?} {now}");
        }
    }

    #[test]
    fn a_server_that_is_only_slow_is_not_gone() {
        let start = Instant::now();
        let mut vigil = Vigil::new(1, start);
        assert!(!vigil.is_gone(0, 0, Some(start), start + Duration::from_secs(3600)));
        assert!(!vigil.is_gone(0, 1, Some(start), start + Duration::from_secs(3601)), "it failed once");
    }
}
