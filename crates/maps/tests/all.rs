//! Tests of maps: lookups against a naive search, changes, files, mistakes.

/// Lookups by kind, and random ones compared with a naive search.
mod lookups;
/// Changes of entries.
mod changes;
/// Files of entries and their mistakes.
mod files;
