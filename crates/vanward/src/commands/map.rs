//! `vanward map`: shows and changes the maps of the running proxy, without a reload.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::maps::{
    MapChanged, MapEntries, MapEntry, MapLookupOrder, MapLookupResult, MapOrder, MapSetting, MapSharing,
    MapStatus,
};

use maps::MapShape;

use super::faults::escaped;
use super::reach::ProxySelection;
use super::table::{self, Align};
use super::units;

/// Shows and changes the maps of the running proxy.
///
/// A change applies to the next request. It survives reloads and upgrades, until `reset`; a restart forgets it. The file
/// of a map is read again when it changes; changes by commands stay on top. Instances with a configuration in etcd share
/// their changes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct MapArgs {
    #[command(subcommand)]
    what: Option<MapCommand>,

    /// Print the maps as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: ProxySelection,
}

#[derive(clap::Subcommand)]
enum MapCommand {
    /// Lists entries of a map
    Show {
        /// Name of the map in the configuration
        name: String,
        /// Print the entries as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        reach: ProxySelection,
    },
    /// Prints the value of a key, as a request with this key gets it. Exits with 1 if there is none
    Get {
        /// Name of the map in the configuration
        name: String,
        /// Key, such as an address or a host
        key: String,
        #[command(flatten)]
        reach: ProxySelection,
    },
    Set(Set),
    /// Deletes entries
    Delete {
        /// Name of the map in the configuration
        name: String,
        /// Keys, as `show` lists them
        #[arg(required = true)]
        keys: Vec<String>,
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        reach: ProxySelection,
    },
    /// Replaces all entries by those of a file: `key value` on each line, or a key if the map is a set
    Replace {
        /// Name of the map in the configuration
        name: String,
        /// File of entries; `-` reads standard input
        file: PathBuf,
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        reach: ProxySelection,
    },
    /// Drops all changes: the entries of the configuration and its file apply again
    Reset {
        /// Name of the map in the configuration
        name: String,
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        reach: ProxySelection,
    },
}

#[derive(Clone, Copy, clap::Args)]
struct Scope {
    /// Change this instance alone, if instances share their maps through etcd
    #[arg(long)]
    here: bool,
}

impl Scope {
    /// The place in the admin API that changes a map.
    fn place(self, name: &str, what: &str) -> String {
        format!("/maps/{}/{what}{}", escaped(name), if self.here { "?here" } else { "" })
    }
}

/// Sets entries, which may exist.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
struct Set {
    /// Name of the map in the configuration
    name: String,

    /// Key of the entry
    #[arg(required_unless_present = "file")]
    key: Option<String>,

    /// Value of the entry; none if the map is a set
    value: Option<String>,

    /// Delete the entries after this time: 10m, 1h
    #[arg(long = "for", value_name = "DURATION", value_parser = config::duration)]
    lifetime: Option<Duration>,

    /// Set all entries of a file; `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "value"])]
    file: Option<PathBuf>,

    #[command(flatten)]
    scope: Scope,

    #[command(flatten)]
    reach: ProxySelection,
}

const EXAMPLES: &str = "\
Examples:
  vanward map                                      lists the maps, with hits and misses
  vanward map set banned 203.0.113.7 --for 1h      bans an address for an hour
  vanward map set tenant shop.example.com acme
  vanward map get tenant shop.example.com
  vanward map delete banned 203.0.113.7
  vanward map replace banned blocklist.txt
  vanward map reset banned
  vanward map set banned 203.0.113.7 --here        on this instance alone, while etcd does not answer";

pub(crate) fn run(arguments: &MapArgs) -> ExitCode {
    let MapArgs { what, json, reach } = arguments;
    let done = match what {
        None => list(reach, *json),
        Some(MapCommand::Show { name, json, reach }) => show(reach, name, *json),
        Some(MapCommand::Get { name, key, reach }) => {
            return get(reach, name, key).unwrap_or_else(|code| code);
        }
        Some(MapCommand::Set(set)) => sets(set),
        Some(MapCommand::Delete { name, keys, scope, reach }) => {
            let order = MapOrder { delete: keys.clone(), ..MapOrder::default() };
            change(reach, *scope, name, &order)
        }
        Some(MapCommand::Replace { name, file, scope, reach }) => read(file).and_then(|text| {
            let changed: MapChanged = reach.post_text(&scope.place(name, "replace"), &text)?.told()?;
            super::say(format_args!("map.{name} has {} entries{}", changed.changes, whose(&changed)));
            Ok(())
        }),
        Some(MapCommand::Reset { name, scope, reach }) => reset(reach, *scope, name),
    };
    done.map_or_else(|code| code, |()| ExitCode::SUCCESS)
}

