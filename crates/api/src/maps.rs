//! Maps in the admin API: their status, their entries, and orders to change them.

use serde::{Deserialize, Serialize};

/// A map of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MapStatus {
    pub name: String,
    /// Kind of the keys: `exact`, `prefix`, `suffix`, `network` or `regex`.
    pub kind: String,
    /// The type of the values: `text`, `integer`, `boolean` or `duration`; `set` if there are none.
    pub values: String,
    /// Entries in force.
    pub entries: usize,
    /// The memory that the map takes, in bytes.
    pub memory_bytes: usize,
    /// Look-ups that found an entry, since the start.
    pub hits: u64,
    /// Look-ups that found none, since the start.
    pub misses: u64,
    /// Entries that no look-up has found.
    pub unused: usize,
    /// Entries that commands have changed.
    pub changed: usize,
    /// Whether a command has replaced all entries.
    pub is_replaced: bool,
    /// Set if all instances with the same configuration share changes of the map.
    pub shared: Option<MapSharing>,
}

/// Currency of a map that instances share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MapSharing {
    /// This instance has the changes of all up to this time, in seconds since 1970; `None` before it has read any.
    pub as_of: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MapEntry {
    pub key: String,
    /// The value as a text; `true` for the keys of a set.
    pub value: String,
    /// The time until the entry ends; `None` if it does not.
    pub ends_in_seconds: Option<u64>,
    /// Whether a look-up has found the entry.
    pub is_used: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MapEntries {
    /// The first entries, at most 10,000.
    pub entries: Vec<MapEntry>,
    /// The number of all entries.
    pub total: usize,
}

/// Asks for the value of a key, as a request would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MapLookupOrder {
    pub key: String,
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MapLookupResult {
    /// The value as a text; `None` if no entry matches.
    pub value: Option<String>,
    /// Set if all instances with the same configuration share changes of the map.
    pub shared: Option<MapSharing>,
}

/// Changes entries of a map: all of them, or none if one is invalid. Deletions come first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MapOrder {
    #[serde(default)]
    pub set: Vec<MapSetting>,
    /// Keys of entries to delete.
    #[serde(default)]
    pub delete: Vec<String>,
}

/// An entry to set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MapSetting {
    pub key: String,
    /// The value as a text. Left out for the keys of a set.
    #[serde(default)]
    pub value: Option<String>,
    /// The entry is deleted after this time. Without it, the entry stays.
    #[serde(default)]
    pub ends_in_seconds: Option<u64>,
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MapChanged {
    /// The number of changes; for a replacement, of entries.
    pub changes: usize,
    /// Whether the change is for all instances with the same configuration.
    pub is_shared: bool,
}
