//! Stored parts of representations: kept beside whole ones, under separate keys, and joined when they touch.
//!
//! Only parts with a strong validator are stored: without one, it is unknown whether two parts have equal content.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use bytes::Bytes;

use crate::fill::Lead;
use crate::fill::flight::Flight;
use crate::key::CacheKey;
use crate::ranges::StoredPart;
use crate::store::MemoryStore;
use crate::store::object::{Object, Opening};
use crate::stored::Stored;
use crate::vary::{VariantKey, Vary};

impl MemoryStore {
    /// The stored part for a request, fresh or not, with any range.
    pub fn part(&self, key: CacheKey, variant_of: impl FnMut(&Vary) -> VariantKey) -> Option<Arc<Object>> {
        let part = self.shard(key).find(key.of_parts(), variant_of)?.clone();
        (self.is_good(&part) && !part.is_softly_purged()).then_some(part)
    }

    /// Starts storing a part that a separate request has asked for. `None` if too many fetches are in progress.
    pub fn lead_part(self: &Arc<Self>, key: CacheKey) -> Option<Lead> {
        let flight = Arc::new(Flight::new(key.of_parts(), None, self.epoch.load(Acquire)));
        self.shard(key).depart(&flight).then(|| Lead::new(self.clone(), flight))
    }

    /// Stores a part, joined with the stored one if possible (RFC 9111 §3.4). If the result is complete, it is stored
    /// as a whole response.
    pub(crate) fn put_part(&self, flight: &Flight, part: Object) -> Option<Arc<Object>> {
        let known = self.part(flight.key.of_parts(), |_| part.variant());
        let joined = known.and_then(|known| joined(&known, &part));
        let fits = |joined: &Object| joined.weight_bytes() <= self.object_bytes_max();
        // If the sum is too large, the newer part replaces the older one.
        let object = Arc::new(joined.filter(fits).unwrap_or(part));
        self.put(flight, &object).then_some(object)
    }

    /// Stores the incomplete body of a failed fetch as a part (RFC 9111 §3.3), if the rest can be requested.
    pub(crate) fn put_rest_of(&self, flight: &Flight, opening: &Opening, parts: &[Bytes]) {
        let end = parts.iter().map(|part| part.len() as u64).sum();
        let stored = opening.stored;
        let is_part = end > 0
            && stored.status == 200
            && stored.part.is_none()
            // RFC 9111 §3.3: without one, the rest could be of another representation.
            && stored.strong_validator(&opening.head).is_some();
        let Some(whole_bytes) = opening.body_bytes.filter(|whole_bytes| is_part && end < *whole_bytes) else {
            return;
        };
        let part = Some(StoredPart { start: 0, end, whole_bytes: Some(whole_bytes) });
        let opening = Opening { stored: Stored { part, ..stored }, ..opening.clone() };
        let object = Object::new(flight.key.of_parts(), flight.epoch, opening, parts);
        if object.weight_bytes() <= self.object_bytes_max() {
            self.put(flight, &Arc::new(object));
        }
    }
}

