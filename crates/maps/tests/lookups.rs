//! Lookups by kind, and random ones compared with a naive search.

use std::net::IpAddr;

use expression::{Value, ValueType};
use ipnet::IpNet;
use maps::{MapKind, MapShape, MapTable, TableBuilder};
use maps::{MapSnapshot, MapValue};
use proptest::prelude::*;
use std::sync::Arc;

pub(crate) const TEXTS: Option<ValueType> = Some(ValueType::Text);

pub(crate) fn table(kind: MapKind, entries: &[(&str, &str)]) -> MapTable {
    let mut builder = TableBuilder::new(MapShape { kind, values: TEXTS });
    for (key, value) in entries {
        builder.add(key, value).unwrap();
    }
    builder.build().unwrap()
}

/// The value of a key as a text; `-` if there is none.
pub(crate) fn value(map: &MapSnapshot, key: &str, now_ms: u64) -> String {
    let key = match key.parse::<IpAddr>() {
        Ok(address) => Value::Address(address),
        Err(_) => Value::Text(key.as_bytes()),
    };
    match map.lookup(key, now_ms) {
        Some(Value::Text(text)) => String::from_utf8_lossy(text).into_owned(),
        Some(other) => other.to_string(),
        None => "-".to_owned(),
    }
}

#[test]
fn the_most_specific_entry_wins() {
    type Case = (MapKind, &'static [(&'static str, &'static str)], &'static [(&'static str, &'static str)]);
    let cases: &[Case] = &[
        (
            MapKind::Exact,
            &[("a", "1"), ("A", "2"), ("a b", "3")],
            &[("a", "1"), ("A", "2"), ("a b", "3"), ("", "-"), ("ab", "-")],
        ),
        (
            MapKind::Prefix,
            &[("/", "root"), ("/a", "a"), ("/a/b", "ab"), ("/b", "b")],
            &[
                ("/", "root"),
                ("/ab", "a"),
                ("/a/b/c", "ab"),
                ("/c", "root"),
                ("x", "-"),
                ("", "-"),
                ("/bb", "b"),
            ],
        ),
        (
            MapKind::Suffix,
            &[
                ("example.com", "domain"),
                ("*.example.com", "below"),
                ("www.example.com", "www"),
                ("Other.Example.", "other"),
            ],
            &[
                ("example.com", "domain"),
                ("a.example.com", "below"),
                ("a.b.example.com", "below"),
                ("www.example.com", "www"),
                ("x.www.example.com", "www"),
                ("myexample.com", "-"),
                ("com", "-"),
                ("other.example", "other"),
                ("a.other.example", "other"),
                ("", "-"),
            ],
        ),
        (
            MapKind::Network,
            &[
                ("10.0.0.0/8", "ten"),
                ("10.1.0.0/16", "office"),
                ("10.1.2.3", "printer"),
                ("0.0.0.0/0", "v4"),
                ("2001:db8::/32", "documentation"),
            ],
            &[
                ("10.2.0.1", "ten"),
                ("10.1.9.9", "office"),
                ("10.1.2.3", "printer"),
                ("10.1.2.4", "office"),
                ("11.0.0.1", "v4"),
                ("255.255.255.255", "v4"),
                ("::ffff:10.1.2.3", "printer"),
                ("2001:db8::1", "documentation"),
                ("2001:db9::1", "-"),
            ],
        ),
        (
            MapKind::Regex,
            &[("^/a", "begins"), ("b$", "ends"), ("(?i)C", "has")],
            &[("/ab", "begins"), ("xb", "ends"), ("xcx", "has"), ("x", "-")],
        ),
    ];
    for (kind, entries, lookups) in cases {
        let map = MapSnapshot::new(Arc::new(table(*kind, entries)));
        for (key, expected) in *lookups {
            assert_eq!(value(&map, key, 0), *expected, "{kind:?} {key}");
        }
    }
}

#[test]
fn values_have_their_type() {
    for (of, written, expected) in [
        (Some(ValueType::Integer), "-7", Value::Integer(-7)),
        (Some(ValueType::Boolean), "true", Value::Boolean(true)),
        (Some(ValueType::Duration), "1m30s", Value::Duration(90_000_000_000)),
        (TEXTS, "a b", Value::Text(b"a b")),
        (None, "", Value::Boolean(true)),
    ] {
        let mut builder = TableBuilder::new(MapShape { kind: MapKind::Exact, values: of });
        builder.add("other", written).unwrap();
        builder.add("key", written).unwrap();
        let map = MapSnapshot::new(Arc::new(builder.build().unwrap()));
        assert_eq!(map.lookup(Value::Text(b"key"), 0), Some(expected), "{written}");
    }
}

