//! Watches the files of maps, and reads them again when they change.
//!
//! A file with a mistake changes nothing: the entries before it stay in force, and a message names the line.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use config::{FileVersion, Map, MapFile};
use telemetry::message;

use crate::change::Control;
use crate::tick::tick;

const INTERVAL: Duration = Duration::from_secs(1);

/// Checks the files of maps once a second, until the proxy ends.
pub(crate) async fn watch(control: Weak<Control>) {
    let mut known: HashMap<String, (Map, FileVersion)> = HashMap::new();
    loop {
        tick(INTERVAL).await;
        let Some(maps) = control.upgrade().map(|control| control.plan().maps.with_files()) else { return };
        known.retain(|name, _| maps.iter().any(|map| map.name == *name));
        for map in maps {
            let Some(file) = &map.file else { continue };
            let version = file.version_now();
            let before = match known.get(&map.name) {
                Some((before, version)) if *before == map => *version,
                _ => file.version,
            };
            known.insert(map.name.clone(), (map.clone(), version));
            // A file that is replaced may be absent for a moment.
            if before == version || version.is_none() {
                continue;
            }
            let Some(control) = control.upgrade() else { return };
            // The reading of a large file takes long.
            let _ = tokio::task::spawn_blocking(move || read_again(&control, &map)).await;
        }
    }
}

fn read_again(control: &Arc<Control>, map: &Map) {
    let Some(MapFile { path, .. }) = &map.file else { return };
    match map.read_again() {
        Ok(table) => {
            let entry_count = table.len();
            // An ending proxy needs no entries.
            let _ = control.change_maps(|maps| maps.reread(&map.name, table));
            message::info(&format!(
                "map.{}: {} has changed and was read again, {entry_count} entries",
                map.name,
                path.display()
            ));
        }
        Err(why) => message::warn(&format!(
            "map.{}: {}: {why}; the entries from before stay in force",
            map.name,
            path.display()
        )),
    }
}
