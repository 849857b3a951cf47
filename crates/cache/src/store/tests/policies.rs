//! The store's hit rate on a Zipf trace, with and without a scan, beside LRU, S3-FIFO and W-TinyLFU in the same memory.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::{key, no_variant, opening};
use crate::store::object::INDEX_BYTES;
use crate::store::{MemoryStore, MissRole, StoreSettings};

struct Trace {
    requests: u64,
    keys: usize,
    memory_bytes: u64,
    exponent: f64,
    /// Whether the trace has scans. A scan requests a quarter of all keys, each once.
    has_scans: bool,
}

impl Trace {
    fn requests(&self) -> impl Iterator<Item = u64> {
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=self.keys)
            .map(|rank| {
                sum += (rank as f64).powf(-self.exponent);
                sum
            })
            .collect();
        let mut random = fastrand::Rng::with_seed(7);
        let (period, scan) = (self.requests / 4, self.keys as u64 / 4);
        let mut scanned = 1 << 40;
        (0..self.requests).map(move |number| {
            if self.has_scans && number % period > period - scan {
                scanned += 1;
                return scanned;
            }
            let drawn = random.f64() * sum;
            sums.partition_point(|&sum| sum < drawn) as u64
        })
    }

    fn run(&self, policy: &mut dyn PolicyCase) -> f64 {
        let hits = self.requests().filter(|&key| policy.request(key)).count();
        hits as f64 / self.requests as f64
    }
}

