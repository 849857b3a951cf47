//! A client of the API of Kubernetes over HTTP/1.1: lists, watches, statuses and leases.

use std::sync::Arc;
use std::time::Duration;

use config::{Scheme, Server, ServerHost, Upstream, UpstreamTls};
use gateway::{Kind, Reference};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tls::ClientSide;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use crate::events::Event;
use crate::location::Access;

/// How long the server has for a connection and an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The largest answer: a page of a list.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// The largest object: etcd takes 1.5 MiB.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Objects of a page.
const PAGE: usize = 500;
/// How long a watch lasts at the server's side, so that a lost one is noticed.
const WATCH_SECONDS: u64 = 300;
/// A server tells of its version about once a minute (bookmarks): one that is silent for longer is gone.
const SILENCE_MAX: Duration = Duration::from_secs(WATCH_SECONDS + 30);

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// It refuses the request.
    #[error("{}", said(*.0, .1))]
    Refused(u16, String),
}

fn said(status: u16, why: &str) -> String {
    if why.is_empty() {
        format!("the API server answers with {status}")
    } else {
        format!("the API server answers with {status}: {why}")
    }
}

impl Failure {
    /// Whether what was asked for is not there: of a kind, that it is not installed.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Refused(404, _))
    }

    /// Whether the version that was asked for is too old (410).
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Refused(410, _))
    }

    /// Whether somebody else has written in between.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(409, _))
    }
}

/// A client. Its futures stay on their thread.
#[derive(Clone)]
pub struct Client {
    access: Arc<Access>,
}

/// A watch of a kind.
pub(crate) struct Watch {
    body: Incoming,
    text: Vec<u8>,
    _open: Open,
}

/// What a watch tells.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told {
    /// An object is there or has changed.
    Put(Value),
    /// An object is gone.
    Gone(Value),
    /// Nothing has changed up to a version.
    Bookmark(String),
}

/// A connection, and the task that drives it.
struct Open {
    send: SendRequest<Full<Bytes>>,
    task: AbortHandle,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Client {
    /// A client of a server.
    ///
    /// # Errors
    /// What is wrong with the files for TLS.
    pub fn new(access: Access) -> Result<Self, String> {
        let client = Self { access: Arc::new(access) };
        client.tls()?;
        Ok(client)
    }

    /// All objects of a kind, and the version of the list.
    pub(crate) async fn list(&self, kind: Kind) -> Result<(Vec<Value>, String), Failure> {
        let (mut objects, mut next) = (Vec::new(), String::new());
        loop {
            let path = format!("{}?limit={PAGE}{}{}", path(kind, ""), only(kind), continued(&next));
            let mut page = self.call(Method::GET, &path, "", Value::Null).await?;
            if let Value::Array(items) = page["items"].take() {
                objects.extend(items);
            }
            let text = |key: &str| page["metadata"][key].as_str().unwrap_or_default().to_owned();
            next = text("continue");
            if next.is_empty() {
                return Ok((objects, text("resourceVersion")));
            }
        }
    }

    /// Watches a kind from a version on.
    pub(crate) async fn watch(&self, kind: Kind, version: &str) -> Result<Watch, Failure> {
        let path = format!(
            "{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}{}",
            path(kind, ""),
            only(kind)
        );
        let begin = async {
            let mut open = self.connect().await?;
            let answer = self.send(&mut open, Method::GET, &path, "", Value::Null).await?;
            Ok::<_, Failure>((open, answer))
        };
        let (open, answer) = in_time(begin).await?;
        if answer.status() != 200 {
            return Err(refusal(answer).await);
        }
        Ok(Watch { body: answer.into_body(), text: Vec::new(), _open: open })
    }

    /// Writes the status of an object, if nobody else has written the object since.
    pub(crate) async fn write_status(
        &self,
        object: &Reference,
        version: &str,
        status: &Value,
    ) -> Result<(), Failure> {
        let path = format!("{}/{}/status", path(object.kind, &object.namespace), object.name);
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": status });
        self.call(Method::PATCH, &path, "application/merge-patch+json", patch).await.map(drop)
    }

    /// A lease.
    pub(crate) async fn lease(&self, namespace: &str, name: &str) -> Result<Value, Failure> {
        self.call(Method::GET, &format!("{}/{name}", leases(namespace)), "", Value::Null).await
    }

    /// Makes a lease, or replaces the one that was read.
    pub(crate) async fn put_lease(
        &self,
        namespace: &str,
        name: &str,
        lease: Value,
        is_new: bool,
    ) -> Result<(), Failure> {
        let (method, path) = match is_new {
            true => (Method::POST, leases(namespace)),
            false => (Method::PUT, format!("{}/{name}", leases(namespace))),
        };
        self.call(method, &path, "application/json", lease).await.map(drop)
    }

    /// Writes an Event, or that it is still so if it is there already.
    pub(crate) async fn write_event(&self, event: Event) -> Result<(), Failure> {
        let Event { namespace, name, object, again } = event;
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        match self.call(Method::POST, &path, "application/json", object).await {
            Err(failure) if failure.is_conflict() => {
                let path = format!("{path}/{name}");
                self.call(Method::PATCH, &path, "application/merge-patch+json", again).await.map(drop)
            }
            other => other.map(drop),
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        content: Value,
    ) -> Result<Value, Failure> {
        let exchange = async {
            let mut open = self.connect().await?;
            let answer = self.send(&mut open, method, path, content_type, content).await?;
            if !answer.status().is_success() {
                return Err(refusal(answer).await);
            }
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| Failure::Unreachable(error.to_string()))?.to_bytes();
            serde_json::from_slice(&body)
                .map_err(|_| Failure::Unreachable("the answer is no JSON".to_owned()))
        };
        in_time(exchange).await
    }

    async fn send(
        &self,
        open: &mut Open,
        method: Method,
        path: &str,
        content_type: &str,
        content: Value,
    ) -> Result<Response<Incoming>, Failure> {
        let mut head = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.access.authority())
            .header("accept", "application/json")
            .header("user-agent", "vanward");
        if let Some(token) = &self.access.token {
            let token = std::fs::read_to_string(token)
                .map_err(|error| Failure::Unreachable(format!("{}: {error}", token.display())))?;
            head = head.header("authorization", format!("Bearer {}", token.trim()));
        }
        let body = if content.is_null() { String::new() } else { content.to_string() };
        if !content_type.is_empty() {
            head = head.header("content-type", content_type);
        }
        let failed = Failure::Unreachable;
        let request =
            head.body(Full::new(Bytes::from(body))).map_err(|_| failed("the token is no text".to_owned()))?;
        open.send.send_request(request).await.map_err(|error| failed(error.to_string()))
    }

