//! Counts and queues against a plain model, and over threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use proptest::prelude::*;

use super::*;

const SECRET: [u64; 2] = [1, 2];

fn limit(max: u32, waiting_max: u32) -> Concurrency {
    Concurrency { max: NonZeroU32::new(max).expect("is not 0"), waiting_max }
}

fn keys_in_use<W>(limiter: &ConcurrencyLimiter<W>) -> usize {
    limiter.shards.iter().map(|shard| shard.0.lock().expect("no thread panicked").states.len()).sum()
}

#[test]
fn the_queue_is_in_order_and_bounded() {
    let limiter = ConcurrencyLimiter::new(SECRET);
    let (key, other) =
        (limiter.key_of_client([10, 0, 0, 1].into()), limiter.key_of_client([10, 0, 0, 2].into()));
    let enter = |key, name| limiter.enter(key, limit(2, 2), || name);
    assert_eq!([enter(key, "a"), enter(key, "b")], [ConcurrencyEntry::UnderWay; 2]);
    let ConcurrencyEntry::Waits(c) = enter(key, "c") else { panic!("there is no room") };
    let ConcurrencyEntry::Waits(d) = enter(key, "d") else { panic!("there is no room") };
    assert_eq!(enter(key, "e"), ConcurrencyEntry::Full);
    assert_eq!(enter(other, "f"), ConcurrencyEntry::UnderWay, "another key");
    assert_eq!(limiter.leave(key, c, || false), None, "its place is free again");
    let ConcurrencyEntry::Waits(e) = enter(key, "e") else { panic!("there is no room") };
    assert_eq!(limiter.exit(key), Some("d"));
    assert_eq!(limiter.leave(key, d, || false), Some("e"), "its turn had come, so the next one gets it");
    assert_eq!(limiter.leave(key, e, || false), None);
    assert_eq!([limiter.exit(key), limiter.exit(other)], [None; 2]);
    assert_eq!(keys_in_use(&limiter), 0);
}

/// Each request has the limit with which it came.
#[test]
fn a_changed_limit_is_for_later_requests() {
    let limiter = ConcurrencyLimiter::new(SECRET);
    let key = limiter.key_of_client([10, 0, 0, 1].into());
    let enter = |max, name| limiter.enter(key, limit(max, 5), || name);
    assert_eq!(enter(1, "a"), ConcurrencyEntry::UnderWay);
    assert!(matches!(
        (enter(1, "b"), enter(3, "c"), enter(3, "d")),
        (ConcurrencyEntry::Waits(_), ConcurrencyEntry::Waits(_), ConcurrencyEntry::Waits(_))
    ));
    assert_eq!(limiter.next(key), None, "the first one has the old limit");
    assert_eq!(limiter.exit(key), Some("b"));
    assert_eq!([limiter.next(key), limiter.next(key), limiter.next(key)], [Some("c"), Some("d"), None]);
    assert!(matches!(enter(1, "e"), ConcurrencyEntry::Waits(_)));
    assert_eq!([limiter.exit(key), limiter.exit(key), limiter.exit(key)], [None, None, Some("e")]);
    assert_eq!(limiter.exit(key), None);
    assert_eq!(keys_in_use(&limiter), 0);
}

