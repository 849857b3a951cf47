//! Toxiproxy's HTTP API, for its clients of any version 2: JSON over HTTP/1.1, with any Content-Type.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use serde_json::json;
use telemetry::Syntax;
use tokio::sync::Mutex;

use super::body;
use super::proxies::{Proxies, ProxyRequest};
use super::refusal::ApiRefusal;
use super::toxics::Toxics;

/// Maximum length of a request body.
const BODY_BYTES_MAX: usize = 1 << 20;
/// The version of Toxiproxy that has this API.
const VERSION: &str = "2.12.0";

type Shared = State<Arc<Mutex<Proxies>>>;

pub(super) fn router(proxies: Arc<Mutex<Proxies>>) -> Router {
    let proxy = get(show).post(change).patch(change).delete(remove);
    let toxic = get(show_toxic).post(change_toxic).patch(change_toxic).delete(remove_toxic);
    Router::new()
        .route("/proxies", get(index).post(create))
        .route("/proxies/{proxy}", proxy)
        .route("/proxies/{proxy}/toxics", get(toxics).post(add_toxic))
        .route("/proxies/{proxy}/toxics/{toxic}", toxic)
        .route("/populate", post(populate))
        .route("/reset", post(reset))
        .route("/version", get(version))
        .route("/metrics", get(metrics))
        .fallback(|| async { ApiRefusal::NoPlace })
        .layer(middleware::from_fn(refuse_browsers))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(proxies)
}

/// The body of a request. An oversized body is reported like every other refusal.
struct ApiBody(Bytes);

impl<S: Send + Sync> FromRequest<S> for ApiBody {
    type Rejection = ApiRefusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiRefusal> {
        Bytes::from_request(request, state).await.map(Self).map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => ApiRefusal::TooLarge { most: BODY_BYTES_MAX },
            _ => ApiRefusal::Body(rejection.body_text()),
        })
    }
}

/// Refuses browsers, because any web page open on this machine could otherwise use the API.
async fn refuse_browsers(headers: HeaderMap, request: Request, next: Next) -> Response {
    match headers.get(USER_AGENT) {
        Some(agent) if agent.as_bytes().starts_with(b"Mozilla/") => ApiRefusal::Browser.into_response(),
        _ => next.run(request).await,
    }
}

async fn index(State(proxies): Shared) -> Response {
    told(StatusCode::OK, &proxies.lock().await.told())
}

async fn create(State(proxies): Shared, ApiBody(body): ApiBody) -> Result<Response, ApiRefusal> {
    let asked: ProxyRequest = body::read(&body)?;
    Ok(told(StatusCode::CREATED, &proxies.lock().await.create(asked).await?))
}

async fn populate(State(proxies): Shared, ApiBody(body): ApiBody) -> Result<Response, ApiRefusal> {
    let asked = body::read(&body)?;
    let (made, outcome) = proxies.lock().await.populate(asked).await;
    Ok(match outcome {
        Ok(()) => told(StatusCode::CREATED, &json!({ "proxies": made })),
        Err(refusal) => {
            let status = refusal.status();
            let error = refusal.to_string();
            told(status, &json!({ "error": error, "status": status.as_u16(), "proxies": made }))
        }
    })
}

async fn reset(State(proxies): Shared) -> Result<StatusCode, ApiRefusal> {
    proxies.lock().await.reset().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// JSON, as in Toxiproxy 2.6 and later: clients decide by it whether to PATCH. To older clients it is opaque.
async fn version() -> Response {
    told(StatusCode::OK, &json!({ "version": VERSION }))
}

async fn metrics(State(proxies): Shared, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let syntax = Syntax::accepted(accept);
    ([(CONTENT_TYPE, syntax.content_type())], proxies.lock().await.traffic(syntax)).into_response()
}

async fn show(State(proxies): Shared, Path(proxy): Path<String>) -> Result<Response, ApiRefusal> {
    Ok(told(StatusCode::OK, &proxies.lock().await.told_of(&proxy)?))
}

async fn change(
    State(proxies): Shared,
    Path(proxy): Path<String>,
    ApiBody(body): ApiBody,
) -> Result<Response, ApiRefusal> {
    let mut proxies = proxies.lock().await;
    proxies.told_of(&proxy)?;
    let asked: ProxyRequest = body::read(&body)?;
    Ok(told(StatusCode::OK, &proxies.change(&proxy, asked).await?))
}

async fn remove(State(proxies): Shared, Path(proxy): Path<String>) -> Result<StatusCode, ApiRefusal> {
    proxies.lock().await.remove(&proxy).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn toxics(State(proxies): Shared, Path(proxy): Path<String>) -> Result<Response, ApiRefusal> {
    Ok(told(StatusCode::OK, &proxies.lock().await.toxics_of(&proxy, Toxics::told)?))
}

async fn add_toxic(
    State(proxies): Shared,
    Path(proxy): Path<String>,
    ApiBody(body): ApiBody,
) -> Result<Response, ApiRefusal> {
    let added = proxies.lock().await.change_toxics(&proxy, |toxics| toxics.add(body::read(&body)?))?;
    Ok(told(StatusCode::OK, &added))
}

async fn show_toxic(
    State(proxies): Shared,
    Path((proxy, toxic)): Path<(String, String)>,
) -> Result<Response, ApiRefusal> {
    let shown = proxies.lock().await.toxics_of(&proxy, |toxics| toxics.told_of(&toxic))??;
    Ok(told(StatusCode::OK, &shown))
}

async fn change_toxic(
    State(proxies): Shared,
    Path((proxy, toxic)): Path<(String, String)>,
    ApiBody(body): ApiBody,
) -> Result<Response, ApiRefusal> {
    let changed =
        proxies.lock().await.change_toxics(&proxy, |toxics| toxics.change(&toxic, || body::read(&body)))?;
    Ok(told(StatusCode::OK, &changed))
}

async fn remove_toxic(
    State(proxies): Shared,
    Path((proxy, toxic)): Path<(String, String)>,
) -> Result<StatusCode, ApiRefusal> {
    proxies.lock().await.change_toxics(&proxy, |toxics| toxics.remove(&toxic))?;
    Ok(StatusCode::NO_CONTENT)
}

fn told(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => (status, [(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
