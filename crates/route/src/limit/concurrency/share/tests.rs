//! Permits of several instances: what each answer admits and refuses, standings, and a property over any order of
//! events.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::{ConcurrencyEntry, ConcurrencyTicket};
use super::*;

const TOGETHER: ShareStanding = ShareStanding::Together(2);

fn limit(max: u32, waiting_max: u32) -> Concurrency {
    Concurrency { max: NonZeroU32::new(max).expect("is not 0"), waiting_max }
}

fn key<W>(limiter: &ConcurrencyLimiter<W>) -> ConcurrencyKey {
    limiter.key_of_client([10, 0, 0, 1].into())
}

fn together<W>() -> ConcurrencyLimiter<W> {
    let limiter = ConcurrencyLimiter::shared([1, 2], Alone::Local, 2);
    assert!(limiter.stand(TOGETHER).is_empty());
    limiter
}

/// The only demand of a limiter.
fn demand<W>(limiter: &ConcurrencyLimiter<W>, all: bool) -> ConcurrencyDemand {
    let mut demands = Vec::new();
    limiter.take_demands(all, &mut demands);
    let [demand] = demands[..] else { panic!("{demands:?}") };
    demand
}

fn has_demand<W>(limiter: &ConcurrencyLimiter<W>, all: bool) -> bool {
    let mut demands = Vec::new();
    limiter.take_demands(all, &mut demands);
    !demands.is_empty()
}

#[test]
fn an_answer_admits_and_refuses() {
    for (waiting_max, permits, admitted, still_waiting) in [
        (0, 3, vec!["a", "b", "c"], 0),
        (0, 2, vec!["a", "b"], 0),
        (0, 0, vec![], 0),
        (1, 0, vec![], 1),
        (1, 2, vec!["a", "b"], 1),
        (2, 0, vec![], 2),
        (5, 1, vec!["a"], 2),
    ] {
        let limiter = together();
        let key = key(&limiter);
        for name in ["a", "b", "c"] {
            let entry = limiter.enter(key, limit(10, waiting_max), || name);
            assert!(matches!(entry, ConcurrencyEntry::Waits(_)), "{name}");
        }
        let demand = demand(&limiter, false);
        assert_eq!((demand.under_way, demand.waiting, demand.max), (0, 3, 10));
        // Comes too late for the answer.
        assert!(matches!(limiter.enter(key, limit(10, waiting_max), || "d"), ConcurrencyEntry::Waits(_)));
        let mut expected = admitted.clone();
        // An answer has no more permits than were wanted, so the late one asks again.
        assert_eq!(limiter.learn(&demand, permits), expected);
        let again = self::demand(&limiter, false);
        assert_eq!(again.waiting, still_waiting + 1, "{waiting_max} {permits}");
        expected.clear();
        assert_eq!(limiter.learn(&again, again.under_way), expected);
    }
}

#[test]
fn unused_permits_serve_the_next_request_and_then_go_back() {
    let limiter = together();
    let key = key(&limiter);
    assert!(matches!(limiter.enter(key, limit(3, 0), || "a"), ConcurrencyEntry::Waits(_)));
    let asked = demand(&limiter, false);
    assert_eq!(limiter.learn(&asked, 1), ["a"]);
    assert_eq!(limiter.exit(key), None);
    assert!(!has_demand(&limiter, false), "no request waits for it");
    assert_eq!(limiter.enter(key, limit(3, 0), || "b"), ConcurrencyEntry::UnderWay, "without a question");
    assert_eq!(limiter.exit(key), None);
    let returned = demand(&limiter, true);
    assert_eq!((returned.under_way, returned.waiting), (0, 0));
    assert!(
        matches!(limiter.enter(key, limit(3, 0), || "c"), ConcurrencyEntry::Waits(_)),
        "it is given back"
    );
    assert!(limiter.learn(&returned, 0).is_empty());
    let asked = demand(&limiter, false);
    assert_eq!(limiter.learn(&asked, 1), ["c"]);
    assert_eq!(limiter.exit(key), None);
    let returned = demand(&limiter, true);
    assert!(!limiter.is_unused() && limiter.learn(&returned, 0).is_empty());
    assert!(limiter.is_unused() && limiter.rest());
}

/// Requests beyond the limit and the queue of this instance alone are refused without a question.
#[test]
fn no_more_than_limit_and_queue_ask() {
    let limiter = together();
    let key = key(&limiter);
    let enter = || limiter.enter(key, limit(2, 1), || "");
    assert!((0..3).all(|_| matches!(enter(), ConcurrencyEntry::Waits(_))));
    assert_eq!(enter(), ConcurrencyEntry::Full);
    let asked = demand(&limiter, false);
    assert_eq!(limiter.learn(&asked, 2).len(), 2);
    assert_eq!(enter(), ConcurrencyEntry::Full);
}

