//! The admin API of maps. A change is in force for all workers when the call returns.

use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use api::maps::{
    MapChanged, MapEntries, MapEntry, MapLookupOrder, MapLookupResult, MapOrder, MapSetting, MapStatus,
};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::Response;
use expression::Value;
use maps::{EntryFault, MapChange, MapSnapshot};
use proxy::shared::live_maps::{LiveMaps, MapRefusal, written};
use telemetry::message;

use super::{AdminBody, AdminOrder, Segments, elsewhere, ending, json, refused};
use crate::StartError;
use crate::change::Control;

/// The most entries of one listing.
const LISTED_MAX: usize = 10_000;
/// The largest text of a replacement.
const REPLACEMENT_BYTES_MAX: usize = 256 << 20;

/// Permits a request with the text of a large map.
pub(super) fn large_text() -> DefaultBodyLimit {
    DefaultBodyLimit::max(REPLACEMENT_BYTES_MAX)
}

pub(super) async fn list(State(control): State<Weak<Control>>) -> Response {
    let statuses = elsewhere(control, |control| statuses(&control)).await;
    statuses.map_or_else(ending, |statuses| json(StatusCode::OK, &statuses))
}

fn statuses(control: &Control) -> Vec<MapStatus> {
    let status = |status: proxy::shared::live_maps::MapStatus| MapStatus {
        name: status.name,
        kind: status.kind.to_owned(),
        values: status.values.to_owned(),
        entries: status.entry_count,
        memory_bytes: status.memory_bytes,
        hits: status.hits,
        misses: status.misses,
        unused: status.unused_count,
        changed: status.changed_count,
        is_replaced: status.is_replaced,
    };
    control.plan().maps.statuses(now_ms()).into_iter().map(status).collect()
}

pub(super) async fn entries(
    State(control): State<Weak<Control>>,
    Segments(name): Segments<String>,
) -> Response {
    let read = move |control: Arc<Control>| control.plan().maps.with_map(&name, listed);
    answer(elsewhere(control, read).await.map(Ok))
}

fn listed(map: &MapSnapshot) -> MapEntries {
    let now_ms = now_ms();
    let entry = |entry: maps::MapEntry<'_>| MapEntry {
        key: entry.key.into_owned(),
        value: written(entry.value),
        ends_in_seconds: entry.ends_ms.map(|end| end.saturating_sub(now_ms).div_ceil(1000)),
        is_used: entry.is_found,
    };
    let entries: Vec<MapEntry> = map.entries(now_ms).take(LISTED_MAX).map(entry).collect();
    let is_complete = entries.len() < LISTED_MAX;
    MapEntries { total: if is_complete { entries.len() } else { map.entries(now_ms).count() }, entries }
}

pub(super) async fn lookup(
    State(control): State<Weak<Control>>,
    Segments(name): Segments<String>,
    AdminOrder(MapLookupOrder { key }): AdminOrder<MapLookupOrder>,
) -> Response {
    let Some(control) = control.upgrade() else { return ending() };
    let value = |map: &MapSnapshot| -> Result<MapLookupResult, String> {
        let key = match map.shape().kind.key_type() {
            expression::ValueType::Address => Value::Address(key.parse().map_err(|_| not_an_address(&key))?),
            _ => Value::Text(key.as_bytes()),
        };
        Ok(MapLookupResult { value: map.peek(key, now_ms()).map(written) })
    };
    match control.plan().maps.with_map(&name, value) {
        Ok(Ok(result)) => json(StatusCode::OK, &result),
        Ok(Err(why)) => refused(StatusCode::UNPROCESSABLE_ENTITY, &why),
        Err(refusal) => not_done(&refusal),
    }
}

fn not_an_address(key: &str) -> String {
    format!("{key:?} is not an address, such as 192.0.2.1")
}

pub(super) async fn change(
    State(control): State<Weak<Control>>,
    Segments(name): Segments<String>,
    AdminOrder(order): AdminOrder<MapOrder>,
) -> Response {
    let now_ms = now_ms();
    let changed = on_maps(control, name, move |maps, name| {
        let shape = maps.with_map(name, MapSnapshot::shape)?;
        let mut changes: Vec<MapChange> = Vec::with_capacity(order.set.len() + order.delete.len());
        changes.extend(order.delete.into_iter().map(|key| MapChange::Delete { key }));
        for MapSetting { key, value, ends_in_seconds } in order.set {
            let value = match (value, shape.values) {
                (None, Some(_)) => Err(EntryFault::NoValue { key: key.clone() }),
                (value, _) => shape.value(&value.unwrap_or_default()),
            };
            let value = value.map_err(|fault| MapRefusal::Entry { key: key.clone(), fault })?;
            let ends_ms = ends_in_seconds.map(|seconds| now_ms.saturating_add(seconds.saturating_mul(1000)));
            changes.push(MapChange::Set { key, value, ends_ms });
        }
        maps.change(name, &changes, now_ms)
    });
    changed.await
}

pub(super) async fn replace(
    State(control): State<Weak<Control>>,
    Segments(name): Segments<String>,
    AdminBody(text): AdminBody,
) -> Response {
    on_maps(control, name, move |maps, name| maps.replace(name, &text)).await
}

pub(super) async fn reset(
    State(control): State<Weak<Control>>,
    Segments(name): Segments<String>,
) -> Response {
    on_maps(control, name, LiveMaps::reset).await
}

/// Changes a map, while no other change of the configuration is under way.
async fn on_maps(
    control: Weak<Control>,
    name: String,
    change: impl FnOnce(&LiveMaps, &str) -> Result<usize, MapRefusal> + Send + 'static,
) -> Response {
    let change = move |control: Arc<Control>| {
        let changed = control.change_maps(|maps| change(maps, &name));
        if let Ok(Ok(changes)) = &changed {
            message::info(&format!("map.{name}: {changes} changes, by the admin API"));
        }
        changed
    };
    let changed = elsewhere(control, change).await;
    answer(changed.map(|changed| changed.map(|changes| changes.map(|changes| MapChanged { changes }))))
}

fn answer<T: serde::Serialize>(result: Option<Result<Result<T, MapRefusal>, StartError>>) -> Response {
    match result {
        Some(Ok(Ok(value))) => json(StatusCode::OK, &value),
        Some(Ok(Err(refusal))) => not_done(&refusal),
        Some(Err(error)) => refused(StatusCode::CONFLICT, &error.to_string()),
        None => ending(),
    }
}

fn not_done(refusal: &MapRefusal) -> Response {
    let status = match refusal {
        MapRefusal::NoMap { .. } => StatusCode::NOT_FOUND,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    refused(status, &refusal.to_string())
}

/// The current time, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