    async fn connect(&self) -> Result<Open, Failure> {
        let Access { host, port, .. } = &*self.access;
        let failed = |why: String| Failure::Unreachable(format!("{}: {why}", self.access.authority()));
        let tcp =
            TcpStream::connect((host.as_str(), *port)).await.map_err(|error| failed(error.to_string()))?;
        let _ = tcp.set_nodelay(true);
        // The file of the CA may be another one by now.
        let tls = self.tls().map_err(failed)?;
        match tls.as_ref().and_then(|tls| Some((tls.config(), tls.name(0)?.clone()))) {
            None => begin(tcp).await.map_err(failed),
            Some((config, name)) => {
                let tls = TlsConnector::from(config).connect(name, tcp).await;
                begin(tls.map_err(|error| failed(error.to_string()))?).await.map_err(failed)
            }
        }
    }

    fn tls(&self) -> Result<Option<ClientSide>, String> {
        let Access { is_secure, host, port, ca, certificate, .. } = &*self.access;
        if !is_secure {
            return Ok(None);
        }
        let server = Server {
            name: None,
            scheme: Scheme::Https,
            host: host.parse().map_or_else(|_| ServerHost::Name(host.clone()), ServerHost::Address),
            port: *port,
            weight: 1,
            down: false,
            priority: 0,
            max_requests: None,
        };
        let tls = UpstreamTls { ca: ca.clone(), certificate: certificate.clone(), ..UpstreamTls::default() };
        let upstream = Upstream { tls, ..Upstream::of("kubernetes", vec![server]) };
        ClientSide::load(&upstream)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}

impl Watch {
    /// Waits for what comes next; `None` if the server has ended the watch as it had announced.
    pub(crate) async fn next(&mut self) -> Result<Option<Told>, Failure> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return told(&line).map(Some);
            }
            if self.text.len() > LINE_BYTES_MAX {
                return Err(Failure::Unreachable("an object of the watch has no end".to_owned()));
            }
            let frame = tokio::time::timeout(SILENCE_MAX, self.body.frame()).await;
            let frame = frame.map_err(|_| Failure::Unreachable("the watch is silent".to_owned()))?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| Failure::Unreachable(error.to_string()))?;
            self.text.extend_from_slice(frame.data_ref().map(|bytes| &bytes[..]).unwrap_or_default());
        }
    }
}

