//! The store as its callers see it: lookups, waiting clients, and purges. Other tests measure allocations and memory.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use bytes::Bytes;

use super::{key, no_variant, opening};
use crate::fill::flight::Flight;
use crate::fill::{BodyDemand, FillReader, Filled, HeadWait, Lead, ReadError, Waited};
use crate::key::{CacheKey, KeySecret, Space, Uri};
use crate::named::{PurgeTarget, UrlParts};
use crate::policy::KeyOptions;
use crate::purge::{Force, Label, PurgeRules, PurgeScope};
use crate::store::object::{Object, Opening, SHORT_BODY_BYTES_MAX, allocated_bytes};
use crate::store::shelf::{Shelf, Shelved, Shelving};
use crate::store::{MemoryStore, MissRole, StoreSettings};
use crate::stored::{Stored, Traits};
use crate::vary::{VariantKey, Vary};

pub(super) fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(StoreSettings { memory_bytes: 64 << 20, object_bytes_max: 1 << 20 }, None))
}

/// A store whose shelf, if it has one, accepts bodies of up to this many bytes.
pub(super) fn store_with(shelf: Option<u64>) -> Arc<MemoryStore> {
    let settings = StoreSettings { memory_bytes: 64 << 20, object_bytes_max: 1 << 20 };
    let store = MemoryStore::new(settings, None);
    Arc::new(match shelf {
        Some(room_bytes) => store.with_shelf(Arc::new(Board { room_bytes })),
        None => store,
    })
}

/// A shelf that keeps each body in a vector.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) room_bytes: u64,
}

#[derive(Debug)]
struct Plank {
    bytes: Vec<u8>,
    room_bytes: u64,
}

impl Shelf for Board {
    fn begin(&self, _: u64) -> Option<Box<dyn Shelving>> {
        Some(Box::new(Plank { bytes: Vec::new(), room_bytes: self.room_bytes }))
    }
}

impl Shelving for Plank {
    fn append(&mut self, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(bytes);
        self.bytes.len() as u64 <= self.room_bytes
    }

    fn finish(self: Box<Self>) -> Option<Arc<dyn Shelved>> {
        Some(Arc::new(*self))
    }
}

