//! The admin API of maintenance. When a call returns, the switch is in force for all new requests.

use std::sync::Weak;

use api::maintenance::{MaintenanceOrder, MaintenanceStatus, MaintenanceSwitched};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use telemetry::message;

use super::{AdminOrder, elsewhere, ending, json, shaping};
use crate::change::Control;

/// Lists routes under maintenance, and those that a command has taken out of it.
pub(super) fn routes(control: &Control) -> Vec<MaintenanceStatus> {
    control.overrides().maintenance.status(&control.plan().config)
}

pub(super) async fn list(State(control): State<Weak<Control>>) -> Response {
    match control.upgrade() {
        Some(control) => json(StatusCode::OK, &routes(&control)),
        None => ending(),
    }
}

pub(crate) async fn begin(
    State(control): State<Weak<Control>>,
    AdminOrder(order): AdminOrder<MaintenanceOrder>,
) -> Response {
    switch(control, order, true).await
}

pub(super) async fn end(
    State(control): State<Weak<Control>>,
    AdminOrder(order): AdminOrder<MaintenanceOrder>,
) -> Response {
    switch(control, order, false).await
}

async fn switch(control: Weak<Control>, order: MaintenanceOrder, begins: bool) -> Response {
    match elsewhere(control, move |control| control.switch_maintenance(&order, begins)).await {
        Some(Ok(routes)) => {
            let what = if begins { "is under maintenance" } else { "is served again" };
            for route in &routes {
                message::info(&format!("route {route:?} {what}, by the admin API"));
            }
            json(StatusCode::OK, &MaintenanceSwitched { routes })
        }
        Some(Err(error)) => shaping::not_done(&error),
        None => ending(),
    }
}
