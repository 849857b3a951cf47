//! Metrics of maps.

use crate::text::{MetricsText, Type};

/// A map, when the metrics are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapSample {
    pub name: String,
    /// Look-ups that found an entry, since the start.
    pub hits: u64,
    /// Look-ups that found none, since the start.
    pub misses: u64,
    pub entries: u64,
}

/// Renders the metrics. Writes nothing if there are no maps.
pub(crate) fn write(maps: &[MapSample], text: &mut MetricsText) {
    if maps.is_empty() {
        return;
    }
    let help = "Entries of maps.";
    let mut family = text.family("vanward_map_entries", Type::Gauge, help);
    for map in maps {
        family.sample(&[("map", &map.name)], map.entries);
    }
    let help = "Look-ups in maps, by result: hit or miss.";
    let mut family = text.family("vanward_map_lookups", Type::Counter, help);
    for map in maps {
        family.sample(&[("map", &map.name), ("result", "hit")], map.hits);
        family.sample(&[("map", &map.name), ("result", "miss")], map.misses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Syntax;

    #[test]
    fn maps_have_entries_and_lookups() {
        let mut text = MetricsText::new(Syntax::accepted(""));
        let map = MapSample { name: "banned".to_owned(), hits: 3, misses: 4, entries: 5 };
        write(&[map], &mut text);
        let page = String::from_utf8(text.finish()).expect("it is text");
        let lines: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "vanward_map_entries{map=\"banned\"} 5",
                "vanward_map_lookups_total{map=\"banned\",result=\"hit\"} 3",
                "vanward_map_lookups_total{map=\"banned\",result=\"miss\"} 4",
            ]
        );
    }
}
