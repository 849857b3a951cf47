//! The admin API of rates and delays. When a call returns, the change is in force, also for messages under way.

use std::sync::Weak;
use telemetry::message;

use api::shaping::{PlaceKind, PlaceNamed, ShapingCleared, ShapingOrder, ShapingStatus};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use config::{Bandwidth, Bandwidths, Link};
use shape::Delay;

use super::{AdminOrder, Segments, elsewhere, ending, json, refused};
use crate::change::{AmendError, Control};
use crate::runtime_overrides::{MaintenanceRefusal, ReshapeRefusal};

fn place(kind: PlaceKind, name: &str, Bandwidths { down, up }: &Bandwidths) -> ShapingStatus {
    let written = |all: &[Bandwidth]| all.iter().map(config::written_bandwidth).collect();
    ShapingStatus {
        place: kind,
        name: name.to_owned(),
        rate: written(down),
        upload_rate: written(up),
        connect_delay: None,
        latency: None,
        loss: None,
        delay: None,
        response_delay: None,
        is_changed: false,
        expires_in_seconds: None,
    }
}

fn over(status: ShapingStatus, Link { connect_delay, latency, loss }: &Link) -> ShapingStatus {
    ShapingStatus {
        connect_delay: written(connect_delay),
        latency: written(latency),
        loss: loss.as_ref().map(config::written_loss),
        ..status
    }
}

fn written(delay: &Option<Delay>) -> Option<String> {
    delay.as_ref().map(config::written_delay)
}

pub(super) fn places(control: &Control) -> Vec<ShapingStatus> {
    let (plan, overrides, now) = (control.plan(), control.overrides(), control.time());
    let config = &plan.config;
    let listeners = config.listeners.iter().map(|listener| {
        over(place(PlaceKind::Listener, &listener.name, &listener.bandwidths), &listener.link)
    });
    let routes = config.routes.iter().map(|route| {
        let (delay, response_delay) = (&route.shaping.delay, &route.shaping.response_delay);
        let told = place(PlaceKind::Route, &route.name, &route.shaping.bandwidths);
        ShapingStatus { delay: written(delay), response_delay: written(response_delay), ..told }
    });
    let upstreams = config.upstreams.iter().map(|upstream| {
        over(place(PlaceKind::Upstream, &upstream.name, &upstream.bandwidths), &upstream.link)
    });
    let changed = |told: ShapingStatus| match overrides.shaping.for_kind(told.place, &told.name, now) {
        Some(rest) => {
            let expires_in_seconds = rest.map(|rest| rest.as_secs_f64());
            ShapingStatus { is_changed: true, expires_in_seconds, ..told }
        }
        None => told,
    };
    listeners.chain(routes).chain(upstreams).map(changed).collect()
}

pub(super) async fn list(State(control): State<Weak<Control>>) -> Response {
    match control.upgrade() {
        Some(control) => json(StatusCode::OK, &places(&control)),
        None => ending(),
    }
}

pub(super) async fn change(
    State(control): State<Weak<Control>>,
    AdminOrder(order): AdminOrder<ShapingOrder>,
) -> Response {
    match elsewhere(control, move |control| control.reshape(&order)).await {
        Some(Ok(named)) => {
            let PlaceNamed { place, name } = &named;
            message::info(&format!("{place} {name:?}: rates and delays are changed, by the admin API"));
            json(StatusCode::OK, &named)
        }
        Some(Err(error)) => not_done(&error),
        None => ending(),
    }
}

pub(super) async fn remove(
    State(control): State<Weak<Control>>,
    Segments((place, name)): Segments<(PlaceKind, String)>,
) -> Response {
    let named = name.clone();
    match elsewhere(control, move |control| control.unshape(place, &named)).await {
        Some(Ok(())) => {
            message::info(&format!(
                "{place} {name:?}: rates and delays return to the file's, by the admin API"
            ));
            json(StatusCode::OK, &ShapingCleared { cleared: 1 })
        }
        Some(Err(error)) => not_done(&error),
        None => ending(),
    }
}

pub(super) async fn clear(State(control): State<Weak<Control>>) -> Response {
    match elsewhere(control, |control| control.unshape_all()).await {
        Some(Ok(cleared)) => {
            message::info("all rates and delays return to the file's, by the admin API");
            json(StatusCode::OK, &ShapingCleared { cleared })
        }
        Some(Err(error)) => not_done(&error),
        None => ending(),
    }
}

pub(super) fn not_done(error: &AmendError) -> Response {
    let status = match error {
        AmendError::NotReshaped(ReshapeRefusal::NoPlace { .. } | ReshapeRefusal::NotChanged { .. }) => {
            StatusCode::NOT_FOUND
        }
        AmendError::NotSwitched(MaintenanceRefusal::NoRoute { .. }) => StatusCode::NOT_FOUND,
        AmendError::NotReshaped(ReshapeRefusal::TooMany)
        | AmendError::NotSwitched(MaintenanceRefusal::TooMany)
        | AmendError::Refused(_) => StatusCode::CONFLICT,
        AmendError::NotReshaped(_) | AmendError::NotSwitched(_) | AmendError::Mistakes(_) => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        AmendError::NotPossible(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    refused(status, &error.to_string())
}
