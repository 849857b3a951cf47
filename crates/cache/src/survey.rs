//! Estimates hit rates for other memory sizes from a sample of keys (SHARDS: Waldspurger et al., "Efficient MRC
//! Construction with SHARDS", FAST 2015, with its correction for hot keys).
//!
//! A repeated request is a hit if the keys requested in between fit into memory with its own. This models LRU; the
//! store's policy does slightly better. Knows only keys and weights.

use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError, TryLockError};

use crate::key::CacheKey;

/// Estimated hit rates for several memory sizes, each from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HitRates {
    /// With half of the memory.
    pub half: f64,
    /// With the current memory.
    pub same: f64,
    /// With twice the memory.
    pub double: f64,
    /// With four times the memory.
    pub quadruple: f64,
}

/// The sampled keys and their requests.
#[derive(Debug)]
pub(crate) struct Survey {
    /// Keys whose first bits are below this are sampled.
    threshold: AtomicU32,
    sample: Mutex<SurveySample>,
}

#[derive(Debug)]
struct SurveySample {
    memory_bytes: u64,
    /// When each sampled key was last requested, and its weight.
    keys: HashMap<u64, SurveyedKey>,
    /// The weights in order of last use, as a Fenwick tree: a lookup takes about a dozen steps.
    sums: Vec<u64>,
    next_turn: usize,
    /// The last key. A repeated request for it has nothing in between.
    last: Option<u64>,
    hits: [f64; SIZES.len()],
    all: f64,
    /// The number of old requests that no longer count.
    forgotten: f64,
}

#[derive(Debug, Clone, Copy)]
struct SurveyedKey {
    turn: usize,
    weight_bytes: u64,
}

/// The estimated memory sizes, in halves of the current one.
const SIZES: [u64; 4] = [1, 2, 4, 8];

/// The initial sampling rate: one key of this many. It falls as the number of keys grows, so that few keys are
/// estimated precisely, and many cost little.
const ONE_OF: u32 = 16;
const KEYS_MAX: usize = 8 << 10;
const TURNS: usize = 2 * KEYS_MAX;

/// When an estimate covers this many requests, all observations count half from then on.
// Old observations fade, so that the estimate follows the traffic.
const REQUESTS_TO_HALVE: f64 = (1 << 20) as f64;

/// The fewest requests for an estimate.
const REQUESTS_MIN: f64 = 1000.0;

impl Survey {
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let sample = SurveySample {
            memory_bytes,
            keys: HashMap::new(),
            sums: Vec::new(),
            next_turn: 0,
            last: None,
            hits: [0.0; SIZES.len()],
            all: 0.0,
            forgotten: 0.0,
        };
        Self { threshold: AtomicU32::new(u32::MAX / ONE_OF), sample: Mutex::new(sample) }
    }

    /// Records a request for a key. For most keys this is one comparison.
    #[inline]
    pub(crate) fn touch(&self, key: CacheKey, weight_bytes: u64) {
        // By key and not by request: the requests of a sampled key must all be seen, or their distance is unknown.
        if first_bits(key.as_u128() as u64) < self.threshold.load(Relaxed) {
            self.record(key, weight_bytes);
        }
    }

    #[cold]
    fn record(&self, key: CacheKey, weight_bytes: u64) {
        let mut sample = match self.sample.try_lock() {
            Ok(sample) => sample,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            // Another thread is recording, and its request is as good a sample.
            Err(TryLockError::WouldBlock) => return,
        };
        let threshold = self.threshold.load(Relaxed);
        sample.record(key.as_u128() as u64, weight_bytes, f64::from(u32::MAX) / f64::from(threshold));
        if sample.keys.len() > KEYS_MAX {
            // Half of the sampled keys leave, which are exactly those that the new threshold would not sample.
            self.threshold.store(threshold / 2, Relaxed);
            sample.keys.retain(|&key, _| first_bits(key) < threshold / 2);
            sample.renumber();
        }
    }

    /// Records a new memory size. Earlier observations count with the size at their time.
    pub(crate) fn set_memory_bytes(&self, memory_bytes: u64) {
        self.sample.lock().unwrap_or_else(PoisonError::into_inner).memory_bytes = memory_bytes;
    }

    /// The estimate after this many requests. `None` if there were too few.
    pub(crate) fn hit_rates(&self, requests: u64) -> Option<HitRates> {
        let mut sample = self.sample.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = requests as f64 - sample.forgotten;
        if counted < REQUESTS_MIN {
            return None;
        }
        // The error of the sample comes from the hottest keys, which fit any memory size.
        let missing = counted - sample.all;
        let [half, same, double, quadruple] =
            sample.hits.map(|hits| ((hits + missing) / counted).clamp(0.0, 1.0));
        if counted > REQUESTS_TO_HALVE {
            sample.forgotten += counted / 2.0;
            sample.all /= 2.0;
            sample.hits.iter_mut().for_each(|hits| *hits /= 2.0);
        }
        Some(HitRates { half, same, double, quadruple })
    }
}

