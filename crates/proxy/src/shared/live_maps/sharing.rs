//! Changes of maps that all instances make. What shares them gives each instance the state of all, and later changes.
//!
//! Changes of this instance alone stay, until a shared change of the same entry, or a shared replacement or reset.

use std::collections::HashSet;

use maps::MapChange;

use super::{CHANGES_MAX, ChangeOrigin, ChangedEntry, LiveMaps, MapRefusal, MapState, place, readable};

/// A change of one key, in texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedChange {
    Set {
        key: String,
        /// Empty for a key of a set.
        value: String,
        /// In milliseconds since 1970.
        ends_ms: Option<u64>,
    },
    Delete {
        key: String,
    },
    /// The key is again as in the entries under the changes.
    Drop {
        key: String,
    },
}

/// The state of a map that all instances share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedState {
    /// Differs after each replacement and reset.
    pub generation: Option<String>,
    pub base: SharedBase,
    pub changes: Vec<SharedChange>,
}

/// The entries under the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedBase {
    /// The entries of the generation that the map has.
    Known,
    Configuration,
    /// The entries of a text, as for [`LiveMaps::replace`].
    Text(Vec<u8>),
}

impl SharedChange {
    fn key(&self) -> &str {
        match self {
            Self::Set { key, .. } | Self::Delete { key } | Self::Drop { key } => key,
        }
    }
}

impl LiveMaps {
    /// Checks a change, and returns it in the form for all instances. Changes nothing.
    ///
    /// # Errors
    /// Those of [`LiveMaps::change`].
    pub fn shared_form(
        &self,
        name: &str,
        changes: &[MapChange],
        now_ms: u64,
    ) -> Result<Vec<SharedChange>, MapRefusal> {
        let mut states = self.states();
        let place = place(&states, name)?;
        let (_, keys) = self.prepared(&mut states, place, changes, now_ms)?;
        let state = &states[place];
        let shape = state.table.shape();
        let is_here =
            |key: &str| state.changes.get(key).is_some_and(|entry| entry.origin == ChangeOrigin::Here);
        let shared = |(key, change): (String, &MapChange)| match change {
            MapChange::Set { value, ends_ms, .. } => {
                SharedChange::Set { key, value: readable(shape, value.as_value()), ends_ms: *ends_ms }
            }
            MapChange::Delete { .. } if state.base().has(&key) || is_here(&key) => {
                SharedChange::Delete { key }
            }
            MapChange::Delete { .. } => SharedChange::Drop { key },
        };
        // Of several changes of one key, the last one counts: a store may take each key once.
        let mut seen = HashSet::new();
        let last = keys.into_iter().zip(changes).rev().filter(|(key, _)| seen.insert(key.clone()));
        let mut last: Vec<SharedChange> = last.map(shared).collect();
        last.reverse();
        Ok(last)
    }

    /// Checks the text of a replacement, and returns the number of its entries. Changes nothing.
    ///
    /// # Errors
    /// Those of [`LiveMaps::replace`].
    pub fn check_replacement(&self, name: &str, text: &[u8]) -> Result<usize, MapRefusal> {
        self.replacement(name, text).map(|table| table.len())
    }

    /// The number of entries of the configuration and its file.
    ///
    /// # Errors
    /// An unknown map.
    pub fn configured_count(&self, name: &str) -> Result<usize, MapRefusal> {
        let states = self.states();
        Ok(states[place(&states, name)?].table.len())
    }

    /// The names of the maps, with the generations of their shared states.
    pub fn generations(&self) -> Vec<(String, Option<String>)> {
        self.states().iter().map(|state| (state.map.name.clone(), state.generation.clone())).collect()
    }

    /// Takes the state of a map that all instances share. Entries that do not fit the map are left out; returns why.
    pub fn take_shared(&self, name: &str, shared: SharedState, now_ms: u64) -> Vec<String> {
        let SharedState { generation, base, changes } = shared;
        let mut faults = Vec::new();
        let base = match base {
            SharedBase::Known => None,
            SharedBase::Configuration => Some(None),
            SharedBase::Text(text) => {
                let table = self.replacement(name, &text);
                Some(table.map_err(|fault| faults.push(format!("its replacement is left out: {fault}"))).ok())
            }
        };
        // The configuration may have lost the map meanwhile.
        let _ = self.update(name, |state| {
            if let Some(replacement) = base {
                state.replacement = replacement;
                state.changes.clear();
            }
            state.generation = generation;
            state.changes.retain(|_, entry| entry.origin == ChangeOrigin::Here);
            let (changes, left_out) = state.valid(&changes);
            faults.extend(left_out);
            state.take(&changes, now_ms);
        });
        faults
    }

