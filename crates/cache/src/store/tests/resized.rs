//! More memory, or less, while the store is used.

use std::sync::Arc;

use super::behaviour::{is_stored, join, lead};
use super::{key, no_variant, opening};
use crate::fill::Filled;
use crate::purge::{Force, Scope};
use crate::store::resize::Resized;
use crate::store::{Joined, Store, StoreSettings};

fn settings(memory_bytes: u64) -> StoreSettings {
    StoreSettings { memory_bytes, object_bytes_max: 1 << 20 }
}

fn put(store: &Arc<Store>, number: u64) {
    let (mut fill, _) = lead(store, key(number)).open(opening(&format!("http://a/{number}")));
    fill.push(&[b'x'; 1000], 0);
    assert!(matches!(fill.finish(), Filled::Stored(_)));
}

fn stored(store: &Store, numbers: u64) -> usize {
    (0..numbers).filter(|&number| is_stored(store, key(number))).count()
}

#[test]
fn what_fits_stays_whatever_the_shards() {
    const MIB: u64 = 1 << 20;
    for (before, after, all) in [
        (8 * MIB, 16 * MIB, true),
        (16 * MIB, 8 * MIB, true),
        (64 * MIB, 1024 * MIB, true),
        (1024 * MIB, 64 * MIB, true),
        (1024 * MIB, MIB, false),
        (8 * MIB, MIB, false),
    ] {
        let store = Arc::new(Store::new(settings(before), None));
        (0..2000).for_each(|number| put(&store, number));
        let Resized { kept, dropped } = store.resize(settings(after));
        assert_eq!((kept + dropped, stored(&store, 2000)), (2000, kept), "{before} {after}");
        assert_eq!(dropped == 0, all, "{before} {after}: {dropped}");
        let fits = after * 9 / 10 / 2000;
        assert!(kept as u64 >= fits.min(2000), "{before} {after}: {kept} of {fits}");
        assert!(store.tally().bytes <= after && store.memory_bytes() == after);
        assert_eq!(store.object_bytes_max(), (after / 8).min(MIB));
        // It takes as much as it has by now.
        (2000..2100).for_each(|number| put(&store, number));
        assert!(stored(&store, 2100) > kept.min(200));
    }
}

#[test]
fn what_is_under_way_is_stored_where_it_is_looked_for_and_purges_still_meet() {
    for (before, after) in [(64 << 20, 1 << 30), (1 << 30, 64 << 20)] {
        let store = Arc::new(Store::new(settings(before), None));
        put(&store, 1);
        let mut fills: Vec<_> =
            (2..40).map(|number| lead(&store, key(number)).open(opening("http://a/n"))).collect();
        store.purge(Scope::Prefix(b"http://a/1"[..].into()), Force::Hard).expect("few rules");
        store.resize(settings(after));
        assert!(!is_stored(&store, key(1)));
        // Each is still joined by who comes, but what was asked before a purge.
        for (number, (fill, _)) in (2..40).zip(&mut fills) {
            fill.push(b"body", 0);
            assert!(matches!(join(&store, key(number)), Joined::Lead(_)));
        }
        for (fill, _) in fills.drain(..) {
            assert!(matches!(fill.finish(), Filled::Stored(_)));
        }
        assert_eq!((2..40).filter(|&number| is_stored(&store, key(number))).count(), 38);
        assert_eq!(store.purge_key(key(7), Force::Hard), 1);
        assert!(!store.holds(key(7)) && store.look(key(8), no_variant).is_some());
    }
}