fn list(reach: &ProxySelection, is_json: bool) -> Result<(), ExitCode> {
    let answer = reach.get("/maps")?;
    let maps: Vec<MapStatus> = answer.told()?;
    print(&match (is_json, maps.as_slice()) {
        (true, _) => String::from_utf8_lossy(&answer.body).into_owned(),
        (false, []) => "the configuration has no maps\n".to_owned(),
        (false, maps) => statuses(maps, now()),
    });
    Ok(())
}

fn statuses(maps: &[MapStatus], now: u64) -> String {
    let row = |map: &MapStatus| {
        let changes = match (map.is_replaced, map.changed) {
            (true, 0) => "replaced by command".to_owned(),
            (true, changed) => format!("replaced by command, {changed} changes since"),
            (false, 0) => String::new(),
            (false, changed) => format!("{changed} changed by command"),
        };
        let shared = map.shared.map(|sharing| shared(sharing, now)).unwrap_or_default();
        let notes: Vec<&str> =
            [changes.as_str(), &shared].into_iter().filter(|note| !note.is_empty()).collect();
        [
            map.name.clone(),
            format!("{} to {}", map.kind, map.values),
            map.entries.to_string(),
            map.hits.to_string(),
            map.misses.to_string(),
            map.unused.to_string(),
            units::bytes(map.memory_bytes as f64),
            notes.join(", "),
        ]
    };
    let columns = [
        ("MAP", Align::Left),
        ("KIND", Align::Left),
        ("ENTRIES", Align::Right),
        ("HITS", Align::Right),
        ("MISSES", Align::Right),
        ("UNUSED", Align::Right),
        ("MEMORY", Align::Right),
        ("", Align::Left),
    ];
    table::table(columns, &maps.iter().map(row).collect::<Vec<_>>())
}

/// Says that a map is shared, and how current it is.
fn shared(MapSharing { as_of }: MapSharing, now: u64) -> String {
    match as_of {
        Some(as_of) => {
            let age = Duration::from_secs(now.saturating_sub(as_of));
            format!("shared, as of {} ago", config::written_duration(age))
        }
        None => "shared, not read from etcd yet".to_owned(),
    }
}

/// In seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn show(reach: &ProxySelection, name: &str, is_json: bool) -> Result<(), ExitCode> {
    let answer = reach.get(&format!("/maps/{}", escaped(name)))?;
    let entries: MapEntries = answer.told()?;
    print(&if is_json { String::from_utf8_lossy(&answer.body).into_owned() } else { listed(&entries) });
    Ok(())
}

fn listed(MapEntries { entries, total }: &MapEntries) -> String {
    if entries.is_empty() {
        return "no entries\n".to_owned();
    }
    let row = |entry: &MapEntry| {
        let end = entry.ends_in_seconds.map(|seconds| config::written_duration(Duration::from_secs(seconds)));
        let end = end.map(|end| format!("ends in {end}")).unwrap_or_default();
        let used = if entry.is_used { "" } else { "unused" };
        [entry.key.clone(), entry.value.clone(), used.to_owned(), end]
    };
    let columns = [("KEY", Align::Left), ("VALUE", Align::Left), ("", Align::Left), ("", Align::Left)];
    let mut text = table::table(columns, &entries.iter().map(row).collect::<Vec<_>>());
    if entries.len() < *total {
        text += &format!("  and {} more\n", total - entries.len());
    }
    text
}

fn get(reach: &ProxySelection, name: &str, key: &str) -> Result<ExitCode, ExitCode> {
    let order = MapLookupOrder { key: key.to_owned() };
    let MapLookupResult { value, shared: sharing } =
        reach.post(&format!("/maps/{}/lookup", escaped(name)), &order)?.told()?;
    if let Some(sharing) = sharing {
        super::say(format_args!("map.{name} is {}", shared(sharing, now())));
    }
    match value {
        Some(value) => {
            print(&format!("{value}\n"));
            Ok(ExitCode::SUCCESS)
        }
        None => Err(super::fail(super::FAILED, format_args!("map.{name} has no entry for {key}"))),
    }
}

