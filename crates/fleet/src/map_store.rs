//! Changes of maps that all instances make, in etcd. Each changed entry is a key. The entries of a replacement are a
//! text in pieces; the key `maps/heads/NAME` names its generation, so that all instances switch to it at once.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::etcd::{EtcdEvent, EtcdFailure, EtcdKeys, KeyValue, Write};
use crate::store::{EtcdStore, now, read};

/// The most changed entries of one map. They take the memory of each instance.
const MAP_CHANGES_MAX: usize = 200_000;
/// The largest text of a replacement: a million networks with a word each. etcd keeps former ones until it compacts.
const MAP_TEXT_BYTES_MAX: usize = 32 << 20;
/// A piece of a text. etcd refuses requests above 1.5 MiB, and a busy one has to answer within the client's limit.
const PIECE_BYTES: usize = 128 << 10;
/// Entries of one write. etcd refuses more than 128 operations.
const WRITE_ENTRIES_MAX: usize = 100;
/// Entries of one answer.
const PAGE_ENTRIES: usize = 2000;
/// Unfinished replacements that a new one deletes.
const REMAINS_MAX: usize = 20;
/// Time that an entry stays in etcd after its end, for instances whose clocks are behind.
const LEASE_MARGIN: Duration = Duration::from_secs(60);
/// The longest lease that etcd grants.
const LEASE_MAX: Duration = Duration::from_secs(8_999_999_999);

const ALL: &str = "maps/";
const HEADS: &str = "maps/heads/";
const CHANGES: &str = "maps/changes/";
/// Outside of `maps/`, so that no watch reports the pieces to all instances.
const PIECES: &str = "map-pieces/";
/// Written with each change, so that the watch reports each.
const LAST: &str = "maps/last";

/// An entry of a map as an operator has changed it.
///
/// The end is a time in the value, and not that of a lease. Without etcd, an instance would never learn that a lease has
/// ended, and a new leader of etcd begins the times of all leases again. A lease only deletes the key some time later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedEntry {
    /// `None` if the entry is deleted; empty for a key of a set.
    pub value: Option<String>,
    /// In milliseconds since 1970.
    pub ends_ms: Option<u64>,
}

/// A change of one key of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapChange {
    pub key: String,
    /// `None` if the key is again as in the configuration.
    pub entry: Option<ChangedEntry>,
}

/// The state of a map in etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapState {
    /// Differs after each replacement and reset; `None` if there was none.
    pub generation: Option<String>,
    pub base: MapBase,
    /// All keys that differ from the base.
    pub changes: Vec<MapChange>,
}

/// The entries under the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapBase {
    /// The entries that the instance has, of the same generation.
    Known,
    /// The entries of the configuration.
    Configuration,
    /// The entries of a text, as `vanward map replace` reads it.
    Text(Vec<u8>),
}

/// A change for all instances.
#[derive(Debug)]
pub enum MapWork {
    Change(Vec<MapChange>),
    /// Replaces all entries by those of a text.
    Replace(Vec<u8>),
    Reset,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct MapHead {
    generation: String,
    /// Pieces of the text that replaces all entries; 0 if there is none.
    pieces: usize,
}

/// The last change of any map.
#[derive(Serialize)]
struct LastChange<'a> {
    map: &'a str,
    by: &'a str,
    /// In seconds since 1970.
    at: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MapNews {
    /// Changes by map.
    Changes(Vec<(String, MapChange)>),
    /// A map was replaced or reset.
    Head,
}

impl EtcdStore {
    /// Keys with changes of maps.
    pub(crate) fn maps(&self) -> EtcdKeys {
        EtcdKeys::Below(self.location().own(ALL))
    }

    /// Reads the state of maps. `known` has the names and the generations that the instance has; `take` gets each state.
    /// Returns the revision.
    pub(crate) async fn look_at_maps(
        &self,
        known: Vec<(String, Option<String>)>,
        mut take: impl AsyncFnMut(String, MapState),
    ) -> Result<i64, EtcdFailure> {
        let heads = EtcdKeys::Below(self.location().own(HEADS));
        let (revision, found) = self.client.read(&[heads]).await?;
        for (name, known) in known {
            let key = self.location().own(&format!("{HEADS}{name}"));
            let head = found.iter().flatten().find(|entry| entry.key == key);
            let head: Option<MapHead> = head.map(read).transpose()?;
            let base = match &head {
                head if head.as_ref().map(|head| &head.generation) == known.as_ref() => MapBase::Known,
                Some(head @ MapHead { pieces: 1.., .. }) => {
                    MapBase::Text(self.map_text(&name, head, revision).await?)
                }
                Some(MapHead { pieces: 0, .. }) | None => MapBase::Configuration,
            };
            let changes = self.map_changes(&name, revision).await?;
            take(name, MapState { generation: head.map(|head| head.generation), base, changes }).await;
        }
        Ok(revision)
    }

