//! Memory limits that change while the store is used.

use std::sync::Arc;

use super::behaviour::{is_stored, join, lead};
use super::{key, no_variant, opening};
use crate::fill::Filled;
use crate::purge::{Force, PurgeScope};
use crate::store::resize::Resized;
use crate::store::{MemoryStore, MissRole, StoreSettings};

fn settings(memory_bytes: u64) -> StoreSettings {
    StoreSettings { memory_bytes, object_bytes_max: 1 << 20 }
}

fn put(store: &Arc<MemoryStore>, number: u64) {
    let (mut fill, _) = lead(store, key(number)).open(opening(&format!("http://a/{number}")));
    fill.push(&[b'x'; 1000], 0);
    assert!(matches!(fill.finish(), Filled::Stored(_)));
}

fn stored(store: &MemoryStore, numbers: u64) -> usize {
    (0..numbers).filter(|&number| is_stored(store, key(number))).count()
}

#[test]
fn responses_that_fit_stay_for_any_number_of_shards() {
    const MIB: u64 = 1 << 20;
    for (before, after, all) in [
        (8 * MIB, 16 * MIB, true),
        (16 * MIB, 8 * MIB, true),
        (64 * MIB, 1024 * MIB, true),
        (1024 * MIB, 64 * MIB, true),
        (1024 * MIB, MIB, false),
        (8 * MIB, MIB, false),
    ] {
        let store = Arc::new(MemoryStore::new(settings(before), None));
        (0..2000).for_each(|number| put(&store, number));
        let Resized { kept, dropped } = store.resize(settings(after));
        assert_eq!((kept + dropped, stored(&store, 2000)), (2000, kept), "{before} {after}");
        assert_eq!(dropped == 0, all, "{before} {after}: {dropped}");
        let fits = after * 9 / 10 / 2000;
        assert!(kept as u64 >= fits.min(2000), "{before} {after}: {kept} of {fits}");
        assert!(store.tally().bytes <= after && store.memory_bytes() == after);
        assert_eq!(store.object_bytes_max(), (after / 8).min(MIB));
        // The store accepts as much as the new limit allows.
        (2000..2100).for_each(|number| put(&store, number));
        assert!(stored(&store, 2100) > kept.min(200));
    }
}

#[test]
fn a_resize_keeps_fetches_and_purges() {
    for (before, after) in [(64 << 20, 1 << 30), (1 << 30, 64 << 20)] {
        let store = Arc::new(MemoryStore::new(settings(before), None));
        put(&store, 1);
        let mut fills: Vec<_> =
            (2..40).map(|number| lead(&store, key(number)).open(opening("http://a/n"))).collect();
        store.purge(PurgeScope::Prefix(b"http://a/1"[..].into()), Force::Hard).expect("few rules");
        store.resize(settings(after));
        assert!(!is_stored(&store, key(1)));
        // Later requests still join each fetch, except those from before a purge.
        for (number, (fill, _)) in (2..40).zip(&mut fills) {
            fill.push(b"body", 0);
            assert!(matches!(join(&store, key(number)), MissRole::Lead(_)));
        }
        for (fill, _) in fills.drain(..) {
            assert!(matches!(fill.finish(), Filled::Stored(_)));
        }
        assert_eq!((2..40).filter(|&number| is_stored(&store, key(number))).count(), 38);
        assert_eq!(store.purge_key(key(7), Force::Hard), 1);
        assert!(!store.holds(key(7)) && store.look(key(8), no_variant).is_some());
    }
}
