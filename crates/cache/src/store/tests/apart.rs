//! Responses to requests that did not lead a fetch.

use std::sync::Arc;

use super::behaviour::{is_stored, join, lead, store};
use super::{key, opening};
use crate::fill::Lead;
use crate::purge::{Force, PurgeScope};
use crate::store::{MemoryStore, MissRole};

/// Sends a separate request. The returned function takes the length of its response.
pub(super) fn asks(store: &Arc<MemoryStore>) -> impl Fn(Option<u64>) -> Option<Lead> {
    let apart = store.apart(key(1), 0);
    move |body_bytes| store.lead_apart(key(1), apart, body_bytes)
}

#[test]
fn a_separate_response_is_stored_and_ends_the_mark() {
    let store = store();
    lead(&store, key(1)).refuse(60);
    assert!(matches!(join(&store, key(1)), MissRole::Pass));
    let (mut fill, _reader) = asks(&store)(None).expect("nothing is in the way").open(opening("k"));
    assert!(matches!(join(&store, key(1)), MissRole::Stream(_)));
    // Another response for the key is not held in memory beside it.
    assert!(asks(&store)(None).is_none());
    fill.push(b"body", 60);
    fill.finish();
    assert!(is_stored(&store, key(1)));
}

#[test]
fn a_purge_matches_separate_responses() {
    for sweeps in [false, true] {
        for (scope, is_met) in [
            (None, true),
            (Some(PurgeScope::All), true),
            (Some(PurgeScope::Prefix(b"k"[..].into())), true),
            (Some(PurgeScope::Prefix(b"other"[..].into())), false),
        ] {
            let store = store();
            let comes = asks(&store);
            match &scope {
                Some(scope) => store.purge(scope.clone(), Force::Hard).expect("few rules"),
                None => drop(store.purge_key(key(1), Force::Hard)),
            }
            if sweeps {
                store.sweep();
            }
            if let Some(lead) = comes(Some(4)) {
                let (mut fill, _) = lead.open(opening("k"));
                fill.push(b"body", 60);
                fill.finish();
            }
            // The purge was forgotten by the sweep, and it may have matched this response.
            let is_stored_in_spite = !is_met && !sweeps;
            assert_eq!(is_stored(&store, key(1)), is_stored_in_spite, "{scope:?} {sweeps}");
        }
    }
}

#[test]
fn too_large_responses_are_retried_only_with_a_known_length() {
    let store = store();
    let (mut fill, _reader) = lead(&store, key(1)).open(opening("k"));
    fill.push(&vec![0; store.object_bytes_max() as usize + 1], 60);
    assert!(asks(&store)(None).is_none());
    drop(fill);
    assert!(asks(&store)(None).is_none() && asks(&store)(Some(4)).is_some());
}