#[test]
fn instances_that_cannot_reach_each_other() {
    for (alone, instances, max, admitted) in [
        (Alone::Open, 3, 2, 100),
        (Alone::Closed, 3, 2, 0),
        (Alone::Local, 3, 9, 3),
        (Alone::Local, 3, 10, 4),
        (Alone::Local, 3, 1, 1),
        (Alone::Local, 0, 5, 5),
    ] {
        let limiter = ConcurrencyLimiter::shared([1, 2], alone, instances);
        let key = key(&limiter);
        let enter = |waiting_max| limiter.enter(key, limit(max, waiting_max), || ());
        let entered = (0..100).filter(|_| enter(0) == ConcurrencyEntry::UnderWay).count();
        assert_eq!(entered, admitted, "{alone:?} {instances} {max}");
        let further = enter(1);
        let waits = matches!(further, ConcurrencyEntry::Waits(_));
        assert_eq!(waits, alone == Alone::Local, "nothing can call those that wait if all are refused");
        assert_eq!(limiter.is_closed(), alone == Alone::Closed);
        assert!(!has_demand(&limiter, true));
        let admitted = admitted + usize::from(further == ConcurrencyEntry::UnderWay);
        (0..admitted).for_each(|_| _ = limiter.exit(key));
        assert_eq!(limiter.is_unused(), !waits);
    }
}

/// Requests that wait for an answer are decided at once when Redis is lost, and counts are reported when it is back.
#[test]
fn a_lost_and_regained_redis() {
    for (alone, admitted, under_way) in
        [(Alone::Open, vec!["b", "c", "d"], 4), (Alone::Local, vec!["b"], 2), (Alone::Closed, vec![], 1)]
    {
        let limiter = ConcurrencyLimiter::shared([1, 2], alone, 2);
        assert!(limiter.stand(TOGETHER).is_empty());
        let key = key(&limiter);
        let enter = |name| limiter.enter(key, limit(4, 1), || name);
        assert!(matches!(enter("a"), ConcurrencyEntry::Waits(_)));
        let asked = demand(&limiter, false);
        assert_eq!(limiter.learn(&asked, 1), ["a"]);
        let mut tickets = ["b", "c", "d"].map(enter).into_iter();
        let asked = demand(&limiter, false);
        assert_eq!(limiter.stand(ShareStanding::Alone(2)), admitted, "{alone:?}");
        assert!(limiter.learn(&asked, 4).is_empty(), "an answer that comes too late");
        let last = tickets.next_back();
        if let (Alone::Closed, Some(ConcurrencyEntry::Waits(ticket))) = (alone, last) {
            assert_eq!(limiter.leave(key, ticket, || true), None, "a refused one was not counted");
        }
        assert!(limiter.stand(TOGETHER).is_empty());
        let told = demand(&limiter, true);
        assert_eq!(told.under_way, under_way, "{alone:?}");
        assert!(matches!(enter("e"), ConcurrencyEntry::Waits(_) | ConcurrencyEntry::Full));
        assert_eq!(limiter.exit(key), None, "without an answer, none of them may begin");
    }
}

