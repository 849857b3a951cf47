//! How many idle connections to a server are worth keeping: as many as were in use lately, and a little fewer each
//! second of those that were not.

use std::time::Duration;

/// The idle connections of one worker to one server, the one used last used first.
#[derive(Debug, Clone, Copy)]
pub struct Idle {
    /// Those that were not used lately.
    pub unused: usize,
    /// For how long the one of them has been idle that was used longest ago.
    pub longest: Duration,
    /// After how long an idle connection is closed, whatever else.
    pub timeout: Duration,
    /// All connections of this worker to the server that were in use lately.
    pub in_use: usize,
    /// The same of all workers together.
    pub in_use_by_all: usize,
    /// How many workers there are.
    pub workers: usize,
}

/// The share of the time-out, as a divisor, for which a connection has to be idle to count as unused.
const LULL_SHARE: u32 = 4;
/// And at least so long.
const LULL_MIN: Duration = Duration::from_secs(1);

impl Idle {
    /// For how long a connection has to be idle to count as unused.
    #[must_use]
    pub fn lull(timeout: Duration) -> Duration {
        (timeout / LULL_SHARE).max(LULL_MIN)
    }

    /// How many of the unused ones to close in this second: an even share of what is left of their time, so that
    /// those of a crowd that has gone do not all end at once. A worker that has fewer in use than the others keeps as many
    /// as they have on average: its clients may come back.
    #[must_use]
    pub fn surplus(&self) -> usize {
        let fair = self.in_use_by_all.div_ceil(self.workers.max(1));
        let spared = fair.saturating_sub(self.in_use);
        let left_seconds = self.timeout.saturating_sub(self.longest).as_secs();
        self.unused.saturating_sub(spared)
            / usize::try_from(left_seconds.saturating_add(1)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn unused(unused: usize, seconds: u64) -> Idle {
        let longest = Duration::from_secs(seconds);
        Idle { unused, longest, timeout: MINUTE, in_use: 0, in_use_by_all: 0, workers: 1 }
    }

    #[test]
    fn a_crowd_that_has_gone_is_given_up_evenly() {
        let (mut left, mut most) = (5000, 0);
        for second in 15..60 {
            let surplus = unused(left, second).surplus();
            most = most.max(surplus);
            left -= surplus;
        }
        assert!(left <= most && most <= 5000 / 40, "{left} left at the end, {most} at once");
    }

    #[test]
    fn few_are_kept_until_their_time_is_over_and_each_worker_keeps_its_share_of_what_all_need() {
        let many = unused(460, 15);
        for (idle, expected) in [
            (unused(1, 15), 0),
            (unused(1, 59), 0),
            (unused(1, 60), 1),
            (unused(1, 61), 1),
            (many, 10),
            // Two workers, of which the other has 300 in use.
            (Idle { in_use_by_all: 300, workers: 2, ..many }, 6),
            (Idle { unused: 100, in_use_by_all: 300, workers: 2, ..many }, 0),
            // This one has its share of them.
            (Idle { in_use: 150, in_use_by_all: 300, workers: 2, ..many }, 10),
            (Idle { workers: 0, ..many }, 10),
        ] {
            assert_eq!(idle.surplus(), expected, "{idle:?}");
        }
        assert_eq!(Idle::lull(MINUTE), MINUTE / 4);
        assert_eq!(Idle::lull(Duration::from_millis(300)), LULL_MIN, "it times out before");
    }
}
