//! How many idle connections to keep: as many as were recently in use. The others are closed gradually.

use std::time::Duration;

/// The idle connections of one worker to one server. The one used last is reused first.
#[derive(Debug, Clone, Copy)]
pub struct IdleConnections {
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
    pub workers: usize,
}

/// The divisor of the time-out that gives the idle time after which a connection counts as unused.
// The rest of the time-out remains for closing unused connections one by one.
const LULL_SHARE: u32 = 4;
/// The shortest idle time after which a connection counts as unused.
// With a short time-out, a pause between two bursts must not count as unused.
const LULL_MIN: Duration = Duration::from_secs(1);

impl IdleConnections {
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
        // The kernel spreads clients by hash, so a worker that is quiet now gets its share back.
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

    fn unused(unused: usize, seconds: u64) -> IdleConnections {
        let longest = Duration::from_secs(seconds);
        IdleConnections { unused, longest, timeout: MINUTE, in_use: 0, in_use_by_all: 0, workers: 1 }
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
    fn idle_connections_are_limited_by_time_and_by_share() {
        let many = unused(460, 15);
        for (idle, expected) in [
            (unused(1, 15), 0),
            (unused(1, 59), 0),
            (unused(1, 60), 1),
            (unused(1, 61), 1),
            (many, 10),
            // Two workers, of which the other has 300 in use.
            (IdleConnections { in_use_by_all: 300, workers: 2, ..many }, 6),
            (IdleConnections { unused: 100, in_use_by_all: 300, workers: 2, ..many }, 0),
            // This worker has its share of them.
            (IdleConnections { in_use: 150, in_use_by_all: 300, workers: 2, ..many }, 10),
            (IdleConnections { workers: 0, ..many }, 10),
        ] {
            assert_eq!(idle.surplus(), expected, "{idle:?}");
        }
        assert_eq!(IdleConnections::lull(MINUTE), MINUTE / 4);
        assert_eq!(IdleConnections::lull(Duration::from_millis(300)), LULL_MIN, "it times out before");
    }
}