#[test]
fn the_caller_is_called_for_requests_and_after_a_rest() {
    let calls = Arc::new(AtomicU32::new(0));
    let limiter = together();
    let (key, counted) = (key(&limiter), Arc::clone(&calls));
    limiter.call_with(move || _ = counted.fetch_add(1, Ordering::Relaxed));
    let expect = |expected| assert_eq!(calls.load(Ordering::Relaxed), expected);
    assert!(matches!(limiter.enter(key, limit(5, 0), || ()), ConcurrencyEntry::Waits(_)));
    expect(1);
    assert!(matches!(limiter.enter(key, limit(5, 0), || ()), ConcurrencyEntry::Waits(_)));
    expect(2);
    let asked = demand(&limiter, false);
    assert_eq!(limiter.learn(&asked, 2).len(), 2);
    assert_eq!(limiter.exit(key), None);
    expect(2);
    assert!(!limiter.rest());
    let asked = demand(&limiter, true);
    assert!(limiter.learn(&asked, 1).is_empty() && limiter.rest());
    assert_eq!(limiter.exit(key), None);
    expect(3);
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Enter { instance: usize, waiting_max: u32 },
    Exit { instance: usize },
    Leave { instance: usize, which: usize },
    Ask { instance: usize, all: bool },
    Answer { instance: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let instance = 0..3usize;
    prop_oneof![
        3 => (instance.clone(), 0..3u32)
            .prop_map(|(instance, waiting_max)| Step::Enter { instance, waiting_max }),
        2 => instance.clone().prop_map(|instance| Step::Exit { instance }),
        1 => (instance.clone(), any::<usize>()).prop_map(|(instance, which)| Step::Leave { instance, which }),
        2 => (instance.clone(), any::<bool>()).prop_map(|(instance, all)| Step::Ask { instance, all }),
        2 => instance.prop_map(|instance| Step::Answer { instance }),
    ]
}

/// Where a request is: its `W` sends nothing, so that a dropped one is known.
type Turn = std::sync::mpsc::Sender<()>;
type Turns = std::sync::mpsc::Receiver<()>;

/// An instance, the requests that wait in it, and an answer on its way.
struct Instance {
    limiter: ConcurrencyLimiter<Turn>,
    under_way: u32,
    waiting: Vec<(ConcurrencyTicket, Turns)>,
    answer: Option<(ConcurrencyDemand, u32)>,
}

/// The requests of each instance that count, and those that wait as well: what Redis knows of one key.
type Known = BTreeMap<usize, (u32, u32)>;

impl Instance {
    fn new() -> Self {
        Self { limiter: together(), under_way: 0, waiting: Vec::new(), answer: None }
    }

    fn call(&mut self, called: impl IntoIterator<Item = Turn>) {
        for turn in called {
            turn.send(()).expect("its request waits");
            self.under_way += 1;
        }
        use std::sync::mpsc::TryRecvError::Empty;
        // Those that have their turn, or were refused, wait no more.
        self.waiting.retain(|(_, turns)| turns.try_recv() == Err(Empty));
    }

    fn exit(&mut self) {
        if self.under_way > 0 {
            self.under_way -= 1;
            let next = self.limiter.exit(key(&self.limiter));
            self.call(next);
        }
    }

    fn ask(&mut self, number: usize, all: bool, known: &mut Known, max: u32) {
        let mut demands = Vec::new();
        if self.answer.is_none() {
            self.limiter.take_demands(all, &mut demands);
        }
        if let [demand] = demands[..] {
            self.answer = Some((demand, answer(&demand, number, known, max)));
        }
    }

    fn answer(&mut self) {
        if let Some((demand, permits)) = self.answer.take() {
            let called = self.limiter.learn(&demand, permits);
            self.call(called);
        }
    }
}

/// Answers a demand as the script of the instances does.
fn answer(demand: &ConcurrencyDemand, number: usize, known: &mut Known, max: u32) -> u32 {
    let wanted = demand.under_way + demand.waiting;
    let held = known.remove(&number).unwrap_or_default().0;
    let fair = match max / (known.len() as u32 + 1) {
        0 => u32::from(held > 0),
        fair => fair,
    };
    let others: u32 = known.values().map(|(counts, wants)| *counts.max(wants.min(&fair))).sum();
    let permits = wanted.min(max.saturating_sub(others));
    let counts = permits.max(demand.under_way);
    let wants = counts + wanted.saturating_sub(counts).min(demand.waiting_max);
    if wants > 0 {
        known.insert(number, (counts, wants));
    }
    permits
}

proptest! {
    /// In any order of events, all instances together have at most as many requests under way as the limit. Each request
    /// in a queue gets its turn once others end, and nothing is remembered in the end.
    #[test]
    fn instances_admit_no_more_than_the_limit(max in 1..6u32, steps in proptest::collection::vec(step(), 0..200)) {
        let (mut instances, mut known) = ([(); 3].map(|()| Instance::new()), Known::new());
        for step in steps {
            match step {
                Step::Enter { instance, waiting_max } => {
                    let instance = &mut instances[instance];
                    let (turn, turns) = std::sync::mpsc::channel();
                    match instance.limiter.enter(key(&instance.limiter), limit(max, waiting_max), || turn) {
                        ConcurrencyEntry::UnderWay => instance.under_way += 1,
                        ConcurrencyEntry::Waits(ticket) => instance.waiting.push((ticket, turns)),
                        ConcurrencyEntry::Full => {}
                    }
                }
                Step::Exit { instance } => instances[instance].exit(),
                Step::Leave { instance, which } => {
                    let instance = &mut instances[instance];
                    if !instance.waiting.is_empty() {
                        let (ticket, _) = instance.waiting.remove(which % instance.waiting.len());
                        let next = instance.limiter.leave(key(&instance.limiter), ticket, || false);
                        instance.call(next);
                    }
                }
                Step::Ask { instance, all } => instances[instance].ask(instance, all, &mut known, max),
                Step::Answer { instance } => instances[instance].answer(),
            }
            let under_way: u32 = instances.iter().map(|instance| instance.under_way).sum();
            prop_assert!(under_way <= max, "{under_way} of {max} after {step:?}");
        }
        let mut rounds = 0;
        while instances.iter().any(|instance| !instance.limiter.is_unused()) {
            for (number, instance) in instances.iter_mut().enumerate() {
                instance.answer();
                instance.ask(number, true, &mut known, max);
                instance.answer();
                instance.exit();
            }
            rounds += 1;
            prop_assert!(rounds < 1000, "some wait for ever: {known:?}");
        }
        prop_assert!(known.is_empty() && instances.iter().all(|instance| instance.waiting.is_empty()));
    }
}