    /// Takes changes that all instances make, in order. Those that do not fit the map are left out; returns why.
    pub fn take_shared_changes(&self, name: &str, changes: &[SharedChange], now_ms: u64) -> Vec<String> {
        let mut states = self.states();
        let Ok(place) = place(&states, name) else { return Vec::new() };
        let state = &mut states[place];
        let (changes, mut faults) = state.valid(changes);
        let shows_base =
            |(key, change): &(String, Option<MapChange>)| change.is_none() && state.base().has(key);
        let is_rebuilt = changes.iter().any(shows_base);
        state.take(&changes, now_ms);
        let next = if is_rebuilt {
            state.snapshot()
        } else {
            let changes: Vec<MapChange> = changes
                .into_iter()
                .map(|(key, change)| change.unwrap_or(MapChange::Delete { key }))
                .collect();
            let before = self.snapshots.load()[place].clone();
            before.with_changes(&changes, now_ms).unwrap_or_else(|(_, fault)| {
                faults.push(fault.to_string());
                before
            })
        };
        self.put(place, next);
        faults
    }

    /// Marks changes as made by all instances.
    pub(super) fn mark_shared(&self, name: &str, keys: &[String]) -> Result<(), MapRefusal> {
        let mut states = self.states();
        let place = place(&states, name)?;
        for key in keys {
            if let Some(entry) = states[place].changes.get_mut(key) {
                entry.origin = ChangeOrigin::Shared;
            }
        }
        Ok(())
    }
}

impl MapState {
    /// The changes that fit the map, with keys in normal form, and why others do not. `None` drops a change.
    fn valid(&self, changes: &[SharedChange]) -> (Vec<(String, Option<MapChange>)>, Vec<String>) {
        let (mut valid, mut faults) = (Vec::with_capacity(changes.len()), Vec::new());
        for change in changes {
            let parsed = self.table.normal_key(change.key()).and_then(|key| {
                let parsed = match change {
                    SharedChange::Set { value, ends_ms, .. } => {
                        let value = self.table.shape().value(value)?;
                        Some(MapChange::Set { key: key.clone(), value, ends_ms: *ends_ms })
                    }
                    SharedChange::Delete { .. } => Some(MapChange::Delete { key: key.clone() }),
                    SharedChange::Drop { .. } => None,
                };
                Ok((key, parsed))
            });
            match parsed {
                Ok(change) => valid.push(change),
                Err(fault) => faults.push(format!("{} is left out: {fault}", change.key())),
            }
        }
        (valid, faults)
    }

