//! What the admin API tells of rates and delays, and takes: the shapes of its JSON, for both ends. A change is in force, for
//! messages that are under way as well, when it has answered.

use std::sync::Weak;
use telemetry::message;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use config::{Bandwidth, Bandwidths, Link};
use serde::{Deserialize, Deserializer, Serialize};
use shape::Delay;

use super::{Segments, Sent, elsewhere, ending, json, refused};
use crate::control::change::{AmendError, Control};
use crate::control::runtime_overrides::ReshapeRefusal;

/// What can be slowed down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlaceKind {
    /// Where clients connect.
    Listener,
    /// What requests take.
    Route,
    /// The servers behind it.
    Upstream,
}

/// What is to be otherwise about a place than the file has it, each option as a file has it. `none` takes it away; what is
/// left out is as in the file, whatever was changed before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapingOrder {
    /// What it is.
    pub place: PlaceKind,
    /// What the file calls it. Left out, the only one that there is.
    #[serde(default)]
    pub name: Option<String>,
    /// A link by its name; of a listener.
    #[serde(default)]
    pub profile: Option<String>,
    /// How fast what clients are sent passes: one limit, or several that hold at once.
    #[serde(default, deserialize_with = "one_or_many")]
    pub rate: Option<Vec<String>>,
    /// The same of what clients send.
    #[serde(default, deserialize_with = "one_or_many")]
    pub upload_rate: Option<Vec<String>>,
    /// How late connections begin; not of a route, nor are the next two.
    #[serde(default)]
    pub connect_delay: Option<String>,
    /// How late each piece comes, either way.
    #[serde(default)]
    pub latency: Option<String>,
    /// Packets that are sent once more.
    #[serde(default)]
    pub loss: Option<String>,
    /// How late requests go on; of a route, as is the next.
    #[serde(default)]
    pub delay: Option<String>,
    /// How late responses go on.
    #[serde(default)]
    pub response_delay: Option<String>,
    /// After how long everything is as in the file again. Left out, never.
    #[serde(default)]
    pub expires: Option<String>,
}

impl ShapingOrder {
    /// One that changes nothing yet.
    pub fn of(place: PlaceKind, name: Option<String>) -> Self {
        Self {
            place,
            name,
            profile: None,
            rate: None,
            upload_rate: None,
            connect_delay: None,
            latency: None,
            loss: None,
            delay: None,
            response_delay: None,
            expires: None,
        }
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a rate such as \"1MB/s\", or a list of rates")]
    enum Written {
        One(String),
        Many(Vec<String>),
    }
    Ok(Option::deserialize(deserializer)?.map(|written| match written {
        Written::One(one) => vec![one],
        Written::Many(many) => many,
    }))
}

/// A place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceNamed {
    /// What it is.
    pub place: PlaceKind,
    /// As in the file.
    pub name: String,
}

/// Changes that were taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShapingCleared {
    /// How many.
    pub cleared: usize,
}

/// How fast and how late a place is, each option as a file has it; empty and `None` where it is neither.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlaceTold {
    /// What it is.
    pub place: PlaceKind,
    /// As in the file.
    pub name: String,
    /// How fast what clients are sent passes.
    pub rate: Vec<String>,
    /// The same of what clients send.
    pub upload_rate: Vec<String>,
    /// How late connections begin.
    pub connect_delay: Option<String>,
    /// How late each piece comes, either way.
    pub latency: Option<String>,
    /// Packets that are sent once more.
    pub loss: Option<String>,
    /// How late requests go on.
    pub delay: Option<String>,
    /// How late responses go on.
    pub response_delay: Option<String>,
    /// Whether an operator has changed it since the file was read.
    pub is_changed: bool,
    /// After how long it is as in the file again, if it is by itself.
    pub expires_in_seconds: Option<f64>,
}

impl PlaceTold {
    fn new(place: PlaceKind, name: &str, Bandwidths { down, up }: &Bandwidths) -> Self {
        let written = |all: &[Bandwidth]| all.iter().map(config::written_bandwidth).collect();
        Self {
            place,
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

    fn over(self, Link { connect_delay, latency, loss }: &Link) -> Self {
        Self {
            connect_delay: written(connect_delay),
            latency: written(latency),
            loss: loss.as_ref().map(config::written_loss),
            ..self
        }
    }

    /// Whether it is as if nothing were shaped there, and always was.
    pub(super) fn is_plain(&self) -> bool {
        let delays = [&self.connect_delay, &self.latency, &self.loss, &self.delay, &self.response_delay];
        !self.is_changed
            && self.rate.is_empty()
            && self.upload_rate.is_empty()
            && delays.iter().all(|delay| delay.is_none())
    }
}

fn written(delay: &Option<Delay>) -> Option<String> {
    delay.as_ref().map(config::written_delay)
}

/// How fast and how late everything is now.
pub(super) fn places(control: &Control) -> Vec<PlaceTold> {
    let (plan, overlay, now) = (control.plan(), control.overlay(), control.time());
    let config = &plan.config;
    let listeners = config.listeners.iter().map(|listener| {
        PlaceTold::new(PlaceKind::Listener, &listener.name, &listener.bandwidths).over(&listener.link)
    });
    let routes = config.routes.iter().map(|route| {
        let (delay, response_delay) = (&route.shaping.delay, &route.shaping.response_delay);
        let told = PlaceTold::new(PlaceKind::Route, &route.name, &route.shaping.bandwidths);
        PlaceTold { delay: written(delay), response_delay: written(response_delay), ..told }
    });
    let upstreams = config.upstreams.iter().map(|upstream| {
        PlaceTold::new(PlaceKind::Upstream, &upstream.name, &upstream.bandwidths).over(&upstream.link)
    });
    let changed = |told: PlaceTold| match overlay.shaping.of(told.place, &told.name, now) {
        Some(rest) => {
            let expires_in_seconds = rest.map(|rest| rest.as_secs_f64());
            PlaceTold { is_changed: true, expires_in_seconds, ..told }
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

pub(super) async fn change(State(control): State<Weak<Control>>, Sent(body): Sent) -> Response {
    let order: ShapingOrder = match serde_json::from_slice(&body) {
        Ok(order) => order,
        Err(error) => {
            return refused(StatusCode::BAD_REQUEST, &format!("the body is not understood: {error}"));
        }
    };
    match elsewhere(control, move |control| control.reshape(&order)).await {
        Some(Ok(named)) => {
            let PlaceNamed { place, name } = &named;
            message::info(&format!(
                "{place} {name:?}: rates and delays are changed, as the admin API was asked to"
            ));
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
                "{place} {name:?}: rates and delays are the file's again, as the admin API was asked to"
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
            message::info("all rates and delays are the file's again, as the admin API was asked to");
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
        AmendError::NotReshaped(ReshapeRefusal::TooMany) | AmendError::Refused(_) => StatusCode::CONFLICT,
        AmendError::NotReshaped(_) => StatusCode::UNPROCESSABLE_ENTITY,
        AmendError::NotPossible(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    refused(status, &error.to_string())
}
