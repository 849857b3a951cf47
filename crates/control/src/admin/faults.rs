//! The admin API of faults. A change is in force when the call returns, without waiting for the workers, so it runs
//! on the control thread. Only rates and delays, which are cleared with faults, wait for the workers.

use std::sync::Weak;
use telemetry::message;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::status;
use super::{AdminBody, Segments, elsewhere, ending, json, refused, shaping};
use crate::change::Control;
use api::status::{FaultsAdded, FaultsRemoved, HiddenFault, RefusedOrder};
use proxy::faults::FaultRefusal;

/// The file name in mistakes.
const NAME: &str = "the request's body";

pub(super) async fn list(State(control): State<Weak<Control>>) -> Response {
    match control.upgrade() {
        Some(control) => json(StatusCode::OK, &status::faults(&control)),
        None => ending(),
    }
}

/// Adds faults, given as `[[fault]]` tables in the syntax of the configuration file.
pub(super) async fn add(State(control): State<Weak<Control>>, AdminBody(body): AdminBody) -> Response {
    let Some(control) = control.upgrade() else { return ending() };
    let Ok(text) = std::str::from_utf8(&body) else {
        return refused(StatusCode::BAD_REQUEST, "the body is not UTF-8 text");
    };
    let plan = control.plan();
    let rules = match config::faults(text, NAME, &plan.config) {
        Ok(rules) => rules,
        Err(mistakes) => {
            let error = "the faults have mistakes, nothing has changed".to_owned();
            let mistakes = mistakes.iter().map(status::mistake).collect();
            return json(StatusCode::UNPROCESSABLE_ENTITY, &RefusedOrder { error, mistakes });
        }
    };
    let names: Vec<String> = rules.iter().map(|rule| rule.name.clone()).collect();
    match control.faults.add(rules, &plan.config, control.time_ns()) {
        Ok(()) => {
            control.settle_refusals();
            for name in &names {
                message::info(&format!("fault {name:?} is injected, by the admin API"));
            }
            let hidden = control.faults.hidden(&names).into_iter();
            let hidden = hidden.map(|[fault, by]| HiddenFault { fault, by }).collect();
            let tcp_alone = control.faults.of_tcp_alone(&names, &plan.config);
            json(StatusCode::OK, &FaultsAdded { faults: names, hidden, tcp_alone })
        }
        Err(refusal) => refused(StatusCode::CONFLICT, &refusal.to_string()),
    }
}

pub(super) async fn remove(
    State(control): State<Weak<Control>>,
    Segments(name): Segments<String>,
) -> Response {
    let Some(control) = control.upgrade() else { return ending() };
    match control.faults.remove(&name, control.time_ns()) {
        Ok(()) => {
            control.settle_refusals();
            message::info(&format!("fault {name:?} is removed, by the admin API"));
            json(StatusCode::OK, &FaultsRemoved { removed: 1, shaping_cleared: 0 })
        }
        Err(refusal @ FaultRefusal::NoFault(_)) => refused(StatusCode::NOT_FOUND, &refusal.to_string()),
        Err(refusal) => refused(StatusCode::CONFLICT, &refusal.to_string()),
    }
}

pub(super) async fn clear(State(control): State<Weak<Control>>) -> Response {
    let cleared = elsewhere(control, |control| {
        let lent = |refusal: FaultRefusal| Box::new(refused(StatusCode::CONFLICT, &refusal.to_string()));
        let removed = control.faults.clear(control.time_ns()).map_err(lent)?;
        control.settle_refusals();
        let shaping_cleared = control.unshape_all().map_err(|error| Box::new(shaping::not_done(&error)))?;
        Ok::<_, Box<Response>>(FaultsRemoved { removed, shaping_cleared })
    });
    match cleared.await {
        Some(Ok(removed)) => {
            message::info("all faults and changes of rates and delays are removed, by the admin API");
            json(StatusCode::OK, &removed)
        }
        Some(Err(refusal)) => *refusal,
        None => ending(),
    }
}