fn sets(set: &Set) -> Result<(), ExitCode> {
    let Set { name, key, value, lifetime, file, scope, reach } = set;
    // A lifetime has whole seconds; a shorter one is a second.
    let ends_in_seconds = lifetime.map(|lifetime| lifetime.as_secs().max(1));
    let entry = |key: &str, value: Option<&str>| MapSetting {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        ends_in_seconds,
    };
    let set = match (file, key) {
        (Some(file), _) => {
            let text = read(file)?;
            let shape = shape(reach, name)?;
            let entries = text.lines().filter_map(|line| maps::entry_of_line(shape, line));
            entries.map(|(key, value)| entry(key, (!value.is_empty()).then_some(value))).collect()
        }
        // clap requires one of both.
        (None, key) => vec![entry(key.as_deref().unwrap_or_default(), value.as_deref())],
    };
    change(reach, *scope, name, &MapOrder { set, ..MapOrder::default() })
}

/// The shape of a map, which decides how lines are read.
fn shape(reach: &ProxySelection, name: &str) -> Result<MapShape, ExitCode> {
    let maps: Vec<MapStatus> = reach.get("/maps")?.told()?;
    let known = maps.iter().find(|map| map.name == name);
    let shape = known.and_then(|map| MapShape::of_words(&map.kind, &map.values));
    // The proxy says which maps there are.
    let unknown = || change(reach, Scope { here: true }, name, &MapOrder::default()).err();
    shape.ok_or_else(|| unknown().unwrap_or_else(|| ExitCode::from(super::FAILED)))
}

fn change(reach: &ProxySelection, scope: Scope, name: &str, order: &MapOrder) -> Result<(), ExitCode> {
    let changed: MapChanged = reach.post(&scope.place(name, "change"), order)?.told()?;
    let entries = match changed.changes {
        1 => "1 entry is".to_owned(),
        changes => format!("{changes} entries are"),
    };
    super::say(format_args!("{entries} changed{}", whose(&changed)));
    Ok(())
}

fn reset(reach: &ProxySelection, scope: Scope, name: &str) -> Result<(), ExitCode> {
    let changed: MapChanged = reach.post_text(&scope.place(name, "reset"), "")?.told()?;
    let count = changed.changes;
    super::say(format_args!("map.{name} has the {count} entries of the configuration{}", whose(&changed)));
    Ok(())
}

fn whose(changed: &MapChanged) -> &'static str {
    if changed.is_shared { ", for all instances" } else { "" }
}

fn read(file: &PathBuf) -> Result<String, ExitCode> {
    let text = if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    text.map_err(|error| super::fail(super::USAGE, format_args!("{}: {error}", file.display())))
}

fn print(text: &str) {
    // A closed pipe means that the reader has seen enough.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_listed_with_their_changes() {
        let map = |name: &str, changed, is_replaced, shared| MapStatus {
            name: name.to_owned(),
            kind: "network".to_owned(),
            values: "set".to_owned(),
            entries: 1200,
            memory_bytes: 4096,
            hits: 7,
            misses: 30,
            unused: 1193,
            changed,
            is_replaced,
            shared,
        };
        let as_of = |as_of| Some(MapSharing { as_of });
        let maps = [
            map("banned", 2, false, None),
            map("office", 0, true, as_of(Some(88))),
            map("x", 0, false, as_of(None)),
        ];
        let expected = "  \
  MAP     KIND            ENTRIES  HITS  MISSES  UNUSED   MEMORY
  banned  network to set     1200     7      30    1193  4.10 kB  2 changed by command
  office  network to set     1200     7      30    1193  4.10 kB  replaced by command, shared, as of 12s ago
  x       network to set     1200     7      30    1193  4.10 kB  shared, not read from etcd yet
";
        assert_eq!(statuses(&maps, 100), expected);
    }

    #[test]
    fn entries_are_listed_with_their_end() {
        let entry = |key: &str, ends_in_seconds, is_used| MapEntry {
            key: key.to_owned(),
            value: "true".to_owned(),
            ends_in_seconds,
            is_used,
        };
        let entries = vec![entry("192.0.2.1", Some(90), true), entry("192.0.2.0/24", None, false)];
        let expected = "  \
  KEY           VALUE
  192.0.2.1     true           ends in 90s
  192.0.2.0/24  true   unused
  and 3 more
";
        assert_eq!(listed(&MapEntries { entries, total: 5 }), expected);
    }
}
