//! Files of entries and their mistakes.

use std::sync::Arc;

use maps::{Column, Columns, FileFormat, MapKind, MapShape, MapSnapshot, TableBuilder};

use crate::lookups::{TEXTS, value};

fn columns(key: &str, value: Option<&str>) -> FileFormat {
    let column = |text: &str| match text.parse() {
        Ok(number) => Column::Number(number),
        Err(_) => Column::Named(text.to_owned()),
    };
    FileFormat::Csv(Columns { key: column(key), value: value.map(column) })
}

fn read(format: &FileFormat, shape: MapShape, text: &str) -> Result<MapSnapshot, String> {
    let mut builder = TableBuilder::new(shape);
    format.read(text.as_bytes(), &mut builder).map_err(|fault| fault.to_string())?;
    Ok(MapSnapshot::new(Arc::new(builder.build().map_err(|fault| fault.to_string())?)))
}

#[test]
fn entries_are_read() {
    let text_of = |kind| MapShape { kind, values: TEXTS };
    let set_of = |kind| MapShape { kind, values: None };
    for (format, shape, text, key, expected) in [
        (FileFormat::Pairs, text_of(MapKind::Exact), "# comment\n\n a  b c \r\nd\te\n", "a", "b c"),
        (FileFormat::Pairs, text_of(MapKind::Exact), "\u{feff}a 1", "a", "1"),
        (FileFormat::Keys, set_of(MapKind::Exact), "a b\n", "a b", "true"),
        (FileFormat::Keys, set_of(MapKind::Network), "192.0.2.0/24 ; SBL1\n", "192.0.2.7", "true"),
        (FileFormat::Keys, set_of(MapKind::Network), "192.0.2.1 # one\n10.0.0.0/8#two\n", "10.9.9.9", "true"),
        (
            columns("network", Some("country")),
            text_of(MapKind::Network),
            "network,name,country\n192.0.2.0/24,\"A, B\",FR\n",
            "192.0.2.9",
            "FR",
        ),
        (columns("2", Some("1")), text_of(MapKind::Exact), "x,a\ny,b\n", "b", "y"),
        (columns("1", None), set_of(MapKind::Network), "192.0.2.1,spam\n", "192.0.2.1", "true"),
        (columns("ip", None), set_of(MapKind::Network), "ip\n", "192.0.2.1", "-"),
    ] {
        let map = read(&format, shape, text).unwrap();
        assert_eq!(value(&map, key, 0), expected, "{format:?} {text:?}");
    }
}

#[test]
fn mistakes_have_their_line() {
    let text_of = |kind| MapShape { kind, values: TEXTS };
    let set = MapShape { kind: MapKind::Network, values: None };
    for (format, shape, text, expected) in [
        (FileFormat::Pairs, text_of(MapKind::Exact), "a b\nc\n", "line 2: the key c has no value"),
        (
            FileFormat::Pairs,
            text_of(MapKind::Exact),
            "a b\na c\n",
            "line 2: the key a appears twice, with different values",
        ),
        (
            FileFormat::Keys,
            set,
            "192.0.2.1 x\n",
            "line 1: the keys of this map have no values, but \"x\" follows a key",
        ),
        (
            FileFormat::Keys,
            set,
            "\nx\n",
            "line 2: \"x\" is not a network; write an address such as 192.0.2.1 or a network such as 192.0.2.0/24",
        ),
        (
            columns("netwrok", Some("country")),
            text_of(MapKind::Network),
            "network,country\n",
            "the first line has no column named \"netwrok\"; it has \"network\"",
        ),
        (
            columns("1", Some("3")),
            text_of(MapKind::Exact),
            "a,b,c\nd,e\n",
            "line 2: it has 2 columns, but column 3 is needed",
        ),
    ] {
        let fault = read(&format, shape, text).err();
        assert_eq!(fault.as_deref(), Some(expected), "{format:?} {text:?}");
    }
    let mut builder = TableBuilder::new(set);
    let fault = FileFormat::Keys.read(b"192.0.2.1\n\xff\n", &mut builder).unwrap_err();
    assert_eq!(fault.to_string(), "line 2 is not UTF-8 text");
}