#[test]
fn mistakes_name_the_entry_and_the_remedy() {
    let of = |kind, values| MapShape { kind, values };
    for (shape, key, value, expected) in [
        (of(MapKind::Exact, TEXTS), "", "a", "the key is empty"),
        (of(MapKind::Exact, TEXTS), "a", "b\nc", "'\\n' has no place in a value"),
        (of(MapKind::Exact, None), "a", "b", "the keys of this map have no values, but \"b\" follows a key"),
        (
            of(MapKind::Exact, Some(ValueType::Integer)),
            "a",
            "x",
            "the value \"x\" is not an integer such as 10",
        ),
        (of(MapKind::Exact, Some(ValueType::Boolean)), "a", "yes", "the value \"yes\" is not true or false"),
        (
            of(MapKind::Exact, Some(ValueType::Duration)),
            "a",
            "5",
            "the value \"5\" is not a duration such as 1m30s",
        ),
        (
            of(MapKind::Network, None),
            "10.0.0.0/33",
            "",
            "\"10.0.0.0/33\" is not a network; write an address such as 192.0.2.1 or a network such as 192.0.2.0/24",
        ),
        (
            of(MapKind::Network, None),
            "10.0.0.1/8",
            "",
            "10.0.0.1/8 has bits beyond its prefix; write 10.0.0.0/8",
        ),
        (
            of(MapKind::Suffix, TEXTS),
            "a..b",
            "c",
            "\"a..b\" is not a host name; write example.com, or *.example.com for its subdomains alone",
        ),
        (of(MapKind::Regex, TEXTS), "(", "c", "\"(\" is not a regular expression: unclosed group"),
    ] {
        let fault = TableBuilder::new(shape).add(key, value).unwrap_err();
        assert_eq!(fault.to_string(), expected);
    }
    for (kind, [first, second], name) in [
        (MapKind::Exact, ["a", "a"], "a"),
        (MapKind::Regex, ["a", "a"], "a"),
        (MapKind::Prefix, ["a", "a"], "a"),
        (MapKind::Suffix, ["A.b", "a.b."], "a.b"),
        (MapKind::Network, ["10.0.0.1", "10.0.0.1/32"], "10.0.0.1/32"),
    ] {
        for (values, is_accepted) in [(["1", "1"], true), (["1", "2"], false)] {
            let mut builder = TableBuilder::new(of(kind, TEXTS));
            builder.add(first, values[0]).unwrap();
            let built = builder.add(second, values[1]).and_then(|()| builder.build());
            match built {
                Ok(table) => assert!(is_accepted && table.len() == 1, "{kind:?}"),
                Err(fault) => {
                    assert!(!is_accepted, "{kind:?}");
                    assert_eq!(
                        fault.to_string(),
                        format!("the key {name} appears twice, with different values")
                    );
                }
            }
        }
    }
}

#[test]
fn a_million_entries_take_less_than_100_megabytes() {
    let of = |kind| MapShape { kind, values: TEXTS };
    for (shape, key) in [
        (of(MapKind::Network), (|n| IpAddr::from((n * 13).to_be_bytes()).to_string()) as fn(u32) -> String),
        (of(MapKind::Exact), |n| format!("user-{n}@example.com")),
        (of(MapKind::Prefix), |n| format!("/articles/{n}/")),
    ] {
        let mut builder = TableBuilder::new(shape);
        for n in 0..1_000_000 {
            builder.add(&key(n), ["red", "green", "blue"][n as usize % 3]).unwrap();
        }
        let table = builder.build().unwrap();
        assert_eq!(table.len(), 1_000_000);
        assert!(table.memory_bytes() < 100_000_000, "{shape:?}: {}", table.memory_bytes());
    }
}

proptest! {
    #[test]
    fn networks_are_found_as_by_a_naive_search(
        networks in proptest::collection::vec((any::<u32>(), 0..=32_u8), 0..60),
        addresses in proptest::collection::vec((any::<u32>(), any::<u8>()), 0..60),
    ) {
        // Few bits differ, so that networks lie within each other.
        let address = |bits: u32| IpAddr::from((bits & 0xf00f_000f).to_be_bytes());
        let nets: Vec<IpNet> =
            networks.iter().map(|(bits, length)| IpNet::new(address(*bits), *length).unwrap().trunc()).collect();
        let mut builder = TableBuilder::new(MapShape { kind: MapKind::Network, values: TEXTS });
        for net in &nets {
            builder.insert(&net.to_string(), &MapValue::Text(net.to_string().into()), None).unwrap();
        }
        let map = MapSnapshot::new(Arc::new(builder.build().unwrap()));
        for (bits, _) in addresses {
            let address = address(bits);
            let best = nets.iter().filter(|net| net.contains(&address)).max_by_key(|net| net.prefix_len());
            let expected = best.map_or("-".to_owned(), ToString::to_string);
            prop_assert_eq!(value(&map, &address.to_string(), 0), expected);
        }
    }

    #[test]
    fn prefixes_and_hosts_are_found_as_by_a_naive_search(
        keys in proptest::collection::vec("[ab]{1,3}(\\.[ab]{1,2}){0,3}", 0..40),
        texts in proptest::collection::vec("[ab]{1,3}(\\.[ab]{1,2}){0,4}", 0..40),
    ) {
        for kind in [MapKind::Prefix, MapKind::Suffix] {
            let mut builder = TableBuilder::new(MapShape { kind, values: TEXTS });
            for key in &keys {
                builder.add(key, key).unwrap();
            }
            let map = MapSnapshot::new(Arc::new(builder.build().unwrap()));
            for text in &texts {
                let matches = |key: &&String| match kind {
                    MapKind::Prefix => text.starts_with(*key),
                    _ => text == *key || text.ends_with(&format!(".{key}")),
                };
                let best = keys.iter().filter(matches).max_by_key(|key| key.len());
                prop_assert_eq!(value(&map, text, 0), best.map_or("-", String::as_str), "{:?}", kind);
            }
        }
    }
}
