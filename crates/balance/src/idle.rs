//! How many idle connections to keep: as many as were recently in use. The others are closed little by little.

use std::time::Duration;

/// The idle connections of one worker to one server. The one used last is reused first.
#[derive(Debug, Clone, Copy)]
pub struct Idle {
    /// Connections that were not used recently.
    pub unused: usize,
    /// The longest time that any of the connections has been idle.
    pub longest: Duration,
    /// The time after which an idle connection is always closed.
    pub timeout: Duration,
    /// All connections of this worker to the server that were recently in use.
    pub in_use: usize,
    /// All connections of all workers to the server that were recently in use.
    pub in_use_by_all: usize,
    /// The number of workers.
    pub workers: usize,
}

/// The divisor of the time-out that gives the idle time after which a connection counts as unused.
const LULL_SHARE: u32 = 4;
/// The shortest idle time after which a connection counts as unused.
const LULL_MIN: Duration = Duration::from_secs(1);

impl Idle {
    /// The idle time after which a connection counts as unused.
    #[must_use]
    pub fn lull(timeout: Duration) -> Duration {
        (timeout / LULL_SHARE).max(LULL_MIN)
    }

    /// How many unused connections to close in this second: an even share over their remaining time, so that they do
    /// not all end at once. A worker with fewer connections in use than the average keeps the average number, because
    /// its clients may come back.
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