/// The length of a key's body: always the same, from 100 to 2,100 bytes.
fn body_bytes(key: u64) -> usize {
    100 + (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % 2000
}

/// The weight of an object in the other policies, as in the store.
fn weight(key: u64) -> u64 {
    body_bytes(key) as u64 + 350 + INDEX_BYTES
}

trait PolicyCase {
    /// Whether a request is a hit. If not, its object is offered.
    fn request(&mut self, key: u64) -> bool;
}

struct OurStore {
    store: Arc<MemoryStore>,
    body: Vec<u8>,
}

impl PolicyCase for OurStore {
    fn request(&mut self, number: u64) -> bool {
        if self.store.look(key(number), no_variant).is_some() {
            return true;
        }
        let MissRole::Lead(lead) = self.store.join(key(number), None, no_variant, 0) else { panic!("alone") };
        let (mut fill, _) = lead.open(opening("k"));
        fill.push(&self.body[..body_bytes(number)], 0);
        fill.finish();
        false
    }
}

/// Keys in the order of insertion or last use, with their total weight.
#[derive(Default)]
struct Ordered {
    turns: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    next: u64,
    bytes: u64,
}

impl Ordered {
    fn has(&self, key: u64) -> bool {
        self.turns.contains_key(&key)
    }

    fn push(&mut self, key: u64) {
        self.remove(key);
        self.turns.insert(key, self.next);
        self.order.insert(self.next, key);
        self.next += 1;
        self.bytes += weight(key);
    }

    fn remove(&mut self, key: u64) {
        if let Some(turn) = self.turns.remove(&key) {
            self.order.remove(&turn);
            self.bytes -= weight(key);
        }
    }

    fn first(&self) -> Option<u64> {
        self.order.first_key_value().map(|(_, &key)| key)
    }

    fn pop(&mut self) -> Option<u64> {
        let first = self.first()?;
        self.remove(first);
        Some(first)
    }
}

struct Lru {
    keys: Ordered,
    memory_bytes: u64,
}

impl PolicyCase for Lru {
    fn request(&mut self, key: u64) -> bool {
        let is_hit = self.keys.has(key);
        self.keys.push(key);
        while self.keys.bytes > self.memory_bytes {
            self.keys.pop();
        }
        is_hit
    }
}

/// Yang et al., "FIFO Queues Are All You Need for Cache Eviction", SOSP 2023.
#[derive(Default)]
struct S3Fifo {
    small: Ordered,
    main: Ordered,
    ghosts: VecDeque<u64>,
    is_ghost: HashSet<u64>,
    uses: HashMap<u64, u8>,
    memory_bytes: u64,
}

impl S3Fifo {
    fn evict(&mut self) {
        if self.small.bytes > self.memory_bytes / 10 || self.main.first().is_none() {
            let Some(key) = self.small.pop() else { return };
            if self.uses.get(&key).copied().unwrap_or(0) > 1 {
                self.uses.insert(key, 0);
                return self.main.push(key);
            }
            self.uses.remove(&key);
            self.ghosts.push_back(key);
            self.is_ghost.insert(key);
            while self.is_ghost.len() > self.main.turns.len().max(1000)
                && let Some(oldest) = self.ghosts.pop_front()
            {
                self.is_ghost.remove(&oldest);
            }
        } else if let Some(key) = self.main.pop() {
            match self.uses.get_mut(&key) {
                Some(uses) if *uses > 0 => {
                    *uses -= 1;
                    self.main.push(key);
                }
                _ => {
                    self.uses.remove(&key);
                }
            }
        }
    }
}

impl PolicyCase for S3Fifo {
    fn request(&mut self, key: u64) -> bool {
        if let Some(uses) = self.uses.get_mut(&key) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        self.uses.insert(key, 0);
        let queue = if self.is_ghost.remove(&key) { &mut self.main } else { &mut self.small };
        queue.push(key);
        while self.small.bytes + self.main.bytes > self.memory_bytes {
            self.evict();
        }
        false
    }
}

/// Einziger, Friedman and Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", 2017; exact counts replace the
/// sketch.
#[derive(Default)]
struct WTinyLfu {
    window: Ordered,
    probation: Ordered,
    protected: Ordered,
    counts: HashMap<u64, u8>,
    counted: usize,
    memory_bytes: u64,
}

impl WTinyLfu {
    fn count(&mut self, key: u64) {
        let count = self.counts.entry(key).or_default();
        *count = (*count + 1).min(15);
        self.counted += 1;
        let objects = self.probation.turns.len() + self.protected.turns.len() + 1000;
        if self.counted > 10 * objects {
            self.counts.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
            self.counted /= 2;
        }
    }

    fn admit(&mut self, candidate: u64) {
        let room = self.memory_bytes - self.memory_bytes / 100;
        while self.probation.bytes + self.protected.bytes + weight(candidate) > room {
            let Some(victim) = self.probation.first().or(self.protected.first()) else { return };
            if self.counts.get(&candidate) <= self.counts.get(&victim) {
                return;
            }
            self.probation.remove(victim);
            self.protected.remove(victim);
        }
        self.probation.push(candidate);
    }
}

impl PolicyCase for WTinyLfu {
    fn request(&mut self, key: u64) -> bool {
        self.count(key);
        if self.window.has(key) {
            self.window.push(key);
            return true;
        }
        if self.probation.has(key) || self.protected.has(key) {
            self.probation.remove(key);
            self.protected.push(key);
            while self.protected.bytes > self.memory_bytes / 100 * 79
                && let Some(key) = self.protected.pop()
            {
                self.probation.push(key);
            }
            return true;
        }
        self.window.push(key);
        while self.window.bytes > self.memory_bytes / 100
            && let Some(candidate) = self.window.pop()
        {
            self.admit(candidate);
        }
        false
    }
}

#[track_caller]
#[expect(clippy::print_stdout, reason = "the figures are for who measures")]
fn compare(trace: &Trace) {
    let memory_bytes = trace.memory_bytes;
    let settings = StoreSettings { memory_bytes, object_bytes_max: u64::MAX };
    let mut ours = OurStore { store: Arc::new(MemoryStore::new(settings, None)), body: vec![b'x'; 4096] };
    let found = trace.run(&mut ours);
    let survey = ours.store.hit_rates().expect("enough was seen");
    let told = ours.store.tally();
    drop(ours);
    let lru = trace.run(&mut Lru { keys: Ordered::default(), memory_bytes });
    let s3_fifo = trace.run(&mut S3Fifo { memory_bytes, ..S3Fifo::default() });
    let w_tiny_lfu = trace.run(&mut WTinyLfu { memory_bytes, ..WTinyLfu::default() });
    println!(
        "ours {found:.4}, LRU {lru:.4}, S3-FIFO {s3_fifo:.4}, W-TinyLFU {w_tiny_lfu:.4}; {survey:?}; {told:?}"
    );
    assert!(found >= lru.max(s3_fifo).max(w_tiny_lfu) - 0.02, "{found} {lru} {s3_fifo} {w_tiny_lfu}");
    assert!((survey.same - lru).abs() < 0.05, "the survey says {}, LRU has {lru}", survey.same);
}

#[test]
fn hit_rates_are_within_two_points_of_the_best_policy() {
    for has_scans in [false, true] {
        compare(&Trace { requests: 300_000, keys: 40_000, memory_bytes: 10 << 20, exponent: 0.9, has_scans });
    }
}

#[test]
#[ignore = "takes minutes without optimisation: cargo test --profile quick -p cache -- --ignored ten_million"]
fn ten_million_requests_of_a_million_keys() {
    for has_scans in [false, true] {
        compare(&Trace {
            requests: 10_000_000,
            keys: 1_000_000,
            memory_bytes: 256 << 20,
            exponent: 0.9,
            has_scans,
        });
    }
}