    async fn map_text(&self, name: &str, head: &MapHead, revision: i64) -> Result<Vec<u8>, EtcdFailure> {
        let prefix = self.pieces_of(name, &head.generation);
        let mut text = Vec::new();
        for number in 0..head.pieces {
            let key = piece_key(&prefix, number);
            let found = self.client.page(&prefix, &key, (1, revision)).await?;
            let piece = found.into_iter().find(|piece| piece.key == key);
            let lost =
                || EtcdFailure::Refused(format!("a part of map.{name} is lost: replace the map again"));
            text.extend(piece.ok_or_else(lost)?.value);
            if text.len() > MAP_TEXT_BYTES_MAX {
                return Err(EtcdFailure::Refused(too_large(text.len())));
            }
        }
        Ok(text)
    }

    async fn map_changes(&self, name: &str, revision: i64) -> Result<Vec<MapChange>, EtcdFailure> {
        let prefix = self.location().own(&format!("{CHANGES}{name}/"));
        let (mut changes, mut from) = (Vec::new(), prefix.clone());
        loop {
            let page = self.client.page(&prefix, &from, (PAGE_ENTRIES, revision)).await?;
            let is_last = page.len() < PAGE_ENTRIES;
            // The key behind the last one.
            from = page.last().map(|last| format!("{}\0", last.key)).unwrap_or_default();
            changes.extend(page.iter().filter_map(|entry| {
                let key = entry.key.strip_prefix(&prefix)?.to_owned();
                Some(MapChange { key, entry: Some(read(entry).ok()?) })
            }));
            if is_last || changes.len() >= MAP_CHANGES_MAX {
                changes.truncate(MAP_CHANGES_MAX);
                return Ok(changes);
            }
        }
    }

    /// The meaning of events of a watch of [`Self::maps`].
    pub(crate) fn map_news(&self, events: &[EtcdEvent]) -> MapNews {
        let (heads, changed) = (self.location().own(HEADS), self.location().own(CHANGES));
        let mut changes = Vec::new();
        for EtcdEvent { entry, is_deleted } in events {
            if entry.key.starts_with(&heads) {
                return MapNews::Head;
            }
            let Some((name, key)) = entry.key.strip_prefix(&changed).and_then(|rest| rest.split_once('/'))
            else {
                continue;
            };
            // An unreadable entry changes nothing.
            let entry = if *is_deleted { Some(None) } else { read(entry).ok().map(Some) };
            let change = entry.map(|entry| MapChange { key: key.to_owned(), entry });
            changes.extend(change.map(|change| (name.to_owned(), change)));
        }
        MapNews::Changes(changes)
    }

    /// Makes a change for all instances. Returns its revision, or why it is not made.
    pub(crate) async fn change_map(&self, name: &str, work: MapWork, by: &str) -> Result<i64, String> {
        match work {
            MapWork::Change(changes) => self.write_changes(name, changes, by).await,
            MapWork::Replace(text) if text.len() > MAP_TEXT_BYTES_MAX => Err(too_large(text.len())),
            MapWork::Replace(text) => self.replace_map(name, Some(&text), by).await,
            MapWork::Reset => self.replace_map(name, None, by).await,
        }
    }

