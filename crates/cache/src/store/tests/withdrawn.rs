//! Obsolete responses (RFC 9111 §4.3.3).

use std::sync::Arc;

use super::behaviour::{is_stored, join, store, store_with};
use super::{key, no_variant, opening};
use crate::fill::{Filled, Lead};
use crate::store::object::{Object, Opening};
use crate::store::{MemoryStore, MissRole};
use crate::vary::{VariantKey, Vary};

fn variant_numbered(number: u128) -> impl Fn(&Vary) -> VariantKey {
    move |_| VariantKey::from_u128(number)
}

fn put(store: &Arc<MemoryStore>, variant: u128, body: &[u8]) -> Arc<Object> {
    let MissRole::Lead(lead) = store.join(key(1), None, variant_numbered(u128::MAX), 0) else {
        panic!("leads")
    };
    let (mut fill, _) = lead.open(Opening { variant: VariantKey::from_u128(variant), ..opening("k") });
    fill.push(body, 0);
    let Filled::Stored(object) = fill.finish() else { panic!("is stored") };
    object
}

/// The validation of a stored response that the answer shows to be obsolete.
fn outdating(store: &Arc<MemoryStore>, old: &Arc<Object>) -> Lead {
    let mut lead = store.validate(old, |_| old.variant(), 0).expect("nobody else validates it");
    lead.outdates(Some(Arc::clone(old)));
    lead
}

fn has(store: &MemoryStore, variant: u128) -> bool {
    store.look(key(1), variant_numbered(variant)).is_some()
}

#[test]
fn a_refused_answer_removes_one_variant_and_its_copies() {
    for shelf in [None, Some(1 << 20)] {
        let store = store_with(shelf);
        let old = put(&store, 1, &[b'x'; 100_000]);
        put(&store, 2, b"other");
        let copy = Arc::new(Object::new(old.key(), 0, old.opening(), &[]));
        let mut lead = store.validate(&old, variant_numbered(1), 0).expect("nobody else validates it");
        lead.outdates(Some(copy));
        lead.refuse(60);
        assert_eq!((has(&store, 1), has(&store, 2)), (false, true));
    }
    let store = store();
    let old = put(&store, 0, b"old");
    let before = store.tally().bytes;
    outdating(&store, &old).refuse(60);
    assert!(!store.holds(key(1)) && store.tally().bytes < before, "its memory is given back");
}

#[test]
fn the_old_one_stays_until_the_new_one_is_whole_or_is_not_to_be_stored() {
    let other = VariantKey::from_u128(9);
    for (variant, length, pushed, is_finished, is_kept) in [
        // The body breaks.
        (VariantKey::from_u128(0), Some(10), 4, false, true),
        (VariantKey::from_u128(0), Some(10), 4, true, true),
        (other, Some(4), 4, true, false),
        // The body is too large.
        (VariantKey::from_u128(0), None, 2 << 20, false, false),
        (other, None, 2 << 20, true, false),
    ] {
        let store = store();
        let old = put(&store, 0, b"old");
        let opening = Opening { variant, body_bytes: length, ..opening("k") };
        let (mut fill, _reader) = outdating(&store, &old).open(opening);
        assert!(is_stored(&store, key(1)));
        fill.push(&vec![b'n'; pushed], 0);
        if is_finished {
            fill.finish();
        } else {
            drop(fill);
        }
        assert_eq!(has(&store, 0), is_kept, "{length:?} {pushed}");
    }
}

#[test]
fn the_replacement_stays() {
    let store = store();
    let old = put(&store, 1, b"old");
    let newer = Opening { variant: VariantKey::from_u128(1), ..opening("k") };
    let newer = Opening { stored: crate::stored::Stored { received_ms: 7, ..newer.stored }, ..newer };
    let (fill, _) =
        store.validate(&old, variant_numbered(1), 0).expect("nobody else validates it").open(newer);
    fill.finish();
    store.withdraw(&old);
    assert!(has(&store, 1));
}

#[test]
fn a_lead_that_goes_away_or_fails_withdraws_nothing() {
    let store = store();
    let old = put(&store, 0, b"old");
    drop(outdating(&store, &old));
    assert!(is_stored(&store, key(1)));
    outdating(&store, &old).fail();
    assert!(is_stored(&store, key(1)));
}

#[test]
fn a_variant_is_validated_whatever_became_of_another() {
    let store = store();
    let [old, other] = [1, 2].map(|variant| put(&store, variant, b"body"));
    outdating(&store, &old).refuse(60);
    assert!(matches!(join(&store, key(1)), MissRole::Pass));
    let lead = store.validate(&other, variant_numbered(2), 0);
    assert!(lead.is_some() && store.validate(&other, variant_numbered(2), 0).is_none(), "once at a time");
    drop(lead);
    assert!(store.validate(&other, no_variant, 0).is_some());
}
