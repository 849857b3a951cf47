//! The admin API of routes: explain.

use std::sync::Weak;

use api::route::RouteOrder;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use super::{AdminOrder, elsewhere, ending, json, refused};
use crate::admin::maps::now_ms;
use crate::change::Control;
use crate::route_explained::explain_with_maps;

/// Explains which route of the configuration in force matches a request. Sends nothing.
pub(super) async fn explain(
    State(control): State<Weak<Control>>,
    AdminOrder(order): AdminOrder<RouteOrder>,
) -> Response {
    // A configuration may have thousands of routes.
    match elsewhere(control, move |control| {
        let plan = control.plan();
        explain_with_maps(&plan.config, &plan.maps.peek(now_ms()), &order)
    })
    .await
    {
        Some(Ok(explained)) => {
            json(StatusCode::OK, &json!({ "text": explained.text, "explained": explained.json }))
        }
        Some(Err(why)) => refused(StatusCode::BAD_REQUEST, &why),
        None => ending(),
    }
}