/// Both parts as one, under the later one's head. `None` if they are not known to be of the same representation, or do
/// not touch.
fn joined(earlier: &Object, later: &Object) -> Option<Object> {
    let validator = |object: &'_ Object| object.stored().strong_validator(object.head()).map(<[u8]>::to_vec);
    if validator(earlier)? != validator(later)? {
        return None;
    }
    let (one, other) = (earlier.stored().part?, later.stored().part?);
    let part = one.joined(&other)?;
    let ((first, first_end), (second, second_start)) = if one.start <= other.start {
        ((earlier, one.end), (later, other.start))
    } else {
        ((later, other.end), (earlier, one.start))
    };
    let known_bytes = (first_end - second_start).min(second.body_bytes());
    let pieces = first.body(0..first.body_bytes()).chain(second.body(known_bytes..second.body_bytes()));
    let body: Vec<Bytes> = pieces.map(Bytes::copy_from_slice).collect();
    let is_whole = part.is_whole();
    // The key of parts is its own inverse: this gives the key of the whole.
    let key = if is_whole { later.key().of_parts() } else { later.key() };
    let opening = Opening {
        stored: Stored { part: (!is_whole).then_some(part), ..*later.stored() },
        body_bytes: Some(part.end - part.start),
        forms: None,
        ..later.opening()
    };
    // The earlier epoch, so that a purge between both still matches.
    Some(Object::new(key, earlier.epoch().min(later.epoch()), opening, &body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fill::Filled;
    use crate::purge::Force;
    use crate::store::StoreSettings;
    use crate::store::tests::{key, no_variant, opening};

    fn store() -> Arc<MemoryStore> {
        Arc::new(MemoryStore::new(StoreSettings { memory_bytes: 64 << 20, object_bytes_max: 1 << 20 }, None))
    }

    const WHOLE: &[u8] = b"0123456789";

    fn tagged(text: &str, etag: &str) -> Opening {
        let head = format!("HTTP/1.1 200 OK\r\nETag: {etag}\r\n\r\n");
        let start = head.find(etag).expect("it is in there") as u32;
        let etag = http1::ByteSpan { start, end: start + etag.len() as u32 };
        let opening = opening(text);
        Opening { stored: Stored { etag, ..opening.stored }, head: head.into_bytes().into(), ..opening }
    }

    fn put(store: &Arc<MemoryStore>, etag: &str, start: u64, end: u64) {
        let part = StoredPart { start, end, whole_bytes: Some(WHOLE.len() as u64) };
        let opening = tagged("k", etag);
        let opening = Opening { stored: Stored { part: Some(part), ..opening.stored }, ..opening };
        let (mut fill, _) = store.lead_part(key(1)).expect("there is room").open(opening);
        fill.push(&WHOLE[start as usize..end as usize], 0);
        assert!(matches!(fill.finish(), Filled::Stored(_)));
    }

    /// The start of a part, and its bytes.
    type Known = (u64, Vec<u8>);

    /// The stored bytes, as a part or the whole.
    fn stored(store: &MemoryStore) -> (Option<Known>, Option<Vec<u8>>) {
        let body = |object: &Object| object.body(0..object.body_bytes()).collect::<Vec<_>>().concat();
        let part = store.part(key(1), no_variant);
        let part = part.map(|part| (part.stored().part.map_or(99, |part| part.start), body(&part)));
        (part, store.look(key(1), no_variant).map(|whole| body(&whole)))
    }

    #[test]
    fn parts_that_touch_are_joined_in_any_order() {
        for (parts, left, whole) in [
            (&[(0, 3)][..], Some((0, &WHOLE[..3])), false),
            (&[(0, 3), (3, 6)], Some((0, &WHOLE[..6])), false),
            (&[(3, 6), (0, 4)], Some((0, &WHOLE[..6])), false),
            (&[(2, 8), (3, 5)], Some((2, &WHOLE[2..8])), false),
            (&[(3, 5), (2, 8)], Some((2, &WHOLE[2..8])), false),
            // With a gap between them, the later one stays.
            (&[(0, 3), (4, 6)], Some((4, &WHOLE[4..6])), false),
            (&[(0, 10)], Some((0, WHOLE)), false),
            (&[(0, 5), (5, 10)], Some((0, &WHOLE[..5])), true),
            (&[(6, 10), (4, 7), (0, 4)], Some((4, &WHOLE[4..])), true),
        ] {
            let store = store();
            parts.iter().for_each(|&(start, end)| put(&store, "\"a\"", start, end));
            let (part, found) = stored(&store);
            assert_eq!(part, left.map(|(start, bytes)| (start, bytes.to_vec())), "{parts:?}");
            assert_eq!(found, whole.then(|| WHOLE.to_vec()), "{parts:?}");
        }
    }

    #[test]
    fn parts_of_another_state_or_of_none_for_sure_are_not_joined() {
        for (first, second) in [("\"a\"", "\"b\""), ("W/\"a\"", "W/\"a\""), ("\"a\"", "W/\"a\"")] {
            let store = store();
            put(&store, first, 0, 5);
            put(&store, second, 5, 10);
            assert_eq!(stored(&store), (Some((5, WHOLE[5..].to_vec())), None), "{first} {second}");
        }
    }

    #[test]
    fn a_purge_of_the_key_meets_its_parts_too() {
        for force in [Force::Hard, Force::Soft] {
            let store = store();
            put(&store, "\"a\"", 0, 5);
            store.purge_key(key(1), force);
            assert_eq!(stored(&store), (None, None));
            put(&store, "\"a\"", 5, 10);
            assert_eq!(stored(&store), (Some((5, WHOLE[5..].to_vec())), None));
        }
    }

    #[test]
    fn a_broken_fetch_leaves_a_part() {
        for (etag, body_bytes, is_kept) in
            [("\"a\"", Some(10), true), ("W/\"a\"", Some(10), false), ("\"a\"", None, false)]
        {
            let store = store();
            let crate::store::MissRole::Lead(lead) = store.join(key(1), None, no_variant, 0) else {
                panic!("nobody asks yet")
            };
            let (mut fill, _) = lead.open(Opening { body_bytes, ..tagged("k", etag) });
            fill.push(&WHOLE[..4], 0);
            drop(fill);
            let part = is_kept.then(|| (0, WHOLE[..4].to_vec()));
            assert_eq!(stored(&store), (part, None), "{etag} {body_bytes:?}");
        }
    }
}
