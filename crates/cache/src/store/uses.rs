//! Counts how often keys are requested, in a fixed amount of memory: a count-min sketch.
//!
//! A count may be too high, because keys share places. All counts are halved now and then, so that old requests count less.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use crate::key::CacheKey;
use crate::store::MemoryStore;
use crate::vary::{VariantKey, Vary};

/// The rows of a sketch. The lowest count of a key's places is the best one.
const ROWS: usize = 4;
const PLACES_PER_ROW: usize = 1 << 16;
/// All counts are halved after so many requests, which is before most places are shared.
const HALVED_AFTER: usize = 4 * PLACES_PER_ROW;

/// The counts of requests. Takes memory from the first request on.
#[derive(Default)]
pub(crate) struct UseCounts(OnceLock<UseSketch>);

struct UseSketch {
    places: Box<[AtomicU8]>,
    /// Requests since counts were halved.
    recent: AtomicUsize,
}

impl Default for UseSketch {
    fn default() -> Self {
        let places = (0..ROWS * PLACES_PER_ROW).map(|_| AtomicU8::new(0)).collect();
        Self { places, recent: AtomicUsize::new(0) }
    }
}

impl MemoryStore {
    /// Counts a request for a key, and for its variant if responses are known to vary. Returns the number of such requests
    /// so far, with this one: at most 255.
    pub fn count_use(&self, key: CacheKey, mut variant_of: impl FnMut(&Vary) -> VariantKey) -> u8 {
        let mut variant = 0;
        self.look(key, |vary| {
            let found = variant_of(vary);
            variant = found.as_u128();
            found
        });
        self.uses.0.get_or_init(UseSketch::default).count(key.as_u128() ^ variant)
    }
}

impl UseSketch {
    fn count(&self, key: u128) -> u8 {
        if self.recent.fetch_add(1, Relaxed) + 1 == HALVED_AFTER {
            self.recent.store(0, Relaxed);
            for place in &self.places {
                place.store(place.load(Relaxed) / 2, Relaxed);
            }
        }
        let mut lowest = u8::MAX;
        for row in 0..ROWS {
            // The key is a keyed hash, so any of its bits spread evenly.
            let place = (key >> (16 * row)) as usize % PLACES_PER_ROW;
            let place = &self.places[row * PLACES_PER_ROW + place];
            let count = place.load(Relaxed).saturating_add(1);
            // Two workers may count one request for both: the next one makes up for it.
            place.store(count, Relaxed);
            lowest = lowest.min(count);
        }
        lowest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_separately() {
        let sketch = UseSketch::default();
        let key = |number: u128| number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        for number in 1..2000 {
            assert_eq!(sketch.count(key(number)), 1, "{number}");
        }
        assert_eq!([2, 3, 4].map(|_| sketch.count(key(7))), [2, 3, 4]);
    }

    #[test]
    fn counts_stay_within_a_byte_and_old_ones_are_halved() {
        let sketch = UseSketch::default();
        for _ in 1..HALVED_AFTER {
            sketch.count(1);
        }
        assert_eq!(sketch.places[1].load(Relaxed), 255);
        assert_eq!(sketch.count(1), 128);
    }
}