/// A line of a watch.
fn told(line: &[u8]) -> Result<Told, Failure> {
    let broken = || Failure::Unreachable("a line of the watch is no event".to_owned());
    let mut event: Value = serde_json::from_slice(line).map_err(|_| broken())?;
    let object = event["object"].take();
    match event["type"].as_str() {
        Some("ADDED" | "MODIFIED") => Ok(Told::Put(object)),
        Some("DELETED") => Ok(Told::Gone(object)),
        Some("BOOKMARK") => Ok(Told::Bookmark(version(&object))),
        Some("ERROR") => {
            let code = object["code"].as_u64().and_then(|code| code.try_into().ok()).unwrap_or(500);
            Err(Failure::Refused(code, object["message"].as_str().unwrap_or_default().to_owned()))
        }
        _ => Err(broken()),
    }
}

/// The version of an object.
pub(crate) fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

async fn in_time<T>(exchange: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| Failure::Unreachable("the API server does not answer in time".to_owned());
    tokio::time::timeout(ANSWER_MAX, exchange).await.map_err(late)?
}

/// Why the server refuses a request. Its answers are objects with a message.
async fn refusal(answer: Response<Incoming>) -> Failure {
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), 64 << 10).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let object: Value = serde_json::from_slice(&body).unwrap_or_default();
    Failure::Refused(status, object["message"].as_str().unwrap_or_default().to_owned())
}

/// Begins HTTP/1.1 on a connection.
async fn begin(stream: impl AsyncRead + AsyncWrite + Unpin + 'static) -> Result<Open, String> {
    let (send, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let task = tokio::task::spawn_local(async move {
        // What went wrong is told to whoever waits for an answer.
        let _ = connection.await;
    });
    Ok(Open { send, task: task.abort_handle() })
}

fn path(kind: Kind, namespace: &str) -> String {
    let (group, version, plural) = kind.path();
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    match namespace {
        "" => format!("{root}/{plural}"),
        namespace => format!("{root}/namespaces/{namespace}/{plural}"),
    }
}

fn leases(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

/// Of secrets only certificates are asked for, and those that may have users: not what other controllers keep in theirs.
fn only(kind: Kind) -> &'static str {
    match kind {
        Kind::Secret => "&fieldSelector=type%3Dkubernetes.io%2Ftls",
        Kind::Passwords => "&fieldSelector=type%3DOpaque",
        _ => "",
    }
}

/// The place where a list goes on, which is a text of the server's own.
fn continued(place: &str) -> String {
    if place.is_empty() {
        return String::new();
    }
    let escaped = place.bytes().map(|byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    format!("&continue={}", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kind that is watched, but that the service account may not read, would keep a gateway from starting.
    #[test]
    fn the_manifests_permit_what_is_asked_for() {
        let manifests = include_str!("../../../contrib/kubernetes/vanward.yaml");
        let permitted = |verbs: &str| -> Vec<&str> {
            let rules =
                manifests.split("- apiGroups: ").filter(|rule| rule.contains(&format!("verbs: [{verbs}]")));
            let lists = rules.filter_map(|rule| rule.split("resources: [").nth(1)?.split(']').next());
            lists.flat_map(|list| list.split(", ")).collect()
        };
        let (read, patched) = (permitted("list, watch"), permitted("patch"));
        for kind in Kind::ALL {
            let (group, _, plural) = kind.path();
            assert!(read.contains(&plural), "{plural}");
            assert!(group.is_empty() || manifests.contains(&format!("- apiGroups: [{group}]")), "{group}");
        }
        let statuses = [
            "gatewayclasses/status",
            "gateways/status",
            "httproutes/status",
            "grpcroutes/status",
            "tlsroutes/status",
            "backendtlspolicies/status",
            "ingresses/status",
        ];
        // Secrets are read by two types.
        assert_eq!((read.len() + 1, patched), (Kind::ALL.len(), statuses.to_vec()));
        assert_eq!(permitted("create, patch"), ["events"]);
    }

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(path(Kind::Secret, ""), "/api/v1/secrets");
        let of_namespace = "/apis/gateway.networking.k8s.io/v1/namespaces/shop/httproutes";
        assert_eq!(path(Kind::HttpRoute, "shop"), of_namespace);
        assert_eq!(continued(""), "");
        assert_eq!(continued("a+/="), "&continue=a%2B%2F%3D");
    }
}
