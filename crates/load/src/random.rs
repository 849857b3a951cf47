//! Repeatable randomness: SplitMix64 (Steele, Lea and Flood, 2014). A seed gives the same numbers in every version.
//!
//! Good enough for arrivals and shuffled lists; not for secrets.

/// Pseudo-random numbers that depend only on the seed.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// An independent sequence for each thread, from one seed.
    pub(crate) fn of_thread(seed: u64, thread: usize) -> Self {
        let mut seeds = Self::new(seed ^ (thread as u64).rotate_left(32));
        Self::new(seeds.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform number above 0 and at most 1, so that its logarithm is finite.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Uniform number between two values.
    pub(crate) fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.unit()
    }

    /// Interval of a Poisson process with this mean (exponential distribution).
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// Shuffles a list: each order is equally likely (with a bias below 2^-32).
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let chosen = (u128::from(self.next()) * (last as u128 + 1)) >> 64;
            list.swap(last, chosen as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_the_reference() {
        // The first numbers of SplitMix64 for seed 1234567, as published with its reference code.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_shuffle_keeps_every_entry_and_depends_on_the_seed_alone() {
        let shuffled = |seed| {
            let mut list: Vec<u32> = (0..100).collect();
            Random::new(seed).shuffle(&mut list);
            list
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(3);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<u32>>());
    }

    #[test]
    fn exponential_waits_have_their_mean() {
        let mut random = Random::of_thread(9, 1);
        let sum: f64 = (0..100_000).map(|_| random.exponential(2.0)).sum();
        assert!((sum / 100_000.0 - 2.0).abs() < 0.05, "{sum}");
    }
}
