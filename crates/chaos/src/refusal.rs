//! Refusals of API requests. Clients check their status and first words, so these are Toxiproxy's.

use std::io::{self, ErrorKind};

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use mistake::nearest;
use serde_json::json;
use shape::{KINDS, ToxicKind};

/// The reason why a request, or a configuration file, is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiRefusal {
    #[error("bad request body: {0}")]
    Body(String),
    #[error("the request body is larger than {most} bytes")]
    TooLarge { most: usize },
    #[error("missing required field: {0}")]
    Missing(&'static str),
    #[error("stream was invalid, can be either upstream or downstream, not {0:?}")]
    Stream(String),
    #[error("invalid toxic type: {0:?} is none of {names}", names = kind_names())]
    Kind(String),
    #[error("{}", unknown("attribute", name, kind.name, &attributes(kind)))]
    Attribute { name: String, kind: &'static ToxicKind },
    #[error("{}", unknown("key", name, of, known))]
    Key { name: String, of: &'static str, known: Vec<&'static str> },
    #[error("{}{of} is {expected}, not {given}", of_key(key))]
    Form { key: Option<String>, of: &'static str, expected: &'static str, given: String },
    #[error("{name:?} belongs in \"attributes\": {{\"attributes\": {{{name:?}: …}}}}")]
    Misplaced { name: String },
    #[error("the {what} of a toxic cannot change: this one is {is:?}; remove it, and add another")]
    Fixed { what: &'static str, is: String },
    #[error("proxy not found")]
    NoProxy,
    #[error("toxic not found")]
    NoToxic,
    #[error(
        "no such path: there are /proxies, /proxies/NAME/toxics, /populate, /reset, /version and /metrics"
    )]
    NoPlace,
    #[error("proxy already exists")]
    ProxyExists,
    #[error("proxy already exists: {name:?} is in the list twice; rename one of them, or remove it")]
    Twice { name: String },
    #[error("toxic already exists")]
    ToxicExists,
    #[error("there are already {most} {what}, the maximum: remove some")]
    TooMany { what: &'static str, most: usize },
    #[error("proxy {name} cannot listen on {listen:?}: {error}{}", remedy(error))]
    Listen { name: String, listen: String, error: io::Error },
    #[error("user agent not allowed: web pages may not use this API")]
    Browser,
    /// The refusal of one item of a list; `number` counts from 1.
    #[error("{refusal} at {what} {number}")]
    At { what: &'static str, number: usize, refusal: Box<ApiRefusal> },
}

fn kind_names() -> String {
    KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AddrInUse => "; something listens there: stop it or choose another port",
        ErrorKind::AddrNotAvailable => "; this machine has no such address",
        ErrorKind::PermissionDenied => "; ports below 1024 need the capability CAP_NET_BIND_SERVICE",
        ErrorKind::InvalidInput => "; expected HOST:PORT",
        _ => "",
    }
}

fn of_key(key: &Option<String>) -> String {
    key.as_ref().map(|key| format!("{key:?} of ")).unwrap_or_default()
}

fn attributes(kind: &ToxicKind) -> Vec<&'static str> {
    kind.attributes.iter().map(|attribute| attribute.name).collect()
}

fn unknown(what: &str, name: &str, of: &str, known: &[&str]) -> String {
    let start = format!("unknown {what} {name:?} of {of}; ");
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!("{start}did you mean {meant:?}? It has {}", known.join(", ")),
        None => format!("{start}it has {}", known.join(", ")),
    }
}

impl ApiRefusal {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Body(_)
            | Self::Missing(_)
            | Self::Stream(_)
            | Self::Kind(_)
            | Self::Attribute { .. }
            | Self::Key { .. }
            | Self::Form { .. }
            | Self::Misplaced { .. }
            | Self::Fixed { .. } => StatusCode::BAD_REQUEST,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Browser => StatusCode::FORBIDDEN,
            Self::NoProxy | Self::NoToxic | Self::NoPlace => StatusCode::NOT_FOUND,
            Self::ProxyExists | Self::ToxicExists | Self::Twice { .. } => StatusCode::CONFLICT,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Listen { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            Self::At { refusal, .. } => refusal.status(),
        }
    }

    /// The key at fault, if there is one.
    pub(super) fn names_key(&self) -> Option<&str> {
        match self {
            Self::Attribute { name, .. } | Self::Key { name, .. } | Self::Misplaced { name } => Some(name),
            Self::Form { key, .. } => key.as_deref(),
            _ => None,
        }
    }

    pub(super) fn is_of_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::At { number, .. }, Self::At { number: other, .. }) => number == other,
            _ => false,
        }
    }

    /// Adds the item of a list that is refused; `index` counts from 0.
    pub(super) fn at(self, what: &'static str, index: usize) -> Self {
        Self::At { what, number: index + 1, refusal: Box::new(self) }
    }
}

impl From<serde_json::Error> for ApiRefusal {
    fn from(error: serde_json::Error) -> Self {
        Self::Body(mistake::json_error(&error.to_string()))
    }
}

impl IntoResponse for ApiRefusal {
    fn into_response(self) -> Response {
        let status = self.status();
        let told = json!({ "error": self.to_string(), "status": status.as_u16() });
        (status, [(CONTENT_TYPE, "application/json")], told.to_string()).into_response()
    }
}
