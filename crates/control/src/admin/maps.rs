//! The admin API of maps. A change is in force for all workers when the call returns. If instances share their maps, it is
//! for all of them, unless the query says `here`.

use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use api::maps::{
    MapChanged, MapEntries, MapEntry, MapLookupOrder, MapLookupResult, MapOrder, MapSetting, MapSharing,
    MapStatus,
};
use axum::extract::{DefaultBodyLimit, FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use expression::Value;
use maps::{EntryFault, MapChange, MapSnapshot};
use proxy::shared::live_maps::{LiveMaps, MapRefusal, written};
use telemetry::message;

use super::{AdminBody, AdminOrder, Segments, elsewhere, ending, json, refused};
use crate::change::Control;
use crate::map_sharing::{MapFailure, SharedMapOrder};

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
    let shared = sharing(control);
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
        shared,
    };
    control.plan().maps.statuses(now_ms()).into_iter().map(status).collect()
}

pub(super) async fn entries(
    State(control): State<Weak<Control>>,
    Segments(name): Segments<String>,
) -> Response {
    let read = move |control: Arc<Control>| Ok(control.plan().maps.with_map(&name, listed)?);
    answer(elsewhere(control, read).await)
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
    let shared = sharing(&control);
    let value = |map: &MapSnapshot| -> Result<MapLookupResult, String> {
        let key = match map.shape().kind.key_type() {
            expression::ValueType::Address => Value::Address(key.parse().map_err(|_| not_an_address(&key))?),
            _ => Value::Text(key.as_bytes()),
        };
        Ok(MapLookupResult { value: map.peek(key, now_ms()).map(written), shared })
    };
    match control.plan().maps.with_map(&name, value) {
        Ok(Ok(result)) => json(StatusCode::OK, &result),
        Ok(Err(why)) => refused(StatusCode::UNPROCESSABLE_ENTITY, &why),
        Err(refusal) => not_done(&MapFailure::Refused(refusal)),
    }
}

fn not_an_address(key: &str) -> String {
    format!("{key:?} is not an address, such as 192.0.2.1")
}

/// `?here` changes this instance alone.
pub(super) struct ChangeScope {
    is_here: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for ChangeScope {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        match parts.uri.query() {
            None => Ok(Self { is_here: false }),
            Some("here") => Ok(Self { is_here: true }),
            Some(other) => {
                Err(refused(StatusCode::BAD_REQUEST, &format!("the query may be ?here, not ?{other}")))
            }
        }
    }
}

pub(super) async fn change(
    State(control): State<Weak<Control>>,
    Segments(name): Segments<String>,
    scope: ChangeScope,
    AdminOrder(order): AdminOrder<MapOrder>,
) -> Response {
    let change = move |control: &Control, name: &str| {
        let now_ms = now_ms();
        let changes = control.change_maps(|maps| changes(maps, name, order, now_ms))??;
        control.change_map(
            name,
            scope.is_here,
            |maps| maps.change(name, &changes, now_ms),
            |maps| Ok((SharedMapOrder::Change(maps.shared_form(name, &changes, now_ms)?), changes.len())),
        )
    };
    on_map(control, name, scope, change).await
}

/// The changes of an order.
fn changes(maps: &LiveMaps, name: &str, order: MapOrder, now_ms: u64) -> Result<Vec<MapChange>, MapRefusal> {
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
    Ok(changes)
}

pub(super) async fn replace(
    State(control): State<Weak<Control>>,
    Segments(name): Segments<String>,
    scope: ChangeScope,
    AdminBody(text): AdminBody,
) -> Response {
    let change = move |control: &Control, name: &str| {
        control.change_map(
            name,
            scope.is_here,
            |maps| maps.replace(name, &text),
            |maps| Ok((SharedMapOrder::Replace(text.to_vec()), maps.check_replacement(name, &text)?)),
        )
    };
    on_map(control, name, scope, change).await
}

pub(super) async fn reset(
    State(control): State<Weak<Control>>,
    Segments(name): Segments<String>,
    scope: ChangeScope,
) -> Response {
    let change = move |control: &Control, name: &str| {
        control.change_map(
            name,
            scope.is_here,
            |maps| maps.reset(name),
            |maps| Ok((SharedMapOrder::Reset, maps.configured_count(name)?)),
        )
    };
    on_map(control, name, scope, change).await
}

async fn on_map(
    control: Weak<Control>,
    name: String,
    scope: ChangeScope,
    change: impl FnOnce(&Control, &str) -> Result<usize, MapFailure> + Send + 'static,
) -> Response {
    let change = move |control: Arc<Control>| {
        let changes = change(&control, &name)?;
        let is_shared = control.map_sharing.is_some() && !scope.is_here;
        let whose = if is_shared { ", for all instances" } else { "" };
        message::info(&format!("map.{name}: {changes} changes, by the admin API{whose}"));
        Ok(MapChanged { changes, is_shared })
    };
    answer(elsewhere(control, change).await)
}

fn answer<T: serde::Serialize>(result: Option<Result<T, MapFailure>>) -> Response {
    match result {
        Some(Ok(value)) => json(StatusCode::OK, &value),
        Some(Err(failure)) => not_done(&failure),
        None => ending(),
    }
}

fn not_done(failure: &MapFailure) -> Response {
    let status = match failure {
        MapFailure::Refused(MapRefusal::NoMap { .. }) => StatusCode::NOT_FOUND,
        MapFailure::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
        MapFailure::Leaving(_) => StatusCode::CONFLICT,
        MapFailure::NotShared { .. } => StatusCode::SERVICE_UNAVAILABLE,
    };
    refused(status, &failure.to_string())
}

fn sharing(control: &Control) -> Option<MapSharing> {
    control.map_sharing.as_ref().map(|sharing| MapSharing { as_of: sharing.as_of() })
}

/// The current time, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
