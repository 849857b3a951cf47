//! Changes of entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use maps::{MapChange, MapKind, MapShape, MapSnapshot, MapTable, MapValue};
use proptest::prelude::*;

use crate::lookups::{TEXTS, table, value};

fn set(key: &str, value: &str, ends_ms: Option<u64>) -> MapChange {
    MapChange::Set { key: key.to_owned(), value: MapValue::Text(value.into()), ends_ms }
}

fn delete(key: &str) -> MapChange {
    MapChange::Delete { key: key.to_owned() }
}

#[test]
fn changes_are_in_force_at_once() {
    let before = MapSnapshot::new(Arc::new(table(
        MapKind::Network,
        &[("10.0.0.0/8", "ten"), ("10.1.0.0/16", "office")],
    )));
    let after = before
        .with_changes(&[set("10.1.2.3", "printer", None), delete("10.1.0.0/16"), delete("192.0.2.1")], 0)
        .unwrap();
    for (key, expected) in [("10.1.2.3", "printer"), ("10.1.2.4", "ten")] {
        assert_eq!(value(&after, key, 0), expected);
    }
    assert_eq!((before.len(), after.len()), (2, 2));
    let again = after.with_changes(&[set("10.1.0.0/16", "new", None), delete("10.1.2.3/32")], 0).unwrap();
    assert_eq!(value(&again, "10.1.2.3", 0), "new");
    assert_eq!(value(&before, "10.1.2.3", 0), "office");
}

#[test]
fn an_entry_ends_and_the_next_one_applies() {
    let map = MapSnapshot::new(Arc::new(table(MapKind::Network, &[("10.0.0.0/8", "ten")])));
    let map = map.with_changes(&[set("10.0.0.1", "banned", Some(1000))], 0).unwrap();
    for (now_ms, expected) in [(0, "banned"), (999, "banned"), (1000, "ten")] {
        assert_eq!(value(&map, "10.0.0.1", now_ms), expected, "{now_ms}");
    }
    assert_eq!(map.entries(999).count(), 2);
    assert_eq!(map.entries(1000).count(), 1);
    // An entry that has ended is dropped by the next change.
    assert_eq!(map.with_changes(&[delete("192.0.2.1")], 1000).unwrap().len(), 1);
}

#[test]
fn of_several_changes_of_one_key_the_last_counts() {
    let map = MapSnapshot::new(Arc::new(MapTable::empty(MapShape { kind: MapKind::Suffix, values: TEXTS })));
    let changes = [set("Example.com", "one", None), delete("example.com."), set("example.com", "two", None)];
    assert_eq!(value(&map.with_changes(&changes, 0).unwrap(), "a.example.com", 0), "two");
    let (place, fault) = map.with_changes(&[set("a", "b", None), delete("a..b")], 0).unwrap_err();
    assert_eq!(place, 1);
    assert!(fault.to_string().contains("is not a host name"));
}

#[test]
fn regular_expressions_keep_their_order() {
    let map = MapSnapshot::new(Arc::new(table(MapKind::Regex, &[("a", "first"), ("b", "second")])));
    let map = map.with_changes(&[set("z", "later", None), set("^.*$", "last", None)], 0).unwrap();
    for (key, expected) in [("ab", "first"), ("b", "second"), ("z", "later"), ("x", "last")] {
        assert_eq!(value(&map, key, 0), expected);
    }
}

#[test]
fn found_entries_stay_marked() {
    let map = MapSnapshot::new(Arc::new(table(MapKind::Exact, &[("a", "1"), ("b", "2")])));
    assert_eq!(value(&map, "a", 0), "1");
    let found = |map: &MapSnapshot| -> Vec<String> {
        map.entries(0).filter(|entry| entry.is_found).map(|entry| entry.key.into_owned()).collect()
    };
    assert_eq!(found(&map), ["a"]);
    let many: Vec<MapChange> = (0..2000).map(|n| set(&format!("key-{n}"), "3", None)).collect();
    let merged = map.with_changes(&many, 0).unwrap();
    assert_eq!(merged.len(), 2002);
    assert_eq!(found(&merged), ["a"]);
}

proptest! {
    /// Whatever the order of changes and their merging, lookups agree with a plain map.
    #[test]
    fn changes_agree_with_a_plain_map(
        steps in proptest::collection::vec((0..40_u8, 0..4_u8, proptest::option::of(1..50_u64)), 0..200),
        batch in 1..40_usize,
    ) {
        let mut map = MapSnapshot::new(Arc::new(table(MapKind::Exact, &[("k0", "v"), ("k1", "v"), ("k2", "v")])));
        let mut plain: BTreeMap<String, (String, u64)> =
            (0..3).map(|n| (format!("k{n}"), ("v".to_owned(), u64::MAX))).collect();
        for (now_ms, steps) in (0..).zip(steps.chunks(batch)) {
            let changes: Vec<MapChange> = steps
                .iter()
                .map(|(key, value, ends_ms)| match value {
                    0 => delete(&format!("k{key}")),
                    _ => set(&format!("k{key}"), &value.to_string(), *ends_ms),
                })
                .collect();
            map = map.with_changes(&changes, now_ms).unwrap();
            for (key, value, ends_ms) in steps {
                match value {
                    0 => drop(plain.remove(&format!("k{key}"))),
                    _ => drop(plain.insert(format!("k{key}"), (value.to_string(), ends_ms.unwrap_or(u64::MAX)))),
                }
            }
            for key in (0..40).map(|key| format!("k{key}")) {
                let expected = plain.get(&key).filter(|(_, ends)| *ends > now_ms).map_or("-", |(value, _)| value);
                prop_assert_eq!(value(&map, &key, now_ms), expected);
            }
        }
    }
}
