//! Files of maps: rejected with a line, or a table that finds each of its own keys. The first byte selects kind and form.

#![no_main]

use std::net::IpAddr;
use std::sync::Arc;

use expression::{Value, ValueType};
use libfuzzer_sys::fuzz_target;
use maps::{Column, Columns, FileFormat, MapChange, MapKind, MapShape, MapSnapshot, TableBuilder};

fuzz_target!(|bytes: &[u8]| {
    let Some((selector, text)) = bytes.split_first() else { return };
    let kind = MapKind::ALL[usize::from(selector % 5)];
    let value = |has_value: bool| has_value.then_some(Column::Number(2));
    let (format, values) = match selector / 5 % 4 {
        0 => (FileFormat::Pairs, Some(ValueType::Text)),
        1 => (FileFormat::Keys, None),
        2 => (FileFormat::Csv(Columns { key: Column::Number(1), value: value(true) }), Some(ValueType::Text)),
        _ => (FileFormat::Csv(Columns { key: Column::Named("key".to_owned()), value: value(false) }), None),
    };
    let mut builder = TableBuilder::new(MapShape { kind, values });
    if format.read(text, &mut builder).is_err() {
        return;
    }
    let Ok(table) = builder.build() else { return };
    let map = MapSnapshot::new(Arc::new(table));
    let entries: Vec<_> = map.entries(0).map(|entry| (entry.key.into_owned(), entry.value)).collect();
    assert_eq!(entries.len(), map.len());
    for (key, value) in entries.iter().take(100) {
        let found = match kind {
            // A pattern does not match itself.
            MapKind::Regex => continue,
            MapKind::Network => {
                let base: IpAddr =
                    key.split('/').next().and_then(|base| base.parse().ok()).expect("a network");
                map.peek(Value::Address(base), 0)
            }
            // The entry of subdomains alone does not match its own domain.
            MapKind::Suffix => map.peek(Value::Text(key.replacen('*', "a", 1).as_bytes()), 0),
            MapKind::Exact | MapKind::Prefix => map.peek(Value::Text(key.as_bytes()), 0),
        };
        // A longer entry may be more specific.
        assert!(found.is_some(), "{key}");
        if kind == MapKind::Exact {
            assert_eq!(found, Some(*value));
        }
    }
    if let Some((key, _)) = entries.first() {
        let changed =
            map.with_changes(&[MapChange::Delete { key: key.clone() }], 0).expect("the key is valid");
        assert_eq!(changed.entries(0).count(), entries.len() - 1);
        assert!(changed.entries(0).all(|entry| entry.key != *key));
    }
});