impl Shelved for Plank {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The record for the disk, from an object whose body is in the allocator's memory.
fn recorded_by_parts(object: &Object, body: &[u8]) -> Vec<u8> {
    let parts = [Bytes::copy_from_slice(body)];
    Object::new(object.key(), object.epoch(), object.opening(), &parts).record().concat()
}

fn labelled(text: &str, tags: &[&str]) -> Opening {
    let labels = tags.iter().map(|tag| Label::tag(KeySecret::default(), tag.as_bytes())).collect();
    Opening { labels, ..opening(text) }
}

fn tag(tag: &str) -> PurgeScope {
    PurgeScope::Label(Label::tag(KeySecret::default(), tag.as_bytes()))
}

pub(super) fn join(store: &Arc<MemoryStore>, key: CacheKey) -> MissRole {
    store.join(key, None, no_variant, 0)
}

#[track_caller]
pub(super) fn lead(store: &Arc<MemoryStore>, key: CacheKey) -> Lead {
    match join(store, key) {
        MissRole::Lead(lead) => lead,
        other => panic!("expected to lead, got {other:?}"),
    }
}

#[track_caller]
pub(super) fn wait(store: &Arc<MemoryStore>, key: CacheKey) -> HeadWait {
    match join(store, key) {
        MissRole::Wait(wait) => wait,
        other => panic!("expected to wait, got {other:?}"),
    }
}

#[track_caller]
fn put(store: &Arc<MemoryStore>, key: CacheKey, opening: Opening, body: &[u8]) {
    let (mut fill, _) = lead(store, key).open(opening);
    fill.push(body, 0);
    assert!(matches!(fill.finish(), Filled::Stored(_)));
}

pub(super) fn is_stored(store: &MemoryStore, key: CacheKey) -> bool {
    store.look(key, no_variant).is_some()
}

/// Counts wake-ups.
#[derive(Default)]
pub(super) struct Woken(pub(super) AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

pub(super) fn no_waker() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Polls until there is a result, and sleeps in between.
fn block_on<T>(mut poll: impl FnMut(&Context<'_>) -> Poll<T>) -> T {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let context = Context::from_waker(&waker);
    loop {
        match poll(&context) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

pub(super) fn read_all(mut reader: FillReader) -> Result<Vec<u8>, ReadError> {
    let mut body = Vec::new();
    while let Some(part) = block_on(|context| reader.poll_next(context)) {
        body.extend_from_slice(&part?);
    }
    Ok(body)
}

/// A body in which every byte depends on its position.
pub(super) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

#[test]
fn responses_are_found_whole_however_they_arrived() {
    let sizes = [0, 1, SHORT_BODY_BYTES_MAX, SHORT_BODY_BYTES_MAX + 1, 64 << 10, (64 << 10) + 1, 300_000];
    for (number, (bytes, part_bytes)) in
        sizes.into_iter().flat_map(|bytes| [1000, 16 << 10, 100_000].map(|part| (bytes, part))).enumerate()
    {
        for (body_bytes, shelf) in [None, Some(bytes as u64)]
            .into_iter()
            .flat_map(|length| [None, Some(u64::MAX), Some(100_000)].map(|shelf| (length, shelf)))
        {
            let store = store_with(shelf);
            let body = pattern(bytes);
            let opening = Opening { body_bytes, ..opening("http://a/b") };
            let (mut fill, reader) = lead(&store, key(number as u64)).open(opening);
            body.chunks(part_bytes).for_each(|part| assert_eq!(fill.push(part, 0), BodyDemand::ToStore));
            assert!(matches!(fill.finish(), Filled::Stored(_)));
            assert_eq!(read_all(reader).as_deref(), Ok(&body[..]));
            let object = store.look(key(number as u64), no_variant).expect("stored");
            assert_eq!(
                (object.key_text(), object.head()),
                (&b"http://a/b"[..], &b"HTTP/1.1 200 OK\r\n\r\n"[..])
            );
            assert_eq!(object.body_bytes(), bytes as u64);
            assert_eq!(object.body(0..bytes as u64).collect::<Vec<_>>().concat(), body);
            let (from, to) = (bytes as u64 / 3, bytes as u64 / 2);
            assert_eq!(object.body(from..to).collect::<Vec<_>>().concat(), body[from as usize..to as usize]);
            assert!(object.body_at(bytes as u64).is_empty());
            let is_shelved = bytes > SHORT_BODY_BYTES_MAX && shelf.is_some_and(|room| bytes as u64 <= room);
            assert_eq!(object.on_shelf().is_some(), is_shelved, "{bytes} {shelf:?}");
            assert_eq!(object.record().concat(), recorded_by_parts(&object, &body));
            drop(object);
            assert_eq!(store.tally().filling_bytes, 0);
        }
    }
}

#[test]
fn variants_lie_beside_each_other_and_take_only_their_own_place() {
    let store = store();
    let vary = || Vary::from_bytes(b"accept-language");
    let variant = |number| move |_: &Vary| VariantKey::from_u128(number);
    for number in [1, 2, 3, 2] {
        let MissRole::Lead(lead) =
            store.join(key(1), store.look(key(1), variant(number)).as_ref(), variant(number), 0)
        else {
            panic!("nothing answers variant {number} yet")
        };
        let variant = VariantKey::from_u128(number);
        let (mut fill, _) = lead.open(Opening { vary: vary(), variant, ..opening("k") });
        fill.push(format!("{number}").as_bytes(), 0);
        fill.finish();
    }
    for number in [1, 2, 3] {
        let object = store.look(key(1), variant(number)).expect("stored");
        assert_eq!(object.body_at(0), format!("{number}").as_bytes());
    }
    assert!(store.look(key(1), variant(4)).is_none());
    assert_eq!(store.tally().keys, 1);
    assert_eq!(store.purge_key(key(1), Force::Hard), 3);
}

#[test]
fn variants_that_are_too_much_together_displace_the_oldest_and_nothing_else() {
    let settings = StoreSettings { memory_bytes: 64 << 20, object_bytes_max: u64::MAX };
    let store = Arc::new(MemoryStore::new(settings, None));
    put(&store, key(2), opening("k"), b"another");
    let variant = |number| move |_: &Vary| VariantKey::from_u128(number);
    let bytes = 3_460_000;
    let body = pattern(bytes);
    for number in 0..45 {
        let MissRole::Lead(lead) = store.join(key(1), None, variant(number), 0) else { panic!("leads") };
        let (vary, variant) = (Vary::from_bytes(b"accept-language"), VariantKey::from_u128(number));
        let (mut fill, _) = lead.open(Opening { vary, variant, ..opening("k") });
        body.chunks(64 << 10).for_each(|part| assert_eq!(fill.push(part, 0), BodyDemand::ToStore));
        assert!(matches!(fill.finish(), Filled::Stored(_)));
    }
    let found: Vec<u128> = (0..45).filter(|&number| store.look(key(1), variant(number)).is_some()).collect();
    // Half of nine tenths of the memory.
    assert_eq!(found, (37..45).collect::<Vec<_>>());
    assert!(is_stored(&store, key(2)));
    let tally = store.tally();
    assert_eq!((tally.stored, tally.evicted, tally.keys), (46, 37, 2));
    assert!(tally.evicted_bytes >= 37 * bytes as u64);
}

#[test]
fn fetches_for_variants_that_are_known_to_differ_do_not_wait_for_each_other() {
    let store = store();
    let variant = |number| move |_: &Vary| VariantKey::from_u128(number);
    let MissRole::Lead(first) = store.join(key(1), None, variant(1), 0) else { panic!("leads") };
    // It is not known yet that the resource varies.
    let MissRole::Wait(mut other) = store.join(key(1), None, variant(2), 0) else { panic!("waits") };
    let vary = Vary::from_bytes(b"accept-language");
    let (mut fill, _) = first.open(Opening { vary, variant: VariantKey::from_u128(1), ..opening("k") });
    let Poll::Ready(Waited::Stream(reader)) = other.poll(&no_waker()) else { panic!("the head is there") };
    assert_eq!(reader.opening().variant, VariantKey::from_u128(1));
    assert!(matches!(store.join(key(1), None, variant(1), 0), MissRole::Stream(_)));
    let MissRole::Lead(second) = store.join(key(1), None, variant(2), 0) else {
        panic!("a variant of its own")
    };
    fill.push(b"1", 0);
    assert!(matches!(fill.finish(), Filled::Stored(_)));
    drop(second);
    // The stored response has shown that it varies.
    let MissRole::Lead(_second) = store.join(key(1), None, variant(2), 0) else { panic!("leads") };
    let MissRole::Lead(_third) = store.join(key(1), None, variant(3), 0) else { panic!("leads as well") };
    assert!(matches!(store.join(key(1), None, variant(3), 0), MissRole::Wait(_)));
}

#[test]
fn rfc9111_4_a_body_that_comes_is_joined_only_while_its_response_is_fresh() {
    for (directive, now_seconds, is_joined) in
        [("max-age=60", 59, true), ("max-age=60", 60, false), ("no-cache", 0, false)]
    {
        let store = store();
        let traits = Traits::default().with(Traits::VALIDATE_ALWAYS, directive == "no-cache");
        let opening = opening("k");
        let opening = Opening { stored: Stored { traits, ..opening.stored }, ..opening };
        let (_fill, _reader) = lead(&store, key(1)).open(opening);
        let joined = store.join(key(1), None, no_variant, now_seconds);
        assert_eq!(matches!(joined, MissRole::Stream(_)), is_joined, "{directive} {now_seconds}");
        // Otherwise it is fetched again, once for all waiting requests.
        assert_eq!(matches!(joined, MissRole::Lead(_)), !is_joined);
        if !is_joined {
            assert!(matches!(store.join(key(1), None, no_variant, now_seconds), MissRole::Wait(_)));
        }
    }
}

#[test]
fn ten_thousand_wait_for_one_and_read_all_of_it() {
    let store = store();
    let leader = lead(&store, key(1));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let context = Context::from_waker(&waker);
    let mut waits: Vec<HeadWait> = (0..10_000).map(|_| wait(&store, key(1))).collect();
    assert!(waits.iter_mut().all(|wait| wait.poll(&context).is_pending()));
    let (mut fill, _) = leader.open(opening("k"));
    assert_eq!(woken.0.load(SeqCst), 10_000);
    let mut readers: Vec<FillReader> = waits
        .iter_mut()
        .map(|wait| match wait.poll(&context) {
            Poll::Ready(Waited::Stream(reader)) => reader,
            other => panic!("{other:?}"),
        })
        .collect();
    let body = pattern(4096);
    for part in body.chunks(1024) {
        assert!(readers.iter_mut().all(|reader| reader.poll_next(&context).is_pending()));
        fill.push(part, 0);
        for reader in &mut readers {
            assert!(matches!(reader.poll_next(&context), Poll::Ready(Some(Ok(bytes))) if *bytes == *part));
        }
    }
    assert!(matches!(fill.finish(), Filled::Stored(_)));
    assert!(readers.iter_mut().all(|reader| matches!(reader.poll_next(&context), Poll::Ready(None))));
    assert!(matches!(join(&store, key(1)), MissRole::Hit(_)));
}

#[test]
fn a_leader_that_goes_hands_over_to_one_and_no_wake_is_lost() {
    let store = store();
    let first = lead(&store, key(1));
    let woken: Vec<Arc<Woken>> = (0..3).map(|_| Arc::default()).collect();
    let mut waits: Vec<HeadWait> = woken
        .iter()
        .map(|woken| {
            let mut wait = wait(&store, key(1));
            assert!(wait.poll(&Context::from_waker(&Waker::from(woken.clone()))).is_pending());
            wait
        })
        .collect();
    drop(first);
    let count = |index: usize| woken[index].0.load(SeqCst);
    assert_eq!([count(0), count(1), count(2)], [0, 0, 1]);
    // The next leader leaves without having noticed its role, so another client is woken.
    drop(waits.pop());
    assert_eq!([count(0), count(1)], [0, 1]);
    let Poll::Ready(Waited::Lead(second)) = waits[1].poll(&no_waker()) else { panic!("leads") };
    assert!(waits[0].poll(&Context::from_waker(&Waker::from(woken[0].clone()))).is_pending());
    second.fail();
    assert_eq!(count(0), 1);
    assert!(matches!(waits[0].poll(&no_waker()), Poll::Ready(Waited::Failed)));
    // No client is left.
    drop(lead(&store, key(1)));
    drop(lead(&store, key(1)));
}

#[test]
fn an_unstorable_response_releases_all_and_is_remembered() {
    let store = store();
    let leader = lead(&store, key(1));
    let mut waiting = wait(&store, key(1));
    assert!(waiting.poll(&no_waker()).is_pending());
    leader.refuse(100);
    assert!(matches!(waiting.poll(&no_waker()), Poll::Ready(Waited::Refused)));
    assert!(matches!(store.join(key(1), None, no_variant, 99), MissRole::Pass));
    assert!(matches!(store.join(key(1), None, no_variant, 100), MissRole::Lead(_)));
    assert!(matches!(join(&store, key(2)), MissRole::Lead(_)));
}

#[test]
fn a_broken_fetch_breaks_its_readers_and_leaves_nothing() {
    let store = store();
    let (mut fill, mut reader) = lead(&store, key(1)).open(opening("k"));
    fill.push(b"half", 0);
    drop(fill);
    assert!(matches!(reader.poll_next(&no_waker()), Poll::Ready(Some(Ok(part))) if *part == *b"half"));
    assert!(matches!(reader.poll_next(&no_waker()), Poll::Ready(Some(Err(ReadError::Broken)))));
    let (mut fill, _) = lead(&store, key(1)).open(Opening { body_bytes: Some(5), ..opening("k") });
    fill.push(b"four", 0);
    assert!(matches!(fill.finish(), Filled::Broken));
    assert!(!is_stored(&store, key(1)));
}

#[test]
fn fast_readers_get_a_body_beyond_the_limit_and_it_is_not_stored() {
    let store = store();
    let (mut fill, mut quick) = lead(&store, key(1)).open(opening("k"));
    let MissRole::Stream(mut slow) = join(&store, key(1)) else { panic!("it can be joined") };
    let part = pattern(64 << 10);
    for number in 0..48 {
        let wanted = fill.push(&part, 50);
        assert_eq!(
            wanted,
            if number < 16 { BodyDemand::ToStore } else { BodyDemand::ToRead },
            "part {number}"
        );
        while let Poll::Ready(Some(Ok(bytes))) = quick.poll_next(&no_waker()) {
            assert!(!bytes.is_empty());
        }
        assert!(store.tally().filling_bytes <= 21 << 16);
        assert!(fill.poll_room(&no_waker()).is_ready());
    }
    assert_eq!(quick.read_bytes(), 48 << 16);
    assert!(matches!(slow.poll_next(&no_waker()), Poll::Ready(Some(Err(ReadError::Behind)))));
    assert!(matches!(join(&store, key(1)), MissRole::Pass));
    drop((quick, slow));
    assert_eq!(fill.push(&part, 50), BodyDemand::No);
    assert_eq!(store.tally().filling_bytes, 0);
    assert!(matches!(fill.finish(), Filled::TooLarge));
    assert!(!is_stored(&store, key(1)));
}

#[test]
fn a_validation_renews_the_head_of_its_variant_alone() {
    for (bytes, shelf) in [(10, None), (200_000, None), (200_000, Some(u64::MAX))] {
        let (store, key) = (store_with(shelf), key(bytes as u64));
        put(&store, key, opening("k"), &pattern(bytes));
        let old = store.look(key, no_variant).expect("stored");
        let MissRole::Lead(lead) = store.join(key, Some(&old), no_variant, 0) else {
            panic!("what was seen is no hit")
        };
        let mut waiting = match store.join(key, Some(&old), no_variant, 0) {
            MissRole::Wait(wait) => wait,
            other => panic!("{other:?}"),
        };
        let new = lead.renew(&old, Opening { head: b"new"[..].into(), ..opening("k") });
        assert!(
            matches!(waiting.poll(&no_waker()), Poll::Ready(Waited::Hit(hit)) if Arc::ptr_eq(&hit, &new))
        );
        let found = store.look(key, no_variant).expect("stored");
        assert_eq!(found.head(), b"new");
        assert_eq!(found.body(0..bytes as u64).collect::<Vec<_>>().concat(), pattern(bytes));
    }
}

#[test]
fn bodies_under_way_take_an_eighth_of_the_memory_wherever_they_go() {
    // On their way to the shelf they are in memory twice.
    for (shelf, most) in [(None, 8), (Some(u64::MAX), 4)] {
        let store = store_with(shelf);
        let body = pattern(1 << 20);
        let mut fills: Vec<_> =
            (0..10).map(|number| lead(&store, key(number)).open(opening("k")).0).collect();
        let kept =
            fills.iter_mut().filter_map(|fill| (fill.push(&body, 0) == BodyDemand::ToStore).then_some(()));
        assert_eq!(kept.count(), most, "{shelf:?}");
    }
}

#[test]
fn long_bodies_from_behind_the_store_go_to_the_shelf() {
    for (bytes, is_shelved) in [(10, false), (200_000, true)] {
        let store = store_with(Some(u64::MAX));
        let parts = [Bytes::from(pattern(bytes))];
        let found = Arc::new(Object::new(key(1), 0, labelled("k", &["tag"]), &parts));
        lead(&store, key(1)).restore(&found);
        let object = store.look(key(1), no_variant).expect("stored");
        assert_eq!(object.on_shelf().is_some(), is_shelved);
        assert_eq!(object.record().concat(), found.record().concat());
        assert_eq!(object.labels(), found.labels());
    }
}

#[test]
fn a_valid_but_unstorable_response_answers_once() {
    let store = store();
    put(&store, key(1), opening("k"), b"body");
    let old = store.look(key(1), no_variant).expect("stored");
    let MissRole::Lead(lead) = store.join(key(1), Some(&old), no_variant, 0) else { panic!("leads") };
    let MissRole::Wait(mut other) = store.join(key(1), Some(&old), no_variant, 0) else { panic!("waits") };
    let answer = lead.release(&old, Opening { head: b"new"[..].into(), ..opening("k") }, 60);
    assert_eq!((answer.head(), answer.body_at(0)), (&b"new"[..], &b"body"[..]));
    assert!(!is_stored(&store, key(1)) && !store.holds(key(1)));
    assert!(matches!(other.poll(&no_waker()), Poll::Ready(Waited::Refused)));
    assert!(matches!(join(&store, key(1)), MissRole::Pass));
    let (fill, _) = super::apart::asks(&store)(Some(4)).expect("nothing is in the way").open(opening("k"));
    fill.finish();
    assert!(is_stored(&store, key(1)));
}

#[test]
fn a_response_purged_meanwhile_is_not_used() {
    for (force, expected) in [(Force::Hard, [false; 3]), (Force::Soft, [true, true, false])] {
        let stands_in = |is_in_memory: bool, scope: Option<PurgeScope>| {
            let store = store();
            put(&store, key(1), labelled("k", &["t"]), b"body");
            let old = store.look(key(1), no_variant).expect("stored");
            if !is_in_memory {
                store.shard(key(1)).remove(key(1));
            }
            let MissRole::Lead(lead) = store.join(key(1), Some(&old), no_variant, 0) else { panic!("leads") };
            assert!(lead.may_stand_in(&old));
            match scope {
                Some(scope) => store.purge(scope, force).expect("few rules"),
                None => assert_eq!(store.purge_key(key(1), force), usize::from(is_in_memory)),
            }
            lead.may_stand_in(&old)
        };
        // The last response was evicted, or is on a disk, which keeps no softly purged responses.
        let found = [stands_in(true, Some(tag("t"))), stands_in(true, None), stands_in(false, None)];
        assert_eq!(found, expected, "{force:?}");
    }
}

#[test]
fn purges_match_exactly_their_scope() {
    let store = store();
    let secret = KeySecret::default();
    let fill_up = || {
        for (number, (text, tags)) in
            [("http://a/x/1", ["t1", "t2"]), ("http://a/y/1", ["t2", "t3"]), ("http://b/x/1", ["t3", "t4"])]
                .into_iter()
                .enumerate()
        {
            let key = key(number as u64);
            if !is_stored(&store, key) {
                let mut opening = labelled(text, &tags);
                let host = Label::host(secret, if text.contains("/a/") { b"A" } else { b"b" });
                opening.labels = opening.labels.iter().copied().chain([host]).collect();
                put(&store, key, opening, b"body");
            }
        }
    };
    let left = || [0, 1, 2].map(|number| is_stored(&store, key(number)));
    let table = [
        (tag("t1"), [false, true, true]),
        (tag("t2"), [false, false, true]),
        (tag("t4"), [true, true, false]),
        (tag("none"), [true, true, true]),
        (PurgeScope::Label(Label::host(secret, b"a")), [false, false, true]),
        (PurgeScope::Prefix(b"http://a/x"[..].into()), [false, true, true]),
        (PurgeScope::Prefix(b"http://"[..].into()), [false, false, false]),
        (PurgeScope::All, [false, false, false]),
    ];
    for (scope, expected) in table {
        fill_up();
        assert_eq!(left(), [true, true, true], "before {scope:?}");
        store.purge(scope.clone(), Force::Hard).expect("few rules");
        assert_eq!(left(), expected, "after {scope:?}");
        store.sweep();
        assert!(!store.is_sweep_due());
        assert_eq!(left(), expected, "swept after {scope:?}");
    }
    fill_up();
    store.purge(tag("t3"), Force::Soft).expect("few rules");
    let is_stale =
        |number| store.look(key(number), no_variant).is_some_and(|object| object.is_softly_purged());
    assert_eq!([0, 1, 2].map(is_stale), [false, true, true]);
    store.purge_key(key(0), Force::Soft);
    assert!(is_stale(0));
}

#[test]
fn rfc5861_a_softly_purged_response_is_stale_from_the_purge_on() {
    let address = UrlParts::parse("http://a.example/b").expect("is one");
    let purges = [
        PurgeTarget::Url(address.clone()),
        PurgeTarget::Prefix(address),
        PurgeTarget::Host(b"a.example"[..].into()),
        PurgeTarget::Tag(b"t"[..].into()),
        PurgeTarget::All,
    ];
    let secret = KeySecret::default();
    let spaces = [Space { secret, options: KeyOptions::default() }];
    for named in purges {
        let store = store();
        let uri = Uri::new(false, b"a.example", b"/b");
        let key = CacheKey::of_uri(secret, &uri, &spaces[0].options);
        let labels = [Label::host(secret, b"a.example"), Label::tag(secret, b"t")];
        let opening = Opening { labels: labels.into(), ..opening("http://a.example/b") };
        put(&store, key, opening, b"body");
        for at_seconds in [10, 40] {
            named.purge(&store, secret, &spaces, Force::Soft, at_seconds * 1000).expect("few rules");
            // The response is already stale at the second purge.
            for now_ms in [40_000, 50_000] {
                let object = store.look(key, no_variant).expect("it is there");
                assert!(object.is_softly_purged(), "{named:?}");
                assert_eq!(object.made_stale(now_ms).fresh_until_ms, 10_000, "{named:?}");
            }
        }
        // A lagging clock does not make it fresher.
        let object = store.look(key, no_variant).expect("it is there");
        assert!(!object.made_stale(9_000).is_fresh(9_000));
    }
}

#[test]
fn rfc5861_a_soft_purge_at_an_unknown_time_counts_from_its_discovery() {
    let store = store();
    put(&store, key(1), opening("k"), b"body");
    store.purge_key(key(1), Force::Soft);
    let object = store.look(key(1), no_variant).expect("it is there");
    for now_ms in [20_000, 30_000] {
        assert_eq!(object.made_stale(now_ms).fresh_until_ms, 20_000);
    }
}

#[test]
fn a_purge_looks_at_no_object_however_many_it_meets() {
    let settings = StoreSettings { memory_bytes: 2 << 30, object_bytes_max: 1 << 20 };
    for objects in [10, 1_000_000] {
        let store = Arc::new(MemoryStore::new(settings, None));
        for number in 0..objects {
            let (key, opening) = (key(number), labelled("http://a/", &["everywhere"]));
            assert!(store.put(&Flight::new(key, None, 0), &Arc::new(Object::new(key, 0, opening, &[]))));
        }
        {
            // Only the purge can continue: it takes no lock of a shard.
            let shards: Vec<_> =
                store.shards.iter().map(|shard| shard.lock().expect("nobody panicked")).collect();
            store.purge(tag("everywhere"), Force::Hard).expect("few rules");
            for number in (0..objects).step_by(997) {
                let mut stored = shards.iter().flat_map(|shard| shard.peek(key(number)));
                assert!(stored.all(|object| object.checked() == 0 && !object.is_gone()));
            }
        }
        assert_eq!((store.tally().keys, store.tally().purge_rules), (objects, 1));
        assert!((0..objects).step_by(997).all(|number| !is_stored(&store, key(number))));
    }
}

#[test]
fn a_fetch_under_way_across_a_purge_is_not_stored_and_not_joined() {
    let scopes = [tag("t"), PurgeScope::Prefix(b"http://a"[..].into()), PurgeScope::All];
    for (force, scope) in [Force::Hard, Force::Soft]
        .into_iter()
        .flat_map(|force| scopes.iter().cloned().map(Some).chain([None]).map(move |scope| (force, scope)))
    {
        let store = store();
        let purge = |scope: &Option<PurgeScope>| match scope {
            Some(scope) => store.purge(scope.clone(), force).expect("few rules"),
            None => assert_eq!(store.purge_key(key(1), force), 0),
        };
        let asked = lead(&store, key(1));
        purge(&scope);
        let (mut streaming, _) = lead(&store, key(1)).open(labelled("http://a/", &["t"]));
        let (mut asked, _) = asked.open(labelled("http://a/", &["t"]));
        asked.push(b"old", 0);
        store.sweep();
        assert!(matches!(asked.finish(), Filled::Purged), "{scope:?}");
        assert!(matches!(join(&store, key(1)), MissRole::Stream(_)));
        purge(&scope);
        streaming.push(b"old", 0);
        assert!(matches!(streaming.finish(), Filled::Purged), "{scope:?}");
        assert!(!is_stored(&store, key(1)));
        store.sweep();
        assert!(!store.is_sweep_due());
    }
}

#[test]
fn more_purges_than_can_be_remembered_sweep_first() {
    let store = store();
    put(&store, key(1), labelled("k", &["kept"]), b"body");
    put(&store, key(2), labelled("k", &["7"]), b"body");
    for number in 0..PurgeRules::LABELS_MAX as u64 + 10 {
        let label = if number == 7 { tag("7") } else { PurgeScope::Label(Label::from_u64(number)) };
        store.purge(label, Force::Hard).expect("sweeps");
    }
    assert_eq!(store.tally().purge_rules, 10);
    assert!(is_stored(&store, key(1)));
    assert!(!is_stored(&store, key(2)));
    // A fetch that is older than all rules still needs them.
    let _old = lead(&store, key(3));
    for number in 0..PurgeRules::TEXTS_MAX {
        store.purge(PurgeScope::Prefix(number.to_string().as_bytes().into()), Force::Hard).expect("room");
    }
    assert!(store.purge(PurgeScope::Prefix(b"one more"[..].into()), Force::Hard).is_err());
    assert!(store.purge(PurgeScope::All, Force::Hard).is_ok());
}

#[test]
fn the_store_keeps_to_its_bound_and_objects_to_theirs() {
    let store = store();
    let body = pattern(100_000);
    for number in 0..2000 {
        put(&store, key(number), opening("k"), &body);
    }
    let tally = store.tally();
    assert!(tally.bytes <= 58 << 20 && tally.bytes > 56 << 20, "{tally:?}");
    assert_eq!(tally.evicted + tally.keys, 2000);
    assert_eq!(store.object_bytes_max(), 1 << 20);
}

#[test]
fn sizes_of_allocations() {
    let table =
        [(0, 0), (1, 16), (17, 32), (64, 64), (65, 80), (81, 96), (600, 640), (1024, 1024), (65_536, 65_536)];
    for (bytes, expected) in table {
        assert_eq!(allocated_bytes(bytes), expected, "{bytes}");
    }
}

/// Threads that join, lead, die, read and purge at random, on few keys: every body that is read to its end is complete,
/// and no thread sleeps forever.
#[test]
fn threads_that_lead_die_and_read_lose_no_wake_and_tear_no_body() {
    const THREADS: u64 = 8;
    const STEPS: u64 = 200;
    let store = store();
    let body = &pattern(40_000)[..];
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, start) = (&store, &start);
            scope.spawn(move || {
                start.wait();
                let mut random = thread + 1;
                for _ in 0..STEPS {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    take_part(store, key((random >> 60) % 3), random >> 33, body);
                }
            });
        }
    });
    assert_eq!(store.tally().filling_bytes, 0);
}

fn take_part(store: &Arc<MemoryStore>, key: CacheKey, random: u64, body: &[u8]) {
    let lead = match join(store, key) {
        MissRole::Lead(lead) => lead,
        MissRole::Wait(mut wait) if random.is_multiple_of(5) => {
            let _ = wait.poll(&no_waker());
            return;
        }
        MissRole::Wait(mut wait) => match block_on(|context| wait.poll(context)) {
            Waited::Lead(lead) => lead,
            Waited::Stream(reader) => return check(reader, body),
            Waited::Hit(_) | Waited::Refused | Waited::Failed => return,
        },
        MissRole::Stream(reader) => return check(reader, body),
        MissRole::Hit(object) => {
            assert_eq!(object.body(0..40_000).collect::<Vec<_>>().concat(), body);
            store.purge_key(key, Force::Hard);
            return;
        }
        MissRole::Pass => return,
    };
    match random % 7 {
        0 => drop(lead),
        1 => lead.fail(),
        2 => lead.refuse(0),
        dies => {
            let (mut fill, _) = lead.open(opening("k"));
            for (number, part) in body.chunks(1 + random as usize % 9000).enumerate() {
                fill.push(part, 0);
                thread::yield_now();
                if dies == 3 && number == 2 {
                    return;
                }
            }
            fill.finish();
        }
    }
}

fn check(reader: FillReader, body: &[u8]) {
    match read_all(reader) {
        Ok(read) => assert!(read == body, "a torn body"),
        Err(error) => assert_eq!(error, ReadError::Broken),
    }
}
