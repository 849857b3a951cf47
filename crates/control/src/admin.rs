//! The admin API: JSON over HTTP on a Unix socket that only the process's user may open. It runs on the control
//! thread; work that waits for the workers runs on other threads.
//!
//! A new command is a route and a word of `PLACES` here, its types in the crate `api`, and a file of
//! `vanward/commands`. State that survives a reload belongs to `runtime_overrides`.

/// Status of the proxy.
mod status;
/// Requests since the start and in the last minute.
pub(crate) mod traffic;
/// Commands for the cache.
mod cache;
/// Captures of running traffic.
mod capture;
/// Certificates and their renewals.
pub(crate) mod certificates;
/// Commands for faults.
mod faults;
/// Current requests and clients, and the last hour.
mod live;
/// Commands for maps.
pub(crate) mod maps;
/// Commands for maintenance.
pub(crate) mod maintenance;
/// Problems that operators should see at once.
pub(crate) mod problems;
/// Explains which route a request takes.
mod routes;
/// Commands for rates and delays.
mod shaping;
/// Reports about sources of servers.
mod sources;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use telemetry::message;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path as Segment, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use config::{ListenAddress, Mistake};
use mistake::json_error;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixListener;

use crate::change::{Control, ReloadError, Reloaded};
use crate::control_listener::{ControlListener, ListenerAddress};
use crate::handover::Purpose;
use crate::runtime_overrides::Amendment;
use api::status::{Changed, RefusedOrder, ReloadResult, ServerNamed, ServerOrder};
use transport::unix::{self, SocketFile};

pub(crate) use certificates::statuses as certificates;

/// Only the user of the process may connect.
const MODE: u32 = 0o600;

#[derive(PartialEq)]
pub(crate) struct AdminPath(pub(crate) PathBuf);

pub(crate) type Admin = ControlListener<AdminPath>;

impl ListenerAddress for AdminPath {
    type Accepting = UnixListener;
    /// Removes the socket file on drop.
    type Known = SocketFile;

    fn purpose(&self) -> Purpose {
        Purpose::Admin(self.0.display().to_string())
    }

    fn address(&self) -> ListenAddress {
        ListenAddress::Unix(self.0.clone())
    }

    fn open(&self, inherited: Option<OwnedFd>) -> io::Result<(OwnedFd, SocketFile)> {
        if let Some(socket) = inherited {
            return Ok((socket, SocketFile::of_predecessor(&self.0)));
        }
        let (socket, file) = unix::open(&self.0, MODE)?;
        Ok((socket.into(), file))
    }

    fn accepting(socket: OwnedFd) -> io::Result<UnixListener> {
        UnixListener::from_std(socket.into())
    }
}

impl Admin {
    /// Leaves the socket file to the new process, and closes the listener.
    pub(crate) fn leave(&self) {
        if let Some(open) = &*self.lock() {
            open.known.leave();
        }
        self.close();
    }

    /// Takes over the socket file from the previous process.
    pub(crate) fn claim(&self) {
        if let Some(open) = &*self.lock() {
            open.known.claim();
        }
    }
}

pub(crate) fn router(control: Weak<Control>) -> Router {
    shared()
        .route("/capture", post(capture::begin))
        .route("/configuration", get(configuration))
        .route("/maintenance/on", post(maintenance::begin))
        .route("/maps", get(maps::list))
        .route("/maps/{name}", get(maps::entries))
        .route("/maps/{name}/lookup", post(maps::lookup))
        .route("/maps/{name}/change", post(maps::change))
        .route("/maps/{name}/replace", post(maps::replace).layer(maps::large_text()))
        .route("/maps/{name}/reset", post(maps::reset))
        .route("/sources", post(sources::report))
        .method_not_allowed_fallback(|| async { refused(StatusCode::METHOD_NOT_ALLOWED, PLACES) })
        .fallback(|| async { refused(StatusCode::NOT_FOUND, PLACES) })
        .with_state(control)
}