#[test]
fn memory_of_a_crowd_is_given_back() {
    let limiter = ConcurrencyLimiter::new(SECRET);
    let keys: Vec<_> =
        (0..100_000u32).map(|client| limiter.key_of_client(client.to_be_bytes().into())).collect();
    keys.iter()
        .for_each(|key| assert_eq!(limiter.enter(*key, limit(1, 0), || ()), ConcurrencyEntry::UnderWay));
    assert_eq!(keys_in_use(&limiter), keys.len(), "no key in use is forgotten");
    for key in &keys {
        assert_eq!(limiter.enter(*key, limit(1, 0), || ()), ConcurrencyEntry::Full);
        assert_eq!(limiter.exit(*key), None);
    }
    let capacity = |shard: &Shard<()>| shard.0.lock().expect("no thread panicked").states.capacity();
    assert!(limiter.shards.iter().all(|shard| capacity(shard) <= 2 * KEPT_CAPACITY));
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Enter {
        key: u8,
        max: u32,
        waiting_max: u32,
    },
    /// Ends one of those under way, by its index modulo their number.
    Exit {
        which: usize,
    },
    /// Ends a wait.
    Leave {
        which: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let enter = (0..3u8, 1..4u32, 0..4u32);
    prop_oneof![
        3 => enter.prop_map(|(key, max, waiting_max)| Step::Enter { key, max, waiting_max }),
        1 => any::<usize>().prop_map(|which| Step::Exit { which }),
        1 => any::<usize>().prop_map(|which| Step::Leave { which }),
    ]
}

/// A request that waits in the model: its number, ticket and limit.
type Waiting = (u32, ConcurrencyTicket, u32);

/// The requests as plain lists.
#[derive(Default)]
struct Model {
    under_way: BTreeMap<u8, u32>,
    waiting: BTreeMap<u8, Vec<Waiting>>,
}

impl Model {
    fn call_next(&mut self, key: u8) -> Option<u32> {
        let (under_way, waiting) =
            (self.under_way.entry(key).or_default(), self.waiting.entry(key).or_default());
        let (number, _, max) = *waiting.first()?;
        (*under_way < max).then(|| {
            *under_way += 1;
            waiting.remove(0);
            number
        })
    }
}

proptest! {
    /// Counts, order and ends are those of a plain list, for any order of calls.
    #[test]
    fn any_order_of_calls_counts_right(steps in proptest::collection::vec(step(), 0..200)) {
        let (limiter, mut model) = (ConcurrencyLimiter::new(SECRET), Model::default());
        let keys: Vec<_> = (0..3u8).map(|key| limiter.key_of_client([10, 0, 0, key].into())).collect();
        let at = |key: u8| keys[usize::from(key)];
        for (number, step) in (0u32..).zip(steps) {
            match step {
                Step::Enter { key, max, waiting_max } => {
                    let under_way = model.under_way.entry(key).or_default();
                    let waiting = model.waiting.entry(key).or_default();
                    let entry = limiter.enter(at(key), limit(max, waiting_max), || number);
                    match entry {
                        ConcurrencyEntry::UnderWay => {
                            prop_assert!(waiting.is_empty() && *under_way < max);
                            *under_way += 1;
                        }
                        ConcurrencyEntry::Waits(ticket) => {
                            prop_assert!(!waiting.is_empty() || *under_way >= max);
                            prop_assert!(waiting.len() < waiting_max as usize);
                            waiting.push((number, ticket, max));
                        }
                        ConcurrencyEntry::Full => {
                            prop_assert!(!waiting.is_empty() || *under_way >= max);
                            prop_assert!(waiting.len() >= waiting_max as usize);
                        }
                    }
                }
                Step::Exit { which } => {
                    let all: Vec<u8> = model.under_way.iter().filter(|(_, count)| **count > 0).map(|(key, _)| *key).collect();
                    let Some(&key) = all.get(which % all.len().max(1)) else { continue };
                    *model.under_way.entry(key).or_default() -= 1;
                    prop_assert_eq!(limiter.exit(at(key)), model.call_next(key));
                }
                Step::Leave { which } => {
                    let all: Vec<(u8, usize)> = (model.waiting.iter())
                        .flat_map(|(key, waiting)| (0..waiting.len()).map(|place| (*key, place)))
                        .collect();
                    let Some(&(key, place)) = all.get(which % all.len().max(1)) else { continue };
                    let (_, ticket, _) = model.waiting.entry(key).or_default().remove(place);
                    prop_assert_eq!(limiter.leave(at(key), ticket, || false), model.call_next(key));
                }
            }
        }
        let in_use = model.under_way.values().filter(|count| **count > 0).count();
        prop_assert_eq!(keys_in_use(&limiter), in_use);
    }
}

/// The limit holds for any interleaving of threads, no turn is lost, and each who waits gets one or leaves.
#[test]
fn the_limit_holds_over_threads() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 5_000;
    let limiter = ConcurrencyLimiter::<SyncSender<()>>::new(SECRET);
    let keys: Vec<_> = (0..2u8).map(|key| limiter.key_of_client([10, 0, 0, key].into())).collect();
    let (under_way, highest) = ([const { AtomicU32::new(0) }; 2], AtomicU32::new(0));
    let notify = |next: Option<SyncSender<()>>| {
        // One that has left does not listen, and has passed its turn on.
        next.into_iter().for_each(|next| _ = next.send(()));
    };
    let work = |thread: u64| {
        for round in 0..ROUNDS {
            let place = ((round + thread) % 2) as usize;
            let key = keys[place];
            let mut turn: Option<Receiver<()>> = None;
            let entry = limiter.enter(key, limit(2, 3), || {
                let (sender, receiver) = sync_channel(1);
                turn = Some(receiver);
                sender
            });
            match (entry, turn) {
                (ConcurrencyEntry::UnderWay, _) => {}
                (ConcurrencyEntry::Waits(ticket), Some(turn)) => {
                    if (round * 7 + thread).is_multiple_of(5) {
                        notify(limiter.leave(key, ticket, || false));
                        continue;
                    }
                    turn.recv().expect("its turn comes");
                }
                _ => continue,
            }
            highest.fetch_max(under_way[place].fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            std::thread::yield_now();
            under_way[place].fetch_sub(1, Ordering::Relaxed);
            notify(limiter.exit(key));
        }
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread)))));
    assert!((1..=2).contains(&highest.load(Ordering::Relaxed)));
    assert_eq!(keys_in_use(&limiter), 0);
}