    /// Records valid changes of all instances.
    fn take(&mut self, changes: &[(String, Option<MapChange>)], now_ms: u64) {
        self.changes.retain(|_, entry| entry.ends_ms.is_none_or(|end| end > now_ms));
        for (key, change) in changes {
            match change {
                Some(_) if self.changes.len() >= CHANGES_MAX && !self.changes.contains_key(key) => {}
                Some(change) => self.record([(key.clone(), change)], ChangeOrigin::Shared),
                None => {
                    let is_shared = |entry: &&ChangedEntry| entry.origin == ChangeOrigin::Shared;
                    if self.changes.get(key).filter(is_shared).is_some() {
                        self.changes.remove(key);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use expression::Value;

    use super::*;

    const CONFIG: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = { status = 204 }\n\
                          [map.tenant]\nkey = 'request.host'\nentries = { a = \"file\", b = \"file\" }\n";

    fn maps() -> LiveMaps {
        let config = config::parse(CONFIG, "vanward.toml").expect("it is valid");
        LiveMaps::new(&config, None)
    }

    /// The values of the keys a to f; `-` if there is none.
    fn values(maps: &LiveMaps) -> String {
        let value = |key: &str| {
            let peeked = maps.with_map("tenant", |map| {
                map.peek(Value::Text(key.as_bytes()), 0).map(crate::shared::live_maps::written)
            });
            peeked.expect("the map is known").unwrap_or_else(|| "-".to_owned())
        };
        ["a", "b", "c", "d", "e", "f"].map(value).join(" ")
    }

    fn set(key: &str, value: &str) -> SharedChange {
        SharedChange::Set { key: key.to_owned(), value: value.to_owned(), ends_ms: None }
    }

    fn delete(key: &str) -> SharedChange {
        SharedChange::Delete { key: key.to_owned() }
    }

    fn state(generation: &str, base: SharedBase, changes: Vec<SharedChange>) -> SharedState {
        SharedState { generation: Some(generation.to_owned()), base, changes }
    }

    fn here(maps: &LiveMaps, key: &str, value: Option<&str>) {
        let change = match value {
            Some(value) => {
                let value = maps::MapValue::Text(value.into());
                MapChange::Set { key: key.to_owned(), value, ends_ms: None }
            }
            None => MapChange::Delete { key: key.to_owned() },
        };
        maps.change("tenant", &[change], 0).expect("it is valid");
    }

    #[test]
    fn changes_of_one_instance_lie_beside_those_of_all() {
        let maps = maps();
        here(&maps, "c", Some("here"));
        here(&maps, "b", None);
        assert_eq!(values(&maps), "file - here - - -");
        let shared = vec![set("a", "all"), set("d", "all"), delete("e")];
        let known = SharedState { generation: None, base: SharedBase::Known, changes: shared };
        assert!(maps.take_shared("tenant", known.clone(), 0).is_empty());
        assert_eq!(values(&maps), "all - here all - -");
        // A shared change of the same entry counts, and an entry that is dropped is again that of the file.
        let drop = |key: &str| SharedChange::Drop { key: key.to_owned() };
        maps.take_shared_changes("tenant", &[set("c", "all"), drop("a"), drop("d"), drop("b")], 0);
        assert_eq!(values(&maps), "file - all - - -");
        // The state is read again: what it lacks is gone, except the change made here.
        maps.take_shared("tenant", SharedState { changes: vec![set("f", "all")], ..known }, 0);
        assert_eq!(values(&maps), "file - - - - all");
        // A new generation replaces everything.
        let text = SharedBase::Text(b"a text\nd text\n".to_vec());
        maps.take_shared("tenant", state("1", text, vec![set("e", "all"), delete("d")]), 0);
        assert_eq!(values(&maps), "text - - - all -");
        assert_eq!(maps.generations(), [("tenant".to_owned(), Some("1".to_owned()))]);
        maps.take_shared("tenant", state("2", SharedBase::Configuration, Vec::new()), 0);
        assert_eq!(values(&maps), "file file - - - -");
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let maps = maps();
        let changes = vec![set("", "x"), set("c", "a\nb"), set("d", "all")];
        let text = SharedBase::Text(b"a\n".to_vec());
        let left_out = maps.take_shared("tenant", state("1", text, changes.clone()), 0);
        let expected = [
            "its replacement is left out: line 1: the key a has no value",
            " is left out: the key is empty",
            "c is left out: '\\n' has no place in a value",
        ];
        assert_eq!(left_out, expected);
        assert_eq!(values(&maps), "file file - all - -");
        assert_eq!(maps.take_shared_changes("tenant", &changes, 0), expected[1..]);
        assert!(maps.take_shared_changes("other", &changes, 0).is_empty());
    }

    #[test]
    fn a_change_for_all_is_checked_here() {
        let maps = maps();
        here(&maps, "c", Some("here"));
        let all = |key: &str| MapChange::Delete { key: key.to_owned() };
        let value = maps::MapValue::Text("before".into());
        let twice = MapChange::Set { key: "c".to_owned(), value, ends_ms: None };
        let changes = [twice, all("a"), all("c"), all("d")];
        let told = maps.shared_form("tenant", &changes, 0).expect("it is valid");
        // Other instances forget what only this one has, and an absent entry needs no mark.
        assert_eq!(told, [delete("a"), delete("c"), SharedChange::Drop { key: "d".to_owned() }]);
        assert_eq!(values(&maps), "file file here - - -");
        assert!(maps.shared_form("tenant", &[all("")], 0).is_err());
        assert_eq!(maps.check_replacement("tenant", b"a 1\nb 2\n").expect("it is valid"), 2);
        assert!(maps.check_replacement("tenant", b"a\n").is_err());
    }

    #[test]
    fn the_next_process_knows_what_is_shared() {
        let before = maps();
        let text = SharedBase::Text(b"a text\n".to_vec());
        before.take_shared("tenant", state("1", text, vec![set("d", "all")]), 0);
        here(&before, "c", Some("here"));
        let after = maps();
        assert!(after.inherit(before.handover(0), 0).is_empty());
        assert_eq!(values(&after), "text - here all - -");
        after.take_shared("tenant", state("1", SharedBase::Known, vec![set("e", "all")]), 0);
        assert_eq!(values(&after), "text - here - all -");
    }

    /// Otherwise lists of bans, where entries come and go, would reach the limit of changes.
    #[test]
    fn a_deleted_entry_that_was_set_leaves_nothing() {
        let maps = maps();
        for key in ["a", "c"] {
            here(&maps, key, Some("here"));
            here(&maps, key, None);
        }
        assert_eq!(values(&maps), "- file - - - -");
        assert_eq!(maps.statuses(0)[0].changed_count, 1);
    }
}