/// The routes that the dashboard has as well. None of them shows secrets, or reads a file that the request names.
pub(crate) fn shared() -> Router<Weak<Control>> {
    Router::new()
        .route("/status", get(status))
        .route("/live", get(live::live))
        .route("/hour", get(live::hour))
        .route("/reload", post(reload))
        .route("/servers/{amendment}", post(amend))
        .route("/cache/purge", post(cache::purge))
        .route("/cache/explain", post(cache::explain))
        .route("/certificates", get(certificates::list))
        .route("/certificates/renew", post(certificates::renew))
        .route("/faults", get(faults::list).post(faults::add).delete(faults::clear))
        .route("/faults/{name}", delete(faults::remove))
        .route("/maintenance", get(maintenance::list))
        .route("/maintenance/off", post(maintenance::end))
        .route("/routes/explain", post(routes::explain))
        .route("/shaping", get(shaping::list).post(shaping::change).delete(shaping::clear))
        .route("/shaping/{place}/{name}", delete(shaping::remove))
}

const PLACES: &str = "the endpoints are GET /status, /live, /hour, /configuration, /certificates, /faults, /maintenance, /maps, /maps/NAME and /shaping, POST /reload, /capture, /faults, /shaping, /sources, \
                      /cache/purge and explain, /routes/explain, /certificates/renew, /maintenance/on and off, /maps/NAME/lookup, change, replace and reset, and /servers/drain, restore, weigh, add and remove, DELETE /faults, /faults/NAME, \
                      /shaping and /shaping/listener, route or upstream/NAME";

async fn status(State(control): State<Weak<Control>>) -> Response {
    match control.upgrade() {
        Some(control) => json(StatusCode::OK, &status::read(&control)),
        None => ending(),
    }
}

async fn configuration(State(control): State<Weak<Control>>) -> Response {
    match control.upgrade() {
        Some(control) => {
            let plan = control.plan();
            let text = plan.config.text(&control.faults.over(&plan.config));
            ([(CONTENT_TYPE, "application/toml")], text).into_response()
        }
        None => ending(),
    }
}

async fn reload(State(control): State<Weak<Control>>) -> Response {
    let Some(reloaded) = elsewhere(control, |control| control.reload(", by the admin API")).await else {
        return ending();
    };
    let told = |mistakes: Vec<Mistake>| mistakes.iter().map(status::mistake).collect();
    match reloaded {
        Ok(Reloaded { warnings, remarks }) => {
            json(StatusCode::OK, &ReloadResult { warnings: told(warnings), remarks })
        }
        Err(ReloadError::Mistakes(mistakes)) => {
            let error = "the configuration has mistakes, nothing has changed".to_owned();
            json(StatusCode::UNPROCESSABLE_ENTITY, &RefusedOrder { error, mistakes: told(mistakes) })
        }
        Err(error) => refused(StatusCode::CONFLICT, &error.to_string()),
    }
}

async fn amend(
    State(control): State<Weak<Control>>,
    Segments(amendment): Segments<String>,
    AdminOrder(order): AdminOrder<ServerOrder>,
) -> Response {
    let ServerOrder { server, upstream, weight } = order;
    let amendment = match (amendment.as_str(), weight) {
        ("drain", None) => Amendment::Drain,
        ("restore", None) => Amendment::Restore,
        ("remove", None) => Amendment::Remove,
        ("weigh", Some(weight)) => Amendment::Weigh(weight),
        ("add", weight) => Amendment::Add(weight.unwrap_or(1)),
        ("weigh", None) => return refused(StatusCode::BAD_REQUEST, "a weight is missing"),
        ("drain" | "restore" | "remove", Some(_)) => {
            return refused(StatusCode::BAD_REQUEST, "a weight is only valid for weigh and add");
        }
        _ => return refused(StatusCode::NOT_FOUND, PLACES),
    };
    let done = match &amendment {
        Amendment::Drain => "drained".to_owned(),
        Amendment::Restore => "restored".to_owned(),
        Amendment::Weigh(weight) => format!("weight {weight}"),
        Amendment::Add(weight) => format!("added with weight {weight}"),
        Amendment::Remove => "removed".to_owned(),
    };
    let amended =
        elsewhere(control, move |control| control.amend(&amendment, &server, upstream.as_deref())).await;
    match amended {
        Some(Ok(servers)) => {
            for (upstream, server) in &servers {
                // As in all other messages.
                let server = server.split_once("://").map_or(server.as_str(), |(_, authority)| authority);
                message::info(&format!("upstream {upstream}, server {server}: {done}, by the admin API"));
            }
            let named = |(upstream, server)| ServerNamed { upstream, server };
            json(StatusCode::OK, &Changed { servers: servers.into_iter().map(named).collect() })
        }
        Some(Err(error)) => shaping::not_done(&error),
        None => ending(),
    }
}

