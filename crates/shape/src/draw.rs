//! Seeded random numbers: a seed and a fixed order of calls always give the same results.
//!
//! Not for secrets: the numbers can be guessed.

#[derive(Debug, Clone)]
pub struct Draws {
    state: u64,
}

impl Draws {
    /// `purpose` separates sequences of one seed, such as a rule and a number, or a connection and a direction.
    pub fn new(seed: u64, purpose: &[u64]) -> Self {
        let mut draws = Self { state: seed };
        for word in purpose {
            draws.state = draws.next_u64() ^ word;
        }
        draws
    }

    /// 64 random bits (SplitMix64).
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws a number from 0 up to, but not including, 1.
    pub fn next_share(&mut self) -> f64 {
        // An f64 holds 53 bits.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Whether an event of this probability happens: never at 0, always at 1.
    pub fn happens(&mut self, probability: f64) -> bool {
        self.next_share() < probability
    }

    /// Draws a number from `low` up to, but not including, `high`; `low` if the range is empty.
    pub fn next_in(&mut self, low: i64, high: i64) -> i64 {
        let width = high.saturating_sub(low).max(1) as u64;
        // The high half of a product is nearly uniform, because the width is small compared to 2^64.
        let at = (u128::from(self.next_u64()) * u128::from(width)) >> 64;
        low.saturating_add(at as i64)
    }
}

/// Hashes a name (FNV-1a) to seed draws with; the same on every machine and in every run.
pub fn number_of(name: &[u8]) -> u64 {
    name.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_purpose_give_the_same_draws() {
        let drawn = |seed, purpose: &[u64]| {
            let mut draws = Draws::new(seed, purpose);
            [draws.next_u64(), draws.next_u64()]
        };
        assert_eq!(drawn(1, &[2, 3]), drawn(1, &[2, 3]));
        let others = [drawn(2, &[2, 3]), drawn(1, &[3, 2]), drawn(1, &[2]), drawn(1, &[])];
        assert!(others.iter().all(|other| *other != drawn(1, &[2, 3])));
    }

    #[test]
    fn the_numbers_stay_what_they_are() {
        // Logs of faults are compared between versions.
        assert_eq!(number_of(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(number_of(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Draws { state: 0 }.next_u64(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn as_often_as_the_probability_says() {
        for probability in [0.0, 0.01, 0.5, 1.0] {
            let happened =
                (0..100_000).filter(|&number| Draws::new(9, &[number]).happens(probability)).count();
            let expected = probability * 100_000.0;
            assert!((happened as f64 - expected).abs() <= 500.0, "{happened} of 100000 at {probability}");
        }
    }

    #[test]
    fn a_range_is_reached_and_kept() {
        let mut draws = Draws::new(3, &[]);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[(draws.next_in(-2, 3) + 2) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!([draws.next_in(4, 4), draws.next_in(4, -4)], [4, 4]);
    }
}
