//! The clients with the most requests, in bounded memory: the counters of Misra and Gries.
//!
//! Pure: the caller decides when a period begins.

use std::collections::HashMap;
use std::net::IpAddr;

/// The number of clients that are counted at once.
const CLIENTS_MAX: usize = 256;

/// Counts of requests by client. Only the busiest clients are sure to be counted.
///
/// A client with more than one in 256 requests is included, regardless of their order. Its count is at most
/// `Busiest::error` too low, and never too high.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Busiest {
    counts: HashMap<IpAddr, u64>,
    error: u64,
    total: u64,
}

impl Busiest {
    pub fn count(&mut self, client: IpAddr) {
        self.total += 1;
        if let Some(count) = self.counts.get_mut(&client) {
            *count += 1;
        } else if self.counts.len() < CLIENTS_MAX {
            self.counts.insert(client, 1);
        } else {
            // Decrements every client's count, and drops the new request. This takes at most as many steps as there are
            // counts.
            self.error += 1;
            self.counts.retain(|_, count| {
                *count -= 1;
                *count > 0
            });
        }
    }

    /// Adds the counts of another worker, or of an earlier period.
    pub fn add(&mut self, other: &Self) {
        for (client, count) in &other.counts {
            *self.counts.entry(*client).or_default() += count;
        }
        self.error += other.error;
        self.total += other.total;
    }

    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The most by which a count may be too low.
    #[must_use]
    pub fn error(&self) -> u64 {
        self.error
    }

    /// The clients with the most requests, in descending order.
    #[must_use]
    pub fn first(&self, number: usize) -> Vec<(IpAddr, u64)> {
        let mut all: Vec<_> = self.counts.iter().map(|(client, count)| (*client, *count)).collect();
        all.sort_unstable_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
        all.truncate(number);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn few_clients_are_counted_exactly() {
        let mut busiest = Busiest::default();
        for number in [1, 2, 2, 3, 3, 3] {
            busiest.count(client(number));
        }
        assert_eq!(busiest.first(2), [(client(3), 3), (client(2), 2)]);
        assert_eq!((busiest.total(), busiest.error()), (6, 0));
        let mut both = busiest.clone();
        both.add(&busiest);
        assert_eq!((both.first(1), both.total()), (vec![(client(3), 6)], 12));
    }

    #[test]
    fn a_busy_client_is_found_among_any_number_of_others() {
        let mut busiest = Busiest::default();
        // One in ten requests comes from client 0; each of the others from a different client.
        for number in 0..100_000 {
            busiest.count(client(if number % 10 == 0 { 0 } else { number }));
        }
        assert!(busiest.counts.len() <= CLIENTS_MAX);
        let first = busiest.first(1)[0];
        assert_eq!(first.0, client(0));
        assert!(first.1 <= 10_000 && first.1 + busiest.error() >= 10_000, "{first:?} {}", busiest.error());
        assert!(busiest.error() <= busiest.total() / CLIENTS_MAX as u64, "{}", busiest.error());
    }
}