/// The body of a request. One that is too long, or does not arrive, is rejected in JSON as all others are.
pub(crate) struct AdminBody(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for AdminBody {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let body = Bytes::from_request(request, state).await;
        body.map(Self).map_err(|rejection| refused(rejection.status(), &rejection.body_text()))
    }
}

pub(crate) struct AdminOrder<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for AdminOrder<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let AdminBody(body) = AdminBody::from_request(request, state).await?;
        let invalid = |why: String| refused(StatusCode::BAD_REQUEST, &format!("the body is invalid: {why}"));
        // serde would read an array as the fields in order.
        match body.trim_ascii_start().first() {
            Some(b'{') => serde_json::from_slice(&body)
                .map(Self)
                .map_err(|error| invalid(json_error(&error.to_string()))),
            Some(_) => Err(invalid("it is not a JSON object, in braces".to_owned())),
            None => Err(invalid("it is empty; expected a JSON object".to_owned())),
        }
    }
}

/// Parameters in the path, with rejections in JSON.
struct Segments<T>(T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let segments = Segment::from_request_parts(parts, state).await;
        segments
            .map(|Segment(segments)| Self(segments))
            .map_err(|rejection| refused(rejection.status(), &rejection.body_text()))
    }
}

/// Runs work that waits for the workers, and for name look-ups of this thread, on another thread.
async fn elsewhere<T: Send + 'static>(
    control: Weak<Control>,
    work: impl FnOnce(Arc<Control>) -> T + Send + 'static,
) -> Option<T> {
    let control = control.upgrade()?;
    tokio::task::spawn_blocking(|| work(control)).await.ok()
}

pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string_pretty(value) {
        Ok(text) => (status, [(CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

pub(crate) fn refused(status: StatusCode, error: &str) -> Response {
    json(status, &RefusedOrder { error: error.to_owned(), mistakes: Vec::new() })
}

pub(crate) fn ending() -> Response {
    refused(StatusCode::SERVICE_UNAVAILABLE, "the proxy is ending")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use config::{Config, Settings};

    use crate::{Running, start};
    use std::path::Path;

    fn run(socket: &Path) -> (Running, Config) {
        let any = "127.0.0.1:0".parse().expect("is an address");
        let server = "http://127.0.0.1:1".parse().expect("is a URL");
        let settings = Settings::for_servers(vec![any], vec![server]);
        let config =
            Config::new(Settings { admin: Some(socket.to_owned()), ..settings }).expect("it is valid");
        (start(config.clone()).expect("it starts"), config)
    }

    fn ask(socket: &Path, method: &str, place: &str, body: &str) -> (u16, serde_json::Value) {
        let mut stream = UnixStream::connect(socket).expect("it listens");
        let length = body.len();
        let request =
            format!("{method} {place} HTTP/1.1\r\nHost: admin\r\nContent-Length: {length}\r\n\r\n{body}");
        // The server may respond before it has read everything.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).expect("it is text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("it has a head");
        let body = serde_json::from_str(body).unwrap_or_else(|error| panic!("{place}: {error}: {answer}"));
        (head[9..12].parse().expect("it has a status"), body)
    }

    #[test]
    fn rejections_are_json() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("admin");
        let (_proxy, _) = run(&socket);
        let long = "a".repeat(3 * 1024 * 1024);
        for (method, place, body, expected) in [
            ("DELETE", "/status", "", 405),
            ("PUT", "/shaping/listener/x", "", 405),
            ("GET", "/nowhere", "", 404),
            ("DELETE", "/shaping/foo/x", "", 400),
            ("DELETE", "/faults/%ff", "", 400),
            ("POST", "/servers/%ff", "", 400),
            ("POST", "/servers/drain", long.as_str(), 413),
            ("POST", "/shaping", long.as_str(), 413),
            ("POST", "/faults", long.as_str(), 413),
        ] {
            let (status, told) = ask(&socket, method, place, body);
            assert_eq!(status, expected, "{method} {place}: {told}");
            assert!(told["error"].is_string(), "{method} {place}: {told}");
        }
    }

    #[test]
    fn orders_are_json_objects() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("admin");
        let (_proxy, _) = run(&socket);
        for place in [
            "/servers/drain",
            "/cache/purge",
            "/cache/explain",
            "/certificates/renew",
            "/maintenance/on",
            "/maintenance/off",
            "/routes/explain",
            "/shaping",
            "/sources",
        ] {
            for (body, expected) in [
                ("", "it is empty"),
                (" \n", "it is empty"),
                // With defaults for all fields, this would be an empty order.
                ("[]", "not a JSON object"),
                ("[\"GET\", \"/\"]", "not a JSON object"),
                ("null", "not a JSON object"),
                ("{", "the text ends too early"),
            ] {
                let (status, told) = ask(&socket, "POST", place, body);
                assert_eq!(status, 400, "{place} {body:?}: {told}");
                let error = told["error"].as_str().unwrap_or_default();
                assert!(
                    error.starts_with("the body is invalid: ") && error.contains(expected),
                    "{place} {body:?}: {told}"
                );
            }
        }
        assert_eq!(ask(&socket, "POST", "/routes/explain", " {}").0, 200);
    }

    #[test]
    fn a_source_that_is_reported_to_fail_is_a_problem_until_it_answers() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("admin");
        let (_proxy, _) = run(&socket);
        let report = |source: &str, failure: &str| {
            ask(&socket, "POST", "/sources", &format!(r#"{{"source":"{source}","failure":{failure}}}"#)).0
        };
        let problems = || ask(&socket, "GET", "/status", "").1["problems"].to_string();
        assert_eq!(report("docker", "\"docker.sock: gone\""), 200);
        assert!(problems().contains("docker.sock: gone (since 20"), "{}", problems());
        assert_eq!(report("docker", "null"), 200);
        assert_eq!(problems(), "[]");
        assert_eq!(report("A b", "null"), 400);
        let codes: Vec<u16> = (0..16).map(|number| report(&format!("s{number}"), "null")).collect();
        assert_eq!((codes[14], codes[15]), (200, 400), "there is room for 16");
    }

    /// Adding a server of another protocol would make the configuration invalid.
    #[test]
    fn a_server_of_another_kind_is_not_added() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("admin");
        let (proxy, _) = run(&socket);
        let before = proxy.control.plan().config.clone();
        let server = r#"{"upstream":"default","server":"tcp://127.0.0.1:2"}"#;
        let (status, told) = ask(&socket, "POST", "/servers/add", server);
        assert_eq!(status, 422, "{told}");
        assert!(told["error"].as_str().is_some_and(|error| error.contains("tcp://")), "{told}");
        assert_eq!(proxy.control.plan().config, before);
    }

    #[test]
    fn the_status_counts_changes() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("admin");
        let (proxy, config) = run(&socket);
        proxy.reload(config.clone()).expect("it is valid");
        let admin = Some(folder.path().join("missing").join("admin"));
        let config = config.edit(|settings| settings.admin = admin).expect("it is valid");
        proxy.reload(config).expect_err("there is no such folder");
        let (_, told) = ask(&socket, "GET", "/status", "");
        let counters = &told["counters"];
        assert_eq!((&counters["reloads"], &counters["reload_failures"]), (&1.into(), &1.into()), "{told}");
    }
}
