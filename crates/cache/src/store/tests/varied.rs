//! Many variants of one resource.

use std::sync::Arc;

use super::behaviour::store;
use super::{key, opening};
use crate::fill::Filled;
use crate::purge::Force;
use crate::store::object::Opening;
use crate::store::{MemoryStore, MissRole, StoreSettings};
use crate::vary::{VariantKey, Vary};

fn put(store: &Arc<MemoryStore>, vary: &Vary, variant: VariantKey, body: &[u8]) {
    let MissRole::Lead(lead) = store.join(key(1), None, |_| VariantKey::from_u128(u128::MAX), 0) else {
        panic!("leads")
    };
    let (mut fill, _) = lead.open(Opening { vary: vary.clone(), variant, ..opening("k") });
    fill.push(body, 0);
    assert!(matches!(fill.finish(), Filled::Stored(_)));
}

fn body(store: &MemoryStore, variant_of: impl Fn(&Vary) -> VariantKey) -> Option<Vec<u8>> {
    store.look(key(1), variant_of).map(|object| object.body_at(0).to_vec())
}

#[test]
fn variants_are_bounded_by_memory_and_not_by_number() {
    let store = store();
    let vary = Vary::from_bytes(b"x-kind");
    let of = VariantKey::from_u128;
    (0..5000).for_each(|number| put(&store, &vary, of(number), &number.to_le_bytes()));
    for number in 0..5000 {
        assert_eq!(body(&store, |_| of(number)), Some(number.to_le_bytes().to_vec()), "{number}");
    }
    assert_eq!(
        (store.variants(key(1)).len(), store.displaced(key(1)).0, store.tally().evicted),
        (5000, 0, 0)
    );
    // A variant replaces its previous response.
    put(&store, &vary, of(7), b"new");
    assert_eq!((body(&store, |_| of(7)), store.variants(key(1)).len()), (Some(b"new".to_vec()), 5000));
    assert_eq!(store.purge_key(key(1), Force::Hard), 5000);
    assert!(!store.holds(key(1)));
}

#[test]
fn the_oldest_make_room_and_that_is_counted() {
    let settings = StoreSettings { memory_bytes: 1 << 20, object_bytes_max: 1 << 20 };
    let store = Arc::new(MemoryStore::new(settings, None));
    let vary = Vary::from_bytes(b"x-kind");
    let of = VariantKey::from_u128;
    (0..1000).for_each(|number| put(&store, &vary, of(number), &[b'x'; 2000]));
    let kept = store.variants(key(1)).len() as u64;
    let (displaced, bytes_max) = store.displaced(key(1));
    let tally = store.tally();
    assert_eq!((kept + displaced, tally.displaced, tally.evicted), (1000, displaced, displaced));
    assert!(tally.bytes.abs_diff(bytes_max) < 4000, "{tally:?} {bytes_max}");
    for number in 0..1000 {
        assert_eq!(body(&store, |_| of(number)).is_some(), number >= displaced.into(), "{number}");
    }
}

#[test]
fn of_several_that_fit_the_newest_answers_and_servers_that_never_agree_are_bounded() {
    let store = store();
    let of = VariantKey::from_u128;
    for number in 0..100_u32 {
        let vary = Vary::from_bytes(format!("x-{number}").as_bytes());
        put(&store, &vary, of(1), &number.to_le_bytes());
        assert_eq!(body(&store, |_| of(1)), Some(number.to_le_bytes().to_vec()));
        assert!(store.variants(key(1)).len() <= 16);
    }
    let first = Vary::from_bytes(b"x-96");
    put(&store, &first, of(1), b"new");
    assert_eq!(body(&store, |_| of(1)), Some(b"new".to_vec()));
    assert_eq!(
        body(&store, |vary| if *vary == first { of(2) } else { of(1) }),
        Some(99_u32.to_le_bytes().to_vec())
    );
}
