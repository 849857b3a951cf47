//! The dashboard: a page and its JSON, served by the control thread. The page is one file that loads nothing else;
//! the JSON is that of the admin API.

/// Access control of the dashboard.
mod gate;

use std::sync::{LazyLock, Weak};

use api::maintenance::MaintenanceOrder;
use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::admin::{self, AdminOrder, ending, json, maintenance, refused};
use crate::change::Control;
use gate::Gate;

/// The longest body: an order, or a few `[[fault]]` tables.
const BODY_BYTES_MAX: usize = 64 * 1024;

const STYLE: &str = concat!(
    // The report pages have the same charts.
    include_str!("../../report/vendor/uplot/uPlot.min.css"),
    include_str!("dashboard/dashboard.css")
);
const LIBRARY: &str = include_str!("../../report/vendor/uplot/uPlot.iife.min.js");
const SCRIPT: &str = include_str!("dashboard/dashboard.js");

static PAGE: LazyLock<String> = LazyLock::new(|| {
    include_str!("dashboard/dashboard.html")
        .replace("{{style}}", STYLE)
        .replace("{{library}}", LIBRARY)
        .replace("{{script}}", SCRIPT)
});

/// Permits only resources in the page: no frames of other sites, and no requests elsewhere.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, text.as_bytes())));
    let (style, library, script) = (hash(STYLE), hash(LIBRARY), hash(SCRIPT));
    let policy = format!(
        "default-src 'none'; script-src {library} {script}; style-src {style}; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    // Base64 is visible ASCII.
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// The page contains the key of this process, which no other site can read. Created at the first dashboard request.
static KEY: LazyLock<String> = LazyLock::new(key);

pub(crate) fn router(control: Weak<Control>) -> Router {
    let guarded = Weak::clone(&control);
    let commands = admin::shared()
        .route("/configuration", get(configuration))
        .route("/maintenance/on", post(begin_maintenance))
        .route("/session", get(session))
        .fallback(|| async { refused(StatusCode::NOT_FOUND, "the dashboard has no such endpoint") })
        .with_state(control);
    Router::new()
        .route("/", get(|| async { Html(PAGE.as_str()) }))
        .nest("/api", commands)
        .fallback(|| async { (StatusCode::NOT_FOUND, "The dashboard is at /.\n") })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(guarded, guard))
}

fn key() -> String {
    let mut bytes = [0; 16];
    // A predictable key would protect nothing.
    assert!(aws_lc_rs::rand::fill(&mut bytes).is_ok(), "the system has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Admits permitted requests, and adds the security policy for browsers to responses.
async fn guard(State(control): State<Weak<Control>>, request: Request, next: Next) -> Response {
    let mut response = match admitted(&control, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => *refusal,
    };
    let fields = response.headers_mut();
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
    fields.insert(CONTENT_SECURITY_POLICY, POLICY.clone());
    response
}

fn admitted(control: &Weak<Control>, request: &Request) -> Result<(), Box<Response>> {
    let Some(control) = control.upgrade() else { return Err(Box::new(ending())) };
    let plan = control.plan();
    // The listener closes in a moment.
    let Some(dashboard) = &plan.config.dashboard else { return Err(Box::new(ending())) };
    let gate = Gate {
        hosts: &dashboard.hosts,
        tokens: dashboard.tokens.as_ref().map(|tokens| &*tokens.tokens),
        is_writable: dashboard.is_writable,
        key: &KEY,
    };
    gate.admit(request.method(), request.uri().path(), request.headers()).map_err(|(status, why)| {
        let mut response = refused(status, why);
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Box::new(response)
    })
}

async fn session(State(control): State<Weak<Control>>) -> Response {
    let Some(control) = control.upgrade() else { return ending() };
    let is_writable = control.plan().config.dashboard.as_ref().is_some_and(|dashboard| dashboard.is_writable);
    json(StatusCode::OK, &json!({ "key": &*KEY, "writable": is_writable }))
}

async fn configuration(State(control): State<Weak<Control>>) -> Response {
    let Some(control) = control.upgrade() else { return ending() };
    let plan = control.plan();
    let text = plan.config.printed(&control.faults.over(&plan.config));
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

/// A page for maintenance could be any file that the proxy can read.
async fn begin_maintenance(
    state: State<Weak<Control>>,
    AdminOrder(order): AdminOrder<MaintenanceOrder>,
) -> Response {
    if order.page.is_some() {
        return refused(
            StatusCode::FORBIDDEN,
            "the dashboard cannot set `page`: use `vanward maintenance` or the file",
        );
    }
    maintenance::begin(state, AdminOrder(order)).await
}