    async fn write_changes(&self, name: &str, changes: Vec<MapChange>, by: &str) -> Result<i64, String> {
        let ends = changes.iter().filter_map(|change| change.entry.as_ref()?.ends_ms).max();
        let lease = match ends {
            Some(ends_ms) => {
                let rest = Duration::from_millis(ends_ms).saturating_sub(since_1970()) + LEASE_MARGIN;
                self.client.lease(rest.min(LEASE_MAX)).await.map_err(told)?
            }
            None => 0,
        };
        let mut revision = 0;
        for (done, part) in (0..).step_by(WRITE_ENTRIES_MAX).zip(changes.chunks(WRITE_ENTRIES_MAX)) {
            let write = |MapChange { key, entry }: &MapChange| {
                let key = format!("{CHANGES}{name}/{key}");
                match entry {
                    Some(entry) => self.put(&key, entry, if entry.ends_ms.is_some() { lease } else { 0 }),
                    None => Write::Delete(EtcdKeys::One(self.location().own(&key))),
                }
            };
            let mut writes: Vec<Write> = part.iter().map(write).collect();
            writes.push(self.last(name, by));
            let written = self.client.write(&[], &writes).await;
            let written = written.map_err(|failure| match done {
                0 => told(failure),
                _ => {
                    let all = changes.len();
                    format!("{}; {done} of {all} entries are changed: repeat the command", told(failure))
                }
            })?;
            revision = written.unwrap_or(revision);
        }
        Ok(revision)
    }

    /// Replaces all entries of a map by those of a text, or by those of the configuration.
    async fn replace_map(&self, name: &str, text: Option<&[u8]>, by: &str) -> Result<i64, String> {
        let head_key = self.location().own(&format!("{HEADS}{name}"));
        let (all_pieces, changes) =
            (self.location().own(&format!("{PIECES}{name}/")), format!("{CHANGES}{name}/"));
        let wanted = [EtcdKeys::One(head_key.clone()), EtcdKeys::NamesBelow(all_pieces.clone())];
        let (_, found) = self.client.read(&wanted).await.map_err(told)?;
        let mut found = found.into_iter();
        let head_written =
            found.next().unwrap_or_default().first().map_or(0, |entry: &KeyValue| entry.modified);
        let remains: BTreeSet<String> = found
            .next()
            .unwrap_or_default()
            .iter()
            .filter_map(|piece| Some(piece.key.strip_prefix(&all_pieces)?.split_once('/')?.0.to_owned()))
            .collect();

        let generation = format!("{}-{by}", since_1970().as_millis());
        let prefix = self.pieces_of(name, &generation);
        let pieces: Vec<&[u8]> = match text {
            // A text without entries is one, too.
            Some([]) => vec![b""],
            text => text.unwrap_or_default().chunks(PIECE_BYTES).collect(),
        };
        for (number, piece) in pieces.iter().enumerate() {
            let put = Write::Put { key: piece_key(&prefix, number), value: piece.to_vec(), lease: 0 };
            self.client.write(&[], &[put]).await.map_err(told)?;
        }
        let pieces = pieces.len();
        let head = MapHead { generation, pieces };
        let mut writes = vec![
            self.put(&format!("{HEADS}{name}"), &head, 0),
            Write::Delete(EtcdKeys::Below(self.location().own(&changes))),
            self.last(name, by),
        ];
        // Also those of replacements under way: they then find another head, and fail.
        let remains = remains.iter().take(REMAINS_MAX).map(|old| self.pieces_of(name, old));
        writes.extend(remains.map(|old| Write::Delete(EtcdKeys::Below(old))));
        let written = self.client.write(&[(&head_key, head_written)], &writes).await.map_err(told)?;
        if written.is_none() {
            let own = Write::Delete(EtcdKeys::Below(prefix));
            self.client.write(&[], &[own]).await.map_err(told)?;
        }
        written.ok_or_else(|| "another instance has replaced the map at the same time".to_owned())
    }

    fn last(&self, map: &str, by: &str) -> Write {
        self.put(LAST, &LastChange { map, by, at: now() }, 0)
    }

    fn pieces_of(&self, name: &str, generation: &str) -> String {
        self.location().own(&format!("{PIECES}{name}/{generation}/"))
    }
}

fn piece_key(prefix: &str, number: usize) -> String {
    format!("{prefix}{number:04}")
}

fn told(failure: EtcdFailure) -> String {
    match failure {
        EtcdFailure::Unreachable(why) => format!("etcd does not answer: {why}"),
        EtcdFailure::Refused(_) => failure.to_string(),
    }
}

fn too_large(bytes: usize) -> String {
    format!(
        "its text has {} MiB, and etcd takes {}: put it into a file of the map on each machine",
        bytes.div_ceil(1 << 20),
        MAP_TEXT_BYTES_MAX >> 20
    )
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}