/// Bits that neither choose a shard nor a place in it.
fn first_bits(key: u64) -> u32 {
    (key >> 32) as u32 ^ (key as u32).rotate_left(7)
}

impl SurveySample {
    /// Records a request for a sampled key, which stands for `one_of` keys and requests.
    fn record(&mut self, key: u64, weight_bytes: u64, one_of: f64) {
        self.all += one_of;
        // A shortcut for the hottest keys, with the result of the long way.
        if self.last == Some(key) {
            self.hits.iter_mut().for_each(|hits| *hits += one_of);
            return;
        }
        self.last = Some(key);
        // Turns that keys have left are never reused, so the tree fills up and is packed again now and then.
        if self.next_turn == self.sums.len() {
            self.renumber();
        }
        if let Some(seen) = self.keys.get(&key).copied() {
            let between = self.sum(self.next_turn) - self.sum(seen.turn + 1) + weight_bytes;
            for (hits, halves) in self.hits.iter_mut().zip(SIZES) {
                // Each sampled key stands for `one_of` keys of its kind, so the distance is scaled up.
                if between as f64 * one_of <= (self.memory_bytes / 2 * halves) as f64 {
                    *hits += one_of;
                }
            }
            self.add(seen.turn, seen.weight_bytes.wrapping_neg());
        }
        let turn = self.next_turn;
        self.keys.insert(key, SurveyedKey { turn, weight_bytes });
        self.add(turn, weight_bytes);
        self.next_turn += 1;
    }

    /// Renumbers the turns from 0 on, in order.
    fn renumber(&mut self) {
        let mut order: Vec<&mut SurveyedKey> = self.keys.values_mut().collect();
        order.sort_unstable_by_key(|seen| seen.turn);
        let mut weights = Vec::with_capacity(order.len());
        for (turn, seen) in order.into_iter().enumerate() {
            seen.turn = turn;
            weights.push(seen.weight_bytes);
        }
        self.next_turn = weights.len();
        self.sums.clear();
        self.sums.resize(TURNS, 0);
        weights.into_iter().enumerate().for_each(|(turn, weight_bytes)| self.add(turn, weight_bytes));
    }

    /// Adds to the weight of a turn.
    fn add(&mut self, turn: usize, weight_bytes: u64) {
        let mut index = turn;
        while let Some(sum) = self.sums.get_mut(index) {
            *sum = sum.wrapping_add(weight_bytes);
            index |= index + 1;
        }
    }

    /// The weights of all turns before this one.
    fn sum(&self, turn: usize) -> u64 {
        let mut sum: u64 = 0;
        let mut behind = turn;
        while behind > 0 {
            sum = sum.wrapping_add(self.sums[behind - 1]);
            behind &= behind - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> CacheKey {
        CacheKey::from_u128(u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)))
    }

    /// Under LRU, keys requested in a loop are hits only if all of them fit.
    #[test]
    fn a_loop_is_hit_where_it_fits() {
        for (keys, expected) in
            [(400, [1.0, 1.0, 1.0, 1.0]), (800, [0.0, 1.0, 1.0, 1.0]), (3000, [0.0, 0.0, 0.0, 1.0])]
        {
            let survey = Survey::new(1_000_000);
            assert_eq!(survey.hit_rates(999), None);
            for number in 0..200_000 {
                survey.touch(key(number % keys), 1000);
            }
            let rates = survey.hit_rates(200_000).expect("enough was seen");
            let found = [rates.half, rates.same, rates.double, rates.quadruple];
            assert!(
                found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.03),
                "{keys}: {found:?}"
            );
        }
    }

    #[test]
    fn many_keys_are_sampled_in_bounded_memory_and_still_estimated() {
        let survey = Survey::new(500_000 * 1000);
        for number in 0..2_500_000_u64 {
            survey.touch(key(number % 700_000), 1000);
        }
        let sample = survey.sample.lock().expect("no panic");
        assert!(sample.keys.len() <= KEYS_MAX && sample.sums.len() == TURNS);
        drop(sample);
        let rates = survey.hit_rates(2_500_000).expect("enough was seen");
        assert!(rates.half < 0.05 && rates.same < 0.05 && rates.double > 0.6, "{rates:?}");
    }
}
